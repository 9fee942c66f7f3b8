"""The fleet's free machines by kind, and what of them each donor may still give.

Two shards' machines of one kind are interchangeable to the planner, so it judges kinds once and then counts donors.
"""

from __future__ import annotations

from msgspec import Struct

from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.records import Phase, Shape
from bigfleet.coordinator.core.reports import Deficit, Kind, Standing
from bigfleet.coordinator.core.tables import Tables
from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.penalty import PINNED
from bigfleet.model.resources import Resources


class Offer(Struct):
    """What one donor has of a kind."""

    donor: int
    count: int


class Supply:
    """Offers by kind: shards are added, then `close`d into order; the planner uses them up."""

    def __init__(self, tables: Tables, policy: Policy, now: int) -> None:
        self._policy = policy
        self._cooling = _cooling(tables, policy, now)
        self._promised = _promised(tables)
        # Shards whose domains are changing hands are asked for nothing until that is settled.
        self._changing = frozenset(tables.waiting)
        self.kinds: dict[Kind, list[Offer]] = {}
        self._by_shape: dict[tuple[str, str, bool], list[tuple[Kind, int]]] = {}
        self._served: dict[tuple[str, str], bool] = {}
        self._ordered: dict[tuple[tuple[str, str, bool], int], list[tuple[Kind, int]]] = {}

    def add(self, donor: int, standing: Standing) -> None:
        if donor in self._changing:
            return
        for cell in standing.cells:
            kind = cell.kind
            if self._cooling and self.cools(donor, kind.instance_type, kind.zone):
                continue
            free = cell.count - int(cell.count * self._policy.margin)
            if self._promised:
                place = (donor, kind.instance_type, kind.zone, kind.speculative)
                asked = min(free, self._promised.get(place, 0))
                self._promised[place] = self._promised.get(place, 0) - asked
                free -= asked
            if free > 0:
                self.kinds.setdefault(kind, []).append(Offer(donor, free))

    def cools(self, donor: int, instance_type: str, zone: str = "") -> bool:
        """Whether it received such machines too lately to give any; without a zone, in any zone."""
        if not zone:
            return any(place[:2] == (donor, instance_type) for place in self._cooling)
        return (donor, instance_type, zone) in self._cooling or (donor, instance_type, "") in self._cooling

    def close(self) -> None:
        for offers in self.kinds.values():
            offers.sort(key=lambda offer: (-offer.count, offer.donor))

    def serves(self, deficit: Deficit) -> bool:
        """Whether anybody has anything that would do."""
        shape = shape_key(deficit)
        known = self._served.get(shape)
        if known is None:
            known = self._served[shape] = any(self.fitting(deficit, 1, speculative=slots) for slots in (False, True))
        return known

    def fitting(self, deficit: Deficit, units: int, *, speculative: bool) -> list[tuple[Kind, int]]:
        """(kind, units one machine of it carries), the best for so many units first: least waste, then price, name."""
        key = (*shape_key(deficit), speculative)
        if key not in self._by_shape:
            self._by_shape[key] = [
                (kind, carried)
                for kind in self.kinds
                if kind.speculative is speculative
                and fits(deficit, kind)
                and (carried := carries(deficit, kind.allocatable))
            ]
        found = self._by_shape[key]
        # More units than fit on any of them change nothing about the order.
        used = min(units, max((carried for _, carried in found), default=0))
        if (key, used) not in self._ordered:
            self._ordered[key, used] = sorted(found, key=lambda each: _preference(deficit, used, *each))
        return self._ordered[key, used]


def shape_of(deficit: Deficit) -> Shape:
    return Shape(
        deficit.fingerprint,
        tuple(deficit.min_unit.items()),
        tuple((each.key, int(each.operator), each.values) for each in deficit.requirements),
    )


def shape_key(deficit: Deficit) -> tuple[str, str]:
    """What tells two shapes apart, as cheap texts: a profile and a unit."""
    return deficit.fingerprint, deficit.min_unit.canonical


def key_of_shape(shape: Shape) -> tuple[str, str]:
    return shape.fingerprint, Resources(dict(shape.min_unit)).canonical


def fits(deficit: Deficit, kind: Kind) -> bool:
    """Whether the deficit may run there, as far as a cell tells; the donor judges labels nobody reports."""
    if deficit.bucket == PINNED and kind.probability > 0:
        return False
    return allows(deficit, INSTANCE_TYPE_LABEL, kind.instance_type) and allows(deficit, ZONE_LABEL, kind.zone)


def judged_whole(deficit: Deficit) -> bool:
    """Whether a cell tells all that its requirements ask."""
    return all(each.key in (INSTANCE_TYPE_LABEL, ZONE_LABEL) for each in deficit.requirements)


def allows(deficit: Deficit, key: str, value: str) -> bool:
    return all(each.matches(value or None) for each in deficit.requirements if each.key == key)


def carries(deficit: Deficit, allocatable: Resources) -> int:
    """Units one empty machine of this size holds; 1 for a machine that serves demand without units."""
    unit = deficit.min_unit
    if allocatable.is_zero or not allocatable.covers(unit):
        return 0
    if not deficit.units:
        return 1 if any(allocatable.get(name) for name in deficit.resources.names()) else 0
    if unit.is_zero:
        return 0
    return min(allocatable.get(name) // amount for name, amount in unit.items())


def machines_for(deficit: Deficit, units: int, carried: int, allocatable: Resources) -> int:
    """How many machines of one kind the missing units need."""
    if deficit.units:
        return -(-units // carried)
    wanted = (
        -(-amount // allocatable.get(name)) for name, amount in deficit.resources.items() if allocatable.get(name)
    )
    return max(wanted, default=0)


def _preference(deficit: Deficit, units: int, kind: Kind, carried: int) -> tuple[float, float, str, str, str]:
    """Waste: the share of the scarcest demanded resource that stays unused, in steps that do not hang on rounding."""
    unit = deficit.min_unit if deficit.units else deficit.resources
    used = min(carried, units) if deficit.units else 1
    sized = [(used * amount, kind.allocatable.get(name)) for name, amount in unit.items()]
    waste = 1.0 - max((min(1.0, wanted / size) for wanted, size in sized if size), default=0.0)
    return round(waste, 6), kind.price, kind.instance_type, kind.zone, kind.provider


def _cooling(tables: Tables, policy: Policy, now: int) -> set[tuple[int, str, str]]:
    """(shard, type, zone) it received lately and so does not give: nothing moves back within its cool-down."""
    return {
        (each.recipient, each.selector.instance_type, each.selector.zone)
        for each in tables.transfers.values()
        if each.phase is not Phase.ADOPTED or each.adopted_at > now - policy.cooldown
    }


def _promised(tables: Tables) -> dict[tuple[int, str, str, bool], int]:
    """What donors were asked for and have not let go of: it is still in their reports."""
    promised: dict[tuple[int, str, str, bool], int] = {}
    for each in tables.transfers.values():
        if each.phase is Phase.ADOPTED or each.drained:
            continue
        place = (each.donor, each.selector.instance_type, each.selector.zone, each.speculative)
        promised[place] = promised.get(place, 0) + (len(each.machines) or each.selector.count)
    return promised
