"""Tolerations on pods that a new node is reserved for (Kubernetes lets them be added to a pod that waits), whether we
may write them, and what a machine that is under way will be as a node.

One is added to those that are there, and nothing else of a pod is ever touched. A pod that somebody will not have
changed (404, 409, 422, or a 403 of somebody's admission) is left as it is: it waits for the node to open like everybody
else, seconds later. Where we may patch no pods at all, no node is reserved: the API server is asked for that when we
begin, when it forbids a patch, and every ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import structlog

from bigfleet.model.names import HOSTNAME_LABEL, KEPT_TAINT, kept_value
from bigfleet.model.quantity import QuantityError
from bigfleet.model.resources import ResourceError, Resources
from bigfleet.model.taint import Taint
from bigfleet.operator.core.mirror.facts import NodeSeen
from bigfleet.operator.kube.client import JSON_PATCH, ApiError, Client
from bigfleet.operator.kube.objects import Pod
from bigfleet.operator.kube.worklist import Worklist
from bigfleet.operator.reading.amounts import parse
from bigfleet.operator.shell.metrics import OperatorMetrics
from bigfleet.wire import shard_pb2

log = structlog.get_logger(__name__)
ASK_AGAIN_SECONDS = 600.0
FORBIDDEN = 403
_LIST = "/spec/tolerations"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "patch", "resource": "pods"}},
}
# In the list of work, among uids: ask whether we may.
_RIGHT = ""
_OUTCOMES = {FORBIDDEN: "forbidden", 404: "gone", 409: "changed", 422: "refused"}


class _Allowed(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Allowed


class Reservations:
    """Nodes reserved at the last look, each with its pods; `key_of` says namespace and name of a pod, `may` hears
    whether pods may be given tolerations."""

    def __init__(
        self,
        client: Client,
        key_of: Callable[[str], str | None],
        metrics: OperatorMetrics,
        may: Callable[[bool], None],
    ) -> None:
        self._client = client
        self._key_of = key_of
        self._metrics = metrics
        self._may = may
        # What pods should tolerate, and what they were asked to: by uid, the nodes.
        self._wanted: dict[str, set[str]] = {}
        self._asked: dict[str, set[str]] = {}
        # What pods show that they tolerate: by namespace and name, the values of our taints.
        self._shown: dict[str, set[str]] = {}
        self._allowed = True
        self._forbidden = False
        self.work = Worklist("reserve", self._do, at_once=16)

    def begin(self) -> None:
        """Ask whether we may, and keep asking."""
        self.work.add(_RIGHT)

    def seen(self, key: str, pod: Pod) -> None:
        if values := {each.value for each in pod.spec.tolerations if each.key == KEPT_TAINT}:
            self._shown[key] = values
        else:
            self.gone(key)

    def gone(self, key: str) -> None:
        self._shown.pop(key, None)

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

    async def _do(self, key: str) -> float | None:
        if key == _RIGHT:
            return await self._ask_right()
        await self._reserve(key)
        return None

    # ----------------------------------------------------------------------------------------------------------- a pod

    async def _reserve(self, uid: str) -> None:
        key = self._key_of(uid)
        if key is None or not self._allowed:
            return
        # An earlier life, or an earlier plan, may have asked it already.
        shown = self._shown.get(key, set())
        wanted = self._wanted.get(uid, set()) - self._asked.get(uid, set())
        missing = sorted(node for node in wanted if kept_value(node) not in shown)
        if not missing:
            return
        namespace, _, name = key.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        try:
            await self._add(path, uid, missing)
            outcome = "accepted"
        except ApiError as error:
            if error.status not in _OUTCOMES:
                # A server that is busy or ill: once more, as long as the node is reserved.
                raise
            outcome = _OUTCOMES[error.status]
            log.info("pod is not given a toleration", pod=key, status=error.status, error=str(error))
            if error.status == FORBIDDEN:
                self._forbidden = True
                self.work.add(_RIGHT)
        self._metrics.reservations.labels(outcome).inc()
        # Once each: whatever the answer was, the node opens soon.
        self._asked.setdefault(uid, set()).update(missing)

    async def _add(self, path: str, uid: str, nodes: list[str]) -> None:
        added = [
            {"key": KEPT_TAINT, "operator": "Equal", "value": kept_value(node), "effect": "NoSchedule"}
            for node in nodes
        ]
        same = {"op": "test", "path": "/metadata/uid", "value": uid}
        each = [{"op": "add", "path": f"{_LIST}/-", "value": toleration} for toleration in added]
        try:
            await self._client.patch(path, [same, *each], JSON_PATCH)
        except ApiError as error:
            if error.status != 422:
                raise
            # A pod without any has no list to add to.
            none = {"op": "test", "path": _LIST, "value": None}
            await self._client.patch(path, [same, none, {"op": "add", "path": _LIST, "value": added}], JSON_PATCH)

    # ------------------------------------------------------------------------------------------------------- the right

    async def _ask_right(self) -> float:
        try:
            answer = await self._client.create(_REVIEWS, _REVIEW)
            allowed = msgspec.json.decode(answer, type=_Review).status.allowed
        except ApiError as error:
            if error.status not in (FORBIDDEN, 404, 405):
                raise
            # Somebody took away even this: then what a patch was told is all we know, and a later one may tell better.
            allowed = not self._forbidden
        self._forbidden = False
        self._metrics.reserves.set(allowed)
        if allowed != self._allowed:
            self._allowed = allowed
            if allowed:
                log.info("pods may be patched: new nodes are reserved again")
            else:
                log.warning(
                    "pods may not be patched: new nodes are not reserved for those they came for",
                    remedy="grant patch on pods (deploy/rbac, bound by deploy/admission), or start with --leave-pods",
                    asked_again=f"{ASK_AGAIN_SECONDS:g}s",
                )
            self._may(allowed)
        return ASK_AGAIN_SECONDS


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
