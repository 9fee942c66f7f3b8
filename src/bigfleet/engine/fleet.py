"""The machines: columns by slot, and how records, holds and class changes move machines between cells.

The only writer of machine columns and cell membership. A record replaces a machine; a bad one is counted and the last
good one stays. Nothing here decides what a machine is used for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import MachineBatch
from bigfleet.engine.catalog import (
    BAD_DUPLICATE,
    BAD_ID,
    BAD_PROBABILITY,
    BAD_STATE,
    BAD_STRUCTURE,
    REJECTIONS,
    Catalog,
)
from bigfleet.engine.cells import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    IDLE,
    OWNER_CREATING,
    OWNER_DRAINING,
    OWNER_HELD_IDLE,
    OWNER_IDLE,
    OWNER_SPECULATIVE,
    SPECULATIVE,
    Cells,
    CellStore,
    append_room,
    cell_hash,
    find_cell,
    growth,
    join,
    leave,
    link,
    make_cell,
    touch,
)
from bigfleet.engine.classes import ABSENT
from bigfleet.engine.columns import grown, made
from bigfleet.engine.ids import USED, Ids, IdStore, align_ids, forget_id, hash_bytes, intern_id
from bigfleet.engine.jit import F8, I4, I8, I8M, U1, inner, kernel, prefetch
from bigfleet.engine.pool import Pool, pool_room
from bigfleet.engine.units import Units, UnitStore, unit_of_class
from bigfleet.engine.view import View, kept, view

T = TypeVar("T")

# Bits of `flags`: live demand names this id; on the list of those waiting for `not_before`.
NAMED, TIMED = 1, 2
SLICE = 131_072
NEVER = 2**63 - 1
# Records whose memory is asked for together, before the first of them is placed.
_AHEAD = 128
# Up to so many records a set of numbers is found faster by Python.
_FEW = 64
_NO_STATES = np.zeros(0, np.uint8)


@view
class Slots(View):
    """One row per machine. `cell` is -1 without one; `seen` is the last batch that named the id."""

    state: U1
    shape: I4
    cluster: I4
    stamp: I4
    not_before: I8
    idle_since: I8
    excess_since: I8
    excess_mark: I8
    cell: I4
    place: I4
    seen: I4
    flags: U1


@view
class Keys(View):
    """What a placement looks up: shapes, classes' prices and counts, stamps, bindings and pairs."""

    shape_class: I4
    shape_bad: U1
    price: F8
    count: I8M
    stamp_binding: I4
    stamp_pair: I4
    binding_worth: F8
    binding_group: I4
    pair_head: I4
    pair_group: I4
    units: Units


@view
class Work(View):
    """Lists a placement fills: machines to add to their cell, machines Python must class by name, waiting machines."""

    slot: I4
    special: I4
    timed: I4
    gone: I4
    meta: I8


# Places in `Work.meta`.
_JOIN, _SPECIAL, _TIMED, _NEXT_DUE, _CHANGED, _GONE = 0, 1, 2, 3, 4, 5


