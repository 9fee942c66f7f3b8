"""Weighing: what the nodes of one cluster cost and what they carry is worth (P35), worst first.

A node is weighed by its report: nothing that is pinned, belongs to a gang, rests, moves or says too little takes part.
What its pods may run on is a row of bits per distinct load, a bit per class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.catalog.classes import Classes
from bigfleet.engine.catalog.published import Published
from bigfleet.engine.fleet.cells import CONFIGURED, IDLE, Cells
from bigfleet.engine.fleet.placing import Slots
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import F8, I4, I8, I8M, U1, inner, kernel
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.nodes.loads import Loads
from bigfleet.engine.nodes.reports import EMPTY, READY, REMOVABLE, STAYS, Reports, is_seen
from bigfleet.engine.nodes.sessions import NEVER, Sessions

# Instead of a row of bits: pods that may not move.
FIXED = -1
# Places in `meta` of what was weighed.
OPEN, CLOSED, CLOSING, MASKS = 0, 1, 2, 3
WORD = 64


class WeighRules(NamedTuple):
    """The instant, how long a node settles, how long one closes before it is moved; the column of `pods`; whether some
    machine of the fleet that is not owned serves a cluster."""

    now: int
    settle: int
    closing: int
    pods: int
    bought: bool


@view
class Allowed(View):
    """What a cluster's profiles allow: by fingerprint of loads its row of `bits` (-1: no row in force asks for it) and
    whether its pods are placed apart; by load the row of `mask` its fingerprints have in common (FIXED: its pods may
    not move), as far as `looked_at` is the pass of `meta[0]`."""

    bits_of: I4
    apart_of: U1
    bits: I8M
    mask_of: I4
    looked_at: I4
    mask: I8M
    apart: U1
    meta: I8


@view
class Weighed(View):
    """Nodes of one cluster: `open` ones that may be closed, `closed` ones that may be moved, as places of the columns,
    worst first. What is `owned` gives way to room that is there, never to another machine."""

    row: I4
    ratio: F8
    cost: F8
    mask: I4
    owned: U1
    open: I4
    closed: I4
    meta: I8


@kernel
def weigh(
    r: Reports, s: Sessions, slots: Slots, cells: Cells, k: Classes, pub: Published, loads: Loads, a: Allowed,
    classes: I4, ids: Ids, cluster: int, rules: WeighRules, w: Weighed,
) -> None:  # fmt: skip
    """Weighs a cluster's nodes; `classes` are those of the fleet with a price, cheapest room first."""
    w.meta[OPEN] = 0
    w.meta[CLOSED] = 0
    w.meta[CLOSING] = 0
    w.meta[MASKS] = 0
    at = 0
    row = s.head[cluster]
    while row >= 0:
        after = r.next[row]
        slot = r.slot[row]
        if slots.state[slot] == CONFIGURED:
            closing = r.closing[row] != 0
            if closing:
                w.meta[CLOSING] += 1
            cls = cells.cls[slots.cell[slot]]
            if _takes_part(r, s, slots, k, pub, row, cls, closing, rules):
                mask = _mask(loads, a, w, r.load[row])
                if mask >= 0:
                    carried = _carried(r, k, pub, a, classes, row, mask, rules.pods)
                    if carried != np.inf:
                        w.row[at] = row
                        w.cost[at] = k.price[cls] + _times(k.risk[cls], r.interruption[row])
                        w.ratio[at] = carried / w.cost[at]
                        w.mask[at] = mask
                        w.owned[at] = pub.owned[cls]
                        if closing:
                            w.closed[w.meta[CLOSED]] = at
                            w.meta[CLOSED] += 1
                        else:
                            w.open[w.meta[OPEN]] = at
                            w.meta[OPEN] += 1
                        at += 1
        row = after
    _worst_first(r, ids, w, w.closed, w.meta[CLOSED])


