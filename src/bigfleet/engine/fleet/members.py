"""Members of cells in id order: an ordered run with holes and the newcomers behind it become one run on demand."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.fleet.cells import Cells
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import I4, I4R, inner
from bigfleet.engine.kernels.pool import Pool
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sort_by_key, sorting

# Up to so many slots are compared id by id.
_FEW = 64


@inner
def order_members(cells: Cells, members: Pool, ids: Ids, place: I4R, cell: int) -> None:
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
    """Slots into id order: by their keys where that pays, then equal keys by their full ids."""
    if count <= _FEW:
        _sort_by_id(ids, data, 0, count)
        return
    keys = np.empty(count, np.int64)
    for i in range(count):
        keys[i] = ids.key[data[i]]
    sort_by_key(data, keys, count)
    first = 0
    while first < count:
        last = first + 1
        key = ids.key[data[first]]
        while last < count and ids.key[data[last]] == key:
            last += 1
        if last - first > 1:
            _sort_by_id(ids, data, first, last - first)
        first = last


@inner
def _sort_by_id(ids: Ids, data: I4, first: int, count: int) -> None:
    sort = sorting(first, count)
    while asks(sort, data):
        sort[ANSWER] = id_less(ids, sort[LATER], sort[EARLIER])
