"""The machines: columns by slot, and how records, holds and class changes move machines between cells.

The only writer of machine columns and cell membership. A record replaces a machine; a bad one is counted and the last
good one stays. Nothing here decides what a machine is used for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import REMOVED, MachineBatch, Shape, Stamp
from bigfleet.engine.catalog.catalog import REJECTIONS, Catalog
from bigfleet.engine.catalog.classes import ABSENT
from bigfleet.engine.fleet.cells import FIRST_UNIT, MOVED, CellStore
from bigfleet.engine.fleet.partitions import UnitStore
from bigfleet.engine.fleet.placing import (
    AHEAD,
    ANY_CHANGE,
    CHANGED,
    GONE,
    NEXT_DUE,
    RARE,
    TO_CLASS,
    WAITING,
    Keys,
    Records,
    Slots,
    Work,
    free_slots,
    join_all,
    keep,
    mark_used,
    place_due,
    place_range,
    place_records,
    place_special,
    rename,
    unplace,
)
from bigfleet.engine.fleet.settling import settled
from bigfleet.engine.kernels.columns import INT32, INT64, MANY, UINT8, given_back, grown, grown_rows, made, owned, room
from bigfleet.engine.kernels.ids import USED, IdStore
from bigfleet.engine.kernels.view import kept
from bigfleet.model.resources import MAX_MACHINE_UNITS, Resources

T = TypeVar("T")

SLICE = 131_072
NEVER = 2**63 - 1
# Up to so many records a set of numbers is found faster by Python.
_FEW = 64
_NO_FLAGS = np.zeros(0, np.uint8)
_NO_DEADLINES = np.zeros(0, np.int64)
_NOBODY = np.full(1, -1, np.int32)
NO_STAMP = -1
BAD_STAMP = -2
# Stands for whatever a record says that is out of range.
IMPOSSIBLE = Shape("", "", "", 0, 0.0, 0.0, Resources({"cpu": MAX_MACHINE_UNITS + 1}), ())


class Fleet:
    """Machine columns with their ids, cells and counts."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.ids = IdStore()
        self.cells = CellStore()
        self.units = UnitStore(self.cells)
        self.v = made(Slots, 16)
        self.clusters: list[str] = []
        self.cluster_index: dict[str, int] = {}
        self._work = made(Work, 16)._replace(
            guess=np.zeros(AHEAD, np.int32),
            home=np.zeros(AHEAD, np.int32),
            key=np.zeros(AHEAD, np.int64),
            goal=np.zeros(AHEAD, np.int32),
            bad=np.zeros(len(REJECTIONS), np.int64),
        )
        self._work.meta[NEXT_DUE] = NEVER
        self._batch = 0
        self._named: set[str] = set()
        self._kept: set[int] = set()
        self._names: Sequence[str] | None = None
        self._keyed: Keys | None = None
        self._last_now = -NEVER
        # Machines by class and state; made anew when machines change, so that it may be kept.
        self.counted = catalog.machines_by_class()
        # Told after classes appeared and before machines are placed into cells of them.
        self.on_classes: Callable[[], None] = _nobody

    def intern_cluster(self, name: str) -> int:
        number = self.cluster_index.setdefault(name, len(self.clusters))
        if number == len(self.clusters):
            self.clusters.append(name)
            self.units.add_cluster(number)
        return number

    @property
    def changed(self) -> NDArray[np.int32]:
        """Slots that the last batch changed, those of machines that are gone included."""
        return self._work.changed[: int(self._work.meta[CHANGED])]

    @property
    def next_due(self) -> int:
        """The earliest instant at which a held machine becomes available."""
        return int(self._work.meta[NEXT_DUE])

    # ---- what changes machines -------------------------------------------------------------------------------------

    def apply(self, batch: MachineBatch, now: int, rejected: dict[str, int]) -> None:
        """Takes over a batch of records; counts the bad ones."""
        records = self._read(batch)
        self.on_classes()
        self._batch += 1
        self._forget_changed(len(batch))
        rejects = 0
        for first in range(0, len(batch), SLICE):
            last = min(len(batch), first + SLICE)
            self._reserve(last - first, int(records.offsets[last] - records.offsets[first]))
            rejects += place_records(
                self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, records, first, last,
                now, self._batch,
            )  # fmt: skip
            self._join(now)
        free_slots(self.v, self.ids.v, self._work)
        if len(batch) >= MANY:
            self._work = self._work._replace(gone=given_back(self._work.gone, len(batch), 0))
        if rejects:
            bad = self._work.bad
            for code in np.nonzero(bad)[0].tolist():
                rejected[REJECTIONS[code]] = rejected.get(REJECTIONS[code], 0) + int(bad[code])
            bad[:] = 0
        self._last_now = now

    def _read(self, batch: MachineBatch) -> Records:
        """A batch as kernels read it; gives numbers to shapes, stamps and clusters that are new."""
        catalog = self.catalog
        shapes = _interned(batch.shape, batch.state, batch.shapes, catalog.intern_shapes)
        stamps = _interned(batch.stamp, None, batch.stamps, lambda each: list(map(self._intern_stamp, each)))
        clusters = _interned(batch.cluster, None, batch.clusters, lambda each: list(map(self.intern_cluster, each)))
        shape = owned(batch.shape, INT32)
        if len(stamps) and stamps.min() < NO_STAMP:
            shape, shapes = self._without(batch, stamps, shape, shapes)
        return Records(
            arena=owned(batch.ids.arena, UINT8),
            offsets=owned(batch.ids.offsets, INT64),
            state=owned(batch.state, UINT8),
            shape=shape,
            cluster=owned(batch.cluster, INT32),
            stamp=owned(batch.stamp, INT32),
            not_before=owned(batch.not_before, INT64),
            deadline=_NO_DEADLINES if batch.deadline is None else owned(batch.deadline, INT64),
            shapes=shapes,
            clusters=clusters,
            stamps=stamps,
            nameless=_nameless(batch.clusters),
        )

    def _intern_stamp(self, stamp: Stamp) -> int:
        return self.catalog.stamps.intern_stamp(stamp) if in_range(stamp) else BAD_STAMP

    def _without(
        self, batch: MachineBatch, stamps: NDArray[np.int32], shape: NDArray[np.int32], shapes: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Records whose stamp cannot be kept are given a shape that cannot be either: they are rejected, one by one,
        and the batch is not. One whose shape is bad already keeps that reason."""
        catalog = self.catalog
        bad = (batch.stamp >= 0) & (stamps[batch.stamp] == BAD_STAMP) & (batch.state != REMOVED)
        bad[bad] &= catalog.shape_bad[shapes[shape[bad]]] == 0
        given = shape.copy()
        given[bad] = len(shapes)
        return given, np.append(shapes, np.int32(catalog.intern_shape(IMPOSSIBLE)))

    def advance(self, now: int) -> None:
        """Frees the machines whose `not_before` has passed; when time ran backwards, judges all of them again."""
        self._forget_changed(0)
        if now < self._last_now:
            self.place_all(now)
        elif now >= self.next_due:
            self._reserve(int(self._work.meta[WAITING]), 0)
            place_due(self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, now)
            self._join(now)
        self._last_now = now

    def place_all(self, now: int) -> None:
        """Puts every machine into its cell anew, after classes changed."""
        self.cells.clear()
        self.catalog.stamps.pair_head[:] = -1
        self.catalog.classes.count[:] = 0
        self._work.meta[WAITING] = 0
        self._work.meta[NEXT_DUE] = NEVER
        used = int(self.ids.v.meta[USED])
        unplace(self.v, used)
        for first in range(0, used, SLICE):
            last = min(used, first + SLICE)
            self._reserve(last - first, 0)
            place_range(
                self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, first, last, now
            )
            self._join(now)

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

    def keep(self, slots: set[int], now: int) -> None:
        """Tells which machines are kept for moves under way: until told otherwise they count as held (P18)."""
        if slots == self._kept:
            return
        for slot in sorted(self._kept ^ slots):
            self._reserve(1, 0)
            keep(
                self.v, self.ids.v, self.cells.v, self.cells.members.v, self._keys(), self._work, slot, slot in slots,
                now,
            )  # fmt: skip
            self._join(now)
        self._kept = set(slots)

    def settle(self) -> None:
        """Orders what moved; the cells' dirty owners are listed afterwards."""
        if self._work.meta[ANY_CHANGE]:
            self._work.meta[ANY_CHANGE] = 0
            self.counted = self.catalog.machines_by_class()
        settled(self.cells, self.ids.v, self.catalog.stamps.pair_head)

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
        self.cells.validate()
        self._validate_order()
        dull = np.nonzero((v.flags[: int(self.ids.v.meta[USED])] & RARE) == 0)[0]
        for column in (v.not_before, v.deadline, v.excess_since, v.excess_mark):
            assert not column[dull].any(), "a machine has more to say than its flags do"
        kept = catalog.classes.count[: catalog.class_count, 1:]
        assert (kept == counted[: len(kept), 1:]).all(), "classes count machines they do not have"
        assert self.counted.sum(axis=0)[1:].tolist() == kept.sum(axis=0).tolist(), "counts were kept too long"

    def _validate_order(self) -> None:
        """Cells know the smallest id of their machines, and owners list them in the documented order of blocks. Of a
        list that waits to be put in order this is so for the cells that have not moved."""
        cells, owners, lists = self.cells.v, self.cells.owners, self.cells.lists.v
        for owner in np.nonzero(owners.used)[0].tolist():
            start = int(owners.start[owner])
            listed = lists.data[start : start + int(owners.used[owner])]
            if owners.loose[owner]:
                assert owner >= FIRST_UNIT and owners.alike[owner] >= 0, f"owner {owner} must not wait"
                known = listed[cells.least[listed] >= 0]
                assert (cells.flags[listed[cells.least[listed] < 0]] & MOVED).all(), f"owner {owner} lost a cell"
            else:
                known = listed
            first = []
            for start, used in zip(cells.start[known].tolist(), cells.used[known].tolist(), strict=True):
                here = self.cells.members.v.data[start : start + used]
                first.append(min(self.ids.texts(here[here >= 0]), key=str.encode))
            assert self.ids.texts(cells.least[known]) == first, f"owner {owner} has cells with another smallest id"
            ranks = zip(
                (-cells.state[known].astype(int)).tolist(), cells.price[known].tolist(),
                (-cells.worth[known]).tolist(), [text.encode() for text in first], strict=True,
            )  # fmt: skip
            moved = (cells.flags[known] & MOVED).tolist()
            assert owners.loose[owner] or not any(moved), f"owner {owner} has cells that moved"
            found = [rank for rank, has_moved in zip(ranks, moved, strict=True) if not has_moved]
            assert found == sorted(found), f"owner {owner} lists its cells in another order"

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _join(self, now: int) -> None:
        """Second half of a placement: cells get room, then the machines."""
        if self._work.meta[TO_CLASS]:
            self._class_by_name(now)
        members = self.cells.members
        while missing := join_all(self.v, self.ids.v, self.cells.v, members.v, self._work):
            members.reserve(missing)

    def _class_by_name(self, now: int) -> None:
        """Machines whose id live demand names are of a class of their own."""
        special = self._work.special[: int(self._work.meta[TO_CLASS])].tolist()
        self._work.meta[TO_CLASS] = 0
        for slot in special:
            text = self.catalog.texts.intern(self.ids.text(slot))
            cls = self.catalog.intern_class(self.catalog.shapes[int(self.v.shape[slot])], text)
            self.on_classes()
            self.cells.reserve(1)
            place_special(self.v, self.cells.v, self._keys(), self._work, slot, cls, now)

    def _reserve(self, records: int, id_bytes: int) -> None:
        self.ids.reserve(records, id_bytes)
        self.cells.reserve(records)
        if self.ids.capacity > len(self.v.state):
            rows = grown_rows(self.v, self.ids.capacity)
            self.v = Slots(
                **{
                    name: rows[name] if name in rows else grown(column, self.ids.capacity)
                    for name, column in self.v._asdict().items()
                }
            )
        work = self._work
        timed, gone = int(work.meta[WAITING]) + records, int(work.meta[GONE]) + records
        changed = int(work.meta[CHANGED]) + records
        if records > len(work.slot) or timed > len(work.timed) or gone > len(work.gone) or changed > len(work.changed):
            self._work = work._replace(
                slot=grown(work.slot, records),
                cell=grown(work.cell, records),
                special=grown(work.special, records),
                timed=grown(work.timed, timed),
                gone=grown(work.gone, gone, used=int(work.meta[GONE])),
                changed=grown(work.changed, room(len(work.changed), changed), used=int(work.meta[CHANGED])),
            )

    def _forget_changed(self, records: int) -> None:
        """Before a batch of so many: nothing has changed yet."""
        last = int(self._work.meta[CHANGED])
        self._work.meta[CHANGED] = 0
        if last >= MANY and records * 8 < last:
            self._work = self._work._replace(changed=given_back(self._work.changed, last, 0))

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


def in_range(stamp: Stamp) -> bool:
    """Whether a stamp can be kept: a priority as needs have it, and dollars that can be compared."""
    return -(2**31) <= stamp.priority < 2**31 and stamp.interruption_dollars >= 0 and stamp.reclamation_dollars >= 0


def _interned(
    column: NDArray[np.int32],
    state: NDArray[np.uint8] | None,
    table: Sequence[T],
    intern: Callable[[Sequence[T]], list[int]],
) -> NDArray[np.int32]:
    """Numbers of the table's values, of those only that the column uses (where a state is given, of live records)."""
    if not table:
        return _NOBODY
    if len(column) <= _FEW and len(table) <= _FEW:
        found = set(column.tolist() if state is None else compress(column.tolist(), state.tolist()))
        used = [n for n in range(len(table)) if n in found]
    else:
        seen = np.zeros(len(table), np.uint8)
        mark_used(owned(column, INT32), _NO_FLAGS if state is None else owned(state, UINT8), seen)
        if seen.all():
            # Most batches carry nothing that they do not use: nothing need be picked out.
            return np.array(intern(table), np.int32)
        used = np.nonzero(seen)[0].tolist()
    numbers = np.full(len(table), -1, np.int32)
    numbers[used] = intern([table[n] for n in used])
    return numbers


def _nameless(clusters: Sequence[str]) -> NDArray[np.uint8]:
    """Which clusters of a batch have no name: such a machine has none."""
    return np.array([not name for name in clusters], np.uint8) if clusters else _NO_FLAGS
