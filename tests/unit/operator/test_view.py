"""What the mirror is told of a cluster's objects."""

from __future__ import annotations

from typing import Any

import msgspec

from bigfleet.crd.capacity_request import CapacityRequest
from bigfleet.model.names import CAPACITY_TYPE_LABEL, MACHINE_ID_LABEL
from bigfleet.operator.core.mirror.facts import RequestGone, RequestSeen
from bigfleet.operator.core.mirror.mirror import Mirror
from bigfleet.operator.kube.objects import Node, Pod
from bigfleet.operator.pods.rule import request_for
from bigfleet.operator.reading.view import ClusterView

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def view() -> ClusterView:
    return ClusterView(lambda *told: None)


def node(name: str, *taints: dict[str, str], cpu: str = "4") -> Node:
    document = {
        "metadata": {"name": name, "uid": name, "labels": {MACHINE_ID_LABEL: name}},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": {"cpu": cpu, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(document, Node)


def pod(name: str, cpu: str, **spec: Any) -> Pod:
    owner = "DaemonSet" if "affinity" in spec else "ReplicaSet"
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "ownerReferences": [{"kind": owner, "name": "o", "uid": "o", "controller": True}],
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": "Pending"},
    }
    return msgspec.convert(document, Pod)


def made_for(name: str) -> dict[str, Any]:
    """The affinity that the DaemonSet controller gives a pod it makes for a node."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def stranded(seen: ClusterView) -> bool:
    """Whether the pods that wait have no room."""
    mirror = Mirror()
    mirror.apply(seen.take())
    mirror.settle(1)
    return not any(not report.empty for report in mirror.reports(anew=True))


def test_a_node_is_still_coming_while_its_controllers_let_no_pod_on() -> None:
    seen = view()
    seen.node_seen(node("n", NOT_READY))
    mirror = Mirror()
    mirror.apply(seen.take())
    mirror.settle(1)
    assert [report.ready for report in mirror.reports(anew=True)] == [False]
    seen.node_seen(node("n"))
    mirror.apply(seen.take())
    mirror.settle(2)
    assert [report.ready for report in mirror.reports()] == [True]


def test_a_daemon_takes_its_room_before_the_scheduler_binds_it() -> None:
    seen = view()
    seen.node_seen(node("n"))
    seen.pod_seen(pod("agent", "1", affinity=made_for("n")))
    seen.pod_seen(pod("whole", "4"))
    assert stranded(seen)
    seen = view()
    seen.node_seen(node("n"))
    seen.pod_seen(pod("agent", "1", affinity=made_for("other")))
    seen.pod_seen(pod("whole", "4"))
    assert not stranded(seen)


def test_requests_that_are_dear_to_interrupt_ask_for_machines_that_are_not() -> None:
    seen = ClusterView(lambda *told: None, keep_off=64)
    for name, penalty in (("dear", "65"), ("cheap", "64")):
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"priority": 0, "resources": {"cpu": "1"}, "interruptionPenalty": penalty},
        }
        seen.request_seen(msgspec.convert(document, CapacityRequest))
    keeping = {
        delta.name: [(each.key, each.values) for each in delta.shape.profile.requirements]
        for delta in seen.take()
        if isinstance(delta, RequestSeen)
    }
    assert keeping == {"default/dear": [(CAPACITY_TYPE_LABEL, ("spot",))], "default/cheap": []}


def test_a_request_asks_for_nothing_once_its_pod_is_gone() -> None:
    seen = view()
    body, _ = request_for(pod("web-1", "1"))
    request = msgspec.convert({**body, "metadata": {**body["metadata"], "uid": "r"}}, CapacityRequest)

    def units() -> int:
        mirror.apply(seen.take())
        mirror.settle(1)
        return sum(row.count for row in mirror.rows())

    mirror = Mirror()
    # The pod may be heard of later than its request, and the request stay longer than its pod.
    seen.request_seen(request)
    assert units() == 0
    seen.pod_seen(pod("web-1", "1"))
    assert units() == 1
    seen.pod_gone("default/web-1")
    assert units() == 0


def test_a_pod_that_must_wait_keeps_the_request_that_somebody_made_for_it() -> None:
    seen = view()
    gated = pod("web-1", "1", schedulingGates=[{"name": "queue"}])
    body, _ = request_for(pod("web-1", "1"))
    seen.pod_seen(gated)
    seen.request_seen(msgspec.convert({**body, "metadata": {**body["metadata"], "uid": "r"}}, CapacityRequest))
    assert [delta.name for delta in seen.take() if isinstance(delta, RequestSeen)] == ["pod:web-1"]
    seen.pod_gone("default/web-1")
    assert [type(delta) for delta in seen.take()] == [RequestGone]


def test_a_pod_that_a_node_is_reserved_for_asks_for_what_it_asked_for_before() -> None:
    """Else its row would become another row while its machine boots, and the shard would buy for it again."""
    theirs = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    ours = {"key": "bigfleet.lucy.sh/kept", "operator": "Equal", "value": "m-1", "effect": "NoSchedule"}
    seen, mirror = view(), Mirror()

    def told(*tolerations: dict[str, str]) -> object:
        waiting = pod("web-1", "1", tolerations=list(tolerations))
        body, _ = request_for(waiting)
        seen.pod_seen(waiting)
        seen.request_seen(msgspec.convert({**body, "metadata": {**body["metadata"], "uid": "r"}}, CapacityRequest))
        mirror.apply(seen.take())
        mirror.settle(1)
        return body, mirror.rows()

    before = told(theirs)
    assert told(theirs, ours) == before
    assert told(ours) != before, "what others tolerate is told as ever"
