"""Cells: the machines of one class in one state with one holder and stamp, counted, with members in id order on demand.

A cell's members are an id-ordered part (with holes where machines left) followed by newcomers; `order_members` folds
both into one ordered run. Every cell that decisions look at belongs to an *owner*, a list kept in the documented
order of blocks: free Idle, free Speculative, Draining, Creating for nobody in particular, and the clusters' units.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels.columns import grown, grown_rows, made, room
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import F8, F8R, I4, I4R, I8, I8R, U1, U1R, inner, kernel
from bigfleet.engine.kernels.pool import Pool, PoolStore, chunk_size, give_chunk, pool_room, take_chunk
from bigfleet.engine.kernels.view import View, view
from bigfleet.model.machine import MachineState

SPECULATIVE, CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED = map(int, MachineState)

OWNER_IDLE, OWNER_SPECULATIVE, OWNER_DRAINING, OWNER_CREATING, OWNER_HELD_IDLE, FIRST_UNIT = 0, 1, 2, 3, 4, 5

# Places in `meta`.
USED, FREE, TOUCHED, LIVE, TOLD = 0, 1, 2, 3, 4
# Places in `Owners.meta`: how many are dirty, the room of the longest list there ever was, and which owner's list was
# the last one to be looked at because it may wait to be put in order.
DIRTY, LONGEST, TIDIED = 0, 1, 2
# Bits of `flags`: on the list of touched cells; its place in the owner's order may have changed; in the owner's list;
# made since its unit was last credited; without machines, so that its owner drops it.
TOUCH, MOVED, LISTED, NEW, EMPTY = 1, 2, 4, 8, 16
# Values of `Owners.dirty`: to be credited anew; and to be ordered anew as well.
CHANGED, UNORDERED = 1, 2
# Values of `Owners.stirred` and `Cells.before` that are no places: no more cells; and any other cell may have moved.
NO_MORE, ANY = -1, -2
_EMPTY = -1


@view
class Cells(View):
    """One row per cell. `stamp` is a binding, an attribution pair or -1; `known` is the count that its owner knows,
    `taken` counts claims of this step, `lost` unclaimed members that became victims. `touched[i]` is a cell that the
    last batch touched, `how[i]` its `flags` before its owner was told and `before[i]` where the one before it of the
    same owner is. `table` has hashes beside cells."""

    cls: I4R
    owner: I4R
    state: U1R
    held: U1R
    cluster: I4R
    stamp: I4R
    count: I4R
    known: I4R
    taken: I4R
    lost: I4
    least: I4R
    start: I4R
    size: I4R
    used: I4R
    ordered: I4R
    adds: I4R
    flags: U1R
    next: I4
    prev: I4
    idle_floor: I8
    price: F8R
    worth: F8
    group: I4
    touched: I4
    how: U1
    before: I4
    free: I4
    table: I8
    meta: I8


@view
class Owners(View):
    """Ordered cell lists: owner o holds `pool.data[start[o] : start[o] + used[o]]`, with so many `machines`, some of
    them Configured; `stirred` is the place in `Cells.touched` of the last cell that changed. The rest is for clusters'
    units: their entries, where crediting had to stop (`stall`, an entry or -1), entries credit did not satisfy
    (`pending`), whether a gang's parking runs (`timed`), whether there are gangs or strict spreads (`choosy`), their
    stretch of the credit log with the room it has. A unit that is credited by counting has a class of the size of all
    its machines (`alike`, else -1), the constraint set of its rows (`con`), how many machines are `dealt` (-1: its rows
    changed) and how many `spare`, and whether its list is still to be put in order (`loose`) and its stretch of the log
    still to be written (`unlogged`)."""

    start: I8R
    size: I4R
    used: I4R
    machines: I4R
    configured: I4R
    stirred: I4R
    entry: I4R
    entries: I4R
    alike: I4R
    con: I4R
    dealt: I4R
    spare: I4R
    logged: I4R
    unlogged: U1R
    loose: U1R
    adds: I4
    dirty: U1
    cluster: I4
    stall: I4
    pending: I4
    timed: U1
    choosy: U1
    log: I8
    room: I4
    excess: I8
    list: I4
    meta: I8


class CellStore:
    """Owns cells, their members and the owners' lists."""

    def __init__(self) -> None:
        self.v = made(Cells, 16)._replace(table=np.full(64, _EMPTY, np.int64))
        self.members = PoolStore()
        self.owners = made(Owners, 16)
        self.lists = PoolStore()

    def reserve(self, cells: int) -> None:
        """Room for so many new cells."""
        v = self.v
        meta = v.meta.tolist()
        rows = meta[USED] - meta[FREE] + cells
        if rows > len(v.cls):
            rows = room(len(v.cls), rows)
            kept = {"table": v.table, "meta": v.meta} | grown_rows(v, rows)
            v = Cells(
                **{name: kept[name] if name in kept else grown(column, rows) for name, column in v._asdict().items()}
            )
        if (meta[LIVE] + cells) * 3 > len(v.table) * 2:
            size = 64
            while size * 2 < (meta[LIVE] + cells) * 4:
                size *= 2
            v = v._replace(table=np.full(size, _EMPTY, np.int64))
            rehash_cells(v)
        self.v = v

    def reserve_owners(self, count: int) -> None:
        owners = self.owners
        rows = room(len(owners.start), count)
        if rows > len(owners.start):
            kept = {"meta": owners.meta} | grown_rows(owners, rows)
            self.owners = Owners(
                **{
                    name: kept[name] if name in kept else grown(column, rows)
                    for name, column in owners._asdict().items()
                }
            )

    def clear(self) -> None:
        """Forgets every cell; machines must be placed anew."""
        self.v.meta[:] = 0
        self.v.table[:] = _EMPTY
        self.members.clear()
        self.lists.clear()
        self.owners.used[:] = 0
        self.owners.machines[:] = 0
        self.owners.configured[:] = 0
        self.owners.alike[:] = -1
        self.owners.loose[:] = 0
        self.owners.size[:] = 0
        self.owners.logged[:] = 0

    def validate(self) -> None:
        """Owners know how many machines their cells have."""
        for owner in np.nonzero(self.owners.used)[0].tolist():
            start, used = int(self.owners.start[owner]), int(self.owners.used[owner])
            cells = self.lists.v.data[start : start + used]
            count = self.v.count[cells]
            assert count.min() > 0 and (self.v.known[cells] == count).all(), f"owner {owner} was not told"
            assert self.owners.machines[owner] == count.sum(), f"owner {owner} counts machines it does not have"
            configured = count[self.v.state[cells] == CONFIGURED].sum()
            assert self.owners.configured[owner] == configured, f"owner {owner} counts others as Configured"


