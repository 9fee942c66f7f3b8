"""Runs one production shard core inside the simulation: performs its instructions, keeps its journal, wakes its timers.

The counterpart of the asyncio shell, on the event kernel. Engine steps run inline; everything else is sent on its way
and comes back as an event. A crash drops the core and everything under way; what survives is the data directory, with
the journal and the epoch, unless that is lost too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.config import ShardConfig
from bigfleet.shard.contract.step_result import take_step
from bigfleet.shard.core.actions.consolidation import EVICTIONS
from bigfleet.shard.core.core import ShardCore
from bigfleet.sim.world.port import Provider
from bigfleet.virtual.kernel import Kernel, Timer

EPOCH = 1_767_225_600 * 10**9
"""Simulations begin on 1 January 2026: cores expect Unix time and treat 0 as never."""


class Listener(Protocol):
    """Who watches the shard decide."""

    def stepped(self, shard: str, wanted: ev.RunStep, result: Any) -> None: ...
    def audited(self, shard: str, record: ev.Audit) -> None: ...
    def logged(self, shard: str, record: ev.Log) -> None: ...


class Streams(Protocol):
    """Where frames for operators go."""

    def deliver(self, session: int, frame: ev.Frame) -> None: ...
    def closed(self, session: int, code: ev.CloseCode, message: str) -> None: ...


class ShardHost:
    """One shard process."""

    def __init__(
        self,
        kernel: Kernel,
        config: ShardConfig,
        providers: Mapping[str, Provider],
        streams: Streams,
        listener: Listener,
        engine: Callable[[], Any],
        *,
        check: bool = False,
    ) -> None:
        self.config = config
        self.core: ShardCore | None = None
        # Pods that moves to something cheaper have evicted, in all its lives.
        self.evicted = 0
        self.rows: dict[tuple[ev.Table, str], str] = {}
        self.events = 0
        self._kernel = kernel
        self._providers = providers
        self._streams = streams
        self._listener = listener
        self._check = check
        self._epoch = 0
        self._make_engine = engine
        self._engine = engine()
        self._incarnation = 0
        self._timer: Timer | None = None
        self._inbox: deque[ev.Event] = deque()
        self._busy = False
        self._perform: dict[type, Callable[[Any], None]] = {
            ev.RunStep: self._run_step,
            ev.CallProvider: lambda wanted: self._providers[wanted.provider].call(wanted, self._answer()),
            ev.StartList: lambda wanted: self._providers[wanted.provider].list(wanted, self._answer()),
            ev.StartRead: lambda wanted: self._providers[wanted.provider].read(wanted, self._answer()),
            ev.Journal: self._journal,
            ev.WakeSession: lambda wanted: self.post(ev.SessionWritable(wanted.session)),
            ev.SendFrame: lambda wanted: self._streams.deliver(wanted.session, wanted.frame),
            ev.CloseSession: lambda wanted: self._streams.closed(wanted.session, wanted.code, wanted.message),
            ev.Audit: lambda record: self._listener.audited(self.config.id, record),
            ev.Log: lambda record: self._listener.logged(self.config.id, record),
            ev.Count: self._counted,
        }

    def _counted(self, counted: ev.Count) -> None:
        if counted.metric == EVICTIONS:
            self.evicted += round(counted.amount)

    @property
    def epoch(self) -> int:
        """Which of its lives this is."""
        return self._epoch

    @property
    def up(self) -> bool:
        return self.core is not None

    def start(self) -> None:
        """A new process: a higher epoch, an empty engine, and what the data directory has of the one before."""
        # As the journal file does it: a lost one must not bring back an epoch that providers have seen the end of.
        self._epoch = max(self._epoch + 1, (EPOCH + self._kernel.now) // 10**6)
        self._incarnation += 1
        self._engine = self._make_engine()
        self.core = ShardCore(self.config, ev.JournalState(self._epoch, dict(self.rows)))
        for instruction in self.core.start(EPOCH + self._kernel.now):
            self._carry_out(instruction)
        self.post(ev.TimerDue())

    def crash(self, *, lose_journal: bool = False) -> None:
        self.core = None
        self._incarnation += 1
        self._inbox.clear()
        if lose_journal:
            self.rows.clear()
            self._epoch = 0
        if self._timer is not None:
            self._timer.cancel()

    def post(self, event: ev.Event) -> None:
        """Something happened. Order of posting is order of handling; what happens meanwhile waits its turn."""
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox and self.core is not None:
                self._handle(self._inbox.popleft())
        finally:
            self._busy = False
        self._arm()

    def _handle(self, event: ev.Event) -> None:
        assert self.core is not None
        self.events += 1
        for instruction in self.core.handle(event, EPOCH + self._kernel.now):
            self._carry_out(instruction)
        if self._check and isinstance(event, ev.StepDone):
            self.core.validate()

    def _carry_out(self, instruction: ev.Instruction) -> None:
        action = self._perform.get(type(instruction))
        if action is not None:
            action(instruction)

    def _run_step(self, wanted: ev.RunStep) -> None:
        result = take_step(self._engine, wanted)
        self._listener.stepped(self.config.id, wanted, result)
        self._inbox.append(ev.StepDone(wanted.step, result))

    def _journal(self, wanted: ev.Journal) -> None:
        for table, key, value in wanted.entries:
            if value is None:
                self.rows.pop((table, key), None)
            else:
                self.rows[table, key] = value

    def _answer(self) -> Callable[[ev.Event], None]:
        """Where an answer goes: to the process that asked, if it still lives."""
        incarnation = self._incarnation

        def deliver(event: ev.Event) -> None:
            if self._incarnation == incarnation:
                self.post(event)

        return deliver

    def _arm(self) -> None:
        if self.core is None:
            return
        due = self.core.next_timer()
        if self._timer is not None and self._timer.active:
            if due is not None and self._timer.due == max(due - EPOCH, self._kernel.now):
                return
            self._timer.cancel()
        self._timer = None
        if due is not None:
            self._timer = self._kernel.at(max(due - EPOCH, self._kernel.now), self._due)

    def _due(self) -> None:
        self.post(ev.TimerDue())
