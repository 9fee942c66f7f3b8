"""Free supply in order: Idle by price, Speculative by effective cost, filtered per constraint set on first use."""

from __future__ import annotations

from bigfleet.engine.decide.credit import anything, take
from bigfleet.engine.decide.world import CELLS_USED, LISTS_USED, World
from bigfleet.engine.fleet.cells import FIRST_UNIT, IDLE, OWNER_IDLE, OWNER_SPECULATIVE
from bigfleet.engine.kernels.jit import I8M, inner
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting

# Places in `Free.meta`: constraint sets that have a list, a spread row stopped on its way, and how many stay short.
_TOUCHED, SPREADING, SHORTS = 0, 1, 2


@inner
def reset_free(w: World) -> None:
    """Nothing free is claimed and no list of free cells exists at the beginning of a pass."""
    for owner in range(FIRST_UNIT):
        for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
            w.cells.taken[w.held.data[k]] = 0
    for i in range(w.free.meta[_TOUCHED]):
        con = w.free.cons[i]
        w.free.idle[con] = -1
        for bucket in range(w.free.speculative.shape[1]):
            w.free.speculative[con, bucket] = -1
    for bucket in range(len(w.free.ready)):
        w.free.ready[bucket] = 0
    w.free.meta[_TOUCHED] = 0
    w.free.meta[SPREADING] = 0
    w.free.meta[SHORTS] = 0


@inner
def free_room(w: World) -> bool:
    """Whether an entry's two lists can still be made, and its takes noted."""
    cells = w.owners.used[OWNER_IDLE] + w.owners.used[OWNER_SPECULATIVE]
    return (
        w.lists.meta[CELLS_USED] + cells <= len(w.lists.cell)
        and w.lists.meta[LISTS_USED] + 2 <= len(w.lists.head)
        and w.free.meta[_TOUCHED] + 2 <= len(w.free.cons)
    )


@inner
def idle_list(w: World, prof: int) -> int:
    """The chain of matching Idle cells in Idle order."""
    con = w.p.con[prof]
    if w.free.idle[con] >= 0:
        return w.free.idle[con]
    number = _new_list(w, con)
    w.free.idle[con] = number
    start = w.owners.start[OWNER_IDLE]
    last = -1
    at = w.lists.meta[CELLS_USED]
    for k in range(start, start + w.owners.used[OWNER_IDLE]):
        cell = w.held.data[k]
        if w.match[con, w.cells.cls[cell]] != 0:
            _append(w, number, last, at, cell)
            last = at
            at += 1
    w.lists.meta[CELLS_USED] = at
    return number


# Fills its chain as `idle_list` does, from another order and with another filter: kernels have no generators.
@inner
def speculative_list(w: World, prof: int) -> int:
    """The chain of matching Speculative cells in buying order for the profile's penalty."""
    con = w.p.con[prof]
    bucket = w.p.interruption[prof]
    if w.free.speculative[con, bucket] >= 0:
        return w.free.speculative[con, bucket]
    number = _new_list(w, con)
    w.free.speculative[con, bucket] = number
    if w.free.ready[bucket] == 0:
        _order_speculative(w, bucket, w.p.interruption_dollars[prof])
    last = -1
    at = w.lists.meta[CELLS_USED]
    for k in range(w.owners.used[OWNER_SPECULATIVE]):
        cell = w.free.order[bucket, k]
        cls = w.cells.cls[cell]
        if w.match[con, cls] != 0 and w.k.broken[cls] == 0:
            _append(w, number, last, at, cell)
            last = at
            at += 1
    w.lists.meta[CELLS_USED] = at
    return number


@inner
def _new_list(w: World, con: int) -> int:
    number = w.lists.meta[LISTS_USED]
    w.lists.meta[LISTS_USED] = number + 1
    w.lists.head[number] = -1
    w.free.cons[w.free.meta[_TOUCHED]] = con
    w.free.meta[_TOUCHED] += 1
    return number


@inner
def _append(w: World, number: int, last: int, at: int, cell: int) -> None:
    w.lists.cell[at] = cell
    w.lists.next[at] = -1
    if last < 0:
        w.lists.head[number] = at
    else:
        w.lists.next[last] = at


@inner
def _order_speculative(w: World, bucket: int, dollars: float) -> None:
    """Cells by effective cost; among equal costs the owner's order (price, smallest id) stays."""
    start = w.owners.start[OWNER_SPECULATIVE]
    count = w.owners.used[OWNER_SPECULATIVE]
    order = w.free.order
    cost = w.free.cost
    risky = False
    for k in range(count):
        cls = w.cells.cls[w.held.data[start + k]]
        cost[k] = w.k.price[cls]
        if w.k.risk[cls] > 0.0 and dollars > 0.0:
            cost[k] += w.k.risk[cls] * dollars
            risky = True
        order[bucket, k] = k
    if risky:
        sort = sorting(0, count)
        while asks(sort, order[bucket]):
            sort[ANSWER] = cost[sort[LATER]] < cost[sort[EARLIER]]
    for k in range(count):
        order[bucket, k] = w.held.data[start + order[bucket, k]]
    w.free.ready[bucket] = 1


@inner
def buy(w: World, entry: int, cell: int, n: int) -> None:
    """Claims free machines: the next `n` members of the cell."""
    first = w.cells.taken[cell]
    w.cells.taken[cell] = first + n
    at = w.got.meta[0]
    w.got.entry[at] = entry
    w.got.cell[at] = cell
    w.got.first[at] = first
    w.got.n[at] = n
    w.got.meta[0] = at + 1
    if w.cells.state[cell] == IDLE:
        w.e.boots[entry] += n
    else:
        w.e.provisions[entry] += n


@inner
def acquire_from(w: World, left: I8M, entry: int, part: int, chain: int, key: int, dom: int) -> bool:
    """Takes from a chain of free cells, in one domain if `key` is a column; True when nothing is left."""
    cluster = w.e.cluster[entry]
    before = -1
    at = w.lists.head[chain]
    while at >= 0:
        cell = w.lists.cell[at]
        after = w.lists.next[at]
        available = w.cells.count[cell] - w.cells.taken[cell]
        if available == 0:
            if before < 0:
                w.lists.head[chain] = after
            else:
                w.lists.next[before] = after
            at = after
            continue
        cls = w.cells.cls[cell]
        if key < 0 or w.k.dom[cls, key] == dom:
            n = take(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, left, part, available)
            if n > 0:
                buy(w, entry, cell, n)
                if not anything(left, part):
                    return True
        before = at
        at = after
    return False
