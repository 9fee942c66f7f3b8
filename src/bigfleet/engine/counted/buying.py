"""Buying: what a portion takes of closing, idle, draining, empty and purchasable machines (P20 to P23).

A purchase is judged by what it carries (`filling`).
"""

from __future__ import annotations

from bigfleet.engine.counted.book import (
    ACQUIRED,
    AWAITING,
    BLOCKS,
    BUY,
    DOMAINS,
    FILL_TOKEN,
    FILLED,
    FILLS,
    FULL,
    INDEXED,
    LOOK,
    MEMBERS,
    PAID_DRAINING,
    PAID_EMPTY,
    PAID_IDLE,
    PATIENT,
    PROMISED,
    PURCHASES,
    REFILLED,
    REMAINDER,
    REOPEN,
    REOPENED,
    RISK,
    SPENT,
    TAKEN,
    TOKENS,
    TRIAL,
    VALUE,
    Book,
    PlacementRules,
)
from bigfleet.engine.counted.domains import is_touched
from bigfleet.engine.counted.filling import REACH, fill, fill_best, per_dollar, times
from bigfleet.engine.counted.lots import (
    is_for_devices,
    new_lot,
    no_room,
    note_block,
    note_cell,
    note_portion,
    open_remainder,
)
from bigfleet.engine.counted.worth import deficit, fits, room_into
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rollups import unit_order
from bigfleet.engine.demand.rows import SPREAD
from bigfleet.engine.fleet.members import order_members
from bigfleet.engine.kernels.ids import id_less
from bigfleet.engine.kernels.jit import inner

NO_LIMIT = 4611686018427387904
# Which classes to look at: all, those without devices, those with.
_ANY, _PLAIN, _DEVICES = -1, 0, 1


@inner
def unclaimed(w: World, b: Book, block: int) -> int:
    cell = b.blocks.cell[block]
    if cell >= 0:
        return w.cells.count[cell] - w.cells.taken[cell]
    return b.blocks.n[block] - b.blocks.taken[block]


@inner
def best_block(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, riders: bool, key: int, dom: int, most: int
) -> int:
    """The block that gives the next purchase (P20, P22), or -1."""
    found = 0
    block = b.reopen[b.t.cluster[t]]
    offered = 0.0
    if block >= 0 and rules.reopen_ratio > 0.0:
        which = _ANY if b.q.device[q] != 0 else _PLAIN
        count = _candidates(w, b, rules, t, q, riders, key, dom, most, which, BUY, -1, 0.0)
        for i in range(count):
            offered = max(offered, b.blocks.score[b.s.block[i]])
    while block >= 0:
        if unclaimed(w, b, block) > 0 and (key < 0 or w.k.dom[b.blocks.cls[block], key] == dom):
            tokens = b.meta[TOKENS]
            if fill(w, b, rules, t, q, block, riders, most) and _is_worth_reopening(w, b, rules, block, offered):
                b.blocks.score[block] = b.money[VALUE]
                b.s.block[found] = block
                found += 1
            b.meta[TOKENS] = tokens
        block = b.blocks.next[block]
    if found > 0:
        return _choose(w, b, rules, found)
    if b.q.device[q] != 0:
        return _best_of(w, b, rules, t, q, riders, key, dom, most, _ANY)
    best = _best_of(w, b, rules, t, q, riders, key, dom, most, _PLAIN)
    if best < 0:
        best = _best_of(w, b, rules, t, q, riders, key, dom, most, _DEVICES)
    return best


@inner
def _is_worth_reopening(w: World, b: Book, rules: PlacementRules, block: int, offered: float) -> bool:
    """Whether a closing node with the fill at hand carries about as much for its price as what could be bought."""
    if not b.money[VALUE] > b.money[RISK]:
        return False
    cls = b.blocks.cls[block]
    needed = times(times(rules.reopen_ratio, offered), w.k.price[cls] + b.money[RISK])
    return bool(b.kinds.owned[cls] != 0 or b.money[VALUE] + b.blocks.carried[block] >= needed)


@inner
def _best_of(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, riders: bool, key: int, dom: int, most: int, device: int
) -> int:
    """Through the paid tiers and what is to be bought, among classes with or without devices."""
    found = _candidates(w, b, rules, t, q, riders, key, dom, most, device, PAID_IDLE, 1, 0.0)
    if found > 0:
        return _choose(w, b, rules, found)
    offered = -1.0
    for tier in (PAID_IDLE, PAID_DRAINING, PAID_EMPTY):
        if b.by_tier[tier] == b.by_tier[tier + 1] and not (tier == PAID_DRAINING and b.meta[PATIENT] != 0):
            continue
        if offered < 0.0:
            # Only where something paid could be refused does it matter what could be bought instead.
            offered = 0.0
            count = _candidates(w, b, rules, t, q, riders, key, dom, most, device, BUY, -1, 0.0)
            for i in range(count):
                offered = max(offered, b.blocks.score[b.s.block[i]])
        found = _candidates(
            w, b, rules, t, q, riders, key, dom, most, device, tier, 0 if tier == PAID_IDLE else -1, offered
        )
        if found > 0:
            return _choose(w, b, rules, found)
    found = _candidates(w, b, rules, t, q, riders, key, dom, most, device, BUY, -1, 0.0)
    return _choose(w, b, rules, found) if found > 0 else -1


