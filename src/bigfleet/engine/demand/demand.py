"""Demand: roll-ups become rows, rows keep their arrival, clusters their links; and which profiles are in force.

A roll-up replaces all rows of its cluster. Bad rows are counted and left out. Nothing here looks at machines.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import DemandBatch, Rollup
from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.demand.guard import Guard
from bigfleet.engine.demand.odd_rows import Asked, asks_odd, folded, plain, unfold, volume_of
from bigfleet.engine.demand.refused import refused_rows
from bigfleet.engine.demand.rollups import ROWS, Incoming, commit, constraint_sets, drop, merge_rows, turned, withhold
from bigfleet.engine.demand.rows import DemandStore
from bigfleet.engine.demand.sparse import NOTHING_SAID, Sparse, read_sparse, reordered, unsound_domains
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.kernels.columns import grown, made
from bigfleet.engine.kernels.pool import region_size
from bigfleet.engine.policy import Policy, RollupSize
from bigfleet.engine.results import RefusedRows, RollupOutcome
from bigfleet.model.resources import Resources

_REMEMBERED = 1024
_NOBODY = np.zeros(1, np.int32)
_SUMS = np.zeros((0, 3), np.int32)
_SOUND = np.zeros(0, np.uint8)


class Demand:
    """Rows in force by cluster, with links, readiness and the roll-up guard."""

    def __init__(self, catalog: Catalog, fleet: Fleet) -> None:
        self.catalog = catalog
        self.fleet = fleet
        self.store = DemandStore()
        self.guard = Guard()
        self._in = made(Incoming, 16)
        self._descending = np.zeros(0, np.int64)
        self._live = np.zeros(16, np.uint8)
        self._turned = np.zeros(16, np.int32)
        # By names, and how many are published.
        self._columns: dict[tuple[tuple[str, ...], int], NDArray[np.int64]] = {}
        self._overhead = np.zeros(1, np.int64)
        self._cons = np.zeros(16, np.int32)
        self._con_mark = np.zeros(16, np.int64)
        self._con_epoch = 0
        self._recount = False
        self._covered = 0
        self._ranked = 0
        self._resplit: set[int] = set()
        # By cluster name: what counted rows say beside amounts.
        self._sparse: dict[str, Sparse] = {}
        # Overheads that name resources without a column; how many names were published when this was last looked at.
        self._overheads: dict[str, Resources] = {}
        self._looked_at = 0

    def sparse(self, cluster: str) -> Sparse:
        """Domains and tokens of a cluster's counted rows, by their place among its rows."""
        return self._sparse.get(cluster, NOTHING_SAID)

    def apply(
        self,
        batch: DemandBatch,
        policy: Policy,
        now: int,
        rejected: dict[str, int],
        refused: dict[str, RefusedRows],
    ) -> dict[str, RollupOutcome]:
        """Forgets clusters, then takes over roll-ups, then links. `refused` gets counted rows that were left out, by
        cluster."""
        outcomes: dict[str, RollupOutcome] = {}
        for name in batch.forgotten:
            self._forget(name)
        for rollup in batch.rollups:
            self.cluster(rollup.cluster)
        # All at once: a shard that starts meets the profiles of all its clusters in one step.
        profiles = [each for rollup in batch.rollups for each in rollup.profiles]
        numbers, first = np.array(self.catalog.intern_profiles(profiles), np.int32), 0
        for rollup in batch.rollups:
            last = first + len(rollup.profiles)
            outcomes[rollup.cluster] = self._take_over(rollup, numbers[first:last], policy, now, rejected)
            if rollup.counted is not None and (rows := refused_rows(rollup, self._in.origin)) is not None:
                refused[rollup.cluster] = rows
            first = last
        for name, connected in batch.links:
            cluster = self.cluster(name)
            if self.store.c.connected[cluster] != connected:
                self.store.c.connected[cluster] = connected
                self.store.c.dirty[cluster] = 1
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
        """Columns for resources that machines or nodes have; rows that asked for them in vain ask in these now."""
        catalog = self.catalog
        if not catalog.intern_resources(names) and len(self._descending) == len(catalog.resources):
            return
        self.store.widen(catalog.width)
        self._fit_resources()
        self._columns.clear()
        came = catalog.odd.names.intersection(names)
        if came:
            moved = unfold(self.store, catalog, catalog.resource(ODD), came, self._covered)
            catalog.odd.names -= came
            for cluster, places in moved.items():
                name = self.fleet.clusters[cluster]
                if name in self._sparse:
                    self._sparse[name] = reordered(self._sparse[name], places)
        for cluster_name, overhead in self._overheads.items():
            self._write_overhead(self.fleet.cluster_index[cluster_name], overhead)

    def follow_machines(self) -> None:
        """After machines changed: what they publish now gets a column, if somebody asks for it."""
        if self._looked_at == len(self.catalog.published):
            return
        self._looked_at = len(self.catalog.published)
        names = set(self.catalog.odd.names)
        for overhead in self._overheads.values():
            names.update(name for name in overhead.names() if self.catalog.resource(name) < 0)
        if came := names & self.catalog.published:
            self.cover_resources(tuple(sorted(came)))

    def _write_overhead(self, cluster: int, overhead: Resources) -> None:
        c, row = self.store.c, self._columns_with(overhead)
        if (c.overhead[cluster] != row).any():
            c.overhead[cluster] = row
            c.fresh[cluster] = c.dirty[cluster] = 1

    def _columns_with(self, amounts: Resources) -> NDArray[np.int64]:
        row = np.zeros(self.catalog.width, np.int64)
        for name, amount in amounts.items():
            if (column := self.catalog.resource(name)) >= 0:
                row[column] = amount
        return row

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
            cons = self._cons[:found]
            cons.sort()
            if units.assign(cluster, cons, catalog.match, catalog.class_count):
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

    def odd_in_use(self) -> set[int]:
        """Numbers of the odd vectors that rows, and the parts derived from them, speak of."""
        column = self.catalog.resource(ODD)
        if column < 0:
            return set()
        rows, c, mine = self.store.rows, self.store.c, self._rows()
        counted = np.repeat(c.counted[: self._covered], c.rows[: self._covered]) != 0
        found = set(rows.unit[mine, column].tolist()) | set(rows.agg[mine[~counted], column].tolist())
        return found | set(self.store.parts.unit[self._spans(c.parts), column].tolist())

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
        self._live = (catalog.p.refs > 0).astype(np.uint8)
        self._columns.clear()
        self._looked_at = 0
        self._fit_resources()
        self._cons = np.zeros(16, np.int32)
        self._con_mark = np.zeros(16, np.int64)

    # ---- one cluster -----------------------------------------------------------------------------------------------

    def _take_over(
        self, rollup: Rollup, profiles: NDArray[np.int32], policy: Policy, now: int, rejected: dict[str, int]
    ) -> RollupOutcome:
        catalog = self.catalog
        cluster = self.cluster(rollup.cluster)
        self._merge(rollup, profiles if len(profiles) else _NOBODY, rejected)
        store = self.store
        c = store.c
        if not c.ready[cluster] or not c.connected[cluster]:
            c.ready[cluster] = 1
            c.connected[cluster] = 1
            c.dirty[cluster] = 1
        count = int(self._in.meta[0])
        volume = volume_of(self._in, catalog, rollup.counted is not None)
        if self.guard.holds(rollup.cluster, RollupSize(count, volume), policy.guard, now):
            if c.counted[cluster]:
                withhold(c, store.rows, self._in, self._descending, cluster)
            return RollupOutcome.HELD
        overhead = self._overhead
        self._overheads.pop(rollup.cluster, None)
        if not rollup.overhead.is_zero:
            overhead = self._columns_with(rollup.overhead)
            if any(catalog.resource(name) < 0 for name in rollup.overhead.names()):
                self._overheads[rollup.cluster] = rollup.overhead
        store.reserve_rows(2 * region_size(max(1, count)))
        changed = commit(
            store.c, store.rows, store.entries, store.parts, self.fleet.cells.owners, store.regions.v, self._in,
            catalog.p, overhead, self._descending, cluster, now, rollup.counted is not None,
        )  # fmt: skip
        self._sparse.pop(rollup.cluster, None)
        if rollup.counted is not None and (rollup.counted.domain_units or rollup.counted.exclusive):
            self._sparse[rollup.cluster] = read_sparse(rollup.counted, self._in.origin)
        if changed == ROWS:
            self._recount = True
            self._resplit.add(cluster)
        return RollupOutcome.APPLIED

    def _columns_of(self, rollup: Rollup) -> NDArray[np.int64]:
        """Columns of a roll-up's names; -1 for names that nobody has. Names of the overhead get theirs as well."""
        catalog, key = self.catalog, (rollup.resources, len(self.catalog.published))
        columns = self._columns.get(key)
        if columns is None or not rollup.overhead.is_zero:
            asked = dict.fromkeys((*rollup.resources, *rollup.overhead.names()))
            self.cover_resources(tuple(name for name in asked if name in catalog.published))
            columns = np.array([catalog.resource(name) for name in rollup.resources], np.int64)
            if len(self._columns) >= _REMEMBERED:
                self._columns.clear()
            self._columns[key] = columns
        return columns

    def _asked(self, rollup: Rollup, profiles: NDArray[np.int32]) -> Asked:
        columns = self._columns_of(rollup)
        if (columns >= 0).all():
            return plain(rollup, columns)
        if not asks_odd(rollup, columns):
            return plain(rollup, columns)
        self.cover_resources((ODD,))
        columns = self._columns_of(rollup)
        return folded(rollup, profiles, columns, self.catalog.resource(ODD), self.catalog.odd)

    def _merge(self, rollup: Rollup, profiles: NDArray[np.int32], rejected: dict[str, int]) -> None:
        catalog = self.catalog
        count = len(rollup)
        asked = self._asked(rollup, profiles)
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
        units, unsound, said = _SUMS, _SOUND, rollup.counted
        if said is not None:
            units = np.stack((said.count, said.running, said.stranded), axis=1).astype(np.int32)
            unsound = unsound_domains(said, count)
            if len(asked.unsound):
                unsound = np.maximum(unsound, asked.unsound)
        merge_rows(
            self._in, profiles, asked.profile, groups, asked.group, asked.aggregate, asked.min_unit, asked.columns,
            self._descending, units, unsound,
        )  # fmt: skip
        if uneven := int(self._in.meta[2]):
            rejected["count"] = rejected.get("count", 0) + uneven
        if bad := int(self._in.meta[1]):
            rejected["range"] = rejected.get("range", 0) + bad

    def _forget(self, name: str) -> None:
        number = self.fleet.cluster_index.get(name)
        self.guard.forget(name)
        self._sparse.pop(name, None)
        self._overheads.pop(name, None)
        if number is None or number >= self._covered:
            return
        drop(self.store.c, self.store.rows, self.store.regions.v, self.catalog.p.refs, number)
        self._recount = True
        self._resplit.add(number)

    def _count_profiles(self) -> None:
        """Tells the catalog which profiles came into force or left it."""
        catalog = self.catalog
        refs = catalog.p.refs
        self._live, self._turned = grown(self._live, len(refs)), grown(self._turned, len(refs))
        found = turned(refs, self._live, len(catalog.profiles), self._turned)
        turned_now = self._turned[:found]
        came = self._live[turned_now] != 0
        catalog.live(turned_now[came].tolist(), turned_now[~came].tolist())

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
