"""From the engine's actions to operations: what the rails suppressed is told, what no longer applies is dropped.

A step is decided on facts that may be a moment old, so every action is checked against the machine as it is now. Demand
that returns while its cluster still evicts pods from a machine takes that drain back instead of acquiring another one;
a purchase that nobody remembers is taken over instead of making another.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bigfleet.engine.results import Action, ActionKind, Disposition, NeedKey, Reason, UnitParts
from bigfleet.model.machine import PASSAGES
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.events import Audit
from bigfleet.shard.contract.outcomes import Level, Outcome
from bigfleet.shard.contract.step_result import Verdicts, unmet_of
from bigfleet.shard.core.actions.consolidation import Consolidation
from bigfleet.shard.core.actions.empty_first import Twins
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.actions.runners_up import RunnersUp
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.machines.foundlings import Foundlings
from bigfleet.shard.core.machines.matching import attribute, parse_canonical, serves
from bigfleet.shard.core.state.backoff import kind_of
from bigfleet.shard.core.state.enum_aliases import CONFIGURED, EMIT, PROVISION
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import FIRST_CALL, INTERRUPTION, Operation
from bigfleet.shard.core.state.state import ShardState

OUTCOMES = "bigfleet_shard_action_execute_outcomes_total"
KEPT_ACTIONS = 1000
_KINDS = {kind: kind.name.capitalize() for kind in ActionKind}
_REASONS = {reason: reason.value for reason in Reason}
ACQUISITIONS = frozenset({ActionKind.BOOTSTRAP, ActionKind.PROVISION})
# Done by the cluster alone; no provider hears of it.
CLOSINGS = frozenset({ActionKind.CLOSE, ActionKind.REOPEN})


class ActionTaken(Struct, frozen=True):
    """One line of the list of last actions: what was decided and, once known, how it ended."""

    at: int
    cycle: int
    kind: str
    machine: str
    cluster: str
    fingerprint: str
    group: str
    reason: str
    grace_seconds: int
    preemptor_priority: int
    outcome: Outcome
    detail: str = ""
    # When it was decided (`at` is when it ended), and its place among all that ended.
    decided: int = 0
    number: int = 0
    # What it was preferred to, by name where that is known.
    beat: str = ""


# What is told of a reason where no runner-up has a name.
_BEATEN: dict[str, str] = {
    Reason.IDLE: "buying another machine: this one was free",
    Reason.SPECULATIVE: "waiting: no free machine fits",
    Reason.REOPEN: "buying another machine: its node was only closing",
    Reason.EMPTY: "buying another machine: this one stood empty",
    Reason.EXCESS: "keeping it: nothing uses it",
    Reason.RELEASE: "keeping it idle: nobody asked for it in time",
    Reason.NEVER_READY: "waiting longer: its node did not become ready in time",
    INTERRUPTION: "losing its pods without warning: the provider takes the host",
}


def beaten(taken: ActionTaken) -> str:
    """What a decision was preferred to."""
    if taken.beat:
        return taken.beat
    if taken.preemptor_priority:
        return f"priority below {taken.preemptor_priority}"
    if taken.detail and taken.outcome == Outcome.SUCCESS:
        # A move's: what it saves.
        return taken.detail
    return _BEATEN.get(taken.reason, "leaving it where it is")


class Emission:
    """Begins operations for actions, and keeps the last ones that ended."""

    def __init__(
        self, state: ShardState, demand: Demand, twins: Twins, placement: Placement, consolidation: Consolidation
    ) -> None:
        self._state = state
        self._demand = demand
        self._twins = twins
        self._placement = placement
        self._consolidation = consolidation
        self.foundlings = Foundlings(state)
        self._runners_up = RunnersUp(state, demand, placement)
        self.last: deque[ActionTaken] = deque(maxlen=KEPT_ACTIONS)
        self._ended = 0
        # Needs whose machines, in the last step, were of a provider that nothing is asked of → provider → how many.
        self.barred: dict[NeedKey, Counter[str]] = {}

    def carry_out(self, executor: Executor, actions: Sequence[Action], cycle: int) -> None:
        """Begin what still applies; tell what the rails kept back."""
        counts: dict[tuple[Disposition, ActionKind], int] = {}
        deduped = 0
        drains = self._cancellable(executor)
        instead = self._twins.of(actions)
        self._runners_up.begin(executor.refusals.standoffs.reasons)
        self.barred = {}
        for action in actions:
            told = (action.disposition, action.kind)
            counts[told] = counts.get(told, 0) + 1
            if action.disposition != EMIT or self._consolidation.only_told(action):
                self._told_only(action, cycle)
            elif not self._begin(
                executor,
                action,
                instead.get(action.machine, action.machine),
                cycle,
                drains.get(action.cluster, []),
            ):
                deduped += 1
        self._count(counts, deduped)

    def take_back_drains(self, executor: Executor, verdicts: Verdicts) -> None:
        """Unmet plain needs get machines back that their own cluster is still giving up."""
        drains = self._cancellable(executor)
        if not drains:
            return
        for verdict in unmet_of(verdicts, drains.keys()):
            mine = drains.get(verdict.key.cluster)
            if not mine:
                continue
            profile = self._demand.profile(verdict.key.cluster, verdict.key.fingerprint)
            if profile is None or profile.same is not None or profile.strict_spread is not None:
                continue
            deficit, unit = verdict.deficit, parse_canonical(verdict.key.min_unit)
            overhead = self._demand.overhead(verdict.key.cluster)
            if verdict.units is not None:
                self._take_back_for_units(executor, verdict.units, profile, unit, overhead, mine)
                continue
            for operation in list(mine):
                if deficit.is_zero:
                    break
                if serves(operation.machine, profile, unit, overhead):
                    mine.remove(operation)
                    deficit = deficit.minus(operation.machine.shape.allocatable.minus(overhead))
                    executor.cancel_drain(operation)

    def _take_back_for_units(
        self,
        executor: Executor,
        units: UnitParts,
        profile: Profile,
        unit: Resources,
        overhead: Resources,
        drains: list[Operation],
    ) -> None:
        """Units that wait for a drain of their own cluster wait for nothing: its machines still have their nodes.

        Units for which the engine found nothing, draining machines included, would gain nothing by one either: a node
        that is given up beside them is one they do not fit on, or one of a cluster that is not believed.
        """
        wanted = units.awaiting
        for operation in list(drains):
            if wanted <= 0:
                break
            record = operation.machine
            report = self._placement.reports.on(record.key)
            if report is None or not serves(record, profile, unit, overhead):
                continue
            left = record.shape.allocatable.minus(overhead).minus(Resources(dict(report.used)))
            fits = min((left.get(name) // amount for name, amount in unit.items()), default=0)
            if fits > 0:
                drains.remove(operation)
                wanted -= fits
                executor.cancel_drain(operation)

    def ended(self, operation: Operation, outcome: Outcome, detail: str) -> None:
        """An operation is over: count it, audit it, remember it."""
        kind = _KINDS[operation.kind]
        key = operation.machine.key
        self._state.turn.count(OUTCOMES, kind, outcome)
        if outcome not in (Outcome.SUCCESS, Outcome.CANCELLED):
            self._state.turn.log(
                Level.WARNING,
                "action failed",
                kind=kind,
                machine=key,
                cluster=operation.cluster,
                outcome=outcome,
                err=detail,
            )
        self._audit(
            ActionTaken(
                self._state.now,
                operation.cycle,
                kind,
                key,
                operation.cluster,
                operation.fingerprint,
                operation.group,
                operation.reason,
                operation.grace_seconds,
                operation.preemptor_priority,
                outcome,
                detail or operation.note,
                operation.decided or operation.began,
                beat=operation.beat,
            )
        )
        self._consolidation.ended(operation, outcome)
        self._state.stories.tell(key, self._state.now, f"{kind} ended: {outcome}{f' ({detail})' if detail else ''}")

    def _begin(self, executor: Executor, action: Action, machine: str, cycle: int, drains: list[Operation]) -> bool:
        """Begin the action on `machine`, which may be another than the engine named; False when it does not apply."""
        record = self._state.fleet.machines.get(machine)
        if record is None:
            self._refuse(action, cycle, Outcome.UNKNOWN_MACHINE)
            return True
        if action.kind in CLOSINGS:
            closed = self._consolidation.turn(action, record)
            if closed is not None:
                self._refuse(action, cycle, closed, detail=f"costs ${record.shape.price:.3f}/h")
            return closed is not None
        if not self._applies(executor, record, action):
            return False
        profile = found = None
        need = action.need
        if action.kind in ACQUISITIONS:
            if need is None:
                profile = self._consolidation.profile_of(action) if action.replaces else None
            else:
                profile = self._demand.profile(action.cluster, need.fingerprint)
            if profile is None:
                self._refuse(action, cycle, Outcome.UNKNOWN_PROFILE)
                return True
            if drains and need is not None and self._reuse_draining(executor, action, record, profile, drains):
                return True
            found = self._foundling(action, record, profile) if action.kind == PROVISION else None
            if need is not None and self._placement.reports_placement(action.cluster):
                self._placement.backoffs.watch(found or record, need)
                self._placement.steady.bought(action.cluster)
        elif action.reason == Reason.NEVER_READY:
            self._placement.backoffs.never_ready(action.cluster, record)
        if machine != action.machine:
            self._state.stories.tell(machine, self._state.now, f"its node is empty: goes instead of {action.machine}")
        begin, target = (executor.begin, record) if found is None else (executor.adopt, found)
        begin(
            Operation(
                machine=target,
                kind=action.kind,
                call=FIRST_CALL[action.kind],
                cluster=action.cluster,
                fingerprint=need.fingerprint if need is not None else "" if profile is None else profile.fingerprint,
                group=need.group if need is not None else "",
                min_unit=need.min_unit if need is not None else self._consolidation.load_of(action),
                offered=target.shape if action.kind == PROVISION else None,
                profile=profile,
                grace_seconds=action.grace_seconds,
                preemptor_priority=action.preemptor_priority,
                reason=_REASONS[action.reason],
                cycle=cycle,
                voluntary=action.voluntary,
                note=self._consolidation.begun(action, record),
                beat=self._runners_up.of(action, record, profile),
                decided=self._state.now,
            )
        )
        return True

    def _applies(self, executor: Executor, record: Record, action: Action) -> bool:
        state, key = self._state, record.key
        if state.operations.on(key) is not None or not record.owned or state.halted:
            return False
        if record.state != PASSAGES[FIRST_CALL[action.kind]].before or state.resting(key):
            return False
        if executor.refusals.standoffs.stopped(record.provider):
            if action.need is not None and action.kind in ACQUISITIONS:
                self.barred.setdefault(action.need, Counter())[record.provider] += 1
            return False
        if record.state == CONFIGURED and record.cluster != action.cluster:
            return False
        if action.kind in ACQUISITIONS:
            if action.need is not None and state.need_rests.resting(
                (action.cluster, action.need.fingerprint), state.now
            ):
                return False
            if not self._demand.may_acquire(action.cluster):
                return False
        bought = action.kind == PROVISION
        return not (bought and state.breakers.resting(kind_of(record.shape), state.now))

    def _reuse_draining(
        self, executor: Executor, action: Action, target: Record, profile: Profile, drains: list[Operation]
    ) -> bool:
        """Instead of acquiring `target`, keep an equal machine that the cluster is still giving up."""
        for operation in drains:
            if self._reusable(operation) and self._as_good(operation.machine, target, action, profile):
                drains.remove(operation)
                executor.cancel_drain(operation)
                return True
        return False

    def _foundling(self, action: Action, target: Record, profile: Profile) -> Record | None:
        """A purchase under way that nobody remembers, instead of buying `target`."""
        if action.need is None:
            return None
        return self.foundlings.first(lambda record: self._as_good(record, target, action, profile))

    def _as_good(self, candidate: Record, target: Record, action: Action, profile: Profile) -> bool:
        """Whether a machine serves the need of an action no less than the one the engine chose."""
        assert action.need is not None
        for key in (profile.same and profile.same.key, profile.strict_spread and profile.strict_spread.topology_key):
            if key and _value(candidate, key) != _value(target, key):
                return False
        unit = parse_canonical(action.need.min_unit)
        covers = candidate.shape.allocatable.covers(target.shape.allocatable)
        return covers and serves(candidate, profile, unit, self._demand.overhead(action.cluster))

    def _reusable(self, operation: Operation) -> bool:
        """Whether all of a machine that is being drained would be there for others."""
        if not self._placement.reports_placement(operation.cluster):
            return True
        report = self._placement.reports.on(operation.machine.key)
        return report is not None and report.empty

    def _cancellable(self, executor: Executor) -> dict[str, list[Operation]]:
        found: dict[str, list[Operation]] = {}
        for operation in self._state.operations:
            if executor.drains.cancellable(operation):
                found.setdefault(operation.cluster, []).append(operation)
        return found

    def _told_only(self, action: Action, cycle: int) -> None:
        dry = action.disposition == Disposition.DRYRUN or self._consolidation.only_told(action)
        if dry:
            self._state.turn.log(
                Level.INFO,
                "dry-run: would execute action",
                kind=_KINDS[action.kind],
                machine=action.machine,
                cluster=action.cluster,
                reason=_REASONS[action.reason],
                grace=action.grace_seconds,
            )
        self._refuse(action, cycle, Outcome.DRY_RUN if dry else Outcome.SUPPRESSED, counted=False)

    def _refuse(self, action: Action, cycle: int, outcome: Outcome, *, counted: bool = True, detail: str = "") -> None:
        if counted:
            self._state.turn.count(OUTCOMES, _KINDS[action.kind], outcome)
        self._audit(
            ActionTaken(
                self._state.now,
                cycle,
                _KINDS[action.kind],
                action.machine,
                action.cluster,
                action.need.fingerprint if action.need is not None else "",
                action.need.group if action.need is not None else "",
                _REASONS[action.reason],
                action.grace_seconds,
                action.preemptor_priority,
                outcome,
                detail,
            )
        )

    def _audit(self, taken: ActionTaken) -> None:
        self._ended += 1
        taken = replace(taken, number=self._ended, decided=taken.decided or taken.at)
        self.last.append(taken)
        self._state.turn.emit(
            Audit(
                taken.cycle,
                taken.kind,
                taken.machine,
                taken.cluster,
                taken.reason,
                taken.grace_seconds,
                taken.outcome,
                taken.detail or f"beat {beaten(taken)}",
            )
        )

    def _count(self, counts: dict[tuple[Disposition, ActionKind], int], deduped: int) -> None:
        if not counts:
            return
        turn = self._state.turn
        names = {
            EMIT: "bigfleet_shard_actions_total",
            Disposition.SUPPRESSED: "bigfleet_shard_actions_suppressed_total",
            Disposition.DRYRUN: "bigfleet_shard_actions_dryrun_total",
        }
        for (disposition, kind), amount in sorted(counts.items()):
            turn.count(names[disposition], _KINDS[kind], amount=amount)
        if deduped:
            turn.count("bigfleet_shard_actions_deduped_total", amount=deduped)
        acquired = sum(n for (d, kind), n in counts.items() if d == EMIT and kind in ACQUISITIONS)
        if acquired:
            turn.count("bigfleet_shard_phase1_occ_proposals_total", "committed", amount=acquired)
        suppressed = sum(n for (d, _), n in counts.items() if d == Disposition.SUPPRESSED)
        if suppressed:
            turn.log(Level.WARNING, "actuation paused: decided actions were not executed", suppressed=suppressed)


def _value(record: Record, key: str) -> str | None:
    return attribute(record.key, record.shape, key)
