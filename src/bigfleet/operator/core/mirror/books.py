"""The books of the cluster: every delta changes exactly what depends on it, and nothing is ever rescanned.

Owns pods and nodes and how they hang together: who stands where and who waits; requests and budgets keep their own.
Decides nothing about room; that is `placing`, on these books.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.resources import is_device
from bigfleet.operator.core.mirror import facts as f
from bigfleet.operator.core.mirror.budgets import Budgets
from bigfleet.operator.core.mirror.filters import COMMON, NODE_NAME, NodeFilter
from bigfleet.operator.core.mirror.keeping import Keeping
from bigfleet.operator.core.mirror.kinds import Kind, Kinds
from bigfleet.operator.core.mirror.nodes import UNLIMITED, Dimensions, Node, NodeClass
from bigfleet.operator.core.mirror.placing import tally
from bigfleet.operator.core.mirror.pods import OLD_AFTER, Maturing, Pod, Waitlist
from bigfleet.operator.core.mirror.requests import Requests
from bigfleet.operator.core.mirror.tallies import Domains, Tally

_UID = attrgetter("uid")
_CLASSES_KEPT = 4096


class Books:
    """Everything the mirror knows."""

    def __init__(self, old_after: int = OLD_AFTER, *, reserves: bool = True) -> None:
        self.maturing = Maturing(old_after)
        self.dimensions = Dimensions()
        self.kinds = Kinds(self.dimensions)
        self.waitlist = Waitlist()
        self.requests = Requests(self.kinds, self.waitlist)
        self.rows = self.requests.rows
        self.budgets = Budgets(self.kinds)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.machines: dict[str, str] = {}
        # Gangs by domain: how many of them run there.
        self.gangs: dict[str, dict[str, int]] = {}
        self.not_ready: dict[str, Node] = {}
        self.keeping = Keeping(reserves)
        # What changed since somebody looked: nodes to tell about, nodes with more room.
        self.touched: set[str] = set()
        self.gained: dict[str, Node] = {}
        self._classes: dict[object, NodeClass] = {}
        self._homeless: dict[str, set[Pod]] = {}
        self._gone: set[str] = set()
        self._width = len(self.dimensions.places)
        self.kinds.on_new_pod_keys = self._new_pod_keys
        self.kinds.on_new_node_keys = self._new_node_keys
        self.kinds.on_new_filter = self._new_filter
        self.kinds.on_new_domains = self._new_domains
        self.kinds.on_new_tally = self._new_tally
        self.kinds.on_new_kind = self._new_kind
        self._apply: dict[type, Callable[[Any], None]] = {
            f.PodSeen: self._pod_seen,
            f.PodGone: self._pod_gone,
            f.NodeSeen: self._node_seen,
            f.NodeGone: self._node_gone,
            f.RequestSeen: self.requests.seen,
            f.RequestGone: self.requests.gone,
            f.BudgetSeen: self.budgets.seen,
            f.BudgetGone: self.budgets.gone,
        }

    def apply(self, deltas: Iterable[f.Delta]) -> None:
        apply = self._apply
        for delta in deltas:
            apply[type(delta)](delta)
        self.budgets.settle(self.nodes.values(), self.touched)

    def comes(self, machine: str, seen: f.NodeSeen | None, group: str) -> None:
        """A machine is on its way to us, or not any more."""
        node = None
        if seen is not None:
            node = Node(seen, self._class_of(seen), self.dimensions.amounts(seen.allocatable, absent_pods=UNLIMITED))
            self._widen()
            node.widen(self._width)
        self.keeping.told(machine, node, group)

    def count_old(self, now: int) -> None:
        """Time has passed: nodes tell how many of their pods became old."""
        self.touched.update(node.name for node in self.maturing.count(self.pods, now))

    # ------------------------------------------------------------------------------------------------------------ pods

    def _pod_seen(self, seen: f.PodSeen) -> None:
        kind = self.kinds.of(seen.shape)
        pod = self.pods.get(seen.uid)
        if pod is None:
            pod = self.pods[seen.uid] = Pod(seen.uid, kind)
            kind.users += 1
        elif _unchanged(pod, kind, seen):
            return
        else:
            self._unseat(pod)
            if pod.kind is not kind:
                self._change_kind(pod, kind)
                pod.room_since = None
        pod.labels = seen.shape.labels
        left = pod.node
        pod.node, pod.nominated, pod.since, pod.terminating = seen.node, seen.nominated, seen.since, seen.terminating
        before = pod.request
        if (before.name if before is not None else "") != seen.request:
            if before is not None:
                self.requests.unlink(pod, before)
            if seen.request:
                self.requests.link(pod, seen.request)
        self._seat(pod)
        self._forget_gone(left)

    def _pod_gone(self, gone: f.PodGone) -> None:
        pod = self.pods.pop(gone.uid, None)
        if pod is None:
            return
        self._unseat(pod)
        if pod.request is not None:
            self.requests.unlink(pod, pod.request)
        self.kinds.release(pod.kind)
        self._forget_gone(pod.node)

    def _forget_gone(self, name: str) -> None:
        """A node that is gone is remembered as long as pods are bound to it."""
        if name in self._gone and name not in self._homeless:
            self._gone.discard(name)

    def _seat(self, pod: Pod) -> None:
        """Put the pod where it counts: on its node, among those that wait, or nowhere."""
        node = self.nodes.get(pod.node) if pod.node else None
        if node is not None:
            node.pods.add(pod)
            self.touched.add(node.name)
            if node.away and _returns(pod):
                self.waitlist.add(pod)
            else:
                self._stand(pod, node)
        elif pod.node:
            self._homeless.setdefault(pod.node, set()).add(pod)
            if pod.node in self._gone and _returns(pod):
                self.waitlist.add(pod)
            else:
                self._run(pod, True)
        elif not pod.terminating and pod.kind.shape.origin is not f.Origin.DAEMON:
            self.waitlist.add(pod)

    def _unseat(self, pod: Pod) -> None:
        if pod.waiting:
            self.waitlist.remove(pod)
        if pod.host is not None:
            self._stand_up(pod, pod.host)
        elif pod.running:
            self._run(pod, False)
        node = self.nodes.get(pod.node)
        if node is not None:
            node.pods.discard(pod)
            self.touched.add(node.name)
        elif pod.node in self._homeless:
            self._homeless[pod.node].discard(pod)
            if not self._homeless[pod.node]:
                del self._homeless[pod.node]

    def _stand(self, pod: Pod, node: Node) -> None:
        pod.host = node
        self.maturing.stands(pod)
        self._run(pod, True)
        self._occupy(pod, node, 1)

    def _stand_up(self, pod: Pod, node: Node) -> None:
        pod.host = None
        self._run(pod, False)
        self._occupy(pod, node, -1)
        self.gained[node.name] = node

    def _occupy(self, pod: Pod, node: Node, change: int) -> None:
        kind = pod.kind
        node.take(kind.need, change)
        node.plan = None
        count = node.kinds.get(kind, 0) + change
        if count:
            node.kinds[kind] = count
        else:
            del node.kinds[kind]
        if kind.must_stay and (not count or count == change):
            node.held += change
        if pod.terminating:
            _count(node.leaving, kind, change)
        if kind.shape.ports:
            node.hold_ports(kind.shape.ports, change)
        if kind.counted:
            tally(kind, node, change, terminating=pod.terminating)
        kind.bound += change
        if kind.shape.origin is f.Origin.DAEMON:
            for place, amount in kind.need:
                node.daemons[place] += amount * change
        else:
            node.occupants += change
            _count(node.faces, kind.face, change)
            node.reclamation += kind.dollars[0] * change
            node.interruption += kind.dollars[1] * change
        if kind.same is not None and (domain := node.labels.get(kind.same.key)) is not None:
            gang = self.gangs.setdefault(kind.shape.group, {})
            _count(gang, domain, change)
            if not gang:
                del self.gangs[kind.shape.group]

    def _run(self, pod: Pod, on: bool) -> None:
        pod.running = on
        if pod.row is not None:
            pod.row.running += 1 if on else -1

    def _change_kind(self, pod: Pod, kind: Kind) -> None:
        old, pod.kind = pod.kind, kind
        kind.users += 1
        self.kinds.release(old)

    # ----------------------------------------------------------------------------------------------------------- nodes

    def _node_seen(self, seen: f.NodeSeen) -> None:
        node = self.nodes.get(seen.name)
        if node is not None and _same_place(node.facts, seen):
            was_open = node.open
            node.facts = seen
            node.reckon_open()
            if node.open and not was_open:
                self.gained[node.name] = node
        else:
            flags: tuple[bool, bool, int | None, bool] = (False, False, None, False)
            if node is not None:
                if node.facts.machine == seen.machine:
                    flags = (node.draining, node.lost, node.not_ready_since, node.away)
                self._remove(node)
            self._gone.discard(seen.name)
            node = self._add(seen, *flags)
        self._note_readiness(node)
        self.keeping.note(node)
        self.touched.add(node.name)

    def _node_gone(self, gone: f.NodeGone) -> None:
        node = self.nodes.get(gone.name)
        if node is None:
            return
        if node.pods:
            self._gone.add(gone.name)
        self._remove(node)
        self.not_ready.pop(gone.name, None)
        self.keeping.forget(gone.name)
        self.gained.pop(gone.name, None)

    def _add(self, seen: f.NodeSeen, draining: bool, lost: bool, not_ready_since: int | None, away: bool) -> Node:
        homeless = list(self._homeless.get(seen.name, ()))
        for pod in homeless:
            self._unseat(pod)
        total = self.dimensions.amounts(seen.allocatable, absent_pods=UNLIMITED)
        node = self.nodes[seen.name] = Node(seen, self._class_of(seen), total)
        node.draining, node.lost, node.not_ready_since, node.away = draining, lost, not_ready_since, away
        node.reckon_open()
        self._widen()
        if seen.machine:
            self.machines[seen.machine] = seen.name
        for filter in self.kinds.filters():
            if filter.suits(node):
                filter.nodes.add(node)
        for domains in self.kinds.domains.values():
            domains.count(node, 1)
        self.gained[seen.name] = node
        for pod in sorted(homeless, key=_UID):
            self._seat(pod)
        return node

    def _remove(self, node: Node) -> None:
        """The node goes; its pods are bound to a node that is not known."""
        pods = sorted(node.pods, key=_UID)
        for pod in pods:
            self._unseat(pod)
        for filter in self.kinds.filters():
            filter.nodes.discard(node)
        for domains in self.kinds.domains.values():
            domains.count(node, -1)
        del self.nodes[node.name]
        if self.machines.get(node.facts.machine) == node.name:
            del self.machines[node.facts.machine]
        self.touched.add(node.name)
        for pod in pods:
            self._seat(pod)

    def set_away(self, node: Node, away: bool) -> None:
        """Its pods wait for another node, or stay after all."""
        pods = sorted(node.pods, key=_UID)
        for pod in pods:
            self._unseat(pod)
        node.away = away
        self.reckon_open(node)
        for pod in pods:
            self._seat(pod)
        self.touched.add(node.name)

    def reckon_open(self, node: Node) -> None:
        node.reckon_open()
        if node.open:
            self.gained[node.name] = node

    def _note_readiness(self, node: Node) -> None:
        if node.facts.ready:
            node.not_ready_since = None
            self.not_ready.pop(node.name, None)
        else:
            self.not_ready[node.name] = node

    def _class_of(self, seen: f.NodeSeen) -> NodeClass:
        keys = self.kinds.node_keys
        labels = tuple(
            pair for pair in sorted(seen.labels) if pair[0] in keys and pair[0] not in (HOSTNAME_LABEL, NODE_NAME)
        )
        devices = tuple(name for name in seen.allocatable.names() if name not in COMMON)
        name = (labels, tuple(sorted(seen.taints)), devices)
        made = self._classes.get(name)
        if made is None:
            if len(self._classes) >= _CLASSES_KEPT:
                self._new_node_keys()
            made = self._classes[name] = NodeClass(dict(labels), seen.taints, any(map(is_device, devices)))
        return made

    def _widen(self) -> None:
        """Somebody named a resource for the first time."""
        width = len(self.dimensions.places)
        if width > self._width:
            self._width = width
            for node in [*self.nodes.values(), *self.keeping.under_way()]:
                node.widen(width)

    # ----------------------------------------------------------------------------------------------------------- kinds

    def _new_kind(self, kind: Kind) -> None:
        self._widen()
        self.budgets.judge(kind)

    def _new_pod_keys(self) -> None:
        """Selectors name keys they did not name before: labels that made no difference may now make one."""
        for pod in list(self.pods.values()):
            kind = self.kinds.with_labels(pod.kind.shape, pod.labels)
            if kind is not pod.kind:
                self._unseat(pod)
                self._change_kind(pod, kind)
                self._seat(pod)
        self.requests.labels_matter()

    def _new_node_keys(self) -> None:
        self._classes.clear()
        for filter in self.kinds.filters():
            filter.forget()
        for node in [*self.nodes.values(), *self.keeping.under_way()]:
            node.cls = self._class_of(node.facts)

    def _new_filter(self, filter: NodeFilter) -> None:
        filter.nodes = {node for node in self.nodes.values() if filter.suits(node)}

    def _new_domains(self, domains: Domains) -> None:
        for node in self.nodes.values():
            domains.count(node, 1)

    def _new_tally(self, made: Tally, kinds: list[Kind]) -> None:
        """Count those who stand already."""
        standing = [kind for kind in kinds if kind.bound]
        if not standing:
            return
        for node in self.nodes.values():
            for kind in standing:
                count = node.kinds.get(kind, 0)
                if count and made.domains is not None:
                    count -= node.leaving.get(kind, 0)
                if count:
                    made.count(node, count)

    def validate(self) -> None:
        """Raise AssertionError when the books contradict each other; tests call it after every batch."""
        for node in self.nodes.values():
            used = [0] * len(node.total)
            for kind, count in node.kinds.items():
                for place, amount in kind.need:
                    used[place] += amount * count
            assert [a + b for a, b in zip(node.free, used, strict=True)] == node.total, f"{node.name} leaks"
            assert not node.guests, f"{node.name} has guests between passes"
            assert node.held == sum(kind.must_stay for kind in node.kinds), f"{node.name} miscounts who must stay"
            assert sum(node.kinds.values()) == sum(1 for pod in node.pods if pod.host is node), node.name
        waiting = [pod for kind in self.waitlist.kinds for pod in kind.waiting]
        assert sorted(p.uid for p in waiting) == sorted(p.uid for p in self.pods.values() if p.waiting)
        for row in self.rows.books():
            assert 0 <= row.running <= row.count and row.stranded >= 0, row.unit
            assert row.count == sum(row.kinds.values()), row.unit
        users: dict[Kind, int] = {}
        for pod in self.pods.values():
            users[pod.kind] = users.get(pod.kind, 0) + 1
        for request in self.requests.by_name.values():
            if request.kind is not None:
                users[request.kind] = users.get(request.kind, 0) + 1
        assert {kind: kind.users for kind in self.kinds.live() if kind.users} == users, "kinds are miscounted"


def _unchanged(pod: Pod, kind: Kind, seen: f.PodSeen) -> bool:
    return (
        pod.kind is kind
        and pod.node == seen.node
        and pod.terminating == seen.terminating
        and pod.nominated == seen.nominated
        and pod.since == seen.since
        and pod.labels == seen.shape.labels
        and (pod.request.name if pod.request is not None else "") == seen.request
    )


def _returns(pod: Pod) -> bool:
    """Whether another pod comes in its place when its node goes."""
    return pod.kind.shape.origin is f.Origin.REPLICATED and not pod.terminating


def _same_place(before: f.NodeSeen, after: f.NodeSeen) -> bool:
    return (
        before.labels == after.labels
        and before.taints == after.taints
        and before.allocatable == after.allocatable
        and before.machine == after.machine
    )


def _count(counts: dict[Any, int], key: object, change: int) -> None:
    left = counts.get(key, 0) + change
    if left:
        counts[key] = left
    else:
        del counts[key]
