"""Giving back, the front: what a step calls, in order (`docs/engine.md` P33 to P39).

`begin` when all inputs are known, `offered` before Assign, `reclaims` and `consolidate` after Preempt. Decides for
reporting clusters only. Remembers nothing but what nodes' columns keep: since when nodes are empty, the last pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions
from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.catalog.published import Published, PublishedStore
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import CONFIGURED, IDLE
from bigfleet.engine.fleet.fleet import NEVER as NO_TIMER
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.giving_back.consolidation import Consolidation, Moved, Passed
from bigfleet.engine.giving_back.empty import (
    CLOSING,
    COUNT,
    NEXT,
    TAKABLE,
    EmptyRules,
    list_loose,
    never_ready,
    note_empty,
    order_by_id,
    order_by_price,
    overdue,
)
from bigfleet.engine.giving_back.free import FreePool, configured_of
from bigfleet.engine.kernels.jit import U1
from bigfleet.engine.nodes.nodes import Nodes
from bigfleet.engine.nodes.reports import BUSY, IN_MOVE, REST_CLOSE, REST_DRAIN, STAYS
from bigfleet.engine.nodes.sessions import GIVES, NEVER, judge_sessions
from bigfleet.engine.nodes.standing import Standing
from bigfleet.engine.policy import Placement
from bigfleet.engine.results import Reason

_NONE = np.zeros(0, np.int32)


class Goings(NamedTuple):
    """Machines of one cluster that go back, in order; all but those that never came up may be refused."""

    cluster: int
    slots: list[int]
    reasons: list[Reason]


class GivingBack:
    """What reporting clusters give back."""

    def __init__(self) -> None:
        self._published = PublishedStore()
        self._marked: list[int] = []
        self._out = np.zeros(8, np.int64)
        # By cluster what `judge_sessions` says of it in this step.
        self.sessions = np.zeros(0, np.uint8)
        # The first instant at which any of this changes without news.
        self.next = NO_TIMER

    # ---- before Assign ---------------------------------------------------------------------------------------------

    def begin(
        self, nodes: Nodes, fleet: Fleet, standing: Standing, connected: U1, placement: Placement, now: int
    ) -> None:
        """Finds out who may give back, marks what rests or moves, and notes since when nodes have been empty."""
        self.sessions = np.zeros(len(fleet.clusters), np.uint8)
        judge_sessions(nodes.s, connected, now, placement.fresh_ns, placement.mode_hold_ns, self.sessions)
        r = nodes.r
        r.marks[self._marked] = 0
        self._marked = []
        for slots, mark in (
            (standing.drain_rests, REST_DRAIN),
            (standing.close_rests, REST_CLOSE),
            (standing.moving, IN_MOVE),
        ):
            self._mark(nodes, slots, mark)
        note_empty(r, nodes.s, connected, fleet.v, _rules(placement, now))

    def published(self, catalog: Catalog, placement: Placement) -> Published:
        """What classes publish; classes must be complete."""
        return self._published.fit(catalog, placement)

    def offered(
        self, nodes: Nodes, fleet: Fleet, catalog: Catalog, conditions: Conditions, placement: Placement, now: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Machines tier (a) may reopen and tier (d) may take (P20), in no order."""
        loose = len(nodes.loose)
        if not loose:
            return _NONE, _NONE
        closing, takable = np.empty(loose, np.int32), np.empty(loose, np.int32)
        list_loose(
            nodes.r, nodes.s, fleet.v, fleet.cells.v, self.published(catalog, placement), now, closing, takable,
            self._out,
        )  # fmt: skip
        empty = takable[: int(self._out[TAKABLE])] if conditions.reclaim else _NONE
        return closing[: int(self._out[CLOSING])], empty

    # ---- after Preempt ---------------------------------------------------------------------------------------------

    def reclaims(
        self,
        w: World,
        catalog: Catalog,
        fleet: Fleet,
        nodes: Nodes,
        standing: Standing,
        busy: set[int],
        doubted: set[int],
        placement: Placement,
        now: int,
    ) -> dict[int, Goings]:
        """What each reporting cluster gives back, before the cap (P34). `busy` are victims and machines that were taken
        or reopened in this step; what `doubted` clusters call empty stays: believed again, they would buy it back."""
        self._mark(nodes, busy, BUSY)
        rules, out, v = _rules(placement, now), self._out, fleet.v
        going: dict[int, Goings] = {}
        self.next = _sessions_change(nodes, placement, now)
        young = np.empty(len(nodes.young) + 1, np.int32)
        never_ready(nodes.r, nodes.s, w.c.connected, v, rules, young, out)
        count, self.next = int(out[COUNT]), min(self.next, int(out[NEXT]))
        if count:
            order_by_id(w.ids, young, count)
            dead = [slot for slot in young[:count].tolist() if slot not in busy and slot not in standing.moving]
            _add(going, fleet, dead, Reason.NEVER_READY)
        loose = np.empty(len(nodes.loose) + 1, np.int32)
        overdue(nodes.r, v, fleet.cells.v, self.published(catalog, placement), rules, loose, out)
        count, self.next = int(out[COUNT]), min(self.next, int(out[NEXT]))
        if count:
            empty = np.ascontiguousarray(nodes.r.slot[loose[:count]])
            if doubted:
                empty = empty[~np.isin(v.cluster[empty], list(doubted))]
            order_by_price(w.ids, v, fleet.cells.v, w.k, empty, len(empty))
            _add(going, fleet, empty.tolist(), Reason.EXCESS)
        if standing.open:
            old = self._giving_way(w, fleet, nodes, standing, busy)
            _add(going, fleet, old, Reason.MOVE)
        return going

    def _giving_way(self, w: World, fleet: Fleet, nodes: Nodes, standing: Standing, busy: set[int]) -> list[int]:
        """Old machines of open moves whose new one the cluster has seen (P38), in id order."""
        found: list[int] = []
        for each in standing.open:
            if not self.sessions[each.cluster] & GIVES:
                continue
            if each.new >= 0 and not nodes.sees(each.new):
                continue
            for slot in each.old:
                row = nodes.row(slot)
                pinned = row >= 0 and bool(nodes.r.flags[row] & STAYS)
                if fleet.v.state[slot] == CONFIGURED and slot not in busy and not pinned:
                    found.append(slot)
        ordered = np.array(found, np.int32)
        order_by_id(w.ids, ordered, len(ordered))
        return ordered.tolist()

    def consolidate(
        self,
        w: World,
        catalog: Catalog,
        fleet: Fleet,
        nodes: Nodes,
        standing: Standing,
        by_name: Sequence[int],
        dropped: NDArray[np.int32],
        conditions: Conditions,
        placement: Placement,
        now: int,
    ) -> list[Passed]:
        """Passes of the clusters that have one now, in text order. New machines are claimed in their cells; `dropped`
        are free machines in the midst of claimed ones. Call after `reclaims`."""
        if not placement.consolidate or not conditions.reclaim:
            return []
        due = self._due(w, nodes, by_name, placement, now)
        if not due:
            return []
        published = self.published(catalog, placement)
        pool = FreePool(w, fleet, published, dropped)
        work = Consolidation(w, catalog, fleet, nodes, published, pool.blocks, pool.take, placement, now)
        return [
            work.run(
                cluster,
                acquire=conditions.acquire,
                configured=configured_of(w, cluster),
                recent=standing.recent.get(cluster, 0),
                evictions=standing.evictions.get(cluster, 0),
                shut=[offer for whose, offer in standing.backoffs if whose == cluster],
            )
            for cluster in due
        ]

    def _due(self, w: World, nodes: Nodes, by_name: Sequence[int], placement: Placement, now: int) -> list[int]:
        """Clusters that have a pass now (P35), in text order."""
        count = len(by_name)
        may = ((self.sessions & GIVES) != 0) & (w.c.lacking[:count] == 0)
        last = nodes.s.passed_at[:count]
        # NEVER is so long ago that an age would not fit.
        rested = (last == NEVER) | (now - np.maximum(last, 0) >= placement.pass_ns)
        if may.any():
            again = np.where(rested, now, last)[may].min() + max(1, placement.pass_ns)
            self.next = min(self.next, int(again))
        return [cluster for cluster in by_name if may[cluster] and rested[cluster]]

    def _mark(self, nodes: Nodes, slots: set[int], mark: int) -> None:
        for slot in slots:
            row = nodes.row(slot)
            if row >= 0:
                nodes.r.marks[row] |= mark
                self._marked.append(row)


