"""Many operators in one process of their own, driven by JSON commands on standard input, one answer line each.

    {"do": "connect", "streams": 1000, "connections": 100}      {"do": "want", "rows": 10, "machines": 9}
    {"do": "run", "rate": 1000, "changed": 0.5, "seconds": 60}  {"do": "settled", "machines": 9000, "seconds": 60}

Roll-ups are serialised once and only their timestamp is new, so that this process measures the shard and not itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import grpc

import bigfleet  # noqa: F401  # before grpc: it fixes the TLS versions
from bench._samples import spread
from bigfleet.model.names import OPERATOR_CAPABILITIES
from bigfleet.shard.rehearsal.synthetic import SESSION, Row
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2

UNIT = {"cpu": "2", "memory": "4Gi"}
TICK_SECONDS = 0.01
QUIET_SECONDS = 2.0
DIALLED_AT_ONCE = 200
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs
_TIMESTAMP = capacity_pb2.ClusterCapacityNeeds.TIMESTAMP_UNIX_NANOS_FIELD_NUMBER
_ROLLUP = shard_pb2.OperatorMessage.ROLLUP_FIELD_NUMBER
_CONFIGURED = provider_pb2.MACHINE_STATE_CONFIGURED


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Stream:
    """One cluster's session."""

    __slots__ = ("_channel", "_fleet", "_head", "_pen", "bodies", "call", "cluster", "configured", "turn")

    def __init__(self, fleet: Operators, cluster: str, channel: Any) -> None:
        self._fleet = fleet
        self.cluster = cluster
        self._channel = channel
        self.call: Any = None
        self.configured: set[str] = set()
        self._head = capacity_pb2.ClusterCapacityNeeds(cluster_id=cluster).SerializeToString()
        self.bodies: tuple[bytes, bytes] = (b"", b"")
        self.turn = 0
        # A stream takes one frame at a time, and roll-ups and answers come from different tasks.
        self._pen = asyncio.Lock()

    async def open(self) -> None:
        # Not before its turn: a shard does not wait long for the Hello of a stream.
        self.call = self._channel.stream_stream(SESSION)()
        hello = shard_pb2.Hello(
            cluster_id=self.cluster, protocol_version="v1alpha1", capabilities=sorted(OPERATOR_CAPABILITIES)
        )
        await self.call.write(shard_pb2.OperatorMessage(hello=hello).SerializeToString())
        await self.call.read()

    def want(self, rows: int, machines: int) -> None:
        """Rows of one priority each; the last wants one machine more in every other version."""
        pods = [machines // rows + (number < machines % rows) for number in range(rows)]
        self.bodies = (self._body(pods), self._body([*pods[:-1], pods[-1] + 1]))

    def _body(self, pods: list[int]) -> bytes:
        rows = [Row(pods=count, unit=UNIT, priority=number) for number, count in enumerate(pods, start=1)]
        return capacity_pb2.ClusterCapacityNeeds(needs=[row.need() for row in rows]).SerializeToString()

    async def tell(self, *, changed: bool) -> None:
        self.turn ^= changed
        now = time.time_ns()
        if not changed:
            self._fleet.repeated.add(now)
        # In the order of field numbers, as every serialiser writes them.
        inner = self._head + _varint(_TIMESTAMP << 3) + _varint(now) + self.bodies[self.turn]
        await self._write(_varint(_ROLLUP << 3 | 2) + _varint(len(inner)) + inner)

    async def listen(self) -> None:
        """Answer whatever the shard says until the stream ends."""
        while (frame := await self.call.read()) is not _EOF:
            message = shard_pb2.ShardMessage.FromString(frame)
            kind = message.WhichOneof("payload")
            if kind == "ack":
                self._fleet.acknowledged(message.ack)
            elif kind == "node_state_update":
                node = message.node_state_update
                change = self.configured.add if node.state == _CONFIGURED else self.configured.discard
                change(node.machine_id)
            elif kind == "bootstrap_request":
                answer = shard_pb2.BootstrapBlobResponse(
                    request_id=message.bootstrap_request.request_id, user_data=b"#cloud-config", ttl_seconds=3600
                )
                await self._send(bootstrap_response=answer)
            elif kind == "reclaim_instruction":
                await self._drain(message.reclaim_instruction)

    async def _drain(self, order: shard_pb2.ReclaimInstruction) -> None:
        for node in order.nodes:
            report = shard_pb2.DrainReport(
                instruction_id=order.instruction_id, machine_id=node, outcome=shard_pb2.DrainReport.OUTCOME_DRAINED
            )
            await self._send(drain_report=report)

    async def _send(self, **payload: Any) -> None:
        await self._write(shard_pb2.OperatorMessage(**payload).SerializeToString())

    async def _write(self, frame: bytes) -> None:
        async with self._pen:
            await self.call.write(frame)


class Operators:
    """All streams of this process, and how their roll-ups fared."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._streams: list[Stream] = []
        self._channels: list[grpc.aio.Channel] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._latencies: list[float] = []
        # Timestamps of roll-ups that say nothing new, and how long their acknowledgements took.
        self.repeated: set[int] = set()
        self._quick: list[float] = []
        self._outcomes: dict[str, int] = {}
        # What was sent before this instant belongs to a run that is over.
        self._since = 0

    async def connect(self, streams: int, connections: int) -> dict[str, Any]:
        began = time.monotonic()
        separate = [("grpc.use_local_subchannel_pool", 1)]
        for _ in range(min(streams, connections)):
            self._channels.append(grpc.aio.insecure_channel(self._address, options=separate))
        for number in range(streams):
            self._streams.append(Stream(self, f"cluster-{number:05}", self._channels[number % len(self._channels)]))
        for start in range(0, streams, DIALLED_AT_ONCE):
            some = self._streams[start : start + DIALLED_AT_ONCE]
            await asyncio.gather(*(stream.open() for stream in some))
            self._tasks += [asyncio.create_task(stream.listen()) for stream in some]
        return {"seconds": time.monotonic() - began}

    async def want(self, rows: int, machines: int) -> dict[str, Any]:
        """Every cluster asks for so many machines, once."""
        for stream in self._streams:
            stream.want(rows, machines)
        began = time.monotonic()
        for stream in self._streams:
            await stream.tell(changed=False)
        return {"seconds": time.monotonic() - began}

    async def settled(self, machines: int, seconds: float) -> dict[str, Any]:
        """Until so many machines are Configured, over all clusters."""
        began = time.monotonic()
        while (have := sum(len(stream.configured) for stream in self._streams)) < machines:
            if time.monotonic() - began > seconds:
                break
            await asyncio.sleep(0.02)
        return {"seconds": time.monotonic() - began, "machines": have}

    async def run(self, rate: float, changed: float, seconds: float) -> dict[str, Any]:
        """Roll-ups at a steady rate, round and round; late ones are sent late, not left out."""
        self._latencies, self._outcomes, self._quick = [], {}, []
        self._since = time.time_ns()
        self.repeated.clear()
        sent, differing, worked = 0, 0.0, time.process_time()
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            for _ in range(int(passed * rate) - sent):
                differing += changed
                await self._streams[sent % len(self._streams)].tell(changed=differing >= 1)
                differing -= differing >= 1
                sent += 1
                if time.monotonic() - began > seconds:
                    break
            await asyncio.sleep(TICK_SECONDS)
        passed = time.monotonic() - began
        await self._last_acknowledgements(sent)
        return {
            "seconds": time.monotonic() - began,
            "sent": sent,
            "sent_per_second": sent / passed,
            "acked": len(self._latencies),
            "outcomes": self._outcomes,
            "ack_ms": spread(self._latencies, 1),
            "unchanged_ack_ms": spread(self._quick, 1),
            "processor_share": (time.process_time() - worked) / passed,
        }

    async def _last_acknowledgements(self, sent: int) -> None:
        """Until all have come, or none comes any more: a roll-up that a newer one overtook is never answered."""
        heard, since = -1, 0.0
        while (now := len(self._latencies)) < sent:
            if now != heard:
                heard, since = now, time.monotonic()
            elif time.monotonic() - since > QUIET_SECONDS:
                break
            await asyncio.sleep(TICK_SECONDS)

    def acknowledged(self, ack: shard_pb2.Acknowledgement) -> None:
        if ack.rollup_timestamp >= max(1, self._since):
            took = (time.time_ns() - ack.rollup_timestamp) / 1e6
            self._latencies.append(took)
            if ack.rollup_timestamp in self.repeated:
                self._quick.append(took)
            name = shard_pb2.Acknowledgement.Outcome.Name(ack.outcome)
            self._outcomes[name] = self._outcomes.get(name, 0) + 1


async def _main(address: str) -> None:
    operators = Operators(address)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        answer = await getattr(operators, command.pop("do"))(**command)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
