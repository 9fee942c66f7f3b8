"""A small closed loop for clusters that report placement: machines boot, a scheduler binds pods, nodes are reported.

Time passes in cycles of ten seconds. Everything here is obvious on purpose; nothing is random.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from bigfleet.engine.batches import Conditions, DemandBatch, Stamp
from bigfleet.engine.placement import Load, Move
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind
from tests.strategies.builders import (
    CONFIGURED,
    CREATING,
    DRAINING,
    IDLE,
    SECOND,
    SPECULATIVE,
    START,
    MachineLine,
    batch,
    stamp_for,
)
from tests.strategies.placed import CountedLine, NodeLine, counted, reports, with_deadlines

CYCLE = 10 * SECOND
BOOT_CYCLES = 6


@dataclass(eq=False)
class Pod:
    row: CountedLine
    node: str | None = None
    since: int = 0


@dataclass(eq=False)
class Cluster:
    name: str
    pods: list[Pod] = field(default_factory=list)
    version: int = 1
    closing: dict[str, int] = field(default_factory=dict)


class Loop:
    """A fleet, its clusters and what the engine makes of them."""

    def __init__(
        self, engine: Any, machines: list[MachineLine], policy: Policy, *, emptiest_first: bool = False
    ) -> None:
        self.engine, self.policy = engine, policy
        self.machines = {line.id: line for line in machines}
        self.changed = set(self.machines)
        self.clusters: dict[str, Cluster] = {}
        self.timers: dict[str, int] = {}
        self.deadlines: dict[str, int] = {}
        self.ready: dict[str, int] = {}
        self.moves: list[Move] = []
        self.emptiest_first = emptiest_first
        self.now = START
        self.evicted = 0
        self.bought = 0
        self.result: Any = None

    # The cluster's half

    def start(self, line: CountedLine, count: int) -> None:
        cluster = self.clusters.setdefault(line.row.cluster, Cluster(line.row.cluster))
        cluster.pods += [Pod(line, since=self.now) for _ in range(count)]
        cluster.version += 1

    def stop(self, cluster: str, count: int, dice: random.Random) -> None:
        here = self.clusters[cluster]
        for pod in dice.sample(here.pods, min(count, len(here.pods))):
            here.pods.remove(pod)
        here.version += 1

    def _free(self, node: str) -> dict[str, int]:
        line = self.machines[node]
        assert line.shape is not None
        left = dict(line.shape.allocatable.items())
        for pod in self.clusters[line.cluster].pods:
            if pod.node == node:
                for name, amount in pod.row.row.min_unit.items():
                    left[name] = left.get(name, 0) - amount
        return left

    def _bind(self, cluster: Cluster) -> None:
        nodes = [id for id in self.ready if self.machines[id].cluster == cluster.name and id not in cluster.closing]
        left = {id: self._free(id) for id in nodes}
        waiting = [pod for pod in cluster.pods if pod.node is None]
        waiting.sort(key=lambda p: (-p.row.row.profile.priority, -sum(p.row.row.min_unit.values())))
        for pod in waiting:
            unit = pod.row.row.min_unit
            fitting = [id for id in nodes if all(left[id].get(n, 0) >= a for n, a in unit.items())]
            fitting = [id for id in fitting if self._may_run(pod, id)]
            if fitting:
                sign = -1 if self.emptiest_first else 1
                pod.node = min(fitting, key=lambda id: (sign * left[id].get("cpu", 0), id))
                for name, amount in unit.items():
                    left[pod.node][name] -= amount
                cluster.version += 1

    def _may_run(self, pod: Pod, node: str) -> bool:
        """Kubernetes' filters, and the rule that keeps high penalties off machines that are interrupted."""
        line = self.machines[node]
        shape, profile = line.shape, pod.row.row.profile
        assert shape is not None
        values = dict(shape.labels) | {
            "node.kubernetes.io/instance-type": shape.instance_type,
            "topology.kubernetes.io/zone": shape.zone,
        }
        return profile.matches(values.get) and not (shape.probability > 0 and profile.interruption_bucket > 5)

    def _rollup(self, cluster: Cluster) -> Any:
        lines: dict[tuple[str, str], list[Pod]] = {}
        for pod in cluster.pods:
            unit = str(sorted(pod.row.row.min_unit.items()))
            lines.setdefault((pod.row.row.profile.fingerprint, unit), []).append(pod)
        rows = []
        for members in lines.values():
            running = sum(pod.node is not None for pod in members)
            row = members[0].row.row.times(len(members))
            rows.append(CountedLine(row, len(members), running, len(members) - running))
        return counted(cluster.name, *rows, version=cluster.version)

    def _report(self, cluster: Cluster) -> Any:
        lines = []
        for id in sorted(self.ready):
            if self.machines[id].cluster != cluster.name:
                continue
            here = [pod for pod in cluster.pods if pod.node == id]
            used: dict[str, int] = {}
            for pod in here:
                for name, amount in pod.row.row.min_unit.items():
                    used[name] = used.get(name, 0) + amount
            prints = tuple(sorted({pod.row.row.profile.fingerprint for pod in here}))
            lines.append(
                NodeLine(
                    id,
                    empty=not here,
                    removable=bool(here) and self._removable(cluster, id),
                    priority=max((pod.row.row.profile.priority for pod in here), default=0),
                    used=used,
                    reclamation=0.005 * len(here),
                    closing_since=cluster.closing.get(id, 0),
                    version=cluster.version,
                    load=Load(profiles=prints),
                )
            )
        return reports(cluster.name, *lines)

    def _removable(self, cluster: Cluster, node: str) -> bool:
        others = [id for id in self.ready if id != node and id not in cluster.closing]
        left = {id: self._free(id) for id in others if self.machines[id].cluster == cluster.name}
        for pod in sorted((p for p in cluster.pods if p.node == node), key=lambda p: -sum(p.row.row.min_unit.values())):
            unit = pod.row.row.min_unit
            for id in sorted(left):
                if all(left[id].get(n, 0) >= a for n, a in unit.items()) and self._may_run(pod, id):
                    for name, amount in unit.items():
                        left[id][name] -= amount
                    break
            else:
                return False
        return True

    # One cycle

    def cycle(self) -> list[Any]:
        self.now += CYCLE
        self._pass_time()
        for cluster in self.clusters.values():
            self._bind(cluster)
        change = DemandBatch(
            rollups=[self._rollup(cluster) for cluster in self.clusters.values()],
            reports=[self._report(cluster) for cluster in self.clusters.values()],
        )
        lines = [self.machines[id] for id in sorted(self.changed)]
        machines = with_deadlines(batch(lines), self.deadlines) if lines else None
        self.changed = set()
        evictions = tuple((name, 60) for name in self.clusters)
        conditions = Conditions(moves=tuple(self.moves), evictions=evictions)
        self.result = self.engine.step(machines, change, self.policy, self.now, conditions)
        self.moves = [move for move in self.moves if move.old[0] not in self.result.aborted]
        for action in self.result.actions:
            self._do(action)
        return list(self.result.actions)

    def _set(self, id: str, state: int, cluster: str = "", stamp: Stamp | None = None) -> None:
        self.machines[id] = self.machines[id].to(state, cluster, stamp)
        self.changed.add(id)

    def _pass_time(self) -> None:
        for id, cycles in list(self.timers.items()):
            self.timers[id] = cycles - 1
            if cycles > 1:
                continue
            del self.timers[id]
            line = self.machines[id]
            if line.state in (CREATING, DRAINING):
                self._set(id, IDLE)
            elif line.state == CONFIGURED:
                self.ready[id] = self.now
                self.clusters[line.cluster].version += 1

    def _do(self, action: Any) -> None:
        kind, id = action.kind, action.machine
        if kind == ActionKind.PROVISION:
            self.bought += 1
            self._set(id, CREATING, action.cluster, Stamp(fingerprint=action.need.fingerprint if action.need else ""))
            self.timers[id] = BOOT_CYCLES
            self.deadlines[id] = self.now + 100 * CYCLE
        elif kind == ActionKind.BOOTSTRAP:
            self._set(id, CONFIGURED, action.cluster, self._stamp(action))
            self.timers[id] = 2
            self.deadlines[id] = self.now + 100 * CYCLE
        elif kind in (ActionKind.RECLAIM, ActionKind.PREEMPT):
            self._drain(id)
        elif kind == ActionKind.DELETE:
            self._set(id, SPECULATIVE)
        elif kind == ActionKind.CLOSE:
            self._closing(action.cluster)[id] = self.now
        elif kind == ActionKind.REOPEN:
            self._closing(action.cluster).pop(id, None)
        if action.replaces and not self._moving(id):
            self.moves.append(Move(action.cluster, action.replaces, id, self.now, self.now + 60 * CYCLE))

    def _moving(self, id: str) -> bool:
        return any(move.new == id for move in self.moves)

    def _closing(self, cluster: str) -> dict[str, int]:
        self.clusters[cluster].version += 1
        return self.clusters[cluster].closing

    def _stamp(self, action: Any) -> Stamp | None:
        if action.need is None:
            return None
        for pod in self.clusters[action.cluster].pods:
            if pod.row.row.profile.fingerprint == action.need.fingerprint:
                return stamp_for(pod.row.row.profile)
        return None

    def _drain(self, id: str) -> None:
        cluster = self.clusters[self.machines[id].cluster]
        for pod in cluster.pods:
            if pod.node == id:
                pod.node = None
                self.evicted += 1
        cluster.closing.pop(id, None)
        cluster.version += 1
        self.ready.pop(id, None)
        self.moves = [move for move in self.moves if id not in move.old]
        self._set(id, DRAINING, cluster.name)
        self.timers[id] = 1
        self.deadlines[id] = self.now + 60 * CYCLE

    def dollars(self) -> float:
        """What an hour of all that is not merely offered costs."""
        return sum(m.shape.price for m in self.machines.values() if m.shape and m.state != SPECULATIVE)
