"""A coordinator that answers reports with what a test queued, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bigfleet.shard.coordinator_link.link import REDIRECT
from bigfleet.transport import Server
from bigfleet.wire import coordinator_pb2, coordinator_pb2_grpc

Answer = coordinator_pb2.ReportAck | tuple[grpc.StatusCode, str]


class ScriptedCoordinator(coordinator_pb2_grpc.CoordinatorServicer):
    """Answers reports with what a test queued, else with its term."""

    def __init__(self) -> None:
        self.reports: list[coordinator_pb2.ShardReport] = []
        self.answers: list[Answer] = []
        self.term = 5
        self.silent = False
        self.address = ""

    async def ReportShard(self, request: coordinator_pb2.ShardReport, context: Any) -> coordinator_pb2.ReportAck:  # noqa: N802
        self.reports.append(request)
        if self.silent:
            await asyncio.sleep(60)
        answer = self.answers.pop(0) if self.answers else coordinator_pb2.ReportAck(coordinator_term=self.term)
        if isinstance(answer, tuple):
            code, hint = answer
            await context.abort(code, "scripted", ((REDIRECT, hint),) if hint else ())
        return answer


@asynccontextmanager
async def scripted_coordinator() -> AsyncIterator[ScriptedCoordinator]:
    coordinator = ScriptedCoordinator()
    server = Server("127.0.0.1:0")
    server.add(coordinator_pb2_grpc.add_CoordinatorServicer_to_server, coordinator)
    await server.start()
    coordinator.address = server.address
    try:
        yield coordinator
    finally:
        await server.stop(grace=0)
