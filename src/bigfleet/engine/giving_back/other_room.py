"""Other room: the best single machine that takes a node's pods, and those of as many others as it can (P36); and what
moving them there gains (P39)."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.classes import Classes
from bigfleet.engine.catalog.published import Published
from bigfleet.engine.giving_back.weighing import Allowed, Weighed, allows
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import F8, I4, I4M, I8, I8M, U1, inner, kernel
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.nodes.loads import Loads
from bigfleet.engine.nodes.reports import REMOVABLE, Reports
from bigfleet.engine.nodes.said import Said, lower_to_said

_HOUR = 3_600_000_000_000
# A bound on a fraction is computed otherwise than the fraction itself.
_SLACK = 1e-9
# Nodes of a list that are passed over at once when none of them can fit.
_STRETCH = 16


@view
class FreeBlocks(View):
    """Blocks of the free pool: class, whether its machines cost nothing (Idle and owned), the smallest id when Assign
    began, members that nobody claimed; `order` has the cheapest first, those of one class together and by id; `room` is
    that of the cluster at hand."""

    cls: I4
    unpaid: U1
    least: I4
    left: I4
    order: I4
    room: I8M


@view
class Options(View):
    """By place in a list of nodes: the best block (-1: none), what it saves, the nodes that would go (places of
    `Weighed`, the first is its own), and, once weighed, what the move gains and how many pods it evicts; `order` are
    the places of moves that pay, best first."""

    block: I4
    saving: F8
    fraction: F8
    old: I4M
    count: I4
    gain: F8
    pods: I8
    order: I4
    meta: I8


@kernel
def rooms(k: Classes, said: Said, overhead: I8M, cluster: int, blocks: FreeBlocks) -> None:
    """Room of every block's class for a cluster (P8)."""
    for b in range(len(blocks.cls)):
        for d in range(blocks.room.shape[1]):
            blocks.room[b, d] = max(0, k.alloc[blocks.cls[b], d] - overhead[cluster, d])
        lower_to_said(said, cluster, k.offer[blocks.cls[b]], blocks.room[b])


@kernel
def find_rooms(
    r: Reports, k: Classes, pub: Published, loads: Loads, a: Allowed, ids: Ids, w: Weighed, nodes: I4, count: int,
    blocks: FreeBlocks, size: int, pods: int, device: U1, o: Options,
) -> None:  # fmt: skip
    """The best option of every node of a list that is not removable."""
    used = np.empty((count, r.used.shape[1]), np.int64)
    for i in range(count):
        for d in range(r.used.shape[1]):
            used[i, d] = r.used[w.row[nodes[i]], d]
    least = _least_used(used)
    dearest = _dearest(w, nodes, count, size - 1)
    together = np.empty(r.used.shape[1], np.int64)
    group = np.empty(size, np.int32)
    for first in range(count):
        o.block[first] = -1
        me = nodes[first]
        if r.flags[w.row[me]] & REMOVABLE or a.apart[w.mask[me]] != 0:
            continue
        has_device = False
        for d in range(used.shape[1]):
            if device[d] != 0 and used[first, d] > 0:
                has_device = True
        best = -np.inf
        last = -1
        for i in range(len(blocks.order)):
            b = blocks.order[i]
            cls = blocks.cls[b]
            if last >= 0 and blocks.cls[last] == cls and blocks.unpaid[last] == blocks.unpaid[b]:
                # The same machines to whoever looks for room, behind the one before by id.
                continue
            if blocks.left[b] <= 0:
                continue
            last = b
            if not allows(a, w.mask[me], cls) or (pub.device[cls] != 0 and not has_device):
                continue
            price = 0.0 if blocks.unpaid[b] != 0 else k.price[cls]
            if o.block[first] >= 0 and 1.0 - price / (w.cost[me] + dearest) + _SLACK < best:
                # Dearest last: nothing that follows saves as much.
                break
            limit = pods if pub.pods[cls] == 0 else -1
            found = _gather(r, loads, a, w, nodes, used, least, first, blocks, b, size, limit, together, group)
            if found == 0:
                continue
            old_cost = 0.0
            dollars = 0.0
            for n in range(found):
                old_cost += w.cost[group[n]]
                dollars += r.interruption[w.row[group[n]]]
            risk = 0.0 if k.risk[cls] == 0.0 or dollars == 0.0 else k.risk[cls] * dollars
            saving = old_cost - (price + risk)
            fraction = saving / old_cost
            if o.block[first] < 0 or _better(k, pub, ids, blocks, b, fraction, o.block[first], best):
                best = fraction
                o.block[first] = b
                o.saving[first] = saving
                o.fraction[first] = fraction
                o.count[first] = found
                for n in range(found):
                    o.old[first, n] = group[n]


