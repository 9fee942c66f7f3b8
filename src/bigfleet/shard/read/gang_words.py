"""Why a gang has no place, in words: whether no domain could ever hold it, or one could and something stands there now.

The engine's verdict is the same for both, since it does the same for both: nothing. Counts machines as if they were
empty; decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bigfleet.model.machine import MachineState
from bigfleet.shard.core.machines.matching import shape_serves

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape
    from bigfleet.model.profile import Profile
    from bigfleet.model.resources import Resources
    from bigfleet.shard.core.clusters.parts import Part
    from bigfleet.shard.core.state.fleet import Record

# Clusters that are told by name.
_CLUSTERS = 3
_NO_USE = frozenset({MachineState.FAILED, MachineState.DELETING})


@dataclass(slots=True)
class Alike:
    """Machines of one shape, which is also where they stand."""

    shape: Shape
    count: int = 0
    used_by: Counter[str] = field(default_factory=Counter)


def by_shape(records: Iterable[Record]) -> list[Alike]:
    """All machines that could be of use, whoever has them now."""
    found: dict[int, Alike] = {}
    for record in records:
        if record.owned and record.state not in _NO_USE:
            alike = found.setdefault(id(record.shape), Alike(record.shape))
            alike.count += 1
            if record.cluster:
                alike.used_by[record.cluster] += 1
    return list(found.values())


def why_nowhere(
    machines: Iterable[Alike], parts: Sequence[Part], profile: Profile, overhead: Resources, stands_in: str
) -> str:
    """The words; empty where neither is certain. `stands_in`: the domain where some of it runs already."""
    assert profile.same is not None, "only gangs must be in one domain"
    key = profile.same.key
    domains: dict[str, list[Alike]] = {}
    for alike in machines:
        domain = alike.shape.label(key)
        if domain and any(shape_serves(alike.shape, profile, part.unit, overhead) for part in parts):
            domains.setdefault(domain, []).append(alike)
    what = key.rpartition("/")[2]
    must = f"all of it must be in one {what}"
    if not domains:
        return f"{must}, and no machine that fits stands in any"
    if not any(_might_hold(there, parts, overhead) for there in domains.values()):
        return f"{must}, and none could hold it even if it were empty{_largest(domains, parts, overhead)}"
    if stands_in:
        there = domains.get(stands_in, [])
        if not _might_hold(there, parts, overhead):
            return f"{must}, and {stands_in}, where some of it runs, could not hold it even if it were empty"
        domains = {stands_in: there}
    holding = [name for name, there in sorted(domains.items()) if _holds(there, parts, overhead)]
    if not holding:
        return ""
    best = min(holding, key=lambda name: (sum(each.used_by.total() for each in domains[name]), name))
    return f"{must}, and none has room now: {best} could hold it{_in_use(domains[best])}"


def _in_use(there: Sequence[Alike]) -> str:
    used: Counter[str] = sum((each.used_by for each in there), start=Counter())
    if not used:
        return ", but not all of its machines may be used at the moment"
    whose = ", ".join([*sorted(used)[:_CLUSTERS], *(["others"] if len(used) > _CLUSTERS else [])])
    total = sum(each.count for each in there)
    return f", but {used.total()} of its {total} machines {'is' if used.total() == 1 else 'are'} in use by {whose}"


def _largest(domains: dict[str, list[Alike]], parts: Sequence[Part], overhead: Resources) -> str:
    """Of a gang of equal units, how many the largest domain takes."""
    if len(parts) != 1:
        return ""
    most = max(_fit(there, parts[0], overhead) for there in domains.values())
    return f": the largest takes {most:,} of its {_units(parts[0]):,}"


def _units(part: Part) -> int:
    return max((-(-part.aggregate.get(name) // amount) for name, amount in part.unit.items()), default=0)


def _fit(there: Sequence[Alike], part: Part, overhead: Resources) -> int:
    """How many units of one size the machines hold when nothing else is there."""
    return sum(each.count * part.fits(each.shape.allocatable.minus(overhead)) for each in there)


def _might_hold(there: Sequence[Alike], parts: Sequence[Part], overhead: Resources) -> bool:
    """False where it is certain that they do not: too few for the units of one size, or too little of something."""
    if any(_fit(there, part, overhead) < _units(part) for part in parts):
        return False
    for name in {name for part in parts for name, _ in part.aggregate.items()}:
        have = sum(each.count * each.shape.allocatable.minus(overhead).get(name) for each in there)
        if have < sum(part.aggregate.get(name) for part in parts):
            return False
    return True


def _holds(there: Sequence[Alike], parts: Sequence[Part], overhead: Resources) -> bool:
    """True where a way was found: machine by machine, the largest units first."""
    wanted = [_units(part) for part in parts]
    for each in there:
        for _ in range(each.count):
            left = each.shape.allocatable.minus(overhead)
            for place, part in enumerate(parts):
                held = min(wanted[place], part.fits(left))
                wanted[place] -= held
                left = left.minus(part.unit.scale(held))
            if not any(wanted):
                return True
    return False
