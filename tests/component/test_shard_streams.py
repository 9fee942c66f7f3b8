"""Streams carry frames between operators and a core, and a bad peer costs only itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from bigfleet.model.session import AckOutcome
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.frames import Acknowledgement
from bigfleet.shard.runtime.clock import SteadyClock
from bigfleet.shard.runtime.conductor import Conductor
from bigfleet.shard.streams.session_streams import SessionStreams
from bigfleet.shard.telemetry.metrics import ShardMetrics
from bigfleet.transport import Server
from bigfleet.wire import capacity_pb2, shard_pb2
from tests.strategies.operator_client import REFERENCE, Row, SyntheticOperator, operator, raw_session
from tools.waiting import until

ROW = Row(pods=4, unit={"cpu": "2", "memory": "4Gi"})


class ScriptedCore:
    """Acknowledges, remembers what it heard, and sends what a test queues."""

    def __init__(self) -> None:
        self.heard: list[ev.Event] = []
        self.outbox: dict[int, list[ev.Frame]] = {}
        self.by_cluster: dict[str, int] = {}
        self.outcome = "applied"
        self.silent = False
        self.arrived = asyncio.Event()

    def start(self, now: int) -> list[ev.Instruction]:
        return []

    def handle(self, event: ev.Event, now: int) -> list[ev.Instruction]:
        self.heard.append(event)
        self.arrived.set()
        match event:
            case ev.SessionOpened():
                old = self.by_cluster.get(event.cluster)
                self.by_cluster[event.cluster] = event.session
                opened = self.queue(event.session, ev.Acknowledgement("hello", 0, 1))
                return opened if old is None else [ev.CloseSession(old, ev.CloseCode.ABORTED, "replaced"), *opened]
            case ev.RollupReceived(error="") if not self.silent:
                ack = ev.Acknowledgement("rollup", 0, 1, event.timestamp, self.outcome)
                return self.queue(event.session, ack)
            case ev.SessionWritable():
                frames = self.outbox.pop(event.session, [])
                self.outbox[event.session] = frames[event.limit :]
                sent: list[ev.Instruction] = [ev.SendFrame(event.session, frame) for frame in frames[: event.limit]]
                return [*sent, ev.WakeSession(event.session)] if frames[event.limit :] else sent
        return []

    def queue(self, session: int, *frames: ev.Frame) -> list[ev.Instruction]:
        self.outbox.setdefault(session, []).extend(frames)
        return [ev.WakeSession(session)]

    def next_timer(self) -> int | None:
        return None

    def of(self, kind: type[ev.Event]) -> list[ev.Event]:
        return [event for event in self.heard if isinstance(event, kind)]

    async def until(self, kind: type[ev.Event], count: int = 1) -> list[ev.Event]:
        async with asyncio.timeout(30):
            while len(found := self.of(kind)) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return found


class Shell:
    def __init__(self, address: str, core: ScriptedCore, streams: SessionStreams, metrics: ShardMetrics) -> None:
        self.address = address
        self.core = core
        self.streams = streams
        self.metrics = metrics
        self.conductor: Conductor


@asynccontextmanager
async def shell(**options: float) -> AsyncIterator[Shell]:
    core, metrics = ScriptedCore(), ShardMetrics()
    conductor = Conductor(
        core,
        clock=SteadyClock(),
        step=lambda wanted: pytest.fail("no step was scripted"),
        write_journal=lambda rows: None,
        write_audit=lambda records: None,
        metrics=metrics,
    )
    streams = SessionStreams(
        conductor,
        metrics,
        lambda stamp: Acknowledgement("rollup", 0, 1, stamp, AckOutcome.APPLIED),
        rollup_seconds=0.0,
        **options,
    )  # type: ignore[arg-type]
    conductor.streams = streams
    server = Server("127.0.0.1:0", require_identity=False)
    server.grpc.add_generic_rpc_handlers((streams.handler(),))
    await server.start()
    running = asyncio.create_task(conductor.run())
    made = Shell(server.address, core, streams, metrics)
    made.conductor = conductor
    try:
        yield made
    finally:
        assert not running.done(), running.exception()
        streams.close_all()
        await server.stop(grace=1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await conductor.close(1)


async def refused(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> tuple[grpc.StatusCode, str]:
    async with asyncio.timeout(15):
        return await call.code(), await call.details()


async def test_hello_is_acknowledged_and_a_rollup_reaches_the_core_decoded() -> None:
    async with shell() as made, operator(made.address, "c-1") as cluster:
        assert cluster.heard.acks[0].echo == "hello"
        cluster.want([ROW])
        sent = await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.acks) == 2)
        received = made.core.of(ev.RollupReceived)[0]
        assert isinstance(received, ev.RollupReceived) and received.rollup is not None
        assert (received.cluster, received.timestamp) == ("c-1", sent)
        columns = dict(zip(received.rollup.resources, received.rollup.aggregate[0].tolist(), strict=True))
        assert columns == {"cpu": 8000, "memory": 16 * 2**20}
        assert cluster.heard.acks[1].rollup_timestamp == sent


async def test_an_unchanged_rollup_is_not_decoded_once_the_first_was_applied() -> None:
    async with shell() as made, operator(made.address, "c-1") as cluster:
        cluster.want([ROW])
        sent = []
        for expected in (2, 3, 4):
            sent.append(await cluster.send_rollup())
            await cluster.until(lambda heard, expected=expected: len(heard.acks) == expected)
        # One that comes before the first is done with goes to the core, which knows that it says nothing new.
        first, *more = [event.unchanged for event in made.core.of(ev.RollupReceived)]
        assert not first and all(more)
        assert [ack.rollup_timestamp for ack in cluster.heard.acks[1:]] == sent
        assert {ack.outcome for ack in cluster.heard.acks[1:]} == {shard_pb2.Acknowledgement.OUTCOME_APPLIED}
        cluster.want([Row(pods=5, unit=ROW.unit)])
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.acks) == 5)
        assert not made.core.of(ev.RollupReceived)[-1].unchanged


async def test_a_held_rollup_is_delivered_again_although_its_bytes_are_the_same() -> None:
    async with shell() as made, operator(made.address, "c-1") as cluster:
        made.core.outcome = "held"
        cluster.want([ROW])
        for expected in (2, 3):
            await cluster.send_rollup()
            await cluster.until(lambda heard, expected=expected: len(heard.acks) == expected)
        assert [event.unchanged for event in made.core.of(ev.RollupReceived)] == [False, False]


async def test_equal_timestamps_never_let_changed_demand_pass_as_unchanged() -> None:
    async with shell() as made, operator(made.address, "c-1") as cluster:
        for number, pods in enumerate((1, 2, 1, 2), start=2):
            cluster.want([Row(pods=pods, unit=ROW.unit)])
            await cluster.send_rollup(timestamp=77)
            await cluster.until(lambda heard, number=number: len(heard.acks) == number)
        assert not any(event.unchanged for event in made.core.of(ev.RollupReceived))


async def test_one_rollup_is_in_flight_and_the_newest_of_the_others_follows_its_ack() -> None:
    async with shell() as made, operator(made.address, "c-1") as cluster:
        made.core.silent = True
        for pods in range(1, 8):
            cluster.want([Row(pods=pods, unit=ROW.unit)])
            await cluster.send_rollup(timestamp=pods)
        await made.core.until(ev.RollupReceived)
        await cluster.send(hello=shard_pb2.Hello(cluster_id="c-1"))
        await made.core.until(ev.HelloRepeated)
        assert [event.timestamp for event in made.core.of(ev.RollupReceived)] == [1]
        made.core.silent = False
        session = made.core.by_cluster["c-1"]
        made.core.queue(session, ev.Acknowledgement("rollup", 0, 1, 1, "applied"))
        made.streams.wake(session)
        await cluster.until(lambda heard: heard.acks[-1].rollup_timestamp == 7)
        assert [event.timestamp for event in made.core.of(ev.RollupReceived)] == [1, 7]


async def test_a_bad_rollup_names_the_field_and_the_stream_stays_open() -> None:
    async with shell() as made, operator(made.address, "c-1") as cluster:
        bad = ROW.need()
        bad.aggregate_resources["cpu"] = "many"
        cluster.want([ROW, bad])
        await cluster.send_rollup()
        received = (await made.core.until(ev.RollupReceived))[0]
        assert isinstance(received, ev.RollupReceived)
        assert received.rollup is None
        assert "needs[1].aggregate_resources" in received.error and "'many'" in received.error
        cluster.want([ROW])
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.acks) == 2)


@pytest.mark.parametrize(
    ("mutate", "named"),
    [
        (lambda need: setattr(need, "interruption_penalty_bucket", 28), "interruption penalty bucket 28"),
        (lambda need: need.requirements.add(key="a", operator=6), "requirements[0].operator is 6"),
        (lambda need: need.min_unit.update({"memory": "x"}), "min_unit"),
        (lambda need: need.requirements.add(key="a:b", operator=1, values=["v"]), "'a:b'"),
        (lambda need: need.aggregate_resources.update({"cpu": "1e40"}), "cpu"),
    ],
)
async def test_every_invalid_row_refuses_the_whole_rollup(mutate, named) -> None:  # type: ignore[no-untyped-def]
    async with shell() as made, operator(made.address, "c-1") as cluster:
        bad = ROW.need()
        mutate(bad)
        cluster.want([ROW, bad])
        await cluster.send_rollup()
        received = (await made.core.until(ev.RollupReceived))[0]
        assert isinstance(received, ev.RollupReceived) and received.rollup is None
        assert "needs[1]" in received.error and named in received.error


async def test_an_unknown_spread_mode_is_read_as_unspecified() -> None:
    async with shell() as made, operator(made.address, "c-1") as cluster:
        need = ROW.need()
        need.spread.add(topology_key="zone", max_skew=1, when_unsatisfiable=9)
        cluster.want([need])
        await cluster.send_rollup()
        received = (await made.core.until(ev.RollupReceived))[0]
        assert isinstance(received, ev.RollupReceived) and received.rollup is not None
        assert int(received.rollup.profiles[0].spread[0].when) == 0


@pytest.mark.parametrize(
    "first",
    [
        shard_pb2.OperatorMessage(rollup=capacity_pb2.ClusterCapacityNeeds(cluster_id="c-1")).SerializeToString(),
        shard_pb2.OperatorMessage(hello=shard_pb2.Hello()).SerializeToString(),
        b"",
        b"\xff\xff\xff\xff",
    ],
    ids=["not-hello", "no-cluster", "empty", "garbage"],
)
async def test_anything_but_a_proper_hello_ends_the_stream_as_invalid(first: bytes) -> None:
    async with shell() as made, raw_session(made.address) as call:
        await call.write(first)
        code, _ = await refused(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert not made.core.of(ev.SessionOpened)


async def test_a_stream_that_never_says_hello_is_ended() -> None:
    async with shell(hello_seconds=0.2) as made, raw_session(made.address) as call:
        code, details = await refused(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "no Hello" in details


async def test_garbage_and_oversized_frames_end_their_stream_and_no_other() -> None:
    hello = shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="bad")).SerializeToString()
    async with shell(max_frame_bytes=100_000) as made, operator(made.address, "good") as good:
        for frame, expected in (
            (b"\xff" * 100, grpc.StatusCode.INVALID_ARGUMENT),
            (b"\x12" + b"\xff" * 100, grpc.StatusCode.INVALID_ARGUMENT),
            (b"\x12" + b"\x00" * 200_000, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            async with raw_session(made.address) as call:
                await call.write(hello)
                await call.read()
                await call.write(frame)
                assert (await refused(call))[0] is expected
        good.want([ROW])
        await good.send_rollup()
        await good.until(lambda heard: len(heard.acks) == 2)
        assert made.metrics.value("streams_refused_total", ("garbage",)) == 2
        assert made.metrics.value("streams_refused_total", ("oversized",)) == 1


async def test_an_unknown_payload_is_skipped_and_the_stream_survives() -> None:
    async with shell() as made, operator(made.address, "c-1", capabilities=REFERENCE) as cluster:
        await cluster.send_message(shard_pb2.OperatorMessage())
        await cluster.send(hello=shard_pb2.Hello(cluster_id="other"))
        await made.core.until(ev.HelloRepeated)
        assert made.metrics.value("frames_ignored_total") == 1


async def test_a_replaced_stream_is_ended_at_once_as_aborted() -> None:
    async with shell() as made, operator(made.address, "c-1") as first, operator(made.address, "c-1") as second:
        async with asyncio.timeout(30):
            assert await first.ended() is grpc.StatusCode.ABORTED
        second.want([ROW])
        await second.send_rollup()
        await second.until(lambda heard: len(heard.acks) == 2)


async def test_a_referral_names_the_other_shard_in_the_trailers() -> None:
    async with shell() as made, raw_session(made.address) as call:
        await call.write(shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="c-1")).SerializeToString())
        opened = (await made.core.until(ev.SessionOpened))[0]
        assert isinstance(opened, ev.SessionOpened)
        await call.read()
        made.streams.close(opened.session, ev.CloseCode.FAILED_PRECONDITION, "elsewhere", "10.0.0.9:7780")
        assert await refused(call) == (grpc.StatusCode.FAILED_PRECONDITION, "elsewhere")
        assert ("bigfleet-redirect", "10.0.0.9:7780") in tuple(await call.trailing_metadata())


async def test_an_operator_that_reads_nothing_stalls_nobody_and_can_still_be_closed() -> None:
    big = ev.NodeState("m", "stuck", 5, "n", "p", "x" * 100_000, None)  # type: ignore[arg-type]
    async with shell() as made, raw_session(made.address) as stuck:
        await stuck.write(shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="stuck")).SerializeToString())
        opened = (await made.core.until(ev.SessionOpened))[0]
        assert isinstance(opened, ev.SessionOpened)
        for instruction in made.core.queue(opened.session, *[big] * 2000):
            assert isinstance(instruction, ev.WakeSession)
            made.streams.wake(instruction.session)
        async with operator(made.address, "good") as good:
            good.want([ROW])
            for expected in range(2, 12):
                await good.send_rollup()
                await good.until(lambda heard, expected=expected: len(heard.acks) == expected)
        assert len(made.core.outbox[opened.session]) > 1000, "the stuck operator was sent more than it can have taken"
        made.streams.close(opened.session, ev.CloseCode.ABORTED, "replaced")
        await made.core.until(ev.SessionClosed, 2)


async def test_streams_end_when_the_process_stops() -> None:
    async with shell() as made:
        opened = [SyntheticOperator(f"c-{n}", _channel(made)) for n in range(3)]
        for cluster in opened:
            await cluster.connect()
        made.streams.close_all()
        async with asyncio.timeout(30):
            assert {await cluster.ended() for cluster in opened} == {grpc.StatusCode.UNAVAILABLE}


def _channel(made: Shell) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(made.address)


async def test_a_huge_rollup_of_one_cluster_does_not_hold_up_another_clusters() -> None:
    """20,000 different rows take a while to read; a cluster of ordinary size that reports afterwards is heard first."""

    def rows(count: int, cpu: int) -> list[Row]:
        return [Row(pods=1, unit={"cpu": f"{cpu + number}m", "memory": "4Gi"}) for number in range(count)]

    async with shell() as made, operator(made.address, "huge") as huge, operator(made.address, "ordinary") as ordinary:
        huge.want(rows(20_000, 1))
        ordinary.want(rows(1_500, 50_000))
        await huge.send_rollup()
        await until(lambda: made.streams.busy_with_large)
        await ordinary.send_rollup()
        heard = await made.core.until(ev.RollupReceived, 2)
        assert [event.cluster for event in heard] == ["ordinary", "huge"]