@inner
def _least_used(used: I8M) -> I8M:
    """The least that any node of a stretch of the list uses, by resource."""
    count = used.shape[0]
    least = np.empty(((count + _STRETCH - 1) // _STRETCH, used.shape[1]), np.int64)
    for i in range(count):
        for d in range(used.shape[1]):
            if i % _STRETCH == 0 or used[i, d] < least[i // _STRETCH, d]:
                least[i // _STRETCH, d] = used[i, d]
    return least


@inner
def _dearest(w: Weighed, nodes: I4, count: int, most: int) -> float:
    """No more than this do so many nodes of the list cost together."""
    top = np.zeros(max(1, most))
    for i in range(count):
        at = most - 1
        if at < 0 or w.cost[nodes[i]] <= top[at]:
            continue
        while at > 0 and top[at - 1] < w.cost[nodes[i]]:
            top[at] = top[at - 1]
            at -= 1
        top[at] = w.cost[nodes[i]]
    total = 0.0
    for i in range(most):
        total += top[i]
    return total


@inner
def _gather(
    r: Reports, loads: Loads, a: Allowed, w: Weighed, nodes: I4, used: I8M, least: I8M, first: int,
    blocks: FreeBlocks, b: int, size: int, limit: int, together: I8, group: I4,
) -> int:  # fmt: skip
    """Nodes that one machine of the block would take the place of, the first one among them; 0 if not even that. The
    resource `limit` does not count there."""
    together[:] = 0
    if not _fits(used, first, blocks, b, limit, together):
        return 0
    _join(used, first, together)
    group[0] = nodes[first]
    found = 1
    cls = blocks.cls[b]
    count = used.shape[0]
    at = 0
    while at < count and found < size:
        if at % _STRETCH == 0 and not _fits(least, at // _STRETCH, blocks, b, limit, together):
            at += _STRETCH
            continue
        other = nodes[at]
        if (
            at != first
            and w.owned[other] == 0
            and _fits(used, at, blocks, b, limit, together)
            and allows(a, w.mask[other], cls)
            and a.apart[w.mask[other]] == 0
            and not _shares_token(r, loads, w, group, found, other)
        ):
            _join(used, at, together)
            group[found] = other
            found += 1
        at += 1
    return found


@inner
def _fits(used: I8M, at: int, blocks: FreeBlocks, b: int, limit: int, together: I8) -> bool:
    for d in range(len(together)):
        if together[d] + used[at, d] > blocks.room[b, d] and d != limit:
            return False
    return True


@inner
def _join(used: I8M, at: int, together: I8) -> None:
    for d in range(len(together)):
        together[d] += used[at, d]


@inner
def _shares_token(r: Reports, loads: Loads, w: Weighed, group: I4, found: int, other: int) -> bool:
    load = r.load[w.row[other]]
    if loads.tokens_of[load] == 0:
        return False
    for n in range(found):
        if _share_token(loads, r.load[w.row[group[n]]], load):
            return True
    return False


@inner
def _share_token(loads: Loads, a: int, b: int) -> bool:
    x = loads.tokens_of[a]
    y = loads.tokens_of[b]
    if x == 0 or y == 0:
        return False
    for i in range(loads.token_first[x], loads.token_first[x + 1]):
        for j in range(loads.token_first[y], loads.token_first[y + 1]):
            if loads.token[i] == loads.token[j]:
                return True
    return False


@inner
def _better(
    k: Classes, pub: Published, ids: Ids, blocks: FreeBlocks, b: int, fraction: float, other: int, best: float
) -> bool:  # fmt: skip
    """Largest fraction, then lowest price, smaller allocatable, smallest id."""
    if fraction != best:
        return fraction > best
    mine = blocks.cls[b]
    theirs = blocks.cls[other]
    if k.price[mine] != k.price[theirs]:
        return bool(k.price[mine] < k.price[theirs])
    if pub.size[mine] != pub.size[theirs]:
        return bool(pub.size[mine] < pub.size[theirs])
    return id_less(ids, blocks.least[b], blocks.least[other])


@kernel
def weigh_moves(
    r: Reports, k: Classes, pub: Published, ids: Ids, w: Weighed, nodes: I4, count: int, blocks: FreeBlocks,
    acquire: bool, min_saving: float, payback: float, pods: int, o: Options,
) -> None:  # fmt: skip
    """Orders the moves of a list that pay: deletions, and replacements that save enough (P39)."""
    o.meta[0] = 0
    for at in range(count):
        me = nodes[at]
        overlap = 0.0
        if r.flags[w.row[me]] & REMOVABLE:
            o.block[at] = -1
            o.saving[at] = w.cost[me]
            o.old[at, 0] = me
            o.count[at] = 1
        elif not acquire or o.block[at] < 0 or not o.fraction[at] > min_saving:
            continue
        elif blocks.unpaid[o.block[at]] == 0:
            cls = blocks.cls[o.block[at]]
            overlap = k.price[cls] * (pub.boot[cls] / _HOUR)
        reclamation = 0.0
        evicted = 0
        for n in range(o.count[at]):
            row = w.row[o.old[at, n]]
            reclamation += r.reclamation[row]
            evicted += max(1, r.used[row, pods]) if pods >= 0 else 1
        o.gain[at] = o.saving[at] * payback - reclamation - overlap
        o.pods[at] = evicted
        if o.gain[at] > 0.0:
            o.order[o.meta[0]] = at
            o.meta[0] += 1
    sort = sorting(0, o.meta[0])
    while asks(sort, o.order):
        later = o.gain[sort[LATER]] / o.pods[sort[LATER]]
        earlier = o.gain[sort[EARLIER]] / o.pods[sort[EARLIER]]
        if later != earlier:
            sort[ANSWER] = later > earlier
        else:
            sort[ANSWER] = id_less(ids, r.slot[w.row[nodes[sort[LATER]]]], r.slot[w.row[nodes[sort[EARLIER]]]])
