"""One step for counted entries: lets Assign and Preempt call turns in their order, and tells what came out.

Owns the book once it is open, and no rule: it calls kernels and gives them room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.acting import COMING, DRAINING, DROP, FINISH, LEFTOVERS, LOTS, SCARCE, SERVE, VICTIMS, act
from bigfleet.engine.counted.book import (
    BUY,
    DROPPED,
    PAID_DRAINING,
    PAID_EMPTY,
    PAID_IDLE,
    PURCHASES,
    REOPEN,
    Book,
    PlacementRules,
    enlarged,
    zeros,
)
from bigfleet.engine.counted.closing import clear_parking, close_turns, find_short
from bigfleet.engine.counted.judging import SPARED
from bigfleet.engine.counted.opening import Opened
from bigfleet.engine.counted.standing import seen_left
from bigfleet.engine.counted.turns import Lacking
from bigfleet.engine.decide.victims import Ranked, Victims, Weights, more_takes
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, NO_TIME, PLAIN
from bigfleet.engine.policy import Policy

if TYPE_CHECKING:
    from bigfleet.engine.nodes.nodes import Nodes


class CountedStep:
    """The turns of one step; `entries` are theirs, in order."""

    def __init__(self, lacking: Lacking, policy: Policy, now: int, victims: Victims, ranked: Ranked) -> None:
        placement = policy.placement
        self._victims, self._ranked, self._weights = victims, ranked, Weights(0.0, 0.0, 0.0, 0.0, 0.0)
        self.lacking = lacking
        self.entries = lacking.entries
        self.rules = PlacementRules(
            now, placement.open_remainders, placement.riders, placement.within, placement.paid_ratio,
            placement.reopen_ratio, placement.risk_limit, placement.second_pass_from, placement.refills,
            placement.refilled,
        )  # fmt: skip
        self.book: Book
        self.portions = lacking.portions
        self.believed: dict[int, bool] = {}
        self.hopes: NDArray[np.bool_] = np.zeros(len(lacking.entries), bool)
        self._chain_of: NDArray[np.int32] = zeros(1)
        self._turn_of: dict[int, int] | None = None
        # Some gang is hopeless: it will rest, or be tried again, a cycle from now at the earliest.
        self.hopeless = False
        self._taken_by: dict[int, tuple[int, int, int]] | None = None

    def begin(self, opened: Opened) -> World:
        """Takes the open book over; then turns know what comes for them, and what is scarce."""
        self.book, self.believed, self.hopes = opened.book, opened.believed, opened.hopes
        self._chain_of = opened.chain_of
        count = len(self.entries)
        self._run(opened.w, COMING, count)
        self._act(opened.w, SCARCE, 0, count)
        return opened.w

    def doubted(self) -> set[int]:
        """Clusters that say they lack units and are not believed (P19)."""
        return {cluster for cluster, believed in self.believed.items() if not believed}

    # ---- going on --------------------------------------------------------------------------------------------------

    def _act(self, w: World, what: int, first: int, last: int) -> int:
        return act(w, self.book, self._victims, self._ranked, self._weights, self.rules, what, first, last)

    def _run(self, w: World, what: int, last: int, first: int = 0) -> None:
        at = first
        while at < last:
            at = self._act(w, what, at, last)
            if at < last:
                self.book = enlarged(self.book)

    def serve(self, w: World, first: int, last: int) -> None:
        self._run(w, SERVE, last, first)

    def finish(self, w: World) -> None:
        """After the pass: what was left over, and what became superfluous."""
        count = len(self.entries)
        self._run(w, LEFTOVERS, count)
        b = self.book
        made = int(b.meta[PURCHASES])
        if made:
            turns, tiers = b.bought.turn[:made], b.bought.tier[:made]
            bought = (b.t.kind[turns] == PLAIN) & ((tiers == PAID_IDLE) | (tiers == BUY))
            which = np.nonzero(bought)[0]
            clusters = b.t.cluster[turns[which]]
            machines = np.bincount(clusters, weights=b.bought.n[which], minlength=1)
            many = machines[clusters] >= self.rules.second_pass_from
            which, clusters = which[many], clusters[many]
            # Cluster by cluster, the last purchase first.
            self.book = b._replace(again=which[np.lexsort((-which, clusters))].astype(np.int32))
            self._run(w, DROP, len(which))
        self._act(w, FINISH, 0, self.portions)

    def short(self) -> NDArray[np.int64]:
        """Turns that may preempt and lack something."""
        count = len(self.entries)
        lacking = np.empty(count, np.uint8)
        find_short(self.book, count, lacking)
        found = np.nonzero((lacking != 0) & (self.book.t.able[:count] != 0))[0]
        self.book = self.book._replace(short=found.astype(np.int32) if len(found) else zeros(1))
        return found

    def await_draining(self, w: World, v: Victims, first: int, last: int) -> None:
        """Of the turns that are short the `first .. last`."""
        self._victims = v
        self._run(w, DRAINING, last, first)

    def choose_victims(self, w: World, v: Victims, r: Ranked, weights: Weights, first: int, last: int) -> Victims:
        """Victims of the short turns `first .. last`; the column of takes may have grown."""
        self._victims, self._ranked, self._weights = v, r, weights
        at = first
        while at < last:
            at = self._act(w, VICTIMS, at, last)
            if at < last:
                self.book = enlarged(self.book)
                self._victims = more_takes(self._victims, 2 * len(self._victims.take_n))
        return self._victims

    def has_lots(self, w: World, turn: int) -> bool:
        """Whether some lot would hold a unit of the turn, its domain aside."""
        return self._act(w, LOTS, turn, turn) > 0

    def seen_left(self, w: World, nodes: Nodes, entry: int, turn: int, left: NDArray[np.int64]) -> bool:
        """Adds what seen nodes have left for an entry; whether its tokens alone keep it from room there is (P42)."""
        q, tokens = int(self.book.t.first[turn]), self.book.q.token
        if int(w.e.kind[entry]) == GANG or int(tokens[q]) < 0:
            q = -1
        known = (nodes.loads.tokens_of, self._chain_of)
        barred = bool(seen_left(w, self.book, nodes.r, nodes.s, *known, entry, q, left))
        if q < 0 or barred:
            return barred
        mine, tokens[q] = int(tokens[q]), -1
        found = self.has_lots(w, turn)
        tokens[q] = mine
        return found

    # ---- what came out ---------------------------------------------------------------------------------------------

    @property
    def took(self) -> bool:
        """Whether anything was taken for anybody."""
        return bool(self.book.meta[PURCHASES])

    def taken(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
        """What was taken for entries, in order: tier, machine and turn."""
        b = self.book
        made = int(b.meta[PURCHASES])
        n = b.bought.n[:made].astype(np.int64)
        ends = np.cumsum(n)
        places = np.arange(int(ends[-1]) if made else 0) + np.repeat(b.bought.first[:made] - (ends - n), n)
        return np.repeat(b.bought.tier[:made], n), b.machine[places], np.repeat(b.bought.turn[:made], n)

    def acquisitions(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
        """What was taken, as actions: per turn reopened machines, empty ones of others, Idle ones, then purchases, each
        in the order taken. Draining machines are nobody's action."""
        tier, slot, turn = self.taken()
        rank = np.full(5, -1)
        rank[[REOPEN, PAID_EMPTY, PAID_IDLE, BUY]] = (0, 1, 2, 3)
        mine = rank[tier] >= 0
        if not mine.all():
            tier, turn, slot = tier[mine], turn[mine], slot[mine]
        places = turn.astype(np.int64) * 4 + rank[tier]
        if (places[1:] >= places[:-1]).all():
            return tier, slot, turn
        order = np.argsort(places, kind="stable")
        return tier[order], slot[order], turn[order]

    def busy(self) -> set[int]:
        """Machines that were reopened, or taken from other clusters."""
        return set(np.nonzero(self.book.mark & SPARED)[0].tolist())

    @property
    def turn_of(self) -> dict[int, int]:
        """Turns by entry."""
        if self._turn_of is None:
            self._turn_of = {entry: turn for turn, entry in enumerate(self.entries.tolist())}
        return self._turn_of

    @property
    def taken_by(self) -> dict[int, tuple[int, int, int]]:
        """By turn: machines taken in all, of them Idle ones and purchases."""
        if self._taken_by is None:
            b = self.book
            found: dict[int, tuple[int, int, int]] = {}
            made = int(b.meta[PURCHASES])
            for turn, tier, n in zip(
                *(c[:made].tolist() for c in (b.bought.turn, b.bought.tier, b.bought.n)), strict=True
            ):
                if tier != PAID_DRAINING:
                    had = found.get(turn, (0, 0, 0))
                    found[turn] = (had[0] + n, had[1] + n * (tier == PAID_IDLE), had[2] + n * (tier == BUY))
            self._taken_by = found
        return self._taken_by

    def close(self, w: World, clusters: int) -> NDArray[np.uint8]:
        """After Preempt: what every part lacks, and which gangs are hopeless (R3.8). Returns, by cluster, whether one
        of its turns lacks something."""
        count, b = len(self.entries), self.book
        close_turns(w, b, count)
        lacking = np.empty(count, np.uint8)
        find_short(b, count, lacking)
        made = int(b.meta[PURCHASES])
        mine = b.bought.tier[:made] != PAID_DRAINING
        took = np.bincount(b.bought.turn[:made][mine], weights=b.bought.n[:made][mine], minlength=count)
        gangs = self.hopes & (w.e.kind[self.entries] == GANG)
        stuck = np.nonzero(gangs & (lacking != 0) & (b.t.ok[:count] == 0) & (took[:count] == 0))[0]
        self.hopeless = bool(len(stuck))
        entries = self.entries[stuck]
        since = w.e.parked_since[entries].copy()
        clear_parking(w, clusters)
        w.e.parked_since[entries] = np.where(since == NO_TIME, self.rules.now, since)
        short = np.zeros(len(w.c.start), np.uint8)
        short[b.t.cluster[:count][lacking != 0]] = 1
        return short

    @property
    def dropped(self) -> NDArray[np.int32]:
        """Machines the second pass gave back and nobody took again."""
        b, count = self.book, int(self.book.meta[DROPPED])
        return b.dropped[:count][b.dropped_cell[:count] >= 0]
