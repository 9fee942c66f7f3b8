"""How machines of reporting clusters are judged as victims, by whoever preempts: by their reports (P31)."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.published import Published
from bigfleet.engine.counted.book import REOPENED, TAKEN
from bigfleet.engine.decide.victims import BLOCKS, Victims, Weights
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import CONFIGURED, Cells
from bigfleet.engine.fleet.members import order_members
from bigfleet.engine.fleet.placing import KEPT, Slots
from bigfleet.engine.kernels.jit import I4, U1, inner, kernel
from bigfleet.engine.kernels.pool import Pool
from bigfleet.engine.nodes.reports import AS_EXCESS, BY_REPORT, STAYS, Reports, judgement, row_of
from bigfleet.engine.nodes.sessions import Sessions

_LOWEST = -2147483648
SPARED = REOPENED | TAKEN


# Walks as `judged_blocks` does, which needs the count to be given room for its blocks.
@kernel
def count_judged(w: World, clusters: int) -> int:
    """Configured machines of reporting clusters: upper bound of their blocks."""
    total = 0
    for cluster in range(clusters):
        if w.c.counted[cluster] == 0:
            continue
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
                cell = w.held.data[k]
                if w.cells.state[cell] == CONFIGURED:
                    total += w.cells.count[cell]
    return total


@kernel
def judged_blocks(
    w: World, v: Victims, r: Reports, s: Sessions, slots: Slots, members: Pool, pub: Published, mark: U1, clusters: int,
    mask: U1, ceiling: int, weights: Weights, now: int,
) -> None:  # fmt: skip
    """Adds the blocks of reporting clusters: machines of one cell with equal judgement. Spared ones are in none."""
    used = 0
    for cluster in range(clusters):
        if w.c.counted[cluster] == 0:
            continue
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
                cell = w.held.data[k]
                if w.cells.state[cell] == CONFIGURED and mask[w.cells.cls[cell]] != 0:
                    boot = pub.boot[w.cells.cls[cell]]
                    used = _judge_cell(w, v, r, s, slots, members, mark, cell, ceiling, weights, used, boot, now)


@kernel
def lie_empty(r: Reports, s: Sessions, slots: Slots, cells: Cells, pub: Published, victims: I4, now: int) -> U1:
    """Which victims are excess by their reports: their operators may refuse (P40)."""
    found = np.zeros(len(victims), np.uint8)
    for i in range(len(victims)):
        slot = victims[i]
        found[i] = judgement(r, s, slots, slot, pub.boot[cells.cls[slots.cell[slot]]], now) == AS_EXCESS
    return found


@inner
def _judge_cell(
    w: World, v: Victims, r: Reports, s: Sessions, slots: Slots, members: Pool, mark: U1, cell: int, ceiling: int,
    weights: Weights, used: int, boot: int, now: int,
) -> int:  # fmt: skip
    order_members(w.cells, members, w.ids, slots.place, cell)
    start = w.cells.start[cell]
    count = w.cells.count[cell]
    stamp = w.cells.stamp[cell]
    first = v.meta[BLOCKS]
    block_of = np.empty(count, np.int32)
    for m in range(count):
        slot = members.data[start + m]
        how = judgement(r, s, slots, slot, boot, now)
        excess = 0
        priority = w.bind.priority[stamp]
        interruption = w.bind.interruption[stamp]
        reclamation = w.bind.reclamation[stamp]
        if how == AS_EXCESS:
            excess = 1
            priority = _LOWEST
            interruption = 0.0
            reclamation = 0.0
        elif how == BY_REPORT:
            row = row_of(r, slot)
            priority = r.priority[row]
            interruption = np.inf if r.flags[row] & STAYS else r.interruption[row]
            reclamation = r.reclamation[row]
        block_of[m] = -1
        if priority >= ceiling:
            continue
        at = first
        while at < v.meta[BLOCKS] and not (
            v.excess[at] == excess
            and v.priority[at] == priority
            and v.interruption[at] == interruption
            and v.reclamation[at] == reclamation
        ):
            at += 1
        if at == v.meta[BLOCKS]:
            v.meta[BLOCKS] = at + 1
            v.cell[at] = cell
            v.entry[at] = -1
            v.n[at] = 0
            v.used[at] = 0
            v.listed[at] = 1
            v.least[at] = slot
            v.excess[at] = excess
            v.priority[at] = priority
            v.interruption[at] = interruption
            v.reclamation[at] = reclamation
        if not mark[slot] & SPARED and not slots.flags[slot] & KEPT:
            block_of[m] = at
            v.n[at] += 1
    for block in range(first, v.meta[BLOCKS]):
        v.first[block] = used
        used += v.n[block]
        v.n[block] = 0
        v.pinned[block] = np.isinf(v.interruption[block]) or np.isinf(v.reclamation[block])
        # From here on only the terms of the score.
        v.interruption[block] = weights.interruption / max(v.interruption[block], weights.floor)
        v.reclamation[block] = weights.reclamation / max(v.reclamation[block], weights.floor)
    for m in range(count):
        block = block_of[m]
        if block >= 0:
            v.slots[v.first[block] + v.n[block]] = members.data[start + m]
            v.n[block] += 1
    return used