@kernel
def below(r: Reports, ids: Ids, w: Weighed, ratio: float, most: int) -> None:
    """Of the open nodes the first `most` whose ratio is below this one."""
    kept = 0
    for i in range(w.meta[OPEN]):
        if w.ratio[w.open[i]] < ratio:
            w.open[kept] = w.open[i]
            kept += 1
    _worst_first(r, ids, w, w.open, kept)
    w.meta[OPEN] = min(kept, most)


@inner
def _takes_part(
    r: Reports, s: Sessions, slots: Slots, k: Classes, pub: Published, row: int, cls: int, closing: bool,
    rules: WeighRules,
) -> bool:  # fmt: skip
    flags = r.flags[row]
    if not flags & READY or flags & (EMPTY | STAYS) or r.marks[row] != 0 or k.price[cls] <= 0.0:
        return False
    if pub.owned[cls] != 0 and (not flags & REMOVABLE or not rules.bought or k.count[cls, IDLE] > 0):
        return False
    if closing:
        return bool(rules.now - r.closing[row] >= rules.closing)
    if r.ready_since[row] == NEVER or rules.now - r.ready_since[row] < rules.settle:
        return False
    return is_seen(r, s, slots, row)


@inner
def _mask(loads: Loads, a: Allowed, w: Weighed, load: int) -> int:
    """The row of classes on which all profiles of a load may run, or FIXED."""
    if a.looked_at[load] == a.meta[0]:
        return a.mask_of[load]
    a.looked_at[load] = a.meta[0]
    a.mask_of[load] = FIXED
    if loads.grouped[load] != 0 or loads.count[load] == 0:
        return FIXED
    mask = w.meta[MASKS]
    a.mask[mask, :] = -1
    a.apart[mask] = 0
    for i in range(loads.first[load], loads.first[load] + loads.count[load]):
        name = loads.print[i]
        bits = a.bits_of[name]
        if bits < 0:
            return FIXED
        a.apart[mask] |= a.apart_of[name]
        for word in range(a.mask.shape[1]):
            a.mask[mask, word] &= a.bits[bits, word]
    w.meta[MASKS] += 1
    a.mask_of[load] = mask
    return mask


@inner
def allows(a: Allowed, mask: int, cls: int) -> bool:
    return bool((a.mask[mask, cls // WORD] >> (cls % WORD)) & 1)


@inner
def _times(factor: float, dollars: float) -> float:
    """0 × infinity = 0."""
    return 0.0 if factor == 0.0 or dollars == 0.0 else factor * dollars


@inner
def _carried(r: Reports, k: Classes, pub: Published, a: Allowed, classes: I4, row: int, mask: int, pods: int) -> float:
    """What the node's pods would cost where a share of a machine costs least; infinite where nothing holds them."""
    best = np.inf
    dollars = r.interruption[row]
    for i in range(len(classes)):
        cls = classes[i]
        if not allows(a, mask, cls):
            continue
        risk = _times(k.risk[cls], dollars)
        price = k.price[cls]
        share = 0.0
        holds = True
        for d in range(r.used.shape[1]):
            used = r.used[row, d]
            if used == 0 or (d == pods and pub.pods[cls] == 0):
                continue
            if used > k.alloc[cls, d]:
                holds = False
                break
            share = max(share, used / k.alloc[cls, d])
            if share * price + risk >= best:
                holds = False
                break
        if holds:
            best = min(best, share * price + risk)
    return best


@inner
def _worst_first(r: Reports, ids: Ids, w: Weighed, places: I4, count: int) -> None:
    sort = sorting(0, count)
    while asks(sort, places):
        later = w.ratio[sort[LATER]]
        earlier = w.ratio[sort[EARLIER]]
        if later != earlier:
            sort[ANSWER] = later < earlier
        else:
            sort[ANSWER] = id_less(ids, r.slot[w.row[sort[LATER]]], r.slot[w.row[sort[EARLIER]]])
