"""Upkeep of the credit log: every unit has its stretch with some room; compaction drops the stretches it outgrew."""

from __future__ import annotations

from bigfleet.engine.decide.world import LOG_USED, Log, World
from bigfleet.engine.demand.rows import Entries
from bigfleet.engine.fleet.cells import Owners
from bigfleet.engine.fleet.partitions import Units
from bigfleet.engine.kernels.jit import inner, kernel


@inner
def with_slack(count: int) -> int:
    """The room a stretch gets, so that small changes fit in."""
    return count + count // 4 + 2


@inner
def keep_log(w: World, owner: int, noted: int, first: int, last: int) -> None:
    """Puts what was noted at the end of the log where the unit's stretch was, if it has room there."""
    log = w.log
    count = log.meta[LOG_USED] - noted
    w.owners.logged[owner] = count
    if count > w.owners.room[owner]:
        w.owners.log[owner] = noted
        w.owners.room[owner] = min(with_slack(count), len(log.cell) - noted)
        log.meta[LOG_USED] = noted + w.owners.room[owner]
        return
    base = w.owners.log[owner]
    for i in range(count):
        log.entry[base + i] = log.entry[noted + i]
        log.cell[base + i] = log.cell[noted + i]
        log.n[base + i] = log.n[noted + i]
    for entry in range(first, last):
        w.e.log[entry] += base - noted
    log.meta[LOG_USED] = noted


@kernel
def compact(e: Entries, owners: Owners, units: Units, old: Log, new: Log, clusters: int) -> None:
    """Copies every unit's current stretch and tells its entries where it went."""
    at = 0
    for cluster in range(clusters):
        for owner in range(units.first[cluster], units.first[cluster] + units.count[cluster]):
            first = owners.log[owner]
            moved = at - first
            for i in range(owners.logged[owner]):
                new.entry[at + i] = old.entry[first + i]
                new.cell[at + i] = old.cell[first + i]
                new.n[at + i] = old.n[first + i]
            owners.log[owner] = at
            owners.room[owner] = with_slack(owners.logged[owner])
            at += owners.room[owner]
            for entry in range(owners.entry[owner], owners.entry[owner] + owners.entries[owner]):
                e.log[entry] += moved
    new.meta[LOG_USED] = at


@kernel
def logged(owners: Owners, units: Units, clusters: int) -> int:
    """How long the log is when it is compact."""
    total = 0
    for cluster in range(clusters):
        for owner in range(units.first[cluster], units.first[cluster] + units.count[cluster]):
            total += with_slack(owners.logged[owner])
    return total
