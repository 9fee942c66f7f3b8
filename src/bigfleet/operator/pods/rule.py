"""Which pods have a request, and what stands in it. Pure: from a pod and its node to the request it should have.

A request exists if and only if its pod is unschedulable or bound to a node of BigFleet's; terminating pods count until
they are gone. Unschedulable is what the scheduler said so of, and what it has not looked at yet while it said so of
another pod of the same template (`siblings`). In mode `all`, the reference's, every pod that has not finished has one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from bigfleet.crd.capacity_request import Requirement
from bigfleet.model.names import API_GROUP, API_VERSION, OWNED_BY_POD_LABEL
from bigfleet.operator.core.mirror.facts import Origin
from bigfleet.operator.kube.objects import Pod
from bigfleet.operator.reading.links import DEFAULT_SCHEDULER, FINISHED, REQUEST_ANNOTATION
from bigfleet.operator.reading.shapes import origin_of
from bigfleet.operator.reading.wishes import NO_DEFAULTS, Penalties, Wish, wish_of

# Room for the prefix and for 16 digits, within what Kubernetes allows a name.
_LONGEST_POD_NAME = 253 - len("cr-pod--") - 16


class Mode(StrEnum):
    UNSCHEDULABLE = "unschedulable"
    ALL = "all"


def request_name(pod: Pod) -> str:
    """The same for one pod for ever, another for its successor of the same name."""
    digest = hashlib.sha256(pod.metadata.uid.encode()).hexdigest()[:16]
    return f"cr-pod-{pod.metadata.name[:_LONGEST_POD_NAME]}-{digest}"


def is_refused(pod: Pod) -> bool:
    """The scheduler found no node for it."""
    return not pod.spec.node_name and any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in pod.status.conditions
    )


def is_unjudged(pod: Pod) -> bool:
    """It waits, and the scheduler has said nothing of it so far."""
    return not pod.spec.node_name and all(each.type != "PodScheduled" for each in pod.status.conditions)


def wants_request(pod: Pod, *, ours: bool, mode: Mode = Mode.UNSCHEDULABLE, presumed: bool = False) -> bool:
    """`ours`: whether the node it is bound to is one of BigFleet's. `presumed`: a pod that the scheduler has not looked
    at yet counts as refused."""
    if pod.status.phase in FINISHED or origin_of(pod) is Origin.DAEMON:
        return False
    if REQUEST_ANNOTATION in pod.metadata.annotations:
        # It stands for one unit of a request that somebody wrote for it.
        return False
    if pod.spec.node_name:
        return ours or mode is Mode.ALL
    if pod.spec.scheduling_gates or pod.spec.resource_claims:
        return False
    if (pod.spec.scheduler_name or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER:
        return False
    if mode is Mode.ALL:
        return True
    return is_refused(pod) or (presumed and is_unjudged(pod))


def request_for(
    pod: Pod, defaults: Mapping[str, Penalties] = NO_DEFAULTS, zones: Iterable[Requirement] = ()
) -> tuple[dict[str, Any] | None, Wish]:
    """The object as it is written, or None when its wishes cannot be asked of a fleet."""
    wish = wish_of(pod, defaults, zones)
    if wish.spec is None:
        return None, wish
    meta = pod.metadata
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "CapacityRequest",
        "metadata": {
            "name": request_name(pod),
            "namespace": meta.namespace,
            "labels": {OWNED_BY_POD_LABEL: meta.uid},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
            ],
        },
        "spec": msgspec.to_builtins(wish.spec),
    }, wish
