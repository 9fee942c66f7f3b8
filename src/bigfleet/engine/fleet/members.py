"""Members of cells in id order: an ordered run with holes and the newcomers behind it become one run on demand."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.fleet.cells import Cells
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import I4, inner
from bigfleet.engine.kernels.pool import Pool


@inner
def order_members(cells: Cells, members: Pool, ids: Ids, place: I4, cell: int) -> None:
    """Makes the cell's members one run in id order without holes; `place` is each slot's index in its cell."""
    count = cells.count[cell]
    if cells.ordered[cell] == count and cells.used[cell] == count:
        return
    start = cells.start[cell]
    ordered = cells.ordered[cell]
    used = cells.used[cell]
    fresh = np.empty(used - ordered, np.int32)
    new = 0
    for k in range(ordered, used):
        slot = members.data[start + k]
        if slot >= 0:
            fresh[new] = slot
            new += 1
    kept = 0
    for k in range(ordered):
        slot = members.data[start + k]
        if slot >= 0:
            members.data[start + kept] = slot
            kept += 1
    sort_slots(ids, fresh, new)
    a = kept - 1
    b = new - 1
    at = count - 1
    while b >= 0:
        if a >= 0 and id_less(ids, fresh[b], members.data[start + a]):
            members.data[start + at] = members.data[start + a]
            a -= 1
        else:
            members.data[start + at] = fresh[b]
            b -= 1
        at -= 1
    for k in range(count):
        place[members.data[start + k]] = k
    cells.used[cell] = count
    cells.ordered[cell] = count


@inner
def sort_slots(ids: Ids, data: I4, count: int) -> None:
    """Slots into id order: byte-wise radix on the keys where it pays, then equal keys by their full ids."""
    if count > 64:
        _radix(ids, data, count)
        first = 0
        while first < count:
            last = first + 1
            key = ids.key[data[first]]
            while last < count and ids.key[data[last]] == key:
                last += 1
            if last - first > 1:
                _heap_sort_slots(ids, data, first, last - first)
            first = last
    else:
        for i in range(1, count):
            slot = data[i]
            k = i - 1
            while k >= 0 and id_less(ids, slot, data[k]):
                data[k + 1] = data[k]
                k -= 1
            data[k + 1] = slot


@inner
def _heap_sort_slots(ids: Ids, data: I4, start: int, count: int) -> None:
    for step in range(count // 2 + count - 1):
        if step < count // 2:
            root = count // 2 - 1 - step
            end = count
        else:
            root = 0
            end = count - 1 - (step - count // 2)
            swap = data[start]
            data[start] = data[start + end]
            data[start + end] = swap
        moving = data[start + root]
        at = root
        while True:
            child = 2 * at + 1
            if child >= end:
                break
            if child + 1 < end and id_less(ids, data[start + child], data[start + child + 1]):
                child += 1
            if not id_less(ids, moving, data[start + child]):
                break
            data[start + at] = data[start + child]
            at = child
        data[start + at] = moving


@inner
def _radix(ids: Ids, data: I4, count: int) -> None:
    keys = np.empty((2, count), np.int64)
    slots = np.empty((2, count), np.int32)
    union = 0
    common = -1
    for i in range(count):
        key = ids.key[data[i]]
        keys[0, i] = key
        slots[0, i] = data[i]
        union |= key
        common &= key
    varying = union & ~common
    tally = np.empty(256, np.int64)
    side = 0
    for byte in range(7):
        shift = byte * 8
        if ((varying >> shift) & 0xFF) == 0:
            continue
        tally[:] = 0
        for i in range(count):
            tally[(keys[side, i] >> shift) & 0xFF] += 1
        total = 0
        for v in range(256):
            here = tally[v]
            tally[v] = total
            total += here
        for i in range(count):
            v = (keys[side, i] >> shift) & 0xFF
            at = tally[v]
            tally[v] = at + 1
            keys[1 - side, at] = keys[side, i]
            slots[1 - side, at] = slots[side, i]
        side = 1 - side
    for i in range(count):
        data[i] = slots[side, i]
