"""Domains of one turn: units in each, and which of them a strict spread counts (P27). Scratch of the turn at hand."""

from __future__ import annotations

from bigfleet.engine.counted.book import DOMAINS, FULL, MARK, UNIVERSES, Book
from bigfleet.engine.kernels.jit import inner


@inner
def begin_domains(b: Book) -> None:
    b.meta[MARK] += 1
    b.meta[DOMAINS] = 0


@inner
def touch(b: Book, dom: int) -> None:
    """Makes sure that a domain has a count."""
    if b.s.seen[dom] != b.meta[MARK]:
        b.s.seen[dom] = b.meta[MARK]
        b.s.count[dom] = 0
        b.s.dom[b.meta[DOMAINS]] = dom
        b.meta[DOMAINS] += 1


@inner
def is_touched(b: Book, dom: int) -> bool:
    return bool(dom >= 0 and b.s.seen[dom] == b.meta[MARK])


@inner
def include(b: Book, dom: int) -> None:
    """Makes a domain one of the universe."""
    touch(b, dom)
    b.s.inside[dom] = b.meta[MARK]


@inner
def fewest(b: Book) -> int:
    """Units of the emptiest domain of the universe; 0 without one."""
    least = -1
    for i in range(b.meta[DOMAINS]):
        dom = b.s.dom[i]
        if b.s.inside[dom] == b.meta[MARK] and (least < 0 or b.s.count[dom] < least):
            least = b.s.count[dom]
    return max(0, least)


@inner
def level(b: Book, units: int) -> int:
    """How many units a domain of the universe would have if so many more were dealt to the emptiest ones."""
    low = fewest(b)
    high = low + units
    while low < high:
        middle = (low + high) // 2
        dealt = 0
        for i in range(b.meta[DOMAINS]):
            dom = b.s.dom[i]
            if b.s.inside[dom] == b.meta[MARK]:
                dealt += max(0, middle - b.s.count[dom])
        if dealt < units:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def may_take(b: Book, t: int, dom: int, least: int) -> int:
    """How many units a domain may take while the emptiest one has `least`."""
    touch(b, dom)
    return max(0, least + b.t.skew[t] - b.s.count[dom])


@inner
def load(b: Book, t: int) -> bool:
    """Brings back what a spread turn counted so far; False when there is no room to put it away again."""
    if b.meta[UNIVERSES] + len(b.s.dom) > len(b.uni.dom):
        b.meta[FULL] = 1
        return False
    begin_domains(b)
    for i in range(b.t.uni[t], b.t.uni[t] + b.t.unis[t]):
        dom = b.uni.dom[i]
        if dom >= 0:
            include(b, dom)
        else:
            dom = -dom - 1
            touch(b, dom)
        b.s.count[dom] = b.uni.units[i]
    return True


@inner
def save(b: Book, t: int) -> None:
    """Puts the turn's domains away, those outside its universe as negative numbers."""
    n = b.meta[DOMAINS]
    if n > b.t.unis[t]:
        b.t.uni[t] = b.meta[UNIVERSES]
        b.meta[UNIVERSES] += n
    b.t.unis[t] = n
    for i in range(n):
        dom = b.s.dom[i]
        at = b.t.uni[t] + i
        b.uni.dom[at] = dom if b.s.inside[dom] == b.meta[MARK] else -dom - 1
        b.uni.units[at] = b.s.count[dom]
