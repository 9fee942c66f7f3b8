"""Demand: roll-ups become rows, rows keep their arrival, clusters their links; and which profiles are in force.

A roll-up replaces all rows of its cluster. Bad rows are counted and left out. Nothing here looks at machines.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import DemandBatch, Rollup
from bigfleet.engine.catalog import Catalog, Profiles
from bigfleet.engine.cells import CHANGED, Owners, mark_dirty
from bigfleet.engine.columns import grown, made
from bigfleet.engine.fleet import Fleet
from bigfleet.engine.guard import Guard
from bigfleet.engine.jit import I4, I8, I8M, inner, kernel
from bigfleet.engine.policy import Policy
from bigfleet.engine.pool import Pool, chunk_size, give_chunk, region_size, take_chunk
from bigfleet.engine.results import RollupOutcome
from bigfleet.engine.rows import SETTLED, Clusters, DemandStore, Entries, Parts, Rows
from bigfleet.engine.view import View, view
from bigfleet.model.resources import MAX_NEED_UNITS

LIMIT = MAX_NEED_UNITS
# What a roll-up changed: nothing, amounts of the rows there were, or which rows there are.
SAME, AMOUNTS, ROWS = 0, 1, 2
_REMEMBERED = 1024
_NOBODY = np.zeros(1, np.int32)
N = TypeVar("N", np.int32, np.int64)


@view
class Incoming(View):
    """A roll-up's rows, merged and in row order, before anything is taken over."""

    prof: I4
    group: I4
    agg: I8M
    unit: I8M
    order: I4
    volume: I8
    meta: I8


