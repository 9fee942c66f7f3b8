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
from bench.quality.purchase import Buyer, PurchaseRules
from bench.quality.world import World


@dataclass(frozen=True, slots=True)
class Rules:
    """Numbers of the rules. Defaults are what won here; `DESIGN` has those the rules were first written with.

    Not of the design: soft taints against pods that have cheaper room elsewhere, as many as `firm` on firm nodes for who
    tolerates spot, `owned` on what is not paid for anyway, `dear` where room costs `dear_from` of the pod's best;
    `quiet_s` (no purchase for a move so soon after a return), `calm_s` (no eviction so soon after a purchase),
    `first_come` (coming machines are counted on as the scheduler will fill them, not largest unit first), `spend`
    (share of the budget one move may take).
    """

    purchase: PurchaseRules = field(default_factory=PurchaseRules)
    hold_s: float = 300.0
    closed_hold_s: float = 300.0
    owned_hold_s: float = 120.0
    levels: tuple[float, ...] = (0.90, 0.75, 0.60, 0.45, 0.30, 0.15)
    hysteresis: float = 0.03
    level_by: str = "fill"
    firm: float = 6.0
    owned: float = 3.0
    dear: float = 6.0
    dear_from: float = 1.5
    no_service: float = 0.0
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
    quiet_s: float = 240.0
    calm_s: float = 300.0
    spend: float = 1.0
    first_come: bool = True
    tried: int = 12


