"""Who waited too long: what clauses about pods are judged by, over the whole run and from pods alone.

A clause names pods (cluster, lowest priority), a moment from which it counts, and the longest wait it accepts. Every
wait that ends, by a place or by giving up, is held against it, and so is every one that lasts when the run is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bigfleet.sim.scenario.expectations import Limit


@dataclass(slots=True)
class Late:
    """Waits beyond a limit: how many pods, the longest of them, and when that one began."""

    pods: int = 0
    longest: int = 0
    since: int = 0


class Waits:
    """The waits of a run, held against every limit anybody asks about."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._late = {limit: Late() for limit in limits}

    def waited(self, cluster: str, priority: int, since: int, until: int, count: int) -> None:
        """So many equal pods waited from `since` until `until`."""
        for limit, late in self._late.items():
            if priority < limit.priority_at_least or limit.cluster not in ("", cluster):
                continue
            waited = until - max(since, limit.after)
            if waited > limit.longest:
                late.pods += count
                if waited > late.longest:
                    late.longest, late.since = waited, since

    def late(self, limit: Limit) -> Late:
        return self._late[limit]