class Demand:
    """Rows in force by cluster, with links, readiness and the roll-up guard."""

    def __init__(self, catalog: Catalog, fleet: Fleet) -> None:
        self.catalog = catalog
        self.fleet = fleet
        self.store = DemandStore()
        self.guard = Guard()
        self._in = made(Incoming, 16)
        self._descending = np.zeros(0, np.int64)
        self._live = np.zeros(16, bool)
        self._columns: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._overhead = np.zeros(1, np.int64)
        self._cons = np.zeros(16, np.int32)
        self._con_mark = np.zeros(16, np.int64)
        self._con_epoch = 0
        self._recount = False
        self._covered = 0
        self._ranked = 0
        self._resplit: set[int] = set()
        self.changed = False

    def apply(self, batch: DemandBatch, policy: Policy, now: int, rejected: dict[str, int]) -> dict[str, RollupOutcome]:
        """Forgets clusters, then takes over roll-ups, then links."""
        outcomes: dict[str, RollupOutcome] = {}
        for name in batch.forgotten:
            self._forget(name)
        for rollup in batch.rollups:
            outcomes[rollup.cluster] = self._take_over(rollup, policy, now, rejected)
        for name, connected in batch.links:
            cluster = self.cluster(name)
            if self.store.c.connected[cluster] != connected:
                self.store.c.connected[cluster] = connected
                self.store.c.dirty[cluster] = 1
                self.changed = True
        if self._recount:
            self._count_profiles()
            self._recount = False
        return outcomes

    def cluster(self, name: str) -> int:
        number = self.fleet.intern_cluster(name)
        self._cover_rows()
        return number

    def cover_clusters(self) -> None:
        """Clusters that machines named first get their row here, and all of them their rank by name."""
        count = len(self.fleet.clusters)
        if count == self._ranked:
            return
        self._cover_rows()
        c = self.store.c
        order = sorted(range(count), key=lambda number: self.fleet.clusters[number].encode())
        c.rank[order] = np.arange(count, dtype=np.int32)
        self._ranked = count

    def _cover_rows(self) -> None:
        """A row for every cluster; ranks are given once per step, not once per new cluster."""
        count = len(self.fleet.clusters)
        if count == self._covered:
            return
        self.store.reserve_clusters(count)
        c = self.store.c
        for number in range(self._covered, count):
            c.text[number] = self.catalog.texts.intern(self.fleet.clusters[number])
            c.dirty[number] = 1
        self._covered = count

    def cover_resources(self, names: tuple[str, ...]) -> None:
        if self.catalog.intern_resources(names) or len(self._descending) != len(self.catalog.resources):
            self.store.widen(self.catalog.width)
            self._fit_resources()

    def _fit_resources(self) -> None:
        """What is as wide as there are resources, beside the store."""
        width = self.catalog.width
        self._in = made(Incoming, max(width, len(self._in.prof)), agg=width, unit=width)
        self._descending = self.catalog.descending()
        self._overhead = np.zeros(width, np.int64)

    @property
    def descending(self) -> NDArray[np.int64]:
        return self._descending

    def split(self) -> None:
        """Splits clusters whose rows changed into units; matches must be complete."""
        catalog, units = self.catalog, self.fleet.units
        if not self._resplit:
            return
        c, rows, p = self.store.c, self.store.rows, catalog.p
        self._con_mark = grown(self._con_mark, len(catalog.match))
        self._cons = grown(self._cons, len(catalog.match))
        for cluster in sorted(self._resplit):
            self._con_epoch += 1
            found = constraint_sets(c, rows, p, cluster, self._con_mark, self._con_epoch, self._cons)
            if units.assign(cluster, np.sort(self._cons[:found]), catalog.match, catalog.class_count):
                c.fresh[cluster] = 1
        self._resplit.clear()

    def split_all(self) -> None:
        """Splits every cluster anew, because classes were numbered anew."""
        self._resplit.update(range(self._covered))
        self.store.c.fresh[: self._covered] = 1
        self.split()

    def joined(self, clusters: list[int]) -> None:
        """Clusters whose units had to be joined derive their entries anew."""
        self.store.c.fresh[clusters] = 1

    # ---- turnover --------------------------------------------------------------------------------------------------

    def profiles_in_use(self) -> NDArray[np.int64]:
        """Those of rows and of what gangs among them fold into, ascending."""
        return np.union1d(self.store.rows.prof[self._rows()], self.store.entries.prof[self._entries()]).astype(np.int64)

    def groups_in_use(self) -> NDArray[np.int64]:
        return np.unique(self.store.rows.group[self._rows()]).astype(np.int64)

    def clusters_in_use(self) -> NDArray[np.int64]:
        """Those about which demand knows anything."""
        c = self.store.c
        known = (c.ready != 0) | (c.connected != 0) | (c.size > 0)
        return np.nonzero(known[: self._covered])[0]

    def resources_in_use(self) -> NDArray[np.int64]:
        """Columns of the resources that rows or overheads name."""
        rows, mine = self.store.rows, self._rows()
        most = np.maximum(rows.agg[mine].max(axis=0, initial=0), rows.unit[mine].max(axis=0, initial=0))
        most = np.maximum(most, self.store.c.overhead.max(axis=0))
        return np.nonzero(most[: len(self.catalog.resources)])[0]

    def _rows(self) -> NDArray[np.int64]:
        """Where the rows in force are."""
        return self._spans(self.store.c.rows)

    def _entries(self) -> NDArray[np.int64]:
        return self._spans(self.store.c.entries)

    def _spans(self, counts: NDArray[np.int32]) -> NDArray[np.int64]:
        count = counts[: self._covered].astype(np.int64)
        ends = np.cumsum(count)
        return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
            self.store.c.start[: self._covered] - (ends - count), count
        )

    def renumber(
        self,
        catalog: Catalog,
        profiles: NDArray[np.int32],
        groups: NDArray[np.int32],
        clusters: NDArray[np.int32],
        kept_clusters: NDArray[np.int64],
        resources: NDArray[np.int64],
    ) -> None:
        """Goes over to another catalog, after the fleet; every cluster must then be split and derived anew."""
        self.catalog = catalog
        self.store.renumber(profiles, groups, clusters, kept_clusters, resources)
        for number, name in enumerate(self.fleet.clusters):
            self.store.c.text[number] = catalog.texts.intern(name)
        self._covered, self._ranked = len(kept_clusters), 0
        np.add.at(catalog.p.refs, self.store.rows.prof[self._rows()], 1)
        self._live = catalog.p.refs > 0
        self._columns.clear()
        self._fit_resources()
        self._cons = np.zeros(16, np.int32)
        self._con_mark = np.zeros(16, np.int64)

    # ---- one cluster -----------------------------------------------------------------------------------------------

    def _take_over(self, rollup: Rollup, policy: Policy, now: int, rejected: dict[str, int]) -> RollupOutcome:
        catalog = self.catalog
        cluster = self.cluster(rollup.cluster)
        columns = self._columns.get(rollup.resources)
        bare = rollup.overhead.is_zero
        if columns is None or not bare:
            self.cover_resources((*rollup.resources, *rollup.overhead.names()))
            columns = np.array([catalog.resource(name) for name in rollup.resources], np.int64)
            if len(self._columns) >= _REMEMBERED:
                self._columns.clear()
            self._columns[rollup.resources] = columns
        self._merge(rollup, columns, rejected)
        store = self.store
        c = store.c
        if not c.ready[cluster] or not c.connected[cluster]:
            c.ready[cluster] = 1
            c.connected[cluster] = 1
            c.dirty[cluster] = 1
            self.changed = True
        count = int(self._in.meta[0])
        volume = {
            name: amount for name, amount in zip(catalog.resources, self._in.volume.tolist(), strict=False) if amount
        }
        if self.guard.holds(rollup.cluster, count, volume, policy.guard, now):
            return RollupOutcome.HELD
        overhead = self._overhead
        if not bare:
            overhead = np.zeros(catalog.width, np.int64)
            for name, amount in rollup.overhead.items():
                overhead[catalog.resource(name)] = amount
        store.reserve_rows(2 * region_size(max(1, count)))
        changed = commit(
            store.c, store.rows, store.entries, store.parts, self.fleet.cells.owners, store.regions.v, self._in,
            catalog.p, overhead, self._descending, cluster, now,
        )  # fmt: skip
        if changed != SAME:
            self.changed = True
        if changed == ROWS:
            self._recount = True
            self._resplit.add(cluster)
        return RollupOutcome.APPLIED

    def _merge(self, rollup: Rollup, columns: NDArray[np.int64], rejected: dict[str, int]) -> None:
        catalog = self.catalog
        count = len(rollup)
        profiles = np.array([catalog.intern_profile(profile) for profile in rollup.profiles] or [0], np.int32)
        groups = np.array(catalog.texts.intern_all(rollup.groups), np.int32) if rollup.groups else _NOBODY
        if count > len(self._in.prof):
            kept = self._in._asdict()
            self._in = Incoming(
                **{
                    name: column if name in ("volume", "meta") else grown(column, count)
                    for name, column in kept.items()
                }
            )
        if len(self._in.volume) < catalog.width:
            self._in = self._in._replace(volume=np.zeros(catalog.width, np.int64))
        merge_rows(
            self._in, profiles, _owned(rollup.profile, np.int32), groups, _owned(rollup.group, np.int32),
            _owned(rollup.aggregate, np.int64), _owned(rollup.min_unit, np.int64), columns, self._descending,
        )  # fmt: skip
        if bad := int(self._in.meta[1]):
            rejected["range"] = rejected.get("range", 0) + bad

    def _forget(self, name: str) -> None:
        number = self.fleet.cluster_index.get(name)
        self.guard.forget(name)
        if number is None or number >= self._covered:
            return
        drop(self.store.c, self.store.rows, self.store.regions.v, self.catalog.p.refs, number)
        self.changed = True
        self._recount = True
        self._resplit.add(number)

    def _count_profiles(self) -> None:
        """Tells the catalog which profiles came into force or left it."""
        count = len(self.catalog.profiles)
        self._live = grown(self._live, len(self.catalog.p.refs))
        now_live = self.catalog.p.refs[:count] > 0
        for number in np.nonzero(now_live != self._live[:count])[0].tolist():
            self.catalog.live(number, 1 if now_live[number] else -1)
        self._live[:count] = now_live

    def validate(self) -> None:
        """Profiles are counted by the rows that use them, live keys by those profiles; rows are in order."""
        catalog, store = self.catalog, self.store
        c, rows = store.c, store.rows
        assert self._covered == self._ranked == len(self.fleet.clusters), "a cluster has no row or no rank"
        for number, name in enumerate(self.fleet.clusters):
            assert catalog.texts.texts[int(c.text[number])] == name, f"cluster {name} has another's text"
            start, count = int(c.start[number]), int(c.rows[number])
            keys = [
                (int(rows.prof[row]), int(rows.group[row]), tuple((-rows.unit[row][self._descending]).tolist()))
                for row in range(start, start + count)
            ]
            assert all(a < b for a, b in pairwise(keys)), f"rows of cluster {name} are out of order"
            assert all(group < len(catalog.texts.texts) for _, group, _ in keys), (
                f"{name} has a group that is not there"
            )
        count = len(catalog.profiles)
        counted = np.bincount(rows.prof[self._rows()], minlength=count)
        assert len(counted) == count, "a row has a profile that is not there"
        assert (counted == catalog.p.refs[:count]).all(), "profiles are not counted by their rows"
        live = np.nonzero(counted)[0].tolist()
        assert np.nonzero(self._live)[0].tolist() == live, "other profiles are live than rows use"
        catalog.validate_keys(live)


