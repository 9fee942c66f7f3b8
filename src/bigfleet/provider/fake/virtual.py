"""The fake on a virtual clock: the kit's lifecycle and the pretend cloud inside one event kernel, no asyncio, no gRPC.

The simulator calls it as a shard's RPCs would arrive and reads it as List and Get would answer. With instant durations
a transition is complete before the call returns. Everything that happens, happens at the kernel's `now`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bigfleet.model.machine import MachineState
from bigfleet.provider.fake.catalogue import Catalogue
from bigfleet.provider.fake.cloud import Cloud, Outcome
from bigfleet.provider.fake.commands import Command, Release
from bigfleet.provider.kit.core.core import Lifecycle, Page, Rules
from bigfleet.provider.kit.core.events import (
    ROWS,
    Acknowledge,
    ConfigureRequested,
    ConfirmReady,
    CreateRequested,
    Described,
    Event,
    HostLost,
    Instruction,
    NodeReady,
    Refuse,
    Request,
    Row,
    StartWork,
    StopWork,
    Tick,
    WorkDone,
    WorkFailed,
)
from bigfleet.provider.kit.core.records import Host, Instance, Kind, MachineRecord
from bigfleet.virtual.kernel import SECOND, Action, Kernel, Timer

_ROWS = frozenset(ROWS)


@dataclass(slots=True)
class _Job:
    work: StartWork
    outcome: Outcome
    timer: Timer | None = None


class VirtualProvider:
    """One provider inside a simulation."""

    def __init__(self, kernel: Kernel, catalogue: Catalogue, on_row: Callable[[Row], None] | None = None) -> None:
        """`on_row` is told of every row a real provider would have stored."""
        self.catalogue = catalogue
        self._on_row = on_row
        self.cloud = Cloud(catalogue, kernel.now / SECOND)
        rules = Rules(
            timeouts=catalogue.timeouts,
            can_delete=catalogue.can_delete,
            readiness_gate=True,
            relist_after=catalogue.relist_seconds,
        )
        self.core = Lifecycle(rules, generation="sim")
        self._kernel = kernel
        self._jobs: dict[str, _Job] = {}
        self._wake: Timer | None = None
        self.core.seed(self.cloud.instances())
        for record in self.core.machines.values():
            if record.host is not None:
                self._host_up(record)
        self._arm()

    def request(self, request: Request) -> Acknowledge | Refuse:
        """One lifecycle call, answered at once; an accepted ack shows the machine as it is when the call returns."""
        answer = self._handle(request)
        self._arm()
        if isinstance(answer, Acknowledge):
            return Acknowledge(answer.operation_id, self.core.get(answer.machine.id) or answer.machine)
        assert answer is not None
        return answer

    def get(self, machine_id: str) -> MachineRecord | None:
        return self.core.get(machine_id)

    def page(self, states: Iterable[int] = (), max_results: int = 0, since: bytes = b"") -> Page:
        """What List would answer."""
        return self.core.page(states, max_results, since)

    def inject(self, command: Command) -> None:
        """Carry out a command; raises CatalogueError when it fits no machine."""
        self._apply(self.cloud.execute(command, self.core.machines, self._now()))
        if isinstance(command, Release):
            for job in [job for job in self._jobs.values() if job.work.kind is command.transition]:
                if job.outcome.held and job.timer is None:
                    self._run(job)
        self._arm()

    def bind(self, machine_id: str, cluster_id: str, metadata: Mapping[str, str]) -> None:
        """Seed a machine as CONFIGURED for a cluster, skipping faults and durations."""
        record = self.core.machines[machine_id]
        if record.state == MachineState.SPECULATIVE:
            host = Host(self.catalogue.provider, f"host-{machine_id}")
            self._settle_at_once(CreateRequested(machine_id), host)
        self._settle_at_once(ConfigureRequested(machine_id, cluster_id, b"", metadata), None)
        self._arm()

    def validate(self) -> None:
        """Check every invariant of the lifecycle and that work under way and open transitions agree."""
        self.core.validate()
        open_work = {record.operation_id for record in self.core.machines.values() if record.transition}
        assert open_work == set(self._jobs), f"open transitions {open_work} but jobs {set(self._jobs)}"

    def _settle_at_once(self, request: CreateRequested | ConfigureRequested, host: Host | None) -> None:
        now = self._now()
        out = self.core.handle(request, now)
        answer = out[-1]
        if not isinstance(answer, Acknowledge):
            raise ValueError(f"machine {request.machine_id} cannot be bound: {answer}")
        operation_id = answer.operation_id
        out += self.core.handle(WorkDone(request.machine_id, operation_id, host), now)
        if host is None:
            out += self.core.handle(NodeReady(request.machine_id, operation_id), now)
        for instruction in out:
            self._note(instruction)
        if host is not None:
            self._host_up(self.core.machines[request.machine_id])

    def _handle(self, event: Event) -> Acknowledge | Refuse | None:
        answer: Acknowledge | Refuse | None = None
        for instruction in self.core.handle(event, self._now()):
            match instruction:
                case StartWork():
                    self._start(instruction)
                case ConfirmReady():
                    self._await_ready(instruction)
                case StopWork():
                    self._stop(instruction)
                case Acknowledge() | Refuse():
                    answer = instruction
                case _:
                    self._note(instruction)
        return answer

    def describe(self, *instances: Instance) -> None:
        """Publish new prices, risks or labels of known machines."""
        self._handle(Described(instances, as_of=0, complete=False))
        self._arm()

    def _note(self, instruction: Instruction) -> None:
        # Rows are kept nowhere: the simulation is the store.
        if self._on_row is not None and type(instruction) in _ROWS:
            self._on_row(instruction)  # type: ignore[arg-type]

    def _start(self, work: StartWork) -> None:
        outcome = self.cloud.begin(work.kind, work.machine, self._now())
        job = self._jobs[work.operation_id] = _Job(work, outcome)
        if not outcome.held:
            self._run(job)

    def _run(self, job: _Job) -> None:
        if job.outcome.hangs:
            return
        self._later(job, job.outcome.seconds, lambda: self._finish(job))

    def _finish(self, job: _Job) -> None:
        work, outcome = job.work, job.outcome
        machine_id, operation_id = work.machine.id, work.operation_id
        if outcome.error:
            self._handle(WorkFailed(machine_id, operation_id, outcome.error))
        else:
            host = Host(self.catalogue.provider, f"host-{operation_id}") if work.kind is Kind.CREATE else None
            self._handle(WorkDone(machine_id, operation_id, host, allocatable=outcome.allocatable))
        self._after_work(work)
        self._arm()

    def _after_work(self, work: StartWork) -> None:
        record = self.core.get(work.machine.id)
        if record is None or record.operation_id == work.operation_id:
            return  # gone, or waiting for its node
        self._jobs.pop(work.operation_id, None)
        if work.kind is Kind.CREATE and record.host is not None:
            self._host_up(record)
        elif work.kind is Kind.DELETE and record.host is None:
            self.cloud.host_down(record.id)

    def _await_ready(self, confirm: ConfirmReady) -> None:
        job = self._jobs[confirm.operation_id]
        if not job.outcome.never_ready:
            self._later(job, job.outcome.ready_seconds, lambda: self._ready(job))

    def _ready(self, job: _Job) -> None:
        self._handle(NodeReady(job.work.machine.id, job.work.operation_id))
        self._jobs.pop(job.work.operation_id, None)
        self._arm()

    def _stop(self, stop: StopWork) -> None:
        job = self._jobs.pop(stop.operation_id, None)
        # Stubborn work goes on and succeeds too late, which the lifecycle must ignore.
        if job is not None and job.timer is not None and not job.outcome.stubborn:
            job.timer.cancel()

    def _later(self, job: _Job, seconds: float, action: Action) -> None:
        delay = round(seconds * SECOND)
        if delay == 0:
            job.timer = None
            action()
        else:
            job.timer = self._kernel.after(delay, action)

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self._handle(event)
            if isinstance(event, HostLost):
                self.cloud.host_down(event.machine_id)

    def _host_up(self, record: MachineRecord) -> None:
        shape = record.shape
        self.cloud.host_up(record.id, shape.capacity_type, shape.interruption_probability, self._now())

    def _arm(self) -> None:
        """Wake up for whichever comes first: a deadline of the lifecycle or something that happens by itself."""
        due, fate = self.core.next_deadline(), self.cloud.next_due()
        if due is None or (fate is not None and fate < due):
            due = fate
        if due is None:
            return
        instant = max(self._kernel.now, int(due * SECOND))
        while instant / SECOND < due:  # waking a nanosecond early would find nothing due and spin
            instant += 1
        wake = self._wake
        if wake is not None and wake.active:
            if wake.due <= instant:
                return
            wake.cancel()
        self._wake = self._kernel.at(instant, self._woken)

    def _woken(self) -> None:
        self._handle(Tick())
        self._apply(self.cloud.due(self.core.machines, self._now()))
        self._arm()

    def _now(self) -> float:
        return self._kernel.now / SECOND
