"""Serving counted entries in Assign: each at its turn, then what was left over and what became superfluous
(P20, P24 to P29).
"""

from __future__ import annotations

from bigfleet.engine.counted.book import (
    BLOCKS,
    BUY,
    DOMAINS,
    DROPPED,
    FILLS,
    FULL,
    HOST,
    JOURNAL,
    LOTS,
    MARK,
    MEMBERS,
    PAID_DRAINING,
    PAID_EMPTY,
    PAID_IDLE,
    PATIENT,
    PURCHASES,
    SHORT,
    SPENT,
    TOKENS,
    TRIAL,
    Book,
    PlacementRules,
)
from bigfleet.engine.counted.buying import NO_LIMIT, best_block, buy, index_domains, mark_taken, unclaimed
from bigfleet.engine.counted.coming import ALL, place_one
from bigfleet.engine.counted.domains import begin_domains, fewest, is_touched, level, load, may_take, save, touch
from bigfleet.engine.counted.filling import fill
from bigfleet.engine.counted.lots import REMAINDERS, begin_trial, no_room, note_portion, place, put, undo, usable
from bigfleet.engine.counted.worth import deficit
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, PLAIN, SPREAD
from bigfleet.engine.kernels.jit import inner
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting


@inner
def serve_turns(w: World, b: Book, rules: PlacementRules, first: int, last: int) -> int:
    """Serves the turns `first .. last`; returns how far it came before a column was full."""
    for t in range(first, last):
        kind = b.t.kind[t]
        if b.t.may[t] != 0:
            if kind == SPREAD:
                _serve_spread(w, b, rules, t)
            elif kind == GANG:
                _serve_gang(w, b, rules, t)
            else:
                for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
                    _serve_portion(w, b, rules, t, q, kind == PLAIN, -1, -1)
            if b.meta[FULL] != 0:
                return t
        if kind == HOST or (kind == GANG and b.t.may[t] == 0):
            b.t.ok[t] = is_done(b, t)
        if b.t.able[t] != 0 and not is_done(b, t):
            b.meta[SHORT] = 1
    return last


@inner
def is_done(b: Book, t: int) -> bool:
    """Whether nothing of a turn lacks room any more; a gang that no host may hold has no portion and never is."""
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        if deficit(b, q) > 0:
            return False
    return b.t.n[t] > 0


@inner
def _serve_portion(w: World, b: Book, rules: PlacementRules, t: int, q: int, riders: bool, key: int, dom: int) -> None:
    place(w, b, rules, t, q, ALL, key, dom)
    while deficit(b, q) > 0 and b.meta[FULL] == 0:
        if no_room(b):
            return
        block = best_block(w, b, rules, t, q, riders, key, dom, NO_LIMIT)
        if block < 0 or not buy(w, b, rules, t, q, block, riders, NO_LIMIT, False):
            return


@inner
def _serve_spread(w: World, b: Book, rules: PlacementRules, t: int) -> None:
    q = b.t.first[t]
    if not load(b, t):
        return
    ceiling = -1
    while deficit(b, q) > 0 and b.meta[FULL] == 0:
        if place_one(w, b, rules, t, q):
            continue
        if ceiling < 0 and b.meta[FULL] == 0:
            ceiling = _ceiling(w, b, rules, t, q)
        if b.meta[FULL] != 0 or not _buy_in_a_domain(w, b, rules, t, q, ceiling):
            break
    save(b, t)


@inner
def _ceiling(w: World, b: Book, rules: PlacementRules, t: int, q: int) -> int:
    """How many units a domain of the universe can have in the end: one where nothing is to be had holds all others
    back."""
    ceiling = NO_LIMIT
    for i in range(b.meta[DOMAINS]):
        dom = b.s.dom[i]
        if b.s.inside[dom] == b.meta[MARK] and b.s.count[dom] + b.t.skew[t] < ceiling:
            if best_block(w, b, rules, t, q, False, b.t.key[t], dom, 1) < 0:
                ceiling = b.s.count[dom] + b.t.skew[t]
    return ceiling


