"""A shard core in virtual time: scripted providers and operators around it, an engine run inline, a journal in a dict.

Everything is due at an instant and nothing waits. `World.run(seconds)` moves the clock; after every event the core's
invariants are checked. Faults are plain attributes of the provider and the operator, so a test reads like a story.
"""

from __future__ import annotations

import copy
import heapq
import importlib
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import CallKind, MachineState
from bigfleet.model.names import OPERATOR_CAPABILITIES
from bigfleet.model.resources import Resources
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.config import ShardConfig
from bigfleet.shard.contract.coordination import Ack
from bigfleet.shard.contract.step_result import take_step
from bigfleet.shard.contract.victims import victims_for
from bigfleet.shard.core.core import ShardCore
from bigfleet.shard.telemetry.metrics import FAMILIES, PREFIX
from tests.oracle.step import Oracle
from tests.strategies.builders import SECOND, START, NeedLine, need, rollup

S = MachineState
ALL = frozenset(OPERATOR_CAPABILITIES)
COUNTERS = {f"{PREFIX}{family.name}_total" for family in FAMILIES if family.kind == "counter"}
OLD: frozenset[str] = frozenset()

USER_DATA = b"#!/bin/sh\njoin --token abcdef.0123456789abcdef\n"


class _Table:
    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = list(rows)

    def rows(self) -> list[Any]:
        return self._rows

    def unmet(self) -> list[Any]:
        return [row for row in self._rows if not row.satisfied]


@dataclass
class StepTables:
    """One step's result, of the engine or the oracle."""

    actions: _Table
    verdicts: _Table
    shortfalls: _Table
    available: _Table
    rejected: dict[str, int]
    rollups: dict[str, Any]
    deferred: int
    capped: int
    victims: dict[str, Any] = field(default_factory=dict)
    aborted: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()
    refused: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Any) -> StepTables:
        """Everything rendered at once: tests look at old steps, which the engine's own tables refuse."""
        names = ("actions", "verdicts", "shortfalls", "available")
        tables = (getattr(result, name) for name in names)
        rendered = (_Table(table.rows() if hasattr(table, "rows") else table) for table in tables)
        return cls(
            *rendered,
            dict(result.rejected),
            dict(result.rollups),
            result.deferred,
            result.capped,
            dict(getattr(result, "victims", {})),
            tuple(result.aborted),
            tuple(result.doubted),
            dict(getattr(result, "refused", {})),
        )


@dataclass
class Unit:
    """A machine at its provider."""

    id: str
    state: MachineState
    shape: Shape
    host: str = ""
    cluster: str = ""
    error: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    mark: tuple[int, int] = (0, 0)
    busy_until: int = 0
    interruption_at: int = 0
    # Of what was bought: what its slot is again when it is given back.
    offered: Shape | None = None

    def record(self) -> ev.ListedMachine:
        return ev.ListedMachine(
            self.id, self.state, self.shape, self.host, self.cluster, self.error, self.metadata, self.interruption_at
        )


_TARGETS = {
    CallKind.CREATE: (S.SPECULATIVE, S.CREATING, S.IDLE),
    CallKind.CONFIGURE: (S.IDLE, S.CONFIGURING, S.CONFIGURED),
    CallKind.DRAIN: (S.CONFIGURED, S.DRAINING, S.IDLE),
    CallKind.DELETE: (S.IDLE, S.DELETING, S.SPECULATIVE),
}


