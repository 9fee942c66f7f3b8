"""Nodes: what reporting clusters say, in force; the front of this room (`docs/engine.md` P2 to P5, P8, P12, P31).

In a step: `follow` after the fleet took over machines, then `take_over` with the demand batch and what became of its
roll-ups. Between the two nothing may read. Kernels read `s` (a row per cluster), `r` (a row per reported node, by
`row_of(r, slot)`) and `said`, with `is_fresh`, `gives`, `is_seen`, `is_coming` and `lower_to_said`. A cluster's reports
are the chain from `s.head[cluster]` through `r.next`; `loose` and `young` are what a step has to look at.
Nothing here decides, and reports never move a machine to another cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import DemandBatch
from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.kernels.columns import INT32, INT64, UINT8, given_back, grown, made, owned, room, widened
from bigfleet.engine.kernels.ids import USED
from bigfleet.engine.nodes.loads import LoadTable
from bigfleet.engine.nodes.receiving import follow, forget_reports, look_again, receive, settle_young
from bigfleet.engine.nodes.reports import (
    AGAINS,
    COUNTED,
    EMPTY,
    FREE,
    LOOSE,
    ROWS,
    YOUNG,
    Reports,
    Told,
    is_seen_row,
)
from bigfleet.engine.nodes.reports import USED as REPORTED_USED
from bigfleet.engine.nodes.said import Said, SaidStore, smallest
from bigfleet.engine.nodes.seen import LARGE, Seen, SeenStore
from bigfleet.engine.nodes.sessions import NEVER, Sessions, SessionStore
from bigfleet.engine.placement import Load, NodeBatch
from bigfleet.engine.results import RollupOutcome
from bigfleet.model.resources import MAX_NEED_UNITS

# Columns for resources that nodes have and no machine publishes (what a device plug-in adds): those one cluster may
# bring, and all of them together.
NAMES_OF_CLUSTER, NAMES_OF_ALL = 16, 64
FLOAT64 = np.dtype(np.float64)
_BY_SLOT = ("row_of", "is_young", "young")
_LISTS = {"free": FREE, "loose": LOOSE, "young": YOUNG, "again": AGAINS}


class Nodes:
    """Sessions, node reports, what nodes really have to give, and their loads."""

    def __init__(self, catalog: Catalog, fleet: Fleet, cover: Callable[[tuple[str, ...]], None]) -> None:
        """`cover` makes every amounts matrix wide enough for these resources."""
        self.catalog, self.fleet, self._cover = catalog, fleet, cover
        self._sessions = SessionStore()
        self._said = SaidStore()
        self._seen = SeenStore()
        self.loads = LoadTable()
        self.r = made(Reports, 0)._replace(meta=np.zeros(8, np.int64))
        self._heard = False
        # How long lists have been since their memory was given back.
        self._longest = {"young": 0, "again": 0}
        # Runs of emptiness are counted by steps: one goes on if the node is reported again in the step that forgot it.
        self._emptied: dict[int, int] = {}
        # Names that nodes brought and no machine publishes, by the cluster that reported them first.
        self._named: dict[str, str] = {}

    @property
    def s(self) -> Sessions:
        return self._sessions.v

    @property
    def said(self) -> Said:
        return self._said.v

    @property
    def seen(self) -> Seen:
        return self._seen.v

    @property
    def heard(self) -> bool:
        """Whether any cluster ever reported: nothing else of this room is to be looked at before."""
        return self._heard

    # ---- in a step -------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """After `Fleet.apply`, and only then: forgets reports of machines that left, and lists what is under way."""
        if self._heard:
            changed = self.fleet.changed
            self._fit(0, min(len(changed), int(self.r.meta[ROWS])))
            follow(
                self.r, self.s, self.seen, self.said, self.loads.refs, self.fleet.v, self.catalog.shape_offer, changed,
                len(changed),
            )  # fmt: skip

    def know(self, clusters: NDArray[np.int64]) -> None:
        """Clusters that had sent a roll-up before anybody reported: until then nothing here was told."""
        self._sessions.cover(int(clusters.max(initial=-1)) + 1)
        self.s.known[clusters] = 1

    def take_over(
        self, batch: DemandBatch, outcomes: Mapping[str, RollupOutcome], now: int, rejected: dict[str, int]
    ) -> None:
        """What a demand batch says about sessions and nodes, in the order of P3."""
        if not self._heard and (batch.reports or any(each.counted is not None for each in batch.rollups)):
            self._begin()
        for name in batch.forgotten:
            self._forget(name)
        for name in batch.streams:
            cluster = self._cluster(name)
            self._sessions.begin(cluster)
            self._forget_reports(cluster)
        for rollup in batch.rollups:
            cluster = self._cluster(rollup.cluster)
            if outcomes.get(rollup.cluster) == RollupOutcome.HELD:
                self._sessions.withheld(cluster)
            else:
                counted = rollup.counted
                self._sessions.applied(cluster, None if counted is None else counted.mirror_version, now)
        for name, version in batch.confirmed:
            if name in self.fleet.cluster_index:
                self._sessions.confirmed(self._cluster(name), version, now)
        for reports in batch.reports:
            self._receive(reports, now, rejected)
        for slot, since in self._emptied.items():
            row = self.row(slot)
            if row >= 0 and self.r.place[row] >= 0:
                self.r.empty_since[row] = since
        self._emptied.clear()

    def settle(self) -> None:
        """Last of all inputs: lists what is young and drops from the list what is not."""
        if not self._heard:
            return
        self._sessions.cover(len(self.fleet.clusters))
        self._fit(0)
        if self._sessions.turned:
            turned = np.zeros(max(1, len(self.fleet.clusters)), np.uint8)
            turned[list(self._sessions.turned)] = 1
            look_again(self.r, self.fleet.v, int(self.fleet.ids.v.meta[USED]), turned)
            self._sessions.turned.clear()
        settle_young(self.r, self.s, self.fleet.v)
        self._give_back_lists()

    def _give_back_lists(self) -> None:
        """When all nodes are new, all of them are listed."""
        for name in ("young", "again"):
            listed = int(self.r.meta[_LISTS[name]])
            column = given_back(getattr(self.r, name), self._longest[name], listed)
            self._longest[name] = listed if column is not getattr(self.r, name) else max(self._longest[name], listed)
            self.r = self.r._replace(**{name: column})

    # ---- for readers in Python -------------------------------------------------------------------------------------

    def load(self, row: int) -> Load:
        return self.loads.table[int(self.r.load[row])]

    def tokens(self, row: int) -> frozenset[str]:
        return self.loads.token_sets[int(self.loads.tokens_of[self.r.load[row]])]

    def sees(self, slot: int) -> bool:
        """Whether the last roll-up of the machine's cluster already counts on it (P5)."""
        row = self.row(slot)
        return row >= 0 and bool(is_seen_row(self.r, self.s, self.fleet.v, row))

    def row(self, slot: int) -> int:
        """The row of a machine's report in force, -1 without."""
        return int(self.r.row_of[slot]) - 1 if slot < len(self.r.row_of) else -1

    def rows(self, cluster: int) -> Iterator[int]:
        """Rows of a cluster's reports, in no order that decides anything."""
        row = int(self.s.head[cluster]) if cluster < len(self.s.head) else -1
        while row >= 0:
            yield row
            row = int(self.r.next[row])

    @property
    def loose(self) -> NDArray[np.int32]:
        """Rows of nodes that are ready, and empty or closing."""
        return self.r.loose[: int(self.r.meta[LOOSE])]

    @property
    def young(self) -> NDArray[np.int32]:
        """Slots of machines on their way to reporting clusters, and Creating ones that name none (P12)."""
        return self.r.young[: int(self.r.meta[YOUNG])]

    def smallest(self, cluster: int, offer: int, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The amounts, not above the smallest that the cluster's nodes of this kind say they have (P8)."""
        lowered = amounts.copy()
        smallest(self.said, cluster, offer, lowered)
        return lowered

    # ---- turnover --------------------------------------------------------------------------------------------------

    def clusters_in_use(self) -> NDArray[np.int64]:
        """Those about which sessions know anything."""
        known = self._sessions.heard_of()
        return known[known < len(self.fleet.clusters)]

    def resources_in_use(self) -> NDArray[np.int64]:
        """Columns of the resources that reports name."""
        if not self._heard:
            return np.zeros(0, np.int64)
        r = self.r
        live = r.slot[: int(r.meta[ROWS])] >= 0
        used = np.nonzero(r.used[: int(r.meta[ROWS])][live].max(axis=0, initial=0))[0]
        both = np.union1d(used, self._said.columns_in_use())
        return both[both < len(self.catalog.resources)]

    def renumber(
        self,
        catalog: Catalog,
        clusters: NDArray[np.int32],
        kept_clusters: NDArray[np.int64],
        resources: NDArray[np.int64],
    ) -> None:
        """Goes over to another catalog, after the fleet, given new numbers by old ones."""
        if self._heard:
            self._fit(0)
        old, self.catalog = self.catalog, catalog
        offers = np.array([catalog.offer_index.get(offer, 0) for offer in old.offers] or [0], np.int32)
        self._sessions.cover(int(kept_clusters.max(initial=-1)) + 1)
        self._sessions.renumber(kept_clusters)
        if not self._heard:
            return
        self._said.renumber(clusters, offers, resources)
        r = self.r
        r.cluster[:] = clusters[r.cluster]
        self._seen.restart(len(self.s.head), len(resources))
        width = max(1, len(resources))
        used = np.ascontiguousarray(r.used[:, resources]) if len(resources) else np.zeros((len(r.used), width), "i8")
        self.r = r._replace(used=used)

    def validate(self) -> None:
        """Every report belongs to a bound machine of its cluster, chains and lists have each once, counts are right."""
        r, v = self.r, self.fleet.v
        live = np.nonzero(r.slot[: int(r.meta[ROWS])] >= 0)[0].tolist()
        chained = [row for cluster in range(len(self.fleet.clusters)) for row in self.rows(cluster)]
        assert sorted(chained) == live, "chains of reports are not the reports there are"
        for row in live:
            slot = int(r.slot[row])
            assert int(r.row_of[slot]) == row + 1, f"the report of slot {slot} is not found again"
            assert int(v.cluster[slot]) == int(r.cluster[row]), f"slot {slot} is reported by another cluster"
            assert int(v.state[slot]) in (4, 5, 6), f"slot {slot} is reported in state {int(v.state[slot])}"
            loose = bool(r.flags[row] & 1) and (bool(r.flags[row] & 2) or bool(r.closing[row]))
            assert loose == (int(r.place[row]) >= 0), f"row {row} is listed as loose and is not, or the other way"
        loads = np.bincount(r.load[live], minlength=len(self.loads.refs)) if live else 0
        assert (self.loads.refs == loads).all(), "loads are not counted by their reports"
        said = np.bincount([n for n in r.said[live].tolist() if n >= 0], minlength=len(self.said.count)) if live else 0
        assert (self.said.count == said).all(), "what nodes have is not counted by their reports"
        self._validate_seen(np.array(live, np.int64))

    def _validate_seen(self, live: NDArray[np.int64]) -> None:
        """Sums are those of the reports counted in them; every other one that is seen is to be looked at."""
        r, seen = self.r, self.seen
        counted = (r.flags[live] & COUNTED) != 0
        listed = set(r.again[: int(r.meta[AGAINS])].tolist())
        for row in live[~counted].tolist():
            waits = row in listed or bool(self.s.recount[r.cluster[row]])
            assert waits or not is_seen_row(r, self.s, self.fleet.v, row), f"row {row} is seen and not counted"
        for cluster in np.nonzero(self.s.recount[: len(self.fleet.clusters)] == 0)[0].tolist():
            mine = live[counted & (r.cluster[live] == cluster)]
            idle = mine[(r.flags[mine] & (EMPTY | REPORTED_USED)) == 0]
            small = np.where(r.used[mine] > LARGE, 0, r.used[mine])
            assert int(seen.every[cluster]) == int(r.price[mine].sum()), f"cluster {cluster} costs another sum"
            assert int(seen.idle[cluster]) == int(r.price[idle].sum()), f"idle nodes of {cluster} cost another sum"
            assert (seen.used[cluster] == small.sum(axis=0)).all(), f"nodes of cluster {cluster} use another sum"
            large = int((r.used[mine] > LARGE).any(axis=1).sum())
            assert int(seen.large[cluster]) == large, f"cluster {cluster} has another number of large nodes"

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Somebody reports for the first time: columns by slot are made, and everything under way is listed."""
        self._heard = True
        self._fit(0)
        look_again(
            self.r, self.fleet.v, int(self.fleet.ids.v.meta[USED]), np.ones(max(1, len(self.fleet.clusters)), np.uint8)
        )

    def _cluster(self, name: str) -> int:
        number = self.fleet.intern_cluster(name)
        self._sessions.cover(number + 1)
        return number

    def _forget(self, name: str) -> None:
        number = self.fleet.cluster_index.get(name)
        if number is not None and number < len(self.s.head):
            self._forget_reports(number)
            self._sessions.forget(number)

    def _forget_reports(self, cluster: int) -> None:
        if self._heard:
            self._fit(0)
            r, loose = self.r, self.loose
            mine = loose[(r.cluster[loose] == cluster) & (r.empty_since[loose] != NEVER)]
            self._emptied.update(zip(r.slot[mine].tolist(), r.empty_since[mine].tolist(), strict=True))
            forget_reports(self.r, self.s, self.seen, self.said, self.loads.refs, cluster)

    def _receive(self, batch: NodeBatch, now: int, rejected: dict[str, int]) -> None:
        if not len(batch):
            return
        columns, used, allocatable = self._columns(batch)
        cluster = self._cluster(batch.cluster)
        loads = self.loads.number(batch.loads)
        self._fit(len(batch))
        told = Told(
            arena=owned(batch.ids.arena, UINT8),
            offsets=owned(batch.ids.offsets, INT64),
            ready=_flags(batch.ready),
            empty=_flags(batch.empty),
            removable=_flags(batch.removable),
            pinned=_flags(batch.pinned),
            priority=owned(batch.max_pod_priority, INT32),
            used=owned(used, INT64),
            allocatable=owned(allocatable, INT64),
            reclamation=owned(batch.reclamation_dollars, FLOAT64),
            interruption=owned(batch.interruption_dollars, FLOAT64),
            closing=owned(batch.closing_since, INT64),
            version=owned(batch.mirror_version, INT64),
            load=owned(batch.load, INT32),
            columns=columns,
            loads=loads,
        )
        bad = receive(
            self.r, self.s, self.seen, self.said, self.loads.refs, self.fleet.v, self.catalog.shape_offer,
            self.fleet.ids.v, told, cluster, now,
        )  # fmt: skip
        if bad:
            rejected["node"] = rejected.get("node", 0) + bad

    def _columns(self, batch: NodeBatch) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Columns of what a batch's nodes use and have. Names that no machine publishes get a column as well, so many
        of them; what is used of the others counts in the odd one, and what there is of them is left out."""
        catalog = self.catalog
        for name in batch.resources:
            if catalog.resource(name) >= 0 or name in catalog.published:
                continue
            mine = sum(cluster == batch.cluster for cluster in self._named.values())
            if mine < NAMES_OF_CLUSTER and len(self._named) < NAMES_OF_ALL:
                self._named[name] = batch.cluster
        self._cover(tuple(name for name in batch.resources if name in catalog.published or name in self._named))
        columns = np.array([catalog.resource(name) for name in batch.resources], np.int64)
        odd = columns < 0
        used, allocatable = batch.used, batch.allocatable
        if odd.any():
            self._cover((ODD,))
            columns = np.array([catalog.resource(name) for name in batch.resources], np.int64)
            extra = used[:, odd]
            together = np.minimum(extra, MAX_NEED_UNITS).astype(np.float64).sum(axis=1)
            summed = np.minimum(together, float(MAX_NEED_UNITS)).astype(np.int64)
            # Out of range here as it would be in a column of its own.
            bad = ((extra < 0) | (extra > MAX_NEED_UNITS) | (allocatable[:, odd] < 0)).any(axis=1)
            summed[bad] = -1
            used = np.column_stack((used[:, ~odd], summed))
            allocatable = np.column_stack((allocatable[:, ~odd], np.zeros(len(batch), np.int64)))
            columns = np.append(columns[~odd], catalog.resource(ODD))
        return columns, used, allocatable

    def _fit(self, reports: int, vectors: int = 0) -> None:
        """Room for so many more reports and vectors, for every slot there is and every resource."""
        r, slots, width = self.r, self.fleet.ids.capacity, self.catalog.width
        rows = room(len(r.slot), int(r.meta[ROWS]) - int(r.meta[FREE]) + reports)
        if rows > len(r.slot) or slots > len(r.row_of):
            size = {name: slots if name in _BY_SLOT else rows for name in r._asdict() if name != "meta"}
            # What is behind the end of a list was never touched, and is not to be now.
            ends = {name: int(r.meta[place]) for name, place in _LISTS.items()}
            r = r._replace(**{name: grown(getattr(r, name), size[name], used=ends.get(name)) for name in size})
        self.r = r._replace(used=widened(r.used, width))
        self._said.fit(reports + vectors, width)
        self._seen.fit(len(self.s.head), width)


def _flags(column: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return owned(np.asarray(column, np.bool_).view(np.uint8), UINT8)
