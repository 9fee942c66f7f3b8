"""A cloud written from the wire contract: slots and hosts in memory, and the faults an attack switches on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc

SPECULATIVE, CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED = range(1, 9)
EDGES = {
    "create": (SPECULATIVE, CREATING, IDLE),
    "configure": (IDLE, CONFIGURING, CONFIGURED),
    "drain": (CONFIGURED, DRAINING, IDLE),
    "delete": (IDLE, DELETING, SPECULATIVE),
}
WORK_SECONDS = 0.2


class Cloud(rpc.CapacityProviderServicer):
    """Faults: types that are sold out, Creates nobody knows afterwards, a while in which new hosts are not seen, a
    bucket of so many calls a second, and answers that come so late."""

    def __init__(self) -> None:
        self.machines: dict[str, pb.Machine] = {}
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sold_out: set[str] = set()
        self.unknown: set[str] = set()
        self.invisible_seconds = 0.0
        self.calls_per_second = 0.0
        self.late_seconds = 0.0
        self.address = ""
        self.server: Any = None
        self._created: dict[str, float] = {}
        self._tokens, self._filled = 2.0, 0.0
        self._fences: dict[tuple[str, str], tuple[int, int]] = {}
        self._work: set[asyncio.Task[None]] = set()

    def offer(self, name: str, count: int, *, state: int = SPECULATIVE, price: float = 1.0, **facts: Any) -> None:
        resources = facts.pop("resources", {"cpu": "4", "memory": "16Gi"})
        for number in range(count):
            machine = pb.Machine(
                id=f"{name}-{number:03}",
                instance_type=name,
                zone="zone-a",
                capacity_type=facts.get("capacity_type", pb.CAPACITY_TYPE_ON_DEMAND),
                price_per_hour=price,
                resources=pb.Resources(resources=resources),
                **{fact: value for fact, value in facts.items() if fact != "capacity_type"},
            )
            machine.state = pb.MachineState.ValueType(state)
            if state != SPECULATIVE:
                machine.host.CopyFrom(pb.HostRef(provider="cloud", ref=f"host-{machine.id}"))
            self.machines[machine.id] = machine

    def states(self) -> Counter[int]:
        return Counter(machine.state for machine in self.machines.values())

    def billed(self) -> float:
        """What its owner pays: everything that has a host, and what is reserved."""
        machines = self.machines.values()
        return sum(
            machine.price_per_hour
            for machine in machines
            if machine.HasField("host") or machine.capacity_type == pb.CAPACITY_TYPE_RESERVED
        )

    def fence(self, shard: str, machine: str, epoch: int) -> None:
        """Somebody with this token was here before."""
        self._fences[shard, machine] = (epoch, 0)

    def _seen(self, machine: str) -> bool:
        return time.monotonic() - self._created.get(machine, -1e9) >= self.invisible_seconds

    def _too_many(self) -> bool:
        now = time.monotonic()
        self._tokens = min(2.0, self._tokens + (now - self._filled) * self.calls_per_second)
        self._filled = now
        if not self.calls_per_second or self._tokens < 1.0:
            return bool(self.calls_per_second)
        self._tokens -= 1.0
        return False

    async def _mutate(self, kind: str, request: Any, context: Any) -> pb.TransitionAck:
        self.calls[kind] += 1
        if self._too_many():
            self.refused[kind] += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Rate exceeded")
        machine = self.machines.get(request.machine_id)
        token, key = (request.shard_epoch, request.sequence_number), (request.shard_id, request.machine_id)
        if token <= self._fences.get(key, (-1, -1)):
            self.refused[kind] += 1
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "stale token")
        self._fences[key] = token
        if machine is None or (kind == "create" and machine.id in self.unknown) or not self._seen(machine.id):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no machine {request.machine_id}")
        assert machine is not None
        if kind == "create" and machine.instance_type in self.sold_out:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "insufficient capacity")
        before, during, after = EDGES[kind]
        if machine.state == before:
            machine.state = pb.MachineState.ValueType(during)
            if kind == "create":
                self._created[machine.id] = time.monotonic()
            if kind == "configure":
                machine.cluster = request.cluster_id
                machine.shard_metadata.update(request.shard_metadata)
            task = asyncio.create_task(self._finish(machine, kind, after))
            self._work.add(task)
            task.add_done_callback(self._work.discard)
        elif machine.state not in (during, after):
            await context.abort(grpc.StatusCode.INTERNAL, f"{kind} is out of position")
        copy = pb.Machine()
        copy.CopyFrom(machine)
        await asyncio.sleep(self.late_seconds)
        return pb.TransitionAck(operation_id=f"{kind}-{machine.id}", machine=copy)

    async def _finish(self, machine: pb.Machine, kind: str, after: int) -> None:
        await asyncio.sleep(WORK_SECONDS)
        machine.state = pb.MachineState.ValueType(after)
        if kind == "create":
            machine.host.CopyFrom(pb.HostRef(provider="cloud", ref=f"host-{machine.id}"))
        elif kind == "drain":
            machine.cluster = ""
            machine.shard_metadata.clear()
        elif kind == "delete":
            machine.ClearField("host")

    async def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._mutate("create", request, context)

    async def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._mutate("configure", request, context)

    async def Drain(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._mutate("drain", request, context)

    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._mutate("delete", request, context)

    async def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls["get"] += 1
        if request.id not in self.machines or not self._seen(request.id):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no machine {request.id}")
        return self.machines[request.id]

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls["list"] += 1
        wanted = set(request.states)
        found = [m for m in self.machines.values() if self._seen(m.id) and (not wanted or m.state in wanted)]
        return pb.MachineList(machines=found)


@asynccontextmanager
async def cloud() -> AsyncIterator[Cloud]:
    """A cloud on a loopback port of its own."""
    made = Cloud()
    made.server = grpc.aio.server(options=[("grpc.max_send_message_length", 256 << 20)])
    rpc.add_CapacityProviderServicer_to_server(made, made.server)
    made.address = f"127.0.0.1:{made.server.add_insecure_port('127.0.0.1:0')}"
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.stop(0)
