"""Other room: the best single machine that takes a node's pods, and those of as many others as it can (P36)."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.classes import Classes
from bigfleet.engine.catalog.published import Published
from bigfleet.engine.giving_back.weighing import Allowed, Weighed, allows
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import F8, I4, I4M, I8, I8M, U1, inner, kernel
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.nodes.loads import Loads
from bigfleet.engine.nodes.reports import Reports
from bigfleet.engine.nodes.said import Said, lower_to_said

# A bound on a fraction is computed otherwise than the fraction itself.
_SLACK = 1e-9


@view
class FreeBlocks(View):
    """Blocks of the free pool: class, whether its machines cost nothing (Idle and owned), the smallest id when Assign
    began, members that nobody claimed; `room` is that of the cluster at hand."""

    cls: I4
    unpaid: U1
    least: I4
    left: I4
    order: I4
    room: I8M


@view
class Options(View):
    """By place in a list of nodes: the best block (-1: none), what it saves, and the nodes that would go (places of
    `Weighed`, the first is its own)."""

    block: I4
    saving: F8
    fraction: F8
    old: I4M
    count: I4


@kernel
def rooms(k: Classes, said: Said, overhead: I8M, cluster: int, blocks: FreeBlocks) -> None:
    """Room of every block's class for a cluster (P8)."""
    for b in range(len(blocks.cls)):
        for d in range(blocks.room.shape[1]):
            blocks.room[b, d] = max(0, k.alloc[blocks.cls[b], d] - overhead[cluster, d])
        lower_to_said(said, cluster, k.offer[blocks.cls[b]], blocks.room[b])


@kernel
def find_room(
    r: Reports, k: Classes, pub: Published, loads: Loads, a: Allowed, ids: Ids, w: Weighed, nodes: I4, count: int,
    first: int, blocks: FreeBlocks, size: int, pods: int, device: U1, o: Options,
) -> None:  # fmt: skip
    """The best option of the node at `first` of a list."""
    o.block[first] = -1
    me = nodes[first]
    if a.apart[w.mask[me]] != 0:
        return
    used = np.zeros(r.used.shape[1], np.int64)
    group = np.empty(size, np.int32)
    has_device = False
    for d in range(r.used.shape[1]):
        if device[d] != 0 and r.used[w.row[me], d] > 0:
            has_device = True
    most = w.cost[me] + _dearest(w, nodes, count, size - 1)
    best = -np.inf
    for i in range(len(blocks.order)):
        b = blocks.order[i]
        cls = blocks.cls[b]
        if blocks.left[b] <= 0 or not allows(a, w.mask[me], cls) or (pub.device[cls] != 0 and not has_device):
            continue
        price = 0.0 if blocks.unpaid[b] != 0 else k.price[cls]
        if o.block[first] >= 0 and 1.0 - price / most + _SLACK < best:
            # Dearest last: nothing that follows saves as much.
            break
        found = _gather(r, pub, loads, a, w, nodes, count, first, blocks, b, size, pods, used, group)
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
def _dearest(w: Weighed, nodes: I4, count: int, most: int) -> float:
    """No more than this many nodes of the list cost together."""
    top = 0.0
    for i in range(count):
        top = max(top, w.cost[nodes[i]])
    return top * most


@inner
def _gather(
    r: Reports, pub: Published, loads: Loads, a: Allowed, w: Weighed, nodes: I4, count: int, first: int,
    blocks: FreeBlocks, b: int, size: int, pods: int, used: I8, group: I4,
) -> int:  # fmt: skip
    """Nodes that one machine of the block would take the place of, the first one among them; 0 if not even that."""
    used[:] = 0
    if not _fits(r, pub, blocks, b, used, w.row[nodes[first]], pods):
        return 0
    _join(r, used, w.row[nodes[first]])
    group[0] = nodes[first]
    found = 1
    cls = blocks.cls[b]
    for i in range(count):
        if found >= size:
            break
        other = nodes[i]
        if i == first or a.apart[w.mask[other]] != 0 or not allows(a, w.mask[other], cls):
            continue
        if not _fits(r, pub, blocks, b, used, w.row[other], pods):
            continue
        shared = False
        for n in range(found):
            if _share_token(loads, r.load[w.row[group[n]]], r.load[w.row[other]]):
                shared = True
        if not shared:
            _join(r, used, w.row[other])
            group[found] = other
            found += 1
    return found


@inner
def _fits(r: Reports, pub: Published, blocks: FreeBlocks, b: int, used: I8, row: int, pods: int) -> bool:
    for d in range(len(used)):
        if used[d] + r.used[row, d] > blocks.room[b, d] and (d != pods or pub.pods[blocks.cls[b]] != 0):
            return False
    return True


@inner
def _join(r: Reports, used: I8, row: int) -> None:
    for d in range(len(used)):
        used[d] += r.used[row, d]


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
