"""The prototype's gentle consolidation (S6): close what is poor, let it empty, evict late and within a budget.

Owns closing, moves and the eviction budget of every cluster. Never moves what is pinned or part of a gang; what is new
is Ready before what is old goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bench.quality.account import OLD_S
from bench.quality.demand import NOBODY
from bench.quality.kinds import UNLIMITED, Ints
from bench.quality.purchase import Buyer
from bench.quality.room import place
from bench.quality.rules import Rules
from bench.quality.world import World


@dataclass(slots=True)
class _Move:
    """New is Ready before old drains."""

    olds: list[int]
    serials: list[int]
    new: int
    new_serial: int
    until: float


@dataclass(slots=True)
class ClusterState:
    tokens: float = 0.0
    returned: float = -1e12
    bought: float = -1e12
    moved: list[float] = field(default_factory=list)
    moves: list[_Move] = field(default_factory=list)


class Consolidation:
    """One for all clusters; `stock` says what a cluster may buy."""

    def __init__(
        self, world: World, rules: Rules, buyer: Buyer, stock: Callable[[World, int], Ints], shared: bool
    ) -> None:
        self.rules, self.buyer, self._stock, self.shared = rules, buyer, stock, shared
        self.penalty = buyer.penalty
        self.clusters = [ClusterState() for _ in range(world.trace.clusters)]
        self._ripe = 0

    def give_back(self, world: World, row: int) -> None:
        self.clusters[int(world.nodes.cluster[row])].returned = world.now
        world.give_back(row)

    def _homeless(self, world: World, counts: Ints, rows: Ints) -> Ints:
        """What of some pods finds no room on other nodes as they are."""
        free, tokens = world.nodes.free[rows].copy(), world.nodes.tokens[rows].copy()
        return place(world, self.buyer.by_value, counts, rows, free, tokens)

    def coming(self) -> list[int]:
        """Rows bought for a move that is not over; they are nobody's excess."""
        return [move.new for state in self.clusters for move in state.moves]

    def earn(self, world: World) -> None:
        """Every pod that reaches 15 minutes adds to what its cluster may evict."""
        trace = world.trace
        while self._ripe < len(trace) and trace.arrive[self._ripe] + OLD_S <= world.now:
            if world.left[self._ripe] > 0:
                state = self.clusters[int(trace.cluster[self._ripe])]
                state.tokens = min(self.rules.most_tokens, state.tokens + self.rules.tokens)
            self._ripe += 1

    def run(self, world: World, cluster: int) -> None:
        nodes, rules, buyer = world.nodes, self.rules, self.buyer
        state = self.clusters[cluster]
        mine = nodes.ready & (nodes.cluster == cluster)
        rows = np.flatnonzero(mine & (nodes.pods > 0))
        if not len(rows):
            return
        busy = {row for move in state.moves for row in (*move.olds, move.new)}
        counts = nodes.units
        value = buyer.values(counts[rows].sum(0))
        price = world.kinds.price[nodes.kind]
        worth = np.zeros(len(nodes.alive))
        risk = world.kinds.probability[nodes.kind[rows]] * (counts[rows] @ self.penalty)
        worth[rows] = (counts[rows] @ value) / (price[rows] + risk)
        # Close the worst while room for its pods is cheaper elsewhere.
        allowed = int(max(1, rules.most_closed * len(rows))) - int((mine & nodes.closed).sum())
        order = rows[np.argsort(worth[rows], kind="stable")]
        open_rows = np.flatnonzero(mine & ~nodes.closed)
        tries = rules.tried
        for row in order.tolist():
            if allowed <= 0 or not tries or worth[row] >= rules.poor:
                break
            if nodes.closed[row] or row in busy or world.now - nodes.opened_at[row] < rules.rest_s:
                continue
            if world.now - nodes.ready_at[row] < rules.every_s * 2:
                continue
            tries -= 1
            others = open_rows[open_rows != row]
            rest = self._homeless(world, counts[row], others)
            need = buyer.dollars(buyer.plan(rest, self._stock(world, cluster))) if rest.any() else 0.0
            if need < (1 - rules.saves) * price[row]:
                world.close(row)
                open_rows = others
                allowed -= 1
        if rules.evict and world.now - state.bought >= rules.calm_s:
            self._evict(world, cluster, busy)

    def _evict(self, world: World, cluster: int, busy: set[int]) -> None:
        nodes, rules = world.nodes, self.rules
        counts = nodes.units
        state = self.clusters[cluster]
        state.moved = [at for at in state.moved if world.now - at < rules.moves_window_s]
        mine = nodes.ready & (nodes.cluster == cluster)
        room = int(max(1, rules.moves_share * mine.sum())) - len(state.moved)
        if room <= 0 or state.tokens < 1:
            return
        reclamation = world.trace.classes.reclamation
        ripe = [
            row
            for row in np.flatnonzero(mine & nodes.closed & (nodes.pods > 0)).tolist()
            if world.now - nodes.closed_at[row] >= rules.evict_after_s
            and row not in busy
            and not np.isinf(reclamation[counts[row] > 0]).any()
            and not any(world.trace.gang[pod] != NOBODY for pod in world.on_node[row])
        ]
        if not ripe:
            return
        open_rows = np.flatnonzero(mine & ~nodes.closed)
        hours = rules.payback_s / 3600
        options = []
        for row in ripe:
            pods = int(nodes.pods[row])
            if pods > self._purse(state):
                continue
            lost = float(counts[row][counts[row] > 0] @ reclamation[counts[row] > 0])
            rest = self._homeless(world, counts[row], open_rows)
            if not rest.any():
                gain = float(world.kinds.price[nodes.kind[row]]) * hours - lost
                if gain > 0:
                    options.append((gain / pods, row, [row], None))
        if rules.together > 1 and world.now - state.returned >= rules.quiet_s:
            options += self._joint(world, ripe, hours, state)
        options.sort(key=lambda option: (-option[0], option[1]))
        for _gain, _first, olds, kind in options:
            pods = int(nodes.pods[olds].sum())
            if room <= 0 or pods > self._purse(state) or any(row in busy for row in olds):
                continue
            busy.update(olds)
            room -= 1
            state.tokens -= pods
            state.moved.append(world.now)
            if kind is None:
                rest = self._homeless(world, counts[olds[0]], open_rows)
                if not rest.any():
                    self.give_back(world, olds[0])
                # One delete per pass: the next one must see where these pods went.
                break
            total = counts[olds].sum(0)
            new = world.buy(cluster, kind, total @ world.trace.classes.request)
            state.moves.append(
                _Move(olds, [int(nodes.serial[row]) for row in olds], new, int(nodes.serial[new]), world.now + 600)
            )

    def _purse(self, state: ClusterState) -> float:
        """What one move may evict: a share of what is kept, so that cheap moves come before dear ones."""
        return max(min(1.0, state.tokens), self.rules.spend * state.tokens)

    def _joint(
        self, world: World, ripe: list[int], hours: float, state: ClusterState
    ) -> list[tuple[float, int, list[int], int | None]]:
        """N nodes for one cheaper machine: exact, because one machine holds their pods iff the sums fit."""
        nodes, kinds = world.nodes, world.kinds
        reclamation = world.trace.classes.reclamation
        counts = nodes.units
        by_use = sorted(ripe, key=lambda row: int(nodes.pods[row]))
        exclusive = world.trace.classes.exclusive
        tokens = np.unique(exclusive[exclusive != NOBODY])
        options = []
        for size in range(1, min(self.rules.together, len(by_use)) + 1):
            olds = by_use[:size]
            total = counts[olds].sum(0)
            pods = int(total.sum())
            if pods > self._purse(state):
                break
            if any(total[exclusive == token].sum() > 1 for token in tokens):
                continue
            room = total @ world.trace.classes.request
            fits = (kinds.capacity >= room).all(1) & world.may_run[total > 0].all(0) & (world.stock > 0)
            fits &= (kinds.limit >= UNLIMITED) | self.shared
            fits &= ~kinds.gpu | bool(room[2] > 0)
            if not fits.any():
                continue
            risk = kinds.probability * float(total @ self.penalty)
            cost = np.where(fits, np.where(kinds.limit < UNLIMITED, 0.0, kinds.price) + risk, np.inf)
            kind = int(np.argmin(cost))
            before = float(kinds.price[nodes.kind[olds]].sum())
            before += float(sum(kinds.probability[nodes.kind[row]] * (counts[row] @ self.penalty) for row in olds))
            lost = float(total[total > 0] @ reclamation[total > 0])
            gain = (before - cost[kind]) * hours - lost - float(kinds.price[kind]) * 120 / 3600
            if gain > 0 and before - cost[kind] > self.rules.saves * before:
                options.append((gain / pods, olds[0], list(olds), kind))
        return options

    def finish(self, world: World, waiting: dict[int, list[int]]) -> None:
        nodes = world.nodes
        for cluster, state in enumerate(self.clusters):
            kept = []
            for move in state.moves:
                alive = nodes.alive[move.new] and nodes.serial[move.new] == move.new_serial
                if not alive or world.now > move.until or cluster in waiting:
                    continue
                if not nodes.ready[move.new]:
                    kept.append(move)
                    continue
                for row, serial in zip(move.olds, move.serials, strict=True):
                    if nodes.alive[row] and nodes.serial[row] == serial:
                        self.give_back(world, row)
            state.moves = kept
