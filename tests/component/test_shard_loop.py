"""The loop around a core: durable before performed, timers under load, and failures that are not survived."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from bigfleet.shard.runtime.clock import SteadyClock
from bigfleet.shard.runtime.conductor import Conductor
from bigfleet.shard.telemetry.metrics import ShardMetrics
from tools.waiting import until

Answer = Callable[[ev.Event, int], list[ev.Instruction]]
ROW = (ev.Table.INTENT, "p/m-1", "{}")


class Core:
    """Answers every event with what a test wants."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.timer: int | None = None
        self.heard: list[ev.Event] = []

    def start(self, now: int) -> list[ev.Instruction]:
        return []

    def handle(self, event: ev.Event, now: int) -> list[ev.Instruction]:
        self.heard.append(event)
        return self.answer(event, now)

    def next_timer(self) -> int | None:
        return self.timer


class Calls:
    """Providers that only remember what they were asked."""

    def __init__(self, order: list[str]) -> None:
        self.order = order
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, wanted: ev.CallProvider) -> None:
        self.order.append(f"call {wanted.op}")
        await self.gate.wait()
        self.order.append(f"done {wanted.op}")

    async def list(self, wanted: ev.StartList) -> None:
        self.order.append("list")

    async def read(self, wanted: ev.StartRead) -> None:
        self.order.append("read")


@asynccontextmanager
async def conducted(core: Core, order: list[str], **options: object) -> AsyncIterator[Conductor]:
    async def no_step(wanted: ev.RunStep) -> object:
        raise AssertionError("no step was asked for")

    def write(rows: object) -> None:
        order.append(f"journal {len(list(rows))}")  # type: ignore[call-overload]

    given = {"step": no_step, "write_journal": write, "write_audit": lambda records: None, **options}
    conductor = Conductor(core, clock=SteadyClock(), metrics=ShardMetrics(), **given)  # type: ignore[arg-type]
    conductor.providers = Calls(order)
    running = asyncio.create_task(conductor.run())
    try:
        yield conductor
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await conductor.close(5)


def call(op: int) -> ev.CallProvider:
    return ev.CallProvider(op, "p", CallKind.CREATE, "m", ev.Fence("s", 1, op), deadline=0)


async def test_a_call_goes_out_only_after_its_intent_is_on_disk() -> None:
    order: list[str] = []
    entered, release = threading.Event(), threading.Event()

    def slow_disk(rows: object) -> None:
        entered.set()
        release.wait(10)
        order.append("journal")

    core = Core(lambda event, now: [ev.Journal((ROW,)), call(1)])
    async with conducted(core, order, write_journal=slow_disk) as conductor:
        done = conductor.ask(ev.TimerDue())
        await asyncio.to_thread(entered.wait, 10)
        assert order == [] and not done.done()
        release.set()
        await done
        await until(lambda: len(order) >= 2)
        assert order[:2] == ["journal", "call 1"]


async def test_events_that_wait_share_one_write_and_keep_their_order() -> None:
    order: list[str] = []
    numbers = iter(range(1, 100))
    core = Core(lambda event, now: [ev.Journal((ROW,)), call(next(numbers))])
    async with conducted(core, order) as conductor:
        await asyncio.gather(*[conductor.ask(ev.TimerDue()) for _ in range(10)])
        calls = await until(lambda: [entry for entry in order if "call" in entry], lambda made: len(made) >= 10)
        assert order[0] == "journal 10"
        assert calls == [f"call {number}" for number in range(1, 11)]


async def test_rows_nobody_waits_for_are_written_later_and_in_order() -> None:
    order: list[str] = []
    core = Core(lambda event, now: [call(1), ev.Journal((ROW,), lazy=True)])
    async with conducted(core, order) as conductor:
        await conductor.ask(ev.TimerDue())
        await until(lambda: "call 1" in order)
    assert "journal 1" in order, "a lazy row was lost at the stop"
    assert order.index("call 1") < order.index("journal 1"), "a call waited for a row nobody waits for"


async def test_a_timer_is_kept_while_events_never_cease() -> None:
    order: list[str] = []
    clock = SteadyClock()
    core = Core(lambda event, now: [])
    core.timer = clock() + 50_000_000

    async with conducted(core, order) as conductor:

        def flood(event: ev.Event, now: int) -> list[ev.Instruction]:
            if isinstance(event, ev.TimerDue):
                core.timer = None
            else:
                conductor.post(event)
            return []

        core.answer = flood
        conductor.post(ev.CoordinatorAnswered(1))
        await until(lambda: any(isinstance(event, ev.TimerDue) for event in core.heard))
        core.answer = lambda event, now: []


async def test_a_core_that_raises_ends_the_run_with_its_exception() -> None:
    def broken(event: ev.Event, now: int) -> list[ev.Instruction]:
        raise AssertionError("an invariant of the core does not hold")

    core = Core(broken)
    conductor = Conductor(
        core,
        clock=SteadyClock(),
        step=None,  # type: ignore[arg-type]
        write_journal=lambda rows: None,
        write_audit=lambda records: None,
        metrics=ShardMetrics(),
    )
    conductor.post(ev.TimerDue())
    with pytest.raises(AssertionError, match="invariant"):
        async with asyncio.timeout(10):
            await conductor.run()
    await conductor.close(1)


async def test_an_audit_log_that_cannot_be_written_ends_the_run() -> None:
    record = ev.Audit(1, "Bootstrap", "m", "c", "phase1.idle", 0, "success")

    def full(records: object) -> None:
        raise OSError("no space left on device")

    core = Core(lambda event, now: [record])
    conductor = Conductor(
        core,
        clock=SteadyClock(),
        step=None,  # type: ignore[arg-type]
        write_journal=lambda rows: None,
        write_audit=full,
        metrics=ShardMetrics(),
    )
    conductor.post(ev.TimerDue())
    with pytest.raises(OSError, match="no space"):
        async with asyncio.timeout(10):
            await conductor.run()
    await conductor.close(1)


async def test_a_stop_waits_for_calls_under_way_but_not_for_ever() -> None:
    order: list[str] = []
    core = Core(lambda event, now: [call(1)])
    async with conducted(core, order) as conductor:
        calls = conductor.providers
        assert isinstance(calls, Calls)
        calls.gate.clear()
        await conductor.ask(ev.TimerDue())
        asyncio.get_running_loop().call_later(0.05, calls.gate.set)
    assert order == ["call 1", "done 1"]
    async with conducted(core, order) as conductor:
        calls = conductor.providers
        assert isinstance(calls, Calls)
        calls.gate.clear()
        await conductor.ask(ev.TimerDue())
        await until(lambda: order.count("call 1") == 2)
        async with asyncio.timeout(5):
            await conductor.close(0.05)