class Fleet:
    """Machine columns with their ids, cells and counts."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.ids = IdStore()
        self.cells = CellStore()
        self.units = UnitStore(self.cells)
        self.v = made(Slots, 16)._replace(cell=np.full(16, -1, np.int32))
        self.clusters: list[str] = []
        self.cluster_index: dict[str, int] = {}
        self._work = made(Work, 16)
        self._work.meta[_NEXT_DUE] = NEVER
        self._batch = 0
        self._named: set[str] = set()
        self._names: Sequence[str] | None = None
        self._keyed: Keys | None = None
        self._guess = np.zeros(_AHEAD, np.int32)
        self._last_now = -NEVER
        self.changed = False
        # Told after classes appeared and before machines are placed into cells of them.
        self.on_classes: Callable[[], None] = _nobody

    def intern_cluster(self, name: str) -> int:
        number = self.cluster_index.setdefault(name, len(self.clusters))
        if number == len(self.clusters):
            self.clusters.append(name)
            self.units.add_cluster(number)
        return number

    @property
    def next_due(self) -> int:
        """The earliest instant at which a held machine becomes available."""
        return int(self._work.meta[_NEXT_DUE])

    # ---- what changes machines -------------------------------------------------------------------------------------

    def apply(self, batch: MachineBatch, now: int, rejected: dict[str, int]) -> None:
        """Takes over a batch of records; counts the bad ones."""
        catalog = self.catalog
        shapes = _interned(batch.shape, batch.state, batch.shapes, catalog.intern_shape)
        stamps = _interned(batch.stamp, None, batch.stamps, catalog.stamps.intern_stamp)
        clusters = _interned(batch.cluster, None, batch.clusters, self.intern_cluster)
        empty = _empty_names(batch.clusters)
        self.on_classes()
        self._batch += 1
        arena, offsets = _writable(batch.ids.arena, np.uint8), _writable(batch.ids.offsets, np.int64)
        state, shape = _writable(batch.state, np.uint8), _writable(batch.shape, np.int32)
        cluster, stamp = _writable(batch.cluster, np.int32), _writable(batch.stamp, np.int32)
        not_before = _writable(batch.not_before, np.int64)
        bad = np.zeros(len(REJECTIONS), np.int64)
        rejects = 0
        for first in range(0, len(batch), SLICE):
            last = min(len(batch), first + SLICE)
            self._reserve(last - first, int(offsets[last] - offsets[first]))
            rejects += place_records(
                self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, self._guess,
                arena, offsets, first, last, state, shape, cluster, stamp, not_before,
                shapes, stamps, clusters, empty, now, self._batch, bad,
            )  # fmt: skip
            self._join(now)
        free_slots(self.v, self.ids.v, self._work)
        if rejects:
            for code in np.nonzero(bad)[0].tolist():
                rejected[REJECTIONS[code]] = rejected.get(REJECTIONS[code], 0) + int(bad[code])
        self._last_now = now

    def advance(self, now: int) -> None:
        """Frees the machines whose `not_before` has passed; when time ran backwards, judges all of them again."""
        if now < self._last_now:
            self.place_all(now)
        elif now >= self.next_due:
            self._reserve(int(self._work.meta[_TIMED]), 0)
            place_due(self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, now)
            self._join(now)
        self._last_now = now

    def place_all(self, now: int) -> None:
        """Puts every machine into its cell anew, after classes changed."""
        self.cells.clear()
        self.catalog.stamps.pair_head[:] = -1
        self.catalog.classes.count[:] = 0
        self._work.meta[_TIMED] = 0
        self._work.meta[_NEXT_DUE] = NEVER
        used = int(self.ids.v.meta[USED])
        unplace(self.v, used)
        for first in range(0, used, SLICE):
            last = min(used, first + SLICE)
            self._reserve(last - first, 0)
            place_range(
                self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, first, last, now
            )
            self._join(now)
        self.changed = True

    # ---- turnover --------------------------------------------------------------------------------------------------

    def shapes_in_use(self) -> NDArray[np.int64]:
        return self._in_use(self.v.shape, len(self.catalog.shapes))

    def stamps_in_use(self) -> NDArray[np.int64]:
        return self._in_use(self.v.stamp, len(self.catalog.stamps.stamps))

    def clusters_in_use(self) -> NDArray[np.int64]:
        """Those that machines name."""
        # The last place is for machines without one.
        used = self._in_use(self.v.cluster, len(self.clusters) + 1)
        return used[used < len(self.clusters)]

    def _in_use(self, column: NDArray[np.int32], size: int) -> NDArray[np.int64]:
        """Numbers that machines have in a column, ascending."""
        count = int(self.ids.v.meta[USED])
        seen = np.zeros(size, bool)
        seen[column[:count][self.v.state[:count] != 0]] = True
        return np.nonzero(seen)[0]

    def renumber(
        self,
        catalog: Catalog,
        shapes: NDArray[np.int32],
        stamps: NDArray[np.int32],
        clusters: NDArray[np.int32],
        kept_clusters: NDArray[np.int64],
    ) -> None:
        """Goes over to another catalog, given the new numbers by old ones; every machine must then be placed anew."""
        self.catalog = catalog
        v = self.v
        v.shape[:], v.stamp[:], v.cluster[:] = shapes[v.shape], stamps[v.stamp], clusters[v.cluster]
        self.clusters = [self.clusters[number] for number in kept_clusters.tolist()]
        self.cluster_index = {name: number for number, name in enumerate(self.clusters)}
        self.cells = CellStore()
        self.units = UnitStore(self.cells)
        for number in range(len(self.clusters)):
            self.units.add_cluster(number)

    def name(self, ids: Sequence[str], now: int) -> None:
        """Tells which ids live demand names; machines that gain or lose a name change class."""
        if ids is self._names:
            return
        self._names = ids
        wanted = set(ids)
        if wanted == self._named:
            return
        for text in sorted(self._named ^ wanted):
            data = np.frombuffer(text.encode(), np.uint8).copy()
            offsets = np.array([0, len(data)], np.int64)
            self._reserve(1, len(data))
            if len(data):
                self.ids.align(data, offsets)
            slot = rename(self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, data,
                          text in wanted)  # fmt: skip
            if slot >= 0:
                place_range(
                    self.v,
                    self.ids.v,
                    self.cells.v,
                    self.cells.members.v,
                    self._keys(),
                    self._work,
                    slot,
                    slot + 1,
                    now,
                )
                self._join(now)
        self._named = wanted
        self.changed = True

    def settle(self) -> None:
        """Orders what moved; the cells' dirty owners are listed afterwards."""
        if int(self._work.meta[_CHANGED]):
            self.changed = True
            self._work.meta[_CHANGED] = 0
        self.cells.settle(self.ids.v, self.catalog.stamps.pair_head)

    def validate(self) -> None:
        """Every machine is where its columns say, and classes count the machines they have."""
        catalog, v, cells, members = self.catalog, self.v, self.cells.v, self.cells.members.v
        assert {name: number for number, name in enumerate(self.clusters)} == self.cluster_index, (
            "clusters are mixed up"
        )
        counted = np.zeros((catalog.class_count, 9), np.int64)
        for slot in np.nonzero(v.state[: int(self.ids.v.meta[USED])])[0].tolist():
            text, state, cell, place = self.ids.text(slot), int(v.state[slot]), int(v.cell[slot]), int(v.place[slot])
            assert self.ids.find(text) == slot, f"{text} is not found again"
            assert 0 <= v.stamp[slot] < len(catalog.stamps.stamps), f"{text} has a stamp that is not there"
            assert -1 <= v.cluster[slot] < len(self.clusters), f"{text} is in a cluster that is not there"
            cls = place if cell < 0 else int(cells.cls[cell])
            counted[cls, state] += 1
            shape = catalog.shapes[int(v.shape[slot])]
            named = catalog.texts.intern(text) if text in self._named else ABSENT
            assert catalog.intern_class(shape, named) == cls, f"{text} is not of the class of its shape"
            if cell >= 0:
                assert members.data[int(cells.start[cell]) + place] == slot, f"{text} is not in its place"
                assert cells.state[cell] == state, f"{text} is in a cell of another state"
                assert cells.cluster[cell] in (-1, v.cluster[slot]), f"{text} is in a cell of another cluster"
        kept = catalog.classes.count[: catalog.class_count, 1:]
        assert (kept == counted[: len(kept), 1:]).all(), "classes count machines they do not have"

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _join(self, now: int) -> None:
        """Second half of a placement: cells get room, then the machines."""
        special = self._work.special[: int(self._work.meta[_SPECIAL])].tolist()
        self._work.meta[_SPECIAL] = 0
        for slot in special:
            text = self.catalog.texts.intern(self.ids.text(slot))
            cls = self.catalog.intern_class(self.catalog.shapes[int(self.v.shape[slot])], text)
            self.on_classes()
            self.cells.reserve(1)
            place_special(self.v, self.cells.v, self._keys(), self._work, slot, cls, now)
        members = self.cells.members
        missing = join_all(self.v, self.ids.v, self.cells.v, members.v, self._work)
        if missing:
            members.reserve(missing)
            join_all(self.v, self.ids.v, self.cells.v, members.v, self._work)

    def _reserve(self, records: int, id_bytes: int) -> None:
        self.ids.reserve(records, id_bytes)
        self.cells.reserve(records)
        if self.ids.capacity > len(self.v.state):
            self.v = Slots(
                *(
                    grown(column, self.ids.capacity, -1 if name == "cell" else 0)
                    for name, column in self.v._asdict().items()
                )
            )
        work = self._work
        self._work = work._replace(
            slot=grown(work.slot, records),
            special=grown(work.special, records),
            timed=grown(work.timed, int(work.meta[_TIMED]) + records),
            gone=grown(work.gone, int(work.meta[_GONE]) + records),
        )

    def _keys(self) -> Keys:
        c, stamps = self.catalog, self.catalog.stamps
        self._keyed = kept(
            self._keyed, Keys,
            c.shape_class, c.shape_bad, c.classes.price, c.classes.count, stamps.stamp_binding, stamps.stamp_pair,
            stamps.binding_reclamation, stamps.binding_group, stamps.pair_head, stamps.pair_group,
            self.units.v,
        )  # fmt: skip
        return self._keyed


