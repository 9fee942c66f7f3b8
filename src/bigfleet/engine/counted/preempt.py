"""Preempt in units: draining machines, then victims, hold what nothing else could (P30, P32).

Both become empty, so they offer their whole room to the one who takes them. Gangs take all they lack in one domain, of
free machines too, or nothing. Who is judged how is told elsewhere.
"""

from __future__ import annotations

from bigfleet.engine.counted.book import (
    ACQUIRED,
    AWAITING,
    BUY,
    DOMAINS,
    DROPPED,
    FILLS,
    FULL,
    JOURNAL,
    LOTS,
    MEMBERS,
    NAMED,
    PAID_IDLE,
    PROMISED,
    PURCHASES,
    Book,
    PlacementRules,
)
from bigfleet.engine.counted.coming import fits_fresh, place_one
from bigfleet.engine.counted.domains import begin_domains, fewest, include, load, may_take, save, touch
from bigfleet.engine.counted.lots import (
    REMAINDERS,
    begin_trial,
    new_lot,
    no_room,
    note_cell,
    note_dropped,
    place,
    put,
    undo,
)
from bigfleet.engine.counted.serve import is_done
from bigfleet.engine.counted.worth import deficit, matches, open_to, risk_of
from bigfleet.engine.decide.victims import BLOCKS as VICTIM_BLOCKS
from bigfleet.engine.decide.victims import (
    TAKES,
    Ranked,
    Victims,
    Weights,
    candidate,
    note_take,
    ranked_list,
    undo_takes,
    usable,
)
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, SPREAD
from bigfleet.engine.fleet.cells import OWNER_DRAINING, OWNER_IDLE, OWNER_SPECULATIVE
from bigfleet.engine.fleet.members import order_members
from bigfleet.engine.kernels.ids import id_less
from bigfleet.engine.kernels.jit import inner
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting

# Below every priority: nothing is taken from anybody.
_NOBODY = -(2**62)


@inner
def await_draining(w: World, b: Book, v: Victims, rules: PlacementRules, first: int, last: int) -> int:
    """P30 for the short turns `first .. last`; returns how far it came before a column was full."""
    for i in range(first, last):
        _await_draining(w, b, v, rules, b.short[i])
        if b.meta[FULL] != 0:
            return i
    return last


@inner
def _await_draining(w: World, b: Book, v: Victims, rules: PlacementRules, t: int) -> None:
    """Of one turn; gangs take nothing here."""
    kind = b.t.kind[t]
    if kind == GANG:
        return
    if kind == SPREAD:
        if not load(b, t):
            return
        _widen(w, b, v, t)
        q = b.t.first[t]
        while deficit(b, q) > 0 and b.meta[FULL] == 0:
            if place_one(w, b, rules, t, q):
                continue
            if b.meta[FULL] != 0 or not _one_on_draining(w, b, rules, t, q):
                break
        save(b, t)
        return
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        place(w, b, rules, t, q, REMAINDERS, -1, -1)
        _place_on_draining(w, b, rules, t, q, -1, -1)


@inner
def _widen(w: World, b: Book, v: Victims, t: int) -> None:
    """Domains of all Draining machines and victim candidates that match and fit are of the universe."""
    q = b.t.first[t]
    key = b.t.key[t]
    for k in range(w.owners.start[OWNER_DRAINING], w.owners.start[OWNER_DRAINING] + w.owners.used[OWNER_DRAINING]):
        cls = w.cells.cls[w.held.data[k]]
        if matches(w, b, t, cls) and fits_fresh(w, b, t, q, cls) > 0:
            include(b, w.k.dom[cls, key])
    for block in range(v.meta[VICTIM_BLOCKS]):
        cls = w.cells.cls[v.cell[block]]
        if (
            v.n[block] > 0
            and v.priority[block] < w.p.priority[b.t.prof[t]]
            and w.cells.cluster[v.cell[block]] != b.t.cluster[t]
            and matches(w, b, t, cls)
            and fits_fresh(w, b, t, q, cls) > 0
        ):
            include(b, w.k.dom[cls, key])


