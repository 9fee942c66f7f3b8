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


@inner
def credit_alike(w: World, owner: int) -> bool:
    """Credits a unit by counting; False, and nothing is done, where that is not enough."""
    owners = w.owners
    used = owners.used[owner]
    start = owners.entry[owner]
    end = start + owners.entries[owner]
    if used == 0 or start == end or not _are_alike(w, owner, used, start, end):
        return False
    most = used + end - start
    base = owners.log[owner]
    in_place = most <= owners.room[owner]
    if not in_place:
        base = w.log.meta[LOG_USED]
        if base + most > len(w.log.cell):
            return False
    size = w.cells.cls[w.tmp.cell[0]]
    cluster = owners.cluster[owner]
    at = base
    pending = 0
    # The cell that machines are taken from, and how many are left in it.
    k = 0
    here = w.tmp.n[0]
    for entry in range(start, end):
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
    owners.stall[owner] = -1
    owners.timed[owner] = 0
    owners.pending[owner] = pending
    owners.logged[owner] = at - base
    if not in_place:
        w.log.meta[LOG_USED] = at
        keep_log(w, owner, base, start, end)
    _close(w, owner, used, k, here)
    return True


@inner
def _are_alike(w: World, owner: int, used: int, start: int, end: int) -> bool:
    """Whether the unit's rows are plain ones that all its machines match, and its machines bound and of one size.

    Lists its cells and how many machines each has.
    """
    con = w.p.con[w.e.prof[start]]
    cluster = w.owners.cluster[owner]
    width = w.parts.agg.shape[1]
    held = w.owners.start[owner]
    size = w.cells.cls[w.held.data[held]]
    for k in range(used):
        cell = w.held.data[held + k]
        cls = w.cells.cls[cell]
        if w.match[con, cls] == 0 or w.cells.state[cell] == CREATING:
            return False
        for d in range(width):
            if w.k.alloc[cls, d] != w.k.alloc[size, d]:
                return False
        w.tmp.cell[k] = cell
        w.tmp.n[k] = w.cells.count[cell]
    for entry in range(start, end):
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
def _close(w: World, owner: int, used: int, k: int, here: int) -> None:
    """Cells before the k-th were used up, and of that one `here` machines are left; counts what is Configured."""
    excess = 0
    configured = 0
    for i in range(used):
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