@inner
def cell_hash(cls: int, state: int, held: int, cluster: int, stamp: int) -> int:
    value = (int(cls) * 31 + int(state) * 2 + int(held)) & 0x7FFFFFFF
    value = ((value ^ (value >> 15)) * 668265263 + (int(cluster) + 1) * 374761393) & 0x7FFFFFFFFFFF
    value = (value ^ (value >> 19)) & 0x7FFFFFFF
    value = (value * 668265263 + (int(stamp) + 1) * 374761393) & 0x7FFFFFFFFFFF
    return (value ^ (value >> 21)) & 0x7FFFFFFF


@inner
def _in_table(home: int, cell: int) -> int:
    """What stands in the table for a cell: its hash, so that others are passed over unseen, and its number."""
    return (int(home) << 32) | int(cell)


@inner
def likely_cell(cells: Cells, home: int) -> int:
    """The first cell of a hash, or -1."""
    mask = len(cells.table) - 1
    at = home & mask
    while cells.table[at] != _EMPTY:
        if cells.table[at] >> 32 == home:
            return cells.table[at] & 0xFFFFFFFF
        at = (at + 1) & mask
    return -1


@inner
def find_cell(cells: Cells, home: int, cls: int, state: int, held: int, cluster: int, stamp: int) -> int:
    """The cell of this key, whose hash is `home`, or -1."""
    mask = len(cells.table) - 1
    at = home & mask
    while cells.table[at] != _EMPTY:
        if cells.table[at] >> 32 == home:
            cell = cells.table[at] & 0xFFFFFFFF
            if (
                cells.cls[cell] == cls
                and cells.cluster[cell] == cluster
                and cells.stamp[cell] == stamp
                and cells.state[cell] == state
                and cells.held[cell] == held
            ):
                return cell
        at = (at + 1) & mask
    return -1


@inner
def make_cell(cells: Cells, home: int, cls: int, state: int, held: int, cluster: int, stamp: int) -> int:
    """A new, empty cell of this key, whose hash is `home`; room must have been reserved."""
    if cells.meta[FREE] > 0:
        cells.meta[FREE] -= 1
        cell = cells.free[cells.meta[FREE]]
    else:
        cell = cells.meta[USED]
        cells.meta[USED] += 1
    mask = len(cells.table) - 1
    at = home & mask
    while cells.table[at] != _EMPTY:
        at = (at + 1) & mask
    cells.table[at] = _in_table(home, cell)
    cells.meta[LIVE] += 1
    cells.cls[cell] = cls
    cells.state[cell] = state
    cells.held[cell] = held
    cells.cluster[cell] = cluster
    cells.stamp[cell] = stamp
    cells.count[cell] = 0
    cells.known[cell] = 0
    cells.taken[cell] = 0
    cells.least[cell] = -1
    cells.size[cell] = 0
    cells.used[cell] = 0
    cells.ordered[cell] = 0
    cells.adds[cell] = 0
    cells.flags[cell] = NEW
    return cell


@inner
def home_of(cells: Cells, cell: int) -> int:
    """The hash of a cell."""
    return cell_hash(cells.cls[cell], cells.state[cell], cells.held[cell], cells.cluster[cell], cells.stamp[cell])


