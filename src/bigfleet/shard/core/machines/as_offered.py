"""What was offered and what came: whether a bought machine that differs still serves whom it was bought for.

Judged as soon as the provider shows the difference, be it before the host is there: the engine does not count on a
machine that does not match, and would buy the same kind again in its next step. The kind, as it is offered, is left
alone for the row and for all others of its cluster that wait and could not use it either (`clusters/backoffs.py`); for
a cluster that tells sums, to whose rows the engine knows no such
pause, its purchases rest as after a failed one. The machine itself is an ordinary free one.
"""

from __future__ import annotations

from itertools import islice
from math import isinf
from typing import TYPE_CHECKING

from bigfleet.model.amounts import spoken_amounts
from bigfleet.model.machine import CallKind
from bigfleet.model.names import ZONE_LABEL
from bigfleet.model.resources import Resources
from bigfleet.model.taint import tolerates
from bigfleet.shard.core.machines.matching import attribute, parse_canonical
from bigfleet.shard.core.state.backoff import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigfleet.engine.batches import Shape
    from bigfleet.engine.results import NeedKey
    from bigfleet.model.profile import Profile
    from bigfleet.shard.core.clusters.demand import Demand
    from bigfleet.shard.core.clusters.placement import Placement
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.operations import Operation
    from bigfleet.shard.core.state.state import ShardState

# Rows that are spared at most; each is one more entry that the engine looks through for every class of machines.
_ROWS = 256


class AsOffered:
    """Compares what is being bought with what it was chosen for."""

    def __init__(self, state: ShardState, demand: Demand, placement: Placement) -> None:
        self._state = state
        self._demand = demand
        self._placement = placement

    def differs(self, operation: Operation) -> str:
        """How a purchase is other than its slot offered so that its row cannot use it; empty when it can."""
        offered, machine = operation.offered, operation.machine
        if offered is None or operation.call != CallKind.CREATE or machine.shape == offered:
            return ""
        need = operation.need
        profile = operation.profile or self._demand.profile(need.cluster, need.fingerprint)
        if profile is None:
            return ""
        units = [part.unit for part in self._demand.parts(need)] or [parse_canonical(need.min_unit)]
        overhead = self._demand.overhead(need.cluster)
        return difference(offered, machine.shape, profile, units, overhead, machine.key)

    def arriving(self, operation: Operation) -> str:
        """The same of a purchase that the provider is at work on or has made: its kind is left alone from now on."""
        why = self.differs(operation)
        if why and not operation.otherwise:
            need, record = operation.need, operation.machine
            assert operation.offered is not None
            kind = kind_of(operation.offered)
            self._state.stories.tell(record.key, self._state.now, f"no use to {need.cluster}: {why}")
            if not self._placement.reports_placement(need.cluster):
                self._state.breakers.failed(kind, self._state.now, why)
            elif self._placement.backoffs.otherwise(need, kind, record.key, why):
                self._spare_others(need, operation.offered, record)
        operation.otherwise = why
        return why

    def _spare_others(self, need: NeedKey, offered: Shape, record: Record) -> None:
        """What one row learnt, the others of its cluster need not pay for."""
        overhead, backoffs = self._demand.overhead(need.cluster), self._placement.backoffs
        stranded = (each for each in self._demand.stranded(need.cluster) if each[0] != need)
        for key, profile, unit in islice(stranded, _ROWS):
            why = difference(offered, record.shape, profile, [unit], overhead, record.key)
            if why:
                backoffs.otherwise(key, kind_of(offered), "", why)

    def left_alone(self, operation: Operation) -> str:
        """Why a purchase nobody has been asked for yet is not to be made: another of its kind came as something else,
        or its own slot does not offer any more what it was chosen for."""
        return self.differs(operation) or self._placement.backoffs.comes_otherwise(
            operation.need, kind_of(operation.machine.shape)
        )


def difference(
    offered: Shape, came: Shape, profile: Profile, units: Sequence[Resources], overhead: Resources, machine: str
) -> str:
    """In words, what keeps demand of this profile and any of these units from `came` and would not from `offered`."""
    told: list[tuple[str, str]] = []
    zone = False
    for key in _keys(profile, offered, came, machine):
        before, after = attribute(machine, offered, key), attribute(machine, came, key)
        name = "zone" if key == ZONE_LABEL else key
        zone |= key == ZONE_LABEL
        told.append(_values(name, "in" if key == ZONE_LABEL else "with", before, after))
    if tolerates(profile.tolerations, offered.taints) and not tolerates(profile.tolerations, came.taints):
        new = ", ".join(each.key for each in came.taints if each.blocks and each not in offered.taints)
        told.append(("without", f"with taint {new}"))
    if isinf(profile.interruption_dollars) and came.probability > 0 and offered.probability <= 0:
        told.append(("as never interrupted", "as at risk"))
    room, left = offered.allocatable.minus(overhead), came.allocatable.minus(overhead)
    held = [unit for unit in units if room.covers(unit)]
    if held and not any(left.covers(unit) for unit in units):
        short = [name for name, amount in held[-1].items() if amount > left.get(name)]
        told.append((f"with {_spoken(offered.allocatable, short)}", f"with {_spoken(came.allocatable, short)}"))
    if not told:
        return ""
    where = f" in {offered.zone}" if offered.zone and not zone else ""
    promised, arrives = (" and ".join(each[side] for each in told) for side in (0, 1))
    return f"{offered.instance_type}{where} is offered {promised} and arrives {arrives}"


def _keys(profile: Profile, offered: Shape, came: Shape, machine: str) -> list[str]:
    """Labels by which the one is chosen and the other is not.

    A row spread over zones counts on each by its own zone. Racks are no part of a kind, which could not be left alone
    without those that come where they are offered; and a gang that comes to another domain may be whole there.
    """
    found = [
        each.key
        for each in profile.requirements
        if each.matches(attribute(machine, offered, each.key)) and not each.matches(attribute(machine, came, each.key))
    ]
    spread = profile.strict_spread if profile.same is None else None
    if spread is not None and spread.topology_key == ZONE_LABEL and offered.zone != came.zone:
        found.append(ZONE_LABEL)
    return list(dict.fromkeys(found))


def _values(name: str, how: str, before: str | None, after: str | None) -> tuple[str, str]:
    return (
        f"{how} {name} {before}" if before else f"without {name}",
        (f"{how} {after}" if before else f"{how} {name} {after}") if after else f"without {name}",
    )


def _spoken(amounts: Resources, names: list[str]) -> str:
    wire = amounts.to_wire()
    return spoken_amounts({name: wire.get(name, "0") for name in names})
