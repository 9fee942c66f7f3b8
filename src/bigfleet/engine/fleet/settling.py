"""Settling: after machines were placed, cells' smallest ids, the order of owners' lists, and the end of empty cells.

Owns the documented order of blocks. Looks at the cells that a batch touched, and at the lists they are in. Lists of
units that are credited by counting are read by nobody in most steps: they wait (`loose`) until somebody does, who puts
them in order first (`put_in_order`), or until it is their turn.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.fleet.cells import (
    CHANGED,
    CONFIGURED,
    CREATING,
    DIRTY,
    EMPTY,
    FIRST_UNIT,
    LISTED,
    LONGEST,
    MOVED,
    NO_MORE,
    TIDIED,
    TOLD,
    TOUCH,
    TOUCHED,
    UNORDERED,
    Cells,
    CellStore,
    Owners,
    drop_cell,
    home_of,
    mark_dirty,
)
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import I4, inner, kernel, prefetch
from bigfleet.engine.kernels.pool import Pool, chunk_size, give_chunk, move_chunk, pool_room
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting

# So many cells that moved are taken out of a list and put back one by one.
_FEW = 8
# For so many cells touched one list that waits is put in order; so many lists are looked at to find one.
_TOUCHED_PER_LIST, _LOOKED_AT = 256, 4
# Cells of a list between one that is compared and the one whose memory is asked for.
_AHEAD = 8


def settled(store: CellStore, ids: Ids, heads: I4) -> None:
    """Settles what was touched; the dirty owners are listed afterwards."""
    while missing := settle(store.v, store.members.v, store.owners, store.lists.v, ids, heads):
        store.lists.reserve(missing)


@kernel
def settle(cells: Cells, members: Pool, owners: Owners, lists: Pool, ids: Ids, heads: I4) -> int:
    """Brings touched cells' smallest ids and their owners' orders up to date; `owners.list[:meta[0]]` are dirty.

    If the lists' pool is too small it tells what is missing, and is to be called again.
    """
    touched = cells.meta[TOUCHED]
    for i in range(cells.meta[TOLD], touched):
        if i + 32 < touched:
            prefetch(cells.count, cells.touched[i + 32])
        if i + 16 < touched:
            ahead = cells.touched[i + 16]
            prefetch(owners.used, max(0, cells.owner[ahead]))
            prefetch(owners.dirty, max(0, cells.owner[ahead]))
        if i + 8 < touched:
            ahead = cells.touched[i + 8]
            owner = max(0, cells.owner[ahead])
            if not cells.flags[ahead] & LISTED:
                prefetch(lists.data, owners.start[owner] + owners.used[owner])
            if cells.least[ahead] < 0 and not _may_wait(owners, owner):
                prefetch(members.data, cells.start[ahead])
        cell = cells.touched[i]
        owner = cells.owner[cell]
        cells.flags[cell] &= ~TOUCH & 0xFF
        if cells.count[cell] <= 0:
            cells.flags[cell] |= EMPTY
        elif cells.least[cell] < 0:
            if not _may_wait(owners, owner):
                find_least(cells, members, ids, cell)
            cells.flags[cell] |= MOVED
        cells.how[i] = cells.flags[cell]
        if owner >= 0:
            missing = _tell_owner(cells, owners, lists, i, cell)
            if missing > 0:
                cells.meta[TOLD] = i
                return missing
    cells.meta[TOLD] = 0
    dirty = owners.meta[DIRTY]
    for i in range(dirty):
        if i + 24 < dirty:
            prefetch(owners.used, owners.list[i + 24])
        if i + 12 < dirty and owners.dirty[owners.list[i + 12]] == UNORDERED:
            _fetch_list(owners, lists, owners.list[i + 12])
        if i + 6 < dirty and not _may_wait(owners, owners.list[i + 6]):
            _fetch_compared(cells, owners, lists, owners.list[i + 6])
        owner = owners.list[i]
        if owners.dirty[owner] == UNORDERED:
            if _may_wait(owners, owner):
                owners.loose[owner] = 1
                _drop_empty(cells, owners, lists, owner)
            else:
                _reorder(cells, members, owners, lists, ids, owner)
    # Only now does no list name them any more.
    for i in range(touched):
        if i + 32 < touched and cells.how[i + 32] & EMPTY:
            prefetch(cells.count, cells.touched[i + 32])
        if i + 8 < touched and cells.how[i + 8] & EMPTY:
            prefetch(cells.table, home_of(cells, cells.touched[i + 8]) & (len(cells.table) - 1))
        if cells.how[i] & EMPTY:
            cell = cells.touched[i]
            if cells.size[cell] > 0:
                give_chunk(members, cells.start[cell], cells.size[cell])
            if cells.state[cell] == CREATING:
                _unlink(cells, heads, cell)
            drop_cell(cells, cell)
    cells.meta[TOUCHED] = 0
    _tidy(cells, members, owners, lists, ids, 1 + touched // _TOUCHED_PER_LIST)
    return 0


@inner
def _tidy(cells: Cells, members: Pool, owners: Owners, lists: Pool, ids: Ids, most: int) -> None:
    """Puts some of the lists that wait in order, going round: who reads them all never finds more than a round left."""
    owner = owners.meta[TIDIED]
    for _ in range(_LOOKED_AT * most):
        owner = owner + 1 if owner + 1 < len(owners.loose) else 0
        if owners.loose[owner] != 0:
            put_in_order(cells, members, owners, lists, ids, owner)
            most -= 1
            if most == 0:
                break
    owners.meta[TIDIED] = owner


@inner
def _tell_owner(cells: Cells, owners: Owners, lists: Pool, i: int, cell: int) -> int:
    """The owner of the i-th touched cell lists it, counts its machines, and knows that it changed. If there is no room
    for it nothing is done, and it tells what is missing."""
    owner = cells.owner[cell]
    flags = cells.flags[cell]
    count = cells.count[cell]
    if count > 0 and not flags & LISTED:
        missing = _append(owners, lists, owner, cell)
        if missing > 0:
            return missing
        cells.flags[cell] |= LISTED
    moved = count == 0 or flags & MOVED or not flags & LISTED
    mark_dirty(owners, owner, UNORDERED if moved else CHANGED)
    more = count - cells.known[cell]
    cells.known[cell] = count
    owners.machines[owner] += more
    if cells.state[cell] == CONFIGURED:
        owners.configured[owner] += more
    cells.before[i] = owners.stirred[owner]
    owners.stirred[owner] = i
    return 0


@inner
def _append(owners: Owners, lists: Pool, owner: int, cell: int) -> int:
    """Puts a cell behind the others; if there is no room, tells how much is missing."""
    if owners.used[owner] == owners.size[owner]:
        size = chunk_size(owners.used[owner] + 1)
        if size > pool_room(lists):
            return size
        owners.start[owner] = move_chunk(lists, owners.start[owner], owners.used[owner], owners.size[owner], size)
        owners.size[owner] = size
        if size > owners.meta[LONGEST]:
            owners.meta[LONGEST] = size
    lists.data[owners.start[owner] + owners.used[owner]] = cell
    owners.used[owner] += 1
    return 0


@inner
def _fetch_list(owners: Owners, lists: Pool, owner: int) -> None:
    """Asks for the list of an owner; of one that waits for the end, where those that became empty are."""
    first = owners.start[owner]
    last = first + owners.used[owner] - 1
    if _may_wait(owners, owner):
        first = max(first, last - 16)
    for k in range(last, first - 1, -16):
        prefetch(lists.data, k)


@inner
def _fetch_compared(cells: Cells, owners: Owners, lists: Pool, owner: int) -> None:
    """Asks for what the cells of an owner that moved will be compared with: neighbours, and for new ones the last."""
    start = owners.start[owner]
    last = start + owners.used[owner]
    at = owners.stirred[owner]
    # Where many moved, looking for each in the list would take longer than waiting for memory.
    left = _FEW
    while at >= 0 and left > 0:
        left -= 1
        how = cells.how[at] & (EMPTY | MOVED | LISTED)
        if how == MOVED | LISTED:
            k = _listed_at(lists, start, owners.used[owner], cells.touched[at])
            for near in range(max(start, k - 1), min(last, k + 2)):
                prefetch(cells.count, lists.data[near])
        elif how == MOVED:
            for k in range(max(start, last - 3), last):
                prefetch(cells.count, lists.data[k])
        at = cells.before[at]


@inner
def _may_wait(owners: Owners, owner: int) -> bool:
    """Whether nobody needs the order of a list before `put_in_order`."""
    return owner >= FIRST_UNIT and owners.alike[owner] >= 0


@inner
def put_in_order(cells: Cells, members: Pool, owners: Owners, lists: Pool, ids: Ids, owner: int) -> None:
    """To be called before a unit's list is read in order."""
    if owners.loose[owner] != 0:
        _reorder_many(cells, members, owners, lists, ids, owner)