def _nobody() -> None:
    """Whom the fleet tells when nobody asked."""


def _writable(column: NDArray[T], kind: type[T]) -> NDArray[T]:  # type: ignore[type-var]
    """Kernels are compiled for writable, contiguous columns only."""
    made = np.ascontiguousarray(column, kind)
    return made if made.flags.writeable else made.copy()


def _interned(
    column: NDArray[np.int32], state: NDArray[np.uint8] | None, table: Sequence[T], intern: Callable[[T], int]
) -> NDArray[np.int32]:
    """Numbers of the table's values, of those only that the column uses (where a state is given, of live records)."""
    numbers = np.full(max(1, len(table)), -1, np.int32)
    if not table:
        return numbers
    if len(column) <= _FEW:
        chosen = column if state is None else column[state != 0]
        used = sorted(set(chosen.tolist()))
    else:
        seen = np.zeros(len(table), np.uint8)
        mark_used(_writable(column, np.int32), _NO_STATES if state is None else _writable(state, np.uint8), seen)
        used = np.nonzero(seen)[0].tolist()
    for index in used:
        if index >= 0:
            numbers[index] = intern(table[index])
    return numbers


def _empty_names(clusters: Sequence[str]) -> NDArray[np.uint8]:
    """Which clusters of a batch have no name: such a machine has none."""
    return np.array([not name for name in clusters] or [False], np.uint8)


