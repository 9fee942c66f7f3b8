"""Credit by counting: what plain rows of one constraint set are credited with where all machines are of one size.

Then it does not matter which machine an entry takes, only how many: the next ones in order. So what an entry lacks is
worked out once, and dealt out like cards. Comes to what `credit_plain` comes to, entry by entry and cell by cell.
"""

from __future__ import annotations

from bigfleet.engine.decide.logbook import keep_log
from bigfleet.engine.decide.world import LOG_USED, World
from bigfleet.engine.demand.rows import FOLDED, NO_TIME, PLAIN, SETTLED
from bigfleet.engine.fleet.cells import CONFIGURED, CREATING, NEW
from bigfleet.engine.kernels.jit import inner

# What does not fit on a machine takes none, however much it lacks.
_TOO_LARGE = -1
# Where the credit that is kept ends, in `tmp.dom`.
_CELL, _DEALT, _GONE = 0, 1, 2


@inner
def credit_alike(w: World, owner: int) -> bool:
    """Credits a unit by counting; False, and nothing is done, where that is not enough."""
    owners = w.owners
    used = owners.used[owner]
    start = owners.entry[owner]
    end = start + owners.entries[owner]
    if used == 0 or start == end:
        return False
    base = owners.log[owner]
    in_place = used + end - start <= owners.room[owner]
    if not in_place:
        base = w.log.meta[LOG_USED]
        if base + used + end - start > len(w.log.cell):
            return False
    # Entries before `entry` keep what they have: `dealt` machines, all of those before the k-th cell and some of it.
    entry = start
    k = 0
    dealt = 0
    gone = 0
    if in_place:
        entry = _kept(w, owner, used, start, end)
    if entry > start:
        k = w.tmp.dom[_CELL]
        dealt = w.tmp.dom[_DEALT]
        gone = w.tmp.dom[_GONE]
    if not _are_alike(w, owner, used, entry, end, k):
        return False
    at = base if entry == start else w.e.log[entry - 1] + w.e.logged[entry - 1]
    size = w.cells.cls[w.held.data[owners.start[owner]]]
    cluster = owners.cluster[owner]
    first_cell = k
    here = w.tmp.n[k] - gone
    pending = 0
    while entry < end:
        wanted = _wanted(w, size, cluster, w.e.part[entry])
        first = at
        lacking = abs(wanted)
        if wanted > 0:
            while lacking > 0 and k < used:
                n = min(lacking, here)
                if n > 0:
                    w.log.entry[at] = entry
                    w.log.cell[at] = w.tmp.cell[k]
                    w.log.n[at] = n
                    at += 1
                    lacking -= n
                    here -= n
                if here == 0:
                    k += 1
                    here = w.tmp.n[k] if k < used else 0
        w.e.log[entry] = first
        w.e.logged[entry] = at - first
        if lacking > 0:
            pending += 1
            _write(w, size, cluster, entry, wanted - lacking if wanted > 0 else 0)
        elif not w.e.flags[entry] & SETTLED or w.e.claimed[entry] != wanted:
            _write(w, size, cluster, entry, wanted)
            w.e.flags[entry] |= SETTLED
            w.parts.since[w.e.part[entry]] = NO_TIME
        entry += 1
    owners.stall[owner] = -1
    owners.timed[owner] = 0
    owners.pending[owner] = pending
    owners.logged[owner] = at - base
    owners.same[owner] = used
    if not in_place:
        w.log.meta[LOG_USED] = at
        keep_log(w, owner, base, start, end)
    _close(w, owner, used, first_cell, dealt - gone, k, here)
    return True