@inner
def _reorder(cells: Cells, members: Pool, owners: Owners, lists: Pool, ids: Ids, owner: int) -> None:
    """Drops empty cells and puts those whose place changed where they belong."""
    if owners.loose[owner] == 0 and _stirs_few(cells, owners, owner, EMPTY | MOVED):
        _reorder_few(cells, owners, lists, ids, owner)
    else:
        _reorder_many(cells, members, owners, lists, ids, owner)


@inner
def _stirs_few(cells: Cells, owners: Owners, owner: int, how: int) -> bool:
    """Whether all cells of an owner that changed are known, and few of them in one of these ways."""
    found = 0
    at = owners.stirred[owner]
    while at >= 0 and found <= _FEW:
        if cells.how[at] & how:
            found += 1
        at = cells.before[at]
    return at == NO_MORE


@inner
def _drop_empty(cells: Cells, owners: Owners, lists: Pool, owner: int) -> None:
    """Takes empty cells out of a list and leaves the others as they are."""
    start = owners.start[owner]
    used = owners.used[owner]
    if _stirs_few(cells, owners, owner, EMPTY):
        at = owners.stirred[owner]
        while at >= 0:
            if cells.how[at] & EMPTY and cells.how[at] & LISTED:
                used -= 1
                for after in range(_listed_at(lists, start, used + 1, cells.touched[at]), start + used):
                    lists.data[after] = lists.data[after + 1]
            at = cells.before[at]
        owners.used[owner] = used
        return
    kept = start
    for k in range(start, start + used):
        if not cells.flags[lists.data[k]] & EMPTY:
            lists.data[kept] = lists.data[k]
            kept += 1
    owners.used[owner] = kept - start


