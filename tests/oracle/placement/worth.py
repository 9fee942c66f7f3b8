"""Room, fit, value and risk: what a machine can hold for a cluster and what a unit is worth.

Written from docs/engine.md P8 to P11.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.oracle.judging import ON_DEMAND, SPOT, times
from tests.oracle.supply import BOUND, Unit

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.policy import Placement
    from tests.oracle.demand import Amounts, Demand
    from tests.oracle.placement.needs import Need, Portion

ORDINARY = ("cpu", "memory", "ephemeral-storage", "pods")


def kind_of(unit: Unit) -> tuple[str, str, str, int]:
    shape = unit.shape
    return (shape.provider, shape.instance_type, shape.zone, shape.capacity_type)


def owned(unit: Unit) -> bool:
    return unit.shape.capacity_type not in (ON_DEMAND, SPOT)


def is_device(name: str) -> bool:
    return name not in ORDINARY and not name.startswith("hugepages-")


def has_devices(amounts: Amounts) -> bool:
    return any(amount > 0 and is_device(name) for name, amount in amounts.items())


def published(unit: Unit) -> Amounts:
    return dict(unit.shape.allocatable.items())


def wanted(portion: Portion, unit: Unit) -> Amounts:
    """What one unit takes on such a machine."""
    if "pods" in unit.shape.allocatable.names() and "pods" not in portion.unit:
        return {**portion.unit, "pods": 1}
    return dict(portion.unit)


def fits(left: Amounts, carried: frozenset[str], portion: Portion, unit: Unit) -> int:
    if portion.tokens & carried:
        return 0
    most = min(left.get(name, 0) // amount for name, amount in wanted(portion, unit).items())
    return min(most, 1) if portion.tokens else most


def minus(left: Amounts, amounts: Amounts, count: int = 1) -> Amounts:
    return {name: max(0, have - count * amounts.get(name, 0)) for name, have in left.items()}


class Worth:
    """Everything a step knows about classes: one machine stands for each."""

    def __init__(self, machines: list[Unit], demand: Demand, placement: Placement, conditions: Conditions, now: int):
        self.demand = demand
        self.placement = placement
        self.classes: dict[tuple[object, ...], Unit] = {}
        for unit in machines:
            self.classes.setdefault(unit.klass, unit)
        self.said: dict[tuple[object, ...], list[Amounts]] = {}
        for unit in machines:
            if unit.report and unit.report.allocatable and unit.state in BOUND:
                self.said.setdefault((unit.cluster, *kind_of(unit)), []).append(unit.report.allocatable)
        self.backoffs = [backoff for backoff in conditions.backoffs if now < backoff.until]
        self._values: dict[tuple[str, str], float] = {}

    def room(self, cluster: str, unit: Unit) -> Amounts:
        overhead = self.demand.clusters[cluster].overhead
        real = self.said.get((cluster, *kind_of(unit)), [])
        return {
            name: min([max(0, amount - overhead.get(name, 0)), *(said.get(name, 0) for said in real)])
            for name, amount in unit.shape.allocatable.items()
        }

    def left_of(self, unit: Unit) -> Amounts:
        """What a bound machine has left for its own cluster."""
        room = self.room(unit.cluster, unit)
        if unit.report is None:
            return room
        return minus(unit.report.allocatable or room, unit.report.used)

    def value(self, need: Need, portion: Portion) -> float:
        key = (need.profile.fingerprint, str(sorted(portion.unit.items())))
        if key not in self._values:
            self._values[key] = self._value(need, portion)
        return self._values[key]

    def _value(self, need: Need, portion: Portion) -> float:
        holders = [
            unit
            for unit in self.classes.values()
            if need.matches(unit) and fits(published(unit), frozenset(), portion, unit) > 0
            if math.isfinite(times(unit.shape.probability, need.dollars))
        ]
        priced = [unit for unit in holders if unit.shape.price > 0]
        costs = [
            share_of(wanted(portion, unit), unit) * (unit.shape.price if priced else 1.0)
            + times(unit.shape.probability, need.dollars)
            for unit in priced or holders
        ]
        return min(costs, default=0.0)

    def risky(self, need: Need, portion: Portion, unit: Unit) -> bool:
        risk = times(unit.shape.probability, need.dollars)
        return math.isinf(risk) or risk > self.placement.risk_limit * self.value(need, portion)

    def backed_off(self, need: Need, unit: Unit) -> bool:
        return any(
            b.cluster == need.cluster
            and (b.provider, b.instance_type, b.zone, b.capacity_type) == kind_of(unit)
            and (b.row is None or b.row == need.key)
            for b in self.backoffs
        )

    def backed_off_somehow(self, cluster: str, unit: Unit) -> bool:
        """For some row of the cluster, or for all."""
        kind = kind_of(unit)
        return any(
            b.cluster == cluster and (b.provider, b.instance_type, b.zone, b.capacity_type) == kind
            for b in self.backoffs
        )

    def open_to(self, need: Need, portion: Portion, unit: Unit) -> bool:
        return need.matches(unit) and not self.risky(need, portion, unit) and not self.backed_off(need, unit)

    def boot_ns(self, unit: Unit) -> int:
        return self.placement.boot_by_provider.get(unit.shape.provider, self.placement.boot_ns)


def share_of(amounts: Amounts, unit: Unit) -> float:
    """The largest share of the machine any of the amounts is."""
    have = published(unit)
    return max((amount / have[name] for name, amount in amounts.items()), default=0.0)
