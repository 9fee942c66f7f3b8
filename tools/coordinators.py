"""Coordinators as child processes over a real etcd, and a client that keeps writing while they are killed and frozen.

For tests and benchmarks of failover: the client records every acknowledged write and every gap between two of them, so
what was promised can be held against what is there afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from bigfleet.model.names import REDIRECT
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.processes import BIGFLEET, Program, free_address

KEY = "bench.example/domain"
SHARD = "writer"


class Coordinators:
    """Replicas that share an etcd, on fixed addresses, so that each may die and come back.

    `own_endpoints` are where each of them finds that etcd, where that differs.
    """

    def __init__(
        self,
        folder: Path,
        endpoints: Sequence[str],
        replicas: int = 3,
        flags: Sequence[str] = (),
        own_endpoints: Sequence[Sequence[str]] = (),
    ) -> None:
        found = own_endpoints or [endpoints] * replicas
        folder.mkdir(parents=True, exist_ok=True)
        self.addresses = [free_address() for _ in range(replicas)]
        self.programs = [
            Program(
                f"coordinator-{number}",
                [
                    *(*BIGFLEET, "coordinator", "--log-format", "json", "--id", f"node-{number}"),
                    *("--listen", address, "--metrics-addr", "0", "--data-dir", str(folder / f"node-{number}")),
                    *(("--etcd-endpoints", ",".join(found[number])) if found[number] else ()),
                    *flags,
                ],
                folder,
            )
            for number, address in enumerate(self.addresses)
        ]

    def start(self) -> None:
        for program in self.programs:
            program.start()
        for program in self.programs:
            program.told("coordinator listening")

    def stop(self) -> None:
        for program in self.programs:
            if program.alive:
                program.go_on()
                program.kill()

    def leader(self) -> Program:
        """Who began the latest term, by the logs."""
        begun = [
            (line["term"], program)
            for program in self.programs
            for line in program.lines("leading", every_life=True)
            if line["msg"] == "leading"
        ]
        return max(begun, key=lambda each: each[0])[1]

    def terms(self) -> list[int]:
        """Every term anybody has led, over all lives."""
        return sorted(
            line["term"]
            for program in self.programs
            for line in program.lines("leading", every_life=True)
            if line["msg"] == "leading"
        )


class Writer:
    """Assigns one domain after the other, through whoever leads, until told to stop.

    With `values` it assigns only so many and then unassigns them again in turn, so that the state does not grow.
    """

    def __init__(self, addresses: Sequence[str], *, values: int = 0, pause: float = 0.01) -> None:
        self._values = values
        self._pause = pause
        self._addresses = list(addresses)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._at = addresses[0]
        # What must be there, in the order it was assigned.
        self.acknowledged: dict[str, None] = {}
        self.moments: list[float] = []
        self.terms: list[int] = []
        self._cycle = 0
        self._running = True

    async def run(self) -> None:
        """Every write is repeated until acknowledged; a repetition of what happened succeeds too."""
        await self._until_done(self._report)
        number = 0
        while self._running:
            value = f"d{number % self._values if self._values else number}"
            if value in self.acknowledged:
                await self._until_done(lambda value=value: self._unassign(value))  # type: ignore[misc]
                del self.acknowledged[value]
            else:
                await self._until_done(lambda value=value: self._assign(value))  # type: ignore[misc]
                self.acknowledged[value] = None
            self.moments.append(time.monotonic())
            number += 1
            if number % 20 == 0:
                await self._until_done(self._report)
            await asyncio.sleep(self._pause)

    def stop(self) -> None:
        self._running = False

    async def listed(self) -> set[str]:
        async def ask() -> Any:
            return await self._stub().ListDomainAssignments(pb.ListDomainAssignmentsRequest(), timeout=5.0)

        answer = await self._until_done(ask)
        return {each.topology_value for each in answer.assignments}

    async def close(self) -> None:
        for opened in self._channels.values():
            await opened.close(None)

    async def wait_for_progress(self, writes: int = 3, seconds: float = 60.0) -> float:
        """When so many more writes were acknowledged; the time of the first of them."""
        begin = len(self.moments)
        async with asyncio.timeout(seconds):
            while len(self.moments) < begin + writes:
                await asyncio.sleep(0.005)
        return self.moments[begin]

    async def _report(self) -> None:
        self._cycle += 1
        answer = await self._stub().ReportShard(
            pb.ShardReport(shard_id=SHARD, cycle=self._cycle, shard_epoch=1), timeout=1.0
        )
        self.terms.append(answer.coordinator_term)

    async def _assign(self, value: str) -> None:
        request = pb.AssignDomainRequest(topology_key=KEY, topology_value=value, shard_id=SHARD)
        await self._stub().AssignDomain(request, timeout=1.0)

    async def _unassign(self, value: str) -> None:
        await self._stub().UnassignDomain(pb.UnassignDomainRequest(topology_key=KEY, topology_value=value), timeout=1.0)

    async def _until_done(self, work: Any) -> Any:
        while True:
            try:
                return await work()
            except grpc.aio.AioRpcError as error:
                trailers: Any = error.trailing_metadata() or ()
                hint = next((str(value) for key, value in trailers if key == REDIRECT), "")
                self._at = hint if hint and hint != self._at else self._next()
                await asyncio.sleep(0.02)

    def _next(self) -> str:
        known = self._addresses
        return known[(known.index(self._at) + 1) % len(known)] if self._at in known else known[0]

    def _stub(self) -> Any:
        if self._at not in self._channels:
            self._channels[self._at] = channel(self._at)
        return coordinator_pb2_grpc.CoordinatorStub(self._channels[self._at])
