"""How pods and requests name each other, and a few words of Kubernetes that both sides of them read."""

from __future__ import annotations

from datetime import datetime

from bigfleet.crd.metadata import ObjectMeta
from bigfleet.model.names import API_GROUP
from bigfleet.operator.kube.objects import Pod

REQUEST_ANNOTATION = f"{API_GROUP}/capacity-request"
DEFAULT_SCHEDULER = "default-scheduler"
FINISHED = ("Succeeded", "Failed")


def instant(timestamp: str | None) -> int:
    """Unix nanoseconds of a Kubernetes timestamp; 0 without one."""
    if not timestamp:
        return 0
    return int(datetime.fromisoformat(timestamp).timestamp()) * 1_000_000_000


def owned_by_pod(meta: ObjectMeta) -> str:
    """The mirror's name of a request that belongs to one pod."""
    for owner in meta.owner_references:
        if owner.kind == "Pod":
            return f"pod:{owner.uid}"
    return ""


def request_of(pod: Pod) -> str:
    named = pod.metadata.annotations.get(REQUEST_ANNOTATION, "")
    return f"{pod.metadata.namespace}/{named}" if named else f"pod:{pod.metadata.uid}"
