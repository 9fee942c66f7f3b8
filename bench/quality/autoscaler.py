"""The rival users run now: one autoscaler per cluster that buys for pending pods the cheapest type that fits them
together, and consolidates single nodes.

Owns that rival only. Pending pods are packed, largest first, onto nodes-to-be as long as some type holds their sum;
each becomes the cheapest type that does. A node is deleted when its pods have room elsewhere and replaced when one
cheaper machine holds them, one node at a time, once nothing happened on it for the hold.
"""

from __future__ import annotations

import numpy as np

from bench.quality.demand import NOBODY
from bench.quality.kinds import UNLIMITED, Flags, Ints
from bench.quality.world import World

HOLDS_S = (0.0, 300.0, 1800.0)
_TRIED = 10
_PASS_S = 30.0
_CURATED = 1.25


class Autoscaler:
    """One for each cluster of the world, side by side; each has its share of what is reserved."""

    def __init__(self, world: World, hold_s: float, name: str = "autoscaler") -> None:
        self.name, self.hold_s = name, hold_s
        kinds = world.kinds
        plain = (world.trace.classes.request[:, 2] == 0)[:, None] & kinds.gpu[None, :]
        self._may = curated(world) & ~plain
        self._price = np.where(kinds.limit < UNLIMITED, 0.0, kinds.price)
        share = np.where(kinds.limit < UNLIMITED, kinds.limit // world.trace.clusters, UNLIMITED)
        self._left = np.tile(share, (world.trace.clusters, 1))
        self._replacing: dict[int, tuple[int, int, int, int]] = {}
        self._changed = np.zeros(len(world.nodes.alive))
        self._seen = np.zeros(len(world.nodes.alive), np.int64)
        self._passed = 0.0

    def decide(self, world: World) -> None:
        waiting: dict[int, list[int]] = {}
        for pod in world.waiting:
            waiting.setdefault(int(world.trace.cluster[pod]), []).append(pod)
        for cluster, pods in waiting.items():
            self._provision(world, cluster, pods)
        self._note_changes(world)
        self._finish(world)
        if world.now >= self._passed:
            self._passed = world.now + _PASS_S
            for cluster in range(world.trace.clusters):
                self._delete_empty(world, cluster)
                if cluster not in waiting and cluster not in self._replacing:
                    self._consolidate(world, cluster)

    # ---- buying ----------------------------------------------------------------------------------------------------

    def _provision(self, world: World, cluster: int, pods: list[int]) -> None:
        trace, nodes = world.trace, world.nodes
        coming = np.flatnonzero(nodes.alive & ~nodes.ready & (nodes.cluster == cluster))
        free, tokens = nodes.free[coming].copy(), nodes.tokens[coming].copy()
        groups: dict[int, list[int]] = {}
        for pod in pods:
            groups.setdefault(int(trace.gang[pod]), []).append(pod)
        for gang, members in sorted(groups.items()):
            inside = np.ones(len(coming), np.bool_)
            if gang != NOBODY:
                # A gang's machines share a rack; without enough room in one rack that is coming, all are bought anew.
                missing, room = members, free
                for rack in np.unique(nodes.rack[coming]).tolist():
                    room, held = free.copy(), tokens.copy()
                    inside = nodes.rack[coming] == rack
                    missing = self._unplaced(world, members, coming, room, held, inside)
                    if not missing:
                        break
                if not missing:
                    free = room
                    continue
                self._buy(world, cluster, self._bins(world, members), self._rack(world, members))
                continue
            rest = self._unplaced(world, members, coming, free, tokens, inside)
            self._buy(world, cluster, self._bins(world, rest), NOBODY)

    def _unplaced(
        self, world: World, pods: list[int], rows: Ints, free: Ints, tokens: Flags, inside: Flags
    ) -> list[int]:
        classes, kind = world.trace.classes, world.nodes.kind[rows]
        rest = []
        for pod in self._largest_first(world, pods):
            cls = int(world.trace.cls[pod])
            fits = inside & (free >= classes.request[cls]).all(1) & world.may_run[cls, kind]
            token = int(classes.exclusive[cls])
            if token != NOBODY:
                fits &= ~tokens[:, token]
            found = np.flatnonzero(fits)
            if not len(found):
                rest.append(pod)
                continue
            free[found[0]] -= classes.request[cls]
            if token != NOBODY:
                tokens[found[0], token] = True
        return rest

    def _largest_first(self, world: World, pods: list[int]) -> list[int]:
        request = world.trace.classes.request[world.trace.cls[pods]]
        return [pods[place] for place in np.lexsort((-request[:, 1], -request[:, 0], -request[:, 2])).tolist()]

    def _bins(self, world: World, pods: list[int]) -> list[tuple[Ints, Flags]]:
        """Nodes-to-be: the sum of their pods, and the types that hold it and may."""
        classes, capacity = world.trace.classes, world.kinds.capacity
        sums: list[Ints] = []
        types: list[Flags] = []
        taken: list[set[int]] = []
        for pod in self._largest_first(world, pods):
            cls = int(world.trace.cls[pod])
            request, token = classes.request[cls], int(classes.exclusive[cls])
            for place in range(len(sums)):
                if token != NOBODY and token in taken[place]:
                    continue
                able = types[place] & self._may[cls] & (capacity >= sums[place] + request).all(1)
                if able.any():
                    sums[place] = sums[place] + request
                    types[place] = able
                    taken[place].add(token)
                    break
            else:
                able = self._may[cls] & (capacity >= request).all(1)
                if able.any():
                    sums.append(request.copy())
                    types.append(able)
                    taken.append({token})
        return list(zip(sums, types, strict=True))

    def _rack(self, world: World, members: list[int]) -> int:
        """The rack the gang runs in, else the first with room for as many nodes as members."""
        gang = world.trace.gang[members[0]]
        running = np.flatnonzero((world.trace.gang == gang) & (world.node_of != NOBODY))
        if len(running):
            return int(world.nodes.rack[world.node_of[running[0]]])
        used = np.bincount(world.nodes.rack[world.nodes.alive & (world.nodes.rack >= 0)], minlength=1)
        free = np.flatnonzero(used + len(members) <= world.racks)
        return int(free[0]) if len(free) else len(used)

    def _buy(self, world: World, cluster: int, bins: list[tuple[Ints, Flags]], rack: int) -> None:
        for room, types in bins:
            able = types & (world.stock > 0) & (self._left[cluster] > 0)
            cost = np.where(able, self._price, np.inf)
            kind = int(np.lexsort((np.arange(len(cost)), cost))[0])
            place = rack
            if world.racks and rack == NOBODY:
                used = np.bincount(world.nodes.rack[world.nodes.alive & (world.nodes.rack >= 0)], minlength=1)
                place = int(np.argmax(np.append(used, 0) < world.racks))
            self._left[cluster, kind] -= 1
            world.buy(cluster, kind, room, place)

    # ---- consolidating ---------------------------------------------------------------------------------------------

    def _note_changes(self, world: World) -> None:
        size = len(world.nodes.alive)
        if len(self._changed) < size:
            self._changed = np.concatenate([self._changed, np.zeros(size - len(self._changed))])
            self._seen = np.concatenate([self._seen, np.zeros(size - len(self._seen), np.int64)])
        mark = world.nodes.serial * 1009 + (world.nodes.units * (np.arange(world.nodes.units.shape[1]) + 1)).sum(1)
        moved = mark != self._seen
        self._changed[moved] = world.now
        self._seen = mark

    def _give_back(self, world: World, row: int) -> None:
        self._left[world.nodes.cluster[row], world.nodes.kind[row]] += 1
        world.give_back(row)

    def _quiet(self, world: World, cluster: int) -> Flags:
        nodes = world.nodes
        mine = nodes.ready & (nodes.cluster == cluster)
        return mine & (world.now - np.maximum(self._changed, nodes.ready_at) >= self.hold_s)

    def _delete_empty(self, world: World, cluster: int) -> None:
        for row in np.flatnonzero(self._quiet(world, cluster) & (world.nodes.pods == 0)).tolist():
            if self._replacing.get(cluster, (NOBODY,) * 4)[2] != row:
                self._give_back(world, row)

    def _consolidate(self, world: World, cluster: int) -> None:
        nodes, trace = world.nodes, world.trace
        rows = np.flatnonzero(self._quiet(world, cluster) & (nodes.pods > 0))
        rows = rows[np.argsort(nodes.pods[rows], kind="stable")][:_TRIED]
        for row in rows.tolist():
            pods = sorted(world.on_node[row])
            if np.isinf(trace.classes.reclamation[trace.cls[pods]]).any() or (trace.gang[pods] != NOBODY).any():
                continue
            others = np.flatnonzero(nodes.ready & (nodes.cluster == cluster))
            others = others[others != row]
            free, tokens = nodes.free[others].copy(), nodes.tokens[others].copy()
            rest = self._unplaced(world, pods, others, free, tokens, np.ones(len(others), np.bool_))
            if not rest:
                self._give_back(world, row)
                return
            bins = self._bins(world, rest)
            if len(bins) != 1:
                continue
            able = bins[0][1] & (world.stock > 0) & (self._left[cluster] > 0)
            cost = np.where(able, self._price, np.inf)
            kind = int(np.argmin(cost))
            if cost[kind] < self._price[nodes.kind[row]]:
                self._left[cluster, kind] -= 1
                new = world.buy(cluster, kind, bins[0][0])
                self._replacing[cluster] = (row, int(nodes.serial[row]), new, int(world.nodes.serial[new]))
                return

    def _finish(self, world: World) -> None:
        nodes = world.nodes
        for cluster, (old, old_serial, new, new_serial) in list(self._replacing.items()):
            lost = not nodes.alive[new] or nodes.serial[new] != new_serial
            if lost or nodes.ready[new]:
                del self._replacing[cluster]
                if not lost and nodes.alive[old] and nodes.serial[old] == old_serial:
                    self._give_back(world, old)


def curated(world: World) -> Flags:
    """(class, kind): types an owner would leave in the list: room for the pod at most a quarter dearer than the best.

    Without it the largest types, which hold most pods together, win in this catalogue at thrice the price of a core.
    """
    kinds, classes = world.kinds, world.trace.classes
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(classes.request[:, None, :] / kinds.capacity[None, :, :], nan=0.0, posinf=np.inf).max(2)
    cost = np.where(world.may_run, share * kinds.price, np.inf)
    limited = kinds.limit < UNLIMITED
    return world.may_run & ((cost <= _CURATED * cost[:, ~limited].min(1, keepdims=True)) | limited)
