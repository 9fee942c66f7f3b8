"""Victims: blocks of Configured machines that one entry claims, or nobody, and their order for a preemptor (§4).

Owns the score and the takes; who takes what is decided elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.decide.credit import fits, useful
from bigfleet.engine.decide.world import LOG_USED, World
from bigfleet.engine.fleet.cells import CONFIGURED
from bigfleet.engine.fleet.members import order_members
from bigfleet.engine.kernels.columns import grown
from bigfleet.engine.kernels.ids import id_less
from bigfleet.engine.kernels.jit import F8, I4, I4R, I8, U1, inner, kernel
from bigfleet.engine.kernels.pool import Pool
from bigfleet.engine.kernels.view import View, view

MAX_LISTS = 256
# Places in `Victims.meta` and `Ranked.meta`.
BLOCKS, TAKES = 0, 1
LISTS, USED = 0, 1


@view
class Victims(View):
    """Blocks, and the takes from them in order: `take_n` members of `take_block`, from `take_first` in its cell, or,
    where a block is `listed`, in `slots`."""

    cell: I4
    entry: I4
    first: I4
    n: I4
    used: I4
    least: I4
    priority: I8
    interruption: F8
    reclamation: F8
    pinned: U1
    excess: U1
    take_entry: I4
    take_block: I4
    take_first: I4
    take_n: I4
    listed: U1
    slots: I4
    meta: I8


@view
class Ranked(View):
    """Candidate lists by (constraint set, preemptor priority): a sorted stretch that a heap refills on demand. The
    first `spent` blocks have no machines left for anybody."""

    con: I4
    priority: I8
    start: I8
    spent: I4
    popped: I4
    waiting: I4
    block: I4
    heap: I4
    meta: I8


def more_takes(v: Victims, size: int) -> Victims:
    """The same with room for so many takes."""
    return v._replace(
        take_entry=grown(v.take_entry, size), take_block=grown(v.take_block, size),
        take_first=grown(v.take_first, size), take_n=grown(v.take_n, size),
    )  # fmt: skip


class Weights(NamedTuple):
    """Terms of the victim score that do not depend on the victim's priority."""

    priority: float
    drain: float
    interruption: float
    reclamation: float
    floor: float


@kernel
def count_blocks(w: World, clusters: int) -> int:
    """Upper bound of the number of victim blocks."""
    total = w.late.meta[LOG_USED]
    for cluster in range(clusters):
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            total += w.owners.logged[owner] + w.owners.used[owner]
    return total


@kernel
def make_blocks(
    w: World, v: Victims, members: Pool, place: I4R, clusters: int, mask: U1, ceiling: int, weights: Weights
) -> None:
    """All blocks of Configured machines that some entry below `ceiling` holds and some short entry could use."""
    v.meta[BLOCKS] = 0
    v.meta[TAKES] = 0
    for cluster in range(clusters):
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            first = w.owners.log[owner]
            for i in range(first, first + w.owners.logged[owner]):
                _claimed_block(w, v, w.log.entry[i], w.log.cell[i], w.log.n[i], mask, ceiling)
    for i in range(w.late.meta[LOG_USED]):
        _claimed_block(w, v, w.late.entry[i], w.late.cell[i], w.late.n[i], mask, ceiling)
    for cluster in range(clusters):
        if w.c.counted[cluster] != 0:
            # Nothing of it is claimed, and its machines are judged by their reports.
            continue
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
                cell = w.held.data[k]
                if w.cells.state[cell] != CONFIGURED:
                    continue
                # Only here: claims of the cell have all been counted into it.
                w.cells.adds[cell] = 0
                stamp = w.cells.stamp[cell]
                if (
                    w.cells.count[cell] > w.cells.taken[cell]
                    and mask[w.cells.cls[cell]] != 0
                    and w.bind.priority[stamp] < ceiling
                ):
                    b = v.meta[BLOCKS]
                    v.meta[BLOCKS] = b + 1
                    v.cell[b] = cell
                    v.entry[b] = -1
                    v.first[b] = w.cells.taken[cell]
                    v.n[b] = w.cells.count[cell] - w.cells.taken[cell]
                    v.priority[b] = w.bind.priority[stamp]
                    v.interruption[b] = w.bind.interruption[stamp]
                    v.reclamation[b] = w.bind.reclamation[stamp]
                    v.excess[b] = w.c.ready[cluster]
    for b in range(v.meta[BLOCKS]):
        cell = v.cell[b]
        v.used[b] = 0
        v.listed[b] = 0
        if v.first[b] == 0:
            v.least[b] = w.cells.least[cell]
        else:
            order_members(w.cells, members, w.ids, place, cell)
            v.least[b] = members.data[w.cells.start[cell] + v.first[b]]
        v.pinned[b] = np.isinf(v.interruption[b]) or np.isinf(v.reclamation[b])
        # From here on only the terms of the score.
        v.interruption[b] = weights.interruption / max(v.interruption[b], weights.floor)
        v.reclamation[b] = weights.reclamation / max(v.reclamation[b], weights.floor)


