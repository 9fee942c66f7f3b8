"""Upkeep of the credit log: clusters credited again leave their old stretch behind; compaction drops those."""

from __future__ import annotations

from bigfleet.engine.jit import kernel
from bigfleet.engine.rows import Clusters, Entries
from bigfleet.engine.world import LOG_USED, Log


@kernel
def compact(c: Clusters, e: Entries, old: Log, new: Log, clusters: int) -> None:
    """Copies every cluster's current stretch and tells its entries where it went."""
    at = 0
    for cluster in range(clusters):
        first = c.log[cluster]
        moved = at - first
        for i in range(first, first + c.logged[cluster]):
            new.entry[at] = old.entry[i]
            new.cell[at] = old.cell[i]
            new.n[at] = old.n[i]
            at += 1
        c.log[cluster] += moved
        start = c.start[cluster]
        for entry in range(start, start + c.entries[cluster]):
            e.log[entry] += moved
    new.meta[LOG_USED] = at
