"""What the shard's provider calls carry and how their answers come back, against a scripted provider on a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from bigfleet.model.machine import CallKind
from bigfleet.provider.client import ProviderEndpoint
from bigfleet.shard.contract import events as ev
from bigfleet.shard.provider_io.provider_calls import ABSENCES_REPORTED, ProviderCalls
from bigfleet.shard.runtime.clock import SteadyClock
from bigfleet.transport import Server
from bigfleet.wire import provider_pb2, provider_pb2_grpc

Failure = ev.Failure


def machine(name: str, state: int = 3, **fields: Any) -> provider_pb2.Machine:
    made = provider_pb2.Machine(id=name, instance_type="m5", zone="z", **fields)
    made.state = state  # type: ignore[assignment]
    made.host.ref = f"host-of-{name}"
    made.resources.resources.update({"cpu": "4", "memory": "16Gi"})
    return made


class ScriptedProvider(provider_pb2_grpc.CapacityProviderServicer):
    """Answers with what a test put there, and remembers what it was asked."""

    def __init__(self) -> None:
        self.machines: dict[str, provider_pb2.Machine] = {}
        self.asked: list[Any] = []
        self.status: grpc.StatusCode | None = None
        self.words = "scripted"
        self.gets_fail = False
        self.ack: provider_pb2.Machine | None = None
        self.revision = b""
        self.removed: list[str] = []
        self.delay = 0.0

    async def _transition(self, request: Any, context: Any) -> provider_pb2.TransitionAck:
        self.asked.append(request)
        await asyncio.sleep(self.delay)
        if self.status is not None:
            await context.abort(self.status, self.words)
        return provider_pb2.TransitionAck(operation_id="op", machine=self.ack or machine(request.machine_id))

    Create = Configure = Drain = Delete = _transition

    async def Get(self, request: provider_pb2.MachineRef, context: Any) -> provider_pb2.Machine:  # noqa: N802
        if self.status is grpc.StatusCode.RESOURCE_EXHAUSTED or (self.status is not None and self.gets_fail):
            await context.abort(self.status, self.words)
        if request.id not in self.machines:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown")
        return self.machines[request.id]

    async def List(self, request: provider_pb2.ListFilter, context: Any) -> provider_pb2.MachineList:  # noqa: N802
        self.asked.append(request)
        if self.status is not None:
            await context.abort(self.status, "scripted")
        return provider_pb2.MachineList(
            machines=self.machines.values(), revision=self.revision, removed_ids=self.removed
        )


class Listener:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def post(self, event: ev.Event) -> None:
        self.events.append(event)

    def ask(self, event: ev.Event) -> asyncio.Future[None]:
        self.post(event)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def take(self) -> list[Any]:
        taken, self.events = self.events, []
        return taken


@asynccontextmanager
async def provided() -> AsyncIterator[tuple[ProviderCalls, ScriptedProvider, Listener]]:
    scripted, listener = ScriptedProvider(), Listener()
    server = Server("127.0.0.1:0")
    server.add(provider_pb2_grpc.add_CapacityProviderServicer_to_server, scripted)
    await server.start()
    calls = ProviderCalls([ProviderEndpoint("p1", server.address)], listener, SteadyClock())
    try:
        yield calls, scripted, listener
    finally:
        await calls.close()
        await server.stop(grace=0)


def call(kind: CallKind, sequence: int = 7, seconds: float = 10.0, **fields: Any) -> ev.CallProvider:
    deadline = time.time_ns() + int(seconds * 1e9)
    return ev.CallProvider(5, "p1", kind, "m-1", ev.Fence("shard-0", 3, sequence), deadline, **fields)


async def test_every_call_carries_the_fence_the_core_gave_it() -> None:
    async with provided() as (calls, scripted, listener):
        await asyncio.gather(*[calls.call(call(CallKind.CREATE, sequence)) for sequence in range(1, 21)])
        fences = {(asked.shard_id, asked.shard_epoch, asked.sequence_number) for asked in scripted.asked}
        assert fences == {("shard-0", 3, sequence) for sequence in range(1, 21)}
        assert all(isinstance(event, ev.CallDone) and event.op == 5 for event in listener.events)


async def test_configure_carries_cluster_blob_and_metadata() -> None:
    async with provided() as (calls, scripted, listener):
        scripted.ack = machine("m-1", 5, cluster="c-1", shard_metadata={"k": "v"})
        await calls.call(call(CallKind.CONFIGURE, cluster="c-1", blob=b"secret", metadata=(("k", "v"),)))
        (asked,) = scripted.asked
        assert (asked.cluster_id, asked.bootstrap_blob, dict(asked.shard_metadata)) == ("c-1", b"secret", {"k": "v"})
        (done,) = listener.events
        assert (done.record.cluster, done.record.metadata, done.record.host) == ("c-1", (("k", "v"),), "host-of-m-1")


async def test_drain_carries_its_grace() -> None:
    async with provided() as (calls, scripted, _):
        await calls.call(call(CallKind.DRAIN, grace_seconds=120))
        assert scripted.asked[0].grace_period_seconds == 120


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, Failure.FENCED),
        (grpc.StatusCode.NOT_FOUND, Failure.NOT_FOUND),
        (grpc.StatusCode.UNIMPLEMENTED, Failure.UNIMPLEMENTED),
        (grpc.StatusCode.INVALID_ARGUMENT, Failure.INVALID),
        (grpc.StatusCode.UNAVAILABLE, Failure.BUSY),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Failure.EXHAUSTED),
        (grpc.StatusCode.INTERNAL, Failure.OTHER),
        (grpc.StatusCode.PERMISSION_DENIED, Failure.OTHER),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
async def test_a_refusal_comes_back_as_the_kind_the_core_tells_apart_and_is_tried_once(
    status: grpc.StatusCode, failure: ev.Failure
) -> None:
    async with provided() as (calls, scripted, listener):
        scripted.status = status
        await calls.call(call(CallKind.DELETE))
        (failed,) = listener.events
        assert isinstance(failed, ev.CallFailed) and failed.failure == failure
        assert len(scripted.asked) == 1, "attempts are the core's to make"


async def test_what_a_provider_quotes_of_a_blob_is_told_by_no_call_whether_it_carried_it_or_not() -> None:
    token = "abcdef.0123456789abcdef"
    async with provided() as (calls, scripted, listener):
        scripted.status, scripted.words = grpc.StatusCode.INTERNAL, f"m-1 broke: join --token {token}"
        await calls.call(call(CallKind.CONFIGURE, cluster="c-1", blob=f"join --token {token}".encode()))
        await calls.call(call(CallKind.DRAIN))
        await calls.call(call(CallKind.DELETE))
        scripted.gets_fail = True
        await calls.read(ev.StartRead("p1", "m-1"))
        told = [event.error for event in listener.take()]
        assert len(told) == 4 and not [text for text in told if token in text]
        assert told[1] == "provider p1: Drain of machine m-1 answered INTERNAL: m-1 broke: join --token [withheld]"


async def test_a_call_ends_at_the_deadline_of_the_core() -> None:
    async with provided() as (calls, scripted, listener):
        scripted.delay = 30
        await calls.call(call(CallKind.CREATE, seconds=0.2))
        assert listener.events[0].failure == Failure.DEADLINE


@pytest.mark.parametrize(
    "ack",
    [machine("other"), machine("m-1", 0), machine("m-1", 9), provider_pb2.Machine()],
    ids=["id", "0", "9", "empty"],
)
async def test_an_ack_that_cannot_be_read_fails_the_call(ack: provider_pb2.Machine) -> None:
    async with provided() as (calls, scripted, listener):
        scripted.ack = ack
        await calls.call(call(CallKind.CREATE))
        (failed,) = listener.events
        assert failed.failure == Failure.OTHER and "ack rejected" in failed.error


async def test_a_full_list_brings_changed_records_once_and_absences_until_they_are_old() -> None:
    async with provided() as (calls, scripted, listener):
        scripted.machines = {name: machine(name) for name in ("a", "b", "c")}
        scripted.revision = b"r1"
        await calls.list(ev.StartList("p1", full=True))
        *parts, last = listener.take()
        assert sorted(each.id for part in parts for each in part.machines) == ["a", "b", "c"]
        assert (last.full, last.complete, last.absent, last.revision) == (True, True, (), b"r1")
        scripted.machines["b"].state = 5  # type: ignore[assignment]
        del scripted.machines["c"]
        await calls.list(ev.StartList("p1", full=True))
        *parts, last = listener.take()
        assert [each.id for part in parts for each in part.machines] == ["b"]
        assert last.absent == ("c",)
        for _ in range(ABSENCES_REPORTED):
            await calls.list(ev.StartList("p1", full=True))
        assert listener.take()[-1].absent == ()


async def test_a_machine_that_was_acted_upon_is_listed_again_even_with_the_same_bytes() -> None:
    async with provided() as (calls, scripted, listener):
        scripted.machines = {"m-1": machine("m-1"), "m-2": machine("m-2")}
        await calls.list(ev.StartList("p1", full=True))
        await calls.call(call(CallKind.CONFIGURE))
        await calls.read(ev.StartRead("p1", "m-2"))
        listener.take()
        await calls.list(ev.StartList("p1", full=True))
        *parts, _ = listener.take()
        assert sorted(each.id for part in parts for each in part.machines) == ["m-1", "m-2"]


async def test_an_incremental_list_sends_the_cursor_and_brings_removals() -> None:
    async with provided() as (calls, scripted, listener):
        scripted.machines, scripted.revision = {"a": machine("a"), "b": machine("b")}, b"r1"
        await calls.list(ev.StartList("p1", full=True))
        listener.take()
        scripted.machines, scripted.revision, scripted.removed = {}, b"r2", ["b"]
        await calls.list(ev.StartList("p1", full=False, revision=b"r1"))
        assert scripted.asked[-1].since_revision == b"r1"
        *parts, last = listener.take()
        assert [name for part in parts for name in part.removed] == ["b"]
        assert (last.full, last.complete, last.revision) == (False, True, b"r2")


async def test_a_record_that_cannot_be_read_is_named_and_the_rest_arrives() -> None:
    async with provided() as (calls, scripted, listener):
        bad = machine("bad")
        bad.resources.resources["cpu"] = "many"
        scripted.machines = {"good": machine("good"), "bad": bad, "odd": machine("odd", 12)}
        await calls.list(ev.StartList("p1", full=True))
        *parts, last = listener.take()
        assert [each.id for part in parts for each in part.machines] == ["good"]
        assert sorted(name for part in parts for name in part.undecodable) == ["bad", "odd"]
        assert last.complete


async def test_a_failed_list_and_unknown_machines_are_said_to_be_so() -> None:
    async with provided() as (calls, scripted, listener):
        scripted.status = grpc.StatusCode.INTERNAL
        await calls.list(ev.StartList("p1", full=True))
        assert isinstance(listener.take()[0], ev.ListFailed)
        await calls.read(ev.StartRead("p1", "nobody"))
        (read,) = listener.take()
        assert isinstance(read, ev.MachineRead) and read.record is None


async def test_a_list_and_a_get_that_are_refused_for_their_number_are_said_to_be_so() -> None:
    async with provided() as (calls, scripted, listener):
        for status, limited in ((grpc.StatusCode.RESOURCE_EXHAUSTED, True), (grpc.StatusCode.INTERNAL, False)):
            scripted.status = status
            await calls.list(ev.StartList("p1", full=True))
            (failed,) = listener.take()
            assert isinstance(failed, ev.ListFailed) and failed.limited is limited
        scripted.status = grpc.StatusCode.RESOURCE_EXHAUSTED
        await calls.read(ev.StartRead("p1", "m-1"))
        (read,) = listener.take()
        assert isinstance(read, ev.ReadFailed) and read.limited
