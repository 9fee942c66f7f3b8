"""Taking from blocks, and the credit an entry gets from what its cluster already has (`docs/engine.md` §3).

Crediting touches one cluster only, so clusters are credited one after the other, whatever order their entries have
across clusters. Where that is not true (a gang that must look at free supply, Creating machines without a cluster) the
cluster's crediting stops and the shard-wide pass goes on from there.
"""

from __future__ import annotations

from bigfleet.engine.catalog.stamps import find_pair
from bigfleet.engine.decide.world import CELLS_USED, LISTS_USED, LOG_USED, Log, World
from bigfleet.engine.demand.rows import FOLDED
from bigfleet.engine.fleet.cells import CREATING, NEW, OWNER_CREATING
from bigfleet.engine.kernels.ids import id_less
from bigfleet.engine.kernels.jit import I8M, inner

# So many machines of the largest allocatable can be added up.
_FEW = 1_048_576
# How crediting a plain row ends.
SHORT, DONE, DONE_LATE = 0, 1, 2


@inner
def begin_entry(w: World, log: Log, left: I8M, entry: int) -> None:
    """An entry starts with nothing claimed and everything left."""
    w.e.claimed[entry] = 0
    w.e.late[entry] = 0
    w.e.boots[entry] = 0
    w.e.provisions[entry] = 0
    w.e.domain[entry] = -1
    w.e.flags[entry] &= FOLDED
    w.e.log[entry] = log.meta[LOG_USED]
    w.e.logged[entry] = 0
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        for d in range(w.parts.agg.shape[1]):
            left[part, d] = w.parts.agg[part, d]


@inner
def take(alloc: I8M, cls: int, overhead: I8M, cluster: int, unit: I8M, left: I8M, part: int, available: int) -> int:
    """How many machines of a block a part takes; what they hold is subtracted from what is left."""
    wanted = 0
    width = left.shape[1]
    for d in range(width):
        have = alloc[cls, d] - overhead[cluster, d]
        if unit[part, d] > 0 and unit[part, d] > have:
            return 0
        rest = left[part, d]
        if rest > 0 and have > 0:
            # Dividing is what costs, and the block is often used up or one machine enough.
            if rest <= have:
                n = 1
            elif available <= _FEW and rest > have * (available - 1):
                n = available
            else:
                n = (rest + have - 1) // have
            if n > wanted:
                wanted = n
    if wanted == 0:
        return 0
    n = min(wanted, available)
    for d in range(width):
        have = alloc[cls, d] - overhead[cluster, d]
        if left[part, d] > 0 and have > 0:
            left[part, d] = max(0, left[part, d] - n * have)
    return n


@inner
def useful(alloc: I8M, cls: int, overhead: I8M, cluster: int, left: I8M, part: int) -> bool:
    """Whether a machine of the class still helps the part."""
    for d in range(left.shape[1]):
        if left[part, d] > 0 and alloc[cls, d] > overhead[cluster, d]:
            return True
    return False


@inner
def fits(alloc: I8M, cls: int, overhead: I8M, cluster: int, unit: I8M, part: int) -> bool:
    """Whether one machine of the class holds the part's smallest unit."""
    for d in range(unit.shape[1]):
        if unit[part, d] > 0 and unit[part, d] > alloc[cls, d] - overhead[cluster, d]:
            return False
    return True


@inner
def anything(left: I8M, part: int) -> bool:
    for d in range(left.shape[1]):
        if left[part, d] > 0:
            return True
    return False


@inner
def note(log: Log, entry: int, cell: int, n: int) -> None:
    at = log.meta[LOG_USED]
    log.entry[at] = entry
    log.cell[at] = cell
    log.n[at] = n
    log.meta[LOG_USED] = at + 1


@inner
def log_room(w: World, log: Log, entry: int) -> bool:
    """Whether one entry's credit can be noted whatever it takes."""
    owner = w.e.unit[entry]
    most = (w.owners.used[owner] + w.owners.used[OWNER_CREATING]) * w.e.parts[entry]
    return log.meta[LOG_USED] + most <= len(log.cell)


@inner
def make_list(w: World, con: int, mark: int, held: int, count: int) -> bool:
    """The chain of a unit's bound cells that match a constraint set; False when there is no room."""
    lists = w.lists
    number = lists.meta[LISTS_USED]
    at = lists.meta[CELLS_USED]
    if number >= len(lists.head) or at + count > len(lists.cell):
        return False
    lists.con_mark[con] = mark
    lists.con_list[con] = number
    first = at
    for k in range(held, held + count):
        cell = w.held.data[k]
        if w.match[con, w.cells.cls[cell]] != 0:
            lists.cell[at] = cell
            lists.next[at] = at + 1
            at += 1
    if at > first:
        lists.next[at - 1] = -1
    lists.head[number] = first if at > first else -1
    lists.meta[LISTS_USED] = number + 1
    lists.meta[CELLS_USED] = at
    return True


@inner
def replay(w: World, entry: int, chain: int) -> bool:
    """Credits a settled entry with what it had, if going through its chain again would come to that.

    It would if the first cells with machines are those of its log, in order: all but the last are used up exactly as
    before, and the last has enough. Otherwise nothing is done.
    """
    first = w.e.log[entry]
    last = first + w.e.logged[entry]
    used = w.log.meta[LOG_USED]
    if used + last - first > len(w.log.cell):
        return False
    cells = w.cells
    lists = w.lists
    at = lists.head[chain]
    for i in range(first, last):
        while at >= 0 and cells.count[lists.cell[at]] == cells.taken[lists.cell[at]]:
            at = lists.next[at]
        if i == first:
            lists.head[chain] = at
        if at < 0:
            return False
        cell = lists.cell[at]
        # A cell made since may have the number of one that is gone.
        if cell != w.log.cell[i] or cells.flags[cell] & NEW:
            return False
        available = cells.count[cell] - cells.taken[cell]
        if i + 1 < last:
            if available != w.log.n[i]:
                return False
            at = lists.next[at]
        elif available < w.log.n[i]:
            return False
    for i in range(first, last):
        cell = w.log.cell[i]
        n = w.log.n[i]
        cells.taken[cell] += n
        w.log.entry[used] = entry
        w.log.cell[used] = cell
        w.log.n[used] = n
        used += 1
    w.e.log[entry] = w.log.meta[LOG_USED]
    w.log.meta[LOG_USED] = used
    return True


