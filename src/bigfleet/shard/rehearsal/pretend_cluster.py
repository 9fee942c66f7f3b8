"""A cluster of pods and nodes that do not exist, read by the operator's own mirror: pure, without clock or sockets.

Every machine that is Configured is a node at once. A scheduler of a few lines binds waiting pods, by priority, to nodes
the operator would rather fill, emptiest first; a gang only where all of it has room. Which machines there are is the
shard's business, and what is told of pods and nodes is the mirror's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint, tolerates
from bigfleet.operator.core.mirror import facts
from bigfleet.operator.core.mirror.mirror import Findings, Mirror
from bigfleet.operator.core.mirror.waiting import PATIENCE


@dataclass(slots=True)
class Node:
    """A node and what is left of it."""

    machine: str
    labels: dict[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...]
    cordoned: bool = False
    closing_since: int = 0
    level: int = 0
    lost: bool = False
    pods: dict[str, Resources] = field(default_factory=dict)

    @property
    def left(self) -> Resources:
        left = self.allocatable
        for requests in self.pods.values():
            left = left.minus(requests)
        return left

    def takes(self, shape: facts.PodShape) -> bool:
        if self.cordoned or self.closing_since or self.lost or not self.left.covers(shape.requests):
            return False
        return tolerates(shape.tolerations, self.taints) and shape.profile.matches(self.labels.get)

    def seen(self) -> facts.NodeSeen:
        labels = tuple(sorted(self.labels.items()))
        return facts.NodeSeen(
            self.machine,
            self.allocatable,
            labels,
            self.taints,
            machine=self.machine,
            cordoned=self.cordoned,
            closing_since=self.closing_since,
        )


class PretendCluster:
    """What one cluster runs and where; `look` lets time pass in it."""

    def __init__(self) -> None:
        self.mirror = Mirror(patience=PATIENCE)
        self.nodes: dict[str, Node] = {}
        self._shapes: dict[str, facts.PodShape] = {}
        # Pods by name: their workload and the machine they run on.
        self._pods: dict[str, tuple[str, str]] = {}
        self._news: list[facts.Delta] = []
        self._made = 0

    @property
    def running(self) -> int:
        return sum(1 for _, machine in self._pods.values() if machine)

    @property
    def waiting(self) -> int:
        return len(self._pods) - self.running

    # ------------------------------------------------------------------------------------------------ what it hears

    def want(self, workloads: Mapping[str, tuple[facts.PodShape, int]], now: int) -> None:
        """Everything that is to run from now on, by name."""
        for name in sorted(self._shapes.keys() - workloads.keys()):
            for uid in self._of(name):
                self._remove(uid)
            self._news.append(facts.RequestGone(name))
            del self._shapes[name]
        for name, (shape, count) in workloads.items():
            before = self._of(name) if name in self._shapes else []
            self._shapes[name] = shape
            self._news.append(facts.RequestSeen(name, shape, count))
            # As a ReplicaSet does: of too many those that wait go first, then the youngest.
            staying = sorted(before, key=lambda uid: self._pods[uid][1] == "")
            for uid in staying[count:]:
                self._remove(uid)
            for _ in range(count - len(before)):
                self._add(name, now)

    def join(self, machine: str, labels: Mapping[str, str], allocatable: Resources, taints: tuple[Taint, ...]) -> None:
        """The machine is Configured: its node is there and ready."""
        if machine not in self.nodes:
            self.nodes[machine] = Node(machine, {**labels, HOSTNAME_LABEL: machine}, allocatable, taints)
            self._news.append(self.nodes[machine].seen())

    def leave(self, machine: str, now: int) -> None:
        """The node is gone, and with it what ran there; controllers make it anew."""
        if machine in self.nodes:
            self.empty(machine, now)
            del self.nodes[machine]
            self._news.append(facts.NodeGone(machine))

    def empty(self, machine: str, now: int) -> None:
        """Its pods are evicted."""
        node = self.nodes.get(machine)
        for uid in sorted(node.pods) if node is not None else ():
            name, _ = self._pods[uid]
            self._remove(uid)
            self._add(name, now)

    def lose(self, machine: str) -> None:
        if machine in self.nodes:
            self.nodes[machine].lost = True
        self.mirror.lost(machine)

    def cordon(self, machine: str, on: bool) -> None:
        if machine in self.nodes:
            self.nodes[machine].cordoned = on
            self._news.append(self.nodes[machine].seen())

    def close(self, machine: str, since: int) -> None:
        """It takes no new pods from `since` on; 0 opens it again."""
        if machine in self.nodes:
            self.nodes[machine].closing_since = since
            self._news.append(self.nodes[machine].seen())

    def reopen_all(self) -> None:
        for machine, node in self.nodes.items():
            if node.closing_since:
                self.close(machine, 0)

    # --------------------------------------------------------------------------------------------------- what it does

    def look(self, now: int) -> Findings:
        """Bind what can be bound, and look at the cluster once."""
        self._schedule(now)
        found = self._settle(now)
        for machine in found.reopen:
            self.close(machine, 0)
        for machine in found.close:
            self.close(machine, now)
        if found.reopen:
            self._schedule(now)
            found = self._settle(now)
        for machine, level in self.mirror.levels():
            if machine in self.nodes:
                self.nodes[machine].level = level
        return found

    def _settle(self, now: int) -> Findings:
        self.mirror.apply(self._news)
        self._news = []
        return self.mirror.settle(now)

    def _schedule(self, now: int) -> None:
        waiting = [uid for uid, (_, machine) in self._pods.items() if not machine]
        gangs: dict[str, list[str]] = {}
        for uid in sorted(waiting, key=self._precedence):
            shape = self._shape(uid)
            if shape.profile.same is not None and shape.group:
                gangs.setdefault(shape.group, []).append(uid)
            elif (node := self._room(shape, lambda node: True)) is not None:
                self._bind(uid, node, now)
        for members in gangs.values():
            self._schedule_gang(members, now)

    def _schedule_gang(self, members: list[str], now: int) -> None:
        """All of it in one domain: where the rest of it runs, else the first where all has room."""
        same = self._shape(members[0]).profile.same
        assert same is not None
        group = self._shape(members[0]).group
        home = {
            self.nodes[machine].labels.get(same.key)
            for _, (name, machine) in self._pods.items()
            if machine and self._shapes[name].group == group
        }
        domains = home or {node.labels.get(same.key) for node in self.nodes.values()}
        for domain in sorted(each for each in domains if each is not None):
            placed: list[tuple[str, Node]] = []
            for uid in members:
                node = self._room(self._shape(uid), lambda node: node.labels.get(same.key) == domain)  # noqa: B023
                if node is None:
                    break
                node.pods[uid] = self._shape(uid).requests
                placed.append((uid, node))
            if len(placed) == len(members):
                for uid, node in placed:
                    self._bind(uid, node, now)
                return
            for uid, node in placed:
                del node.pods[uid]

    def _room(self, shape: facts.PodShape, admitted: Callable[[Node], bool]) -> Node | None:
        fits = [node for node in self.nodes.values() if admitted(node) and node.takes(shape)]
        return min(fits, key=lambda node: (node.level, len(node.pods), node.machine), default=None)

    def _bind(self, uid: str, node: Node, now: int) -> None:
        name, _ = self._pods[uid]
        self._pods[uid] = (name, node.machine)
        node.pods[uid] = self._shapes[name].requests
        self._news.append(facts.PodSeen(uid, self._shapes[name], node.machine, now, name))

    # --------------------------------------------------------------------------------------------------------- details

    def _of(self, name: str) -> list[str]:
        return [uid for uid, (owner, _) in self._pods.items() if owner == name]

    def _shape(self, uid: str) -> facts.PodShape:
        return self._shapes[self._pods[uid][0]]

    def _precedence(self, uid: str) -> tuple[int, str]:
        return -self._shape(uid).profile.priority, uid

    def _add(self, name: str, now: int) -> None:
        self._made += 1
        uid = f"{name}/{self._made:06}"
        self._pods[uid] = (name, "")
        self._news.append(facts.PodSeen(uid, self._shapes[name], "", now, name))

    def _remove(self, uid: str) -> None:
        _, machine = self._pods.pop(uid)
        if machine:
            self.nodes[machine].pods.pop(uid, None)
        self._news.append(facts.PodGone(uid))