class Provider:
    """Six RPCs over a dict, with the lifecycle of the contract and switches for everything that can go wrong."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.units: dict[str, Unit] = {}
        self.calls: list[ev.CallProvider] = []
        self.counts: Counter[tuple[CallKind, str]] = Counter()
        self.latency = 0.05
        self.work = dict.fromkeys(CallKind, 0.0)
        self.list_latency = 0.1
        self.refuse: Callable[[ev.CallProvider], tuple[ev.Failure, str] | None] = lambda call: None
        self.drop_answers: Callable[[ev.CallProvider], bool] = lambda call: False
        self.list_fails = ""
        self.read_fails = ""
        self.hide: set[str] = set()
        # What comes where a shape was offered, and in which state of the purchase that is shown.
        self.delivers: Callable[[Shape], Shape] = lambda offered: offered
        self.shown_in = S.CREATING
        self.can_delete = True
        self.lists = 0
        self.reads: list[str] = []
        self.revision = 0

    def add(self, id: str, state: MachineState = S.IDLE, *, cluster: str = "", **facts: Any) -> Unit:
        shape = facts.pop("shape", None) or shape_of(self.name, **facts)
        hosted = state not in (S.SPECULATIVE, S.CREATING)
        unit = Unit(id, state, shape, f"host-{id}" if hosted else "", cluster)
        self.units[id] = unit
        return unit

    def several(self, count: int, prefix: str, state: MachineState = S.IDLE, **facts: Any) -> None:
        for index in range(count):
            self.add(f"{prefix}{index}", state, **facts)

    def states(self) -> Counter[MachineState]:
        return Counter(unit.state for unit in self.units.values())

    def configured(self, cluster: str) -> list[str]:
        return sorted(u.id for u in self.units.values() if u.state == S.CONFIGURED and u.cluster == cluster)

    # ------------------------------------------------------------------------------------------------------------ calls

    def call(self, call: ev.CallProvider) -> None:
        self.calls.append(call)
        self.world.after(self.latency / 2, lambda: self._execute(call))

    def _execute(self, call: ev.CallProvider) -> None:
        answer = self._answer(call)
        if not self.drop_answers(call):
            self.world.after(self.latency / 2, lambda: self.world.post(answer, epoch=call.fence.epoch))

    def _answer(self, call: ev.CallProvider) -> ev.Event:
        unit = self.units.get(call.machine)
        mark = (call.fence.epoch, call.fence.sequence)
        if unit is not None:
            if mark <= unit.mark:
                return ev.CallFailed(call.op, ev.Failure.FENCED, "stale fence")
            unit.mark = mark
        refusal = self.refuse(call)
        if refusal is not None:
            return ev.CallFailed(call.op, *refusal)
        if unit is None:
            return ev.CallFailed(call.op, ev.Failure.NOT_FOUND, f"machine {call.machine} is unknown")
        if call.kind == CallKind.DELETE and not self.can_delete:
            return ev.CallFailed(call.op, ev.Failure.UNIMPLEMENTED, "Delete is not supported")
        before, during, after = _TARGETS[call.kind]
        if unit.state in (during, after) and (call.kind != CallKind.CONFIGURE or unit.cluster == call.cluster):
            return ev.CallDone(call.op, unit.record())
        if unit.state != before:
            return ev.CallFailed(call.op, ev.Failure.OTHER, f"{call.kind} of a machine that is {unit.state.label}")
        self.counts[call.kind, unit.id] += 1
        unit.state = during
        if during == S.CREATING:
            unit.offered = unit.shape
            self._show(unit)
        if call.kind == CallKind.CONFIGURE:
            assert call.blob, "Configure without user data"
            unit.cluster, unit.metadata = call.cluster, call.metadata
        seconds = self.work[call.kind]
        if seconds:
            self.world.after(seconds, lambda: self._finish(unit, during, after))
        else:
            self._finish(unit, during, after)
        return ev.CallDone(call.op, unit.record())

    def _finish(self, unit: Unit, during: MachineState, after: MachineState) -> None:
        if self.units.get(unit.id) is not unit or unit.state != during:
            return
        unit.state = after
        if during == S.CREATING:
            self._show(unit)
        if after == S.IDLE:
            unit.host = f"host-{unit.id}"
            unit.cluster, unit.metadata = "", ()
        elif after == S.SPECULATIVE:
            unit.host = ""
            unit.shape = unit.offered or unit.shape

    def _show(self, unit: Unit) -> None:
        if unit.state == self.shown_in:
            unit.shape = self.delivers(unit.shape)

    def lose_host(self, id: str) -> None:
        unit = self.units[id]
        unit.state, unit.host, unit.cluster, unit.metadata, unit.error = S.SPECULATIVE, "", "", (), ""

    def breaks(self, id: str, error: str = "host broke") -> None:
        unit = self.units[id]
        unit.state, unit.error = S.FAILED, error

    # ------------------------------------------------------------------------------------------------------------ reads

    def list(self, wanted: ev.StartList) -> None:
        self.lists += 1
        began, life = self.world.now, self.world.life

        def take() -> None:
            if self.list_fails:
                failed = ev.ListFailed(self.name, self.list_fails)
                self.world.after(self.list_latency / 2, lambda: self.world.post(failed, life=life))
                return
            self.revision += 1
            records = tuple(unit.record() for unit in self.units.values() if unit.id not in self.hide)
            arrived = ev.ListArrived(self.name, began, wanted.full, True, records, revision=str(self.revision).encode())
            self.world.after(self.list_latency / 2, lambda: self.world.post(arrived, life=life))

        self.world.after(self.list_latency / 2, take)

    def read(self, machine: str) -> None:
        self.reads.append(machine)
        began, life = self.world.now, self.world.life

        def take() -> None:
            answer: ev.Event
            if self.read_fails:
                answer = ev.ReadFailed(self.name, machine, self.read_fails)
            else:
                unit = self.units.get(machine)
                record = unit.record() if unit is not None and machine not in self.hide else None
                answer = ev.MachineRead(self.name, machine, began, record)
            self.world.after(self.latency / 2, lambda: self.world.post(answer, life=life))

        self.world.after(self.latency / 2, take)


class Operator:
    """One cluster's agent: answers what it is asked, drains what it is told, remembers every frame."""

    def __init__(self, world: World, cluster: str, capabilities: frozenset[str]) -> None:
        self.world = world
        self.cluster = cluster
        self.capabilities = capabilities
        self.session = 0
        self.frames: list[ev.Frame] = []
        self.closed: list[ev.CloseSession] = []
        self.stuck = False
        self.silent = False
        self.error = ""
        self.ttl = 0
        self.answer_after = 0.05
        self.evict_after = 1.0
        self.blocked: set[str] = set()
        self.draining: dict[str, str] = {}
        self.rollup: Any = None

    def of(self, kind: type) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def node_states(self, machine: str) -> list[MachineState]:
        return [frame.state for frame in self.of(ev.NodeState) if frame.machine == machine]

    def connect(self, **facts: Any) -> int:
        self.world.sessions += 1
        self.session = self.world.sessions
        self.world.streams[self.session] = self
        opened = ev.SessionOpened(
            self.session,
            self.cluster,
            "v1alpha1",
            self.capabilities,
            active_drains=tuple(self.draining),
            **facts,
        )
        self.world.post(opened)
        return self.session

    def disconnect(self, reason: str = "") -> None:
        session, self.session = self.session, 0
        if session:
            self.world.streams.pop(session, None)
            self.world.post(ev.SessionClosed(session, reason))

    def send(self, *needs: NeedLine) -> None:
        self.rollup = rollup(self.cluster, *needs)
        self.report()

    def report(self, unchanged: bool = False) -> None:
        if self.session:
            body = None if unchanged else self.rollup
            self.world.post(ev.RollupReceived(self.session, self.cluster, self.world.now, body, unchanged))

    def receive(self, frame: ev.Frame) -> None:
        self.frames.append(frame)
        session = self.session
        match frame:
            case ev.BootstrapRequest() if not self.silent:
                answer = ev.BootstrapAnswered(
                    session,
                    frame.request_id,
                    b"" if self.error else USER_DATA,
                    self.ttl,
                    self.error,
                )
                self.world.after(self.answer_after, lambda: self._reply(session, answer))
            case ev.ReclaimInstruction():
                self._reply(session, ev.ReclaimAcked(session, frame.instruction_id, len(frame.nodes)))
                for machine in frame.nodes:
                    self._drain(frame, machine)
            case ev.ReclaimCancel():
                for machine, instruction in list(self.draining.items()):
                    if instruction == frame.instruction_id:
                        del self.draining[machine]
                        done = ev.DrainReported(session, instruction, machine, "cancelled")
                        self._reply(session, done)
            case _:
                pass

    def _drain(self, frame: ev.ReclaimInstruction, machine: str) -> None:
        if "drain-reports" not in self.capabilities:
            return
        known = self.draining.get(machine)
        self.draining[machine] = frame.instruction_id
        if known == frame.instruction_id:
            return
        expires = machine in self.blocked
        wait = frame.grace_seconds if expires else min(self.evict_after, frame.grace_seconds)
        outcome = "grace_expired" if expires else "drained"

        def over() -> None:
            if self.draining.get(machine) == frame.instruction_id:
                if self.session:
                    del self.draining[machine]
                self._reply(self.session, ev.DrainReported(self.session, frame.instruction_id, machine, outcome))

        self.world.after(wait, over)

    def _reply(self, session: int, event: ev.Event) -> None:
        if session and session == self.session:
            self.world.post(event)


