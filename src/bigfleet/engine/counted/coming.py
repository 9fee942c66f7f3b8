"""Coming: units placed on what is under way to their cluster, before anything is taken for them (P16, P27, P29)."""

from __future__ import annotations

from bigfleet.engine.counted.book import DOMAINS, FULL, LOTS, Book, PlacementRules
from bigfleet.engine.counted.domains import begin_domains, fewest, include, load, may_take, save, touch
from bigfleet.engine.counted.lots import REMAINDERS, WHOLE, begin_trial, no_room, place, put, undo, usable
from bigfleet.engine.counted.worth import deficit, fits, matches, room_into
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, SPREAD
from bigfleet.engine.fleet.cells import OWNER_IDLE, OWNER_SPECULATIVE
from bigfleet.engine.kernels.jit import inner

ALL = REMAINDERS | WHOLE


@inner
def place_on_coming(w: World, b: Book, rules: PlacementRules, first: int, last: int) -> int:
    """P16 for the places `first .. last` of its order; returns how far it came before a column was full."""
    for place_in_order in range(first, last):
        t = b.t.on_coming[place_in_order]
        kind = b.t.kind[t]
        if kind == SPREAD:
            _spread(w, b, rules, t)
        elif kind == GANG:
            _gang(w, b, rules, t)
        else:
            for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
                place(w, b, rules, t, q, ALL, -1, -1)
        if b.meta[FULL] != 0:
            return place_in_order
    return last


@inner
def _spread(w: World, b: Book, rules: PlacementRules, t: int) -> None:
    q = b.t.first[t]
    if not load(b, t):
        return
    key = b.t.key[t]
    found = usable(w, b, rules, t, q, ALL, -1, -1)
    for i in range(found):
        include(b, w.k.dom[b.lots.cls[b.s.lot[i]], key])
    for owner in (OWNER_IDLE, OWNER_SPECULATIVE):
        for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
            cls = w.cells.cls[w.held.data[k]]
            if owner == OWNER_SPECULATIVE and w.k.broken[cls] != 0:
                continue
            if matches(w, b, t, cls) and fits_fresh(w, b, t, q, cls) > 0:
                include(b, w.k.dom[cls, key])
    while deficit(b, q) > 0 and place_one(w, b, rules, t, q):
        pass
    save(b, t)


@inner
def fits_fresh(w: World, b: Book, t: int, q: int, cls: int) -> int:
    """How many units an empty machine of the class holds for the turn's cluster."""
    room_into(w, b, b.t.cluster[t], cls, b.s.left, 0)
    return fits(b, b.s.left, 0, -1, q, cls)


@inner
def place_one(w: World, b: Book, rules: PlacementRules, t: int, q: int) -> bool:
    """One unit of a spread on the lot whose domain has fewest; its domains must be loaded."""
    if no_room(b):
        return False
    key = b.t.key[t]
    found = usable(w, b, rules, t, q, ALL, -1, -1)
    least = fewest(b)
    best = -1
    best_count = 0
    for i in range(found):
        lot = b.s.lot[i]
        dom = w.k.dom[b.lots.cls[lot], key]
        if may_take(b, t, dom, least) > 0 and (best < 0 or b.s.count[dom] < best_count):
            best = lot
            best_count = b.s.count[dom]
    if best < 0:
        return False
    put(w, b, rules, t, q, best, 1)
    return True


@inner
def _gang(w: World, b: Book, rules: PlacementRules, t: int) -> None:
    first = b.t.first[t]
    last = first + b.t.n[t]
    key = b.t.key[t]
    if b.t.domain[t] < 0:
        begin_domains(b)
        for q in range(first, last):
            found = usable(w, b, rules, t, q, ALL, -1, -1)
            for i in range(found):
                touch(b, w.k.dom[b.lots.cls[b.s.lot[i]], key])
        domains = b.meta[DOMAINS]
        cluster = b.t.cluster[t]
        best = -1
        best_placed = 0
        for i in range(domains):
            dom = b.s.dom[i]
            lots = b.meta[LOTS]
            remainders = b.remainders[cluster]
            begin_trial(b)
            _place_parts(w, b, rules, t, dom)
            placed = 0
            for q in range(first, last):
                placed += b.q.coming[q]
            undo(w, b, cluster, lots, remainders)
            if b.meta[FULL] != 0:
                return
            if placed > best_placed or (placed > 0 and placed == best_placed and w.dom.rank[dom] < w.dom.rank[best]):
                best = dom
                best_placed = placed
        b.t.domain[t] = best
    if b.t.domain[t] >= 0:
        _place_parts(w, b, rules, t, b.t.domain[t])


@inner
def _place_parts(w: World, b: Book, rules: PlacementRules, t: int, dom: int) -> None:
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        place(w, b, rules, t, q, ALL, b.t.key[t], dom)