@inner
def _buy_in_a_domain(w: World, b: Book, rules: PlacementRules, t: int, q: int, ceiling: int) -> bool:
    """One machine in the emptiest domain of the universe that may take a unit and has a candidate; chosen for what the
    domain is to have in the end, filled with what it may take now."""
    least = fewest(b)
    aim = min(ceiling, level(b, deficit(b, q)))
    key = b.t.key[t]
    count = 0
    for i in range(b.meta[DOMAINS]):
        dom = b.s.dom[i]
        if b.s.inside[dom] == b.meta[MARK] and b.s.count[dom] < least + b.t.skew[t]:
            b.s.lot[count] = dom
            count += 1
    sort = sorting(0, count)
    while asks(sort, b.s.lot):
        x = sort[LATER]
        y = sort[EARLIER]
        sort[ANSWER] = b.s.count[x] < b.s.count[y] or (b.s.count[x] == b.s.count[y] and w.dom.rank[x] < w.dom.rank[y])
    for i in range(count):
        dom = b.s.lot[i]
        most = may_take(b, t, dom, least)
        block = best_block(w, b, rules, t, q, False, key, dom, max(most, aim - b.s.count[dom]))
        if block >= 0:
            return buy(w, b, rules, t, q, block, False, most, True)
        if b.meta[FULL] != 0:
            return False
    return False


@inner
def _serve_gang(w: World, b: Book, rules: PlacementRules, t: int) -> None:
    """A gang takes all it lacks in the domain where that costs least, or nothing (P28)."""
    if is_done(b, t):
        b.t.ok[t] = 1
        return
    b.meta[PATIENT] = 0
    best = _cheapest_domain(w, b, rules, t)
    if best < 0 and b.meta[SHORT] == 0 and b.meta[BLOCKS] > b.by_tier[BUY + 1] and b.meta[FULL] == 0:
        b.meta[PATIENT] = 1
        best = _cheapest_domain(w, b, rules, t)
    if b.meta[FULL] != 0:
        return
    b.t.ok[t] = best >= 0
    if best >= 0:
        b.t.domain[t] = best
        _assemble(w, b, rules, t, best)
    b.meta[PATIENT] = 0


@inner
def _cheapest_domain(w: World, b: Book, rules: PlacementRules, t: int) -> int:
    """The domain in which all of a gang costs least; -1 where none holds it."""
    cluster = b.t.cluster[t]
    begin_domains(b)
    if b.t.domain[t] >= 0:
        touch(b, b.t.domain[t])
    else:
        _find_domains(w, b, rules, t)
    index_domains(w, b, t)
    best = -1
    best_cost = 0.0
    for i in range(b.meta[DOMAINS]):
        dom = b.s.dom[i]
        lots = b.meta[LOTS]
        remainders = b.remainders[cluster]
        purchases = b.meta[PURCHASES]
        fills = b.meta[FILLS]
        members = b.meta[MEMBERS]
        begin_trial(b)
        _assemble(w, b, rules, t, dom)
        done = is_done(b, t)
        undo(w, b, cluster, lots, remainders)
        b.meta[PURCHASES] = purchases
        b.meta[FILLS] = fills
        b.meta[MEMBERS] = members
        if b.meta[FULL] != 0:
            return -1
        cost = b.money[SPENT]
        if done and (best < 0 or cost < best_cost or (cost == best_cost and w.dom.rank[dom] < w.dom.rank[best])):
            best = dom
            best_cost = cost
    return best


@inner
def _assemble(w: World, b: Book, rules: PlacementRules, t: int, dom: int) -> None:
    b.money[SPENT] = 0.0
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        _serve_portion(w, b, rules, t, q, False, b.t.key[t], dom)