@inner
def _candidates(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, riders: bool, key: int, dom: int, most: int, device: int,
    tier: int, owned: int, offered: float,
) -> int:  # fmt: skip
    """Candidates of a tier in `s.block`, with their scores; `owned`: only those (1), the others (0), both (-1). Of
    candidates that are alike only the first in order is one: no other would be chosen."""
    if tier == BUY or tier == PAID_IDLE:
        if key >= 0 and b.meta[INDEXED] == t + 1:
            return _of_domain(w, b, rules, t, q, riders, dom, most, device, tier, owned, offered)
        return _first_of_groups(w, b, rules, t, q, riders, key, dom, most, device, tier, owned, offered)
    found = _judge_range(
        w, b, rules, t, q, riders, key, dom, most, device, tier, owned, offered, b.by_tier[tier], b.by_tier[tier + 1], 0
    )
    if tier == PAID_DRAINING and b.meta[PATIENT] != 0:
        found = _judge_range(
            w, b, rules, t, q, riders, key, dom, most, device, tier, owned, offered, b.by_tier[BUY + 1],
            b.meta[BLOCKS], found,
        )  # fmt: skip
    return found


@inner
def _judge_range(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, riders: bool, key: int, dom: int, most: int, device: int,
    tier: int, owned: int, offered: float, first: int, last: int, found: int,
) -> int:  # fmt: skip
    for block in range(first, last):
        cls = b.blocks.cls[block]
        if device >= 0 and b.kinds.device[cls] != device:
            continue
        if owned >= 0 and b.kinds.owned[cls] != owned:
            continue
        if key >= 0 and w.k.dom[cls, key] != dom:
            continue
        if tier == PAID_EMPTY and b.blocks.cluster[block] == b.t.cluster[t]:
            continue
        if unclaimed(w, b, block) > 0:
            found = _judge(w, b, rules, t, q, block, riders, most, offered, found)
    return found


@inner
def _first_of_groups(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, riders: bool, key: int, dom: int, most: int, device: int,
    tier: int, owned: int, offered: float,
) -> int:  # fmt: skip
    found = 0
    alike = b.alike[b.t.cluster[t]] != 0
    for i in range(b.con_first[tier, b.t.con[t]], b.con_last[tier, b.t.con[t]]):
        group = b.con_group[i]
        if b.meta[TRIAL] == 0:
            # What is used up stays so; while a trial runs it may come back.
            while b.group_first[group] < b.group_last[group] and (
                unclaimed(w, b, b.group_block[b.group_first[group]]) == 0
            ):
                b.group_first[group] += 1
        if b.group_first[group] == b.group_last[group]:
            continue
        cls = b.blocks.cls[b.group_block[b.group_first[group]]]
        if (device >= 0 and b.kinds.device[cls] != device) or (owned >= 0 and b.kinds.owned[cls] != owned):
            continue
        # Riders count for nothing where a block is scarce.
        mixed = riders and tier == BUY and b.group_scarce[group] > 0
        b.meta[LOOK] += 1
        seen = 0
        for at in range(b.group_first[group], b.group_last[group]):
            block = b.group_block[at]
            cls = b.blocks.cls[block]
            if (key >= 0 and w.k.dom[cls, key] != dom) or unclaimed(w, b, block) == 0:
                continue
            scarce = 1 if mixed and b.blocks.scarce[block] != 0 else 0
            if alike:
                if seen & (1 << scarce):
                    continue
                seen |= 1 << scarce
            else:
                place = 2 * w.k.offer[cls] + scarce
                if b.looked_at[place] == b.meta[LOOK]:
                    continue
                b.looked_at[place] = b.meta[LOOK]
            found = _judge(w, b, rules, t, q, block, riders, most, offered, found)
            if alike and (seen == 3 or not mixed):
                break
    return found


