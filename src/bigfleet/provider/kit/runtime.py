"""The shell around the lifecycle core: clock, timers, journal and backend calls on one event loop.

It carries the core's instructions out in order, commits before it acts, and turns what the backend does into events.
It decides nothing about machines; whatever looks like a rule belongs into `core`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

import structlog

from bigfleet.model.blob import redact
from bigfleet.provider.kit.author import Backend, SoldOut
from bigfleet.provider.kit.codec import MachineCodec
from bigfleet.provider.kit.core.core import InstanceError, Lifecycle, Rules, Timeouts
from bigfleet.provider.kit.core.events import (
    ROWS,
    Acknowledge,
    ConfirmReady,
    Described,
    Event,
    HostLost,
    InstanceSkipped,
    Instruction,
    InterruptionNoticed,
    LateSuccess,
    NodeReady,
    Refusal,
    Refuse,
    Repaired,
    Request,
    Restarted,
    Row,
    SaveRemoval,
    StartWork,
    StopWork,
    Tick,
    WorkDone,
    WorkFailed,
)
from bigfleet.provider.kit.core.inventory import survey
from bigfleet.provider.kit.core.records import Host, Instance, Kind, MachineRecord
from bigfleet.provider.kit.journal import Journal, resolve
from bigfleet.provider.kit.metrics import KitMetrics
from bigfleet.provider.kit.store import Store, StoreError

log = structlog.get_logger(__name__)

RECONCILE_SLICE = 500


@dataclass(frozen=True, slots=True)
class Options:
    """How a provider is run. Durations are seconds."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    require_zone: bool = False
    operation_prefix: str = "op"
    describe_is_complete: bool = False
    """`describe` returns every slot and host there is: what it leaves out twice is gone."""
    reconcile_interval: float = 120.0
    reconcile_timeout: float = 30.0
    readiness_poll: float = 1.0
    relist_after: float = 60.0


