"""Credit by counting: units of plain rows of one constraint set whose machines all match and are of one size.

Which machine an entry takes does not matter there, only how many: the next ones in order. So an entry takes (`take`)
from all machines that are left as if they were one cell, which comes to what `credit_plain` comes to cell by cell. And
as long as there are enough for all, machines that come, go and change cells change no entry. Which cells the machines
of an entry are of follows from the order of both; it is written into the log when somebody reads it. Until then the
order of the cells does not matter either, unless some machines are left over: the last ones are.
"""

from __future__ import annotations

from bigfleet.engine.decide.credit import anything, begin_entry, take
from bigfleet.engine.decide.logbook import with_slack
from bigfleet.engine.decide.world import LOG_USED, World
from bigfleet.engine.demand.rows import NO_TIME, PLAIN
from bigfleet.engine.fleet.cells import CONFIGURED, CREATING, EMPTY, NEW
from bigfleet.engine.fleet.settling import put_in_order
from bigfleet.engine.kernels.jit import inner, kernel
from bigfleet.engine.kernels.pool import Pool


@inner
def credit_alike(w: World, members: Pool, owner: int) -> bool:
    """Credits a unit by counting; False where that is not enough: then it is to be credited cell by cell."""
    owners = w.owners
    if owners.alike[owner] >= 0:
        alike = _takes_in(w, owner)
    else:
        alike = _takes_in_all(w, owner)
    if not alike:
        owners.alike[owner] = -1
        return False
    if owners.dealt[owner] < 0 or owners.pending[owner] > 0 or owners.machines[owner] < owners.dealt[owner]:
        _deal(w, owner)
    _leave_over(w, members, owner, owners.machines[owner] - owners.dealt[owner])
    owners.logged[owner] = 0
    owners.unlogged[owner] = 1
    return True


@inner
def _takes_in(w: World, owner: int) -> bool:
    """All machines of the cells that changed are taken; False if they are not like the others."""
    at = w.owners.stirred[owner]
    while at >= 0:
        # Those without machines are gone, and not looked at.
        if not w.cells.how[at] & EMPTY:
            cell = w.cells.touched[at]
            if w.cells.flags[cell] & NEW and not _is_alike(w, cell, w.owners.con[owner], w.owners.alike[owner]):
                return False
            _take_all(w, cell)
        at = w.cells.before[at]
    return w.owners.used[owner] > 0


@inner
def _takes_in_all(w: World, owner: int) -> bool:
    """All machines of all cells are taken; False if they are not alike or rows are not plain ones that they match."""
    owners = w.owners
    start = owners.start[owner]
    used = owners.used[owner]
    first = owners.entry[owner]
    last = first + owners.entries[owner]
    if used == 0 or first == last:
        return False
    con = w.p.con[w.e.prof[first]]
    for entry in range(first, last):
        if w.e.kind[entry] != PLAIN or w.p.con[w.e.prof[entry]] != con:
            return False
    size = w.cells.cls[w.held.data[start]]
    for k in range(start, start + used):
        if not _is_alike(w, w.held.data[k], con, size):
            return False
    for k in range(start, start + used):
        _take_all(w, w.held.data[k])
    owners.alike[owner] = size
    owners.con[owner] = con
    owners.dealt[owner] = -1
    owners.spare[owner] = 0
    owners.stall[owner] = -1
    owners.timed[owner] = 0
    return True


@inner
def _is_alike(w: World, cell: int, con: int, size: int) -> bool:
    """Whether a cell's machines are bound, match and are of the size of a class; those being made are not bound."""
    cls = w.cells.cls[cell]
    if w.cells.state[cell] == CREATING or w.match[con, cls] == 0:
        return False
    for d in range(w.k.alloc.shape[1]):
        if w.k.alloc[cls, d] != w.k.alloc[size, d]:
            return False
    return True


