"""Lots: machines with equal room left, and placing units on them (P13 to P15).

A lot is whole until units are placed on it; the machines that got some leave it as remainders, of which a cluster keeps
a limited number open. What a trial did can be taken back: while one runs, every change is noted in a journal.
"""

from __future__ import annotations

from bigfleet.engine.counted.book import (
    CHAIN,
    COMING,
    FOUND,
    FULL,
    JOURNAL,
    LOOSE,
    LOTS,
    MOST_TOKENS,
    REMAINDER,
    TOKENS,
    TRIAL,
    Book,
    PlacementRules,
)
from bigfleet.engine.counted.worth import deficit, fits, matches, risky, room_into, takes
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import SPREAD
from bigfleet.engine.kernels.ids import id_less
from bigfleet.engine.kernels.jit import inner
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting

# Which lots to look at.
REMAINDERS, WHOLE = 1, 2
# Kinds of journal records: a lot's members and whether it is closed; what a portion got, and until when; claims of a
# block, of a cell; machines the second pass dropped.
_LOT, _PORTION, _BLOCK, _CELL, _UNTIL, _DROPPED = 0, 1, 2, 3, 4, 5


@inner
def note(b: Book, kind: int, a: int, x: int, y: int, z: int) -> None:
    """Remembers how something was, while a trial runs."""
    if b.meta[TRIAL] == 0:
        return
    at = b.meta[JOURNAL]
    b.s.kind[at] = kind
    b.s.a[at] = a
    b.s.b[at] = x
    b.s.c[at] = y
    b.s.d[at] = z
    b.meta[JOURNAL] = at + 1


@inner
def note_lot(b: Book, lot: int) -> None:
    note(b, _LOT, lot, b.lots.first[lot], b.lots.n[lot], b.lots.closed[lot])


@inner
def note_portion(b: Book, q: int) -> None:
    note(b, _PORTION, q, b.q.coming[q], b.q.acquired[q], b.q.awaiting[q])
    note(b, _UNTIL, q, b.q.until[q], 0, 0)


@inner
def note_block(b: Book, block: int) -> None:
    note(b, _BLOCK, block, b.blocks.taken[block], 0, 0)


@inner
def note_cell(w: World, b: Book, cell: int) -> None:
    note(b, _CELL, cell, w.cells.taken[cell], 0, 0)


@inner
def note_dropped(b: Book, place: int) -> None:
    note(b, _DROPPED, place, b.dropped_cell[place], 0, 0)


@inner
def begin_trial(b: Book) -> None:
    b.meta[TRIAL] = 1
    b.meta[JOURNAL] = 0
    b.meta[CHAIN] = b.meta[TOKENS]


@inner
def undo(w: World, b: Book, cluster: int, lots: int, remainders: int) -> None:
    """Goes back to where a trial began: so many lots, the cluster's remainders from there on. The trial is over."""
    for i in range(b.meta[JOURNAL] - 1, -1, -1):
        a = b.s.a[i]
        kind = b.s.kind[i]
        if kind == _LOT:
            b.lots.first[a] = b.s.b[i]
            b.lots.n[a] = b.s.c[i]
            b.lots.closed[a] = b.s.d[i]
        elif kind == _PORTION:
            b.q.coming[a] = b.s.b[i]
            b.q.acquired[a] = b.s.c[i]
            b.q.awaiting[a] = b.s.d[i]
        elif kind == _UNTIL:
            b.q.until[a] = b.s.b[i]
        elif kind == _BLOCK:
            b.blocks.taken[a] = b.s.b[i]
        elif kind == _DROPPED:
            b.dropped_cell[a] = b.s.b[i]
        else:
            w.cells.taken[a] = b.s.b[i]
    b.meta[JOURNAL] = 0
    b.meta[TRIAL] = 0
    b.meta[TOKENS] = b.meta[CHAIN]
    b.meta[LOTS] = lots
    b.remainders[cluster] = remainders
    b.opened[cluster] = -1


@inner
def no_room(b: Book) -> bool:
    """Whether the next placement might find a column full; whoever asks stops and goes on when there is more room."""
    if (
        b.meta[LOTS] + 4 > len(b.lots.cls)
        or b.meta[LOTS] + 4 > len(b.s.lot)
        or b.meta[JOURNAL] + 16 > len(b.s.kind)
        or b.meta[TOKENS] + b.meta[MOST_TOKENS] > len(b.token)
    ):
        b.meta[FULL] = 1
        return True
    return False


