"""Upkeep of the credit log: units credited again leave their old stretch behind; compaction drops those."""

from __future__ import annotations

from bigfleet.engine.cells import Owners
from bigfleet.engine.jit import kernel
from bigfleet.engine.rows import Entries
from bigfleet.engine.units import Units
from bigfleet.engine.world import LOG_USED, Log


@kernel
def compact(e: Entries, owners: Owners, units: Units, old: Log, new: Log, clusters: int) -> None:
    """Copies every unit's current stretch and tells its entries where it went."""
    at = 0
    for cluster in range(clusters):
        for owner in range(units.first[cluster], units.first[cluster] + units.count[cluster]):
            first = owners.log[owner]
            moved = at - first
            for i in range(first, first + owners.logged[owner]):
                new.entry[at] = old.entry[i]
                new.cell[at] = old.cell[i]
                new.n[at] = old.n[i]
                at += 1
            owners.log[owner] += moved
            for entry in range(owners.entry[owner], owners.entry[owner] + owners.entries[owner]):
                e.log[entry] += moved
    new.meta[LOG_USED] = at


@kernel
def logged(owners: Owners, units: Units, clusters: int) -> int:
    """How much of the log is current."""
    total = 0
    for cluster in range(clusters):
        for owner in range(units.first[cluster], units.first[cluster] + units.count[cluster]):
            total += owners.logged[owner]
    return total