@inner
def drop_cell(cells: Cells, cell: int) -> None:
    """Forgets a cell. Those behind it in the table move up, so that no search ends before it finds them."""
    table = cells.table
    mask = len(table) - 1
    home = home_of(cells, cell)
    hole = home & mask
    while table[hole] != _in_table(home, cell):
        hole = (hole + 1) & mask
    at = (hole + 1) & mask
    while table[at] != _EMPTY:
        if (at - (table[at] >> 32)) & mask >= (at - hole) & mask:
            table[hole] = table[at]
            hole = at
        at = (at + 1) & mask
    table[hole] = _EMPTY
    cells.meta[LIVE] -= 1
    cells.free[cells.meta[FREE]] = cell
    cells.meta[FREE] += 1


@kernel
def rehash_cells(cells: Cells) -> None:
    """Fills an empty table with the live cells."""
    mask = len(cells.table) - 1
    for i in range(cells.meta[FREE]):
        cells.count[cells.free[i]] = -1
    for cell in range(cells.meta[USED]):
        if cells.count[cell] < 0:
            continue
        home = home_of(cells, cell)
        at = home & mask
        while cells.table[at] != _EMPTY:
            at = (at + 1) & mask
        cells.table[at] = _in_table(home, cell)


@inner
def touch(cells: Cells, cell: int) -> None:
    if not cells.flags[cell] & TOUCH:
        cells.flags[cell] |= TOUCH
        cells.touched[cells.meta[TOUCHED]] = cell
        cells.meta[TOUCHED] += 1


@inner
def leave(cells: Cells, members: Pool, cell: int, place: int, slot: int) -> None:
    """Takes a machine out of a cell, leaving a hole."""
    touch(cells, cell)
    members.data[cells.start[cell] + place] = -1
    cells.count[cell] -= 1
    if place == cells.used[cell] - 1:
        cells.used[cell] -= 1
        if cells.ordered[cell] > cells.used[cell]:
            cells.ordered[cell] = cells.used[cell]
    if cells.least[cell] == slot:
        cells.least[cell] = -1


@inner
def make_room(cells: Cells, members: Pool, place: I4R, cell: int) -> int:
    """Gives a cell room for the machines that were announced to it; if there is none, tells how much is missing.

    Machines that left have left holes. These are closed, and the chunk is kept, if a fifth of it is free afterwards:
    so a cell whose machines come and go needs no more and more room, and what closing costs is paid by newcomers.
    """
    if cells.used[cell] + cells.adds[cell] > cells.size[cell]:
        old = cells.start[cell]
        old_size = cells.size[cell]
        needed = cells.count[cell] + cells.adds[cell]
        size = chunk_size(needed + needed // 4 + 1 if old_size > 0 else needed)
        if size <= old_size:
            _close_holes(cells, members, place, cell, old)
        else:
            if size > pool_room(members):
                return size
            start = take_chunk(members, size)
            _close_holes(cells, members, place, cell, start)
            if old_size > 0:
                give_chunk(members, old, old_size)
            cells.start[cell] = start
            cells.size[cell] = size
    cells.adds[cell] = 0
    return 0


@inner
def _close_holes(cells: Cells, members: Pool, place: I4R, cell: int, into: int) -> None:
    """Writes a cell's members one behind the other, as they are ordered, to where it is or to another chunk."""
    start = cells.start[cell]
    ordered = cells.ordered[cell]
    at = 0
    for k in range(cells.used[cell]):
        slot = members.data[start + k]
        if slot >= 0:
            members.data[into + at] = slot
            if at != k:
                place[slot] = at
            at += 1
        elif k < ordered:
            cells.ordered[cell] -= 1
    cells.used[cell] = at


@inner
def mark_dirty(owners: Owners, owner: int, how: int) -> None:
    """Lists an owner as changed; `UNORDERED` is the stronger of the two."""
    if owners.dirty[owner] == 0:
        owners.list[owners.meta[DIRTY]] = owner
        owners.meta[DIRTY] += 1
        owners.stirred[owner] = NO_MORE
    if owners.dirty[owner] < how:
        owners.dirty[owner] = how


@inner
def link(cells: Cells, heads: I4, cell: int) -> None:
    """Puts a Creating cell on the list of its attribution pair."""
    pair = cells.stamp[cell]
    first = heads[pair]
    cells.next[cell] = first
    cells.prev[cell] = -1
    if first >= 0:
        cells.prev[first] = cell
    heads[pair] = cell


@inner
def join(cells: Cells, members: Pool, ids: Ids, cell: int, slot: int) -> int:
    """Adds a machine to a cell that has room; returns its place there."""
    place = cells.used[cell]
    start = cells.start[cell]
    members.data[start + place] = slot
    if cells.ordered[cell] == place and (
        place == 0 or (members.data[start + place - 1] >= 0 and id_less(ids, members.data[start + place - 1], slot))
    ):
        cells.ordered[cell] = place + 1
    cells.used[cell] = place + 1
    cells.count[cell] += 1
    least = cells.least[cell]
    if cells.count[cell] == 1 or (least >= 0 and id_less(ids, slot, least)):
        cells.least[cell] = slot
        cells.flags[cell] |= MOVED
    return place
