"""The provider's lifecycle: one pure state machine for all machines of a provider.

Theory of operation. The core owns every decision and no I/O: `handle(event, now)` changes the state and returns the
instructions the shell must carry out, in order: rows to commit, then work to start or stop, then the answer to the
request (`Acknowledge` or `Refuse`, always last, exactly one for a request event). The shell commits the rows before
it starts the work and before the answer leaves. `now` is seconds on any clock that never goes back.

    core = Lifecycle(Rules(), generation="a1")        # or Lifecycle(rules, generation, snapshot) after a restart
    core.seed([Instance("m-1", "c4.large", zone="a", price_per_hour=0.1)])
    *rows, start, ack = core.handle(CreateRequested("m-1"), now=0.0)         # StartWork, Acknowledge: CREATING
    core.handle(WorkDone("m-1", ack.operation_id, host=Host("acme", "i-7")), now=30.0)             # now IDLE
    core.get("m-1"); core.page(max_results=100, since=cursor); core.next_deadline(); core.story("m-1")

A driver (server, fake, simulator) answers `StartWork` and `ConfirmReady` with `WorkDone`, `WorkFailed` or `NodeReady`
whenever it likes, and sends `Tick` once `next_deadline()` is reached. Reports that come too late change nothing.
Request order: shape of the request → delete capability → fence → existence → repeat of a recorded operation →
position. A passing token advances its mark whatever happens next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from bigfleet.model.machine import BOUND, PASSAGES, MachineState
from bigfleet.provider.kit.core.changes import ChangeLog
from bigfleet.provider.kit.core.events import (
    Acknowledge,
    ConfigureRequested,
    ConfirmReady,
    CreateRequested,
    DeleteRequested,
    Described,
    DrainRequested,
    Event,
    HostLost,
    Instruction,
    InterruptionNoticed,
    LateSuccess,
    MachineBroken,
    NodeReady,
    Refusal,
    Refuse,
    Repaired,
    Request,
    Restarted,
    SaveMachine,
    SaveOperation,
    SlotsWithdrawn,
    StartWork,
    StopWork,
    Surveyed,
    Tick,
    WorkDone,
    WorkFailed,
)
from bigfleet.provider.kit.core.fences import FenceMarks
from bigfleet.provider.kit.core.fleet import Fleet, Page, Snapshot, StoryLine
from bigfleet.provider.kit.core.inventory import missing, reconcile
from bigfleet.provider.kit.core.open_work import OpenWork
from bigfleet.provider.kit.core.records import (
    NO_METADATA,
    TEXT_LIMIT,
    Instance,
    Kind,
    MachineRecord,
    Shape,
    pairs,
)
from bigfleet.provider.kit.core.refusals import (
    fenced,
    out_of_position,
    owned_by_another,
    readable,
    request_problem,
    sold_out,
    unknown,
)
from bigfleet.provider.kit.core.rules import LONGEST_GRACE, Rules, Timeouts
from bigfleet.provider.kit.core.soldout import SoldOutKinds

__all__ = ["InstanceError", "Lifecycle", "Page", "Rules", "Snapshot", "StoryLine", "Timeouts"]


class InstanceError(ValueError):
    """`describe` returned something that cannot be published at first boot."""


class Lifecycle:
    """All machines of one provider. Reads are plain methods; drivers change it through `handle` and `seed` only.

    `add` and `reshape` are for `inventory`, the part of `handle` that compares descriptions.
    """

    def __init__(self, rules: Rules, generation: str, snapshot: Snapshot | None = None) -> None:
        kept = snapshot or Snapshot()
        self.rules = rules
        self.absences: dict[str, int] = {}
        self._fleet = Fleet(generation, kept)
        self.fences = FenceMarks(self._fleet.knows, kept.fences)
        self._operations = {(row.machine_id, row.kind): row.operation_id for row in kept.operations}
        self._next_operation = max((row.number for row in kept.operations), default=0) + 1
        self._open = OpenWork()
        self._sold_out = SoldOutKinds(self.machines.values())
        self._handlers: dict[type, Callable[[Any, float], list[Instruction]]] = {
            CreateRequested: self._request,
            ConfigureRequested: self._request,
            DrainRequested: self._request,
            DeleteRequested: self._request,
            WorkDone: self._work_done,
            WorkFailed: self._work_failed,
            NodeReady: self._node_ready,
            HostLost: self._host_lost,
            InterruptionNoticed: self._interruption_noticed,
            MachineBroken: self._machine_broken,
            Repaired: self._repaired,
            SlotsWithdrawn: self._slots_withdrawn,
            Described: self._described,
            Surveyed: self._surveyed,
            Restarted: self._restarted,
            Tick: self._tick,
        }

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply one event; return what the shell must do, in order."""
        return self._handlers[type(event)](event, now)

    def seed(self, instances: Iterable[Instance]) -> list[Instruction]:
        """Publish the first inventory. Nothing is added if any instance is unfit."""
        chosen: dict[str, Instance] = {}
        for instance in instances:
            problem = instance.problem(require_zone=self.rules.require_zone)
            if problem is None and (instance.id in chosen or instance.id in self.machines):
                problem = f"{instance.id}: id is described twice; every machine needs its own"
            if problem is not None:
                raise InstanceError(problem)
            chosen[instance.id] = instance
        return [self.add(instance, now=0.0) for instance in chosen.values()]

    def add(self, instance: Instance, now: float) -> SaveMachine:
        """Publish one more slot or host, already checked."""
        state = instance.resting_state()
        slot = state == MachineState.SPECULATIVE
        record = MachineRecord(instance.id, state, instance.shape(), instance.host, slot=slot)
        return self._fleet.put(record, now, "described")

    def reshape(self, record: MachineRecord, shape: Shape, now: float) -> SaveMachine:
        """Publish new prices, risks, quantities or labels of a known machine."""
        return self._fleet.put(replace(record, shape=shape), now, "refreshed")

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, machine_id: str) -> MachineRecord | None:
        return self._fleet.machines.get(machine_id)

    @property
    def machines(self) -> Mapping[str, MachineRecord]:
        return self._fleet.machines

    @property
    def changes(self) -> ChangeLog:
        return self._fleet.changes

    def page(self, states: Iterable[int] = (), max_results: int = 0, since: bytes = b"") -> Page:
        """Machines in the given states (all without), changed after the cursor, at most `max_results` of them."""
        return self._fleet.page(states, max_results, since)

    def operation(self, machine_id: str, kind: Kind) -> str | None:
        return self._operations.get((machine_id, kind))

    def counts(self) -> Counter[MachineState]:
        return self._fleet.counts.copy()

    def held(self, machine_id: str) -> bool:
        """Whether a lost machine is still kept out of the list."""
        return self._fleet.lost(machine_id)

    def story(self, machine_id: str) -> list[StoryLine]:
        """The latest steps of one machine, oldest first."""
        return self._fleet.story(machine_id)

    def next_deadline(self) -> float | None:
        """When the core next wants a `Tick`, or None."""
        due = (self._open.next_deadline(), self._fleet.next_return(), self._sold_out.next_return(self.machines))
        return min((at for at in due if at is not None), default=None)

    def validate(self) -> None:
        """Raise AssertionError if any invariant is broken; tests call it after every event."""
        problems = self._fleet.problems() + self._open.problems(self.machines)
        assert not problems, "; ".join(problems)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────

    def _request(self, event: Request, now: float) -> list[Instruction]:
        kind = _KIND_OF_REQUEST[type(event)]
        problem = request_problem(event)
        if problem is not None:
            return [Refuse(Refusal.INVALID, problem)]
        if kind is Kind.DELETE and not self.rules.can_delete:
            return [Refuse(Refusal.UNSUPPORTED, "this provider does not delete machines")]
        if not self.fences.admits(event.token, event.machine_id):
            return [fenced(event)]
        marks: list[Instruction] = [*self.fences.advance(event.token, event.machine_id)]
        return marks + self._position(event, kind, now)

    def _position(self, event: Request, kind: Kind, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        if record is None:
            return [unknown(event.machine_id)]
        if isinstance(event, ConfigureRequested):
            if not event.cluster_id or len(event.cluster_id) > TEXT_LIMIT:
                return [Refuse(Refusal.INVALID, f"cluster_id must have 1 to {TEXT_LIMIT} characters")]
            if record.state in BOUND and record.cluster != event.cluster_id:
                return [owned_by_another(record)]
        passage = PASSAGES[kind]
        recorded = self._operations.get((record.id, kind))
        if recorded is not None and record.state in (passage.during, passage.after):
            return [Acknowledge(recorded, record)]
        if record.state != passage.before:
            return [out_of_position(record, kind)]
        if kind is Kind.CREATE and (left := self._sold_out.left(record.shape, now)) > 0:
            return [sold_out(record, left)]
        return self._accept(event, kind, record, now)

    def _accept(self, event: Request, kind: Kind, record: MachineRecord, now: float) -> list[Instruction]:
        number = self._next_operation
        self._next_operation += 1
        operation_id = f"{self.rules.operation_prefix}-{self.changes.generation}-{number}"
        self._operations[record.id, kind] = operation_id
        blob, grace, cluster, metadata = b"", 0, record.cluster, record.metadata
        if isinstance(event, ConfigureRequested):
            cluster, metadata, blob = event.cluster_id, dict(event.metadata), event.bootstrap_blob
        elif isinstance(event, DrainRequested):
            grace = event.grace_seconds
        deadline = now + min(grace, LONGEST_GRACE) + self.rules.timeouts.of(kind)
        moved = replace(
            record,
            state=PASSAGES[kind].during,
            operation_id=operation_id,
            cluster=cluster,
            metadata=metadata,
            due=deadline,
            grace_seconds=grace,
        )
        saved = self._put(moved, now, f"{kind} accepted")
        self._open.begin(saved.machine, kind, deadline)
        return [
            SaveOperation(record.id, kind, operation_id, number),
            saved,
            StartWork(kind, saved.machine, operation_id, deadline, blob, grace),
            Acknowledge(operation_id, saved.machine),
        ]

    # ── reports of the backend ───────────────────────────────────────────────────────────────────────────────

    def _work_done(self, event: WorkDone, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        opened = self._open.on(event.machine_id, event.operation_id)
        if record is None or opened is None or opened.backend_done:
            return [LateSuccess(event.machine_id, event.operation_id, event.host)]
        if opened.kind is Kind.CREATE and not (event.host and (event.host.provider or event.host.ref)):
            return self._fail(record, "create failed: the backend returned no host", now)
        if opened.kind is Kind.CONFIGURE and self.rules.readiness_gate:
            opened.backend_done = True
            # Kept, so that a restart waits on instead of calling a host that is coming up a failure.
            saved = self._put(replace(record, delivered=True), now, "blob delivered")
            return [saved, ConfirmReady(saved.machine, opened.operation_id, opened.deadline)]
        return [self._settle(record, opened.kind, event, now)]

    def _node_ready(self, event: NodeReady, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        opened = self._open.on(event.machine_id, event.operation_id)
        if record is None or opened is None or not opened.backend_done:
            return []
        return [self._settle(record, Kind.CONFIGURE, WorkDone(event.machine_id, event.operation_id), now)]

    def _work_failed(self, event: WorkFailed, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        opened = self._open.on(event.machine_id, event.operation_id)
        if record is None or opened is None:
            return []
        if event.retry_after > 0 and record.transition is Kind.CREATE:
            until = now + event.retry_after
            self._sold_out.add(record, until)
            why = f"create failed: sold out, try again in {event.retry_after:g} s: {event.error}"
            return self._fail(record, why, now, due=until)
        what = "node readiness" if opened.backend_done else f"{record.transition} failed"
        return self._fail(record, f"{what}: {event.error or 'the backend gave no reason'}", now)

    def _settle(self, record: MachineRecord, kind: Kind, result: WorkDone, now: float) -> SaveMachine:
        self._open.end(record.id)
        settled = record.at_rest(PASSAGES[kind].after)
        if kind is Kind.CREATE:
            self._sold_out.bought(record.shape)
            shape = record.shape
            if result.resources is not None:
                shape = replace(shape, resources=pairs(result.resources))
            if result.allocatable is not None:
                shape = replace(shape, allocatable=pairs(result.allocatable))
            settled = replace(settled, host=result.host, shape=shape)
        elif kind is Kind.DRAIN:
            settled = replace(settled, cluster="", metadata=NO_METADATA)
        elif kind is Kind.DELETE:
            settled = replace(settled, host=None, cluster="", metadata=NO_METADATA, slot=True, interruption_at=0.0)
        return self._put(settled, now, f"{kind} done")

    def _fail(self, record: MachineRecord, error: str, now: float, due: float = 0.0) -> list[Instruction]:
        opened = self._open.end(record.id)
        stop: list[Instruction] = [StopWork(record.id, opened.operation_id, "failed")] if opened else []
        failed = replace(record.at_rest(MachineState.FAILED), last_error=readable(error), due=due)
        return [self._put(failed, now, "failed"), *stop]

    # ── what happens to hosts by themselves ──────────────────────────────────────────────────────────────────

    def _host_lost(self, event: HostLost, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        if record is None or record.state == MachineState.SPECULATIVE:
            return []
        return self._remove(record, now, f"host lost: {event.reason}"[:200], now + self.rules.relist_after)

    def _interruption_noticed(self, event: InterruptionNoticed, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        if record is None or record.host is None or record.interruption_at == event.at:
            return []
        return [self._put(replace(record, interruption_at=event.at), now, "interruption noticed")]

    def _machine_broken(self, event: MachineBroken, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        if record is None or record.state == MachineState.FAILED:
            return []
        return self._fail(record, event.error or "the machine broke", now)

    def _repaired(self, event: Repaired, now: float) -> list[Instruction]:
        record = self.machines.get(event.machine_id)
        if record is None or record.state != MachineState.FAILED:
            return []
        state = MachineState.SPECULATIVE if event.host is None else MachineState.IDLE
        return [self._put(record.unbound(state, event.host), now, "repaired")]

    def _slots_withdrawn(self, event: SlotsWithdrawn, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for machine_id in event.machine_ids:
            record = self.machines.get(machine_id)
            if record is not None and record.state == MachineState.SPECULATIVE:
                out += self._remove(record, now, "slot withdrawn", None)
        return out

    def _described(self, event: Described, now: float) -> list[Instruction]:
        return reconcile(self, event, now)

    def _surveyed(self, event: Surveyed, now: float) -> list[Instruction]:
        return missing(self, event, now)

    def _restarted(self, event: Restarted, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for record in [r for r in self.machines.values() if r.transition is not None]:
            kind = record.transition
            assert kind is not None
            timeout = self.rules.timeouts.of(kind)
            # Records of an earlier version do not say when they are due.
            deadline = record.due or now + timeout
            opened = self._open.begin(record, kind, deadline)
            if record.delivered:
                opened.backend_done = True
                out.append(ConfirmReady(record, record.operation_id, deadline))
            elif event.reattach:
                left = max(0, min(record.grace_seconds, round(deadline - timeout - now)))
                resumed = replace(record, grace_seconds=left)
                out.append(StartWork(kind, resumed, record.operation_id, deadline, grace_seconds=left, reattach=True))
            else:
                out += self._fail(record, f"{kind} transition interrupted by a provider restart", now)
        return out

    def _tick(self, event: Tick, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        while (due := self.next_deadline()) is not None and due <= now:
            if (overdue := self._open.take_overdue(now)) is not None:
                machine_id, opened = overdue
                what = "node readiness: " if opened.backend_done else ""
                out += self._fail(self.machines[machine_id], f"{what}{opened.kind} timed out", now)
            for record in self._sold_out.take_returning(self.machines, now):
                out.append(self._put(record.unbound(MachineState.SPECULATIVE, None), now, "may be tried again"))
            for record in self._fleet.take_returning(now):
                if record.slot:
                    out.append(self._put(record.unbound(MachineState.SPECULATIVE, None), now, "slot listed again"))
        return out

    # ── state ────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, record: MachineRecord, now: float, cause: str) -> SaveMachine:
        return self._fleet.put(record, now, cause)

    def _remove(self, record: MachineRecord, now: float, cause: str, relist_at: float | None) -> list[Instruction]:
        opened = self._open.end(record.id)
        self.absences.pop(record.id, None)
        stop: list[Instruction] = [StopWork(record.id, opened.operation_id, cause)] if opened else []
        return [*self._fleet.remove(record, now, cause, relist_at), *stop]


_KIND_OF_REQUEST: Mapping[type, Kind] = {
    CreateRequested: Kind.CREATE,
    ConfigureRequested: Kind.CONFIGURE,
    DrainRequested: Kind.DRAIN,
    DeleteRequested: Kind.DELETE,
}
