"""Belief: a cluster that says nonsense gets at most what its count needs once more (P19). In integers."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import SPREAD
from bigfleet.engine.fleet.placing import Slots
from bigfleet.engine.kernels.jit import I4, I8, U1, inner, kernel
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.nodes.reports import Reports, is_seen
from bigfleet.engine.nodes.seen import Seen
from bigfleet.engine.nodes.sessions import Sessions

_MANY = 4611686018427387904
# Ten or eleven times as much still fits.
_SATURATED = 576460752303423488
# How many kinds of parts are remembered at a time, and how many classes for all of them.
_KINDS = 1024
_CLASSES = 8192
# Places in `meta`.
_USED = 0


@view
class Choices(View):
    """What parts of one kind (profile, unit, whether they spread and share machines) may be held on: `fits` units on a
    machine for `price`. `table` finds a kind by its hash, `entry` and `part` are the first of it, and its choices are
    `first[kind] .. first[kind + 1]`; none of them is dearer than another that holds more."""

    table: I4
    entry: I4
    part: I4
    first: I4
    fits: I8
    price: I8
    meta: I8


def no_choices(classes: int) -> Choices:
    """Nothing is known yet."""
    size = max(_CLASSES, classes)
    return Choices(
        table=np.full(2 * _KINDS, -1, np.int32), entry=np.empty(_KINDS, np.int32), part=np.empty(_KINDS, np.int32),
        first=np.zeros(_KINDS + 1, np.int32), fits=np.empty(size, np.int64), price=np.empty(size, np.int64),
        meta=np.zeros(1, np.int64),
    )  # fmt: skip


@kernel
def doubt(
    w: World, r: Reports, s: Sessions, seen: Seen, slots: Slots, alive: U1, with_pods: U1, price: I8, classes: int,
    pods: int, odd: int, risk_limit: float, single: U1, known: Choices, which: I4, count: int, believed: U1,
) -> None:  # fmt: skip
    """Tells which of the clusters are believed: what of them is suspect costs no more than what their rows need.
    `single` marks rows of which a machine holds one unit at most; `price` is what machines of a class count for."""
    for i in range(count):
        cluster = which[i]
        suspect = s.suspect[cluster]
        if suspect < 0:
            suspect = _suspect_price(w, r, s, seen, slots, pods, odd, cluster)
        believed[i] = 1
        if suspect > 0:
            fresh = 0
            for entry in range(w.c.start[cluster], w.c.start[cluster] + w.c.entries[cluster]):
                for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
                    kind = _kind_of(w, alive, with_pods, price, classes, pods, risk_limit, single, known, entry, part)
                    fresh += _fresh_price(known, kind, w.rows.count[w.parts.row[part]])
                if fresh >= suspect:
                    break
            believed[i] = suspect <= fresh


@inner
def _suspect_price(
    w: World, r: Reports, s: Sessions, seen: Seen, slots: Slots, pods: int, odd: int, cluster: int
) -> int:
    """Kept with the cluster's session: only something new said or seen changes it."""
    width = w.rows.unit.shape[1]
    used = np.zeros(width, np.int64)
    running = np.zeros(width, np.int64)
    for d in range(min(width, seen.used.shape[1])):
        used[d] = min(_SATURATED, seen.used[cluster, d])
    if seen.large[cluster] > 0:
        _add_up(r, s, slots, cluster, used)
    for each in range(w.c.start[cluster], w.c.start[cluster] + w.c.rows[cluster]):
        for d in range(width):
            running[d] = min(_SATURATED, running[d] + w.rows.running[each] * w.rows.unit[each, d])
    suspect = seen.idle[cluster]
    for d in range(width):
        if d != pods and d != odd and used[d] > 0 and 10 * used[d] > 11 * running[d]:
            suspect = seen.every[cluster]
    s.suspect[cluster] = suspect
    return suspect


@inner
def _add_up(r: Reports, s: Sessions, slots: Slots, cluster: int, used: I8) -> None:
    """Amounts so large that their sum is kept nowhere."""
    used[:] = 0
    row = s.head[cluster]
    while row >= 0:
        if is_seen(r, s, slots, row):
            for d in range(min(len(used), r.used.shape[1])):
                used[d] = min(_SATURATED, used[d] + r.used[row, d])
        row = r.next[row]


@kernel
def value_of(w: World, alive: U1, with_pods: U1, classes: int, pods: int, entry: int, part: int) -> float:
    """`part_value` for Python."""
    return part_value(w, alive, with_pods, classes, pods, entry, part)


@inner
def part_value(w: World, alive: U1, with_pods: U1, classes: int, pods: int, entry: int, part: int) -> float:
    """The value of one unit of a part (P10)."""
    prof = w.e.prof[entry]
    con = w.p.con[prof]
    key = w.p.spread[prof] if w.e.kind[entry] == SPREAD else -1
    dollars = w.p.told_dollars[prof]
    value = np.inf
    value_free = np.inf
    for cls in range(classes):
        if alive[cls] == 0 or w.match[con, cls] == 0 or (key >= 0 and w.k.dom[cls, key] < 0):
            continue
        risk = 0.0 if w.k.risk[cls] == 0.0 or dollars == 0.0 else w.k.risk[cls] * dollars
        if np.isinf(risk) or _holds(w, with_pods, pods, part, cls) == 0:
            continue
        share = 0.0
        for d in range(w.parts.unit.shape[1]):
            amount = _takes(w, with_pods, pods, part, cls, d)
            if amount > 0:
                share = max(share, amount / w.k.alloc[cls, d])
        if w.k.price[cls] > 0.0:
            value = min(value, share * w.k.price[cls] + risk)
        else:
            value_free = min(value_free, share + risk)
    if np.isinf(value):
        value = value_free
    if np.isinf(value):
        value = 0.0
    return value


