"""Drives the core: one event after the other in, instructions out, performed strictly in order.

Events that are waiting are handled as one batch, so that one durable write of the journal serves them all; nothing of
a batch is performed before that write returned (unless its rows are all lazy) and its audit lines are written. Whatever
fails here ends `run` with the exception, and with it the process: a shard that cannot trust its core must not act.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import structlog

from bigfleet.shard.contract import events as ev
from bigfleet.shard.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from bigfleet.shard.contract.step_result import StepResult
    from bigfleet.shard.telemetry.metrics import ShardMetrics

# A batch of events may hold the loop for so long before streams get their turn.
SLICE_SECONDS = 0.005
# Rows that nobody waits for are written together, this late at most.
LAZY_SECONDS = 0.05


class Core(Protocol):
    def start(self, now: int) -> list[ev.Instruction]: ...

    def handle(self, event: ev.Event, now: int) -> list[ev.Instruction]: ...

    def next_timer(self) -> int | None: ...


class Streams(Protocol):
    """Where frames go; sessions that are gone are ignored."""

    def wake(self, session: int) -> None: ...

    def send(self, session: int, frame: ev.Frame) -> None: ...

    def close(self, session: int, code: ev.CloseCode, message: str, referral: str) -> None: ...


class Providers(Protocol):
    """Where calls go; each answers by posting its event."""

    async def call(self, wanted: ev.CallProvider) -> None: ...

    async def list(self, wanted: ev.StartList) -> None: ...

    async def read(self, wanted: ev.StartRead) -> None: ...


class Stepper(Protocol):
    """Runs an engine step somewhere else than in the event loop."""

    async def __call__(self, wanted: ev.RunStep) -> StepResult: ...


class Conductor:
    """The one owner of the core. Everything that happens is posted here."""

    def __init__(
        self,
        core: Core,
        *,
        clock: Callable[[], int],
        step: Stepper,
        write_journal: Callable[[Iterable[tuple[ev.Table, str, str | None]]], None],
        write_audit: Callable[[list[tuple[int, ev.Audit]]], None],
        metrics: ShardMetrics,
        log: Any = None,
        on_report: Callable[[], None] = lambda: None,
        on_handled: Callable[[ev.Event, float, float], None] = lambda event, seconds, worked: None,
    ) -> None:
        self.core = core
        self.clock = clock
        self.streams: Streams | None = None
        self.providers: Providers | None = None
        self._step = step
        self._write_journal = write_journal
        self._write_audit = write_audit
        self._metrics = metrics
        self._log = log if log is not None else structlog.get_logger(__name__)
        self._on_report = on_report
        self._on_handled = on_handled
        self._events: deque[tuple[ev.Event, asyncio.Future[None] | None]] = deque()
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lazy_rows: list[tuple[ev.Table, str, str | None]] = []
        self._lazy_flush: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._disk = Worker("journal")
        self._audit = Worker("audit")
        self._stopped = False

    def post(self, event: ev.Event) -> None:
        """Something happened. Order of posting is order of handling."""
        self._events.append((event, None))
        self._arrived.set()

    def ask(self, event: ev.Event) -> asyncio.Future[None]:
        """`post`, with a future that is done once everything the core asked for in answer was performed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._stopped:
            done.cancel()
            return done
        self._events.append((event, done))
        self._arrived.set()
        return done

    @property
    def backlog(self) -> int:
        """Events not handled yet."""
        return len(self._events)

    async def run(self) -> None:
        """Until cancelled, or until something fails: then with its exception."""
        working = asyncio.create_task(self._work())
        try:
            await asyncio.wait({working, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def close(self, grace: float) -> None:
        """Let calls that are under way finish within `grace` seconds, then forget them; flush the audit log."""
        if self._stopped:
            return
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _, done in self._events:
            if done is not None:
                done.cancel()
        self._events.clear()
        self._write_lazy_rows()
        for worker in (self._audit, self._disk):
            await asyncio.wait({worker.run(lambda: None)}, timeout=grace)
            worker.close()

    def fail(self, error: BaseException) -> None:
        """A part broke: end `run` with this."""
        if not self._failure.done():
            self._failure.set_exception(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run beside the loop; its failure is the shard's."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def _work(self) -> None:
        for instruction in self.core.start(self.clock()):
            self._perform(instruction)
        self._set_timer()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._events:
                await self._batch()
                # Timers and streams get their turn also under a backlog that never ends.
                self._set_timer()
                await asyncio.sleep(0)

    async def _batch(self) -> None:
        began = time.monotonic()
        now = self.clock()
        performed: list[tuple[list[ev.Instruction], asyncio.Future[None] | None]] = []
        audits: list[tuple[int, ev.Audit]] = []
        urgent = False
        while self._events:
            event, done = self._events.popleft()
            instructions = self._handled(event, now)
            for instruction in instructions:
                if isinstance(instruction, ev.Journal):
                    self._lazy_rows.extend(instruction.entries)
                    urgent = urgent or not instruction.lazy
                elif isinstance(instruction, ev.Audit):
                    audits.append((now, instruction))
            performed.append((instructions, done))
            if time.monotonic() - began > SLICE_SECONDS:
                break
        if urgent:
            await self._durable()
        elif self._lazy_rows and self._lazy_flush is None:
            self._lazy_flush = asyncio.get_running_loop().call_later(LAZY_SECONDS, self._write_lazy_rows)
        if audits:
            # Written before anybody hears of what they record.
            await self._audit.run(self._write_audit, audits)
        for instructions, done in performed:
            for instruction in instructions:
                self._perform(instruction)
            if done is not None and not done.done():
                done.set_result(None)

    def _handled(self, event: ev.Event, now: int) -> list[ev.Instruction]:
        if not isinstance(event, ev.StepDone | ev.ListArrived):
            return self.core.handle(event, now)
        began, worked = time.monotonic(), time.thread_time()
        instructions = self.core.handle(event, now)
        self._on_handled(event, time.monotonic() - began, time.thread_time() - worked)
        return instructions

    async def _durable(self) -> None:
        """Everything journalled so far is on disk when this returns, in the order it was journalled."""
        rows, self._lazy_rows = self._lazy_rows, []
        began = time.monotonic()
        await self._disk.run(self._write_journal, rows)
        self._metrics.observe("journal_commit_seconds", time.monotonic() - began)

    def _write_lazy_rows(self) -> None:
        self._lazy_flush = None
        if self._lazy_rows:
            rows, self._lazy_rows = self._lazy_rows, []
            self._watch(self._disk.run(self._write_journal, rows))

    def _perform(self, instruction: ev.Instruction) -> None:
        match instruction:
            case ev.SendFrame():
                self._streams().send(instruction.session, instruction.frame)
            case ev.WakeSession():
                self._streams().wake(instruction.session)
            case ev.Count():
                self._metrics.count(instruction.metric, instruction.labels, instruction.amount)
            case ev.Observe():
                self._metrics.observe(instruction.metric, instruction.seconds, instruction.labels)
            case ev.Log():
                getattr(self._log, instruction.level.lower())(instruction.message, **dict(instruction.attrs))
            case ev.CallProvider():
                # A mutation that went out should be heard to its end; everything else can be cut off at a stop.
                self._calls.add(self._spawn(self._providers().call(instruction)))
            case ev.StartList():
                self._spawn(self._providers().list(instruction))
            case ev.StartRead():
                self._spawn(self._providers().read(instruction))
            case ev.RunStep():
                self._spawn(self._run_step(instruction))
            case ev.CloseSession():
                self._streams().close(instruction.session, instruction.code, instruction.message, instruction.referral)
            case ev.ReportNow():
                self._on_report()
            case ev.Journal() | ev.Audit():
                pass  # written with the batch
            case _:
                assert_never(instruction)

    async def _run_step(self, wanted: ev.RunStep) -> None:
        self.post(ev.StepDone(wanted.step, await self._step(wanted)))

    def _set_timer(self) -> None:
        at = self.core.next_timer()
        if at == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at is not None:
            delay = max(0.0, (at - self.clock()) / 1e9)
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self.post(ev.TimerDue())

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _watch(self, work: asyncio.Future[None]) -> None:
        def check(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                self.fail(error)

        work.add_done_callback(check)

    def _streams(self) -> Streams:
        assert self.streams is not None, "streams are attached before the first event"
        return self.streams

    def _providers(self) -> Providers:
        assert self.providers is not None, "providers are attached before the first event"
        return self.providers
