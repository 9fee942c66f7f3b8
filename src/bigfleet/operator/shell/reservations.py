"""Tolerations on pods that a new node is reserved for (Kubernetes lets them be added to a pod that waits), and what a
machine that is under way will be as a node.

One is added to those that are there, and nothing else of a pod is ever touched. A pod that somebody will not have
changed is left as it is: it waits for the node to open like everybody else, seconds later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from bigfleet.model.names import HOSTNAME_LABEL, KEPT_TAINT, kept_value
from bigfleet.model.quantity import QuantityError
from bigfleet.model.resources import ResourceError, Resources
from bigfleet.model.taint import Taint
from bigfleet.operator.core.mirror.facts import NodeSeen
from bigfleet.operator.kube.client import JSON_PATCH, ApiError, Client
from bigfleet.operator.kube.worklist import Worklist
from bigfleet.operator.reading.amounts import parse
from bigfleet.wire import shard_pb2

log = structlog.get_logger(__name__)
_LIST = "/spec/tolerations"


class Reservations:
    """Nodes reserved at the last look, each with its pods; `key_of` says namespace and name of a pod."""

    def __init__(self, client: Client, key_of: Callable[[str], str | None]) -> None:
        self._client = client
        self._key_of = key_of
        # What pods should tolerate, and what they were asked to: by uid, the nodes.
        self._wanted: dict[str, set[str]] = {}
        self._asked: dict[str, set[str]] = {}
        self.work = Worklist("reserve", self._reserve, at_once=16)

    def show(self, reserved: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        """These nodes are reserved now, for these pods; what was asked for is never taken back."""
        wanted: dict[str, set[str]] = {}
        for node, pods in reserved:
            for uid in pods:
                wanted.setdefault(uid, set()).add(node)
        self._wanted = wanted
        self._asked = {uid: nodes for uid, nodes in self._asked.items() if uid in wanted}
        for uid, nodes in wanted.items():
            if not nodes <= self._asked.get(uid, set()):
                self.work.add(uid)

    async def _reserve(self, uid: str) -> float | None:
        asked = self._asked.setdefault(uid, set())
        missing = sorted(self._wanted.get(uid, set()) - asked)
        key = self._key_of(uid)
        if not missing or key is None:
            return None
        # Once each: whatever the answer is, the node opens soon.
        asked.update(missing)
        namespace, _, name = key.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        added = [
            {"key": KEPT_TAINT, "operator": "Equal", "value": kept_value(node), "effect": "NoSchedule"}
            for node in missing
        ]
        same = {"op": "test", "path": "/metadata/uid", "value": uid}
        try:
            await self._client.patch(
                path, [same, *({"op": "add", "path": f"{_LIST}/-", "value": each} for each in added)], JSON_PATCH
            )
        except ApiError as error:
            if error.status == 422:
                # A pod without any has no list to add to.
                await self._begin(path, same, added)
            else:
                self._refused(path, error)
        return None

    async def _begin(self, path: str, same: object, added: list[dict[str, str]]) -> None:
        none = {"op": "test", "path": _LIST, "value": None}
        try:
            await self._client.patch(path, [same, none, {"op": "add", "path": _LIST, "value": added}], JSON_PATCH)
        except ApiError as error:
            self._refused(path, error)

    def _refused(self, path: str, error: ApiError) -> None:
        log.info("pod is not given a toleration", pod=path, status=error.status, error=str(error))


def coming_node(frame: shard_pb2.NodeStateUpdate, overhead: Resources) -> NodeSeen | None:
    """The machine as the node it will be; None where that cannot be read, and then nobody is planned on it."""
    try:
        has = parse(dict(frame.resources.resources), round_up=False)
    except (QuantityError, ResourceError):
        return None
    return NodeSeen(
        frame.machine_id,
        has.minus(overhead),
        tuple(sorted({**frame.labels, HOSTNAME_LABEL: frame.machine_id}.items())),
        tuple(Taint(each.key, each.value, each.effect) for each in frame.taints),
        machine=frame.machine_id,
        ready=False,
    )
