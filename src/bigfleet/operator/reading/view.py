"""The cluster as the operator has heard of it: objects in, the mirror's deltas out, and a few indexes beside it.

Owns what belongs together: a request and its pod share one shape, a node and its pods are found without a search.
Decides nothing and asks nobody.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bigfleet.crd.capacity_request import CapacityRequest
from bigfleet.model.names import MACHINE_ID_ANNOTATION, MACHINE_ID_LABEL, machine_label
from bigfleet.model.penalty import PINNED, bucket_for
from bigfleet.model.profile import Profile
from bigfleet.operator.core.mirror.facts import (
    BudgetGone,
    Delta,
    NodeGone,
    NodeSeen,
    Origin,
    PodGone,
    PodSeen,
    PodShape,
    RequestGone,
    RequestSeen,
)
from bigfleet.operator.kube.listwatch import key_of
from bigfleet.operator.kube.objects import Budget, Node, Pod
from bigfleet.operator.reading.amounts import pod_requests
from bigfleet.operator.reading.links import DEFAULT_SCHEDULER, FINISHED, instant, owned_by_pod, request_of
from bigfleet.operator.reading.profiles import Meaning, MeaningError, meaning_of
from bigfleet.operator.reading.shapes import budget_seen, node_seen, origin_of, pod_shape, request_shape, standing
from bigfleet.operator.reading.volumes import Volumes, claims_of
from bigfleet.operator.reading.wishes import wish_of

ACKNOWLEDGED = "Acknowledged"
_INTERNED = 20_000
_T = TypeVar("_T")

# kind, key, uid, reason, message: somebody should be told, through an Event.
Notice = Callable[[str, str, str, str, str], None]


class PodEntry(Struct):
    """A pod as far as anybody but the mirror has to know it."""

    uid: str
    node: str
    origin: Origin
    terminating: bool
    shape: PodShape
    seen: PodSeen | None = None


class ClusterView:
    """Everything that was heard, until it is heard to be gone. `notice` is told what cannot be counted.

    Requests whose interruption costs more than `keep_off` dollars ask for nodes that are not interrupted.
    """

    def __init__(self, notice: Notice, *, namespaces: frozenset[str] = frozenset(), keep_off: float = math.inf) -> None:
        self.pods: dict[str, PodEntry] = {}
        self.nodes: dict[str, Node] = {}
        self.machines: dict[str, str] = {}
        # Requests that the shard has not acknowledged yet, with their uids.
        self.unacknowledged: dict[str, str] = {}
        self.inexpressible: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        # A node and the machine it is, after it changed or went.
        self.on_node: Callable[[str, str], None] = lambda name, machine: None
        self._notice = notice
        self._namespaces = namespaces
        self._keep_off = bucket_for(keep_off) if math.isfinite(keep_off) else PINNED
        self._deltas: list[Delta] = []
        self._by_uid: dict[str, str] = {}
        # Pods that are there and that the mirror need not know, with their uids.
        self._others: dict[str, str] = {}
        self._on_node: dict[str, set[str]] = {}
        self._requests: dict[str, tuple[str, Meaning]] = {}
        # Requests by what they are called in the mirror: nearly always one, so no dictionary each.
        self._asked: dict[str, tuple[str, ...]] = {}
        # Pods of one template share one of each.
        self._shapes: dict[PodShape, PodShape] = {}
        self._meanings: dict[Meaning, Meaning] = {}
        self._told: set[str] = set()
        self._told_nodes: dict[str, tuple[str, NodeSeen]] = {}
        self._by_label: dict[str, str] = {}
        self.volumes = Volumes(self._volumes_changed)
        # Pods with volumes as they were told, to be read again when a volume changes.
        self._mounting: dict[str, Pod] = {}
        self._mounted_by: dict[str, set[str]] = {}

    def take(self) -> list[Delta]:
        """What changed since this was last asked."""
        taken, self._deltas = self._deltas, []
        return taken

    def pods_on(self, node: str) -> list[tuple[str, PodEntry]]:
        return [(key, self.pods[key]) for key in sorted(self._on_node.get(node, ()))]

    def node_of(self, machine: str) -> Node | None:
        return self.nodes.get(self.machines.get(machine, ""))

    @property
    def requests(self) -> int:
        return len(self._requests)

    # ------------------------------------------------------------------------------------------------------------ pods

    def pod_seen(self, pod: Pod) -> None:
        key = key_of(pod)
        before = self.pods.get(key)
        uid = pod.metadata.uid
        if (before is not None and before.uid != uid) or self._others.get(key, uid) != uid:
            self.pod_gone(key)
            before = None
        if pod.status.phase in FINISHED:
            self.pod_gone(key)
            return
        counts = self._counts(key, pod)
        entry = self._entry(key, pod) if counts else None
        if entry is None:
            if counts and before is not None:
                # It cannot be read any more: what was known of it still takes its room.
                return
            if before is not None:
                self.pod_gone(key)
            self._others[key] = uid
            self._by_uid[uid] = key
            self._retell_request(f"pod:{uid}")
            return
        self._others.pop(key, None)
        if claims := claims_of(pod):
            self._mounting[key] = pod
            for claim in claims:
                self._mounted_by.setdefault(claim, set()).add(key)
        self.pods[key] = entry
        self._by_uid[uid] = key
        if before is not None and before.node != entry.node:
            self._leave(key, before.node)
        if entry.node:
            self._on_node.setdefault(entry.node, set()).add(key)
        entry.seen = PodSeen(
            uid=uid,
            shape=entry.shape,
            node=entry.node or standing(pod),
            since=instant(pod.metadata.creation_timestamp),
            request="" if entry.origin is Origin.DAEMON else request_of(pod),
            nominated=pod.status.nominated_node_name,
            terminating=entry.terminating,
        )
        if before is None or before.seen != entry.seen:
            self._tell(entry.seen)
        if before is None or before.shape is not entry.shape:
            self._retell_request(f"pod:{uid}")

    def pod_gone(self, key: str) -> None:
        if (other := self._others.pop(key, None)) is not None:
            self._by_uid.pop(other, None)
            self._retell_request(f"pod:{other}")
        entry = self.pods.pop(key, None)
        if entry is None:
            return
        self._by_uid.pop(entry.uid, None)
        self._leave(key, entry.node)
        if (mounting := self._mounting.pop(key, None)) is not None:
            for claim in claims_of(mounting):
                self._mounted_by.get(claim, set()).discard(key)
        self._tell(PodGone(entry.uid))
        self._retell_request(f"pod:{entry.uid}")

    def _counts(self, key: str, pod: Pod) -> bool:
        """Whether the mirror has to know it: who stands somewhere takes room, others only if they are ours to serve."""
        spec = pod.spec
        if spec.node_name:
            return True
        if spec.scheduling_gates:
            return False
        if (spec.scheduler_name or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER:
            self._tell_pod(
                pod,
                "OtherScheduler",
                f"scheduler {spec.scheduler_name} places this pod; BigFleet asks for no node for it",
            )
            return False
        if spec.resource_claims:
            self._tell_pod(
                pod,
                "DeviceClaims",
                "the pod claims devices, which BigFleet cannot ask a fleet for; no node is bought for it",
            )
            return False
        return True

    def _entry(self, key: str, pod: Pod) -> PodEntry | None:
        meta = pod.metadata
        before = self.pods.get(key)
        try:
            requests = pod_requests(pod)
            wish = wish_of(pod, zones=self.volumes.requirements(pod))
            if wish.spec is None:
                # No fleet could be asked for it: it takes its room and is nobody's demand.
                own = Meaning(Profile((), (), pod.spec.priority, 0, 0), "", requests)
            else:
                own = meaning_of(wish.spec, meta.namespace)
        except ValueError as error:
            self._tell_pod(pod, "NotUnderstood", str(error))
            return None
        asked = self._asked.get(f"pod:{meta.uid}")
        meaning = self._requests[asked[0]][1] if asked else own
        # Attached volumes take room on the node and are nothing a fleet could be asked for.
        shape = pod_shape(pod, meaning, requests + self.volumes.attached_by(pod), self.volumes.terms(pod))
        shape = before.shape if before is not None and before.shape == shape else self._interned(shape)
        # Very many pods share few names of nodes.
        node = sys.intern(pod.spec.node_name)
        return PodEntry(meta.uid, node, origin_of(pod), meta.deletion_timestamp is not None, shape)

    def _interned(self, shape: PodShape) -> PodShape:
        return _shared(self._shapes, shape)

    def _leave(self, key: str, node: str) -> None:
        there = self._on_node.get(node)
        if there is not None:
            there.discard(key)
            if not there:
                del self._on_node[node]

    # -------------------------------------------------------------------------------------------------------- requests

    def request_seen(self, request: CapacityRequest) -> None:
        key, meta = key_of(request), request.metadata
        if self._namespaces and meta.namespace not in self._namespaces:
            return
        try:
            meaning = _shared(self._meanings, meaning_of(request.spec, meta.namespace, keep_off=self._keep_off))
        except MeaningError as error:
            if key not in self.inexpressible:
                self._notice("CapacityRequest", key, meta.uid, "NotExpressible", str(error))
            self.request_gone(key)
            self.inexpressible.add(key)
            return
        self.inexpressible.discard(key)
        if request.status.phase == ACKNOWLEDGED:
            self.unacknowledged.pop(key, None)
        else:
            self.unacknowledged[key] = meta.uid
        name = owned_by_pod(meta) or key
        known = self._requests.get(key)
        if known == (name, meaning):
            return
        if known is not None and known[0] != name:
            self._withdraw(key, known[0])
            self._retell_request(known[0])
        self._requests[key] = (name, meaning)
        asked = self._asked.get(name, ())
        if key not in asked:
            self._asked[name] = (*asked, key)
        self._adopt(name, meaning)
        self._retell_request(name)

    def request_gone(self, key: str) -> None:
        self.inexpressible.discard(key)
        self.unacknowledged.pop(key, None)
        known = self._requests.pop(key, None)
        if known is not None:
            self._withdraw(key, known[0])
            self._retell_request(known[0])

    def _withdraw(self, key: str, name: str) -> None:
        left = tuple(each for each in self._asked.get(name, ()) if each != key)
        if left:
            self._asked[name] = left
        else:
            self._asked.pop(name, None)

    def _adopt(self, name: str, meaning: Meaning) -> None:
        """A pod counts as what its request says: penalties may come from somewhere the pod does not show."""
        entry = self.pods.get(self._by_uid.get(name.removeprefix("pod:"), "")) if name.startswith("pod:") else None
        if entry is None or entry.seen is None:
            return
        shape = self._interned(
            replace(
                entry.shape,
                profile=meaning.profile,
                group=meaning.group,
                reclamation_microdollars=meaning.reclamation_microdollars,
            )
        )
        if shape != entry.shape:
            entry.shape = shape
            entry.seen = replace(entry.seen, shape=shape)
            self._tell(entry.seen)

    def _retell_request(self, name: str) -> None:
        asked = self._asked.get(name)
        # A request goes with its pod: Kubernetes removes it some time later, and until then it would ask for a place
        # beside the one that the pod's successor asks for.
        if not asked or (name.startswith("pod:") and name.removeprefix("pod:") not in self._by_uid):
            if name in self._told:
                self._told.discard(name)
                self._tell(RequestGone(name))
            return
        key = asked[0]
        meaning = self._requests[key][1]
        entry = self.pods.get(self._by_uid.get(name.removeprefix("pod:"), "")) if name.startswith("pod:") else None
        if entry is None:
            shape = self._interned(request_shape(key.partition("/")[0], meaning))
        elif entry.shape.requests == meaning.unit:
            shape = entry.shape
        else:
            shape = self._interned(replace(entry.shape, requests=meaning.unit))
        self._told.add(name)
        self._tell(RequestSeen(name, shape, len(asked) if not name.startswith("pod:") else 1))

    # ----------------------------------------------------------------------------------------------- nodes and budgets

    def node_seen(self, node: Node) -> None:
        name = node.metadata.name
        self.nodes[name] = node
        machine = self.machine_of(node)
        was, told = self._told_nodes.get(name, ("", None))
        if was and was != machine and self.machines.get(was) == name:
            del self.machines[was]
        if machine:
            self.machines[machine] = name
        try:
            seen = node_seen(node, machine=machine, extra=self.volumes.room_on(name))
        except ValueError as error:
            self._notice("Node", name, node.metadata.uid, "NotUnderstood", str(error))
            return
        self._told_nodes[name] = (machine, seen)
        if told != seen:
            self._tell(seen)
        self.on_node(name, machine)

    def machine_of(self, node: Node) -> str:
        """Which machine the node is: a label cannot hold every id, so others are known by what stands for them."""
        label = node.metadata.labels.get(MACHINE_ID_LABEL, "")
        return node.metadata.annotations.get(MACHINE_ID_ANNOTATION) or self._by_label.get(label, label)

    def machine_named(self, machine: str) -> None:
        """The shard spoke of this machine: a node whose label stands for its id is that machine's."""
        label = machine_label(machine)
        if label != machine and label not in self._by_label:
            self._by_label[label] = machine
            name = self.machines.get(label)
            if name is not None:
                self.node_seen(self.nodes[name])

    def node_gone(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is None:
            return
        machine, _ = self._told_nodes.pop(name, ("", None))
        if machine and self.machines.get(machine) == name:
            del self.machines[machine]
        self._tell(NodeGone(name))
        self.on_node(name, machine)

    def budget_seen(self, budget: Budget) -> None:
        key = key_of(budget)
        self._tell(budget_seen(key, budget))

    def budget_gone(self, key: str) -> None:
        self._tell(BudgetGone(key))

    def _volumes_changed(self, claim: str) -> None:
        """Volumes ask otherwise of their pods' nodes, or nodes attach another number of them."""
        if claim.startswith("node:"):
            if (node := self.nodes.get(claim.removeprefix("node:"))) is not None:
                self.node_seen(node)
            return
        if not claim:
            for node in list(self.nodes.values()):
                self.node_seen(node)
        for key in sorted(self._mounted_by.get(claim, ()) if claim else self._mounting):
            self.pod_seen(self._mounting[key])

    def key_of_uid(self, uid: str) -> str | None:
        """Namespace and name of a pod."""
        return self._by_uid.get(uid)

    def tell_stuck(self, uid: str) -> None:
        """The scheduler has left a pod unbound although there is room."""
        key = self._by_uid.get(uid)
        if key is not None:
            message = (
                "the pod has had room in the cluster for 5 minutes and was not bound; BigFleet asks for more capacity "
                "for it, with growing pauses"
            )
            self._notice("Pod", key, uid, "NotBoundDespiteRoom", message)

    # --------------------------------------------------------------------------------------------------------- details

    def _tell(self, delta: Delta) -> None:
        self._deltas.append(delta)
        self.on_change()

    def _tell_pod(self, pod: Pod, reason: str, message: str) -> None:
        self._notice("Pod", key_of(pod), pod.metadata.uid, reason, message)


def _shared(kept: dict[_T, _T], given: _T) -> _T:
    """The one that stands for all that are equal to it."""
    if len(kept) > _INTERNED:
        kept.clear()
    return kept.setdefault(given, given)