def begun(standing: Standing, fleet: Fleet, conditions: Conditions, now: int) -> list[tuple[int, Moved]]:
    """Open moves whose new machine is Idle and free to be bound, with their clusters, by id of the new one (P38)."""
    if not conditions.acquire:
        return []
    v = fleet.v
    ready = [
        (each.move.new.encode(), each.cluster, Moved(each.old, each.new))
        for each in standing.open
        if each.new >= 0 and v.state[each.new] == IDLE and now >= v.not_before[each.new]
    ]
    return [(cluster, moved) for _, cluster, moved in sorted(ready)]


def aborted(standing: Standing, victims: set[int]) -> list[str]:
    """First old machines of moves that cannot go on, also of those that lost an old one to a preemptor."""
    broken = {each.move.old[0] for each in standing.open if victims & set(each.old)}
    return sorted({*standing.aborted, *broken}, key=str.encode)


def _rules(placement: Placement, now: int) -> EmptyRules:
    return EmptyRules(
        now, placement.fresh_ns, placement.mode_hold_ns, placement.empty_min_ns, placement.empty_max_ns,
        placement.closed_empty_ns,
    )  # fmt: skip


def _sessions_change(nodes: Nodes, placement: Placement, now: int) -> int:
    """When the first cluster is not fresh any more, or out of its mode hold."""
    s = nodes.s
    heard = s.streamed != 0
    stale = s.seen_at[heard & (s.reporting != 0)] + placement.fresh_ns + 1
    held = s.changed_at[heard & (s.changed_at != NEVER)] + placement.mode_hold_ns
    later = np.concatenate((stale[stale > now], held[held > now]))
    return int(later.min()) if len(later) else NO_TIMER


def _add(going: dict[int, Goings], fleet: Fleet, slots: list[int], reason: Reason) -> None:
    for slot in slots:
        cluster = int(fleet.v.cluster[slot])
        mine = going.setdefault(cluster, Goings(cluster, [], []))
        mine.slots.append(slot)
        mine.reasons.append(reason)
