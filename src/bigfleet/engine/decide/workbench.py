"""The workbench: what steps work with, and the log of credit, which one step leaves to the next.

Owns the scratch columns and how they grow; kernels fill them and stop when one is full. Knows no rule. A workbench is
worth nothing once cells and units were derived anew under other numbers: a new one takes its place.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.decide.alike import write_log
from bigfleet.engine.decide.logbook import compact, logged
from bigfleet.engine.decide.victims import BLOCKS, MAX_LISTS, TAKES, Ranked, Victims, more_takes
from bigfleet.engine.decide.world import (
    BUCKETS,
    Acquired,
    Bindings,
    Free,
    Lists,
    Log,
    Pairs,
    Scratch,
    Universe,
    World,
)
from bigfleet.engine.demand.rows import DemandStore, Entries
from bigfleet.engine.fleet.cells import LONGEST, OWNER_CREATING, OWNER_IDLE, OWNER_SPECULATIVE
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.kernels.columns import grown, made, room
from bigfleet.engine.kernels.view import kept


class Workbench:
    """Scratch of the running step."""

    def __init__(self) -> None:
        self.lists = made(Lists, 64)
        self.log = made(Log, 64)
        self.late = made(Log, 64)
        self.got = made(Acquired, 64)
        self.free = made(Free, BUCKETS, speculative=BUCKETS, order=16)
        self.free.idle[:] = -1
        self.free.speculative[:] = -1
        self.uni = made(Universe, 64)
        self.tmp = made(Scratch, 64)
        self.victims = made(Victims, 16)
        self.ranked = made(Ranked, MAX_LISTS)
        # Clusters or units that a stage has to look at.
        self.which = np.zeros(16, np.int32)
        self._seen: World | None = None

    def fit(self, catalog: Catalog, fleet: Fleet, entries: Entries) -> None:
        """Makes room for the step that begins."""
        owners, cons = fleet.cells.owners, len(catalog.match)
        lists, free, tmp = self.lists, self.free, self.tmp
        if cons > len(lists.con_list):
            self.lists = lists._replace(con_list=grown(lists.con_list, cons), con_mark=grown(lists.con_mark, cons))
        speculative = int(owners.used[OWNER_SPECULATIVE])
        if cons > len(free.idle) or speculative > min(len(free.cost), free.order.shape[1]):
            self.free = free._replace(
                idle=grown(free.idle, cons, -1),
                speculative=grown(free.speculative, cons, -1),
                order=free.order
                if speculative <= free.order.shape[1]
                else np.zeros((BUCKETS, room(16, speculative)), np.int32),
                cost=grown(free.cost, speculative),
            )
        longest = int(owners.meta[LONGEST])
        size = 2 * longest + int(owners.used[OWNER_CREATING]) + 16
        if size > len(tmp.cell) or len(tmp.want) != catalog.width:
            size = room(len(tmp.cell), size)
            self.tmp = tmp._replace(
                cell=grown(tmp.cell, size), dom=grown(tmp.dom, size), next=grown(tmp.next, size), n=grown(tmp.n, size),
                want=tmp.want if len(tmp.want) == catalog.width else np.zeros(catalog.width, np.int64),
            )  # fmt: skip
        self.which = grown(self.which, max(len(fleet.clusters), len(owners.used)))
        self._reserve_log(fleet, entries)

    def world(self, catalog: Catalog, fleet: Fleet, store: DemandStore) -> World:
        """All stores and the scratch as they are now; the world before if nothing was replaced since."""
        cells, stamps, before = fleet.cells, catalog.stamps, self._seen
        self._seen = kept(
            before, World,
            store.c, store.rows, store.entries, store.parts, catalog.p, catalog.classes, catalog.match, cells.v,
            cells.owners, fleet.units.v, cells.lists.v, fleet.ids.v, catalog.texts.v, catalog.domains,
            kept(
                before.pairs if before is not None else None, Pairs,
                stamps.pair_table, stamps.pair_fingerprint, stamps.pair_group, stamps.pair_head,
            ),
            kept(
                before.bind if before is not None else None, Bindings,
                stamps.binding_priority, stamps.binding_interruption, stamps.binding_reclamation,
            ),
            self.lists, self.log, self.late, self.got, self.free, self.uni, self.tmp,
        )  # fmt: skip
        return self._seen

    def _reserve_log(self, fleet: Fleet, entries: Entries) -> None:
        """Keeps the credit log from filling up with what clusters logged before they were credited again."""
        if int(self.log.meta[0]) * 4 < len(self.log.cell) * 3:
            return
        clusters, owners, units = len(fleet.clusters), fleet.cells.owners, fleet.units.v
        alive = logged(owners, units, clusters)
        size = 64 + 2 * alive
        entry, cell, n = (np.empty(size, np.int32) for _ in range(3))
        fresh = Log(entry, cell, n, np.zeros(1, np.int64))
        compact(entries, owners, units, self.log, fresh, clusters)
        self.log = fresh

    def grow_credit(self, w: World, unit: int) -> World:
        cells = int(w.owners.used[unit])
        entries = int(w.owners.entries[unit])
        lists, log = self.lists, self.log
        creating = int(w.owners.used[OWNER_CREATING])
        chained = int(lists.meta[0]) + (cells + 1) * max(1, min(entries, len(w.match)))
        self.lists = lists._replace(
            cell=grown(lists.cell, room(len(lists.cell), chained)),
            next=grown(lists.next, room(len(lists.next), chained)),
            head=grown(lists.head, room(len(lists.head), int(lists.meta[1]) + entries + 1)),
        )
        size = room(
            len(log.cell), int(log.meta[0]) + (cells + creating + 1) * max(1, int(w.c.parts[w.owners.cluster[unit]]))
        )
        self.log = log._replace(entry=grown(log.entry, size), cell=grown(log.cell, size), n=grown(log.n, size))
        return w._replace(lists=self.lists, log=self.log)

    def written(self, w: World, fleet: Fleet) -> World:
        """The world with all credit in its log, also that of units which were credited by counting."""
        while (unit := write_log(w, fleet.cells.members.v, len(fleet.clusters))) >= 0:
            w = self.grow_credit(w, unit)
        return w

    def grow_service(self, w: World, entry: int) -> World:
        owners = w.owners
        free = int(owners.used[OWNER_IDLE]) + int(owners.used[OWNER_SPECULATIVE])
        lists, late, got = self.lists, self.late, self.got
        chained = room(len(lists.cell), int(lists.meta[0]) + 2 * free + 16)
        self.lists = lists._replace(
            cell=grown(lists.cell, chained),
            next=grown(lists.next, chained),
            head=grown(lists.head, room(len(lists.head), int(lists.meta[1]) + 16)),
        )
        parts = int(w.e.parts[entry])
        owner = int(w.e.unit[entry])
        most = int(late.meta[0]) + (int(owners.used[owner]) + int(owners.used[OWNER_CREATING]) + 1) * parts
        size = room(len(late.cell), most)
        self.late = late._replace(entry=grown(late.entry, size), cell=grown(late.cell, size), n=grown(late.n, size))
        size = room(len(got.cell), int(got.meta[0]) + free * parts + 1024)
        self.got = got._replace(
            entry=grown(got.entry, size), cell=grown(got.cell, size), first=grown(got.first, size), n=grown(got.n, size)
        )
        self.free = self.free._replace(
            cons=grown(self.free.cons, room(len(self.free.cons), int(self.free.meta[0]) + 16))
        )
        w = self.grow_universe(w)
        return w._replace(lists=self.lists, late=self.late, got=self.got, free=self.free)

    def grow_universe(self, w: World) -> World:
        uni = self.uni
        size = room(len(uni.dom), int(uni.meta[0]) + len(w.dom.list) + 16)
        self.uni = uni._replace(dom=grown(uni.dom, size), machines=grown(uni.machines, size))
        return w._replace(uni=self.uni)

    def count_universe(self, w: World, pending: int) -> World:
        """Room to say where each pending entry's domains are."""
        if pending <= len(self.uni.first):
            return w
        self.uni = self.uni._replace(first=grown(self.uni.first, pending), n=grown(self.uni.n, pending))
        return w._replace(uni=self.uni)

    def grow_victims(self, blocks: int) -> None:
        v = self.victims
        if blocks > len(v.cell):
            size = room(len(v.cell), blocks)
            self.victims = Victims(
                *(column if name == "meta" else grown(column, size) for name, column in v._asdict().items())
            )

    def rank_anew(self, blocks: int) -> None:
        """Empty candidate lists with room for so many blocks."""
        r = self.ranked
        if blocks > len(r.block):
            self.ranked = r._replace(
                block=grown(r.block, room(len(r.block), blocks)), heap=grown(r.heap, room(len(r.heap), blocks))
            )
        self.ranked.meta[:] = 0

    def grow_takes(self, w: World, entry: int) -> World:
        v = self.victims
        most = int(v.meta[TAKES]) + int(v.meta[BLOCKS]) * int(w.e.parts[entry]) + 1024
        self.victims = more_takes(v, room(len(v.take_n), most))
        return self.grow_universe(w)
