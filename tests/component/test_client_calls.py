"""The client against a scripted provider over a real socket: deadlines, retries, tokens, errors, every kind of List."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from bigfleet.provider.client import (
    Busy,
    CallLimits,
    Fence,
    Fenced,
    FencingToken,
    FrameTooLarge,
    GivenFences,
    Invalid,
    ListQuery,
    Malformed,
    NotFound,
    Paging,
    ProviderClient,
    ProviderEndpoint,
    ProviderRegistry,
    Refused,
    RetryPolicy,
    RpcMetrics,
    TimedOut,
    Unavailable,
    Unimplemented,
)
from bigfleet.transport.errors import TransportError
from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc

Code = grpc.StatusCode
FAST = RetryPolicy(attempts=4, first_pause=0.0, longest_pause=0.0)


@dataclass
class ScriptedProvider:
    """Answers from a script: statuses to fail with first, then machines listed the way `style` says."""

    machines: dict[str, pb.Machine] = field(default_factory=dict)
    style: str = "continuation"
    failures: list[tuple[Code, str]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    revisions: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    head: int = 0
    frame_limit: int = 0
    hang: bool = False

    def put(self, machine: pb.Machine) -> None:
        self.head += 1
        self.machines[machine.id] = machine
        self.revisions[machine.id] = self.head
        self.removed.pop(machine.id, None)

    def remove(self, machine_id: str) -> None:
        self.head += 1
        del self.machines[machine_id], self.revisions[machine_id]
        self.removed[machine_id] = self.head

    async def answer(self, method: str, request: Any, context: Any) -> None:
        self.calls.append((method, request))
        if self.hang:
            await asyncio.Event().wait()
        if self.failures:
            await context.abort(*self.failures.pop(0))

    def list(self, request: pb.ListFilter) -> pb.MachineList | None:
        since = int(request.since_revision or b"0") if self.style != "none" else 0
        chosen = sorted((rev, id) for id, rev in self.revisions.items() if rev > since)
        chosen = [(rev, id) for rev, id in chosen if not request.states or self.machines[id].state in request.states]
        capped = chosen[: request.max_results] if request.max_results else chosen
        if self.frame_limit and len(capped) > self.frame_limit:
            return None
        answer = pb.MachineList(machines=[self.machines[id] for _, id in capped])
        if self.style == "continuation":
            answer.more = len(capped) < len(chosen)
            answer.revision = str(capped[-1][0] if answer.more else self.head).encode()
            answer.removed_ids.extend(sorted(id for id, rev in self.removed.items() if since and rev > since))
        elif self.style == "head-echo":
            answer.revision = str(self.head).encode()
        return answer


class Servicer(provider_pb2_grpc.CapacityProviderServicer):
    def __init__(self, script: ScriptedProvider) -> None:
        self.script = script

    async def Create(self, request: pb.CreateRequest, context: Any) -> pb.TransitionAck:  # noqa: N802
        await self.script.answer("Create", request, context)
        return pb.TransitionAck(operation_id="op-1", machine=pb.Machine(id=request.machine_id, state=2))

    async def Configure(self, request: pb.ConfigureRequest, context: Any) -> pb.TransitionAck:  # noqa: N802
        await self.script.answer("Configure", request, context)
        return pb.TransitionAck(operation_id="op-2", machine=pb.Machine(id=request.machine_id, state=4))

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.TransitionAck:  # noqa: N802
        await self.script.answer("Drain", request, context)
        return pb.TransitionAck(operation_id="op-3", machine=pb.Machine(id=request.machine_id, state=6))

    async def Delete(self, request: pb.DeleteRequest, context: Any) -> pb.TransitionAck:  # noqa: N802
        await self.script.answer("Delete", request, context)
        return pb.TransitionAck(operation_id="op-4", machine=pb.Machine(id=request.machine_id, state=7))

    async def Get(self, request: pb.MachineRef, context: Any) -> pb.Machine:  # noqa: N802
        await self.script.answer("Get", request, context)
        if request.id not in self.script.machines:
            await context.abort(Code.NOT_FOUND, f"machine {request.id} is unknown")
        return self.script.machines[request.id]

    async def List(self, request: pb.ListFilter, context: Any) -> pb.MachineList:  # noqa: N802
        await self.script.answer("List", request, context)
        answer = self.script.list(request)
        if answer is None:
            await context.abort(Code.RESOURCE_EXHAUSTED, "SERVER: Sent message larger than max (9 vs. 8)")
        assert answer is not None
        return answer


Connect = Callable[..., Awaitable[ProviderClient]]


@pytest.fixture
def script() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
async def connect(script: ScriptedProvider) -> AsyncIterator[Connect]:
    server = grpc.aio.server()
    provider_pb2_grpc.add_CapacityProviderServicer_to_server(Servicer(script), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def build(**options: Any) -> ProviderClient:
        return ProviderClient("aws", channel, **{"retry": FAST, **options})

    yield build
    await channel.close(None)
    await server.stop(None)


def machine(number: int, state: int = 3, **fields: Any) -> pb.Machine:
    return pb.Machine(id=f"m-{number:04}", state=pb.MachineState.ValueType(state), instance_type="t", **fields)


# ── the six calls ────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_call_carries_its_arguments_and_a_token_of_its_own(
    script: ScriptedProvider, connect: Connect
) -> None:
    client = await connect(tokens=Fence("shard-a", 7))
    script.put(machine(1))
    assert (await client.create("m-0001")).operation_id == "op-1"
    await client.configure("m-0001", "prod", b"\x00blob", {"k": "v\x00"})
    await client.drain("m-0001", 600)
    await client.delete("m-0001")
    assert (await client.get("m-0001")).id == "m-0001"
    requests = [request for _, request in script.calls[:4]]
    assert [(r.shard_id, r.shard_epoch, r.sequence_number) for r in requests] == [
        ("shard-a", 7, number) for number in (1, 2, 3, 4)
    ]
    configured = requests[1]
    assert (configured.cluster_id, configured.bootstrap_blob, dict(configured.shard_metadata)) == (
        "prod",
        b"\x00blob",
        {"k": "v\x00"},
    )
    assert requests[2].grace_period_seconds == 600


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.FAILED_PRECONDITION, Fenced),
        (Code.NOT_FOUND, NotFound),
        (Code.UNIMPLEMENTED, Unimplemented),
        (Code.INVALID_ARGUMENT, Invalid),
        (Code.INTERNAL, Refused),
    ],
)
async def test_final_answers_raise_their_type_after_one_attempt(
    script: ScriptedProvider, connect: Connect, code: Code, kind: type[Exception]
) -> None:
    client = await connect()
    script.failures = [(code, "because")] * 9
    with pytest.raises(kind, match=r"Delete of machine m-1.*because"):
        await client.delete("m-1")
    assert len(script.calls) == 1


async def test_a_passing_outage_is_retried_with_a_fresh_token_each_time(
    script: ScriptedProvider, connect: Connect
) -> None:
    metrics = RpcMetrics()
    client = await connect(tokens=Fence("shard-a", 1), metrics=metrics)
    script.failures = [(Code.UNAVAILABLE, "starting"), (Code.ABORTED, "again"), (Code.RESOURCE_EXHAUSTED, "slow down")]
    assert (await client.create("m-1")).operation_id == "op-1"
    assert [request.sequence_number for _, request in script.calls] == [1, 2, 3, 4]
    assert metrics.attempts("aws", "Create") == 4
    assert metrics.errors("aws", "Create", "unavailable") == 1
    registry = CollectorRegistry()
    registry.register(metrics)
    page = generate_latest(registry).decode()
    assert 'bigfleet_shard_provider_rpc_errors_total{method="Create",outcome="rate_limited",provider="aws"} 1.0' in page
    assert 'bigfleet_shard_provider_rpc_duration_seconds_count{method="Create",provider="aws"} 4.0' in page


async def test_a_call_that_brings_its_fence_is_tried_once_with_it(script: ScriptedProvider, connect: Connect) -> None:
    client = await connect(tokens=Fence("other", 1))
    script.failures = [(Code.UNAVAILABLE, "starting")]
    token = FencingToken("shard-a", 7, 41)
    with pytest.raises(Unavailable):
        await client.create("m-1", fence=token)
    await client.configure("m-1", "prod", b"", fence=token)
    await client.drain("m-1", 600, fence=token)
    await client.delete("m-1", fence=token)
    assert [(r.shard_id, r.shard_epoch, r.sequence_number) for _, r in script.calls] == [("shard-a", 7, 41)] * 4


async def test_where_calls_bring_their_fences_one_without_is_never_sent(
    script: ScriptedProvider, connect: Connect
) -> None:
    client = await connect(tokens=GivenFences())
    with pytest.raises(ValueError, match="brings no fence"):
        await client.delete("m-1")
    assert script.calls == []


async def test_attempts_end_and_the_last_error_is_raised(script: ScriptedProvider, connect: Connect) -> None:
    client = await connect()
    script.failures = [(Code.UNAVAILABLE, "down")] * 9
    with pytest.raises(Unavailable):
        await client.get("m-1")
    assert len(script.calls) == FAST.attempts


async def test_a_provider_that_never_answers_ends_with_the_deadline(script: ScriptedProvider, connect: Connect) -> None:
    client = await connect(limits=CallLimits(lifecycle=0.2))
    script.hang = True
    with pytest.raises(TimedOut):
        await client.create("m-1")
    assert len(script.calls) == 1


async def test_a_provider_that_echoes_the_blob_in_its_error_does_not_reach_our_message(
    script: ScriptedProvider, connect: Connect
) -> None:
    client = await connect()
    script.failures = [(Code.INTERNAL, "cannot run join-token-123456")]
    with pytest.raises(Refused) as caught:
        await client.configure("m-1", "prod", b"join-token-123456")
    error: BaseException | None = caught.value
    while error is not None:
        assert "join-token" not in str(error)
        error = error.__cause__ or error.__context__


def test_deadlines_are_those_of_the_contract() -> None:
    assert (CallLimits().lifecycle, CallLimits().get, CallLimits().list) == (30.0, 30.0, 120.0)


# ── listings ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Heard:
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


async def hear(listing: Any) -> Heard:
    heard = Heard()
    async for batch in listing:
        heard.changed += [changed.id for changed in batch.changed]
        heard.removed += batch.removed
        heard.absent += batch.absent
    return heard


SMALL = CallLimits(page_size=10, slice_records=3)


@pytest.mark.parametrize(
    ("style", "pages", "paging"),
    [("continuation", 3, Paging.CONTINUATION), ("head-echo", 2, Paging.WHOLE), ("none", 2, Paging.WHOLE)],
)
async def test_every_machine_is_listed_once_whatever_the_provider_knows(
    script: ScriptedProvider, connect: Connect, style: str, pages: int, paging: Paging
) -> None:
    client = await connect(limits=SMALL)
    script.style = style
    for number in range(25):
        script.put(machine(number))
    index = client.index
    listing = client.full()
    assert sorted((await hear(listing)).changed) == [f"m-{number:04}" for number in range(25)]
    assert listing.summary is not None
    assert (listing.summary.pages, listing.summary.paging, listing.summary.complete) == (pages, paging, True)
    assert len(index) == 25

    again = client.full()
    assert await hear(again) == Heard()
    assert again.summary is not None
    assert (again.summary.changed, again.summary.listed) == (0, 25)


@pytest.mark.parametrize("style", ["continuation", "head-echo", "none"])
async def test_an_incremental_listing_reports_the_changes_and_only_them(
    script: ScriptedProvider, connect: Connect, style: str
) -> None:
    client = await connect(limits=SMALL)
    script.style = style
    for number in range(30):
        script.put(machine(number))
    await hear(client.incremental())
    changed = [f"m-{number:04}" for number in range(0, 30, 2)]
    for number in range(0, 30, 2):
        script.put(machine(number, state=5, cluster="prod"))
    assert sorted((await hear(client.incremental())).changed) == changed
    assert await hear(client.incremental()) == Heard()


async def test_a_removal_is_told_by_providers_that_can_and_seen_as_absence_from_the_others(
    script: ScriptedProvider, connect: Connect
) -> None:
    client = await connect(limits=SMALL)
    for number in range(5):
        script.put(machine(number))
    index = client.index
    await hear(client.full())
    script.remove("m-0001")
    assert (await hear(client.incremental())).removed == ["m-0001"]
    assert "m-0001" not in index

    script.style = "none"
    script.remove("m-0002")
    for _ in range(2):  # repeated until the caller has decided, because one absence is no proof
        assert (await hear(client.full())).absent == ["m-0002"]
    index.forget("m-0002")
    assert await hear(client.full()) == Heard()


async def test_a_machine_that_returns_after_an_absence_is_a_change(script: ScriptedProvider, connect: Connect) -> None:
    client = await connect(limits=SMALL)
    script.put(machine(1))
    script.put(machine(2))
    await hear(client.full())
    script.remove("m-0002")
    await hear(client.full())
    script.put(machine(2))
    assert (await hear(client.full())).changed == ["m-0002"]


async def test_a_machine_that_came_back_to_where_it_was_is_reported_after_a_call_of_ours(
    script: ScriptedProvider, connect: Connect
) -> None:
    client = await connect(limits=SMALL)
    script.put(machine(1))
    script.put(machine(2))
    await hear(client.full())
    await client.configure("m-0001", "prod", b"")
    await client.drain("m-0001", 0)
    assert (await hear(client.full())).changed == ["m-0001"]
    script.failures = [(Code.INTERNAL, "no")]
    with pytest.raises(Refused):
        await client.delete("m-0002")
    assert (await hear(client.full())).changed == ["m-0002"]
    await client.create("m-0002")
    script.remove("m-0002")
    assert (await hear(client.full())).absent == ["m-0002"]


async def test_a_list_that_was_under_way_during_our_call_does_not_count_as_news(
    script: ScriptedProvider, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(limits=SMALL)
    script.put(machine(1))
    await hear(client.full())
    fetch = client.list_page

    async def with_a_call_meanwhile(query: ListQuery) -> bytes:
        page = await fetch(query)
        await client.configure("m-0001", "prod", b"")
        return page

    monkeypatch.setattr(client, "list_page", with_a_call_meanwhile)
    assert (await hear(client.full())).changed == ["m-0001"]
    monkeypatch.undo()
    assert (await hear(client.full())).changed == ["m-0001"]
    assert await hear(client.full()) == Heard()


async def test_a_batch_that_was_not_consumed_is_seen_again(script: ScriptedProvider, connect: Connect) -> None:
    client = await connect(limits=SMALL)
    for number in range(9):
        script.put(machine(number))
    index = client.index
    consumed: list[str] = []
    with pytest.raises(RuntimeError, match="reconcile broke"):
        async for batch in client.full():
            if consumed:
                raise RuntimeError("reconcile broke")
            consumed += [changed.id for changed in batch.changed]
    assert index.cursor == b""
    assert (await hear(client.full())).changed == [f"m-{number:04}" for number in range(3, 9)]


async def test_answers_too_large_for_a_message_are_asked_for_state_by_state(
    script: ScriptedProvider, connect: Connect
) -> None:
    client = await connect(limits=SMALL)
    script.style, script.frame_limit = "head-echo", 12
    for number in range(24):
        script.put(machine(number, state=3 + number % 3))
    index = client.index
    assert len((await hear(client.full())).changed) == 24
    assert index.paging is Paging.PER_STATE
    script.calls.clear()
    assert await hear(client.full()) == Heard()
    assert [list(request.states) for _, request in script.calls] == [[state] for state in range(1, 9)]
    for number in range(24):
        script.put(machine(number))
    index.reset()
    with pytest.raises(FrameTooLarge, match="state 3 alone"):
        await hear(client.full())


async def test_what_grpc_itself_finds_too_large_is_asked_for_in_parts(
    script: ScriptedProvider, connect: Connect
) -> None:
    server = grpc.aio.server()
    provider_pb2_grpc.add_CapacityProviderServicer_to_server(Servicer(script), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    script.style = "none"
    for number in range(24):
        script.put(machine(number, state=1 + number % 8))
    narrow = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", 100)])
    client = ProviderClient("narrow", narrow, retry=FAST)
    assert len((await hear(client.full())).changed) == 24
    assert client.index.paging is Paging.PER_STATE
    await narrow.close(None)
    await server.stop(None)


async def test_listing_some_states_leaves_cursor_and_absences_alone(script: ScriptedProvider, connect: Connect) -> None:
    client = await connect(limits=SMALL)
    script.put(machine(1, state=3))
    script.put(machine(2, state=5))
    index = client.index
    await hear(client.full())
    script.put(machine(3, state=5))
    assert await hear(client.in_states({5})) == Heard(changed=["m-0003"])
    assert index.cursor == b"2"


async def test_a_provider_that_shuffles_its_maps_costs_one_false_change_and_then_none(
    script: ScriptedProvider, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(limits=SMALL)
    one = pb.Machine(id="m-1", state=3, labels={"a": "1"}).SerializeToString()
    two = pb.Machine(labels={"b": "2"}).SerializeToString()
    orders = [one + two, two + one]
    frames = [bytes([10, len(order)]) + order for order in (*orders, *orders, *orders)]

    async def shuffled(query: object) -> bytes:
        return frames.pop(0)

    monkeypatch.setattr(client, "list_page", shuffled)
    heard = [(await hear(client.full())).changed for _ in range(6)]
    assert heard == [["m-1"], ["m-1"], [], [], [], []]


async def test_garbage_instead_of_a_list_is_a_typed_error_that_names_the_provider(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect()

    async def garbage(query: object) -> bytes:
        return b"\x0a\xff\xff"

    monkeypatch.setattr(client, "list_page", garbage)
    with pytest.raises(Malformed, match="provider aws: List"):
        await hear(client.full())


async def test_a_long_list_lets_the_loop_breathe_between_slices(script: ScriptedProvider, connect: Connect) -> None:
    client = await connect(limits=CallLimits(slice_records=100))
    for number in range(2_000):
        script.put(machine(number))
    await hear(client.full())
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    page = await client.list_page(ListQuery())

    async def ready(query: object) -> bytes:
        return page

    client.list_page = ready  # type: ignore[method-assign,assignment]
    counter = asyncio.create_task(count())
    await hear(client.full())
    counter.cancel()
    assert turns >= 20


# ── many providers ───────────────────────────────────────────────────────────────────────────────────────────


async def test_the_registry_keeps_providers_by_name_and_region() -> None:
    registry = ProviderRegistry(tokens=Fence("shard-a", 1))
    for text in ("aws-eu@eu-west-1=127.0.0.1:1", "metal@eu-west-1=127.0.0.1:2", "aws-us@us-east-1=127.0.0.1:3"):
        registry.add(ProviderEndpoint.parse(text))
    assert [client.name for client in registry] == ["aws-eu", "metal", "aws-us"]
    assert [client.name for client in registry.in_region("eu-west-1")] == ["aws-eu", "metal"]
    assert registry.regions() == ("eu-west-1", "us-east-1")
    assert registry["metal"].name == "metal"
    with pytest.raises(TransportError, match="configured twice"):
        registry.add(ProviderEndpoint("metal", "127.0.0.1:9"))
    with pytest.raises(KeyError, match="configured are: aws-eu, metal, aws-us"):
        registry["gcp"]
    await registry.remove("metal")
    assert "metal" not in registry
    await registry.close()
    assert len(registry) == 0


@pytest.mark.parametrize("text", ["", "aws", "aws=", "=addr", "a b=addr"])
def test_an_endpoint_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TransportError):
        ProviderEndpoint.parse(text)


async def test_unavailable_of_the_provider_itself_is_told_from_nobody_being_there() -> None:
    async def refuses(_: object, context: grpc.aio.ServicerContext[object, object]) -> None:
        await context.abort(Code.UNAVAILABLE, "no capacity in this zone")

    server = grpc.aio.server()
    create = grpc.unary_unary_rpc_method_handler(refuses)
    handler = grpc.method_handlers_generic_handler("bigfleet.v1alpha1.CapacityProvider", {"Create": create})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    registry = ProviderRegistry(tokens=Fence("s", 1), retry=RetryPolicy(attempts=1))
    client = registry.add(ProviderEndpoint("p", f"127.0.0.1:{port}"))
    with pytest.raises(Busy):
        await client.create("m")
    await server.stop(0)
    with pytest.raises(Unavailable) as away:
        await client.create("m")
    assert not isinstance(away.value, Busy)
    await registry.close()
