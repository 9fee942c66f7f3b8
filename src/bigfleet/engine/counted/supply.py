"""What counted entries look at: lots of machines under way to their clusters, and blocks that may be taken (P12, P18,
P20). Found once per step, by kernels over what is listed as young, loose, draining or free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.book import (
    BLOCKS,
    BUY,
    COMING,
    LOOSE,
    LOTS,
    MEMBERS,
    NAMED,
    PAID_DRAINING,
    PAID_EMPTY,
    PAID_IDLE,
    PODS,
    REOPEN,
    UNNAMED,
    Book,
)
from bigfleet.engine.counted.worth import room_into
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import (
    OWNER_DRAINING,
    OWNER_IDLE,
    OWNER_SPECULATIVE,
)
from bigfleet.engine.fleet.members import sort_slots
from bigfleet.engine.fleet.placing import KEPT
from bigfleet.engine.kernels.ids import Ids
from bigfleet.engine.kernels.jit import I4, I8, I8M, U1, inner, kernel
from bigfleet.engine.nodes.reports import EMPTY, Reports, row_of


@kernel
def sort_machines(ids: Ids, slots: I4, count: int) -> None:
    """Machines into id order."""
    sort_slots(ids, slots, count)


@inner
def left_into(w: World, b: Book, r: Reports, slot: int, cluster: int, into: I8M, row: int) -> None:
    """What a machine has left for its cluster: what its report says, else the room of its class (P12)."""
    report = row_of(r, slot)
    room_into(w, b, cluster, w.cells.cls[b.slots.cell[slot]], into, row)
    if report >= 0:
        width = into.shape[1]
        if r.said[report] >= 0:
            for d in range(width):
                into[row, d] = b.said.amount[r.said[report], d]
        for d in range(width):
            into[row, d] = max(0, into[row, d] - r.used[report, d])


@kernel
def find_coming(
    w: World, b: Book, r: Reports, young: I4, count: int, served: U1, of_sums: U1, tokens_of: I4, now: int,
    slots: I4, token: I4, left: I8M,
) -> int:  # fmt: skip
    """Machines under way to clusters that take turns, and those that name none; what each has left."""
    found = 0
    for i in range(count):
        slot = young[i]
        cluster = b.slots.cluster[slot]
        if (b.slots.deadline[slot] != 0 and now >= b.slots.deadline[slot]) or b.slots.flags[slot] & KEPT:
            continue
        token[found] = 0
        if cluster < 0:
            stamp = w.cells.stamp[b.slots.cell[slot]]
            if of_sums[w.pairs.fingerprint[stamp]] != 0:
                continue
            for d in range(left.shape[1]):
                left[found, d] = 0
        elif served[cluster] == 0:
            continue
        else:
            left_into(w, b, r, slot, cluster, left, found)
            report = row_of(r, slot)
            if report >= 0:
                token[found] = tokens_of[r.load[report]]
        slots[found] = slot
        found += 1
    return found


def make_lots(
    w: World,
    b: Book,
    slots: NDArray[np.int32],
    token: NDArray[np.int32],
    left: NDArray[np.int64],
    chains: NDArray[np.int32],
    own: NDArray[np.int32],
) -> None:
    """Whole lots: machines of one cluster with equal class, tokens, room left and owner, in id order. `chains` are the
    token chains by set, `own` the turn of the gang each was bought for."""
    count = len(slots)
    if not count:
        return
    order = slots.copy()
    sort_machines(w.ids, order, count)
    rank = np.empty(int(slots.max()) + 1, np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    cls = w.cells.cls[b.slots.cell[slots]]
    cluster = b.slots.cluster[slots]
    keys: list[NDArray[Any]] = [rank[slots], *(left[:, d] for d in range(left.shape[1])), token, own, cls, cluster]
    by_lot = np.lexsort(keys)
    differs = np.zeros(count, bool)
    differs[0] = True
    for column in keys[1:]:
        ordered = column[by_lot]
        differs[1:] |= ordered[1:] != ordered[:-1]
    firsts = np.nonzero(differs)[0]
    lots, size = b.lots, len(firsts)
    b.machine[:count] = slots[by_lot]
    head = by_lot[firsts]
    lots.cls[:size], lots.cluster[:size] = cls[head], cluster[head]
    lots.left[:size], lots.token[:size] = left[head], chains[token[head]]
    lots.source[:size], lots.closed[:size] = COMING, 0
    lots.until[:size] = np.maximum.reduceat(b.slots.deadline[slots[by_lot]], firsts)
    lots.rank[:size] = np.where(cluster[head] < 0, UNNAMED, NAMED)
    lots.own[:size], lots.devices[:size] = own[head], 0
    lots.first[:size] = firsts
    lots.n[:size] = np.diff(np.append(firsts, count))
    # The lots of a cluster lie together: each leads to the one before it.
    lots.next[:size] = np.arange(-1, size - 1)
    homes = lots.cluster[:size]
    begins = np.append(True, homes[1:] != homes[:-1])
    lots.next[:size][begins] = -1
    last = np.append(begins[1:], True)
    named = last & (homes >= 0)
    b.whole[homes[named]] = np.nonzero(named)[0]
    b.meta[LOOSE] = int((homes < 0).sum()) - 1
    b.meta[LOTS], b.meta[MEMBERS] = size, count


@kernel
def list_draining(w: World, b: Book, r: Reports, now: int, slots: I4, others: I4, out: I8) -> None:
    """Draining machines of reporting clusters that are reported empty and in time (tier c), and all others; how many
    of both go to `out`."""
    found = 0
    more = 0
    for k in range(w.owners.start[OWNER_DRAINING], w.owners.start[OWNER_DRAINING] + w.owners.used[OWNER_DRAINING]):
        cell = w.held.data[k]
        counted = w.c.counted[w.cells.cluster[cell]] != 0
        for m in range(w.cells.start[cell], w.cells.start[cell] + w.cells.used[cell]):
            slot = b.members.data[m]
            if slot < 0:
                continue
            report = row_of(r, slot) if counted else -1
            empty = report >= 0 and r.flags[report] & EMPTY
            if empty and (b.slots.deadline[slot] == 0 or now < b.slots.deadline[slot]):
                slots[found] = slot
                found += 1
            else:
                others[more] = slot
                more += 1
    out[0] = found
    out[1] = more


@kernel
def draining_machines(w: World) -> int:
    total = 0
    for k in range(w.owners.start[OWNER_DRAINING], w.owners.start[OWNER_DRAINING] + w.owners.used[OWNER_DRAINING]):
        total += w.cells.count[w.held.data[k]]
    return total


@kernel
def make_blocks(
    w: World, b: Book, r: Reports, closing: I4, closings: int, tokens_of: I4, chains: I4, draining: I4, drainings: int,
    empty: I4, empties: int, emptying: I4, emptyings: int,
) -> None:  # fmt: skip
    """Blocks of every tier: closing nodes one by one, cells of the free pool, draining machines by class, empty ones of
    others by class and cluster; behind them all the draining machines that only patient gangs look at. Those that drain
    or are empty come in id order."""
    at = 0
    for i in range(closings):
        slot = closing[i]
        cluster = b.slots.cluster[slot]
        _add(b, at, REOPEN, w.cells.cls[b.slots.cell[slot]], -1, slot, cluster)
        b.blocks.first[at] = b.meta[MEMBERS]
        b.blocks.n[at] = 1
        b.machine[b.meta[MEMBERS]] = slot
        b.meta[MEMBERS] += 1
        left_into(w, b, r, slot, cluster, b.blocks.spare, at)
        b.blocks.token[at] = chains[tokens_of[r.load[row_of(r, slot)]]]
        b.blocks.carried[at] = _carried(w, b, r, row_of(r, slot), b.blocks.cls[at])
        b.blocks.next[at] = b.reopen[cluster]
        b.reopen[cluster] = at
        at += 1
    b.by_tier[REOPEN] = 0
    b.by_tier[PAID_IDLE] = at
    start = w.owners.start[OWNER_IDLE]
    for k in range(start, start + w.owners.used[OWNER_IDLE]):
        cell = w.held.data[k]
        _add(b, at, PAID_IDLE, w.cells.cls[cell], cell, w.cells.least[cell], -1)
        at += 1
    b.by_tier[PAID_DRAINING] = at
    at = _grouped(w, b, draining, drainings, PAID_DRAINING, at)
    b.by_tier[PAID_EMPTY] = at
    at = _grouped(w, b, empty, empties, PAID_EMPTY, at)
    b.by_tier[BUY] = at
    start = w.owners.start[OWNER_SPECULATIVE]
    for k in range(start, start + w.owners.used[OWNER_SPECULATIVE]):
        cell = w.held.data[k]
        if w.k.broken[w.cells.cls[cell]] == 0:
            _add(b, at, BUY, w.cells.cls[cell], cell, w.cells.least[cell], -1)
            at += 1
    b.by_tier[BUY + 1] = at
    b.meta[BLOCKS] = _grouped(w, b, emptying, emptyings, PAID_DRAINING, at)


@inner
def _carried(w: World, b: Book, r: Reports, row: int, own: int) -> float:
    """What a node's pods would cost where a share of a machine costs least that is interrupted no more often (P22)."""
    best = np.inf
    for cls in range(len(b.kinds.alive)):
        if b.kinds.alive[cls] == 0 or w.k.price[cls] <= 0.0 or w.k.risk[cls] > w.k.risk[own]:
            continue
        share = 0.0
        for d in range(r.used.shape[1]):
            if r.used[row, d] > 0 and d != b.meta[PODS]:
                share = max(share, r.used[row, d] / w.k.alloc[cls, d] if w.k.alloc[cls, d] > 0 else np.inf)
        best = min(best, share * w.k.price[cls])
    return 0.0 if best == np.inf else best


