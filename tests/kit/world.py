"""A provider under test: hosts in memory, backend calls that wait until the test lets them go, a real gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bigfleet.provider import kit
from bigfleet.provider.kit.store import Store
from bigfleet.transport import channel
from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc
from tools.waiting import until

SLOTS = 8


class MemoryProvider:
    """Answers at once unless a gate is closed; remembers what it was asked."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.instances = [
            kit.Instance(f"m{n:03d}", "box", zone="a", price_per_hour=0.1, labels={"rack": f"r{n % 2}"})
            for n in range(slots)
        ]
        self.calls: list[tuple[str, str, str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.errors: dict[str, Exception] = {}
        self.handle: kit.Handle | None = None

    async def started(self, handle: kit.Handle) -> None:
        self.handle = handle

    async def describe(self) -> list[kit.Instance]:
        return self.instances

    async def create_instance(self, machine: kit.Machine, operation_id: str) -> str:
        await self._called("create", machine, operation_id)
        return f"host-{operation_id}"

    async def configure_instance(
        self, machine: kit.Machine, cluster_id: str, bootstrap_blob: bytes, operation_id: str
    ) -> None:
        await self._called("configure", machine, operation_id)

    async def drain_instance(self, machine: kit.Machine, grace_period_seconds: int, operation_id: str) -> None:
        await self._called("drain", machine, operation_id)

    async def delete_instance(self, machine: kit.Machine, operation_id: str) -> None:
        await self._called("delete", machine, operation_id)

    async def _called(self, kind: str, machine: kit.Machine, operation_id: str) -> None:
        self.calls.append((kind, machine.id, operation_id))
        if gate := self.gates.get(kind):
            await gate.wait()
        if error := self.errors.get(kind):
            raise error

    def hold(self, kind: str) -> asyncio.Event:
        """Let calls of this kind wait until the returned event is set."""
        gate = self.gates[kind] = asyncio.Event()
        return gate


class World:
    """A running provider and a client to it."""

    def __init__(self, process: kit.ProviderProcess, stub: Any, channel: grpc.aio.Channel) -> None:
        self.process = process
        self.channel = channel
        self.stub = stub

    async def get(self, machine_id: str) -> pb.Machine:
        machine: pb.Machine = await self.stub.Get(pb.MachineRef(id=machine_id))
        return machine

    async def settle(self, machine_id: str, state: int) -> pb.Machine:
        """Wait until the machine reached the state."""
        return await until(lambda: self.get(machine_id), lambda machine: machine.state == state)

    async def to_idle(self, machine_id: str) -> pb.TransitionAck:
        ack: pb.TransitionAck = await self.stub.Create(pb.CreateRequest(machine_id=machine_id))
        await self.settle(machine_id, pb.MACHINE_STATE_IDLE)
        return ack

    async def to_configured(self, machine_id: str, **fields: Any) -> pb.TransitionAck:
        request = pb.ConfigureRequest(machine_id=machine_id, **({"cluster_id": "c1"} | fields))
        ack: pb.TransitionAck = await self.stub.Configure(request)
        await self.settle(machine_id, pb.MACHINE_STATE_CONFIGURED)
        return ack


@asynccontextmanager
async def running(
    provider: Any, store: Store | None = None, options: kit.Options | None = None, **flags: Any
) -> AsyncIterator[World]:
    """Serve the provider on a free loopback port for the length of the block."""
    chosen = kit.Flags(**({"addr": "127.0.0.1:0", "metrics_addr": "", "reconcile_interval": 0.0} | flags))
    async with (
        kit.ProviderProcess(provider, chosen, options or kit.Options(), store) as process,
        channel(process.address) as connection,
    ):
        yield World(process, rpc.CapacityProviderStub(connection), connection)


async def code_of(call: Any) -> grpc.StatusCode:
    """The status a call ends with."""
    return (await failure(call)).code() or grpc.StatusCode.OK


async def failure(call: Any) -> Any:
    """The RPC error a call ends with, or an object that says OK."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    return _Ok()


class _Ok:
    code: Callable[[], grpc.StatusCode] = staticmethod(lambda: grpc.StatusCode.OK)
    details: Callable[[], str] = staticmethod(lambda: "")
