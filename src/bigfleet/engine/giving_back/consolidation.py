"""Consolidation: one pass over a cluster closes nodes that carry too little for what they cost, and moves or deletes
those that have been closing for long (P35, P37, P39).

Kernels weigh nodes and look for other room; here is what is chosen of that, and in which order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.catalog.published import Published
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import CONFIGURED
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.giving_back.other_room import FreeBlocks, Options, find_rooms, rooms, weigh_moves
from bigfleet.engine.giving_back.weighing import (
    CLOSED,
    CLOSING,
    OPEN,
    WORD,
    Allowed,
    Weighed,
    WeighRules,
    below,
    weigh,
)
from bigfleet.engine.kernels.columns import made
from bigfleet.engine.nodes.nodes import Nodes
from bigfleet.engine.nodes.reports import REMOVABLE
from bigfleet.engine.policy import Placement
from bigfleet.model.resources import is_device

_HOUR = 3_600_000_000_000


class Moved(NamedTuple):
    """Old machines that give way to a new one (-1: to nothing), by slots."""

    old: tuple[int, ...]
    new: int


class Passed(NamedTuple):
    """What a pass over one cluster decided."""

    cluster: int
    moves: list[Moved]
    closes: list[int]


class Consolidation:
    """Passes of one step; `take(block)` claims the next machine of a free block."""

    def __init__(
        self,
        w: World,
        catalog: Catalog,
        fleet: Fleet,
        nodes: Nodes,
        published: Published,
        blocks: FreeBlocks,
        take: Callable[[int], int],
        placement: Placement,
        now: int,
    ) -> None:
        self._w, self._catalog, self._fleet, self._nodes = w, catalog, fleet, nodes
        self._published, self._blocks, self._take = published, blocks, take
        self._placement, self._now = placement, now
        self._pods = catalog.resource("pods")
        self._device = np.array([is_device(name) for name in catalog.resources] or [False], np.uint8)
        self._classes = self._priced()
        self._loads = nodes.loads.v
        self._mask_of = np.zeros(len(nodes.loads.refs), np.int32)
        self._looked_at = np.zeros(len(nodes.loads.refs), np.int32)
        self._passes = 0
        bought = (published.owned[: catalog.class_count] == 0) & (w.k.price[: catalog.class_count] > 0.0)
        serving = bool((w.k.count[: catalog.class_count][bought, CONFIGURED] > 0).any())
        self._rules = WeighRules(now, placement.settle_ns, placement.closing_ns, self._pods, serving)

    def run(
        self, cluster: int, *, acquire: bool, configured: int, recent: int, evictions: int, shut: Sequence[int]
    ) -> Passed:
        """One pass. `configured` counts the cluster's machines, `recent` old ones of moves that began lately; offers
        that are `shut` are backed off for it."""
        nodes, w, placement = self._nodes, self._w, self._placement
        nodes.s.passed_at[cluster] = self._now
        size = max(1, int(nodes.s.reports[cluster]))
        allowed = self._allowed(cluster, size)
        weighed = _weighed(size)
        weigh(
            nodes.r, nodes.s, self._fleet.v, w.cells, w.k, self._published, self._loads, allowed, self._classes, w.ids,
            cluster, self._rules, weighed,
        )  # fmt: skip
        below(nodes.r, w.ids, weighed, placement.candidate_ratio, placement.candidates)
        passed = Passed(cluster, [], [])
        if not weighed.meta[OPEN] and not weighed.meta[CLOSED]:
            return passed
        rooms(w.k, nodes.said, w.c.overhead, cluster, self._blocks)
        hidden = np.isin(w.k.offer[self._blocks.cls], shut)
        left = self._blocks.left[hidden]
        self._blocks.left[hidden] = 0
        start = int(w.c.start[cluster])
        running = int(w.rows.running[start : start + int(w.c.rows[cluster])].sum())
        most = max(1, math.floor(placement.closing_fraction * configured))
        self._close(weighed, allowed, most, evictions + placement.evictable * running, passed)
        most = max(1, math.floor(placement.move_fraction * configured))
        lent = max(placement.lent_least, math.floor(placement.lent_share * running))
        self._move(weighed, allowed, most, recent, evictions, lent, acquire, passed)
        self._blocks.left[hidden] = left
        return passed

    def _close(self, weighed: Weighed, allowed: Allowed, most: int, evictable: float, passed: Passed) -> None:
        """Worst first: what is removable, and what would save enough elsewhere with those it would share that room
        with; nobody is counted on twice, and what can never be emptied stays open (P37)."""
        r, count, closing = self._nodes.r, int(weighed.meta[OPEN]), int(weighed.meta[CLOSING])
        options = self._find_rooms(weighed, allowed, weighed.open, count)
        chosen: dict[int, None] = {}
        for at, node in enumerate(weighed.open[:count].tolist()):
            group, block = options.old[at, : int(options.count[at])].tolist(), int(options.block[at])
            if r.flags[weighed.row[node]] & REMOVABLE:
                group, block = [node], -1
            elif block < 0 or not options.fraction[at] > self._placement.min_saving:
                continue
            charged = self._charged(weighed, group, block)
            if chosen.keys().isdisjoint(group) and (not charged or charged <= evictable):
                if not closing and not chosen:
                    most = max(most, len(group))
                chosen.update(dict.fromkeys(group))
        passed.closes.extend(r.slot[weighed.row[list(chosen)[: max(0, most - closing)]]].tolist())

    def _charged(self, weighed: Weighed, nodes: Sequence[int], block: int) -> int:
        """Pods of a move that count as evicted: none where the market changes. To one that lies idle and is paid for;
        and from what is not interrupted to what is, for whoever may stand there is interrupted at times anyway."""
        rows, k = weighed.row[nodes], self._w.k
        if block >= 0 and self._blocks.unpaid[block] != 0:
            return 0
        if block >= 0 and k.risk[self._blocks.cls[block]] > 0.0:
            classes = self._w.cells.cls[self._fleet.v.cell[self._nodes.r.slot[rows]]]
            if not (k.risk[classes] > 0.0).any():
                return 0
        return len(nodes) if self._pods < 0 else int(np.maximum(1, self._nodes.r.used[rows, self._pods]).sum())

    def _move(
        self,
        weighed: Weighed,
        allowed: Allowed,
        most: int,
        moving: int,
        evictions: int,
        lent: int,
        acquire: bool,
        passed: Passed,
    ) -> None:
        """The largest gain per evicted pod first, as far as evictions and moves allow (P39); a move that is the only
        one may be larger than the share: two nodes of thirty would never become one otherwise. For hostages evictions
        are lent."""
        r, w, count, placement = self._nodes.r, self._w, int(weighed.meta[CLOSED]), self._placement
        if moving >= most or not count:
            return
        options = (
            self._find_rooms(weighed, allowed, weighed.closed, count)
            if acquire
            else _options(count, placement.move_size)
        )
        weigh_moves(
            r, w.k, self._published, w.ids, weighed, weighed.closed, count, self._blocks, acquire,
            placement.min_saving, placement.payback_ns / _HOUR, self._pods, options,
        )  # fmt: skip
        gone: set[int] = set()
        for at in options.order[: int(options.meta[0])].tolist():
            if moving >= most:
                break
            old, block = options.old[at, : int(options.count[at])].tolist(), int(options.block[at])
            if (moving and moving + len(old) > most) or not gone.isdisjoint(old):
                continue
            charged = self._charged(weighed, old, block)
            if charged and charged > evictions + (lent if self._are_hostages(weighed, old) else 0):
                continue
            new = -1
            if block >= 0:
                new = self._take(block)
                if new < 0:
                    continue
            gone.update(old)
            evictions -= charged
            moving += len(old)
            passed.moves.append(Moved(tuple(r.slot[weighed.row[old]].tolist()), new))

    def _are_hostages(self, weighed: Weighed, nodes: Sequence[int]) -> bool:
        """Whether next to nothing is carried for what they cost: a few pods that hold a dear machine."""
        carried = cost = 0.0
        for node in nodes:
            carried += float(weighed.ratio[node] * weighed.cost[node])
            cost += float(weighed.cost[node])
        return carried < self._placement.hostage_ratio * cost

    def _find_rooms(self, weighed: Weighed, allowed: Allowed, nodes: NDArray[np.int32], count: int) -> Options:
        options = _options(count, self._placement.move_size)
        if count:
            find_rooms(
                self._nodes.r, self._w.k, self._published, self._loads, allowed, self._w.ids, weighed, nodes, count,
                self._blocks, self._placement.move_size, self._pods, self._device, options,
            )  # fmt: skip
        return options

    def _priced(self) -> NDArray[np.int32]:
        """Classes of the fleet with a price, cheapest room first, so that dear ones are dismissed early."""
        k, count = self._w.k, self._catalog.class_count
        found = np.nonzero((k.price[:count] > 0) & (k.count[:count, 1:].sum(axis=1) > 0))[0]
        column = self._catalog.resource("cpu")
        if column >= 0:
            found = found[np.argsort(k.price[found] / np.maximum(k.alloc[found, column], 1), kind="stable")]
        return found.astype(np.int32)

    def _allowed(self, cluster: int, size: int) -> Allowed:
        """What the cluster's rows in force say about the profiles its nodes carry."""
        w, catalog, loads = self._w, self._catalog, self._nodes.loads
        start, count = int(w.c.start[cluster]), int(w.c.rows[cluster])
        profiles = np.unique(w.rows.prof[start : start + count])
        bits_of = np.full(len(loads.prints) + 1, -1, np.int32)
        apart_of = np.zeros(len(loads.prints) + 1, np.uint8)
        numbers = np.array(
            loads.print_numbers(catalog.profiles[profile].fingerprint for profile in profiles.tolist()), np.int64
        )
        profiles, numbers = profiles[numbers >= 0], numbers[numbers >= 0]
        cons, places = np.unique(w.p.con[profiles], return_inverse=True)
        bits_of[numbers] = places
        apart_of[numbers] = (w.p.same[profiles] != -1) | (w.p.spread[profiles] != -1)
        self._passes += 1
        words = max(1, -(-catalog.class_count // WORD))
        return Allowed(
            bits_of=bits_of, apart_of=apart_of, bits=_packed(w.match[cons][:, : catalog.class_count], words),
            mask_of=self._mask_of, looked_at=self._looked_at, mask=np.zeros((size + 1, words), np.int64),
            apart=np.zeros(size + 1, np.uint8), meta=np.array([self._passes], np.int64),
        )  # fmt: skip


def _options(count: int, size: int) -> Options:
    return made(Options, max(1, count), old=size)


def _weighed(size: int) -> Weighed:
    return made(Weighed, size)._replace(meta=np.zeros(4, np.int64))


def _packed(match: NDArray[np.uint8], words: int) -> NDArray[np.int64]:
    """A bit per class, in words."""
    packed = np.zeros((max(1, len(match)), words * 8), np.uint8)
    bits = np.packbits(match != 0, axis=1, bitorder="little")
    packed[: len(match), : bits.shape[1]] = bits
    return packed.view("<i8")