@inner
def _find_domains(w: World, b: Book, rules: PlacementRules, t: int) -> None:
    """Domains of lots and blocks that are open to the gang and fit a part of which something lacks."""
    key = b.t.key[t]
    for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
        found = usable(w, b, rules, t, q, ALL, -1, -1)
        for i in range(found):
            touch(b, w.k.dom[b.lots.cls[b.s.lot[i]], key])
        block = b.reopen[b.t.cluster[t]]
        while block >= 0:
            _note_domain(w, b, rules, t, q, block)
            block = b.blocks.next[block]
        for tier in (PAID_IDLE, BUY):
            for i in range(b.con_first[tier, b.t.con[t]], b.con_last[tier, b.t.con[t]]):
                for at in range(b.group_first[b.con_group[i]], b.group_last[b.con_group[i]]):
                    _note_domain(w, b, rules, t, q, b.group_block[at])
        for tier in (PAID_DRAINING, PAID_EMPTY):
            for each in range(b.by_tier[tier], b.by_tier[tier + 1]):
                if tier != PAID_EMPTY or b.blocks.cluster[each] != b.t.cluster[t]:
                    _note_domain(w, b, rules, t, q, each)
        if b.meta[PATIENT] != 0:
            for each in range(b.by_tier[BUY + 1], b.meta[BLOCKS]):
                _note_domain(w, b, rules, t, q, each)


@inner
def _note_domain(w: World, b: Book, rules: PlacementRules, t: int, q: int, block: int) -> None:
    dom = w.k.dom[b.blocks.cls[block], b.t.key[t]]
    if not is_touched(b, dom) and unclaimed(w, b, block) > 0:
        tokens = b.meta[TOKENS]
        if fill(w, b, rules, t, q, block, False, NO_LIMIT):
            touch(b, dom)
        b.meta[TOKENS] = tokens


@inner
def place_leftovers(w: World, b: Book, rules: PlacementRules, first: int, last: int) -> int:
    """Later purchases may have left room for earlier rows (P24)."""
    for t in range(first, last):
        if b.t.kind[t] == PLAIN:
            place(w, b, rules, t, b.t.first[t], REMAINDERS, -1, -1)
        if b.meta[FULL] != 0:
            return t
    return last


@inner
def finish_assign(w: World, b: Book, portions: int) -> None:
    """What Assign left, and what it took of closing, draining and empty machines."""
    for q in range(portions):
        b.q.missing[q] = deficit(b, q)
    mark_taken(w, b, 0)


@inner
def drop_superfluous(w: World, b: Book, rules: PlacementRules, first: int, last: int) -> int:
    """Machines of the purchases `again[first:last]` whose units find room elsewhere are not bought (P25). Returns how
    far it came before a column was full."""
    for i in range(first, last):
        p = b.again[i]
        lot = b.bought.lot[p]
        while b.lots.n[lot] > 0:
            if b.meta[DROPPED] + 1 > len(b.dropped) or no_room(b):
                b.meta[FULL] = 1
                return i
            if not _drop_one(w, b, rules, p, lot):
                break
        if b.meta[FULL] != 0:
            return i
    return last


@inner
def _drop_one(w: World, b: Book, rules: PlacementRules, p: int, lot: int) -> bool:
    t = b.bought.turn[p]
    cluster = b.t.cluster[t]
    lots = b.meta[LOTS]
    remainders = b.remainders[cluster]
    begin_trial(b)
    for i in range(b.bought.fill[p], b.bought.fill[p] + b.bought.fills[p]):
        q = b.fill_portion[i]
        units = b.fill_n[i]
        note_portion(b, q)
        b.q.acquired[q] -= units
        rider = b.q.turn[q]
        found = usable(w, b, rules, rider, q, REMAINDERS, -1, -1)
        for k in range(found):
            other = b.s.lot[k]
            if units > 0 and other != lot and b.lots.n[other] > 0 and b.lots.closed[other] == 0:
                if no_room(b):
                    break
                before = deficit(b, q)
                put(w, b, rules, rider, q, other, units)
                units -= before - deficit(b, q)
        if units > 0:
            undo(w, b, cluster, lots, remainders)
            return False
    b.meta[TRIAL] = 0
    b.meta[JOURNAL] = 0
    b.lots.n[lot] -= 1
    b.opened[cluster] = -1
    b.bought.n[p] -= 1
    at = b.meta[DROPPED]
    b.dropped[at] = b.machine[b.lots.first[lot] + b.lots.n[lot]]
    b.dropped_cell[at] = b.bought.cell[p]
    b.meta[DROPPED] = at + 1
    return True
