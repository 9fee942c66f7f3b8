"""Units: the pieces of a cluster that cannot compete for the same machines, so that each is credited on its own.

Constraint sets that match a common class belong together; a cluster's cells and entries are split along that. A change
to one machine then costs the crediting of one unit, not of the cluster. Unit 0 of a cluster holds the cells no entry
matches. Splitting never changes a decision: entries of different units never look at the same cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.fleet.cells import (
    ANY,
    CONFIGURED,
    DRAINING,
    FIRST_UNIT,
    LISTED,
    LONGEST,
    MOVED,
    TOUCHED,
    UNORDERED,
    Cells,
    CellStore,
    Owners,
    mark_dirty,
)
from bigfleet.engine.kernels.columns import grown, made, room, widened
from bigfleet.engine.kernels.jit import I4, I4M, U1M, inner, kernel
from bigfleet.engine.kernels.pool import (
    Pool,
    PoolStore,
    chunk_size,
    give_chunk,
    give_region,
    region_size,
    take_chunk,
    take_region,
)
from bigfleet.engine.kernels.view import View, view

# More distinct splits than this are not worth their tables: such clusters are one unit.
MAX_SPLITS = 2048
WHOLE = -1


@view
class Units(View):
    """Where clusters' units are: owners `first[c] .. first[c] + count[c]`. Split s has constraint sets
    `con[con_first[s] : con_first[s + 1]]` in units `con_unit`, and class k in unit `class_unit[s, k]`."""

    first: I4
    count: I4
    size: I4
    split: I4
    class_unit: I4M
    con_first: I4
    con: I4
    con_unit: I4


class UnitStore:
    """Owns the split of every cluster and the tables of the splits in use."""

    def __init__(self, cells: CellStore) -> None:
        self.cells = cells
        self.regions = PoolStore()
        self.v = made(Units, 16, class_unit=16)
        self._splits: dict[bytes, int] = {}
        self._counts: list[int] = []
        self._classes = 0

    @property
    def split_count(self) -> int:
        return len(self._counts)

    def add_cluster(self, cluster: int) -> None:
        """A new cluster is one unit without entries."""
        v = self.v
        size = room(len(v.first), cluster + 1)
        if size > len(v.first):
            v = self.v = v._replace(
                first=grown(v.first, size), count=grown(v.count, size), size=grown(v.size, size),
                split=grown(v.split, size),
            )  # fmt: skip
        v.split[cluster] = WHOLE
        self._place(cluster, 1)

    def assign(self, cluster: int, cons: NDArray[np.int32], match: U1M, classes: int) -> bool:
        """Splits a cluster by its constraint sets (ascending); True if its cells were redistributed."""
        split, units = WHOLE, min(2, 1 + len(cons))
        if len(cons) > 1:
            found = self._splits.get(cons.tobytes())
            if found is None and len(self._counts) < MAX_SPLITS:
                found = self._add(cons, match, classes)
            if found is not None:
                split, units = found, self._counts[found]
        if int(self.v.split[cluster]) == split and int(self.v.count[cluster]) == units:
            return False
        self._resplit(cluster, split, units)
        return True

    def refresh(self, match: U1M, classes: int, clusters: int) -> list[int]:
        """Takes new classes into all splits; returns the clusters whose units had to be joined."""
        if classes == self._classes:
            return []
        self._widen(classes)
        joined = set()
        for number in range(len(self._counts)):
            if extend_split(match, self.v, number, self._classes, classes):
                self._counts[number] = split_classes(match, self.v, number, classes)
                joined.add(number)
        self._classes = classes
        moved = [c for c in range(clusters) if int(self.v.split[c]) in joined] if joined else []
        for cluster in moved:
            split = int(self.v.split[cluster])
            self._resplit(cluster, split, self._counts[split])
        return moved

    def forget(self) -> None:
        """Drops all splits, because classes are numbered anew; every cluster must be assigned again."""
        self._splits.clear()
        self._counts.clear()
        self._classes = 0
        self.v.split[:] = WHOLE

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _add(self, cons: NDArray[np.int32], match: U1M, classes: int) -> int:
        number = self._splits[cons.tobytes()] = len(self._counts)
        self._widen(max(classes, self._classes))
        v = self.v
        first = int(v.con_first[number])
        rows = room(len(v.class_unit), number + 1)
        v = self.v = v._replace(
            class_unit=grown(v.class_unit, rows),
            con_first=grown(v.con_first, rows + 1),
            con=grown(v.con, room(len(v.con), first + len(cons))),
            con_unit=grown(v.con_unit, room(len(v.con_unit), first + len(cons))),
        )
        v.con[first : first + len(cons)] = cons
        v.con_first[number + 1] = first + len(cons)
        self._counts.append(split_classes(match, v, number, classes))
        return number

    def _widen(self, classes: int) -> None:
        if classes > self.v.class_unit.shape[1]:
            self.v = self.v._replace(class_unit=widened(self.v.class_unit, room(self.v.class_unit.shape[1], classes)))

    def _place(self, cluster: int, units: int) -> None:
        size = region_size(units)
        self.regions.reserve(size)
        v = self.v
        v.first[cluster] = FIRST_UNIT + take_region(self.regions.v, size)
        v.count[cluster] = units
        v.size[cluster] = size
        self.cells.reserve_owners(FIRST_UNIT + len(self.regions.v.data))
        blank_owners(self.cells.owners, int(v.first[cluster]), units, cluster)

    def _resplit(self, cluster: int, split: int, units: int) -> None:
        v = self.v
        old_first, old_count, old_size = int(v.first[cluster]), int(v.count[cluster]), int(v.size[cluster])
        held = sum(self.cells.owners.used[old_first : old_first + old_count].tolist())
        v.split[cluster] = split
        self._place(cluster, units)
        self.cells.lists.reserve(4 * region_size(held) + 2 * units)
        move_cells(self.cells.v, self.cells.owners, self.cells.lists.v, self.v, cluster, old_first, old_count)
        give_region(self.regions.v, old_first - FIRST_UNIT, old_size)


@inner
def unit_of_class(units: Units, cluster: int, cls: int) -> int:
    """The owner that holds a cluster's cells of a class."""
    split = units.split[cluster]
    if split < 0:
        return units.first[cluster] + units.count[cluster] - 1
    return units.first[cluster] + units.class_unit[split, cls]


