"""The oracle: docs/engine.md executed literally over plain objects, with the engine's own call and row types.

Slow on purpose. Its worth is its independence, so it must never look at how the engine does anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bigfleet.engine.batches import Conditions
from bigfleet.engine.results import Action, ActionKind, Disposition, Reason
from tests.oracle.assign import Assign
from tests.oracle.demand import Demand
from tests.oracle.entries import Entry, entries_of
from tests.oracle.judging import grace_seconds
from tests.oracle.preempt import Preempt, judged_priority
from tests.oracle.reclaim import allowed, note_excess, reclaimable, refill, releasable, shares, spend
from tests.oracle.supply import Unit, begin_step, blocks_of, ingest
from tests.oracle.verdicts import available_of, shortfalls_of, verdict_of

if TYPE_CHECKING:
    from bigfleet.engine.batches import DemandBatch, MachineBatch
    from bigfleet.engine.policy import Policy
    from bigfleet.engine.results import AvailableCapacity, RollupOutcome, Shortfall, Verdict


@dataclass
class OracleResult:
    actions: list[Action] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    shortfalls: list[Shortfall] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    rollups: dict[str, RollupOutcome] = field(default_factory=dict)
    available: list[AvailableCapacity] = field(default_factory=list)
    deferred: int = 0
    capped: int = 0


class Oracle:
    """Keeps what a step hands to the next: the machines, the demand, and the instants that ages are measured from."""

    def __init__(self) -> None:
        self.machines: dict[str, Unit] = {}
        self.demand = Demand()

    def step(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        now: int,
        conditions: Conditions | None = None,
    ) -> OracleResult:
        conditions = conditions or Conditions()
        result = OracleResult()
        if machines is not None:
            ingest(self.machines, machines, now, result.rejected)
        if demand is not None:
            result.rollups = self.demand.apply(demand, policy, now, result.rejected)
        begin_step(self.machines, conditions.breakers, now)
        units = [unit for _, unit in sorted(self.machines.items())]
        blocks = blocks_of(self.machines, self.demand)
        entries = entries_of(self.demand, units)

        assign = Assign(blocks, policy)
        for entry in entries:
            entry.parked = self._parked(entry, policy, now)
            assign.serve(entry, self._may_acquire(entry, conditions) and not entry.parked)
        if conditions.preempt:
            short = [e for e in entries if not e.done and self._connected(e) and not e.parked]
            Preempt(blocks, self.demand, policy.victim).run(short)
        self._update_parking(entries, conditions, now)
        note_excess(self.machines, self.demand, now)
        refill(self.machines, self.demand, policy, now)

        reclaims = reclaimable(blocks, self.demand, policy, now) if conditions.reclaim else {}
        releases = releasable(self.machines, policy, now) if conditions.release else []
        self._emit(result, entries, reclaims, releases, policy, conditions)
        result.shortfalls = shortfalls_of(entries, self.demand, policy, now)
        ages = {(s.key.cluster, s.key.fingerprint, s.key.group, s.key.min_unit): s.age for s in result.shortfalls}
        result.verdicts = [verdict_of(e, units, self.demand, ages, policy, conditions, now) for e in entries]
        result.available = available_of(entries, units)
        return result

    def _connected(self, entry: Entry) -> bool:
        return self.demand.clusters[entry.cluster].connected

    def _may_acquire(self, entry: Entry, conditions: Conditions) -> bool:
        """Leaving parking aside."""
        return conditions.acquire and self._connected(entry)

    def _parked(self, entry: Entry, policy: Policy, now: int) -> bool:
        since = self.demand.parked_since.get(_gang_key(entry)) if entry.gang else None
        if since is None:
            return False
        age = (now - since) // policy.cycle_ns
        return age >= policy.park_after_cycles and age % policy.reprobe_every_cycles != 0

    def _update_parking(self, entries: list[Entry], conditions: Conditions, now: int) -> None:
        stuck = [
            entry
            for entry in entries
            if entry.gang and self._may_acquire(entry, conditions) and not entry.satisfied
            if not entry.bootstraps and not entry.provisions and not entry.satisfiable and not entry.done
        ]
        before = self.demand.parked_since
        self.demand.parked_since = {_gang_key(entry): before.get(_gang_key(entry), now) for entry in stuck}

    def _emit(
        self,
        result: OracleResult,
        entries: list[Entry],
        reclaims: dict[str, list[Unit]],
        releases: list[Unit],
        policy: Policy,
        conditions: Conditions,
    ) -> None:
        if conditions.paused or conditions.dry_run:
            disposition = Disposition.SUPPRESSED if conditions.paused else Disposition.DRYRUN
            first, second, third = _acquisitions(entries, disposition), _preempts(entries, disposition), []
            for units in reclaims.values():
                third += [_reclaim(unit, policy, disposition) for unit in units]
            third += [_delete(unit, disposition) for unit in releases]
            result.actions = [*first, *second, *third]
            return
        first, second, third = _acquisitions(entries, Disposition.EMIT), _preempts(entries, Disposition.EMIT), []
        for name, units in reclaims.items():
            count = allowed(self.demand.clusters[name], policy, len(units))
            result.capped += len(units) - count
            third += [_reclaim(unit, policy, Disposition.EMIT) for unit in units[:count]]
        third += [_delete(unit, Disposition.EMIT) for unit in releases]
        if policy.max_actions_per_step:
            sizes = (len(first), len(second), len(third))
            kept = shares(sizes, policy.max_actions_per_step)
            result.deferred = sum(sizes) - sum(kept)
            first, second, third = first[: kept[0]], second[: kept[1]], third[: kept[2]]
        for name in reclaims:
            kept_here = sum(action.kind == ActionKind.RECLAIM and action.cluster == name for action in third)
            spend(self.demand.clusters[name], policy, kept_here)
        result.actions = [*first, *second, *third]


def _gang_key(entry: Entry) -> tuple[str, str, str]:
    return (entry.cluster, entry.profile.fingerprint, entry.group)


def _acquisitions(entries: list[Entry], disposition: Disposition) -> list[Action]:
    actions = []
    for e in entries:
        for unit in e.bootstraps:
            actions.append(Action(ActionKind.BOOTSTRAP, unit.id, e.cluster, e.key, 0, 0, Reason.IDLE, disposition))
        for unit in e.provisions:
            actions.append(
                Action(ActionKind.PROVISION, unit.id, e.cluster, e.key, 0, 0, Reason.SPECULATIVE, disposition)
            )
    return actions


def _preempts(entries: list[Entry], disposition: Disposition) -> list[Action]:
    actions = []
    for entry in entries:
        for unit in entry.victims:
            priority = entry.profile.priority
            grace = grace_seconds(priority - judged_priority(unit))
            actions.append(
                Action(
                    ActionKind.PREEMPT,
                    unit.id,
                    unit.cluster,
                    entry.key,
                    grace,
                    priority,
                    Reason.INVERSION,
                    disposition,
                )
            )
    return actions


def _reclaim(unit: Unit, policy: Policy, disposition: Disposition) -> Action:
    grace = policy.reclaim_grace_seconds
    return Action(ActionKind.RECLAIM, unit.id, unit.cluster, None, grace, 0, Reason.EXCESS, disposition)


def _delete(unit: Unit, disposition: Disposition) -> Action:
    return Action(ActionKind.DELETE, unit.id, "", None, 0, 0, Reason.RELEASE, disposition)