@inner
def index_domains(w: World, b: Book, t: int) -> None:
    """Chains the idle blocks and those to be bought that match a gang, by domains that were touched for it."""
    key = b.t.key[t]
    for i in range(b.meta[DOMAINS]):
        b.s.head[b.s.dom[i]] = -1
    for tier in (PAID_IDLE, BUY):
        for i in range(b.con_first[tier, b.t.con[t]], b.con_last[tier, b.t.con[t]]):
            for at in range(b.group_first[b.con_group[i]], b.group_last[b.con_group[i]]):
                block = b.group_block[at]
                dom = w.k.dom[b.blocks.cls[block], key]
                if is_touched(b, dom) and unclaimed(w, b, block) > 0:
                    b.blocks.chain[block] = b.s.head[dom]
                    b.s.head[dom] = block
    b.meta[INDEXED] = t + 1


@inner
def _of_domain(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, riders: bool, dom: int, most: int, device: int, tier: int,
    owned: int, offered: float,
) -> int:  # fmt: skip
    found = 0
    block = b.s.head[dom]
    while block >= 0:
        cls = b.blocks.cls[block]
        if (
            b.blocks.tier[block] == tier
            and (device < 0 or b.kinds.device[cls] == device)
            and (owned < 0 or b.kinds.owned[cls] == owned)
            and unclaimed(w, b, block) > 0
        ):
            found = _judge(w, b, rules, t, q, block, riders, most, offered, found)
        block = b.blocks.chain[block]
    return found


@inner
def _judge(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, block: int, riders: bool, most: int, offered: float,
    found: int,
) -> int:  # fmt: skip
    """Adds a block to those found if it is a candidate."""
    cls = b.blocks.cls[block]
    tokens = b.meta[TOKENS]
    if fill(w, b, rules, t, q, block, riders, most):
        value = b.money[VALUE]
        score = per_dollar(w.k.price[cls] + b.money[RISK], value)
        if b.blocks.tier[block] == BUY:
            accepted = True
        elif b.kinds.owned[cls] != 0:
            accepted = value > b.money[RISK]
        else:
            accepted = score >= times(rules.paid_ratio, offered)
        if accepted:
            b.blocks.score[block] = score
            b.s.block[found] = block
            found += 1
    b.meta[TOKENS] = tokens
    return found


@inner
def _choose(w: World, b: Book, rules: PlacementRules, found: int) -> int:
    """Among those within reach of the best score the cheapest, then smallest machine, then smallest id."""
    best = b.blocks.score[b.s.block[0]]
    for i in range(1, found):
        best = max(best, b.blocks.score[b.s.block[i]])
    floor = times(1.0 - rules.within, best)
    chosen = -1
    for i in range(found):
        block = b.s.block[i]
        if b.blocks.score[block] >= floor and (chosen < 0 or _cheaper(w, b, block, chosen)):
            chosen = block
    return chosen


@inner
def _cheaper(w: World, b: Book, x: int, y: int) -> bool:
    one = b.blocks.cls[x]
    other = b.blocks.cls[y]
    if w.k.price[one] != w.k.price[other]:
        return bool(w.k.price[one] < w.k.price[other])
    size = unit_order(w.k.alloc, one, w.k.alloc, other, b.kinds.descending)
    if size != 0:
        return size > 0
    return id_less(w.ids, b.blocks.least[x], b.blocks.least[y])


