"""What a unit takes of a class, how many fit, what it is worth and whether a class is open to it (P8 to P11)."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.counted.book import PODS, Book, PlacementRules
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import SPREAD
from bigfleet.engine.kernels.jit import I4, I8M, inner, kernel
from bigfleet.engine.nodes.said import lower_to_said

_MANY = 4611686018427387904


@inner
def deficit(b: Book, q: int) -> int:
    return b.q.stranded[q] - b.q.coming[q] - b.q.acquired[q] - b.q.awaiting[q]


@inner
def room_into(w: World, b: Book, cluster: int, cls: int, into: I8M, row: int) -> None:
    """Room of a class for a cluster: published less overhead, and no more than its nodes of that kind said (P8)."""
    for d in range(into.shape[1]):
        into[row, d] = max(0, w.k.alloc[cls, d] - w.c.overhead[cluster, d])
    lower_to_said(b.said, cluster, w.k.offer[cls], into[row])


@inner
def takes(b: Book, q: int, cls: int, d: int) -> int:
    """What one unit takes of a resource on such a machine: one of `pods` where they are published."""
    amount = b.q.unit[q, d]
    if amount == 0 and d == b.meta[PODS] and b.kinds.pods[cls] != 0:
        return 1
    return amount


@inner
def excluded(b: Book, token: int, q: int) -> bool:
    """Whether what is there already carries one of the portion's tokens."""
    mine = b.q.token[q]
    while mine >= 0:
        other = token
        while other >= 0:
            if b.token[other] == b.token[mine]:
                return True
            other = b.token_next[other]
        mine = b.token_next[mine]
    return False


@inner
def fits(b: Book, left: I8M, row: int, token: int, q: int, cls: int) -> int:
    """How many units of a portion the room of a row holds."""
    if b.q.token[q] >= 0 and token >= 0 and excluded(b, token, q):
        return 0
    most = _MANY
    for d in range(left.shape[1]):
        amount = takes(b, q, cls, d)
        if amount > 0:
            most = min(most, left[row, d] // amount)
            if most == 0:
                return 0
    if b.q.token[q] >= 0:
        return min(most, 1)
    return most


@inner
def holds(w: World, b: Book, q: int, cls: int) -> int:
    """How many units the class holds as published, tokens aside."""
    most = _MANY
    for d in range(b.q.unit.shape[1]):
        amount = takes(b, q, cls, d)
        if amount > 0:
            most = min(most, w.k.alloc[cls, d] // amount)
            if most == 0:
                return 0
    return most


@inner
def risk_of(w: World, dollars: float, cls: int) -> float:
    if w.k.risk[cls] == 0.0 or dollars == 0.0:
        return 0.0
    return w.k.risk[cls] * dollars


@inner
def matches(w: World, b: Book, t: int, cls: int) -> bool:
    return w.match[b.t.con[t], cls] != 0 and (b.t.kind[t] != SPREAD or w.k.dom[cls, b.t.key[t]] >= 0)


@inner
def risky(w: World, b: Book, rules: PlacementRules, t: int, q: int, cls: int) -> bool:
    risk = risk_of(w, b.t.dollars[t], cls)
    return np.isinf(risk) or risk > rules.risk_limit * b.q.value[q]


@inner
def backed_off(w: World, b: Book, t: int, cls: int) -> bool:
    for i in range(len(b.shut.offer)):
        if (
            b.shut.cluster[i] == b.t.cluster[t]
            and b.shut.offer[i] == w.k.offer[cls]
            and (b.shut.turn[i] < 0 or b.shut.turn[i] == t)
        ):
            return True
    return False


@inner
def open_to(w: World, b: Book, rules: PlacementRules, t: int, q: int, cls: int) -> bool:
    return matches(w, b, t, cls) and not risky(w, b, rules, t, q, cls) and not backed_off(w, b, t, cls)


@kernel
def price_units(w: World, b: Book, classes: int, count: int, table: I4) -> None:
    """Values of the first `count` portions: the cheapest fractional cost over the classes of the fleet. `table` has
    room for all of them: rows of one profile and unit are worth the same in every cluster."""
    mask = len(table) - 1
    for q in range(count):
        at = _hash(b, q) & mask
        while table[at] >= 0 and not _equal(b, table[at], q):
            at = (at + 1) & mask
        if table[at] >= 0:
            b.q.value[q] = b.q.value[table[at]]
        else:
            table[at] = q
            b.q.value[q] = _value(w, b, classes, q)


@inner
def _hash(b: Book, q: int) -> int:
    value = int(b.t.prof[b.q.turn[q]]) * 668265263
    for d in range(b.q.unit.shape[1]):
        value = (value ^ (value >> 15)) & 0x7FFFFFFF
        value = (value * 374761393 + (b.q.unit[q, d] & 0x7FFFFFFF)) & 0x7FFFFFFFFFFF
    return (value ^ (value >> 17)) & 0x7FFFFFFF


@inner
def _equal(b: Book, x: int, y: int) -> bool:
    if b.t.prof[b.q.turn[x]] != b.t.prof[b.q.turn[y]]:
        return False
    for d in range(b.q.unit.shape[1]):
        if b.q.unit[x, d] != b.q.unit[y, d]:
            return False
    return True


@inner
def _value(w: World, b: Book, classes: int, q: int) -> float:
    t = b.q.turn[q]
    best = np.inf
    best_free = np.inf
    # Classes of a group are worth the same; a spread may also ask for a domain.
    every = b.t.kind[t] == SPREAD
    for i in range(classes if every else len(b.group_class)):
        cls = i if every else b.group_class[i]
        if b.kinds.alive[cls] == 0 or not matches(w, b, t, cls):
            continue
        risk = risk_of(w, b.t.dollars[t], cls)
        if np.isinf(risk) or holds(w, b, q, cls) == 0:
            continue
        share = 0.0
        for d in range(b.q.unit.shape[1]):
            amount = takes(b, q, cls, d)
            if amount > 0:
                share = max(share, amount / w.k.alloc[cls, d])
        price = w.k.price[cls]
        if price > 0.0:
            best = min(best, share * price + risk)
        else:
            best_free = min(best_free, share + risk)
    if np.isinf(best):
        best = best_free
    return 0.0 if np.isinf(best) else best