@inner
def usable(w: World, b: Book, rules: PlacementRules, t: int, q: int, which: int, key: int, dom: int) -> int:
    """Lots that hold a unit of a portion, in the order in which they are used, in `s.lot`; how many."""
    cluster = b.t.cluster[t]
    found = 0
    if which & REMAINDERS and _may_fit(b, cluster, q):
        width = b.lots.left.shape[1]
        for d in range(width):
            b.s.left[1, d] = 0
        before = -1
        at = b.remainders[cluster]
        while at >= 0:
            after = b.lots.next[at]
            if (b.lots.closed[at] != 0 or b.lots.n[at] == 0) and b.meta[TRIAL] == 0:
                # Nobody uses it again; while a trial runs it may come back.
                if before < 0:
                    b.remainders[cluster] = after
                else:
                    b.lots.next[before] = after
            else:
                for d in range(width):
                    b.s.left[1, d] = max(b.s.left[1, d], b.lots.left[at, d])
                found = _look(w, b, rules, t, q, at, key, dom, found)
                before = at
            at = after
        for d in range(width):
            b.most_left[cluster, d] = b.s.left[1, d]
    if which & WHOLE:
        at = b.whole[cluster]
        while at >= 0:
            found = _look(w, b, rules, t, q, at, key, dom, found)
            at = b.lots.next[at]
        at = b.meta[LOOSE]
        while at >= 0:
            if b.lots.n[at] > 0:
                room_into(w, b, cluster, b.lots.cls[at], b.lots.left, at)
                found = _look(w, b, rules, t, q, at, key, dom, found)
            at = b.lots.next[at]
    sort = sorting(0, found)
    while asks(sort, b.s.lot):
        sort[ANSWER] = _earlier(w, b, sort[LATER], sort[EARLIER])
    b.meta[FOUND] = found
    return found


@inner
def _may_fit(b: Book, cluster: int, q: int) -> bool:
    """Whether some remainder could hold a unit: most are left because nothing fits them any more."""
    for d in range(b.q.unit.shape[1]):
        if b.q.unit[q, d] > b.most_left[cluster, d]:
            return False
    return True


@inner
def _look(w: World, b: Book, rules: PlacementRules, t: int, q: int, lot: int, key: int, dom: int, found: int) -> int:
    """Adds a lot to those found if it holds a unit."""
    cls = b.lots.cls[lot]
    if b.lots.n[lot] == 0 or b.lots.closed[lot] != 0 or not matches(w, b, t, cls):
        return found
    if b.lots.own[lot] >= 0 and b.lots.own[lot] != t:
        return found
    if b.lots.devices[lot] != 0 and b.q.device[q] == 0:
        return found
    if key >= 0 and w.k.dom[cls, key] != dom:
        return found
    most = fits(b, b.lots.left, lot, b.lots.token[lot], q, cls)
    if most == 0 or risky(w, b, rules, t, q, cls):
        return found
    b.lots.fits[lot] = most
    b.s.lot[found] = lot
    return found + 1


@inner
def _earlier(w: World, b: Book, x: int, y: int) -> bool:
    if b.lots.rank[x] != b.lots.rank[y]:
        return bool(b.lots.rank[x] < b.lots.rank[y])
    if b.lots.fits[x] != b.lots.fits[y]:
        return bool(b.lots.fits[x] < b.lots.fits[y])
    return id_less(w.ids, b.machine[b.lots.first[x]], b.machine[b.lots.first[y]])


@inner
def place(w: World, b: Book, rules: PlacementRules, t: int, q: int, which: int, key: int, dom: int) -> None:
    """Places as much of a portion's deficit as there is room for (P14)."""
    if deficit(b, q) == 0:
        return
    found = usable(w, b, rules, t, q, which, key, dom)
    for i in range(found):
        lot = b.s.lot[i]
        wanted = deficit(b, q)
        if wanted == 0:
            return
        if b.lots.n[lot] > 0 and b.lots.closed[lot] == 0:
            if no_room(b):
                return
            put(w, b, rules, t, q, lot, wanted)


