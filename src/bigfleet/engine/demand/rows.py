"""Layout of demand: clusters, their rows, and the entries and parts derived from them.

A cluster owns one region of row, entry and part columns alike: it never has more entries or parts than rows.
Rows are kept by (profile, group, smallest unit), entries by unit and in the order in which they are served; `seq` is
their place in the order of the whole cluster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.columns import grown, made, room, widened
from bigfleet.engine.kernels.jit import I4, I4M, I8, I8M, U1
from bigfleet.engine.kernels.pool import PoolStore
from bigfleet.engine.kernels.view import View, view

PLAIN, SPREAD, GANG = 0, 1, 2
NO_TIME = -(2**63)
# Bits of `Entries.flags`. SETTLED: credit from its unit's bound cells satisfied it, and nothing about it changed since.
FOLDED, SATISFIABLE, PARKED, SETTLED = 1, 2, 4, 8


@view
class Clusters(View):
    """One row per cluster. `fresh`: rows changed; `dirty`: must be credited anew; `cons`: signature of its rows'
    constraint sets; `counted`: its rows are units, of which `lacking` have no room; `short`: some
    of them had a shortfall."""

    start: I8
    size: I4
    old_start: I8
    old_size: I4
    rows: I4
    entries: I4
    parts: I4
    gangs: I4
    ready: U1
    connected: U1
    fresh: U1
    dirty: U1
    cons: I8
    rank: I4
    text: I4
    overhead: I8M
    tokens: I8
    refilled: I8
    sighted: U1
    counted: U1
    lacking: I8
    short: U1


@view
class Rows(View):
    """The demand in force, merged. `part` is where a row's amounts are served from, in clusters where nothing folds.
    `count`, `running`, `stranded` and `lacking` (what of stranded is believed while a roll-up is held) are units."""

    prof: I4
    group: I4
    arrival: I8
    agg: I8M
    unit: I8M
    fold: U1
    part: I4
    count: I8
    running: I8
    stranded: I8
    lacking: I8


@view
class Entries(View):
    """What is served: plain and spread rows, gangs. `claimed` counts credit, `late` what came out of cluster order."""

    prof: I4
    group: I4
    cluster: I4
    unit: I4
    seq: I4
    kind: U1
    flags: U1
    part: I4
    parts: I4
    arrival: I8
    parked_since: I8
    claimed: I4
    late: I4
    boots: I4
    provisions: I4
    domain: I4
    list: I4
    log: I8
    logged: I4
    candidate: I4M
    coverage: I4M


@view
class Parts(View):
    """Amounts of an entry: one part, or one per row of a gang. `credit` is what credit left, `left` what remained
    after Assign, `rest` after Preempt; the last two are valid for entries that credit did not satisfy. Where nothing
    folds `row` is the row a part is."""

    agg: I8M
    unit: I8M
    credit: I8M
    left: I8M
    rest: I8M
    since: I8
    row: I4


CANDIDATES = 6


class DemandStore:
    """Owns the columns of demand."""

    def __init__(self) -> None:
        self.regions = PoolStore()
        self.c = made(Clusters, 16)
        self.rows = made(Rows, 64)
        self.entries = made(Entries, 64, candidate=CANDIDATES, coverage=CANDIDATES)
        self.parts = made(Parts, 64)

    def reserve_clusters(self, count: int) -> None:
        size = room(len(self.c.start), count)
        if size > len(self.c.start):
            self.c = Clusters(*(grown(column, size) for column in self.c))

    def reserve_rows(self, elements: int) -> None:
        """Room for regions of so many rows in all."""
        self.regions.reserve(elements)
        size = len(self.regions.v.data)
        if size > len(self.rows.prof):
            self.rows = Rows(*(grown(column, size) for column in self.rows))
            self.entries = Entries(*(grown(column, size) for column in self.entries))
            self.parts = Parts(*(grown(column, size) for column in self.parts))

    def renumber(
        self,
        profiles: NDArray[np.int32],
        groups: NDArray[np.int32],
        clusters: NDArray[np.int32],
        kept_clusters: NDArray[np.int64],
        resources: NDArray[np.int64],
    ) -> None:
        """Puts new numbers for old ones, and keeps some clusters and resources only; entries must be derived anew."""
        rows, e, count = self.rows, self.entries, len(kept_clusters)
        rows.prof[:], rows.group[:] = profiles[rows.prof], groups[rows.group]
        e.prof[:], e.group[:], e.cluster[:] = profiles[e.prof], groups[e.group], clusters[e.cluster]
        c = made(Clusters, room(16, count), overhead=self.c.overhead.shape[1])
        for name, column in c._asdict().items():
            column[:count] = getattr(self.c, name)[kept_clusters]
        c.fresh[:count] = 1
        self.c = c._replace(overhead=_picked(c.overhead, resources))
        self.rows = rows._replace(agg=_picked(rows.agg, resources), unit=_picked(rows.unit, resources))
        p = self.parts
        self.parts = p._replace(
            agg=_picked(p.agg, resources), unit=_picked(p.unit, resources), credit=_picked(p.credit, resources),
            left=_picked(p.left, resources), rest=_picked(p.rest, resources),
        )  # fmt: skip

    def widen(self, width: int) -> None:
        """More resources: every amounts matrix gets columns."""
        self.c = self.c._replace(overhead=widened(self.c.overhead, width))
        self.rows = self.rows._replace(agg=widened(self.rows.agg, width), unit=widened(self.rows.unit, width))
        p = self.parts
        self.parts = p._replace(
            agg=widened(p.agg, width), unit=widened(p.unit, width), credit=widened(p.credit, width),
            left=widened(p.left, width), rest=widened(p.rest, width),
        )  # fmt: skip


def _picked(amounts: NDArray[np.int64], resources: NDArray[np.int64]) -> NDArray[np.int64]:
    """Some columns of an amounts matrix, which has one at least."""
    if len(resources) == amounts.shape[1]:
        return amounts
    return np.ascontiguousarray(amounts[:, resources]) if len(resources) else np.zeros((len(amounts), 1), np.int64)