def _owned(column: NDArray[N], kind: type[N]) -> NDArray[N]:
    """Kernels are compiled for writable, contiguous columns only."""
    made_ = np.ascontiguousarray(column, kind)
    return made_ if made_.flags.writeable else made_.copy()


@inner
def unit_order(units: I8M, a: int, others: I8M, b: int, descending: I8) -> int:
    """-1 when unit a comes before unit b (the larger first), 1 when after, 0 when equal."""
    for k in range(len(descending)):
        d = descending[k]
        x = units[a, d]
        y = others[b, d]
        if x != y:
            return -1 if x > y else 1
    return 0


@inner
def _row_order(prof: I4, group: I4, unit: I8M, a: int, b: int, descending: I8) -> int:
    if prof[a] != prof[b]:
        return -1 if prof[a] < prof[b] else 1
    if group[a] != group[b]:
        return -1 if group[a] < group[b] else 1
    return unit_order(unit, a, unit, b, descending)


@kernel
def constraint_sets(c: Clusters, rows: Rows, p: Profiles, cluster: int, mark: I8, epoch: int, found: I4) -> int:
    """The constraint sets of a cluster's rows; a gang may fold at any time, so what it folds into counts as well."""
    count = 0
    for row in range(c.start[cluster], c.start[cluster] + c.rows[cluster]):
        prof = rows.prof[row]
        for which in range(2):
            con = p.con[prof] if which == 0 else p.con[p.folded[prof]]
            if mark[con] != epoch:
                mark[con] = epoch
                found[count] = con
                count += 1
    return count


