"""The rules of the next engine in plain Python: coming machines (S1), value of a purchase (S2), reclaim of empty nodes
(S5), levels of fill (C7); closing and an eviction budget (S6) are in `consolidation`.

Owns a policy whose every number can be turned, so that rules are judged before the engine has them. It sees the nodes
as they are, as a mirror would. Must never look ahead: it reads no pod that has not arrived and no work that is left.
"""

from __future__ import annotations

import numpy as np

from bench.quality.consolidation import Consolidation
from bench.quality.demand import NOBODY
from bench.quality.kinds import UNLIMITED, Floats, Ints
from bench.quality.purchase import Buyer
from bench.quality.room import place, queued
from bench.quality.rules import Rules
from bench.quality.world import World


class Prototype:
    """One shard for all clusters of a world."""

    def __init__(self, world: World, rules: Rules | None = None, name: str = "prototype", shared: bool = True) -> None:
        self.name, self.rules, self.shared = name, rules or Rules(), shared
        self.buyer = Buyer(world.trace.classes, world.kinds, self.rules.purchase, world.may_run)
        self._next_pass = 0.0
        self._below = np.zeros(len(world.nodes.alive))
        self._gang_until: dict[int, float] = {}
        self._gang_rows: dict[int, tuple[int, float]] = {}
        self.penalty = self.buyer.penalty
        self.moves = Consolidation(world, self.rules, self.buyer, self._stock, shared)
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
        self.moves.finish(world, waiting)
        for cluster, pods in waiting.items():
            self._supply(world, cluster, pods)
        self._reclaim(world, waiting)
        if world.now >= self._next_pass:
            self._next_pass = world.now + self.rules.every_s
            if self.rules.levels:
                world.taint(self._levels(world))
            if self.rules.close:
                self.moves.earn(world)
                for cluster in range(world.trace.clusters):
                    if cluster not in waiting:
                        self.moves.run(world, cluster)

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
            counts = queued(world, plain, coming, free, tokens)
        else:
            counts = place(world, self.buyer.by_value, counts, coming, free, tokens)
        if not counts.any():
            return
        for each in self.buyer.plan(counts, self._stock(world, cluster)):
            rack = NOBODY if not world.racks else self._free_rack(world)
            self.moves.clusters[cluster].bought = world.now
            world.buy(cluster, each.kind, each.carries @ trace.classes.request, rack)

    def _stock(self, world: World, cluster: int) -> Ints:
        """What may be bought; without sharing, a cluster has its part of what is reserved and no more."""
        if self.shared or world.trace.clusters == 1:
            return world.stock
        mine = world.nodes.alive & (world.nodes.cluster == cluster)
        held = np.bincount(world.nodes.kind[mine], minlength=len(world.kinds))
        share = world.kinds.limit // world.trace.clusters
        return np.where(world.kinds.limit < UNLIMITED, np.maximum(0, share - held), world.stock)

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
        for row, (serial, until) in list(self._gang_rows.items()):
            if until > world.now and nodes.serial[row] == serial:
                due[row] = False
            else:
                del self._gang_rows[row]
        due[self.moves.coming()] = False
        for row in np.flatnonzero(due).tolist():
            self.moves.give_back(world, row)

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