@inner
def _claimed_block(w: World, v: Victims, entry: int, cell: int, n: int, mask: U1, ceiling: int) -> None:
    if w.cells.state[cell] != CONFIGURED:
        return
    first = w.cells.adds[cell]
    w.cells.adds[cell] = first + n
    prof = w.e.prof[entry]
    if mask[w.cells.cls[cell]] == 0 or w.p.priority[prof] >= ceiling:
        return
    b = v.meta[BLOCKS] - 1
    while b >= 0 and v.entry[b] == entry:
        if v.cell[b] == cell:
            # A gang takes part by part; its machines are one block all the same.
            v.n[b] += n
            return
        b -= 1
    b = v.meta[BLOCKS]
    v.meta[BLOCKS] = b + 1
    v.cell[b] = cell
    v.entry[b] = entry
    v.first[b] = first
    v.n[b] = n
    v.priority[b] = w.p.priority[prof]
    v.interruption[b] = w.p.interruption_dollars[prof]
    v.reclamation[b] = w.p.reclamation_dollars[prof]
    v.excess[b] = 0


@inner
def _ahead(w: World, v: Victims, weights: Weights, priority: int, a: int, b: int) -> bool:
    """Whether block a is a better victim than block b for a preemptor of that priority."""
    if v.excess[a] != v.excess[b]:
        return bool(v.excess[a] > v.excess[b])
    x = float(priority - v.priority[a]) * weights.priority
    if v.pinned[a] == 0:
        x = ((x + weights.drain) + v.interruption[a]) + v.reclamation[a]
    y = float(priority - v.priority[b]) * weights.priority
    if v.pinned[b] == 0:
        y = ((y + weights.drain) + v.interruption[b]) + v.reclamation[b]
    if x != y:
        return x > y
    if v.pinned[a] != v.pinned[b]:
        return bool(v.pinned[a] < v.pinned[b])
    return id_less(w.ids, v.least[a], v.least[b])