@inner
def _place_on_draining(w: World, b: Book, rules: PlacementRules, t: int, q: int, key: int, dom: int) -> int:
    """Places on Draining machines in their order; how many units they took."""
    before = deficit(b, q)
    for k in range(w.owners.start[OWNER_DRAINING], w.owners.start[OWNER_DRAINING] + w.owners.used[OWNER_DRAINING]):
        wanted = deficit(b, q)
        if wanted == 0 or b.meta[FULL] != 0:
            break
        cell = w.held.data[k]
        if key < 0 or w.k.dom[w.cells.cls[cell], key] == dom:
            _put_on_draining(w, b, rules, t, q, cell, wanted)
    return before - deficit(b, q)


@inner
def _one_on_draining(w: World, b: Book, rules: PlacementRules, t: int, q: int) -> bool:
    """One unit of a spread on the first block in order whose domain may take one."""
    least = fewest(b)
    for k in range(w.owners.start[OWNER_DRAINING], w.owners.start[OWNER_DRAINING] + w.owners.used[OWNER_DRAINING]):
        cell = w.held.data[k]
        cls = w.cells.cls[cell]
        if not matches(w, b, t, cls) or may_take(b, t, w.k.dom[cls, b.t.key[t]], least) == 0:
            continue
        if _put_on_draining(w, b, rules, t, q, cell, 1):
            return True
        if b.meta[FULL] != 0:
            return False
    return False


