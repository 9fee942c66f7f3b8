"""Filling one machine: the units at hand, then riders, the next plain rows of the same cluster that wait (P21, P23).

A machine is filled in `s.portion`, `s.units` and `s.left[0]`; `money` says what that is worth and risks.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.counted.book import (
    BUY,
    FILL_TOKEN,
    FILLED,
    REFILLED,
    REOPEN,
    RISK,
    TOKENS,
    VALUE,
    Book,
    PlacementRules,
)
from bigfleet.engine.counted.lots import is_for_devices, joined
from bigfleet.engine.counted.worth import deficit, fits, open_to, risk_of, room_into, takes
from bigfleet.engine.decide.world import World
from bigfleet.engine.kernels.jit import inner

# How many times `riders` rows a machine with devices is offered to.
REACH = 2


@inner
def times(factor: float, amount: float) -> float:
    """0 times infinity is 0."""
    return 0.0 if factor == 0.0 or amount == 0.0 else factor * amount


@inner
def fill(w: World, b: Book, rules: PlacementRules, t: int, q: int, block: int, riders: bool, most: int) -> bool:
    """Fills one machine of a block, as far as P21 goes; False if it is no candidate."""
    cls = b.blocks.cls[block]
    if not open_to(w, b, rules, t, q, cls):
        return False
    cluster = b.t.cluster[t]
    left = b.s.left
    token = -1
    if b.blocks.tier[block] == REOPEN:
        token = b.blocks.token[block]
        for d in range(left.shape[1]):
            left[0, d] = b.blocks.spare[block, d]
    else:
        room_into(w, b, cluster, cls, left, 0)
    count = min(min(deficit(b, q), most), fits(b, left, 0, token, q, cls))
    if count <= 0:
        return False
    b.s.portion[0] = q
    b.s.units[0] = count
    filled = 1
    _fill_up(b, q, cls, count)
    token = joined(b, token, q)
    value = count * b.q.value[q]
    dollars = times(float(count), b.t.dollars[t])
    if riders and not (b.blocks.tier[block] == BUY and b.blocks.scarce[block] != 0) and _may_ride(b, cluster):
        for_devices = is_for_devices(b, cls, q) != 0
        seen = 0
        before = t
        at = b.t.next[t]
        while at >= 0 and seen < rules.riders:
            ride = b.t.first[at]
            waiting = deficit(b, ride)
            if waiting == 0:
                # Deficits only fall while riders are looked for.
                b.t.next[before] = b.t.next[at]
                at = b.t.next[at]
                continue
            if b.q.value[ride] == 0.0:
                # Nothing in the fleet holds it.
                before = at
                at = b.t.next[at]
                continue
            seen += 1
            more = 0
            if not for_devices or b.q.device[ride] != 0:
                more = min(waiting, fits(b, left, 0, token, ride, cls))
            if more > 0 and open_to(w, b, rules, at, ride, cls) and risk_of(w, b.t.dollars[at], cls) < b.q.value[ride]:
                b.s.portion[filled] = ride
                b.s.units[filled] = more
                filled += 1
                _fill_up(b, ride, cls, more)
                token = joined(b, token, ride)
                value += more * b.q.value[ride]
                dollars += times(float(more), b.t.dollars[at])
            before = at
            at = b.t.next[at]
    b.meta[FILLED] = filled
    b.money[VALUE] = value
    b.money[RISK] = times(w.k.risk[cls], dollars)
    b.meta[FILL_TOKEN] = token
    return True


@inner
def _may_ride(b: Book, cluster: int) -> bool:
    """Whether what is left of the fill at hand could hold a unit of some plain row: what is full has no riders."""
    left = b.s.left
    for d in range(left.shape[1]):
        if left[0, d] < b.least_unit[cluster, d]:
            return False
    return True


@inner
def _fill_up(b: Book, q: int, cls: int, units: int) -> None:
    left = b.s.left
    for d in range(left.shape[1]):
        if left[0, d] > 0:
            left[0, d] = max(0, left[0, d] - units * takes(b, q, cls, d))


@inner
def per_dollar(cost: float, value: float) -> float:
    return np.inf if cost == 0.0 else value / cost


@inner
def fill_best(w: World, b: Book, rules: PlacementRules, t: int, q: int, block: int, riders: bool, most: int) -> bool:
    """Fills one machine of the block that was chosen; one with devices that is to be bought: as well as it can (P23).

    What is full of devices has nothing to give away, so which of those that wait go together decides how many such
    machines it takes. (Machines without devices would become fewer and larger by it, and empty later.) Says whether it
    was such a one.
    """
    tokens = b.meta[TOKENS]
    fill(w, b, rules, t, q, block, riders, most)
    cls = b.blocks.cls[block]
    if not riders or b.blocks.tier[block] != BUY or b.blocks.scarce[block] != 0 or is_for_devices(b, cls, q) == 0:
        return False
    if b.meta[REFILLED] >= rules.refilled:
        return False
    listed = _list_riders(w, b, rules, t, q, cls)
    at_hand = b.s.units[0]
    best = _score(w, b, cls)
    count, first, second = at_hand, -1, -1
    for units in range(at_hand, max(0, at_hand - 2), -1):
        b.meta[TOKENS] = tokens
        able = _find_able(w, b, t, q, cls, units, listed)
        for lead in range(min(able, rules.refills)):
            b.meta[TOKENS] = tokens
            behind = _find_behind(w, b, rules, t, q, cls, units, lead, able)
            for i in range(behind + 1):
                then = lead if i == 0 else b.s.behind[i - 1]
                b.meta[TOKENS] = tokens
                _fill_in_order(w, b, t, q, cls, units, lead, then, able)
                score = _score(w, b, cls)
                if score > best:
                    best = score
                    count, first, second = units, lead, then
    b.meta[TOKENS] = tokens
    if first < 0:
        fill(w, b, rules, t, q, block, riders, most)
    else:
        able = _find_able(w, b, t, q, cls, count, listed)
        b.meta[TOKENS] = tokens
        _fill_in_order(w, b, t, q, cls, count, first, second, able)
    return True


@inner
def _list_riders(w: World, b: Book, rules: PlacementRules, t: int, q: int, cls: int) -> int:
    """Who may ride on such a machine, in `s.rider`."""
    listed = 0
    seen = 0
    at = b.t.next[t]
    while at >= 0 and seen < REACH * rules.riders:
        ride = b.t.first[at]
        if deficit(b, ride) > 0 and b.q.value[ride] != 0.0:
            seen += 1
            if (
                b.q.device[ride] != 0
                and open_to(w, b, rules, at, ride, cls)
                and risk_of(w, b.t.dollars[at], cls) < b.q.value[ride]
            ):
                b.s.rider[listed] = ride
                listed += 1
        at = b.t.next[at]
    return listed


@inner
def _find_able(w: World, b: Book, t: int, q: int, cls: int, units: int, listed: int) -> int:
    """Those of them of which one fits beside so many units at hand, in `s.able`."""
    _begin(w, b, t, q, cls, units)
    able = 0
    for i in range(listed):
        if fits(b, b.s.left, 0, b.meta[FILL_TOKEN], b.s.rider[i], cls) > 0:
            b.s.able[able] = b.s.rider[i]
            able += 1
    return able


@inner
def _find_behind(
    w: World, b: Book, rules: PlacementRules, t: int, q: int, cls: int, units: int, lead: int, able: int
) -> int:
    """The first of these of which one still fits when another leads, in `s.behind`."""
    _begin(w, b, t, q, cls, units)
    _ride(b, b.s.able[lead], cls)
    found = 0
    for i in range(able):
        if found == rules.refills:
            break
        if i != lead and fits(b, b.s.left, 0, b.meta[FILL_TOKEN], b.s.able[i], cls) > 0:
            b.s.behind[found] = i
            found += 1
    return found


@inner
def _fill_in_order(w: World, b: Book, t: int, q: int, cls: int, units: int, lead: int, then: int, able: int) -> None:
    """So many units at hand, the one that leads, the one behind it, and the others as they come."""
    _begin(w, b, t, q, cls, units)
    _ride(b, b.s.able[lead], cls)
    if then != lead:
        _ride(b, b.s.able[then], cls)
    for i in range(able):
        if i != lead and i != then:
            _ride(b, b.s.able[i], cls)
    b.money[RISK] = times(w.k.risk[cls], b.money[RISK])


@inner
def _begin(w: World, b: Book, t: int, q: int, cls: int, units: int) -> None:
    """A machine with nothing but units at hand; `money` has their dollars where it will have the risk."""
    room_into(w, b, b.t.cluster[t], cls, b.s.left, 0)
    _fill_up(b, q, cls, units)
    b.s.portion[0] = q
    b.s.units[0] = units
    b.meta[FILLED] = 1
    b.meta[FILL_TOKEN] = joined(b, -1, q)
    b.money[VALUE] = units * b.q.value[q]
    b.money[RISK] = times(float(units), b.t.dollars[t])


@inner
def _ride(b: Book, ride: int, cls: int) -> None:
    more = min(deficit(b, ride), fits(b, b.s.left, 0, b.meta[FILL_TOKEN], ride, cls))
    if more > 0:
        b.s.portion[b.meta[FILLED]] = ride
        b.s.units[b.meta[FILLED]] = more
        b.meta[FILLED] += 1
        _fill_up(b, ride, cls, more)
        b.meta[FILL_TOKEN] = joined(b, b.meta[FILL_TOKEN], ride)
        b.money[VALUE] += more * b.q.value[ride]
        b.money[RISK] += times(float(more), b.t.dollars[b.q.turn[ride]])


@inner
def _score(w: World, b: Book, cls: int) -> float:
    return per_dollar(w.k.price[cls] + b.money[RISK], b.money[VALUE])