DESIGN = Rules(
    purchase=PurchaseRules(near=0.10),
    hold_s=120.0,
    closed_hold_s=60.0,
    no_service=0.5,
    firm=0.0,
    owned=0.0,
    dear=0.0,
    quiet_s=0.0,
    calm_s=0.0,
    first_come=False,
)


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
    returned: float = -1e12
    bought: float = -1e12
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
        self._gang_until: dict[int, float] = {}
        self._gang_rows: dict[int, tuple[int, float]] = {}
        self.penalty = self.buyer.penalty
        if self.rules.firm and world.kinds.spot.any():
            # Who tolerates spot leaves firm nodes to those who do not, while it has a choice.
            tolerant = (world.may_run & world.kinds.spot).any(1)
            world.soft = np.where(tolerant[:, None] & ~world.kinds.spot[None, :], self.rules.firm, 0.0)
        if self.rules.dear:
            # A pod that has cheaper room elsewhere stays off nodes that others need.
            dear = self.buyer.share * world.kinds.price > self.rules.dear_from * self.buyer.alone[:, None]
            world.soft = world.soft + np.where(dear, self.rules.dear, 0.0)
        limited = world.kinds.limit < UNLIMITED
        if self.rules.owned and limited.any():
            world.soft = world.soft + np.where(limited[None, :], 0.0, self.rules.owned)

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
        if gangs:
            self._supply_gangs(world, cluster, gangs)
        mine = nodes.alive & ~nodes.ready & (nodes.cluster == cluster)
        for row, (serial, _until) in self._gang_rows.items():
            if nodes.serial[row] == serial:
                mine[row] = False
        coming = np.flatnonzero(mine)
        free = nodes.free[coming].copy()
        tokens = nodes.tokens[coming].copy()
        counts = np.bincount(trace.cls[plain], minlength=len(trace.classes)).astype(np.int64)
        if not counts.any():
            return
        if self.rules.first_come:
            counts = self._queued(world, plain, coming, free, tokens)
        else:
            counts = self._place(world, counts, coming, free, tokens)
        if not counts.any():
            return
        for each in self.buyer.plan(counts, self._stock(world, cluster)):
            rack = NOBODY if not world.racks else self._free_rack(world)
            self._clusters[cluster].bought = world.now
            world.buy(cluster, each.kind, each.carries @ trace.classes.request, rack)

    def _stock(self, world: World, cluster: int) -> Ints:
        """What may be bought; without sharing, a cluster has its part of what is reserved and no more."""
        if self.shared or world.trace.clusters == 1:
            return world.stock
        mine = world.nodes.alive & (world.nodes.cluster == cluster)
        held = np.bincount(world.nodes.kind[mine], minlength=len(world.kinds))
        share = world.kinds.limit // world.trace.clusters
        return np.where(world.kinds.limit < UNLIMITED, np.maximum(0, share - held), world.stock)

    def _queued(self, world: World, pods: list[int], rows: Ints, free: Ints, tokens: Flags) -> Ints:
        """What the scheduler will leave over: it binds first come, first served, whatever a machine was bought for."""
        classes = world.trace.classes
        rest = np.zeros(len(classes), np.int64)
        order = np.argsort(world.nodes.ready_at[rows], kind="stable")
        kinds = world.nodes.kind[rows]
        hopeless: set[int] = set()
        for pod in pods:
            cls = int(world.trace.cls[pod])
            found = NOBODY
            if cls not in hopeless:
                fits = (free >= classes.request[cls]).all(1) & world.may_run[cls, kinds]
                token = int(classes.exclusive[cls])
                if token != NOBODY:
                    fits &= ~tokens[:, token]
                found = next((int(place) for place in order if fits[place]), NOBODY)
            if found == NOBODY:
                hopeless.add(cls)
                rest[cls] += 1
                continue
            free[found] -= classes.request[cls]
            if classes.exclusive[cls] != NOBODY:
                tokens[found, classes.exclusive[cls]] = True
        return rest

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

    def _supply_gangs(self, world: World, cluster: int, pods: list[int]) -> None:
        """Every gang that waits gets all of its room in one rack, bought at once and Ready together.

        Room on Ready nodes is gone before the rest has booted, so it does not count; a gang that found enough of it was
        bound before we are asked. What was bought for a gang is its own until its deadline.
        """
        trace, nodes = world.trace, world.nodes
        members: dict[int, list[int]] = {}
        for pod in pods:
            members.setdefault(int(trace.gang[pod]), []).append(pod)
        for gang, waiting in members.items():
            if self._gang_until.get(gang, 0.0) > world.now:
                continue
            counts = np.bincount(trace.cls[waiting], minlength=len(trace.classes)).astype(np.int64)
            plan = self.buyer.plan(counts, self._stock(world, cluster))
            running = [pod for pod in np.flatnonzero(trace.gang == gang).tolist() if world.node_of[pod] != NOBODY]
            rack = int(nodes.rack[world.node_of[running[0]]]) if running else self._free_rack(world, len(plan))
            rows = [world.buy(cluster, each.kind, each.carries @ trace.classes.request, rack) for each in plan]
            world.join(rows)
            for row in rows:
                # Soft until the gang is there: others go elsewhere while there is an elsewhere.
                world.close(row)
            self._gang_until[gang] = world.now + 240.0
            self._gang_rows.update({row: (int(nodes.serial[row]), world.now + 240.0) for row in rows})

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
        hold = np.where(nodes.closed, self.rules.closed_hold_s, self.rules.hold_s)
        # What is paid for anyway is not worth holding: another cluster may want it.
        hold = np.where(world.kinds.limit[nodes.kind] < UNLIMITED, self.rules.owned_hold_s, hold)
        due = empty & (since >= hold)
        for row, (_serial, until) in list(self._gang_rows.items()):
            if until > world.now:
                due[row] = False
            else:
                del self._gang_rows[row]
        for state in self._clusters:
            for move in state.moves:
                due[move.new] = False
        for row in np.flatnonzero(due).tolist():
            self._give_back(world, row)

    def _give_back(self, world: World, row: int) -> None:
        self._clusters[int(world.nodes.cluster[row])].returned = world.now
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
        if rules.evict and world.now - state.bought >= rules.calm_s:
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
            if pods > self._purse(state):
                continue
            lost = float(counts[row][counts[row] > 0] @ reclamation[counts[row] > 0])
            rest = self._place(
                world, counts[row], open_rows, nodes.free[open_rows].copy(), nodes.tokens[open_rows].copy()
            )
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
                rest = self._place(
                    world, counts[olds[0]], open_rows, nodes.free[open_rows].copy(), nodes.tokens[open_rows].copy()
                )
                if not rest.any():
                    self._give_back(world, olds[0])
                # One delete per pass: the next one must see where these pods went.
                break
            total = counts[olds].sum(0)
            new = world.buy(cluster, kind, total @ world.trace.classes.request)
            state.moves.append(
                _Move(olds, [int(nodes.serial[row]) for row in olds], new, int(nodes.serial[new]), world.now + 600)
            )

    def _purse(self, state: _ClusterState) -> float:
        """What one move may evict: a share of what is kept, so that cheap moves come before dear ones."""
        return max(min(1.0, state.tokens), self.rules.spend * state.tokens)

    def _joint(
        self, world: World, ripe: list[int], hours: float, state: _ClusterState
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
                        self._give_back(world, row)
            state.moves = kept


__all__ = ["DESIGN", "Prototype", "Rules"]