@inner
def unit_of_con(units: Units, cluster: int, con: int) -> int:
    """The owner that serves a cluster's entries of a constraint set."""
    split = units.split[cluster]
    if split < 0:
        return units.first[cluster] + units.count[cluster] - 1
    low = units.con_first[split]
    high = units.con_first[split + 1]
    while low < high:
        middle = (low + high) // 2
        if units.con[middle] < con:
            low = middle + 1
        else:
            high = middle
    return units.first[cluster] + units.con_unit[low]


@kernel
def split_classes(match: U1M, units: Units, split: int, classes: int) -> int:
    """Joins constraint sets that share a class; units are numbered from 1, 0 is for classes nobody matches."""
    first_con = units.con_first[split]
    count = units.con_first[split + 1] - first_con
    parent = np.arange(count)
    for cls in range(classes):
        first = -1
        for i in range(count):
            if match[units.con[first_con + i], cls] != 0:
                other = i
                while parent[other] != other:
                    other = parent[other]
                if first < 0:
                    first = other
                elif other < first:
                    parent[first] = other
                    first = other
                elif other > first:
                    parent[other] = first
    found = 0
    for i in range(count):
        root = i
        while parent[root] != root:
            root = parent[root]
        if root == i:
            found += 1
            units.con_unit[first_con + i] = found
        else:
            units.con_unit[first_con + i] = units.con_unit[first_con + root]
    extend_split_from(match, units, split, 0, classes)
    return found + 1


@inner
def extend_split_from(match: U1M, units: Units, split: int, first: int, last: int) -> bool:
    """Puts classes into units; True if one is matched from several units."""
    torn = False
    for cls in range(first, last):
        here = 0
        for i in range(units.con_first[split], units.con_first[split + 1]):
            if match[units.con[i], cls] != 0:
                if here != 0 and here != units.con_unit[i]:
                    torn = True
                here = units.con_unit[i]
        units.class_unit[split, cls] = here
    return torn


@kernel
def extend_split(match: U1M, units: Units, split: int, first: int, last: int) -> bool:
    return extend_split_from(match, units, split, first, last)


@kernel
def blank_owners(owners: Owners, first: int, count: int, cluster: int) -> None:
    for owner in range(first, first + count):
        owners.used[owner] = 0
        owners.size[owner] = 0
        owners.machines[owner] = 0
        owners.adds[owner] = 0
        owners.cluster[owner] = cluster
        owners.entry[owner] = 0
        owners.entries[owner] = 0
        owners.stall[owner] = -1
        owners.pending[owner] = 0
        owners.timed[owner] = 0
        owners.choosy[owner] = 0
        owners.logged[owner] = 0
        owners.room[owner] = 0
        owners.alike[owner] = -1
        owners.unlogged[owner] = 0
        owners.loose[owner] = 0
        owners.excess[owner] = 0
        owners.configured[owner] = 0
        mark_dirty(owners, owner, UNORDERED)
        owners.stirred[owner] = ANY


@kernel
def move_cells(
    cells: Cells, owners: Owners, lists: Pool, units: Units, cluster: int, old_first: int, old_count: int
) -> None:
    """Hands a cluster's cells to their new units; `settle` puts them into order."""
    total = 0
    for owner in range(old_first, old_first + old_count):
        total += owners.used[owner]
    moving = np.empty(total, np.int32)
    at = 0
    for owner in range(old_first, old_first + old_count):
        for k in range(owners.start[owner], owners.start[owner] + owners.used[owner]):
            moving[at] = lists.data[k]
            at += 1
        if owners.size[owner] > 0:
            give_chunk(lists, owners.start[owner], owners.size[owner])
        owners.used[owner] = 0
        owners.size[owner] = 0
    first = units.first[cluster]
    for i in range(total):
        cell = moving[i]
        owner = unit_of_class(units, cluster, cells.cls[cell])
        cells.owner[cell] = owner
        owners.adds[owner] += 1
    for owner in range(first, first + units.count[cluster]):
        if owners.adds[owner] > 0:
            owners.size[owner] = chunk_size(owners.adds[owner])
            owners.start[owner] = take_chunk(lists, owners.size[owner])
            owners.meta[LONGEST] = max(owners.meta[LONGEST], owners.size[owner])
            owners.adds[owner] = 0
    for i in range(total):
        cell = moving[i]
        owner = cells.owner[cell]
        lists.data[owners.start[owner] + owners.used[owner]] = cell
        owners.used[owner] += 1
        owners.machines[owner] += cells.known[cell]
        if cells.state[cell] == CONFIGURED:
            owners.configured[owner] += cells.known[cell]
        cells.flags[cell] |= MOVED | LISTED
    # Cells made in this very batch are in no list yet.
    for i in range(cells.meta[TOUCHED]):
        cell = cells.touched[i]
        if cells.cluster[cell] == cluster and cells.state[cell] != DRAINING and not cells.flags[cell] & LISTED:
            cells.owner[cell] = unit_of_class(units, cluster, cells.cls[cell])