@inner
def _add(b: Book, at: int, tier: int, cls: int, cell: int, least: int, cluster: int) -> None:
    b.blocks.tier[at] = tier
    b.blocks.cls[at] = cls
    b.blocks.cell[at] = cell
    b.blocks.least[at] = least
    b.blocks.cluster[at] = cluster
    b.blocks.token[at] = -1
    b.blocks.scarce[at] = 0
    b.blocks.taken[at] = 0
    b.blocks.next[at] = -1


@inner
def _grouped(w: World, b: Book, slots: I4, count: int, tier: int, at: int) -> int:
    """Machines in id order into blocks by class, and by cluster where that matters."""
    first = at
    block_of = np.empty(count, np.int32)
    for i in range(count):
        slot = slots[i]
        cls = w.cells.cls[b.slots.cell[slot]]
        cluster = b.slots.cluster[slot] if tier == PAID_EMPTY else -1
        block = first
        while block < at and not (b.blocks.cls[block] == cls and b.blocks.cluster[block] == cluster):
            block += 1
        if block == at:
            _add(b, at, tier, cls, -1, slot, cluster)
            b.blocks.n[at] = 0
            at += 1
        block_of[i] = block
        b.blocks.n[block] += 1
    for block in range(first, at):
        b.blocks.first[block] = b.meta[MEMBERS]
        b.meta[MEMBERS] += b.blocks.n[block]
        b.blocks.n[block] = 0
    for i in range(count):
        block = block_of[i]
        b.machine[b.blocks.first[block] + b.blocks.n[block]] = slots[i]
        b.blocks.n[block] += 1
    return at
