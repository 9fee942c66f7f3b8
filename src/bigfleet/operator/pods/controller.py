"""The pod controller at work: keeps the requests of all pods as the rule says, whatever happens in which order.

Level-triggered per pod. Names are fixed, so two lives of the controller, or a stale view, never make two requests of
one pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from bigfleet.crd.capacity_request import CapacityRequest, CapacityRequestSpec
from bigfleet.model.names import API_GROUP, API_VERSION, MACHINE_ID_LABEL, OWNED_BY_POD_LABEL
from bigfleet.operator.kube.client import ApiError, Client
from bigfleet.operator.kube.listwatch import ListWatch, key_of
from bigfleet.operator.kube.notices import Notices
from bigfleet.operator.kube.objects import Node, Pod
from bigfleet.operator.kube.worklist import Worklist
from bigfleet.operator.pods.metrics import PodControllerMetrics
from bigfleet.operator.pods.rule import Mode, request_for, request_name, wants_request
from bigfleet.operator.pods.siblings import Siblings
from bigfleet.operator.reading.volumes import Volumes, claims_of
from bigfleet.operator.reading.watches import Told, volume_watches
from bigfleet.operator.reading.wishes import Penalties

log = structlog.get_logger(__name__)

OURS = f"/apis/{API_GROUP}/{API_VERSION}"


class PodController:
    """One cluster's."""

    def __init__(
        self,
        client: Client,
        metrics: PodControllerMetrics,
        *,
        mode: Mode = Mode.UNSCHEDULABLE,
        defaults: Mapping[str, Penalties] | None = None,
        at_once: int = 16,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._mode = mode
        self._defaults = defaults or {}
        self._notices = Notices(client, "bigfleet-unschedulable-pod-controller")
        self._pods: dict[str, Pod] = {}
        self._by_uid: dict[str, str] = {}
        self._siblings = Siblings()
        # All nodes, and those of BigFleet's.
        self._all_nodes: set[str] = set()
        self._nodes: set[str] = set()
        self._on_node: dict[str, set[str]] = {}
        # Requests that name a pod as their owner, by that pod's uid.
        self._requests: dict[str, dict[str, CapacityRequestSpec]] = {}
        self._uids: dict[str, str] = {}
        self._work = Worklist("request of pod", self._settle, at_once=at_once)
        self._volumes = Volumes(self._claim_changed)
        self._mounted_by: dict[str, set[str]] = {}
        requests = Told(self.request_seen, self.request_gone)
        self._watches: list[ListWatch[Any]] = [
            *volume_watches(client, self._volumes, limits=False),
            ListWatch(client, "/api/v1/nodes", Node, Told(self.node_seen, self.node_gone)),
            ListWatch(client, f"{OURS}/capacityrequests", CapacityRequest, requests),
            ListWatch(client, "/api/v1/pods", Pod, Told(self.pod_seen, self.pod_gone)),
        ]

    @property
    def complete(self) -> bool:
        return all(watch.complete.is_set() for watch in self._watches)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as parts:
            for watch in self._watches:
                parts.create_task(watch.run())
            parts.create_task(self._notices.run())
            # Before all three are known a pod might seem to have no request, or no node of ours.
            await asyncio.gather(*(watch.complete.wait() for watch in self._watches))
            log.info("pod controller started", pods=len(self._pods), requests=len(self._uids), mode=str(self._mode))
            parts.create_task(self._work.run())

    # ----------------------------------------------------------------------------------------------------------- heard

    def pod_seen(self, pod: Pod) -> None:
        key = key_of(pod)
        before = self._pods.get(key)
        self._pods[key] = pod
        for other in self._siblings.seen(key, before, pod):
            self._work.add(other)
        self._by_uid[pod.metadata.uid] = key
        if before is not None and before.metadata.uid != pod.metadata.uid:
            self._by_uid.pop(before.metadata.uid, None)
        if before is not None and before.spec.node_name != pod.spec.node_name:
            self._on_node.get(before.spec.node_name, set()).discard(key)
        if pod.spec.node_name:
            self._on_node.setdefault(pod.spec.node_name, set()).add(key)
        for claim in claims_of(pod):
            self._mounted_by.setdefault(claim, set()).add(key)
        self._work.add(key)

    def pod_gone(self, key: str) -> None:
        pod = self._pods.pop(key, None)
        if pod is not None:
            self._siblings.gone(key, pod)
            self._by_uid.pop(pod.metadata.uid, None)
            for claim in claims_of(pod):
                self._mounted_by.get(claim, set()).discard(key)
            self._on_node.get(pod.spec.node_name, set()).discard(key)
            # Kubernetes removes the request with its owner; nothing is left to do.
            self._metrics.reconciles.labels("pod_gone").inc()

    def _claim_changed(self, claim: str) -> None:
        for key in self._mounted_by.get(claim, ()):
            self._work.add(key)

    def node_seen(self, node: Node) -> None:
        name = node.metadata.name
        self._all_nodes.add(name)
        ours = MACHINE_ID_LABEL in node.metadata.labels
        if ours != (name in self._nodes):
            (self._nodes.add if ours else self._nodes.discard)(name)
            for key in self._on_node.get(name, ()):
                self._work.add(key)

    def node_gone(self, name: str) -> None:
        # Its pods keep their requests until they are gone: whoever replaces them needs the room.
        self._nodes.discard(name)
        self._all_nodes.discard(name)

    def request_seen(self, request: CapacityRequest) -> None:
        uid = _owner(request)
        key = key_of(request)
        if uid:
            self._uids[key] = uid
            self._requests.setdefault(uid, {})[key] = request.spec

    def request_gone(self, key: str) -> None:
        uid = self._uids.pop(key, "")
        mine = self._requests.get(uid, {})
        mine.pop(key, None)
        if not mine:
            self._requests.pop(uid, None)
        if (pod := self._by_uid.get(uid)) is not None:
            # Somebody removed it while its pod is there.
            self._work.add(pod)

    # --------------------------------------------------------------------------------------------------------- written

    async def _settle(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        try:
            outcome = await self._reconcile(key, pod)
        except ApiError:
            self._metrics.reconciles.labels("error").inc()
            raise
        self._metrics.reconciles.labels(outcome).inc()

    async def _reconcile(self, key: str, pod: Pod) -> str:
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        known = self._requests.get(uid, {})
        node = pod.spec.node_name
        # A node that is gone was ours if its pod has a request: taking that away would lose the demand for a moment.
        ours = node in self._nodes or (bool(known) and node not in self._all_nodes)
        # What was presumed of a pod is not taken back before the scheduler has looked at it.
        presumed = bool(known) or self._siblings.speak_for(pod)
        if not wants_request(pod, ours=ours, mode=self._mode, presumed=presumed):
            for each in list(known):
                await self._delete(each)
            return "pod_terminal" if pod.status.phase in ("Succeeded", "Failed") else "not_wanted"
        body, wish = request_for(pod, self._defaults, self._volumes.requirements(pod))
        if body is None:
            self._notices.tell("Pod", key, uid, "NotExpressible", wish.refused)
            self._metrics.inexpressible.inc()
            for each in list(known):
                await self._delete(each)
            return "not_expressible"
        if wish.left_out:
            self._notices.tell(
                "Pod", key, uid, "PartlyExpressed", "not asked of the fleet: " + "; ".join(wish.left_out)
            )
        name = request_name(pod)
        mine = f"{namespace}/{name}"
        for each in list(known):
            if each != mine:
                await self._delete(each)
        if mine in known:
            if known[mine] == wish.spec:
                return "cr_exists"
            await self._client.patch(self._path(namespace, name), {"spec": _replacing(known[mine], body["spec"])})
            return "cr_updated"
        try:
            made = await self._client.create(f"{OURS}/namespaces/{namespace}/capacityrequests", body)
        except ApiError as error:
            if error.status == 409:
                return "cr_exists"
            if error.status in (403, 404) and _is_terminating(error):
                return "pod_gone"
            if error.status == 422:
                self._notices.tell("Pod", key, uid, "NotExpressible", error.message)
                self._metrics.inexpressible.inc()
                return "not_expressible"
            raise
        self._requests.setdefault(uid, {})[mine] = msgspec.json.decode(made, type=CapacityRequest).spec
        self._uids[mine] = uid
        return "cr_created"

    async def _delete(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            await self._client.delete(self._path(namespace, name))
        except ApiError as error:
            if error.status != 404:
                raise

    def _path(self, namespace: str, name: str) -> str:
        return f"{OURS}/namespaces/{namespace}/capacityrequests/{name}"


def _owner(request: CapacityRequest) -> str:
    """Only requests this controller, or the reference's, wrote: others belong to whoever wrote them."""
    return request.metadata.labels.get(OWNED_BY_POD_LABEL, "")


def _replacing(known: CapacityRequestSpec, wanted: dict[str, Any]) -> dict[str, Any]:
    """A merge patch keeps what it does not name: what must go is named as null."""
    had = msgspec.to_builtins(known)
    out = {**dict.fromkeys(had), **wanted}
    out["resources"] = {**dict.fromkeys(had.get("resources", {})), **wanted["resources"]}
    return out


def _is_terminating(error: ApiError) -> bool:
    return "being terminated" in error.message or error.status == 404