@inner
def buy(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, block: int, riders: bool, most: int, once: bool
) -> bool:
    """Takes the fill of a block as often as it repeats (P23); False when a column is full."""
    if (
        no_room(b)
        or b.meta[PURCHASES] + 1 > len(b.bought.turn)
        or b.meta[FILLS] + REACH * rules.riders + 2 > len(b.fill_n)
    ):
        b.meta[FULL] = 1
        return False
    tokens = b.meta[TOKENS]
    tier = b.blocks.tier[block]
    refilled = fill_best(w, b, rules, t, q, block, riders, most)
    token = b.meta[FILL_TOKEN]
    filled = b.meta[FILLED]
    times = unclaimed(w, b, block)
    for i in range(filled):
        times = min(times, deficit(b, b.s.portion[i]) // b.s.units[i])
    if once:
        times = 1
    if b.meta[MEMBERS] + times > len(b.machine) or b.meta[FILLS] + filled > len(b.fill_n):
        b.meta[TOKENS] = tokens
        b.meta[FULL] = 1
        return False
    cls = b.blocks.cls[block]
    cluster = b.t.cluster[t]
    b.meta[REFILLED] += refilled
    source = AWAITING if tier == PAID_DRAINING or tier == PAID_EMPTY else ACQUIRED
    for i in range(filled):
        portion = b.s.portion[i]
        note_portion(b, portion)
        if source == ACQUIRED:
            b.q.acquired[portion] += b.s.units[i] * times
        else:
            b.q.awaiting[portion] += b.s.units[i] * times
    if b.t.kind[t] == SPREAD:
        b.s.count[w.k.dom[cls, b.t.key[t]]] += b.s.units[0] * times
    if tier == PAID_IDLE or tier == BUY:
        free = tier == PAID_IDLE and b.kinds.owned[cls] != 0
        b.money[SPENT] += times * (b.money[RISK] if free else w.k.price[cls] + b.money[RISK])
    first = b.meta[MEMBERS]
    _claim(w, b, block, times)
    lot = new_lot(b, cls, cluster, REMAINDER, source, 0, first, times)
    for d in range(b.lots.left.shape[1]):
        b.lots.left[lot, d] = b.s.left[0, d]
    b.lots.token[lot] = token
    b.lots.devices[lot] = is_for_devices(b, cls, q)
    open_remainder(w, b, rules, lot)
    _record(b, t, block, first, times, lot, filled)
    return True


@inner
def _claim(w: World, b: Book, block: int, times: int) -> None:
    """The next members of a block are taken, in id order; `machine` has room for them."""
    at = b.meta[MEMBERS]
    cell = b.blocks.cell[block]
    if cell >= 0:
        order_members(w.cells, b.members, w.ids, b.slots.place, cell)
        start = w.cells.start[cell] + w.cells.taken[cell]
        for i in range(times):
            b.machine[at + i] = b.members.data[start + i]
        note_cell(w, b, cell)
        w.cells.taken[cell] += times
    else:
        start = b.blocks.first[block] + b.blocks.taken[block]
        for i in range(times):
            b.machine[at + i] = b.machine[start + i]
        note_block(b, block)
        b.blocks.taken[block] += times
    b.meta[MEMBERS] = at + times


@inner
def _record(b: Book, t: int, block: int, first: int, times: int, lot: int, filled: int) -> None:
    """Notes a purchase; a trial's are forgotten by whoever undoes it."""
    at = b.meta[PURCHASES]
    b.meta[PURCHASES] = at + 1
    b.bought.turn[at] = t
    b.bought.tier[at] = b.blocks.tier[block]
    b.bought.first[at] = first
    b.bought.n[at] = times
    b.bought.lot[at] = lot
    b.bought.cell[at] = b.blocks.cell[block]
    b.bought.fill[at] = b.meta[FILLS]
    b.bought.fills[at] = filled
    for i in range(filled):
        b.fill_portion[b.meta[FILLS] + i] = b.s.portion[i]
        b.fill_n[b.meta[FILLS] + i] = b.s.units[i]
    b.meta[FILLS] += filled


@inner
def mark_taken(w: World, b: Book, purchases: int) -> None:
    """What purchases from there on took of closing, draining and empty machines is marked for Preempt and Reclaim."""
    for p in range(purchases, b.meta[PURCHASES]):
        tier = b.bought.tier[p]
        if tier == PAID_IDLE or tier == BUY:
            continue
        bit = REOPENED if tier == REOPEN else TAKEN if tier == PAID_EMPTY else PROMISED
        for i in range(b.bought.first[p], b.bought.first[p] + b.bought.n[p]):
            slot = b.machine[i]
            b.mark[slot] |= bit
            if tier == PAID_DRAINING:
                w.cells.taken[b.slots.cell[slot]] += 1


@inner
def find_scarce(w: World, b: Book, rules: PlacementRules, turns: int) -> None:
    """Marks what rows would exhaust by themselves: riders count for nothing there (P21)."""
    for block in range(b.by_tier[BUY], b.by_tier[BUY + 1]):
        b.blocks.asked[block] = 0
    for t in range(turns):
        if b.t.kind[t] != 0 or b.t.may[t] == 0:
            continue
        q = b.t.first[t]
        wanted = deficit(b, q)
        if wanted == 0:
            continue
        found = 0
        if b.q.device[q] != 0:
            found = _candidates(w, b, rules, t, q, False, -1, -1, NO_LIMIT, _ANY, BUY, -1, 0.0)
        else:
            found = _candidates(w, b, rules, t, q, False, -1, -1, NO_LIMIT, _PLAIN, BUY, -1, 0.0)
            if found == 0:
                found = _candidates(w, b, rules, t, q, False, -1, -1, NO_LIMIT, _DEVICES, BUY, -1, 0.0)
        if found > 0:
            block = _choose(w, b, rules, found)
            cls = b.blocks.cls[block]
            room_into(w, b, b.t.cluster[t], cls, b.s.left, 0)
            most = fits(b, b.s.left, 0, -1, q, cls)
            b.blocks.asked[block] += (wanted + most - 1) // most
    for block in range(b.by_tier[BUY], b.by_tier[BUY + 1]):
        b.blocks.scarce[block] = (
            1 if b.blocks.asked[block] > 0 and b.blocks.asked[block] >= unclaimed(w, b, block) else 0
        )
    for group in range(len(b.group_first)):
        b.group_scarce[group] = 0
        for at in range(b.group_first[group], b.group_last[group]):
            if b.blocks.scarce[b.group_block[at]] != 0:
                b.group_scarce[group] += 1