@inner
def _owner(keys: Keys, state: int, held: int, cluster: int, cls: int) -> int:
    """The ordered list a new cell belongs to, or -1."""
    if state == DRAINING:
        return OWNER_DRAINING
    if cluster >= 0:
        return unit_of_class(keys.units, cluster, cls)
    if state == CREATING:
        return OWNER_CREATING
    if state == CONFIGURING or state == CONFIGURED:
        return -1
    if held != 0:
        return OWNER_HELD_IDLE if state == IDLE else -1
    return OWNER_IDLE if state == IDLE else OWNER_SPECULATIVE


@inner
def _target(slots: Slots, cells: Cells, keys: Keys, slot: int, cls: int, now: int) -> int:
    """The cell a machine belongs to, made if it is new; -1 for states without one."""
    state = slots.state[slot]
    keys.count[cls, state] += 1
    if state == DELETING or state == FAILED or state == 0:
        return -1
    cluster = slots.cluster[slot]
    held = 0
    stamp = -1
    if state == CONFIGURED or state == CONFIGURING:
        stamp = keys.stamp_binding[slots.stamp[slot]]
    elif state == CREATING:
        stamp = keys.stamp_pair[slots.stamp[slot]]
    elif state != DRAINING:
        held = 1 if now < slots.not_before[slot] else 0
        cluster = -1
    cell = find_cell(cells, cls, state, held, cluster, stamp)
    if cell >= 0:
        return cell
    cell = make_cell(cells, cls, state, held, cluster, stamp)
    cells.owner[cell] = _owner(keys, state, held, cluster, cls)
    cells.price[cell] = keys.price[cls]
    cells.worth[cell] = 0.0
    cells.group[cell] = 0
    cells.idle_floor[cell] = 9223372036854775807
    if state == CONFIGURED or state == CONFIGURING:
        cells.worth[cell] = keys.binding_worth[stamp]
        cells.group[cell] = keys.binding_group[stamp]
    elif state == CREATING:
        cells.price[cell] = 0.0
        cells.group[cell] = keys.pair_group[stamp]
        link(cells, keys.pair_head, cell)
    return cell


