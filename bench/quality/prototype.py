"""The rules of the next engine in plain Python: coming machines (S1), value of a purchase (S2), reclaim of empty nodes
(S5), closing and an eviction budget (S6), levels of fill (C7).

Owns a policy whose every number can be turned, so that rules are judged before the engine has them. It sees the nodes
as they are, as a mirror would. Must never look ahead: it reads no pod that has not arrived and no work that is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bench.quality.account import OLD_S
from bench.quality.demand import NOBODY
from bench.quality.kinds import UNLIMITED, Flags, Floats, Ints
from bench.quality.purchase import Buyer, Purchase, PurchaseRules
from bench.quality.world import World


@dataclass(frozen=True, slots=True)
class Rules:
    """Numbers of the rules; the defaults are those of the design text."""

    purchase: PurchaseRules = PurchaseRules()
    hold_s: float = 120.0
    closed_hold_s: float = 60.0
    levels: tuple[float, ...] = (0.90, 0.75, 0.60, 0.45, 0.30, 0.15)
    hysteresis: float = 0.03
    level_by: str = "fill"
    firm: float = 0.0
    gang_closed: bool = True
    no_service: float = 0.5
    every_s: float = 30.0
    close: bool = True
    poor: float = 0.8
    saves: float = 0.25
    most_closed: float = 0.15
    rest_s: float = 3600.0
    evict: bool = True
    evict_after_s: float = 1200.0
    payback_s: float = 3600.0
    tokens: float = 0.045
    most_tokens: float = 60.0
    moves_share: float = 0.05
    moves_window_s: float = 300.0
    together: int = 6
    tried: int = 12


@dataclass(slots=True)
class _Move:
    """New is Ready before old drains."""

    olds: list[int]
    serials: list[int]
    new: int
    new_serial: int
    until: float


@dataclass(slots=True)
class _ClusterState:
    tokens: float = 0.0
    moved: list[float] = field(default_factory=list)
    moves: list[_Move] = field(default_factory=list)


class Prototype:
    """One shard for all clusters of a world."""

    def __init__(self, world: World, rules: Rules | None = None, name: str = "prototype", shared: bool = True) -> None:
        self.name, self.rules, self.shared = name, rules or Rules(), shared
        self.buyer = Buyer(world.trace.classes, world.kinds, self.rules.purchase, world.may_run)
        self._clusters = [_ClusterState() for _ in range(world.trace.clusters)]
        self._next_pass = 0.0
        self._below = np.zeros(len(world.nodes.alive))
        self._ripe = 0
        self.penalty = self.buyer.penalty
        if self.rules.firm and world.kinds.spot.any():
            # Who tolerates spot leaves firm nodes to those who do not, while it has a choice.
            tolerant = (world.may_run & world.kinds.spot).any(1)
            world.soft = np.where(tolerant[:, None] & ~world.kinds.spot[None, :], self.rules.firm, 0.0)

    def decide(self, world: World) -> None:
        waiting: dict[int, list[int]] = {}
        for pod in world.waiting:
            waiting.setdefault(int(world.trace.cluster[pod]), []).append(pod)
        self._finish_moves(world, waiting)
        for cluster, pods in waiting.items():
            self._supply(world, cluster, pods)
        self._reclaim(world, waiting)
        if world.now >= self._next_pass:
            self._next_pass = world.now + self.rules.every_s
            if self.rules.levels:
                world.taint(self._levels(world))
            if self.rules.close:
                self._earn(world)
                for cluster in range(world.trace.clusters):
                    if cluster not in waiting:
                        self._consolidate(world, cluster)

    # ---- S1, S2: what waits, less what is coming, is bought --------------------------------------------------------

    def _supply(self, world: World, cluster: int, pods: list[int]) -> None:
        trace, nodes = world.trace, world.nodes
        gangs = [pod for pod in pods if trace.gang[pod] != NOBODY]
        plain = [pod for pod in pods if trace.gang[pod] == NOBODY]
        coming = np.flatnonzero(nodes.alive & ~nodes.ready & (nodes.cluster == cluster))
        free = nodes.free[coming].copy()
        tokens = nodes.tokens[coming].copy()
        if gangs:
            self._supply_gangs(world, cluster, gangs, coming, free)
        counts = np.bincount(trace.cls[plain], minlength=len(trace.classes)).astype(np.int64)
        if not counts.any():
            return
        counts = self._place(world, counts, coming, free, tokens)
        if not counts.any():
            return
        for each in self.buyer.plan(counts, self._stock(world, cluster)):
            rack = NOBODY if not world.racks else self._free_rack(world)
            world.buy(cluster, each.kind, each.carries @ trace.classes.request, rack)

    def _stock(self, world: World, cluster: int) -> Ints:
        """What may be bought; without sharing, a cluster has its part of what is reserved and no more."""
        if self.shared or world.trace.clusters == 1:
            return world.stock
        mine = world.nodes.alive & (world.nodes.cluster == cluster)
        held = np.bincount(world.nodes.kind[mine], minlength=len(world.kinds))
        share = world.kinds.limit // world.trace.clusters
        return np.where(world.kinds.limit < UNLIMITED, np.maximum(0, share - held), world.stock)

    def _place(self, world: World, counts: Ints, rows: Ints, free: Ints, tokens: Flags) -> Ints:
        """Takes off the counts what fits on rows, larger units first, tightest row first; `free` is used up."""
        rest = counts.copy()
        if not len(rows):
            return rest
        classes = world.trace.classes
        kinds = world.nodes.kind[rows]
        order = self.buyer.by_value
        for cls in order[rest[order] > 0].tolist():
            request = classes.request[cls]
            token = int(classes.exclusive[cls])
            fits = (free >= request).all(1) & world.may_run[cls, kinds]
            if token != NOBODY:
                fits &= ~tokens[:, token]
            able = np.flatnonzero(fits)
            for row in able[np.argsort(free[able, 0], kind="stable")].tolist():
                take = min(
                    int(rest[cls]), *(int(have // want) for have, want in zip(free[row], request, strict=True) if want)
                )
                if token != NOBODY:
                    take = 1
                    tokens[row, token] = True
                free[row] -= take * request
                rest[cls] -= take
                if not rest[cls]:
                    break
        return rest

    def _supply_gangs(self, world: World, cluster: int, pods: list[int], coming: Ints, free: Ints) -> None:
        """Each gang is covered by coming machines of one rack, or gets a rack of its own for all that is missing."""
        trace, nodes = world.trace, world.nodes
        members: dict[int, list[int]] = {}
        for pod in pods:
            members.setdefault(int(trace.gang[pod]), []).append(pod)
        for gang in members.values():
            counts = np.bincount(trace.cls[gang], minlength=len(trace.classes)).astype(np.int64)
            best: tuple[int, int, Ints, Ints] | None = None
            for rack in [*np.unique(nodes.rack[nodes.alive & (nodes.cluster == cluster)]).tolist(), NOBODY]:
                held = int((nodes.alive & (nodes.rack == rack)).sum()) if rack != NOBODY else 0
                # Room on Ready nodes is gone before the rest has booted; it counts only when it is enough by itself.
                ready = np.flatnonzero(nodes.ready & (nodes.rack == rack) & (nodes.cluster == cluster) & nodes.closed)
                mine = np.flatnonzero(nodes.rack[coming] == rack) if rack != NOBODY else np.array([], np.int64)
                rows = np.concatenate([coming[mine], ready])
                room = np.concatenate([free[mine], nodes.free[ready]])
                rest = self._place(world, counts, rows, room, nodes.tokens[rows].copy())
                plan = self.buyer.plan(rest, self._stock(world, cluster)) if rest.any() else []
                if held + len(plan) > world.racks:
                    continue
                cost = self.buyer.dollars(plan)
                if best is None or cost < best[0]:
                    best = (cost, rack, plan, (mine, room[: len(mine)]))  # type: ignore[assignment]
                if not plan:
                    break
            if best is None:
                continue
            _cost, rack, plan, (mine, room) = best  # type: ignore[misc]
            free[mine] = room
            place = self._free_rack(world, len(plan)) if rack == NOBODY else rack
            for each in plan:
                row = world.buy(cluster, each.kind, each.carries @ trace.classes.request, place)
                # Closed until the gang is there: the first of its machines would fill up before the last is Ready.
                world.nodes.closed[row] = self.rules.gang_closed

    def _free_rack(self, world: World, size: int = 1) -> int:
        """The first rack with so many free places."""
        used = np.bincount(world.nodes.rack[world.nodes.alive & (world.nodes.rack >= 0)], minlength=1)
        for rack in range(len(used)):
            if used[rack] + size <= world.racks:
                return rack
        return len(used)

    # ---- S5: empty nodes go ----------------------------------------------------------------------------------------

    def _reclaim(self, world: World, waiting: dict[int, list[int]]) -> None:
        nodes = world.nodes
        empty = nodes.ready & (nodes.pods == 0)
        if not empty.any():
            return
        since = world.now - np.maximum(nodes.empty_at, nodes.ready_at)
        fresh = world.now - nodes.ready_at < self.rules.hold_s + 120.0
        hold = np.where(nodes.closed & ~fresh, self.rules.closed_hold_s, self.rules.hold_s)
        due = empty & (since >= hold)
        for state in self._clusters:
            for move in state.moves:
                due[move.new] = False
        for row in np.flatnonzero(due).tolist():
            world.give_back(row)

    # ---- C7: levels of fill ----------------------------------------------------------------------------------------

    def _levels(self, world: World) -> Floats:
        if len(self._below) < len(world.nodes.alive):
            self._below = np.concatenate([self._below, np.zeros(len(world.nodes.alive) - len(self._below))])
        fill = world.fill() if self.rules.level_by == "fill" else self._worth(world)
        fill = fill - np.where(world.nodes.services == 0, self.rules.no_service, 0.0)
        low = sum((fill < level - self.rules.hysteresis).astype(float) for level in self.rules.levels)
        high = sum((fill < level + self.rules.hysteresis).astype(float) for level in self.rules.levels)
        self._below = np.clip(self._below, low, high)
        return self._below

    def _worth(self, world: World) -> Floats:
        """Value carried over effective cost of each row."""
        nodes, kinds = world.nodes, world.kinds
        risk = kinds.probability[nodes.kind] * (nodes.units @ self.penalty)
        worth: Floats = (nodes.units @ self.buyer.alone) / (kinds.price[nodes.kind] + risk)
        return worth

    # ---- S6: closing, moves, budget --------------------------------------------------------------------------------

    def _earn(self, world: World) -> None:
        """Every pod that reaches 15 minutes adds to what its cluster may evict."""
        trace = world.trace
        while self._ripe < len(trace) and trace.arrive[self._ripe] + OLD_S <= world.now:
            if world.left[self._ripe] > 0:
                state = self._clusters[int(trace.cluster[self._ripe])]
                state.tokens = min(self.rules.most_tokens, state.tokens + self.rules.tokens)
            self._ripe += 1

    def _consolidate(self, world: World, cluster: int) -> None:
        nodes, rules, buyer = world.nodes, self.rules, self.buyer
        state = self._clusters[cluster]
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
            rest = self._place(world, counts[row], others, nodes.free[others].copy(), nodes.tokens[others].copy())
            need = buyer.dollars(buyer.plan(rest, self._stock(world, cluster))) if rest.any() else 0.0
            if need < (1 - rules.saves) * price[row]:
                world.close(row)
                open_rows = others
                allowed -= 1
        if rules.evict:
            self._evict(world, cluster, busy)

    def _evict(self, world: World, cluster: int, busy: set[int]) -> None:
        nodes, rules = world.nodes, self.rules
        counts = nodes.units
        state = self._clusters[cluster]
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
            if pods > state.tokens:
                continue
            lost = float(counts[row][counts[row] > 0] @ reclamation[counts[row] > 0])
            rest = self._place(
                world, counts[row], open_rows, nodes.free[open_rows].copy(), nodes.tokens[open_rows].copy()
            )
            if not rest.any():
                gain = float(world.kinds.price[nodes.kind[row]]) * hours - lost
                if gain > 0:
                    options.append((gain / pods, row, [row], None))
        if rules.together > 1:
            options += self._joint(world, ripe, hours, state)
        options.sort(key=lambda option: (-option[0], option[1]))
        for _gain, _first, olds, kind in options:
            pods = int(nodes.pods[olds].sum())
            if room <= 0 or pods > state.tokens or any(row in busy for row in olds):
                continue
            busy.update(olds)
            room -= 1
            state.tokens -= pods
            state.moved.append(world.now)
            if kind is None:
                rest = self._place(
                    world, counts[olds[0]], open_rows, nodes.free[open_rows].copy(), nodes.tokens[open_rows].copy()
                )
                if not rest.any():
                    world.give_back(olds[0])
                # One delete per pass: the next one must see where these pods went.
                break
            total = counts[olds].sum(0)
            new = world.buy(cluster, kind, total @ world.trace.classes.request)
            state.moves.append(
                _Move(olds, [int(nodes.serial[row]) for row in olds], new, int(nodes.serial[new]), world.now + 600)
            )

    def _joint(
        self, world: World, ripe: list[int], hours: float, state: _ClusterState
    ) -> list[tuple[float, int, list[int], int | None]]:
        """N nodes for one cheaper machine that holds all their pods; exact, because one machine holds them iff sums fit."""
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
            if pods > state.tokens:
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

    def _finish_moves(self, world: World, waiting: dict[int, list[int]]) -> None:
        nodes = world.nodes
        for cluster, state in enumerate(self._clusters):
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
                        world.give_back(row)
            state.moves = kept


__all__ = ["Prototype", "Purchase", "Rules"]