@inner
def ranked_list(w: World, v: Victims, r: Ranked, weights: Weights, prof: int) -> int:
    """The candidate list of a profile; made as a heap, so that only what is looked at gets sorted."""
    con = w.p.con[prof]
    priority = w.p.priority[prof]
    for number in range(r.meta[LISTS] - 1, -1, -1):
        if r.con[number] == con and r.priority[number] == priority:
            return number
    if r.meta[LISTS] == MAX_LISTS or r.meta[USED] + v.meta[BLOCKS] > len(r.block):
        r.meta[LISTS] = 0
        r.meta[USED] = 0
    number = r.meta[LISTS]
    r.meta[LISTS] = number + 1
    start = r.meta[USED]
    count = 0
    for b in range(v.meta[BLOCKS]):
        if v.priority[b] < priority and w.match[con, w.cells.cls[v.cell[b]]] != 0:
            r.heap[start + count] = b
            count += 1
    r.meta[USED] = start + count
    r.con[number] = con
    r.priority[number] = priority
    r.start[number] = start
    r.spent[number] = 0
    r.popped[number] = 0
    r.waiting[number] = count
    for root in range(count // 2 - 1, -1, -1):
        _sift(w, v, r, weights, priority, start, root, count)
    return number


@inner
def _sift(w: World, v: Victims, r: Ranked, weights: Weights, priority: int, start: int, root: int, count: int) -> None:
    moving = r.heap[start + root]
    at = root
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _ahead(w, v, weights, priority, r.heap[start + child + 1], r.heap[start + child]):
            child += 1
        if not _ahead(w, v, weights, priority, r.heap[start + child], moving):
            break
        r.heap[start + at] = r.heap[start + child]
        at = child
    r.heap[start + at] = moving


@inner
def candidate(w: World, v: Victims, r: Ranked, weights: Weights, number: int, index: int) -> int:
    """The index-th best block of a list, or -1."""
    while r.popped[number] <= index:
        count = r.waiting[number]
        if count == 0:
            return -1
        start = r.start[number]
        r.block[start + r.popped[number]] = r.heap[start]
        r.popped[number] += 1
        r.heap[start] = r.heap[start + count - 1]
        r.waiting[number] = count - 1
        if count > 1:
            _sift(w, v, r, weights, r.priority[number], start, 0, count - 1)
    return r.block[r.start[number] + index]


@inner
def hopeless(w: World, r: Ranked, number: int, entry: int, part: int) -> bool:
    """Whether no class with Configured machines could help a part: then no victim does, however many there are.

    Short lists are gone through faster than the classes.
    """
    if r.popped[number] + r.waiting[number] - r.spent[number] < 64:
        return False
    con = w.p.con[w.e.prof[entry]]
    cluster = w.e.cluster[entry]
    for cls in range(len(w.k.price)):
        if (
            w.k.count[cls, CONFIGURED] > 0
            and w.match[con, cls] != 0
            and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
            and useful(w.k.alloc, cls, w.c.overhead, cluster, w.parts.rest, part)
        ):
            return False
    return True


@inner
def usable(w: World, v: Victims, entry: int, block: int) -> bool:
    """Whether a block of another cluster still has machines."""
    return v.used[block] < v.n[block] and w.cells.cluster[v.cell[block]] != w.e.cluster[entry]


@inner
def note_take(v: Victims, entry: int, block: int, n: int) -> None:
    at = v.meta[TAKES]
    v.take_entry[at] = entry
    v.take_block[at] = block
    v.take_first[at] = v.first[block] + v.used[block]
    v.take_n[at] = n
    v.used[block] += n
    v.meta[TAKES] = at + 1


@inner
def undo_takes(v: Victims, takes: int) -> None:
    for i in range(takes, v.meta[TAKES]):
        v.used[v.take_block[i]] -= v.take_n[i]
    v.meta[TAKES] = takes


@kernel
def victim_slots(w: World, v: Victims, members: Pool, place: I4R, slot: I4, entry: I4, gap: I8) -> None:
    """Machines of the takes, in order; marks unclaimed ones as lost to their cells."""
    at = 0
    for i in range(v.meta[TAKES]):
        block = v.take_block[i]
        cell = v.cell[block]
        listed = v.listed[block] != 0
        if not listed:
            order_members(w.cells, members, w.ids, place, cell)
        for k in range(v.take_n[i]):
            if listed:
                slot[at] = v.slots[v.take_first[i] + k]
            else:
                slot[at] = members.data[w.cells.start[cell] + v.take_first[i] + k]
            entry[at] = v.take_entry[i]
            gap[at] = w.p.priority[w.e.prof[v.take_entry[i]]] - v.priority[block]
            at += 1
        if v.entry[block] < 0:
            w.cells.lost[cell] += v.take_n[i]


@kernel
def forget_lost(w: World, v: Victims) -> None:
    """Undoes the marks of `victim_slots` once the step is over."""
    for i in range(v.meta[TAKES]):
        w.cells.lost[v.cell[v.take_block[i]]] = 0