class RefusedError(Exception):
    """A request the contract refuses; the server turns it into a status."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__(refuse.message)
        self.refusal: Refusal = refuse.refusal


@dataclass(slots=True)
class _Job:
    task: asyncio.Task[None]
    blob: bytes = field(repr=False)


class Runtime:
    """One running provider. `submit` answers requests, `post` takes reports; both only on the event loop."""

    def __init__(self, backend: Backend, store: Store, options: Options, metrics: KitMetrics) -> None:
        self.options = options
        self.metrics = metrics
        self.codec = MachineCodec()
        self.journal = Journal(store)
        self.ready = False
        self._backend = backend
        self._jobs: dict[str, _Job] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._loop = asyncio.get_running_loop()
        # Wall time once, then a clock that never jumps: deadlines survive a restart and ignore clock changes.
        self._epoch = time.time() - self._loop.time()
        self._reconciler: asyncio.Task[None] | None = None
        snapshot = store.load()
        self._first_boot = snapshot.empty
        rules = Rules(
            timeouts=options.timeouts,
            can_delete=backend.can_delete,
            readiness_gate=backend.confirms_readiness,
            require_zone=options.require_zone,
            operation_prefix=options.operation_prefix,
            relist_after=options.relist_after,
        )
        self.core = Lifecycle(rules, snapshot.generation, snapshot)
        metrics.watch_machines(self.core.counts)

    def now(self) -> float:
        return self._epoch + self._loop.time()

    async def start(self) -> None:
        """Load or seed the inventory and pick up, or fail, what an earlier process left open."""
        if self._first_boot:
            self._carry(self.core.seed(await self._describe()))
        if not self._backend.confirms_readiness:
            log.warning("provider has no confirm_node_ready: machines count as ready once configured")
        self._apply(Restarted(self._backend.can_reattach))
        self._apply(Tick())
        self.codec.warm(self.core.machines.values())
        await self.journal.settled()
        await self._backend.started(_Reports(self, self._loop))
        if self.options.reconcile_interval > 0:
            self._reconciler = asyncio.create_task(self._reconcile_for_ever())
        self.ready = True
        log.info("provider ready", machines=len(self.core.machines), first_boot=self._first_boot)

    async def stop(self) -> None:
        """Stop calling the backend and commit what is known; open transitions stay for the next process."""
        self.ready = False
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._reconciler is not None:
            self._reconciler.cancel()
        for job in self._jobs.values():
            job.task.cancel()
        await self.journal.close()

    async def submit(self, request: Request) -> Acknowledge:
        """Answer one request, once everything the answer rests on is durable."""
        answer: asyncio.Future[Acknowledge | Refuse] = self._loop.create_future()
        self._apply(request, answer)
        result = await answer
        if isinstance(result, Refuse):
            raise RefusedError(result)
        return result

    async def settled(self) -> None:
        """Readers wait here before they answer: nobody may see a state that a crash could take back."""
        await self.journal.settled()

    def post(self, event: Event) -> None:
        """Take a report; late ones change nothing."""
        if not self._closing:
            self._apply(event)

    async def reconcile(self) -> None:
        """Ask the backend what there is and publish the differences."""
        as_of = self.core.changes.head
        try:
            described = await self._describe()
        except Exception as error:
            self.metrics.reconciled("error")
            log.warning("describe failed; keeping what is known", error=f"{type(error).__name__}: {error}")
            return
        unique = {instance.id: instance for instance in reversed(described)}
        if len(unique) < len(described):
            log.warning("describe repeats ids; the first of each counts", repeated=len(described) - len(unique))
            described = list(unique.values())
        if self.options.describe_is_complete:
            self.post(survey(described, as_of))
        # In slices, so that a fleet of any size never holds up an acknowledgement.
        for start in range(0, len(described), RECONCILE_SLICE):
            self.post(Described(described[start : start + RECONCILE_SLICE], as_of))
            await asyncio.sleep(0)
        self.metrics.reconciled("ok")

    async def _describe(self) -> list[Instance]:
        """Ask the backend; a call that outlasts its limit is left behind, for a thread cannot be ended."""
        asking = self._loop.create_task(self._backend.describe())
        done, _ = await asyncio.wait({asking}, timeout=self.options.reconcile_timeout)
        if not done:
            asking.cancel()
            raise InstanceError(f"describe gave no answer within {self.options.reconcile_timeout:g} s")
        return asking.result()

    def _apply(self, event: Event, answer: asyncio.Future[Acknowledge | Refuse] | None = None) -> None:
        instructions = self.core.handle(event, self.now())
        if instructions or answer:
            self._carry(instructions, answer)
        self._arm()

    def _carry(
        self, instructions: Sequence[Instruction], answer: asyncio.Future[Acknowledge | Refuse] | None = None
    ) -> None:
        rows: list[Row] = [i for i in instructions if isinstance(i, ROWS)]
        rest = [i for i in instructions if not isinstance(i, ROWS)]
        for row in rows:
            if isinstance(row, SaveRemoval):
                self.codec.forget(row.machine.id)
        self.journal.append(rows, lambda error: self._act(rest, answer, error))

    def _act(
        self,
        instructions: Sequence[Instruction],
        answer: asyncio.Future[Acknowledge | Refuse] | None,
        error: StoreError | None,
    ) -> None:
        if error is not None:
            if answer is not None and not answer.done():
                answer.set_exception(error)
            return
        for instruction in instructions:
            match instruction:
                case StartWork():
                    self._start(instruction.operation_id, self._work(instruction), instruction.bootstrap_blob)
                case ConfirmReady():
                    job = self._jobs.get(instruction.operation_id)
                    blob = job.blob if job else b""
                    self._start(instruction.operation_id, self._confirm(instruction, blob), blob)
                case StopWork():
                    if job := self._jobs.get(instruction.operation_id):
                        job.task.cancel()
                case LateSuccess():
                    log.warning(
                        "work ended after its transition had failed; the host may be running unowned",
                        machine_id=instruction.machine_id,
                        operation_id=instruction.operation_id,
                        host=instruction.host.ref if instruction.host else "",
                    )
                case InstanceSkipped():
                    log.warning("described instance skipped", problem=instruction.problem)
                case Acknowledge() | Refuse():
                    if answer is not None:
                        resolve(answer, instruction, None)

    def _start(self, operation_id: str, work: Coroutine[None, None, None], blob: bytes) -> None:
        if self._closing:
            work.close()
            return
        task = self._loop.create_task(work)
        job = self._jobs[operation_id] = _Job(task, blob)

        def ended(_: asyncio.Task[None]) -> None:
            if self._jobs.get(operation_id) is job:
                del self._jobs[operation_id]

        task.add_done_callback(ended)

    async def _work(self, work: StartWork) -> None:
        machine, operation_id = work.machine, work.operation_id
        started = self._loop.time()
        event: WorkDone | WorkFailed
        try:
            event = await self._call_backend(work)
        except Exception as error:
            retry_after = error.retry_after if isinstance(error, SoldOut) else 0.0
            event = WorkFailed(machine.id, operation_id, redact(_reason(error), work.bootstrap_blob), retry_after)
        outcome = "error" if isinstance(event, WorkFailed) else "ok"
        self.metrics.backend_called(work.kind, outcome, self._loop.time() - started)
        log.info(
            f"{work.kind} {'failed' if outcome == 'error' else 'done'} at the backend",
            machine_id=machine.id,
            operation_id=operation_id,
        )
        self.post(event)

    async def _call_backend(self, work: StartWork) -> WorkDone:
        machine, operation_id = work.machine, work.operation_id
        created = None
        if work.reattach:
            created = await self._backend.reattach(work.kind, machine, operation_id)
        elif work.kind is Kind.CREATE:
            created = await self._backend.create(machine, operation_id)
        elif work.kind is Kind.CONFIGURE:
            await self._backend.configure(machine, machine.cluster, work.bootstrap_blob, operation_id)
        elif work.kind is Kind.DRAIN:
            await self._backend.drain(machine, work.grace_seconds, operation_id)
        else:
            await self._backend.delete(machine, operation_id)
        if created is None:
            return WorkDone(machine.id, operation_id)
        assert isinstance(created.host, Host)
        return WorkDone(machine.id, operation_id, created.host, created.resources, created.allocatable)

    async def _confirm(self, confirm: ConfirmReady, blob: bytes) -> None:
        machine, operation_id = confirm.machine, confirm.operation_id
        try:
            while not await self._backend.node_ready(machine, operation_id):
                await asyncio.sleep(self.options.readiness_poll)
        except Exception as error:
            self.post(WorkFailed(machine.id, operation_id, redact(_reason(error), blob)))
        else:
            self.post(NodeReady(machine.id, operation_id))

    async def _reconcile_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.options.reconcile_interval)
            await self.reconcile()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.core.next_deadline()
        if due is not None and not self._closing:
            self._timer = self._loop.call_later(max(0.0, due - self.now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(Tick())


class _Reports:
    """The author's Handle."""

    def __init__(self, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self._runtime = runtime
        self._loop = loop

    def host_lost(self, machine_id: str, reason: str = "") -> None:
        self._loop.call_soon_threadsafe(self._runtime.post, HostLost(machine_id, reason))

    def interruption_notice(self, machine_id: str, at: float) -> None:
        self._loop.call_soon_threadsafe(self._runtime.post, InterruptionNoticed(machine_id, at))

    def repaired(self, machine_id: str, host: Host | None = None) -> None:
        self._loop.call_soon_threadsafe(self._runtime.post, Repaired(machine_id, host))

    def machine(self, machine_id: str) -> MachineRecord | None:
        return self._runtime.core.get(machine_id)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
