"""One row of demand: what a cluster wants in total under one constraint set. Owns its key and how rows merge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources

NeedKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Need:
    """Total desired capacity, neither a difference nor a count; each machine serving it must cover `min_unit` alone."""

    cluster: str
    profile: Profile
    aggregate: Resources
    min_unit: Resources
    arrival_ns: int = 0
    group: str = ""
    key: NeedKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = (self.cluster, self.profile.fingerprint, self.group, self.min_unit.canonical)
        object.__setattr__(self, "key", key)


def aggregate(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Rows of one key become one, in order of first appearance: resources summed, earliest non-zero arrival kept."""
    merged: dict[NeedKey, Need] = {}
    for need in needs:
        known = merged.get(need.key)
        if known is None:
            merged[need.key] = need
            continue
        arrivals = [arrival for arrival in (known.arrival_ns, need.arrival_ns) if arrival]
        merged[need.key] = replace(
            known, aggregate=known.aggregate + need.aggregate, arrival_ns=min(arrivals, default=0)
        )
    return tuple(merged.values())