@kernel
def merge_rows(
    into: Incoming, profiles: I4, profile: I4, groups: I4, group_of: I4, aggregate: I8M, min_unit: I8M, columns: I8,
    descending: I8,
) -> None:  # fmt: skip
    """Merges rows of equal key and leaves out those out of range; `meta` = rows, bad rows."""
    count = len(profile)
    width = into.agg.shape[1]
    prof = np.empty(count, np.int32)
    group = np.empty(count, np.int32)
    for i in range(count):
        prof[i] = profiles[profile[i]]
        group[i] = groups[group_of[i]] if group_of[i] >= 0 else 0
    unit = np.zeros((count, width), np.int64)
    order = into.order
    good = 0
    bad = 0
    for i in range(count):
        fine = True
        for k in range(len(columns)):
            if not (0 <= aggregate[i, k] <= LIMIT and 0 <= min_unit[i, k] <= LIMIT):
                fine = False
            unit[i, columns[k]] = min_unit[i, k]
        if fine:
            order[good] = i
            good += 1
        else:
            bad += 1
    for step in range(good // 2 + max(0, good - 1)):
        if step < good // 2:
            root = good // 2 - 1 - step
            end = good
        else:
            root = 0
            end = good - 1 - (step - good // 2)
            swap = order[0]
            order[0] = order[end]
            order[end] = swap
        moving = order[root]
        at = root
        while True:
            child = 2 * at + 1
            if child >= end:
                break
            if child + 1 < end and _row_order(prof, group, unit, order[child], order[child + 1], descending) < 0:
                child += 1
            if _row_order(prof, group, unit, moving, order[child], descending) >= 0:
                break
            order[at] = order[child]
            at = child
        order[at] = moving
    made_rows = 0
    i = 0
    for d in range(len(into.volume)):
        into.volume[d] = 0
    while i < good:
        row = order[i]
        for d in range(width):
            into.agg[made_rows, d] = 0
            into.unit[made_rows, d] = unit[row, d]
        into.prof[made_rows] = prof[row]
        into.group[made_rows] = group[row]
        fine = True
        while i < good and _row_order(prof, group, unit, row, order[i], descending) == 0:
            other = order[i]
            for k in range(len(columns)):
                d = columns[k]
                into.agg[made_rows, d] = min(LIMIT + 1, into.agg[made_rows, d] + aggregate[other, k])
                if into.agg[made_rows, d] > LIMIT:
                    fine = False
            i += 1
        if fine:
            for d in range(width):
                into.volume[d] = min(into.volume[d] + into.agg[made_rows, d], 4611686018427387904)
            made_rows += 1
        else:
            bad += 1
    into.meta[0] = made_rows
    into.meta[1] = bad


@kernel
def commit(
    c: Clusters, rows: Rows, e: Entries, parts: Parts, owners: Owners, regions: Pool, new: Incoming, p: Profiles,
    overhead: I8, descending: I8, cluster: int, now: int,
) -> int:  # fmt: skip
    """Replaces a cluster's rows; a row that stays keeps its arrival. Tells what is different."""
    count = new.meta[0]
    old_start = c.start[cluster]
    old_count = c.rows[cluster]
    width = rows.agg.shape[1]
    refs = p.refs
    same_rows = old_count == count
    same_amounts = True
    for d in range(width):
        if c.overhead[cluster, d] != overhead[d]:
            c.overhead[cluster, d] = overhead[d]
            same_rows = False
    arrival = np.empty(count, np.int64)
    old = old_start
    for i in range(count):
        arrival[i] = now
        known = False
        while old < old_start + old_count:
            order = 0
            if rows.prof[old] != new.prof[i]:
                order = -1 if rows.prof[old] < new.prof[i] else 1
            elif rows.group[old] != new.group[i]:
                order = -1 if rows.group[old] < new.group[i] else 1
            else:
                order = unit_order(rows.unit, old, new.unit, i, descending)
            if order > 0:
                break
            if order == 0:
                known = True
                arrival[i] = rows.arrival[old]
                for d in range(width):
                    if rows.agg[old, d] != new.agg[i, d]:
                        same_amounts = False
                old += 1
                break
            old += 1
        if not known:
            same_rows = False
    if same_rows and same_amounts:
        return SAME
    if same_rows and c.gangs[cluster] == 0 and c.fresh[cluster] == 0:
        # The entries there are serve the new amounts: only units with a changed row are credited anew.
        for i in range(count):
            row = old_start + i
            different = False
            for d in range(width):
                if rows.agg[row, d] != new.agg[i, d]:
                    different = True
                    rows.agg[row, d] = new.agg[i, d]
            if different:
                part = rows.part[row]
                for d in range(width):
                    parts.agg[part, d] = new.agg[i, d]
                # Without gangs every entry has one part, in its own place.
                e.flags[part] &= ~SETTLED & 0xFF
                mark_dirty(owners, e.unit[part], CHANGED)
        return AMOUNTS
    for i in range(old_start, old_start + old_count):
        refs[rows.prof[i]] -= 1
    if count > c.size[cluster]:
        # The entries in the old region are still to be carried over: `build_entries` frees it.
        c.old_start[cluster] = old_start
        c.old_size[cluster] = c.size[cluster]
        size = chunk_size(count)
        c.start[cluster] = take_chunk(regions, size)
        c.size[cluster] = size
    start = c.start[cluster]
    gangs = 0
    for i in range(count):
        row = start + i
        rows.prof[row] = new.prof[i]
        rows.group[row] = new.group[i]
        rows.arrival[row] = arrival[i]
        rows.fold[row] = 0
        refs[new.prof[i]] += 1
        if p.same[new.prof[i]] != -1:
            gangs += 1
        for d in range(width):
            rows.agg[row, d] = new.agg[i, d]
            rows.unit[row, d] = new.unit[i, d]
    c.rows[cluster] = count
    c.gangs[cluster] = gangs
    c.fresh[cluster] = 1
    c.dirty[cluster] = 1
    return ROWS


@kernel
def drop(c: Clusters, rows: Rows, regions: Pool, refs: I8, cluster: int) -> None:
    """Forgets a cluster's demand, link and bucket."""
    start = c.start[cluster]
    for i in range(start, start + c.rows[cluster]):
        refs[rows.prof[i]] -= 1
    if c.size[cluster] > 0:
        give_chunk(regions, start, c.size[cluster])
    c.size[cluster] = 0
    c.rows[cluster] = 0
    c.entries[cluster] = 0
    c.parts[cluster] = 0
    c.gangs[cluster] = 0
    c.ready[cluster] = 0
    c.connected[cluster] = 0
    c.fresh[cluster] = 0
    c.dirty[cluster] = 1
    c.tokens[cluster] = 0
    c.refilled[cluster] = 0
    c.sighted[cluster] = 0
    for d in range(c.overhead.shape[1]):
        c.overhead[cluster, d] = 0