@inner
def attribution(w: World, entry: int) -> int:
    """The attribution pair of the entry's own fingerprint and group, or -1 if no machine ever carried it."""
    return find_pair(w.pairs.table, w.pairs.fingerprint, w.pairs.group, w.p.text[w.e.prof[entry]], w.e.group[entry])


@inner
def creating_cells(w: World, entry: int, nameless: bool) -> int:
    """Creating cells attributed to a plain or spread entry, in Creating order, into `tmp.cell`; returns how many."""
    cluster = w.e.cluster[entry]
    owner = w.e.unit[entry]
    found = 0
    last = (w.owners.start[owner] + w.owners.used[owner]) - 1
    named = w.owners.used[owner] > 0 and w.cells.state[w.held.data[last]] == CREATING
    if not named and not (nameless and w.owners.used[OWNER_CREATING] > 0):
        return 0
    prof = w.e.prof[entry]
    pair = attribution(w, entry)
    if pair >= 0:
        found = pair_cells(w, pair, cluster, nameless, found)
    if w.e.flags[entry] & FOLDED:
        # Its gangs' own attributions count too.
        part = w.e.part[entry]
        start = w.c.start[cluster]
        end = start + w.c.rows[cluster]
        width = w.rows.agg.shape[1]
        i = start
        while i < end:
            gang = w.rows.prof[i]
            j = i + 1
            if w.rows.fold[i] != 0 and w.p.folded[gang] == prof:
                for d in range(width):
                    w.tmp.want[d] = w.rows.agg[i, d]
                while j < end and w.rows.prof[j] == gang and w.rows.group[j] == w.rows.group[i]:
                    for d in range(width):
                        w.tmp.want[d] += w.rows.agg[j, d]
                    j += 1
                equal = True
                for d in range(width):
                    if w.tmp.want[d] != w.parts.unit[part, d]:
                        equal = False
                if equal:
                    pair = find_pair(w.pairs.table, w.pairs.fingerprint, w.pairs.group, w.p.text[gang], w.rows.group[i])
                    if pair >= 0:
                        found = pair_cells(w, pair, cluster, nameless, found)
            i = j
    return found


@inner
def pair_cells(w: World, pair: int, cluster: int, nameless: bool, found: int) -> int:
    """Adds an attribution's Creating cells to `tmp.cell`, keeping Creating order."""
    cell = w.pairs.head[pair]
    while cell >= 0:
        theirs = w.cells.cluster[cell]
        if w.cells.count[cell] > 0 and (theirs == cluster or (theirs < 0 and nameless)):
            at = found
            while at > 0:
                other = w.tmp.cell[at - 1]
                if theirs == w.cells.cluster[other]:
                    before = id_less(w.ids, w.cells.least[cell], w.cells.least[other])
                else:
                    before = theirs == cluster
                if not before:
                    break
                w.tmp.cell[at] = other
                at -= 1
            w.tmp.cell[at] = cell
            found += 1
        cell = w.cells.next[cell]
    return found


@inner
def credit_plain(w: World, log: Log, left: I8M, entry: int, nameless: bool) -> int:
    """Credits a plain row: SHORT, DONE, or DONE_LATE if it took Creating machines for that."""
    cluster = w.e.cluster[entry]
    part = w.e.part[entry]
    if not anything(left, part):
        return DONE
    cells_of = w.lists.cell
    next_of = w.lists.next
    taken = w.cells.taken
    counts = w.cells.count
    chain = w.e.list[entry]
    before = -1
    at = w.lists.head[chain]
    claimed = 0
    noted = log.meta[LOG_USED]
    while at >= 0:
        cell = cells_of[at]
        available = counts[cell] - taken[cell]
        after = next_of[at]
        if available == 0:
            # Used up for everybody: later entries of this constraint set need not see it.
            if before < 0:
                w.lists.head[chain] = after
            else:
                next_of[before] = after
            at = after
            continue
        n = take(w.k.alloc, w.cells.cls[cell], w.c.overhead, cluster, w.parts.unit, left, part, available)
        if n > 0:
            taken[cell] += n
            claimed += n
            log.entry[noted] = entry
            log.cell[noted] = cell
            log.n[noted] = n
            noted += 1
            if not anything(left, part):
                w.e.claimed[entry] = claimed
                log.meta[LOG_USED] = noted
                return DONE
        before = at
        at = after
    w.e.claimed[entry] = claimed
    log.meta[LOG_USED] = noted
    found = creating_cells(w, entry, nameless)
    con = w.p.con[w.e.prof[entry]]
    for i in range(found):
        cell = w.tmp.cell[i]
        available = counts[cell] - taken[cell]
        if available == 0 or w.match[con, w.cells.cls[cell]] == 0:
            continue
        n = take(w.k.alloc, w.cells.cls[cell], w.c.overhead, cluster, w.parts.unit, left, part, available)
        if n > 0:
            taken[cell] += n
            w.e.claimed[entry] += n
            note(log, entry, cell, n)
            if not anything(left, part):
                return DONE_LATE
    return SHORT
