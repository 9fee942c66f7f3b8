"""One topology-spread constraint. Owns its numbers and order; which spread is enforced is the profile's rule."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class WhenUnsatisfiable(IntEnum):
    """Numbers are those of `TopologySpread.WhenUnsatisfiable`."""

    UNSPECIFIED = 0
    DO_NOT_SCHEDULE = 1
    SCHEDULE_ANYWAY = 2


class Spread(NamedTuple):
    """At most `max_skew` machines between the fullest and the emptiest domain. Sorts in canonical order."""

    topology_key: str
    max_skew: int
    when: WhenUnsatisfiable

    @property
    def strict(self) -> bool:
        return self.when == WhenUnsatisfiable.DO_NOT_SCHEDULE

    @property
    def enforced_skew(self) -> int:
        """The skew that is applied: anything below one means one."""
        return max(1, self.max_skew)
