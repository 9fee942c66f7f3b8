"""A scheduler of the judge's own, after kube-scheduler's defaults: filters, then weighted scores.

Owns where a pod goes. Shares no code with the operator's mirror, so neither can hide the other's mistakes. Scores and
weights are those of the default profile: free share of cpu and memory (1), balance of both (1), PreferNoSchedule
taints (3, counted against the feasible node with the most), preferred node affinity (2, against the feasible node that
is preferred most). Default topology spread is not played: pods have no owners.
Gangs go whole into one rack, as a gang-aware plugin would put them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.quality.demand import NOBODY
from bench.quality.kinds import CPU, MEMORY, Flags, Floats, Ints

if TYPE_CHECKING:
    from bench.quality.world import World

EMPTIEST, FULLEST = "emptiest", "fullest"
SCORINGS = (EMPTIEST, FULLEST)
TAINT_WEIGHT = 3.0
AFFINITY_WEIGHT = 2.0
# A closed node carries one more soft taint; cordons are not used, so a pod that fits nowhere else reopens it.
CLOSED = 1000.0


class Scheduler:
    """Chooses nodes for one scoring; keeps no state of its own."""

    def __init__(self, scoring: str, strict_levels: bool = False) -> None:
        if scoring not in SCORINGS:
            raise ValueError(f"scoring {scoring!r} is unknown; {', '.join(SCORINGS)} are accepted")
        self.scoring, self.strict_levels = scoring, strict_levels

    def feasible(self, world: World, cls: int, cluster: int, free: Ints, gang: int = NOBODY) -> Flags:
        """Filters: Ready, of the cluster, enough room, risk allowed, token not taken."""
        nodes = world.nodes
        request = world.trace.classes.request[cls]
        fits = nodes.ready & ~nodes.cordoned & (nodes.cluster == cluster) & (free >= request).all(1)
        for row, permits in world.permits.items():
            if permits.get((cls, gang), 0) <= 0:
                fits[row] = False
        if fits.any():
            fits &= world.may_run[cls, nodes.kind]
            token = int(world.trace.classes.exclusive[cls])
            if token != NOBODY:
                fits &= ~nodes.tokens[:, token]
        return fits

    def scores(self, world: World, cls: int, free: Ints, rows: Ints) -> Floats:
        """Of feasible nodes, higher is better."""
        nodes = world.nodes
        request = world.trace.classes.request[cls]
        capacity = world.kinds.capacity[nodes.kind[rows]]
        used = 1 - (free[rows] - request)[:, (CPU, MEMORY)] / capacity[:, (CPU, MEMORY)]
        share = used.mean(1)
        score = 100 * (1 - share if self.scoring == EMPTIEST else share)
        score += 100 * (1 - np.abs(used[:, 0] - used[:, 1]) / 2)
        taints = nodes.taints[rows] + world.soft[cls, nodes.kind[rows]]
        most = taints.max()
        if most > 0:
            score -= taints * 10_000 if self.strict_levels else TAINT_WEIGHT * 100 * taints / most
        preferred = world.preferred[cls, nodes.kind[rows]]
        if preferred.any():
            score += AFFINITY_WEIGHT * 100 * preferred
        return score - CLOSED * 1000 * nodes.closed[rows]

    def choose(self, world: World, cls: int, cluster: int, pod: int, rack: int = NOBODY) -> int:
        """The node for one pod, NOBODY without one. Ties go to a node drawn by pod, as the real one draws."""
        free = world.nodes.free
        fits = self.feasible(world, cls, cluster, free)
        if rack != NOBODY:
            fits &= world.nodes.rack == rack
        rows = np.flatnonzero(fits)
        if not len(rows):
            return NOBODY
        if len(rows) == 1:
            return int(rows[0])
        draw = (world.nodes.serial[rows] * 2654435761 + pod * 40503) % 1009
        return int(rows[np.argmax(self.scores(world, cls, free, rows) + draw * 1e-6)])

    def choose_gang(self, world: World, pods: list[int], rack: int) -> list[int] | None:
        """Nodes for all members in one rack (a given one if some already run), fullest rack first; None without."""
        trace, nodes = world.trace, world.nodes
        cluster = int(trace.cluster[pods[0]])
        here = nodes.ready & (nodes.cluster == cluster)
        racks = [rack] if rack != NOBODY else np.unique(nodes.rack[here]).tolist()
        for each in racks:
            free = nodes.free.copy()
            chosen = []
            for pod in pods:
                cls = int(trace.cls[pod])
                fits = self.feasible(world, cls, cluster, free, int(trace.gang[pod])) & (nodes.rack == each)
                rows = np.flatnonzero(fits)
                if not len(rows):
                    break
                row = int(rows[np.argmax(self.scores(world, cls, free, rows))])
                free[row] -= trace.classes.request[cls]
                chosen.append(row)
            if len(chosen) == len(pods):
                return chosen
        return None