@dataclass
class World:
    """The clock, the core, and everybody around it."""

    config: ShardConfig = field(default_factory=lambda: test_config())
    oracle: bool = True
    now: int = START
    journal: dict[tuple[ev.Table, str], str] = field(default_factory=dict)
    epoch: int = 0
    life: int = 0
    sessions: int = 0
    # After every event; whoever drives many worlds for long does it now and then.
    validates: bool = True

    def __post_init__(self) -> None:
        self.providers = {name: Provider(self, name) for name in self.config.providers}
        self.operators: dict[str, Operator] = {}
        self.streams: dict[int, Operator] = {}
        self.log: list[ev.Log] = []
        self.audits: list[ev.Audit] = []
        self.counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.observed: Counter[str] = Counter()
        self.steps: list[ev.RunStep] = []
        self.results: list[Any] = []
        self.reports = 0
        self.step_seconds = 0.01
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.core: ShardCore
        self.start()

    @property
    def provider(self) -> Provider:
        return next(iter(self.providers.values()))

    def start(self) -> None:
        """A process begins: a new core from what the journal holds."""
        self.epoch += 1
        self.life += 1
        self.engine: Any = Oracle() if self.oracle else importlib.import_module("bigfleet.engine").Engine()
        self.core = ShardCore(self.config, ev.JournalState(self.epoch, dict(self.journal)))
        self._perform(self.core.start(self.now))

    def crash(self) -> None:
        """kill -9: streams end, answers under way go nowhere; calls under way reach their providers."""
        for operator in self.operators.values():
            operator.session = 0
        self.streams.clear()
        self.start()

    def operator(self, cluster: str, capabilities: frozenset[str] = ALL, *, connect: bool = True) -> Operator:
        operator = self.operators[cluster] = Operator(self, cluster, capabilities)
        if connect:
            operator.connect()
        return operator

    # ------------------------------------------------------------------------------------------------------------- time

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + round(seconds * SECOND), self._count, action))

    def run(self, seconds: float) -> None:
        """Let the time pass."""
        end = self.now + round(seconds * SECOND)
        while True:
            timer = self.core.next_timer()
            due = self._due[0][0] if self._due else None
            if (due is None or due > end) and (timer is None or timer > end):
                break
            if due is not None and (timer is None or due <= timer):
                self.now = max(self.now, due)
                heapq.heappop(self._due)[2]()
            else:
                assert timer is not None
                self.now = max(self.now, timer)
                self.post(ev.TimerDue())
        self.now = end

    def post(self, event: ev.Event, *, life: int | None = None, epoch: int | None = None) -> None:
        """Give the core an event, unless it was meant for an earlier process."""
        if life not in (None, self.life) or epoch not in (None, self.epoch):
            return
        instructions = self.core.handle(event, self.now)
        if self.validates:
            self.core.validate()
        self._perform(instructions)

    def _perform(self, instructions: list[ev.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case ev.Journal():
                    self._write(instruction)
                case ev.CallProvider():
                    self.providers[instruction.provider].call(instruction)
                case ev.StartList():
                    self.providers[instruction.provider].list(instruction)
                case ev.StartRead():
                    self.providers[instruction.provider].read(instruction.machine)
                case ev.RunStep():
                    self._step(instruction)
                case ev.WakeSession():
                    self._wake(instruction.session)
                case ev.SendFrame():
                    if (operator := self.streams.get(instruction.session)) is not None:
                        operator.receive(instruction.frame)
                case ev.CloseSession():
                    if (operator := self.streams.pop(instruction.session, None)) is not None:
                        operator.closed.append(instruction)
                        if operator.session == instruction.session:
                            operator.session = 0
                case ev.Log():
                    self.log.append(instruction)
                case ev.Audit():
                    self.audits.append(instruction)
                case ev.Count():
                    assert instruction.metric in COUNTERS, f"nobody scrapes {instruction.metric}"
                    self.counts[instruction.metric, instruction.labels] += int(instruction.amount)
                case ev.Observe():
                    self.observed[instruction.metric] += 1
                case ev.ReportNow():
                    self.reports += 1

    def _write(self, journal: ev.Journal) -> None:
        for table, key, value in journal.entries:
            if value is None:
                self.journal.pop((table, key), None)
            else:
                self.journal[table, key] = value

    def _step(self, step: ev.RunStep) -> None:
        self.steps.append(step)
        if self.oracle:
            result = self.engine.step(step.machines, step.demand, step.policy, step.now, step.conditions)
        else:
            result = take_step(self.engine, step)
        tables = StepTables.of(result)
        if self.oracle:
            tables.victims = {
                each.transfer: victims_for(copy.deepcopy(self.engine), each, step.policy, step.now)
                for each in step.victims
            }
        self.results.append(tables)
        self.after(self.step_seconds, lambda: self._done(step, tables, life))
        life = self.life

    def _done(self, step: ev.RunStep, tables: StepTables, life: int) -> None:
        self.post(ev.StepDone(step.step, tables), life=life)  # type: ignore[arg-type]

    def _wake(self, session: int) -> None:
        def writable() -> None:
            operator = self.streams.get(session)
            if operator is None:
                return
            if operator.stuck:
                self.after(0.5, writable)
            else:
                self.post(ev.SessionWritable(session))

        self.after(0.001, writable)

    # ------------------------------------------------------------------------------------------------------ coordinator

    def told(self, **answer: Any) -> dict[str, Ack]:
        """A report gets through and this is its answer; what the shard has to say to instructions afterwards."""
        acks = tuple(ack.instruction for ack in self.core.coordination.acks)
        self.post(ev.CoordinatorAnswered(told=acks, **{"term": 1, **answer}))
        return self.acks()

    def acks(self) -> dict[str, Ack]:
        return {ack.instruction: ack for ack in self.core.coordination.acks}

    def owned(self) -> set[str]:
        return {key for key, record in self.core.state.fleet.machines.items() if record.owned}

    # ---------------------------------------------------------------------------------------------------------- looking

    def state_of(self, machine: str) -> MachineState | None:
        record = self.core.state.fleet.machines.get(machine)
        return None if record is None else record.state

    def messages(self, text: str) -> list[ev.Log]:
        return [line for line in self.log if text in line.message]

    def outcomes(self, kind: str | None = None) -> Counter[str]:
        return Counter(audit.outcome for audit in self.audits if kind in (None, audit.kind))

    def count(self, metric: str, *labels: str) -> int:
        return self.counts[metric, labels]


def test_config(**changes: Any) -> ShardConfig:
    """Rails off unless a test turns them on: a test names what it is about."""
    quiet: dict[str, Any] = {
        "providers": ("p",),
        "reclaim_hold": 0,
        "reclaim_cap_fraction": 0.0,
        "empty_rollup_guard": False,
        "idle_hold_on_demand": 0,
        "idle_hold_spot": 0,
    }
    return ShardConfig(**{**quiet, **changes})


test_config.__test__ = False  # type: ignore[attr-defined]


def cpu(cluster: str, machines: int, **facts: Any) -> NeedLine:
    """Demand for so many machines of the default shape."""
    return need(cluster, machines, cpu=4, **facts)


def shape_of(
    provider: str, *, type: str = "m", zone: str = "a", capacity: int = 3, price: float = 1.0, **facts: Any
) -> Shape:
    size = facts.pop("size", {"cpu": 4000})
    labels = tuple(sorted(facts.pop("labels", {}).items()))
    probability = facts.pop("probability", 0.0)
    assert not facts, facts
    return Shape(provider, type, zone, capacity, price, probability, Resources(size), labels)


def reshaped(unit: Unit, **changes: Any) -> None:
    unit.shape = replace(unit.shape, **changes)


def dice(seed: int) -> random.Random:
    return random.Random(seed)
