"""Preempt: what is already draining answers first, then victims of strictly lower priority are chosen.

Written from docs/engine.md §4. Nothing moves here: a victim drains and is ordinary free supply in a later step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.assign import open_domains, ordered, plan, price_order, score, subtract, take, useful
from tests.oracle.demand import added
from tests.oracle.entries import Entry
from tests.oracle.placement.buying import resting
from tests.oracle.placement.needs import Need
from tests.oracle.placement.preempt import await_draining, choose_victims
from tests.oracle.placement.reports import is_seen
from tests.oracle.supply import CONFIGURED, DRAINING, HOSTNAME, Block, Unit

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.policy import VictimWeights
    from tests.oracle.demand import Demand
    from tests.oracle.placement.buying import Buying


@dataclass(eq=False)
class Holding:
    """Machines of one cell with the same claimant, or none: judged and ordered together."""

    members: list[Unit]
    excess: bool
    priority: int
    interruption: float
    reclamation: float

    @property
    def pinned(self) -> bool:
        return math.isinf(self.interruption) or math.isinf(self.reclamation)


class Preempt:
    def __init__(
        self,
        blocks: list[Block],
        demand: Demand,
        weights: VictimWeights,
        buying: Buying,
        conditions: Conditions,
        now: int,
    ) -> None:
        self.weights = weights
        self.conditions, self.now = conditions, now
        self.buying = buying
        self.blocks = blocks
        self.draining = ordered(blocks, DRAINING, price_order)
        self.demand = demand
        self.holdings = [h for block in blocks if block.head.state == CONFIGURED for h in self._holdings(block)]

    def run(self, entries: list[Entry | Need]) -> None:
        """All entries share out draining supply first; only then does anyone choose a victim."""
        chosen: dict[Entry, str | None] = {}
        for entry in entries:
            if isinstance(entry, Need):
                await_draining(entry, self)
            else:
                chosen[entry] = self._await_draining(entry)
        for entry in entries:
            if entry.done:
                continue
            if isinstance(entry, Need):
                choose_victims(entry, self)
            else:
                self._choose_victims(entry, chosen[entry])

    # Step 1

    def _await_draining(self, entry: Entry) -> str | None:
        """Takes draining supply virtually; returns the domain a gang is confined to."""
        if entry.spread:
            units = [u for u in self.draining if entry.eligible(u)]
            candidates = self._candidates(entry)
            entry.universe |= {entry.domain_of(unit) for unit in [*units, *candidates]}
            while unit := _first_open(entry, [u for u in units if u.promised is None]):
                self._promise(entry, [unit])
                subtract(entry.parts[0].remaining, entry.effective(unit))
            return None
        units = [u for u in self.draining if u.promised is None and entry.eligible(u)]
        if not entry.gang:
            self._promise(entry, take(entry, units))
            return None
        domain = entry.domain if entry.domain is not None else self._find_domain(entry, units)
        if domain is not None:
            self._promise(entry, take(entry, _inside(entry, domain, units)))
        return domain

    def _promise(self, entry: Entry, units: list[Unit]) -> None:
        for unit in units:
            unit.promised = entry
        entry.drains += units

    def _find_domain(self, gang: Entry, draining: list[Unit]) -> str | None:
        assert gang.profile.same is not None
        if gang.profile.same.key == HOSTNAME:
            return None
        victims = self._candidates(gang)
        coverable: dict[str, int] = {}
        for domain in {gang.domain_of(unit) for unit in [*draining, *victims]}:
            left = [dict(part.remaining) for part in gang.parts]
            here = _inside(gang, domain, draining)
            plan(gang, here, left)
            plan(gang, _inside(gang, domain, victims), left)
            if not any(any(amounts.values()) for amounts in left):
                have: dict[str, int] = {}
                for unit in here:
                    have = added(have, gang.effective(unit))
                coverable[domain] = score(have, gang.remaining)
        return min(coverable, key=lambda d: (-coverable[d], d.encode()), default=None)

    # Step 2

    def _choose_victims(self, entry: Entry, domain: str | None) -> None:
        candidates = self._candidates(entry)
        if entry.spread:
            while unit := _first_open(entry, [u for u in candidates if u.preemptor is None]):
                self._condemn(entry, [unit])
                subtract(entry.parts[0].remaining, entry.effective(unit))
        elif not entry.gang:
            self._condemn(entry, take(entry, candidates))
        elif domain is not None:
            inside = _inside(entry, domain, candidates)
            left = [dict(part.remaining) for part in entry.parts]
            plan(entry, inside, left)
            if not any(any(amounts.values()) for amounts in left):
                self._condemn(entry, take(entry, inside))

    def _condemn(self, entry: Entry, units: list[Unit]) -> None:
        for unit in units:
            unit.preemptor = entry
        entry.victims += units

    def _candidates(self, entry: Entry) -> list[Unit]:
        """Machines the entry may take from others, best victim first."""
        return [unit for members in self.victim_blocks(entry) for unit in members if entry.eligible(unit)]

    def victim_blocks(self, entry: Entry | Need) -> list[list[Unit]]:
        """Machines of lower priority in other clusters, block by block, whether they fit or not."""
        lower = [h for h in self.holdings if h.priority < entry.profile.priority]
        lower.sort(key=lambda h: (not h.excess, -self._score(entry, h), h.pinned, h.members[0].id.encode()))
        return [
            [u for u in holding.members if u.cluster != entry.cluster and u.preemptor is None and not _spared(u)]
            for holding in lower
        ]

    def draining_blocks(self) -> list[list[Unit]]:
        """What drains and is promised to nobody, block by block."""
        blocks = [block for block in self.blocks if block.head.state == DRAINING]
        blocks.sort(key=lambda block: (block.head.shape.price, block.first.encode()))
        return [[unit for unit in block.members if unit.promised is None] for block in blocks]

    def _score(self, entry: Entry | Need, holding: Holding) -> float:
        weights = self.weights
        gap = entry.profile.priority - holding.priority
        total = gap * weights.priority
        if holding.pinned:
            return total
        total += weights.drain / max(1.0, weights.drain_estimate_seconds)
        total += weights.interruption / max(holding.interruption, weights.penalty_floor_dollars)
        total += weights.reclamation / max(holding.reclamation, weights.penalty_floor_dollars)
        return total

    def _holdings(self, block: Block) -> list[Holding]:
        groups: dict[tuple[object, ...], list[Unit]] = {}
        judgements = {unit: self._judged(unit) for unit in block.members}
        for unit in block.members:
            unit.judged = judgements[unit][1]
            groups.setdefault((unit.claimant, *judgements[unit]), []).append(unit)
        return [Holding(members, *judgements[members[0]]) for members in groups.values()]

    def _judged(self, unit: Unit) -> tuple[bool, int, float, float]:
        """Excess, priority, interruption and reclamation dollars: by report, by the row that claims it, or by stamp."""
        claimant, cluster, report = unit.claimant, self.demand.clusters.get(unit.cluster), unit.report
        unit.lies_empty = False
        if claimant:
            return (False, claimant.profile.priority, claimant.interruption, claimant.reclamation)
        if cluster is None or not cluster.reporting:
            return (bool(cluster and cluster.ready), unit.priority, unit.interruption, unit.reclamation)
        if report is not None and report.empty and is_seen(unit, self.demand) and self._has_settled(unit):
            unit.lies_empty = True
            return (True, -(2**31), 0.0, 0.0)
        if report is None or report.empty:
            return (False, unit.priority, unit.interruption, unit.reclamation)
        interruption = math.inf if report.pinned else report.interruption
        return (False, report.max_pod_priority, interruption, report.reclamation)

    def _has_settled(self, unit: Unit) -> bool:
        """Ready for a boot, so that pods it was bought for would be there, and nobody has refused to drain it."""
        if unit.ready_since is None or resting(unit, self.conditions, 1, self.now):
            return False
        return unit.ready_since + self.buying.worth.boot_ns(unit) <= self.now


def _spared(unit: Unit) -> bool:
    return unit.moving or unit.reopened or unit.taker is not None


def _first_open(entry: Entry, units: list[Unit]) -> Unit | None:
    """The first useful machine whose domain may receive one."""
    helpful = [u for u in units if useful(entry.effective(u), entry.parts[0].remaining)]
    heads: dict[str, Unit] = {}
    for unit in helpful:
        heads.setdefault(entry.domain_of(unit), unit)
    allowed = open_domains(entry, heads)
    return next((u for u in helpful if entry.domain_of(u) in allowed), None)


def _inside(gang: Entry, domain: str, units: list[Unit]) -> list[Unit]:
    return [unit for unit in units if gang.domain_of(unit) == domain]
