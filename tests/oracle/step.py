"""The oracle: docs/engine.md executed literally over plain objects, with the engine's own call and row types.

Slow on purpose. Its worth is its independence, so it must never look at how the engine does anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from bigfleet.engine.batches import Conditions
from bigfleet.engine.results import Action, ActionKind, Disposition, Reason
from tests.oracle.assign import Assign
from tests.oracle.demand import Demand
from tests.oracle.entries import Entry, entries_of, in_order
from tests.oracle.judging import grace_seconds
from tests.oracle.placement.belief import believed
from tests.oracle.placement.buying import Buying
from tests.oracle.placement.coming import coming_lots, particular_first, place_on_coming
from tests.oracle.placement.consolidate import Consolidation
from tests.oracle.placement.giving_back import Going, going, note_empty, split_moves
from tests.oracle.placement.needs import Need, needs_of
from tests.oracle.placement.reports import forget_reports, receive_reports
from tests.oracle.placement.verdicts import reason_of, unit_verdict
from tests.oracle.placement.worth import Worth
from tests.oracle.preempt import Preempt
from tests.oracle.reclaim import allowed, note_excess, reclaimable, refill, releasable, shares, spend
from tests.oracle.supply import IDLE, Block, Unit, begin_step, blocks_of, classes_with_more, ingest
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
    aborted: list[str] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)


class Oracle:
    """Keeps what a step hands to the next: the machines, the demand, and the instants that ages are measured from."""

    def __init__(self) -> None:
        self.machines: dict[str, Unit] = {}
        self.demand = Demand()
        self.believed: dict[str, bool] = {}

    def step(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        now: int,
        conditions: Conditions | None = None,
        probe: object = None,
    ) -> OracleResult:
        conditions = conditions or Conditions()
        result = OracleResult()
        before = dict(self.machines)
        if machines is not None:
            ingest(self.machines, machines, now, result.rejected)
        if demand is not None:
            result.rollups = self.demand.apply(demand, policy, now, result.rejected)
            forget_reports(self.machines, [*demand.forgotten, *demand.streams])
            for reports in demand.reports:
                receive_reports(self.machines, reports, now, result.rejected)
        all_conditions = conditions
        conditions, result.aborted = split_moves(self.machines, self.demand, policy, conditions, now)
        begin_step(self.machines, conditions.breakers, {move.new for move in conditions.moves}, now)
        units = [unit for _, unit in sorted(self.machines.items(), key=lambda item: item[0].encode())]
        blocks = blocks_of(self.machines, self.demand)
        note_empty(self.machines, self.demand, policy, conditions, now)

        needs = in_order(needs_of(self.demand))
        worth = Worth(units, self.demand, policy.placement, conditions, now)
        self.believed = {
            name: believed(name, units, self.demand, needs, worth)
            for name, cluster in self.demand.clusters.items()
            if cluster.reporting
        }
        result.doubted = sorted((name for name in self.believed if self._doubted(name)), key=str.encode)
        entries = in_order([*entries_of(self.demand, units), *needs])
        more = classes_with_more(self.machines, before, self.demand)
        for entry in entries:
            entry.parked = self._parked(entry, policy, now)
            if isinstance(entry, Need) and entry.parked:
                entry.parked = not any(_could_hold(entry, unit) for unit in more)
        resting = [need for need in needs if need.parked and need.lacks and self._may_preempt(need, policy, now)]
        for need in resting[: policy.placement.gangs_awake]:
            need.parked = False
        for need in needs:
            need.may_acquire = self._may_acquire(need, policy, conditions, now) and not need.parked
            need.able = self._may_preempt(need, policy, now) and not need.parked
        book = coming_lots(units, needs, self.demand, worth, now)
        for need in particular_first(needs):
            place_on_coming(need, book, units)

        buying = Buying(blocks, units, needs, self.demand, worth, book, conditions, now)
        buying.begin()
        assign = Assign(blocks, policy)
        for entry in entries:
            if isinstance(entry, Need):
                buying.serve(entry)
            else:
                assign.serve(entry, self._may_acquire(entry, policy, conditions, now) and not entry.parked)
        buying.place_leftovers()
        buying.drop_superfluous()
        for need in needs:
            for part in need.parts:
                part.missing_after_assign = part.deficit
        if conditions.preempt:
            short = [e for e in entries if not e.done and self._may_preempt(e, policy, now) and not e.parked]
            Preempt(blocks, self.demand, policy.victim, buying, conditions, now).run(short)
        self._update_parking(entries, policy, conditions, now)
        note_excess(self.machines, self.demand, now)
        refill(self.machines, self.demand, policy, now)

        reclaims = self._reclaims(blocks, worth, policy, conditions, now) if conditions.reclaim else {}
        moves, closes = self._consolidate(units, worth, buying, policy, conditions, all_conditions, now)
        releases = releasable(self.machines, policy, now) if conditions.release else []
        victims = {unit.id for entry in entries for unit in entry.victims}
        broken = [move.old[0] for move in conditions.moves if victims & set(move.old)]
        result.aborted = sorted({*result.aborted, *broken}, key=str.encode)
        self._emit(result, entries, reclaims, [*moves, *closes], releases, policy, conditions)
        reasons = {
            need: reason_of(need, units, self.demand, book, policy, conditions, self.believed[need.cluster], now)
            for need in needs
        }
        result.shortfalls = shortfalls_of(entries, reasons, self.demand, policy, now)
        ages = {(s.key.cluster, s.key.fingerprint, s.key.group, s.key.min_unit): s.age for s in result.shortfalls}
        result.verdicts = [
            unit_verdict(e, units, self.demand, ages, policy, reasons[e], now)
            if isinstance(e, Need)
            else verdict_of(e, units, self.demand, ages, policy, conditions, now)
            for e in entries
        ]
        result.available = available_of(entries, units)
        return result

    def _reclaims(
        self, blocks: list[Block], worth: Worth, policy: Policy, conditions: Conditions, now: int
    ) -> dict[str, list[Going]]:
        """Per cluster in text order what goes, why, and whether its operator may refuse."""
        sums = reclaimable(blocks, self.demand, policy, now)
        found: dict[str, list[Going]] = {}
        for name in sorted(self.demand.clusters, key=str.encode):
            if self.demand.clusters[name].reporting:
                found[name] = going(
                    name, self.machines, self.demand, worth, policy, conditions, now, self._doubted(name)
                )
            elif name in sums:
                found[name] = [(unit, Reason.EXCESS, False) for unit in sums[name]]
        return found

    def _consolidate(
        self,
        units: list[Unit],
        worth: Worth,
        buying: Buying,
        policy: Policy,
        conditions: Conditions,
        all_conditions: Conditions,
        now: int,
    ) -> tuple[list[Action], list[Action]]:
        """Moves under way, then per cluster in text order new moves and closes."""
        started, rest = [], []
        for move in sorted(conditions.moves, key=lambda move: move.new.encode()):
            new = self.machines.get(move.new)
            if new is not None and new.state == IDLE and now >= new.not_before and conditions.acquire:
                started.append(_moved(new, move.cluster, move.old))
        work = Consolidation(units, self.demand, worth, buying, policy, conditions)
        for name in sorted(self.demand.clusters, key=str.encode):
            if not self.demand.clusters[name].reporting:
                continue
            outcome = work.run(name, all_conditions, now)
            for old, new in outcome.moves:
                names = tuple(unit.id for unit in old)
                rest.append(_moved(new, name, names) if new is not None else _deleted_by_move(old[0], policy))
            rest += [_close(unit) for unit in outcome.closes]
        return started, rest

    def _doubted(self, name: str) -> bool:
        """Says that it lacks units, and is not believed."""
        cluster = self.demand.clusters[name]
        return not self.believed[name] and any(cluster.stranded(row) for row in cluster.rows.values())

    def _may_preempt(self, entry: Entry | Need, policy: Policy, now: int) -> bool:
        cluster = self.demand.clusters[entry.cluster]
        if isinstance(entry, Need):
            return cluster.fresh(policy, now) and self.believed[entry.cluster]
        return cluster.connected

    def _may_acquire(self, entry: Entry | Need, policy: Policy, conditions: Conditions, now: int) -> bool:
        """Leaving parking aside."""
        return conditions.acquire and self._may_preempt(entry, policy, now)

    def _parked(self, entry: Entry | Need, policy: Policy, now: int) -> bool:
        since = self.demand.parked_since.get(_gang_key(entry)) if entry.gang else None
        if since is None:
            return False
        age = (now - since) // policy.cycle_ns
        return age >= policy.park_after_cycles and age % policy.reprobe_every_cycles != 0

    def _update_parking(self, entries: list[Entry | Need], policy: Policy, conditions: Conditions, now: int) -> None:
        stuck = [
            entry
            for entry in entries
            if entry.gang and self._may_acquire(entry, policy, conditions, now) and not entry.satisfied
            if not entry.bootstraps and not entry.provisions and not entry.satisfiable and not entry.done
            if not isinstance(entry, Need) or not (entry.reopens or entry.taken)
        ]
        before = self.demand.parked_since
        self.demand.parked_since = {_gang_key(entry): before.get(_gang_key(entry), now) for entry in stuck}

    def _emit(
        self,
        result: OracleResult,
        entries: list[Entry | Need],
        reclaims: dict[str, list[Going]],
        consolidation: list[Action],
        releases: list[Unit],
        policy: Policy,
        conditions: Conditions,
    ) -> None:
        if conditions.paused or conditions.dry_run:
            disposition = Disposition.SUPPRESSED if conditions.paused else Disposition.DRYRUN
            first, second, third = _acquisitions(entries, policy, disposition), _preempts(entries, disposition), []
            for units in reclaims.values():
                third += [_reclaim(*unit, policy, disposition) for unit in units]
            third += [structs.replace(action, disposition=disposition) for action in consolidation]
            third += [_delete(unit, disposition) for unit in releases]
            result.actions = [*first, *second, *third]
            return
        emit = Disposition.EMIT
        first, second, third = _acquisitions(entries, policy, emit), _preempts(entries, emit), []
        for name, units in reclaims.items():
            count = allowed(self.demand.clusters[name], policy, len(units))
            result.capped += len(units) - count
            third += [_reclaim(*unit, policy, Disposition.EMIT) for unit in units[:count]]
        third += consolidation
        third += [_delete(unit, Disposition.EMIT) for unit in releases]
        if policy.max_actions_per_step:
            sizes = (len(first), len(second), len(third))
            kept = shares(sizes, policy.max_actions_per_step)
            result.deferred = sum(sizes) - sum(kept)
            first, second, third = first[: kept[0]], second[: kept[1]], third[: kept[2]]
        for name in reclaims:
            capped = {unit.id for unit, *_ in reclaims[name]}
            kept_here = sum(action.kind == ActionKind.RECLAIM and action.machine in capped for action in third)
            spend(self.demand.clusters[name], policy, kept_here)
        result.actions = [*first, *second, *third]


def _gang_key(entry: Entry | Need) -> tuple[str, str, str]:
    return (entry.cluster, entry.profile.fingerprint, entry.group)


def _could_hold(gang: Need, unit: Unit) -> bool:
    """Whether such a machine matches a gang and holds a unit of one of its parts as published."""
    have = dict(unit.shape.allocatable.items())
    return gang.matches(unit) and any(
        all(have.get(name, 0) >= amount for name, amount in part.unit.items()) for part in gang.parts
    )


def _acquisitions(entries: list[Entry | Need], policy: Policy, disposition: Disposition) -> list[Action]:
    actions = []
    for e in entries:
        for unit in e.reopens if isinstance(e, Need) else ():
            actions.append(Action(ActionKind.REOPEN, unit.id, e.cluster, e.key, 0, 0, Reason.REOPEN, disposition))
        for unit in e.taken if isinstance(e, Need) else ():
            grace = policy.reclaim_grace_seconds
            actions.append(
                Action(
                    ActionKind.RECLAIM,
                    unit.id,
                    unit.cluster,
                    e.key,
                    grace,
                    0,
                    Reason.EMPTY,
                    disposition,
                    voluntary=True,
                )
            )
        for unit in e.bootstraps:
            actions.append(Action(ActionKind.BOOTSTRAP, unit.id, e.cluster, e.key, 0, 0, Reason.IDLE, disposition))
        for unit in e.provisions:
            actions.append(
                Action(ActionKind.PROVISION, unit.id, e.cluster, e.key, 0, 0, Reason.SPECULATIVE, disposition)
            )
    return actions


def _preempts(entries: list[Entry | Need], disposition: Disposition) -> list[Action]:
    actions = []
    for entry in entries:
        for unit in entry.victims:
            priority = entry.profile.priority
            grace = grace_seconds(priority - unit.judged)
            actions.append(
                Action(
                    ActionKind.PREEMPT,
                    unit.id,
                    unit.cluster,
                    entry.key,
                    grace,
                    priority,
                    Reason.EMPTY if unit.lies_empty else Reason.INVERSION,
                    disposition,
                    voluntary=unit.lies_empty,
                )
            )
    return actions


def _reclaim(unit: Unit, reason: Reason, voluntary: bool, policy: Policy, disposition: Disposition) -> Action:
    grace = policy.reclaim_grace_seconds
    return Action(ActionKind.RECLAIM, unit.id, unit.cluster, None, grace, 0, reason, disposition, voluntary=voluntary)


def _deleted_by_move(unit: Unit, policy: Policy) -> Action:
    return _reclaim(unit, Reason.MOVE, True, policy, Disposition.EMIT)


def _moved(new: Unit, cluster: str, old: tuple[str, ...]) -> Action:
    kind = ActionKind.BOOTSTRAP if new.state == IDLE else ActionKind.PROVISION
    return Action(kind, new.id, cluster, None, 0, 0, Reason.MOVE, Disposition.EMIT, replaces=old)


def _close(unit: Unit) -> Action:
    return Action(ActionKind.CLOSE, unit.id, unit.cluster, None, 0, 0, Reason.CLOSE, Disposition.EMIT)


def _delete(unit: Unit, disposition: Disposition) -> Action:
    return Action(ActionKind.DELETE, unit.id, "", None, 0, 0, Reason.RELEASE, disposition)