@inner
def _settle_in(slots: Slots, cells: Cells, work: Work, slot: int, cell: int, now: int) -> None:
    """Announces a machine to its cell; `join_all` carries it out."""
    slots.cell[slot] = cell
    if cell < 0:
        return
    touch(cells, cell)
    cells.adds[cell] += 1
    work.slot[work.meta[_JOIN]] = slot
    work.meta[_JOIN] += 1
    if cells.state[cell] == IDLE and slots.idle_since[slot] < cells.idle_floor[cell]:
        cells.idle_floor[cell] = slots.idle_since[slot]
    if cells.held[cell] != 0:
        if slots.not_before[slot] < work.meta[_NEXT_DUE]:
            work.meta[_NEXT_DUE] = slots.not_before[slot]
        if not slots.flags[slot] & TIMED:
            slots.flags[slot] |= TIMED
            work.timed[work.meta[_TIMED]] = slot
            work.meta[_TIMED] += 1


@inner
def _take_out(slots: Slots, cells: Cells, members: Pool, keys: Keys, slot: int) -> None:
    """Removes a machine from its cell and from the counts of its class."""
    cell = slots.cell[slot]
    if cell >= 0:
        keys.count[cells.cls[cell], slots.state[slot]] -= 1
        leave(cells, members, cell, slots.place[slot], slot)
    elif slots.state[slot] != 0:
        # Deleting and Failed machines have no cell; their class is remembered in `place`.
        keys.count[slots.place[slot], slots.state[slot]] -= 1
    slots.cell[slot] = -1


@inner
def _put(slots: Slots, ids: Ids, cells: Cells, keys: Keys, work: Work, slot: int, now: int) -> None:
    if slots.flags[slot] & NAMED:
        work.special[work.meta[_SPECIAL]] = slot
        work.meta[_SPECIAL] += 1
        return
    cls = keys.shape_class[slots.shape[slot]]
    cell = _target(slots, cells, keys, slot, cls, now)
    if cell < 0:
        slots.place[slot] = cls
    _settle_in(slots, cells, work, slot, cell, now)


@kernel
def place_special(slots: Slots, cells: Cells, keys: Keys, work: Work, slot: int, cls: int, now: int) -> None:
    """Places a machine whose class Python had to name."""
    cell = _target(slots, cells, keys, slot, cls, now)
    if cell < 0:
        slots.place[slot] = cls
    _settle_in(slots, cells, work, slot, cell, now)


@inner
def _problem(state: int, shape_bad: int, has_cluster: bool, size: int, seen_before: bool) -> int:
    if state != 0 and (shape_bad == 1 or shape_bad == BAD_PROBABILITY):
        return shape_bad
    if size == 0:
        return BAD_ID
    if seen_before:
        return BAD_DUPLICATE
    if state > FAILED:
        return BAD_STATE
    if (state == CONFIGURED or state == DRAINING) and not has_cluster:
        return BAD_STRUCTURE
    if (state == SPECULATIVE or state == IDLE or state == DELETING) and has_cluster:
        return BAD_STRUCTURE
    if state != 0:
        return shape_bad
    return 0


@kernel
def mark_used(column: I4, state: U1, seen: U1) -> None:
    """Which table rows a column names; of removals (state 0) none, if the states are given."""
    judged = len(state) == len(column)
    for i in range(len(column)):
        if column[i] >= 0 and (not judged or state[i] != 0):
            seen[column[i]] = 1