@inner
def put(w: World, b: Book, rules: PlacementRules, t: int, q: int, lot: int, units: int) -> int:
    """Places up to so many units on one lot, machine after machine in id order; how many machines got some (P13)."""
    cls = b.lots.cls[lot]
    most = fits(b, b.lots.left, lot, b.lots.token[lot], q, cls)
    n = b.lots.n[lot]
    full = min(n, units // most)
    rest = units - full * most if full < n else 0
    note_lot(b, lot)
    note_portion(b, q)
    first = b.lots.first[lot]
    used = full + (1 if rest > 0 else 0)
    b.lots.first[lot] = first + used
    b.lots.n[lot] = n - used
    if b.lots.rank[lot] == REMAINDER:
        b.opened[b.lots.cluster[lot]] = -1
    _got(b, q, b.lots.source[lot], full * most + rest, b.lots.until[lot])
    if full > 0:
        _open_part(w, b, rules, t, q, lot, first, full, most)
    if rest > 0:
        _open_part(w, b, rules, t, q, lot, first + full, 1, rest)
    if b.t.kind[t] == SPREAD:
        b.s.count[w.k.dom[cls, b.t.key[t]]] += full * most + rest
    return used


@inner
def _got(b: Book, q: int, source: int, units: int, until: int) -> None:
    if source == COMING:
        b.q.coming[q] += units
        if units > 0:
            b.q.until[q] = max(b.q.until[q], until)
    elif source == 1:
        b.q.acquired[q] += units
    else:
        b.q.awaiting[q] += units


@inner
def _open_part(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, lot: int, first: int, n: int, units: int
) -> None:
    """Machines that got so many units each leave their lot as a remainder."""
    new = new_lot(b, b.lots.cls[lot], b.t.cluster[t], REMAINDER, b.lots.source[lot], b.lots.until[lot], first, n)
    for d in range(b.lots.left.shape[1]):
        have = b.lots.left[lot, d]
        b.lots.left[new, d] = max(0, have - units * takes(b, q, b.lots.cls[lot], d)) if have > 0 else 0
    b.lots.token[new] = joined(b, b.lots.token[lot], q)
    b.lots.devices[new] = b.lots.devices[lot] | is_for_devices(b, b.lots.cls[lot], q)
    open_remainder(w, b, rules, new)


@inner
def is_for_devices(b: Book, cls: int, q: int) -> int:
    """Whether a machine of the class with a unit of the portion is for units with devices only (P13)."""
    return b.kinds.device[cls] & b.q.device[q]


@inner
def joined(b: Book, token: int, q: int) -> int:
    """The tokens of a chain and of a portion."""
    mine = b.q.token[q]
    while mine >= 0:
        at = b.meta[TOKENS]
        b.meta[TOKENS] = at + 1
        b.token[at] = b.token[mine]
        b.token_next[at] = token
        token = at
        mine = b.token_next[mine]
    return token


@inner
def new_lot(b: Book, cls: int, cluster: int, rank: int, source: int, until: int, first: int, n: int) -> int:
    lot = b.meta[LOTS]
    b.meta[LOTS] = lot + 1
    b.lots.cls[lot] = cls
    b.lots.cluster[lot] = cluster
    b.lots.rank[lot] = rank
    b.lots.source[lot] = source
    b.lots.until[lot] = until
    b.lots.first[lot] = first
    b.lots.n[lot] = n
    b.lots.token[lot] = -1
    b.lots.closed[lot] = 0
    b.lots.next[lot] = -1
    b.lots.own[lot] = -1
    b.lots.devices[lot] = 0
    return lot


@inner
def open_remainder(w: World, b: Book, rules: PlacementRules, lot: int) -> None:
    """A further remainder of its cluster; beyond the limit the one with the least slack closes (P15)."""
    cluster = b.lots.cluster[lot]
    slack = -1
    room_into(w, b, cluster, b.lots.cls[lot], b.s.left, 1)
    for d in range(b.lots.left.shape[1]):
        have = b.s.left[1, d]
        if have > 0:
            here = b.lots.left[lot, d] * 1000 // have
            if slack < 0 or here < slack:
                slack = here
    b.lots.slack[lot] = max(0, slack)
    if b.opened[cluster] < 0:
        _count_open(w, b, cluster)
    if b.opened[cluster] >= rules.remainders:
        worst = b.worst[cluster]
        if worst < 0 or _closes_first(w, b, lot, worst):
            # Nobody ever sees it open; the others stay as they are.
            b.lots.closed[lot] = 1
            return
        note_lot(b, worst)
        b.lots.closed[worst] = 1
        b.opened[cluster] = -1
    else:
        b.opened[cluster] += 1
        if b.worst[cluster] < 0 or _closes_first(w, b, lot, b.worst[cluster]):
            b.worst[cluster] = lot
    for d in range(b.lots.left.shape[1]):
        b.most_left[cluster, d] = max(b.most_left[cluster, d], b.lots.left[lot, d])
    b.lots.next[lot] = b.remainders[cluster]
    b.remainders[cluster] = lot


@inner
def _closes_first(w: World, b: Book, x: int, y: int) -> bool:
    """The one with less slack, then the one with the larger id."""
    if b.lots.slack[x] != b.lots.slack[y]:
        return bool(b.lots.slack[x] < b.lots.slack[y])
    return id_less(w.ids, b.machine[b.lots.first[y]], b.machine[b.lots.first[x]])


@inner
def _count_open(w: World, b: Book, cluster: int) -> None:
    """How many remainders of a cluster are open, and which of them closes first."""
    count = 0
    worst = -1
    before = -1
    at = b.remainders[cluster]
    while at >= 0:
        after = b.lots.next[at]
        if b.lots.closed[at] == 0 and b.lots.n[at] > 0:
            before = at
            count += 1
            if worst < 0 or _closes_first(w, b, at, worst):
                worst = at
        elif b.meta[TRIAL] == 0 and before >= 0:
            # Nobody uses it again, as in `usable`.
            b.lots.next[before] = after
        else:
            before = at
        at = after
    b.opened[cluster] = count
    b.worst[cluster] = worst
