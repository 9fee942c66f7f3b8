"""Taking from blocks, and the credit an entry gets from what its cluster already has (`docs/engine.md` §3).

Crediting touches one cluster only, so clusters are credited one after the other, whatever order their entries have
across clusters. Where that is not true (a gang that must look at free supply, Creating machines without a cluster) the
cluster's crediting stops and the shard-wide pass goes on from there.
"""

from __future__ import annotations

from bigfleet.engine.catalog import find_pair
from bigfleet.engine.cells import CREATING, OWNER_CREATING
from bigfleet.engine.ids import id_less
from bigfleet.engine.jit import I8M, inner
from bigfleet.engine.rows import FOLDED
from bigfleet.engine.world import CELLS_USED, LISTS_USED, LOG_USED, Log, World


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
def make_lists(w: World, owner: int) -> bool:
    """Chains of a unit's bound cells for each constraint set its entries have; False when there is no room."""
    held = w.owners.start[owner]
    count = w.owners.used[owner]
    start = w.owners.entry[owner]
    lists = w.lists
    lists.meta[2] += 1
    mark = lists.meta[2]
    # Cells being made are not in the chains: they serve by attribution.
    while count > 0 and w.cells.state[w.held.data[held + count - 1]] == CREATING:
        count -= 1
    for entry in range(start, start + w.owners.entries[owner]):
        con = w.p.con[w.e.prof[entry]]
        if lists.con_mark[con] != mark:
            number = lists.meta[LISTS_USED]
            at = lists.meta[CELLS_USED]
            if number >= len(lists.head) or at + count > len(lists.cell):
                return False
            lists.con_mark[con] = mark
            lists.con_list[con] = number
            first = -1
            last = -1
            for k in range(held, held + count):
                cell = w.held.data[k]
                if w.match[con, w.cells.cls[cell]] != 0:
                    lists.cell[at] = cell
                    lists.next[at] = -1
                    if last >= 0:
                        lists.next[last] = at
                    else:
                        first = at
                    last = at
                    at += 1
            lists.head[number] = first
            lists.meta[LISTS_USED] = number + 1
            lists.meta[CELLS_USED] = at
        w.e.list[entry] = lists.con_list[con]
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
def credit_plain(w: World, log: Log, left: I8M, entry: int, nameless: bool) -> bool:
    """Credits a plain row; True when nothing is left."""
    cluster = w.e.cluster[entry]
    part = w.e.part[entry]
    if not anything(left, part):
        return True
    cells_of = w.lists.cell
    next_of = w.lists.next
    taken = w.cells.taken
    counts = w.cells.count
    chain = w.e.list[entry]
    before = -1
    at = w.lists.head[chain]
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
            w.e.claimed[entry] += n
            note(log, entry, cell, n)
            if not anything(left, part):
                return True
        before = at
        at = after
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
                return True
    return False