@inner
def _look_ahead(
    slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, guess: I4, arena: U1, offsets: I8, first: int,
    last: int, state: U1, shape: I4, cluster: I4, stamp: I4, shapes: I4, stamps: I4, clusters: I4,
) -> None:  # fmt: skip
    """Asks for the memory some records need, step by step: one record after the other would wait for each line."""
    mask = len(ids.table) - 1
    for i in range(first, last):
        at = hash_bytes(arena, offsets[i], offsets[i + 1] - offsets[i]) & mask
        guess[i - first] = at
        prefetch(ids.table, at)
    for i in range(first, last):
        slot = ids.table[guess[i - first]]
        guess[i - first] = slot
        if slot >= 0:
            prefetch(ids.len, slot)
            prefetch(ids.off, slot)
            prefetch(ids.key, slot)
            prefetch(slots.seen, slot)
            prefetch(slots.state, slot)
            prefetch(slots.shape, slot)
            prefetch(slots.cluster, slot)
            prefetch(slots.stamp, slot)
            prefetch(slots.not_before, slot)
            prefetch(slots.cell, slot)
            prefetch(slots.place, slot)
            prefetch(slots.flags, slot)
            prefetch(slots.excess_since, slot)
            prefetch(slots.excess_mark, slot)
    table = len(cells.table) - 1
    for i in range(first, last):
        slot = guess[i - first]
        if slot >= 0:
            prefetch(ids.arena, ids.off[slot])
            _fetch_cell(cells, slots.cell[slot])
        if (state[i] == CONFIGURED or state[i] == CONFIGURING) and cluster[i] >= 0:
            cls = keys.shape_class[shapes[shape[i]]]
            binding = keys.stamp_binding[stamps[stamp[i]] if stamp[i] >= 0 else 0]
            prefetch(cells.table, cell_hash(cls, state[i], 0, clusters[cluster[i]], binding) & table)
    for i in range(first, last):
        slot = guess[i - first]
        if slot >= 0 and slots.cell[slot] >= 0:
            prefetch(members.data, cells.start[slots.cell[slot]] + slots.place[slot])
        if (state[i] == CONFIGURED or state[i] == CONFIGURING) and cluster[i] >= 0:
            cls = keys.shape_class[shapes[shape[i]]]
            binding = keys.stamp_binding[stamps[stamp[i]] if stamp[i] >= 0 else 0]
            _fetch_cell(cells, cells.table[cell_hash(cls, state[i], 0, clusters[cluster[i]], binding) & table])


@inner
def _fetch_cell(cells: Cells, cell: int) -> None:
    if cell >= 0:
        prefetch(cells.cls, cell)
        prefetch(cells.state, cell)
        prefetch(cells.cluster, cell)
        prefetch(cells.stamp, cell)
        prefetch(cells.held, cell)
        prefetch(cells.flags, cell)
        prefetch(cells.start, cell)
        prefetch(cells.count, cell)
        prefetch(cells.used, cell)
        prefetch(cells.ordered, cell)
        prefetch(cells.least, cell)
        prefetch(cells.adds, cell)
        prefetch(cells.size, cell)
        prefetch(cells.owner, cell)


@kernel
def place_records(
    slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, guess: I4, arena: U1, offsets: I8,
    first: int, last: int, state: U1, shape: I4, cluster: I4, stamp: I4, not_before: I8, shapes: I4, stamps: I4,
    clusters: I4, empty: U1, now: int, batch: int, bad: I8,
) -> int:  # fmt: skip
    """Takes over the records `first .. last`; counts the bad ones by reason, returns how many there were."""
    work.meta[_JOIN] = 0
    rejects = 0
    align_ids(ids, arena, offsets, first, last)
    for i in range(first, last):
        if (i - first) % _AHEAD == 0:
            _look_ahead(
                slots, ids, cells, members, keys, guess, arena, offsets, i, min(last, i + _AHEAD), state, shape,
                cluster, stamp, shapes, stamps, clusters,
            )  # fmt: skip
        start = offsets[i]
        size = offsets[i + 1] - start
        new_state = state[i]
        number = shapes[shape[i]] if new_state != 0 else 0
        has_cluster = cluster[i] >= 0 and empty[cluster[i]] == 0
        slot = -1
        seen_before = False
        if size > 0:
            slot = intern_id(ids, arena, start, size)
            if slots.seen[slot] == batch:
                seen_before = True
            elif slots.state[slot] == 0:
                # Perhaps an id that names no machine: judged when the whole batch is in.
                work.gone[work.meta[_GONE]] = slot
                work.meta[_GONE] += 1
            slots.seen[slot] = batch
        problem = _problem(new_state, keys.shape_bad[number] if new_state != 0 else 0, has_cluster, size, seen_before)
        if problem != 0:
            bad[problem] += 1
            rejects += 1
            continue
        old_state = slots.state[slot]
        new_cluster = clusters[cluster[i]] if has_cluster else -1
        new_stamp = stamps[stamp[i]] if stamp[i] >= 0 else 0
        if new_state == old_state and (
            new_state == 0
            or (
                slots.shape[slot] == number
                and slots.cluster[slot] == new_cluster
                and slots.stamp[slot] == new_stamp
                and slots.not_before[slot] == not_before[i]
            )
        ):
            continue
        work.meta[_CHANGED] = 1
        if old_state != 0:
            _take_out(slots, cells, members, keys, slot)
        if old_state != new_state or slots.cluster[slot] != new_cluster:
            slots.excess_since[slot] = 0
            slots.excess_mark[slot] = -1
        if new_state == IDLE and old_state != IDLE:
            slots.idle_since[slot] = now
        slots.state[slot] = new_state
        slots.cluster[slot] = new_cluster
        slots.stamp[slot] = new_stamp
        slots.not_before[slot] = not_before[i]
        if new_state == 0:
            work.gone[work.meta[_GONE]] = slot
            work.meta[_GONE] += 1
            continue
        slots.shape[slot] = number
        _put(slots, ids, cells, keys, work, slot, now)
    return rejects


