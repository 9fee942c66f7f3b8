"""A cluster written from the wire contract: says what it wants, gives user data, lets every machine go when asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from bigfleet.wire import capacity_pb2 as cap
from bigfleet.wire import provider_pb2, shard_pb2

SESSION = "/bigfleet.v1alpha1.Shard/Session"
REPEAT_SECONDS = 2.0


def row(pods: int, cpu: int = 4, *, priority: int = 100, group: str = "", **more: str) -> cap.CapacityNeed:
    """So many units of so many cores, and of what else is named."""
    unit = {"cpu": str(cpu), **more}
    whole = {"cpu": str(cpu * pods), **{name: str(int(amount) * pods) for name, amount in more.items()}}
    return cap.CapacityNeed(aggregate_resources=whole, min_unit=unit, priority=priority, group=group)


class Cluster:
    """One session; repeats its last roll-up, as operators do."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self.name = name
        self.nodes: dict[str, int] = {}
        self.acks: list[Any] = []
        self.drained: list[str] = []
        self.ended = ""
        self._rows: list[cap.CapacityNeed] | None = None
        self._call: Any = channel.stream_stream(
            SESSION,
            request_serializer=shard_pb2.OperatorMessage.SerializeToString,
            response_deserializer=shard_pb2.ShardMessage.FromString,
        )()
        self._pen = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        capabilities = ["drain-reports", "ack-outcomes", "resync-end"]
        hello = shard_pb2.Hello(cluster_id=self.name, protocol_version="v1alpha1", capabilities=capabilities)
        await self._send(hello=hello)
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._repeat())]

    async def want(self, *rows: cap.CapacityNeed) -> None:
        self._rows = list(rows)
        await self._tell()

    @property
    def configured(self) -> list[str]:
        return [name for name, state in self.nodes.items() if state == provider_pb2.MACHINE_STATE_CONFIGURED]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(Exception):
            self._call.cancel()

    async def _tell(self) -> None:
        needs = cap.ClusterCapacityNeeds(
            cluster_id=self.name, needs=self._rows or [], timestamp_unix_nanos=time.time_ns()
        )
        await self._send(rollup=needs)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPEAT_SECONDS)
            if self._rows is not None:
                await self._tell()

    async def _send(self, **payload: Any) -> None:
        async with self._pen:
            await self._call.write(shard_pb2.OperatorMessage(**payload))

    async def _listen(self) -> None:
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                await self._hear(message)
        except grpc.aio.AioRpcError as error:
            self.ended = f"{error.code().name}: {error.details()}"

    async def _hear(self, message: Any) -> None:
        kind = message.WhichOneof("payload")
        if kind == "ack":
            self.acks.append(message.ack)
        elif kind == "node_state_update":
            self.nodes[message.node_state_update.machine_id] = message.node_state_update.state
        elif kind == "bootstrap_request":
            asked = message.bootstrap_request.request_id
            blob = shard_pb2.BootstrapBlobResponse(request_id=asked, user_data=b"#!", ttl_seconds=3600)
            await self._send(bootstrap_response=blob)
        elif kind == "reclaim_instruction":
            order = message.reclaim_instruction
            for node in order.nodes:
                self.drained.append(node)
                done = shard_pb2.DrainReport.OUTCOME_DRAINED
                report = shard_pb2.DrainReport(instruction_id=order.instruction_id, machine_id=node, outcome=done)
                await self._send(drain_report=report)


@asynccontextmanager
async def clusters(address: str, names: Iterable[str]) -> AsyncIterator[list[Cluster]]:
    """Sessions with a shard, one connection each."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 256 << 20)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in names]
    made = [Cluster(name, channel) for name, channel in zip(names, channels, strict=True)]
    try:
        for each in made:
            await each.open()
        yield made
    finally:
        for each in made:
            await each.close()
        for channel in channels:
            await channel.close()