@inner
def _lot_for(w: World, b: Book, rules: PlacementRules, t: int, q: int, cls: int, available: int, units: int) -> int:
    """How many machines of a class so many units would use; 0 if none. Their room is in `s.left[0]`."""
    if available == 0 or not open_to(w, b, rules, t, q, cls):
        return 0
    most = fits_fresh(w, b, t, q, cls)
    if most == 0:
        return 0
    machines = min(available, (units + most - 1) // most)
    if no_room(b) or b.meta[MEMBERS] + machines > len(b.machine):
        b.meta[FULL] = 1
        return 0
    return machines


@inner
def _fresh_lot(b: Book, t: int, cls: int, source: int, machines: int) -> int:
    """A whole lot of empty machines, the last ones written to `machine`."""
    lot = new_lot(b, cls, b.t.cluster[t], NAMED, source, 0, b.meta[MEMBERS], machines)
    b.meta[MEMBERS] += machines
    for d in range(b.lots.left.shape[1]):
        b.lots.left[lot, d] = b.s.left[0, d]
    return lot


@inner
def _put_on_draining(w: World, b: Book, rules: PlacementRules, t: int, q: int, cell: int, units: int) -> bool:
    cls = w.cells.cls[cell]
    machines = _lot_for(w, b, rules, t, q, cls, w.cells.count[cell] - w.cells.taken[cell], units)
    if machines == 0:
        return False
    order_members(w.cells, b.members, w.ids, b.slots.place, cell)
    start = w.cells.start[cell]
    promised = 0
    for i in range(w.cells.count[cell]):
        if b.mark[b.members.data[start + i]] & PROMISED:
            promised += 1
    # Those promised by (c) are gone wherever they are; of the others the first ones.
    gone = w.cells.taken[cell] - promised
    found = 0
    for i in range(w.cells.count[cell]):
        slot = b.members.data[start + i]
        if b.mark[slot] & PROMISED:
            continue
        if gone > 0:
            gone -= 1
        elif found < machines:
            b.machine[b.meta[MEMBERS] + found] = slot
            found += 1
    lot = _fresh_lot(b, t, cls, AWAITING, machines)
    used = put(w, b, rules, t, q, lot, units)
    note_cell(w, b, cell)
    w.cells.taken[cell] += used
    return True


@inner
def choose_victims(
    w: World, b: Book, v: Victims, r: Ranked, weights: Weights, rules: PlacementRules, first: int, last: int
) -> int:
    """P32 for those of the short turns `first .. last` that still are; returns how far it came before a column was
    full."""
    for i in range(first, last):
        if not is_done(b, b.short[i]):
            _choose_victims(w, b, v, r, weights, rules, b.short[i])
        if b.meta[FULL] != 0:
            return i
    return last


@inner
def _choose_victims(w: World, b: Book, v: Victims, r: Ranked, weights: Weights, rules: PlacementRules, t: int) -> None:
    """Of one turn."""
    kind = b.t.kind[t]
    if kind == GANG:
        _assemble_somewhere(w, b, v, r, weights, rules, t)
        return
    if kind == SPREAD:
        if not load(b, t):
            return
        q = b.t.first[t]
        while deficit(b, q) > 0 and b.meta[FULL] == 0:
            if place_one(w, b, rules, t, q):
                continue
            if b.meta[FULL] != 0 or not _one_on_victims(w, b, v, r, weights, rules, t, q):
                break
        save(b, t)
        return
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        place(w, b, rules, t, q, REMAINDERS, -1, -1)
        _place_on_victims(w, b, v, r, weights, rules, t, q, -1, -1)


@inner
def _place_on_victims(
    w: World,
    b: Book,
    v: Victims,
    r: Ranked,
    weights: Weights,
    rules: PlacementRules,
    t: int,
    q: int,
    key: int,
    dom: int,
) -> None:
    if v.meta[VICTIM_BLOCKS] == 0 or deficit(b, q) == 0:
        return
    number = ranked_list(w, v, r, weights, b.t.prof[t])
    index = 0
    while deficit(b, q) > 0 and b.meta[FULL] == 0:
        block = candidate(w, v, r, weights, number, index)
        index += 1
        if block < 0:
            return
        if key < 0 or w.k.dom[w.cells.cls[v.cell[block]], key] == dom:
            _put_on_victims(w, b, v, rules, t, q, block, deficit(b, q))


@inner
def _one_on_victims(
    w: World, b: Book, v: Victims, r: Ranked, weights: Weights, rules: PlacementRules, t: int, q: int
) -> bool:
    if v.meta[VICTIM_BLOCKS] == 0:
        return False
    number = ranked_list(w, v, r, weights, b.t.prof[t])
    least = fewest(b)
    # Candidates one after the other, as for sums in `decide.preempt`; what makes one usable differs.
    index = 0
    while True:
        block = candidate(w, v, r, weights, number, index)
        index += 1
        if block < 0:
            return False
        cls = w.cells.cls[v.cell[block]]
        if not matches(w, b, t, cls) or may_take(b, t, w.k.dom[cls, b.t.key[t]], least) == 0:
            continue
        if _put_on_victims(w, b, v, rules, t, q, block, 1):
            return True
        if b.meta[FULL] != 0:
            return False


@inner
def _put_on_victims(
    w: World, b: Book, v: Victims, rules: PlacementRules, t: int, q: int, block: int, units: int
) -> bool:
    """Places units on the next machines of a block; those that got one are victims."""
    if not usable(w, v, b.t.entry[t], block):
        return False
    cell = v.cell[block]
    cls = w.cells.cls[cell]
    machines = _lot_for(w, b, rules, t, q, cls, v.n[block] - v.used[block], units)
    if machines == 0:
        return False
    if v.meta[TAKES] + 1 > len(v.take_n):
        b.meta[FULL] = 1
        return False
    first = v.first[block] + v.used[block]
    if v.listed[block] != 0:
        for i in range(machines):
            b.machine[b.meta[MEMBERS] + i] = v.slots[first + i]
    else:
        order_members(w.cells, b.members, w.ids, b.slots.place, cell)
        for i in range(machines):
            b.machine[b.meta[MEMBERS] + i] = b.members.data[w.cells.start[cell] + first + i]
    lot = _fresh_lot(b, t, cls, AWAITING, machines)
    used = put(w, b, rules, t, q, lot, units)
    note_take(v, b.t.entry[t], block, used)
    return True


# ---- gangs -----------------------------------------------------------------------------------------------------------


@inner
def _assemble_somewhere(
    w: World, b: Book, v: Victims, r: Ranked, weights: Weights, rules: PlacementRules, t: int
) -> None:
    """A gang takes all it lacks in one domain: its own, or the one whose Draining machines take most of it, and of
    those the one in which it takes least from others."""
    cluster = b.t.cluster[t]
    begin_domains(b)
    if b.t.domain[t] >= 0:
        touch(b, b.t.domain[t])
    else:
        _find_domains(w, b, v, rules, t)
    best = -1
    best_drained = 0
    best_highest = 0
    best_victims = 0
    for i in range(b.meta[DOMAINS]):
        dom = b.s.dom[i]
        lots = b.meta[LOTS]
        remainders = b.remainders[cluster]
        purchases = b.meta[PURCHASES]
        members = b.meta[MEMBERS]
        taken = v.meta[TAKES]
        begin_trial(b)
        drained = _assemble(w, b, v, r, weights, rules, t, dom)
        done = is_done(b, t)
        highest = _NOBODY
        victims = 0
        for take in range(taken, v.meta[TAKES]):
            highest = max(highest, v.priority[v.take_block[take]])
            victims += v.take_n[take]
        undo(w, b, cluster, lots, remainders)
        undo_takes(v, taken)
        b.meta[PURCHASES] = purchases
        b.meta[MEMBERS] = members
        if b.meta[FULL] != 0:
            return
        if not done:
            continue
        better = best < 0 or w.dom.rank[dom] < w.dom.rank[best]
        if best >= 0:
            if drained != best_drained:
                better = drained > best_drained
            elif highest != best_highest:
                better = highest < best_highest
            elif victims != best_victims:
                better = victims < best_victims
        if better:
            best = dom
            best_drained = drained
            best_highest = highest
            best_victims = victims
    if best >= 0:
        _assemble(w, b, v, r, weights, rules, t, best)


@inner
def _assemble(
    w: World, b: Book, v: Victims, r: Ranked, weights: Weights, rules: PlacementRules, t: int, dom: int
) -> int:
    """Part by part through all sources; how many units Draining machines took."""
    key = b.t.key[t]
    drained = 0
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        place(w, b, rules, t, q, REMAINDERS, key, dom)
        drained += _place_on_draining(w, b, rules, t, q, key, dom)
        if b.t.may[t] != 0:
            _place_on_free(w, b, rules, t, q, key, dom)
        _place_on_victims(w, b, v, r, weights, rules, t, q, key, dom)
    return drained


@inner
def _find_domains(w: World, b: Book, v: Victims, rules: PlacementRules, t: int) -> None:
    key = b.t.key[t]
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        for owner in (OWNER_DRAINING, OWNER_IDLE, OWNER_SPECULATIVE):
            if owner != OWNER_DRAINING and b.t.may[t] == 0:
                continue
            for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
                cell = w.held.data[k]
                cls = w.cells.cls[cell]
                if owner == OWNER_SPECULATIVE and w.k.broken[cls] != 0:
                    continue
                if _free_members(w, b, cell) > 0 and open_to(w, b, rules, t, q, cls):
                    if fits_fresh(w, b, t, q, cls) > 0:
                        touch(b, w.k.dom[cls, key])
        for block in range(v.meta[VICTIM_BLOCKS]):
            cls = w.cells.cls[v.cell[block]]
            if (
                v.priority[block] < w.p.priority[b.t.prof[t]]
                and usable(w, v, b.t.entry[t], block)
                and open_to(w, b, rules, t, q, cls)
                and fits_fresh(w, b, t, q, cls) > 0
            ):
                touch(b, w.k.dom[cls, key])


@inner
def _free_members(w: World, b: Book, cell: int) -> int:
    """Unclaimed members of a cell: those beyond what was taken, and those the second pass dropped."""
    found = w.cells.count[cell] - w.cells.taken[cell]
    for i in range(b.meta[DROPPED]):
        if b.dropped_cell[i] == cell:
            found += 1
    return found


@inner
def _place_on_free(w: World, b: Book, rules: PlacementRules, t: int, q: int, key: int, dom: int) -> None:
    """Idle machines in Idle order, then Speculative ones in buying order."""
    start = w.owners.start[OWNER_IDLE]
    for k in range(start, start + w.owners.used[OWNER_IDLE]):
        cell = w.held.data[k]
        if deficit(b, q) > 0 and b.meta[FULL] == 0 and w.k.dom[w.cells.cls[cell], key] == dom:
            _put_on_free(w, b, rules, t, q, cell, PAID_IDLE)
    start = w.owners.start[OWNER_SPECULATIVE]
    found = 0
    for k in range(start, start + w.owners.used[OWNER_SPECULATIVE]):
        cls = w.cells.cls[w.held.data[k]]
        if w.k.broken[cls] == 0 and w.k.dom[cls, key] == dom:
            b.s.block[found] = w.held.data[k]
            found += 1
    sort = sorting(0, found)
    while asks(sort, b.s.block):
        sort[ANSWER] = _bought_earlier(w, b.t.dollars[t], sort[LATER], sort[EARLIER])
    for i in range(found):
        if deficit(b, q) > 0 and b.meta[FULL] == 0:
            _put_on_free(w, b, rules, t, q, b.s.block[i], BUY)


@inner
def _bought_earlier(w: World, dollars: float, x: int, y: int) -> bool:
    one = w.cells.cls[x]
    other = w.cells.cls[y]
    cost = w.k.price[one] + risk_of(w, dollars, one)
    theirs = w.k.price[other] + risk_of(w, dollars, other)
    if cost != theirs:
        return cost < theirs
    if w.k.price[one] != w.k.price[other]:
        return bool(w.k.price[one] < w.k.price[other])
    return id_less(w.ids, w.cells.least[x], w.cells.least[y])


@inner
def _put_on_free(w: World, b: Book, rules: PlacementRules, t: int, q: int, cell: int, tier: int) -> None:
    cls = w.cells.cls[cell]
    units = deficit(b, q)
    machines = _lot_for(w, b, rules, t, q, cls, _free_members(w, b, cell), units)
    if machines == 0:
        return
    if b.meta[PURCHASES] + 1 > len(b.bought.turn) or b.meta[JOURNAL] + machines + 16 > len(b.s.kind):
        b.meta[FULL] = 1
        return
    order_members(w.cells, b.members, w.ids, b.slots.place, cell)
    found = 0
    while found < machines:
        # What the second pass dropped comes before the rest: it was taken first.
        least = -1
        for i in range(b.meta[DROPPED]):
            if b.dropped_cell[i] == cell and (least < 0 or id_less(w.ids, b.dropped[i], b.dropped[least])):
                least = i
        if least < 0:
            break
        b.machine[b.meta[MEMBERS] + found] = b.dropped[least]
        note_dropped(b, least)
        b.dropped_cell[least] = -1
        found += 1
    note_cell(w, b, cell)
    while found < machines:
        b.machine[b.meta[MEMBERS] + found] = b.members.data[w.cells.start[cell] + w.cells.taken[cell]]
        w.cells.taken[cell] += 1
        found += 1
    first = b.meta[MEMBERS]
    lot = _fresh_lot(b, t, cls, ACQUIRED, machines)
    put(w, b, rules, t, q, lot, units)
    at = b.meta[PURCHASES]
    b.meta[PURCHASES] = at + 1
    b.bought.turn[at] = t
    b.bought.tier[at] = tier
    b.bought.first[at] = first
    b.bought.n[at] = machines
    b.bought.lot[at] = -1
    b.bought.cell[at] = cell
    b.bought.fill[at] = b.meta[FILLS]
    b.bought.fills[at] = 0