@inner
def _take_all(w: World, cell: int) -> None:
    # Most are so already, and a line that is not written to need not go back to memory.
    if w.cells.taken[cell] != w.cells.count[cell]:
        w.cells.taken[cell] = w.cells.count[cell]
    if w.cells.flags[cell] & NEW:
        w.cells.flags[cell] &= ~NEW & 0xFF


@inner
def _deal(w: World, owner: int) -> None:
    """Every entry takes what it needs from what is left; those that had all they need keep it, as far as it reaches."""
    owners = w.owners
    size = owners.alike[owner]
    cluster = owners.cluster[owner]
    left = owners.machines[owner]
    known = owners.dealt[owner] >= 0
    pending = 0
    first = owners.entry[owner]
    for entry in range(first, first + owners.entries[owner]):
        part = w.e.part[entry]
        if not known or w.e.claimed[entry] > left or anything(w.parts.credit, part):
            begin_entry(w, w.log, w.parts.credit, entry)
            w.e.claimed[entry] = take(
                w.k.alloc, size, w.c.overhead, cluster, w.parts.unit, w.parts.credit, part, left
            )  # fmt: skip
            if anything(w.parts.credit, part):
                pending += 1
            else:
                w.parts.since[part] = NO_TIME
        left -= w.e.claimed[entry]
    owners.pending[owner] = pending
    owners.dealt[owner] = owners.machines[owner] - left


@inner
def _leave_over(w: World, members: Pool, owner: int, spare: int) -> None:
    """Takes back what nobody took: the last machines of the unit. If nothing was left before, the others are taken."""
    owners = w.owners
    if spare > 0:
        put_in_order(w.cells, members, owners, w.held, w.ids, owner)
    start = owners.start[owner]
    k = start + owners.used[owner] - 1
    excess = 0
    left = spare
    while k >= start and (left > 0 or owners.spare[owner] > 0):
        cell = w.held.data[k]
        unclaimed = min(left, w.cells.count[cell])
        w.cells.taken[cell] = w.cells.count[cell] - unclaimed
        if w.cells.state[cell] == CONFIGURED:
            excess += unclaimed
        left -= unclaimed
        k -= 1
    owners.spare[owner] = spare
    if owners.excess[owner] != excess:
        owners.excess[owner] = excess


@kernel
def write_log(w: World, members: Pool, clusters: int) -> int:
    """Writes down which cells' machines units credited by counting took; returns a unit that needs more room, or -1."""
    for cluster in range(clusters):
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            if w.owners.unlogged[owner] != 0 and not _write_unit(w, members, owner):
                return owner
    return -1


@inner
def _write_unit(w: World, members: Pool, owner: int) -> bool:
    owners = w.owners
    put_in_order(w.cells, members, owners, w.held, w.ids, owner)
    first = owners.entry[owner]
    last = first + owners.entries[owner]
    # A line ends an entry or a cell.
    most = owners.used[owner] + owners.entries[owner]
    if most > owners.room[owner]:
        base = w.log.meta[LOG_USED]
        if base + most > len(w.log.cell):
            return False
        owners.log[owner] = base
        owners.room[owner] = min(with_slack(most), len(w.log.cell) - base)
        w.log.meta[LOG_USED] = base + owners.room[owner]
    at = owners.log[owner]
    k = owners.start[owner]
    here = w.cells.count[w.held.data[k]]
    for entry in range(first, last):
        w.e.log[entry] = at
        lacking = w.e.claimed[entry]
        while lacking > 0:
            if here == 0:
                k += 1
                here = w.cells.count[w.held.data[k]]
            n = min(lacking, here)
            w.log.entry[at] = entry
            w.log.cell[at] = w.held.data[k]
            w.log.n[at] = n
            at += 1
            lacking -= n
            here -= n
        w.e.logged[entry] = at - w.e.log[entry]
    owners.logged[owner] = at - owners.log[owner]
    owners.unlogged[owner] = 0
    return True
