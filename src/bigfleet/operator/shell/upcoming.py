"""UpcomingNodes: what the shard says of each machine together with what the cluster sees of its Node, as one object.

Level-triggered: what an object should be is worked out from the last frame, the real Node and the drain, and written
if it differs. Ready follows the Node's own condition. A machine that left shows Drained for a while, then its object
goes; what the shard no longer names after a replay is removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bigfleet.crd.upcoming_node import UpcomingNode
from bigfleet.model.names import API_GROUP, API_VERSION, upcoming_node_name
from bigfleet.operator.kube.client import ApiError, Client
from bigfleet.operator.kube.objects import Node
from bigfleet.operator.kube.worklist import Worklist
from bigfleet.operator.shell.metrics import OperatorMetrics
from bigfleet.wire import provider_pb2, shard_pb2

PATH = f"/apis/{API_GROUP}/{API_VERSION}/upcomingnodes"
MACHINE_ANNOTATION = f"{API_GROUP}/machine"
_PHASES = {
    provider_pb2.MACHINE_STATE_SPECULATIVE: "Provisioning",
    provider_pb2.MACHINE_STATE_CREATING: "Provisioning",
    provider_pb2.MACHINE_STATE_IDLE: "Launched",
    provider_pb2.MACHINE_STATE_CONFIGURING: "Registered",
    provider_pb2.MACHINE_STATE_CONFIGURED: "Ready",
    provider_pb2.MACHINE_STATE_DRAINING: "Draining",
    provider_pb2.MACHINE_STATE_FAILED: "Failed",
}
# A machine in one of these after it had been on its way out has left the cluster.
_UNBOUND = frozenset(
    (provider_pb2.MACHINE_STATE_IDLE, provider_pb2.MACHINE_STATE_SPECULATIVE, provider_pb2.MACHINE_STATE_DELETING)
)
_LEAVING = ("Draining", "Drained", "Ready", "Registered", "Failed")
DRAINED = "Drained"


class UpcomingNodes:
    """All of them. `node_of(machine)` is the real Node, `draining(machine)` whether we are emptying it."""

    def __init__(
        self,
        client: Client,
        metrics: OperatorMetrics,
        *,
        node_of: Callable[[str], Node | None],
        draining: Callable[[str], bool],
        retention_seconds: float,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._node_of = node_of
        self._draining = draining
        self._retention = retention_seconds
        self._frames: dict[str, shard_pb2.NodeStateUpdate] = {}
        self._objects: dict[str, UpcomingNode] = {}
        self._names: dict[str, str] = {}
        self._gone: set[str] = set()
        self._drained_at: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}
        self.work = Worklist("upcoming node", self._settle, at_once=32)

    # ----------------------------------------------------------------------------------------------------------- heard

    def heard(self, frame: shard_pb2.NodeStateUpdate) -> None:
        machine = frame.machine_id
        if not machine:
            return
        self._frames[machine] = frame
        self._gone.discard(machine)
        self._heard_at.setdefault(machine, time.monotonic())
        self.look(machine)

    def resynced(self, machines: Mapping[str, None]) -> None:
        """The shard has named every machine of this cluster: others are no longer ours."""
        for machine in set(self._frames) - machines.keys():
            del self._frames[machine]
        for name, seen in self._objects.items():
            machine = machine_of(seen)
            if machine not in machines:
                self._gone.add(machine)
                self._names[name] = machine
                self.work.add(name)

    def look(self, machine: str) -> None:
        name = upcoming_node_name(machine)
        self._names[name] = machine
        self.work.add(name)

    def seen(self, seen: UpcomingNode) -> None:
        name = seen.metadata.name
        self._objects[name] = seen
        self._names.setdefault(name, machine_of(seen))
        if seen.status.phase == DRAINED:
            self._drained_at.setdefault(name, time.monotonic())
            self.work.add(name)

    def gone(self, name: str) -> None:
        self._objects.pop(name, None)
        self._drained_at.pop(name, None)
        if self._names.get(name) in self._frames:
            self.work.add(name)

    # --------------------------------------------------------------------------------------------------------- written

    async def _settle(self, name: str) -> float | None:
        machine = self._names[name]
        known = self._objects.get(name)
        frame = self._frames.get(machine)
        if frame is None:
            return await self._leave(name, machine, known) if machine in self._gone or _is_drained(known) else None
        phase, reason = self._phase(frame, known)
        if phase == DRAINED:
            if known is None:
                return None
            return await self._leave(name, machine, known)
        known = await self._write_spec(name, machine, frame, known)
        if known is None:
            return 0.2
        await self._write_status(name, machine, frame, phase, reason, known)
        self._drained_at.pop(name, None)
        if (began := self._heard_at.pop(machine, None)) is not None:
            self._metrics.node_state.labels(phase).observe(time.monotonic() - began)
        return None

    def _phase(self, frame: shard_pb2.NodeStateUpdate, known: UpcomingNode | None) -> tuple[str, str]:
        was = known.status.phase if known is not None else ""
        if frame.state in _UNBOUND and (was in _LEAVING or frame.state != provider_pb2.MACHINE_STATE_IDLE):
            return (DRAINED, "") if was else ("Provisioning", "")
        phase = _PHASES.get(frame.state, "Provisioning")
        if phase == "Ready":
            if self._draining(frame.machine_id):
                return "Draining", "emptied by the operator"
            node = self._node_of(frame.machine_id)
            if node is None or not node.ready:
                return "Registered", "the machine is configured; its Node is not Ready yet"
        return phase, ""

    async def _leave(self, name: str, machine: str, known: UpcomingNode | None) -> float | None:
        """Show Drained for a while, then remove the object."""
        if known is None:
            self._gone.discard(machine)
            return None
        if known.status.phase != DRAINED:
            await self._patch_status(name, {"phase": DRAINED, "nodeRef": None, "lastError": None})
            self._drained_at[name] = time.monotonic()
        left = self._retention - (time.monotonic() - self._drained_at.setdefault(name, time.monotonic()))
        if left > 0:
            return left
        await self._count("delete", self._client.delete(f"{PATH}/{name}"), ignore=(404,))
        self._frames.pop(machine, None)
        self._gone.discard(machine)
        return None

    async def _write_spec(
        self, name: str, machine: str, frame: shard_pb2.NodeStateUpdate, known: UpcomingNode | None
    ) -> UpcomingNode | None:
        spec: dict[str, Any] = {
            "labels": dict(frame.labels),
            "resources": dict(frame.resources.resources) if frame.HasField("resources") else {},
            "taints": [
                {"key": each.key, "effect": each.effect, **({"value": each.value} if each.value else {})}
                for each in frame.taints
            ],
        }
        if known is None:
            body = {
                "apiVersion": f"{API_GROUP}/{API_VERSION}",
                "kind": "UpcomingNode",
                "metadata": {"name": name, "annotations": {MACHINE_ANNOTATION: machine}},
                "spec": spec,
            }
            try:
                answer = await self._count("create", self._client.create(PATH, body))
            except ApiError as error:
                if error.status != 409:
                    raise
                return None  # the watch will show it in a moment
            made = msgspec.json.decode(answer, type=UpcomingNode)
            self._objects[name] = made
            return made
        have = msgspec.to_builtins(known.spec)
        if not _same_spec(have, spec):
            answer = await self._count(
                "spec_update", self._client.patch(f"{PATH}/{name}", {"spec": _replacing(have, spec)})
            )
            known = msgspec.json.decode(answer, type=UpcomingNode)
            self._objects[name] = known
        return known

    async def _write_status(
        self, name: str, machine: str, frame: shard_pb2.NodeStateUpdate, phase: str, reason: str, known: UpcomingNode
    ) -> None:
        node = self._node_of(machine)
        node_name = node.metadata.name if node is not None else ""
        status: dict[str, Any] = {
            "phase": phase,
            "nodeRef": {"kind": "Node", "name": node_name} if node_name else None,
            "providerID": (node.spec.provider_id if node is not None else "") or frame.provider_id or None,
            "lastError": frame.last_error or None,
        }
        have = known.status
        same = (
            have.phase == phase
            and (have.node_ref.name if have.node_ref is not None else "") == node_name
            and (have.provider_id or None) == status["providerID"]
            and (have.last_error or None) == status["lastError"]
            and have.provisioning_start_time is not None
        )
        if same:
            self._metrics.upcoming_writes.labels("status_update", "noop").inc()
            return
        if have.provisioning_start_time is None:
            status["provisioningStartTime"] = _now()
        status["conditions"] = [_condition(phase, reason)]
        await self._patch_status(name, status)

    async def _patch_status(self, name: str, status: dict[str, Any]) -> None:
        answer = await self._count(
            "status_update", self._client.patch(f"{PATH}/{name}/status", {"status": status}), ignore=(404,)
        )
        if answer:
            self._objects[name] = msgspec.json.decode(answer, type=UpcomingNode)

    async def _count(self, op: str, call: Any, ignore: tuple[int, ...] = ()) -> bytes:
        try:
            answer: bytes = await call
        except ApiError as error:
            if error.status in ignore:
                return b""
            self._metrics.upcoming_writes.labels(op, "conflict" if error.status == 409 else "error").inc()
            raise
        self._metrics.upcoming_writes.labels(op, "success").inc()
        return answer


def machine_of(seen: UpcomingNode) -> str:
    """Whose object it is; objects of an operator that did not write it down carry the id in their name."""
    written = seen.metadata.annotations.get(MACHINE_ANNOTATION, "")
    return written or seen.metadata.name.removeprefix("un-")


def _is_drained(known: UpcomingNode | None) -> bool:
    return known is not None and known.status.phase == DRAINED


def _same_spec(have: dict[str, Any], wanted: dict[str, Any]) -> bool:
    numbers = {name: str(value) for name, value in have.get("resources", {}).items()}
    same: bool = (
        have.get("labels", {}) == wanted["labels"]
        and numbers == wanted["resources"]
        and list(have.get("taints", ())) == wanted["taints"]
    )
    return same


def _replacing(have: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """A merge patch keeps what it does not name: what must go is named as null."""
    out = dict(wanted)
    for field in ("labels", "resources"):
        out[field] = {**dict.fromkeys(have.get(field, {})), **wanted[field]}
    return out


def _condition(phase: str, message: str) -> dict[str, str]:
    return {
        "type": "Ready",
        "status": "True" if phase == "Ready" else "False",
        "reason": phase,
        "message": message,
        "lastTransitionTime": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