@inner
def _fresh_price(known: Choices, kind: int, count: int) -> int:
    """What it costs to hold so many units on the cheapest class."""
    best = -1
    for i in range(known.first[kind], known.first[kind + 1]):
        price = (count + known.fits[i] - 1) // known.fits[i] * known.price[i]
        if best < 0 or price < best:
            best = price
    return max(0, best)


@inner
def _kind_of(
    w: World, alive: U1, with_pods: U1, price: I8, classes: int, pods: int, risk_limit: float, single: U1,
    known: Choices, entry: int, part: int,
) -> int:  # fmt: skip
    """The kind of a part; what it may be held on is found out when it is met first."""
    hashed = int(w.e.prof[entry]) % 65521
    for d in range(w.parts.unit.shape[1]):
        hashed = (hashed * 31 + int(w.parts.unit[part, d] % 65521)) % 65521
    at = hashed % len(known.table)
    while known.table[at] >= 0:
        kind = known.table[at]
        if _are_alike(w, single, entry, part, known.entry[kind], known.part[kind]):
            return int(kind)
        at = (at + 1) % len(known.table)
    kind = known.meta[_USED]
    if kind == len(known.entry) or known.first[kind] + classes > len(known.fits):
        # Too many to remember: they are forgotten together.
        known.table[:] = -1
        kind = 0
        at = hashed % len(known.table)
    known.table[at] = kind
    known.entry[kind] = entry
    known.part[kind] = part
    known.meta[_USED] = kind + 1
    _find_choices(w, alive, with_pods, price, classes, pods, risk_limit, single, known, kind)
    return int(kind)


@inner
def _are_alike(w: World, single: U1, entry: int, part: int, other: int, others: int) -> bool:
    if (
        w.e.prof[entry] != w.e.prof[other]
        or (w.e.kind[entry] == SPREAD) != (w.e.kind[other] == SPREAD)
        or single[w.parts.row[part]] != single[w.parts.row[others]]
    ):
        return False
    for d in range(w.parts.unit.shape[1]):
        if w.parts.unit[part, d] != w.parts.unit[others, d]:
            return False
    return True


@inner
def _find_choices(
    w: World, alive: U1, with_pods: U1, price: I8, classes: int, pods: int, risk_limit: float, single: U1,
    known: Choices, kind: int,
) -> None:  # fmt: skip
    """Of classes that hold the part, those that are cheapest for some count."""
    entry = known.entry[kind]
    part = known.part[kind]
    prof = w.e.prof[entry]
    con = w.p.con[prof]
    key = w.p.spread[prof] if w.e.kind[entry] == SPREAD else -1
    dollars = w.p.told_dollars[prof]
    value = part_value(w, alive, with_pods, classes, pods, entry, part)
    known.first[kind + 1] = known.first[kind]
    for cls in range(classes):
        if alive[cls] == 0 or w.match[con, cls] == 0 or (key >= 0 and w.k.dom[cls, key] < 0):
            continue
        risk = 0.0 if w.k.risk[cls] == 0.0 or dollars == 0.0 else w.k.risk[cls] * dollars
        if np.isinf(risk) or risk > risk_limit * value:
            continue
        most = _holds(w, with_pods, pods, part, cls)
        if most > 0:
            if single[w.parts.row[part]] != 0:
                most = 1
            _note_choice(known, kind, most, price[cls])


@inner
def _note_choice(known: Choices, kind: int, fits: int, price: int) -> None:
    """Unless another holds as much for no more; those of which that is now true go."""
    first = known.first[kind]
    last = known.first[kind + 1]
    for i in range(first, last):
        if known.fits[i] >= fits and known.price[i] <= price:
            return
    at = first
    for i in range(first, last):
        if known.fits[i] > fits or known.price[i] < price:
            known.fits[at] = known.fits[i]
            known.price[at] = known.price[i]
            at += 1
    known.fits[at] = fits
    known.price[at] = price
    known.first[kind + 1] = at + 1


@inner
def _takes(w: World, with_pods: U1, pods: int, part: int, cls: int, d: int) -> int:
    amount = w.parts.unit[part, d]
    return 1 if amount == 0 and d == pods and with_pods[cls] != 0 else amount


@inner
def _holds(w: World, with_pods: U1, pods: int, part: int, cls: int) -> int:
    most = _MANY
    for d in range(w.parts.unit.shape[1]):
        amount = _takes(w, with_pods, pods, part, cls, d)
        if amount > 0:
            most = min(most, w.k.alloc[cls, d] // amount)
    return most