@inner
def _kept(w: World, owner: int, used: int, start: int, end: int) -> int:
    """How far everything is as it was: the first entry to credit anew, if that is not the first of all. Then `tmp.dom`
    has the cell it begins with, how many machines the entries before it have, and how many of those are of that cell.

    Entries are kept that were satisfied from the first cells that are the same. What they have is in the log.
    """
    held = w.owners.start[owner]
    same = min(w.owners.same[owner], used)
    at = w.owners.log[owner]
    entry = start
    k = 0
    dealt = 0
    gone = 0
    while entry < end and w.e.flags[entry] & SETTLED and w.e.log[entry] == at:
        here = k
        of_it = gone
        sum_of = 0
        until = at + w.e.logged[entry]
        while at < until and here < same:
            if w.log.cell[at] != w.held.data[held + here]:
                here += 1
                of_it = 0
                if here >= same or w.log.cell[at] != w.held.data[held + here]:
                    break
            of_it += w.log.n[at]
            sum_of += w.log.n[at]
            at += 1
        if at < until:
            break
        k = here
        gone = of_it
        dealt += sum_of
        entry += 1
    # Configured cells come first, so those before one are Configured too, and are counted by what is dealt.
    if entry == start or w.cells.state[w.held.data[held + k]] != CONFIGURED:
        return start
    w.tmp.dom[_CELL] = k
    w.tmp.dom[_DEALT] = dealt
    w.tmp.dom[_GONE] = gone
    return entry


@inner
def _are_alike(w: World, owner: int, used: int, first: int, end: int, known: int) -> bool:
    """Whether the unit's rows are plain ones that all its machines match, and its machines bound and of one size.

    Lists its cells and how many machines each has. Cells before `known` and entries before `first` were so.
    """
    con = w.p.con[w.e.prof[w.owners.entry[owner]]]
    cluster = w.owners.cluster[owner]
    width = w.parts.agg.shape[1]
    held = w.owners.start[owner]
    size = w.cells.cls[w.held.data[held]]
    for k in range(known, used):
        cell = w.held.data[held + k]
        cls = w.cells.cls[cell]
        if w.match[con, cls] == 0 or w.cells.state[cell] == CREATING:
            return False
        for d in range(width):
            if w.k.alloc[cls, d] != w.k.alloc[size, d]:
                return False
        w.tmp.cell[k] = cell
        w.tmp.n[k] = w.cells.count[cell]
    for entry in range(first, end):
        if w.e.kind[entry] != PLAIN or w.p.con[w.e.prof[entry]] != con:
            return False
        part = w.e.part[entry]
        for d in range(width):
            # An amount that no machine has any of: it stays, whatever else is taken.
            if w.parts.agg[part, d] > 0 and w.k.alloc[size, d] <= w.c.overhead[cluster, d]:
                return False
    return True


@inner
def _wanted(w: World, size: int, cluster: int, part: int) -> int:
    """How many machines of the size hold the part; below zero if they do not hold its smallest unit."""
    wanted = 0
    sign = 1
    for d in range(w.parts.agg.shape[1]):
        have = w.k.alloc[size, d] - w.c.overhead[cluster, d]
        unit = w.parts.unit[part, d]
        if unit > 0 and unit > have:
            sign = _TOO_LARGE
        rest = w.parts.agg[part, d]
        if rest > 0:
            wanted = max(wanted, (rest + have - 1) // have)
    return wanted * sign


@inner
def _write(w: World, size: int, cluster: int, entry: int, claimed: int) -> None:
    """An entry with so many machines credited, and nothing else."""
    w.e.claimed[entry] = claimed
    w.e.late[entry] = 0
    w.e.boots[entry] = 0
    w.e.provisions[entry] = 0
    w.e.domain[entry] = -1
    w.e.flags[entry] &= FOLDED
    part = w.e.part[entry]
    for d in range(w.parts.agg.shape[1]):
        rest = w.parts.agg[part, d]
        if rest > 0:
            rest = max(0, rest - claimed * (w.k.alloc[size, d] - w.c.overhead[cluster, d]))
        w.parts.credit[part, d] = rest


@inner
def _close(w: World, owner: int, used: int, first: int, before: int, k: int, here: int) -> None:
    """Cells before the k-th were used up, and of that one `here` machines are left; counts what is Configured.

    Before the first there are so many Configured machines, in cells that are as they were.
    """
    excess = 0
    configured = before
    for i in range(first, used):
        cell = w.tmp.cell[i]
        count = w.tmp.n[i]
        taken = count if i < k else count - here if i == k else 0
        # Most are as they were, and a line that is not written to need not go back to memory.
        if w.cells.taken[cell] != taken:
            w.cells.taken[cell] = taken
        if w.cells.flags[cell] & NEW:
            w.cells.flags[cell] &= ~NEW & 0xFF
        if w.cells.state[cell] == CONFIGURED:
            configured += count
            excess += count - taken
    w.owners.excess[owner] = excess
    w.owners.configured[owner] = configured
