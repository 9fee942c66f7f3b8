"""The provider's word: merges what List and Get say into the fleet, and decides what to make of absences.

A sighting older than the machine's last answered call is ignored; what is skipped, refused or missing is looked at
again with Get, so the cursor may move on. A machine is gone when Get does not find it. A List alone takes nothing
away: what it loses is suspected (`suspicions`), and one that loses a large share of a provider's machines at once is
not even asked about before a second one says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter

from msgspec import structs

from bigfleet.engine.batches import Shape, Stamp
from bigfleet.engine.policy import SECOND
from bigfleet.model.machine import BOUND, CALL_DURING
from bigfleet.shard.contract.events import ListArrived, ListedMachine, ListFailed, MachineRead, ReadFailed, StartList
from bigfleet.shard.contract.outcomes import Level, Outcome
from bigfleet.shard.core.actions.executor import REJECTED, Executor
from bigfleet.shard.core.actions.notices import Notices
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.coordination.ownership import Ownership
from bigfleet.shard.core.machines.departures import WATCH
from bigfleet.shard.core.machines.intake import flaw_of
from bigfleet.shard.core.machines.last_errors import error_seen, said
from bigfleet.shard.core.machines.lifecycle import Lifecycle
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.machines.stamps import stamp_from
from bigfleet.shard.core.machines.suspicions import Suspicion, Suspicions, contradicts
from bigfleet.shard.core.state.enum_aliases import CALLING, CREATING, DRAINING, FAILED, SPECULATIVE
from bigfleet.shard.core.state.fleet import NO_STAMP, Record
from bigfleet.shard.core.state.operations import INTERRUPTION
from bigfleet.shard.core.state.state import ShardState

TIMER = "list"

_ID = attrgetter("id")
_REREAD_AFTER = SECOND
_ABSENT_READS = 1000


@dataclass(slots=True)
class ProviderView:
    """What the shard knows about a provider as such."""

    name: str
    listed: bool = False
    listing: bool = False
    full: bool = True
    revision: bytes = b""
    full_due: int = 0
    began: int = 0
    # Beginning of the last full List that was merged completely: what was seen before it is outdated.
    horizon: int = 0
    failures: int = 0
    error: str = ""
    last_complete: int = 0
    # A large loss that waits for the next full List; the machines it lost.
    doubted: frozenset[str] | None = None
    # A second List said the same; what Get says decides.
    confirming: bool = False
    seen: set[str] = field(default_factory=set)


class Reconcile:
    """Sightings of machines, provider by provider."""

    def __init__(
        self,
        state: ShardState,
        lifecycle: Lifecycle,
        ownership: Ownership,
        executor: Executor,
        rereads: Rereads,
        placement: Placement,
        resume: Callable[[Record], None],
    ) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._ownership = ownership
        self._executor = executor
        self._rereads = rereads
        self._resume = resume
        self.providers = {name: ProviderView(name) for name in state.config.providers}
        self._missed = executor.departures.missed
        self._visibility = executor.visibility
        self._notices = Notices(state, executor, rereads, placement)
        self._suspicions = Suspicions(state, rereads, self._lost)

    # ------------------------------------------------------------------------------------------------------- conditions

    @property
    def all_listed(self) -> bool:
        """Every provider that counts has been listed completely once."""
        ignored = self._state.config.ignore_provider
        return all(view.listed or view.name in ignored for view in self.providers.values())

    @property
    def doubting(self) -> bool:
        """A large loss waits to be confirmed."""
        asking = self._suspicions.asking
        return any(
            view.doubted is not None or (view.confirming and asking(view.name)) for view in self.providers.values()
        )

    @property
    def settled(self) -> bool:
        """What is known of the fleet may be acted on."""
        return self.all_listed and not self.doubting

    # ------------------------------------------------------------------------------------------------------------ lists

    def start(self) -> None:
        for view in self.providers.values():
            self.begin(view.name)

    def begin(self, provider: str) -> None:
        """Begin a List; when one is still running it will go on by itself."""
        view = self.providers[provider]
        if view.listing:
            return
        config, now = self._state.config, self._state.now
        view.full = not config.incremental_reconcile or not view.revision or now >= view.full_due
        view.full = view.full or view.doubted is not None
        view.listing = True
        self._suspicions.begins(provider)
        view.began = 0
        view.seen = set()
        if view.full:
            view.full_due = now + config.full_list_interval
        self._state.turn.emit(StartList(provider, view.full, b"" if view.full else view.revision))

    def look(self) -> None:
        """Others want to know of machines that changed their place: list now."""
        for view in self.providers.values():
            self.begin(view.name)

    def arrived(self, event: ListArrived) -> None:
        view = self.providers.get(event.provider)
        if view is None:
            return
        view.began = min(view.began or event.began, event.began)
        track = event.full and event.absent is None
        # A List has no order of its own: where what follows is limited (frames, calls), the same machines come first.
        for listed in sorted(event.machines, key=_ID):
            self.sighting(event.provider, listed, event.began)
            if track:
                view.seen.add(listed.id)
        for id in event.removed:
            record = self._state.fleet.find(event.provider, id)
            if record is not None and not self._too_old(record, event.began):
                self._rereads.ask(event.provider, id, self._state.now)
        for id in event.undecodable:
            view.seen.add(id)
            self._rereads.ask(event.provider, id, self._state.now + _REREAD_AFTER)
        if event.complete:
            self._complete(view, event)

    def failed(self, event: ListFailed) -> None:
        view = self.providers.get(event.provider)
        if view is None:
            return
        view.listing = False
        view.failures += 1
        view.error = event.error
        # A cursor the provider no longer likes must not keep us out for ever.
        view.revision = b"" if not view.full else view.revision
        self._state.turn.log(Level.WARNING, "reconcile failed", provider=event.provider, err=event.error)
        self._next_list(view, min(self._state.config.reconcile_interval, SECOND << min(view.failures - 1, 10)))

    def _complete(self, view: ProviderView, event: ListArrived) -> None:
        config, now = self._state.config, self._state.now
        view.listing = False
        view.failures, view.error = 0, ""
        view.last_complete = now
        view.revision = event.revision
        wait = config.reconcile_interval
        if event.full:
            absent = self._absent(view, event)
            if self._believable(view, absent):
                self._miss(absent, view.doubted or frozenset(), view.began)
                view.confirming, view.doubted = view.doubted is not None, None
            else:
                view.doubted = frozenset(record.key for record in absent)
                self._state.turn.log(
                    Level.WARNING,
                    "a List lost more machines than is believable; waiting for the next one to confirm it",
                    provider=view.name,
                    lost=len(absent),
                    known=self._state.fleet.by_provider[view.name],
                )
                wait = config.loss_confirm_interval
            if not view.listed:
                view.listed = True
                self._state.ask_for_cycle()
            view.horizon = max(view.horizon, view.began)
            self._forget_old_answers(view.name, view.horizon)
        view.seen = set()
        self._suspicions.complete(view.name)
        self._suspicions.judge(view.name)
        self._ownership.listed(view.name, view.began)
        self._state.fleet.compact()
        self._next_list(view, 0 if self._ownership.sightings.wanted(view.name) else wait)

    def _next_list(self, view: ProviderView, wait: int) -> None:
        self._state.timers.arm(TIMER, view.name, self._state.now + wait)

    def _absent(self, view: ProviderView, event: ListArrived) -> list[Record]:
        fleet = self._state.fleet
        if event.absent is not None:
            found: Iterable[Record | None] = (fleet.find(view.name, id) for id in event.absent)
            absent = [record for record in found if record is not None]
        else:
            absent = [record for record in fleet.all() if record.provider == view.name and record.id not in view.seen]
            gone = {record.key for record in absent}
            for key in [key for key in self._missed if key not in gone and self._is_of(key, view.name)]:
                del self._missed[key]
        hidden = self._visibility.hidden
        return [record for record in absent if not self._too_old(record, view.began) and not hidden(record.key)]

    def _believable(self, view: ProviderView, absent: list[Record]) -> bool:
        doubted = view.doubted or frozenset()
        new = sum(1 for record in absent if record.key not in self._missed and record.key not in doubted)
        return new <= self._state.config.loss_fraction * self._state.fleet.by_provider[view.name]

    def _miss(self, absent: list[Record], doubted: frozenset[str], began: int) -> None:
        reads = _ABSENT_READS
        for record in absent:
            missed = self._missed.get(record.key, 0) + 1
            self._missed[record.key] = missed
            if missed >= 2 or record.key in doubted:
                self._suspicions.note(record, None, began)
            elif reads:
                reads -= 1
                self._rereads.ask(record.provider, record.id, self._state.now)

    # -------------------------------------------------------------------------------------------------------- sightings

    def read(self, event: MachineRead) -> None:
        self._rereads.answered(event.provider, event.machine)
        if event.provider not in self.providers:
            return
        if event.record is not None:
            self.sighting(event.provider, event.record, event.began, again=True)
            self._ownership.seen_all()
        else:
            self._not_found(event)
        self._judge(event.provider)

    def _not_found(self, event: MachineRead) -> None:
        record = self._state.fleet.find(event.provider, event.machine)
        if record is None:
            return
        if self._too_old(record, event.began):
            self._rereads.ask(event.provider, event.machine, self._state.now + _REREAD_AFTER)
        elif self._visibility.hidden(record.key):
            self._unclear(record)
        else:
            self._suspicions.got(record, there=False)
            self.gone(record, "the provider does not know it")

    def read_failed(self, event: ReadFailed) -> None:
        self._rereads.answered(event.provider, event.machine)
        record = self._state.fleet.find(event.provider, event.machine)
        if record is not None:
            self._unclear(record)
            self._judge(event.provider)

    def _unclear(self, record: Record) -> None:
        """What was said of the machine tells nothing: ask again later."""
        self._suspicions.unanswered(record)
        self._rereads.ask(record.provider, record.id, self._state.now + self._state.config.reconcile_interval)

    def sighting(self, provider: str, listed: ListedMachine, began: int, *, again: bool = False) -> None:
        """One record of a provider; `again` when a Get was asked for it already."""
        if listed.shape.provider != provider:
            listed = structs.replace(listed, shape=replace(listed.shape, provider=provider))
        record = self._state.fleet.find(provider, listed.id)
        if record is not None:
            self._ownership.stands(record, listed.shape, believed=False)
        flaw = flaw_of(listed, None if record is None else record.shape)
        if flaw is not None:
            self._state.turn.count(REJECTED, flaw.reason)
            self._state.turn.log(
                Level.WARNING,
                "provider machine rejected at ingest; the last good record stays",
                machine=listed.id,
                state=int(listed.state),
                err=flaw.detail,
            )
            if listed.id and not again:
                self._rereads.ask(provider, listed.id, self._state.now + self._state.config.reconcile_interval)
            elif record is not None:
                self._suspicions.unanswered(record)
            return
        if record is None:
            if began >= self.providers[provider].horizon:
                self._appear(provider, listed)
            return
        if not again:
            self._missed.pop(record.key, None)
        operation = self._state.operations.on(record.key)
        old = self._too_old(record, began)
        if operation is not None and operation.stage == CALLING:
            if old or not again or not self._executor.overtaken(operation, listed, began):
                operation.polls += 1
                wait = min(_REREAD_AFTER << min(operation.polls - 1, 10), self._state.config.reconcile_interval)
                self._rereads.ask(provider, listed.id, self._state.now + wait)
                return
        elif old:
            self._rereads.ask(provider, listed.id, self._state.now + _REREAD_AFTER)
            return
        taken = contradicts(record, operation, listed)
        if taken and listed.state == SPECULATIVE and self._visibility.hidden(record.key):
            # The slot as it was before the purchase: not visible yet.
            self._unclear(record)
            return
        if again:
            self._suspicions.got(record, there=not taken)
        elif taken:
            self._suspicions.note(record, listed, began)
            return
        else:
            self._suspicions.cleared(record)
        self._believe(record, listed)

    def _believe(self, record: Record, listed: ListedMachine) -> None:
        operation = self._state.operations.on(record.key)
        self._visibility.ends(record.key)
        if operation is None or not self._executor.sighted(operation, listed):
            self._adopt(record, listed)
        self._ownership.stands(record, listed.shape, believed=True)
        self._note_notice(record, listed)

    def _note_notice(self, record: Record, listed: ListedMachine) -> None:
        operation = self._state.operations.on(record.key)
        if listed.interruption_at or (operation is not None and operation.reason == INTERRUPTION):
            self._notices.heard(record, listed.interruption_at)

    def _judge(self, provider: str) -> None:
        if not self.providers[provider].listing:
            self._suspicions.judge(provider)

    def _lost(self, suspicion: Suspicion) -> None:
        """A List is believed about a machine that was not asked for."""
        record, said = suspicion.record, suspicion.said
        if self._state.fleet.machines.get(record.key) is not record:
            return
        operation = self._state.operations.on(record.key)
        calling = operation is not None and operation.stage == CALLING
        if calling or suspicion.began < self._state.answered.get(record.key, 0):
            self._rereads.ask(record.provider, record.id, self._state.now + _REREAD_AFTER)
        elif said is None:
            self.gone(record, "two Lists did not name it, and Get does not find others of them")
        else:
            self._believe(record, said)

    def gone(self, record: Record, why: str) -> None:
        operation = self._state.operations.on(record.key)
        if operation is not None:
            if operation.stage == CALLING:
                # The call will tell; whatever it says is newer than this.
                self._rereads.ask(record.provider, record.id, self._state.now + _REREAD_AFTER)
                return
            self._executor.lost(operation, Outcome.STALE, why)
        self._executor.departures.gone(record, why)

    def overdue(self, machine: str) -> None:
        """A transition nobody here began did not end in time."""
        record = self._state.fleet.machines.get(machine)
        if record is None or record.state not in CALL_DURING or self._state.operations.on(machine) is not None:
            return
        text = f"{record.state.label} for too long"
        self._executor.failures.note(machine, record.state, self._state.now, stuck=False)
        self._lifecycle.move(record, FAILED, text, error=text)
        self._rereads.ask(record.provider, record.id, self._state.now)

    def expect(self, id: str, shape: Shape) -> Record | None:
        """A machine the provider does not show, but an earlier process of this shard bought."""
        self._appear(shape.provider, ListedMachine(id, SPECULATIVE, shape))
        return self._state.fleet.find(shape.provider, id)

    def _appear(self, provider: str, listed: ListedMachine) -> None:
        fleet = self._state.fleet
        key = fleet.key_for(provider, listed.id)
        if key in fleet.machines:
            self._state.turn.count(REJECTED, "structural")
            self._state.turn.log(Level.WARNING, "provider machine rejected at ingest; its name is taken", machine=key)
            return
        failed = listed.state == FAILED
        bound = failed or listed.state in BOUND
        owned, home = self._ownership.admit(provider, listed.id, listed.shape)
        record = fleet.add(
            key,
            listed.id,
            listed.state,
            listed.shape,
            owned=owned,
            cluster=listed.cluster if bound else "",
            stamp=self._stamp(key, NO_STAMP, listed) if bound else NO_STAMP,
            host=listed.host,
            error=error_seen(None, listed) if failed else "",
        )
        record.said = said(listed) if failed else 0
        record.home = home
        if self._state.machine_rests.resting(key, self._state.now):
            # It was here before, and what it rested for did not change with its absence.
            self._state.rest_machine(record, self._state.machine_rests.until(key))
        self._lifecycle.appeared(record)
        self._resume(record)
        self._watch(record)
        self._note_notice(record, listed)

    def _adopt(self, record: Record, listed: ListedMachine) -> None:
        """Nothing of ours is under way: what the provider says is so."""
        key = record.key
        failures = self._executor.failures
        if key in failures:
            if listed.state != FAILED:
                if not failures.recovers(key, listed.state, self._state.now):
                    self._lifecycle.refresh(record, listed.shape, listed.host)
                    self._rereads.ask(record.provider, record.id, failures.look_again_at(key, self._state.now))
                    return
                self._state.turn.log(Level.INFO, "machine recovered", machine=key, state=listed.state.label)
            failures.forget(key)
        self._lifecycle.refresh(record, listed.shape, listed.host)
        bound = listed.state in BOUND or listed.state == FAILED
        cluster = listed.cluster if bound else ""
        error = error_seen(record, listed) if listed.state == FAILED else ""
        known = record.stamp if record.cluster == listed.cluster else NO_STAMP
        stamp = self._stamp(key, known, listed) if bound else NO_STAMP
        if listed.state == CREATING:
            # Whom it was bought for is not something the provider knows.
            cluster, stamp = record.cluster, record.stamp
        if (record.state, record.cluster, record.error) == (listed.state, cluster, error) and stamp == record.stamp:
            return
        self._lifecycle.move(
            record, listed.state, "seen at the provider", cluster=cluster, stamp=stamp, error=error, seen=True
        )
        record.said = said(listed) if listed.state == FAILED else 0
        self._watch(record)

    def _watch(self, record: Record) -> None:
        """A transition that no operation of ours drives must end too."""
        if record.state not in CALL_DURING or self._state.operations.on(record.key) is not None:
            self._state.timers.cancel(WATCH, record.key)
            return
        config = self._state.config
        grace = config.reclaim_grace if record.state == DRAINING else 0
        allowed = config.transition_timeout(CALL_DURING[record.state]) + grace
        self._state.timers.arm(WATCH, record.key, self._state.now + allowed)

    def _stamp(self, machine: str, known: Stamp, listed: ListedMachine) -> Stamp:
        stamp, problems = stamp_from(listed.metadata, known)
        for problem in problems:
            self._state.turn.log(
                Level.WARNING,
                "shard_metadata decode failed at ingest; the key is skipped",
                machine=machine,
                err=problem,
            )
        return stamp

    def _too_old(self, record: Record, began: int) -> bool:
        """Older than an answer about this machine, or than a whole List merged since."""
        return began < max(self._state.answered.get(record.key, 0), self.providers[record.shape.provider].horizon)

    def _forget_old_answers(self, provider: str, began: int) -> None:
        """The horizon says it all about these."""
        for key in [key for key, at in self._state.answered.items() if at < began and self._is_of(key, provider)]:
            del self._state.answered[key]

    def _is_of(self, key: str, provider: str) -> bool:
        record = self._state.fleet.machines.get(key)
        return record is None or record.provider == provider
