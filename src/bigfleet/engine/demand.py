"""Demand: roll-ups become rows, rows keep their arrival, clusters their links; and which profiles are in force.

A roll-up replaces all rows of its cluster. Bad rows are counted and left out. Nothing here looks at machines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import DemandBatch, Rollup
from bigfleet.engine.catalog import Catalog
from bigfleet.engine.columns import grown, made
from bigfleet.engine.fleet import Fleet
from bigfleet.engine.guard import Guard
from bigfleet.engine.jit import I4, I8, I8M, inner, kernel
from bigfleet.engine.policy import Policy
from bigfleet.engine.pool import Pool, chunk_size, give_chunk, take_chunk
from bigfleet.engine.results import RollupOutcome
from bigfleet.engine.rows import Clusters, DemandStore, Rows
from bigfleet.engine.view import View, view
from bigfleet.model.resources import MAX_NEED_UNITS

LIMIT = MAX_NEED_UNITS


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
        self._count_profiles()
        return outcomes

    def cluster(self, name: str) -> int:
        number = self.fleet.intern_cluster(name)
        self.cover_clusters()
        return number

    def cover_clusters(self) -> None:
        """Clusters that machines named first get their row here, and all of them their rank by name."""
        count = len(self.fleet.clusters)
        if count == self._ranked:
            return
        self.store.reserve_clusters(count)
        c = self.store.c
        for number in range(self._ranked, count):
            c.text[number] = self.catalog.texts.intern(self.fleet.clusters[number])
            c.dirty[number] = 1
        order = sorted(range(count), key=lambda number: self.fleet.clusters[number].encode())
        c.rank[order] = np.arange(count, dtype=np.int32)
        self._ranked = count

    def cover_resources(self, names: tuple[str, ...]) -> None:
        if self.catalog.intern_resources(names) or len(self._descending) != len(self.catalog.resources):
            width = self.catalog.width
            self.store.widen(width)
            self._in = made(Incoming, len(self._in.prof), agg=width, unit=width)
            self._descending = self.catalog.descending()

    @property
    def descending(self) -> NDArray[np.int64]:
        return self._descending

    def split(self) -> None:
        """Splits clusters whose rows changed into units; matches must be complete."""
        catalog, units = self.catalog, self.fleet.units
        c, rows, p = self.store.c, self.store.rows, catalog.p
        for cluster in sorted(self._resplit):
            profiles = rows.prof[int(c.start[cluster]) : int(c.start[cluster]) + int(c.rows[cluster])]
            # A gang may fold at any time, so what it folds into counts as well.
            cons = np.unique(np.concatenate([p.con[profiles], p.con[p.folded[profiles]]]))
            if units.assign(cluster, cons, catalog.match, catalog.class_count):
                c.fresh[cluster] = 1
        self._resplit.clear()

    def split_all(self) -> None:
        """Splits every cluster anew, because classes were numbered anew."""
        self._resplit.update(range(self._ranked))
        self.store.c.fresh[: self._ranked] = 1
        self.split()

    def joined(self, clusters: list[int]) -> None:
        """Clusters whose units had to be joined derive their entries anew."""
        self.store.c.fresh[clusters] = 1

    # ---- one cluster -----------------------------------------------------------------------------------------------

    def _take_over(self, rollup: Rollup, policy: Policy, now: int, rejected: dict[str, int]) -> RollupOutcome:
        catalog = self.catalog
        cluster = self.cluster(rollup.cluster)
        self.cover_resources((*rollup.resources, *rollup.overhead.names()))
        self._merge(rollup, rejected)
        c = self.store.c
        if not c.ready[cluster] or not c.connected[cluster]:
            c.ready[cluster] = 1
            c.connected[cluster] = 1
            c.dirty[cluster] = 1
            self.changed = True
        count = int(self._in.meta[0])
        volume = {catalog.resources[d]: int(self._in.volume[d]) for d in np.nonzero(self._in.volume)[0].tolist()}
        if self.guard.holds(rollup.cluster, count, volume, policy.guard, now):
            return RollupOutcome.HELD
        overhead = np.zeros(catalog.width, np.int64)
        for name, amount in rollup.overhead.items():
            overhead[catalog.resource(name)] = amount
        self.store.reserve_rows(2 * chunk_size(max(1, count)))
        changed = commit(
            self.store.c, self.store.rows, self.store.regions.v, self._in, catalog.p.refs, catalog.p.same, overhead,
            self._descending, cluster, now,
        )  # fmt: skip
        if changed:
            self.changed = True
            self._resplit.add(cluster)
        return RollupOutcome.APPLIED

    def _merge(self, rollup: Rollup, rejected: dict[str, int]) -> None:
        catalog = self.catalog
        count = len(rollup)
        profiles = np.array([catalog.intern_profile(profile) for profile in rollup.profiles] or [0], np.int32)
        intern = catalog.texts.intern
        groups = np.array([intern(group) for group in rollup.groups] or [0], np.int32)
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
        columns = np.array([catalog.resource(name) for name in rollup.resources] or [0], np.int64)
        prof = profiles[rollup.profile]
        group = np.where(rollup.group >= 0, groups[rollup.group], 0).astype(np.int32)
        merge_rows(
            self._in, prof, group, _owned(rollup.aggregate), _owned(rollup.min_unit), columns[: len(rollup.resources)],
            self._descending,
        )  # fmt: skip
        if bad := int(self._in.meta[1]):
            rejected["range"] = rejected.get("range", 0) + bad

    def _forget(self, name: str) -> None:
        number = self.fleet.cluster_index.get(name)
        self.guard.forget(name)
        if number is None or number >= self._ranked:
            return
        drop(self.store.c, self.store.rows, self.store.regions.v, self.catalog.p.refs, number)
        self.changed = True
        self._resplit.add(number)

    def _count_profiles(self) -> None:
        """Tells the catalog which profiles came into force or left it."""
        count = len(self.catalog.profiles)
        self._live = grown(self._live, len(self.catalog.p.refs))
        now_live = self.catalog.p.refs[:count] > 0
        for number in np.nonzero(now_live != self._live[:count])[0].tolist():
            self.catalog.live(number, 1 if now_live[number] else -1)
        self._live[:count] = now_live


def _owned(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    made_ = np.ascontiguousarray(matrix, np.int64)
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
def merge_rows(into: Incoming, prof: I4, group: I4, aggregate: I8M, min_unit: I8M, columns: I8, descending: I8) -> None:
    """Merges rows of equal key and leaves out those out of range; `meta` = rows, bad rows."""
    count = len(prof)
    width = into.agg.shape[1]
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
    c: Clusters, rows: Rows, regions: Pool, new: Incoming, refs: I8, same: I4, overhead: I8, descending: I8,
    cluster: int, now: int,
) -> bool:  # fmt: skip
    """Replaces a cluster's rows; a row that stays keeps its arrival. False if nothing is different."""
    count = new.meta[0]
    old_start = c.start[cluster]
    old_count = c.rows[cluster]
    width = rows.agg.shape[1]
    changed = old_count != count
    for d in range(width):
        if c.overhead[cluster, d] != overhead[d]:
            c.overhead[cluster, d] = overhead[d]
            changed = True
    arrival = np.empty(count, np.int64)
    old = old_start
    for i in range(count):
        arrival[i] = now
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
                arrival[i] = rows.arrival[old]
                for d in range(width):
                    if rows.agg[old, d] != new.agg[i, d]:
                        changed = True
                old += 1
                break
            old += 1
        if arrival[i] == now:
            # A new row, or one that arrived in this very instant and is rebuilt for nothing.
            changed = True
    if not changed:
        return False
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
        if same[new.prof[i]] != -1:
            gangs += 1
        for d in range(width):
            rows.agg[row, d] = new.agg[i, d]
            rows.unit[row, d] = new.unit[i, d]
    c.rows[cluster] = count
    c.gangs[cluster] = gangs
    c.fresh[cluster] = 1
    c.dirty[cluster] = 1
    return True


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