@inner
def _reorder_few(cells: Cells, owners: Owners, lists: Pool, ids: Ids, owner: int) -> None:
    """Empty ones are taken out; then those listed before step past their neighbours, and new ones are put in."""
    _drop_empty(cells, owners, lists, owner)
    start = owners.start[owner]
    used = owners.used[owner]
    fresh = 0
    at = owners.stirred[owner]
    while at >= 0:
        if not cells.how[at] & (EMPTY | LISTED):
            fresh += 1
        at = cells.before[at]
    # New ones were put behind all others.
    _step_past(cells, owners, lists, ids, owner, used - fresh)
    for count in range(used - fresh, used):
        cell = lists.data[start + count]
        cells.flags[cell] &= ~MOVED & 0xFF
        place = _place(cells, lists, ids, start, count, cell)
        for after in range(start + count, start + place, -1):
            lists.data[after] = lists.data[after - 1]
        lists.data[start + place] = cell


@inner
def _step_past(cells: Cells, owners: Owners, lists: Pool, ids: Ids, owner: int, count: int) -> None:
    """Those of the first ones of a list whose smallest id changed step past their neighbours, until all are in order.
    State, price and worth of a cell are what they were, so it stays among its like. That may be forty steps, which are
    faster than halves: memory can be asked for ahead."""
    start = owners.start[owner]
    last = start + count - 1
    calm = False
    while not calm:
        calm = True
        moved = 0
        at = owners.stirred[owner]
        while at >= 0:
            if cells.how[at] & MOVED and cells.how[at] & LISTED and not cells.how[at] & EMPTY:
                moved += 1
                cell = cells.touched[at]
                cells.flags[cell] &= ~MOVED & 0xFF
                old = _listed_at(lists, start, count, cell)
                k = old
                while k > start and block_less(cells, ids, cell, lists.data[k - 1]):
                    prefetch(cells.count, lists.data[max(start, k - _AHEAD)])
                    prefetch(ids.key, max(0, cells.least[lists.data[max(start, k - _AHEAD // 2)]]))
                    lists.data[k] = lists.data[k - 1]
                    k -= 1
                while k < last and block_less(cells, ids, lists.data[k + 1], cell):
                    prefetch(cells.count, lists.data[min(last, k + _AHEAD)])
                    prefetch(ids.key, max(0, cells.least[lists.data[min(last, k + _AHEAD // 2)]]))
                    lists.data[k] = lists.data[k + 1]
                    k += 1
                lists.data[k] = cell
                if k != old:
                    calm = False
            at = cells.before[at]
        if moved == 1:
            # All others were in order.
            return


@inner
def _listed_at(lists: Pool, start: int, count: int, cell: int) -> int:
    """Where a cell is. Most are near the end: what is under way comes last."""
    k = start + count - 1
    while lists.data[k] != cell:
        k -= 1
    return k


@inner
def _reorder_many(cells: Cells, members: Pool, owners: Owners, lists: Pool, ids: Ids, owner: int) -> None:
    """Empty ones are dropped; those whose place changed are sorted and merged back."""
    owners.loose[owner] = 0
    start = owners.start[owner]
    kept = 0
    moved = 0
    used = owners.used[owner]
    loose = np.empty(used, np.int32)
    for k in range(used):
        if k + 2 * _AHEAD < used:
            prefetch(cells.count, lists.data[start + k + 2 * _AHEAD])
        cell = lists.data[start + k]
        if cells.flags[cell] & EMPTY:
            continue
        if cells.flags[cell] & MOVED:
            cells.flags[cell] &= ~MOVED & 0xFF
            if cells.least[cell] < 0:
                prefetch(members.data, cells.start[cell])
            loose[moved] = cell
            moved += 1
        else:
            lists.data[start + kept] = cell
            kept += 1
    owners.used[owner] = kept + moved
    _fetch_ids(cells, members, lists, ids, start, kept, loose, moved)
    for b in range(moved):
        if cells.least[loose[b]] < 0:
            find_least(cells, members, ids, loose[b])
    if moved > 1:
        _sort_blocks(cells, ids, loose, moved)
    end = kept
    for b in range(moved - 1, -1, -1):
        # What comes after it steps back.
        place = _place(cells, lists, ids, start, end, loose[b])
        for k in range(end - 1, place - 1, -1):
            lists.data[start + k + b + 1] = lists.data[start + k]
        lists.data[start + place + b] = loose[b]
        end = place


@inner
def _fetch_ids(
    cells: Cells, members: Pool, lists: Pool, ids: Ids, start: int, kept: int, loose: I4, moved: int
) -> None:  # fmt: skip
    """Asks for the ids that are compared when cells are put where they belong among those of a list that stay."""
    for b in range(moved):
        cell = loose[b]
        if cells.least[cell] >= 0:
            prefetch(ids.key, cells.least[cell])
        else:
            # What is not ordered, and the first that is.
            first = cells.start[cell]
            for k in range(first + max(0, cells.ordered[cell] - 1), first + cells.used[cell]):
                prefetch(ids.key, max(0, members.data[k]))
    # A few look at some of the others only.
    if moved * _FEW > kept:
        for k in range(start, start + kept):
            prefetch(ids.key, max(0, cells.least[lists.data[k]]))


@inner
def _place(cells: Cells, lists: Pool, ids: Ids, start: int, count: int, cell: int) -> int:
    """Where a cell belongs among the first ones of a list, which are in order. Most belong to the end, so it is looked
    for from there in growing strides, then by halves."""
    high = count
    at = count - 1
    stride = 1
    while at >= 0 and block_less(cells, ids, cell, lists.data[start + at]):
        high = at
        at -= stride
        stride *= 2
    low = max(0, at + 1)
    while low < high:
        middle = (low + high) // 2
        if block_less(cells, ids, cell, lists.data[start + middle]):
            high = middle
        else:
            low = middle + 1
    return low


@inner
def _sort_blocks(cells: Cells, ids: Ids, data: I4, count: int) -> None:
    sort = sorting(0, count)
    while asks(sort, data):
        sort[ANSWER] = block_less(cells, ids, sort[LATER], sort[EARLIER])


@inner
def block_less(cells: Cells, ids: Ids, a: int, b: int) -> bool:
    """Order of blocks within an owner: keep order, Creating order, Idle, Draining and price order of Speculative.

    Creating cells carry price and worth 0, so their smallest ids decide; nothing but clusters' cells has a worth.
    """
    if cells.state[a] != cells.state[b]:
        # 5 Configured, 4 Configuring, 2 Creating.
        return bool(cells.state[a] > cells.state[b])
    if cells.price[a] != cells.price[b]:
        return bool(cells.price[a] < cells.price[b])
    # Of one stamp they are worth the same.
    if cells.stamp[a] != cells.stamp[b] and cells.worth[a] != cells.worth[b]:
        return bool(cells.worth[a] > cells.worth[b])
    return id_less(ids, cells.least[a], cells.least[b])


@inner
def find_least(cells: Cells, members: Pool, ids: Ids, cell: int) -> None:
    start = cells.start[cell]
    best = -1
    for k in range(cells.ordered[cell]):
        slot = members.data[start + k]
        if slot >= 0:
            best = slot
            break
    for k in range(cells.ordered[cell], cells.used[cell]):
        slot = members.data[start + k]
        if slot >= 0 and (best < 0 or id_less(ids, slot, best)):
            best = slot
    cells.least[cell] = best


@inner
def _unlink(cells: Cells, heads: I4, cell: int) -> None:
    before = cells.prev[cell]
    after = cells.next[cell]
    if before >= 0:
        cells.next[before] = after
    else:
        heads[cells.stamp[cell]] = after
    if after >= 0:
        cells.prev[after] = before