@kernel
def free_slots(slots: Slots, ids: Ids, work: Work) -> None:
    """Ids that name no machine give their slot back."""
    for i in range(work.meta[_GONE]):
        slot = work.gone[i]
        if slots.state[slot] == 0 and not slots.flags[slot] & NAMED and ids.len[slot] >= 0:
            forget_id(ids, slot)
    work.meta[_GONE] = 0


@kernel
def place_due(slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, now: int) -> None:
    """Moves machines whose hold is over and forgets those that wait no longer."""
    work.meta[_JOIN] = 0
    waiting = work.meta[_TIMED]
    work.meta[_TIMED] = 0
    work.meta[_NEXT_DUE] = 9223372036854775807
    for i in range(waiting):
        slot = work.timed[i]
        slots.flags[slot] &= ~TIMED & 0xFF
        cell = slots.cell[slot]
        if cell < 0 or cells.held[cell] == 0:
            continue
        if slots.not_before[slot] <= now:
            work.meta[_CHANGED] = 1
            _take_out(slots, cells, members, keys, slot)
            _put(slots, ids, cells, keys, work, slot, now)
        else:
            slots.flags[slot] |= TIMED
            work.timed[work.meta[_TIMED]] = slot
            work.meta[_TIMED] += 1
            if slots.not_before[slot] < work.meta[_NEXT_DUE]:
                work.meta[_NEXT_DUE] = slots.not_before[slot]


@kernel
def unplace(slots: Slots, used: int) -> None:
    for slot in range(used):
        slots.cell[slot] = -1
        slots.flags[slot] &= ~TIMED & 0xFF


@kernel
def place_range(
    slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, first: int, last: int, now: int
) -> None:
    """Places the machines of a range of slots, none of which has a cell."""
    work.meta[_JOIN] = 0
    for slot in range(first, last):
        if slots.state[slot] != 0:
            _put(slots, ids, cells, keys, work, slot, now)


@kernel
def rename(slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, text: U1, named: bool) -> int:
    """Marks an id as named or not; returns its slot if a machine must be placed anew, else -1."""
    work.meta[_JOIN] = 0
    if len(text) == 0:
        return -1
    slot = intern_id(ids, text, 0, len(text))
    if slots.state[slot] != 0:
        _take_out(slots, cells, members, keys, slot)
    elif not named:
        slots.flags[slot] &= TIMED
        forget_id(ids, slot)
        return -1
    else:
        slots.flags[slot] &= TIMED
        slots.cell[slot] = -1
    if named:
        slots.flags[slot] |= NAMED
    else:
        slots.flags[slot] &= ~NAMED & 0xFF
    return slot if slots.state[slot] != 0 else -1


@kernel
def join_all(slots: Slots, ids: Ids, cells: Cells, members: Pool, work: Work) -> int:
    """Carries out what was announced; if the pool is too small nothing is done, and it tells what is missing."""
    missing = growth(cells)
    if missing > pool_room(members):
        return missing
    append_room(cells, members)
    joining = work.meta[_JOIN]
    for i in range(joining):
        if i + 16 < joining:
            cell = slots.cell[work.slot[i + 16]]
            prefetch(cells.used, cell)
            prefetch(cells.start, cell)
            prefetch(cells.least, cell)
            prefetch(cells.ordered, cell)
            prefetch(cells.count, cell)
            prefetch(ids.key, work.slot[i + 16])
        if i + 8 < joining:
            cell = slots.cell[work.slot[i + 8]]
            prefetch(members.data, cells.start[cell] + cells.used[cell])
            prefetch(ids.key, cells.least[cell])
        slot = work.slot[i]
        slots.place[slot] = join(cells, members, ids, slots.cell[slot], slot)
    work.meta[_JOIN] = 0
    return 0
