"""A Kubernetes cluster as far as capacity goes: pods that wait, nodes that hold them, controllers that recreate them.

Pods of one object are interchangeable, so they are counted, never listed: a cluster of 20,000 pods costs as much as its
objects and nodes. Binding is the scheduler's; a gang goes to the domain that holds the most of it and stays there.
Knows nothing about shards and sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from bigfleet.engine.batches import Rollup
from bigfleet.engine.batches import Shape as MachineShape
from bigfleet.model.group import group_string
from bigfleet.model.resources import Resources
from bigfleet.sim.scenario.scenario import Scoring
from bigfleet.sim.world.demand_rows import DemandRows
from bigfleet.sim.world.pods import Kinds, Node, PodKind, PodSet, room
from bigfleet.sim.world.replica_sets import leavers
from bigfleet.sim.world.roomy_nodes import RoomyNodes
from bigfleet.sim.world.scheduling import Scheduler, Slot


class Watcher(Protocol):
    """Whom the cluster tells what happens to pods."""

    def pods_bound(self, cluster: str, priority_class: str, waited: int, count: int) -> None: ...
    def pods_waited(self, cluster: str, priority: int, since: int, until: int, count: int) -> None: ...
    def pods_interrupted(self, cluster: str, priority_class: str, cause: str, count: int) -> None: ...


class Cluster:
    """Pods and nodes of one cluster."""

    def __init__(
        self,
        name: str,
        kinds: Kinds,
        watcher: Watcher,
        *,
        managed: bool = True,
        request_per_pod: bool = True,
        overhead: Resources = Resources.ZERO,
        scoring: Scoring = Scoring.LEAST_ALLOCATED,
        risk_rule: bool = True,
    ) -> None:
        self.name = name
        self.scheduler = Scheduler(kinds.resources, scoring, risk_rule=risk_rule)
        self.podsets: dict[str, PodSet] = {}
        self.nodes: dict[str, Node] = {}
        self.live: dict[str, int] = {}
        # Per class the lowest and highest priority of its pods.
        self.priorities: dict[str, tuple[int, int]] = {}
        self.running: dict[str, int] = {}
        self.used = [0] * len(kinds.resources)
        self.capacity = [0] * len(kinds.resources)
        self.dirty = True
        self.grew = False
        self._kinds = kinds
        self._watcher = watcher
        self._managed = managed
        self._request_per_pod = request_per_pod
        self.overhead = overhead
        self._rows = DemandRows(kinds)
        self._waiting: dict[str, PodSet] = {}
        self._roomy = RoomyNodes(self.nodes, self.podsets)
        # Nodes whose pods changed since they were last reported, and those reported to have none.
        self._touched: set[str] = set()
        self._reported_empty: set[str] = set()
        self._created = 0
        # Objects and nodes that changed, for whoever reads the cluster as an operator does; nobody else pays for it.
        self._changed: tuple[set[str], set[str]] | None = None
        self.on_all_bound: Callable[[PodSet, int], None] = lambda podset, now: None
        self.on_lost: Callable[[PodSet], None] = lambda podset: None

    # ------------------------------------------------------------------------------------------------------------ pods

    def create(
        self, name: str, workload: str, kind: PodKind, replicas: int, now: int, *, service: bool = True
    ) -> PodSet:
        """A new object with so many pods, all waiting."""
        group = group_string(kind.topology_key, {"app": name}, None, self.name) if kind.topology_key else ""
        podset = PodSet(name, workload, kind, group, self._managed, self._created, service)
        self._created += 1
        self.podsets[name] = podset
        self._note(podset=name)
        self._roomy.of(kind)
        self._add_waiting(podset, replicas, now)
        return podset

    def scale(self, name: str, replicas: int, now: int) -> None:
        """Another number of pods: new ones wait; of too many those that wait go first, then those a ReplicaSet ends."""
        podset = self.podsets[name]
        surplus = podset.live - replicas
        if surplus < 0:
            self._add_waiting(podset, -surplus, now)
            return
        gone = min(surplus, podset.waiting_count)
        self._drop_waiting(podset, gone, now)
        if surplus > gone:
            self._finish(podset, leavers(podset, surplus - gone, now))

    def delete(self, name: str, now: int) -> None:
        podset = self.podsets[name]
        self._drop_waiting(podset, podset.waiting_count, now)
        self._finish(podset, podset.bound.items())
        del self.podsets[name]
        self._note(podset=name)

    def replace_oldest(self, name: str, count: int, now: int) -> None:
        """A rolling update's step: so many new pods, and as many of the oldest bound ones go."""
        podset = self.podsets[name]
        count = min(count, podset.bound_count)
        self._add_waiting(podset, count, now)
        self.bind(now)
        for node, held in list(podset.bound.items()):
            taken = min(held, count)
            self._unbind(podset, node, taken)
            self._demand(podset, -taken)
            self.live[podset.kind.priority_class] -= taken
            count -= taken
            if not count:
                break

    # ----------------------------------------------------------------------------------------------------------- nodes

    def join(self, machine: str, shape: MachineShape) -> None:
        """A node became Ready."""
        total = self._kinds.vector(shape.allocatable.minus(self.overhead))
        node = self.nodes[machine] = Node(machine, shape, self._roomy.attributes(shape), total)
        self.capacity = [have + more for have, more in zip(self.capacity, total, strict=True)]
        self._roomy.offer(node)
        self._touched.add(machine)
        self._note(node=machine)

    def leave(self, machine: str, cause: str, now: int) -> None:
        """A node is gone; pods that were still on it are interrupted."""
        node = self.nodes.get(machine)
        if node is None:
            return
        self.evict(machine, cause, now)
        del self.nodes[machine]
        self._note(node=machine)
        self.capacity = [have - less for have, less in zip(self.capacity, node.total, strict=True)]
        self._roomy.forget(machine)
        self._touched.discard(machine)
        self._reported_empty.discard(machine)

    def cordon(self, machine: str, cordoned: bool) -> None:
        if machine in self.nodes:
            self.nodes[machine].cordoned = cordoned
            self._note(node=machine)

    def close(self, machine: str, since: int) -> None:
        """New pods go elsewhere while there is an elsewhere; 0 opens the node again."""
        if machine in self.nodes:
            self.nodes[machine].closing_since = since
            self._note(node=machine)

    def keep(self, machine: str, kept_for: str) -> None:
        """Nobody may come to the node until it is kept for nobody."""
        if machine in self.nodes:
            self.nodes[machine].kept_for, self.nodes[machine].reserved = kept_for, {}
            self._note(node=machine)

    def reserve(self, machine: str, pods: Mapping[str, int]) -> None:
        """So many pods of each of these objects tolerate from now on that the node is kept."""
        if machine in self.nodes:
            self.nodes[machine].reserved = dict(pods)

    def closing(self) -> list[str]:
        return sorted(node.id for node in self.nodes.values() if node.closing_since)

    def set_level(self, machine: str, level: int) -> None:
        """So many soft taints for how little the node is used."""
        if machine in self.nodes:
            self.nodes[machine].level = level

    def evict(self, machine: str, cause: str, now: int) -> int:
        """All pods leave the node; controllers create theirs again, bare pods are gone."""
        node = self.nodes.get(machine)
        if node is None:
            return 0
        total = 0
        for podset, count in list(node.pods.items()):
            total += count
            self._unbind(podset, node, count)
            self._watcher.pods_interrupted(self.name, podset.kind.priority_class, cause, count)
            if podset.managed:
                self._wait(podset, count, now)
                if not self._request_per_pod:
                    self._demand(podset, count, pending=True)
                self.on_lost(podset)
            else:
                self._demand(podset, -count)
                self.live[podset.kind.priority_class] -= count
        return total

    def waiting(self) -> Iterable[PodSet]:
        """Objects with pods that wait."""
        return self._waiting.values()

    def matches(self, kind: PodKind, node: Node) -> bool:
        """Whether labels and taints let such a pod on the node."""
        return self._roomy.matches(kind, node)

    def is_empty(self, machine: str) -> bool:
        node = self.nodes.get(machine)
        return node is None or not node.pods

    def emptied_or_filled(self) -> list[tuple[str, bool]]:
        """Nodes that became empty (True) or no longer are, since this was last asked, in order of id."""
        found = []
        for machine in sorted(self._touched):
            empty = not self.nodes[machine].pods
            if empty != (machine in self._reported_empty):
                found.append((machine, empty))
        self._touched.clear()
        self._reported_empty.difference_update(machine for machine, _ in found)
        self._reported_empty.update(machine for machine, empty in found if empty)
        return found

    def report_nodes_anew(self) -> None:
        """Whoever hears the next report knows nothing yet."""
        self._touched.update(self._reported_empty)
        self._reported_empty.clear()

    def track_changes(self) -> None:
        """Somebody will ask what changed, from now on and for everything that is there."""
        self._changed = (set(self.podsets), set(self.nodes))

    def has_changes(self) -> bool:
        return self._changed is not None and any(self._changed)

    def take_changes(self) -> tuple[list[str], list[str]]:
        """Objects and nodes that came, changed or went since this was last asked, in order of name."""
        assert self._changed is not None, "nobody said that changes would be asked for"
        sets, nodes = (sorted(each) for each in self._changed)
        self._changed = (set(), set())
        return sets, nodes

    def _note(self, *, podset: str = "", node: str = "") -> None:
        if self._changed is not None:
            if podset:
                self._changed[0].add(podset)
            if node:
                self._changed[1].add(node)

    # --------------------------------------------------------------------------------------------------------- binding

    def bind(self, now: int) -> None:
        """The scheduler's turn: every waiting pod that fits somewhere is placed."""
        if not self._waiting:
            return
        order = sorted(self._waiting.values(), key=lambda each: (-each.kind.priority, each.sequence))
        for podset in order:
            self._place(podset, now)

    def _slots(self, podset: PodSet) -> list[Slot]:
        """Nodes that take such a pod, in order of id; those without room are not asked again."""
        roomy, kind = self._roomy.of(podset.kind), podset.kind
        for id in [id for id, node in roomy.items() if not room(node.free, kind.vector)]:
            del roomy[id]
        return self.scheduler.slots(podset, [node for _, node in sorted(roomy.items())])

    def _place(self, podset: PodSet, now: int) -> None:
        slots = self._slots(podset)
        if slots and podset.kind.topology_key:
            slots = self._in_one_domain(podset, slots)
        if not slots:
            return
        for node, count in self.scheduler.choose(podset, slots, self._domains(podset.kind)):
            if node.kept_for:
                node.reserved[podset.name] -= count
            self._hold(podset, node, count, now)
        if podset.waiting_count == 0:
            del self._waiting[podset.name]
            self.on_all_bound(podset, now)

    def _domains(self, kind: PodKind) -> set[str]:
        """Everywhere a strict spread counts: domains of all nodes the pod may be on, full and cordoned ones too."""
        if not kind.strict_skew:
            return set()
        matching = (node for node in self.nodes.values() if self._roomy.matches(kind, node))
        return {node.attributes.get(kind.spread_key) or "" for node in matching}

    def _in_one_domain(self, podset: PodSet, slots: list[Slot]) -> list[Slot]:
        key = podset.kind.topology_key
        domains: dict[str, list[Slot]] = {}
        for slot in slots:
            domain = slot.node.attributes.get(key)
            if domain is not None:
                domains.setdefault(domain, []).append(slot)
        if podset.anchor is None and domains:
            wanted = podset.waiting_count
            rooms = {domain: sum(fit for fit, _ in found) for domain, found in domains.items()}
            # Where the most of the gang fits; among equals the tightest, so that large gangs keep their large domains.
            best = min(rooms, key=lambda domain: (-min(rooms[domain], wanted), rooms[domain], domain))
            if rooms[best] < wanted and not podset.service:
                # A job does not begin with a part of its pods: they would hold machines and get nothing done.
                return []
            podset.anchor = best
        return domains.get(podset.anchor or "", [])

    def _hold(self, podset: PodSet, node: Node, count: int, now: int) -> None:
        kind = podset.kind
        node.free = [have - want * count for have, want in zip(node.free, kind.vector, strict=True)]
        self.used = [have + want * count for have, want in zip(self.used, kind.vector, strict=True)]
        node.pods[podset] = node.pods.get(podset, 0) + count
        self._touched.add(node.id)
        self._note(podset=podset.name)
        podset.bound[node] = podset.bound.get(node, 0) + count
        podset.since.setdefault(node, now)
        podset.bound_count += count
        podset.waiting_count -= count
        self.running[kind.priority_class] = self.running.get(kind.priority_class, 0) + count
        if not self._request_per_pod:
            self._demand(podset, -count, pending=True)
        while count:
            since, waiting = podset.waiting[0]
            taken = min(count, waiting)
            self._watcher.pods_bound(self.name, kind.priority_class, now - since, taken)
            self._watcher.pods_waited(self.name, kind.priority, since, now, taken)
            count -= taken
            if taken == waiting:
                podset.waiting.popleft()
            else:
                podset.waiting[0] = (since, waiting - taken)

    def _unbind(self, podset: PodSet, node: Node, count: int) -> None:
        kind = podset.kind
        node.free = [have + want * count for have, want in zip(node.free, kind.vector, strict=True)]
        self.used = [have - want * count for have, want in zip(self.used, kind.vector, strict=True)]
        for holder, key in ((node.pods, podset), (podset.bound, node)):
            left = holder[key] - count  # type: ignore[index]
            if left:
                holder[key] = left  # type: ignore[index]
            else:
                del holder[key]  # type: ignore[arg-type]
        podset.bound_count -= count
        if self._changed is not None:
            podset.ended.setdefault(node.id, []).extend([0] * count)
        self.running[kind.priority_class] -= count
        self._touched.add(node.id)
        self._note(podset=podset.name)
        self._roomy.offer(node)
        if node not in podset.bound:
            del podset.since[node]
        if podset.bound_count == 0:
            podset.anchor = None

    def _add_waiting(self, podset: PodSet, count: int, now: int) -> None:
        if count <= 0:
            return
        self._wait(podset, count, now)
        name, priority = podset.kind.priority_class, podset.kind.priority
        self.live[name] = self.live.get(name, 0) + count
        low, high = self.priorities.get(name, (priority, priority))
        self.priorities[name] = (min(low, priority), max(high, priority))
        self._demand(podset, count, pending=True)

    def _wait(self, podset: PodSet, count: int, now: int) -> None:
        podset.waiting.append((now, count))
        podset.waiting_count += count
        self._note(podset=podset.name)
        self._waiting[podset.name] = podset

    def _drop_waiting(self, podset: PodSet, count: int, now: int) -> None:
        if count <= 0:
            return
        podset.waiting_count -= count
        self._note(podset=podset.name)
        self.live[podset.kind.priority_class] -= count
        self._demand(podset, -count, pending=True)
        while count:
            since, waiting = podset.waiting.pop()
            self._watcher.pods_waited(self.name, podset.kind.priority, since, now, min(waiting, count))
            if waiting > count:
                podset.waiting.append((since, waiting - count))
                count = 0
            else:
                count -= waiting
        if podset.waiting_count == 0:
            self._waiting.pop(podset.name, None)

    def _finish(self, podset: PodSet, leaving: Iterable[tuple[Node, int]]) -> None:
        """Bound pods end, so many on each node."""
        for node, count in list(leaving):
            self._unbind(podset, node, count)
            self.live[podset.kind.priority_class] -= count
            if self._request_per_pod:
                self._demand(podset, -count)

    # ---------------------------------------------------------------------------------------------------------- demand

    def rollup(self) -> Rollup:
        """All demand, as the operator would report it."""
        self.dirty = self.grew = False
        return self._rows.rollup(self.name, self.overhead)

    def empty_rollup(self) -> Rollup:
        """What a broken operator reports: nothing."""
        return DemandRows(self._kinds).rollup(self.name, self.overhead)

    def _demand(self, podset: PodSet, change: int, *, pending: bool = False) -> None:
        """Count pods into or out of the roll-up. Where only waiting pods ask, changes of bound ones do not count."""
        if not self._request_per_pod and not pending:
            return
        self._rows.count(podset, change)
        self.dirty = True
        self.grew = self.grew or change > 0

    def validate(self) -> None:
        """Raise AssertionError if books do not agree; tests call it after every event."""
        for node in self.nodes.values():
            assert min(node.free, default=0) >= 0, f"{node.id} holds more than it has"
            used = [0] * len(node.total)
            for podset, count in node.pods.items():
                assert podset.bound[node] == count > 0, f"{podset.name} and {node.id} disagree"
                used = [have + want * count for have, want in zip(used, podset.kind.vector, strict=True)]
            assert [a + b for a, b in zip(used, node.free, strict=True)] == list(node.total), f"{node.id} leaks"
        for podset in self.podsets.values():
            assert podset.waiting_count == sum(count for _, count in podset.waiting), podset.name
            assert podset.bound_count == sum(podset.bound.values()), podset.name
        assert sum(self.live.values()) == sum(podset.live for podset in self.podsets.values()), "live pods"
