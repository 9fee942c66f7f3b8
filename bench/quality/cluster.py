"""One cluster of the judge's world, as the simulator's site and the operator know clusters.

Keeps books only: which pods wait, which run where, what was closed, cordoned or tainted. Binding is the judge's
scheduler's; the operator's mirror learns of it through these books and decides nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from bench.quality.demand import NOBODY
from bench.quality.offers import NAMES, amounts, pod_kind, told
from bench.quality.world import World
from bigfleet.engine.batches import Shape
from bigfleet.model.group import group_string
from bigfleet.sim.world.pods import Node, PodKind, PodSet

Place = Callable[[str], tuple[int, int]]


class JudgedCluster:
    """`place` says of which kind and in which rack a machine is; `at` is told when something happens between cycles."""

    def __init__(self, world: World, number: int, place: Place, at: Callable[[], float]) -> None:
        self.name = f"c{number}"
        self.number = number
        self.overhead = amounts(world.kinds.overhead)
        self.scheduler = SimpleNamespace(risk_rule=True)
        self.nodes: dict[str, Node] = {}
        self.podsets: dict[str, PodSet] = {}
        self.rows: dict[str, int] = {}
        self.grew = False
        self._machines: dict[int, str] = {}
        self._world, self._place, self._at = world, place, at
        self._tolerant = (world.may_run & world.kinds.spot).any(1)
        self._kinds: dict[tuple[int, bool], PodKind] = {}
        # Pods of an object on a node, in the order in which they came: it is not always the oldest that ends.
        self._standing: dict[tuple[str, str], list[int]] = {}
        self._made = 0
        self._changed: tuple[set[str], set[str]] = (set(), set())

    # ---- what the judge's world does -------------------------------------------------------------------------------

    def waits(self, pod: int) -> None:
        podset = self._podset(pod)
        podset.waiting_count += 1
        self._changed[0].add(podset.name)

    def bound(self, pod: int, row: int) -> None:
        podset, node = self._podset(pod), self.nodes[self._machines[row]]
        podset.waiting_count -= 1
        podset.bound_count += 1
        podset.bound[node] = podset.bound.get(node, 0) + 1
        node.pods[podset] = node.pods.get(podset, 0) + 1
        self._standing.setdefault((podset.name, node.id), []).append(pod)
        self._changed[0].add(podset.name)

    def unbound(self, pod: int, row: int) -> None:
        podset, node = self._podset(pod), self.nodes[self._machines[row]]
        podset.bound_count -= 1
        standing = self._standing[podset.name, node.id]
        podset.ended.setdefault(node.id, []).append(standing.index(pod))
        standing.remove(pod)
        if not standing:
            del self._standing[podset.name, node.id]
        for holder, key in ((node.pods, podset), (podset.bound, node)):
            holder[key] -= 1  # type: ignore[index]
            if not holder[key]:  # type: ignore[index]
                del holder[key]  # type: ignore[arg-type]
        self._changed[0].add(podset.name)

    def _podset(self, pod: int) -> PodSet:
        trace = self._world.trace
        cls, gang = int(trace.cls[pod]), int(trace.gang[pod])
        name = f"k{cls}" if gang == NOBODY else f"g{gang}-k{cls}"
        podset = self.podsets.get(name)
        if podset is None:
            kind = self._kind(cls, gang != NOBODY)
            group = "" if gang == NOBODY else group_string(kind.topology_key, {"job": f"g{gang}"}, None, self.name)
            podset = PodSet(name, name, kind, group, True, self._made, bool(trace.classes.service[cls]))
            self.podsets[name] = podset
            self._made += 1
        return podset

    def _kind(self, cls: int, gang: bool) -> PodKind:
        if (cls, gang) not in self._kinds:
            self._kinds[cls, gang] = pod_kind(
                self._world.trace.classes, cls, gang, self._tolerant, bool(self._world.kinds.spot.any())
            )
        return self._kinds[cls, gang]

    def row_key(self, pod: int) -> tuple[str, str, str]:
        """Cluster, fingerprint and group of the need that counts it."""
        podset = self._podset(pod)
        return self.name, told(podset.kind).fingerprint, podset.group

    # ---- what the site does ----------------------------------------------------------------------------------------

    def join(self, machine: str, shape: Shape) -> None:
        world, (kind, rack) = self._world, self._place(machine)
        world.now = self._at()
        self.rows[machine] = row = world.join(self.number, kind, rack)
        self._machines[row] = machine
        total = tuple(shape.allocatable.minus(self.overhead).get(name) for name in NAMES)
        self.nodes[machine] = Node(machine, shape, shape.node_labels(), total)
        self._changed[1].add(machine)

    def leave(self, machine: str, cause: str, now: int) -> None:
        if machine not in self.nodes:
            return
        self._world.now = self._at()
        row = self.rows[machine]
        self._world.leave(row)
        del self.nodes[machine], self._machines[row], self.rows[machine]
        self._changed[1].add(machine)

    def evict(self, machine: str, cause: str, now: int) -> int:
        self._world.now = self._at()
        return self._world.evict(self.rows[machine]) if machine in self.rows else 0

    def cordon(self, machine: str, cordoned: bool) -> None:
        if machine in self.nodes:
            self.nodes[machine].cordoned = cordoned
            self._bar(machine)

    def keep(self, machine: str, kept_for: str) -> None:
        """A hard taint on a node that has just come."""
        if machine in self.nodes:
            self.nodes[machine].kept_for = kept_for
            self._bar(machine)

    def reserve(self, machine: str, pods: dict[str, int]) -> None:
        """So many pods of each of these objects were given what lets them on the kept node."""
        if machine in self.nodes:
            permits = {}
            for name, count in pods.items():
                head, _, kind = name.rpartition("k")
                permits[int(kind), int(head[1:-1]) if head else NOBODY] = count
            self._world.permits[self.rows[machine]] = permits

    def _bar(self, machine: str) -> None:
        node, row = self.nodes[machine], self.rows[machine]
        self._world.nodes.cordoned[row] = node.cordoned or bool(node.closing_since)
        if node.kept_for:
            self._world.permits.setdefault(row, {})
        else:
            self._world.permits.pop(row, None)
        self._changed[1].add(machine)

    def close(self, machine: str, since: int) -> None:
        if machine not in self.nodes:
            return
        self.nodes[machine].closing_since = since
        if since:
            self._world.close(self.rows[machine])
        else:
            self._world.reopen(self.rows[machine])
        self._bar(machine)

    def closing(self) -> list[str]:
        return sorted(node.id for node in self.nodes.values() if node.closing_since)

    def set_level(self, machine: str, level: int) -> None:
        if machine in self.rows:
            self._world.nodes.taints[self.rows[machine]] = level

    def is_empty(self, machine: str) -> bool:
        node = self.nodes.get(machine)
        return node is None or not node.pods

    def bind(self, now: int) -> None:
        """The judge's scheduler has its own turn, at the beginning of every cycle."""

    # ---- what the operator reads -----------------------------------------------------------------------------------

    def track_changes(self) -> None:
        self._changed = (set(self.podsets), set(self.nodes))

    def has_changes(self) -> bool:
        return any(self._changed)

    def take_changes(self) -> tuple[list[str], list[str]]:
        sets, nodes = (sorted(each) for each in self._changed)
        self._changed = (set(), set())
        for name in sets:
            # A gang whose work is over never comes back.
            if not self.podsets[name].live and self.podsets[name].group:
                del self.podsets[name]
        return sets, nodes
