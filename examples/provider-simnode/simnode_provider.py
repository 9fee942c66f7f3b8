"""A BigFleet provider without machines: a configured host is a Node object, and kwok plays its kubelet.

    python examples/provider-simnode/simnode_provider.py --addr 127.0.0.1:9000 --kubeconfig admin.kubeconfig

For trying BigFleet on a real control plane: the scheduler binds real pods to these nodes, and kwok says they run.
`--kubeconfig` names the cluster that hosts join; `--kubeconfig NAME=FILE`, repeated, one for each cluster id.
Between joining and Ready a host boots for `--boots-for` seconds, in which pods of DaemonSets come first: on a host that
is ready at once the others take their room, and no scheduler gives it back.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import ssl
import threading
from pathlib import Path
from typing import Any

import yaml

from bigfleet.model.names import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    MACHINE_ID_LABEL,
    SIMULATED_LABEL,
    ZONE_LABEL,
    machine_label,
)
from bigfleet.provider import kit

ONE, SMALL, LARGE = {"cpu": "1", "memory": "4Gi"}, {"cpu": "8", "memory": "32Gi"}, {"cpu": "32", "memory": "128Gi"}
MARKET = [  # type, zone, how many, billing, dollars per hour, chance per hour of losing it, what a pod takes, the host
    kit.Offering("sim.small", "zone-a", 3, kit.CapacityType.ON_DEMAND, 0.40, 0.0, ONE, SMALL),
    kit.Offering("sim.small", "zone-b", 2, kit.CapacityType.SPOT, 0.12, 0.05, ONE, SMALL),
    kit.Offering("sim.large", "zone-a", 2, kit.CapacityType.ON_DEMAND, 1.50, 0.0, ONE, LARGE),
    kit.Offering("sim.gpu", "zone-a", 1, kit.CapacityType.ON_DEMAND, 12.0, 0.0, ONE, {**LARGE, "nvidia.com/gpu": "8"}),
]
NOT_JOINED = "not-joined"
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class SimNodeProvider:
    """Hosts are remembered by the kit alone; nodes live in the API server."""

    def __init__(self, flags: kit.Flags) -> None:
        self.provider = flags.provider
        self.offerings = (
            kit.read_offerings(Path(flags.offerings)) if flags.offerings else kit.spread(MARKET, flags.seed_count)
        )
        self.clusters = _clusters(flags.extra["kubeconfig"])
        self.boots_for = float(str(flags.extra["boots_for"]))

    def describe(self) -> list[kit.Instance]:
        return [slot for offering in self.offerings for slot in offering.slots(self.provider)]

    def create_instance(self, machine: kit.Machine, operation_id: str) -> str:
        return f"simnode://{machine.id}/{operation_id}"

    def configure_instance(
        self, machine: kit.Machine, cluster_id: str, bootstrap_blob: bytes, operation_id: str
    ) -> None:
        """The host boots with the user data and joins: its Node appears, not ready yet."""
        node = _node(machine, _user_data(bootstrap_blob), self.boots_for)
        self._server(cluster_id).put_node(node)

    def confirm_node_ready(self, machine: kit.Machine, cluster_id: str, operation_id: str) -> bool:
        """Ready once kwok, as its kubelet, has said so. The name is the one it joined with."""
        return self._server(cluster_id).is_ready(self._joined(machine, cluster_id))

    def drain_instance(self, machine: kit.Machine, grace_period_seconds: int, operation_id: str) -> None:
        """Pods were evicted before, by the operator; taking the kubelet away removes the Node."""
        if machine.cluster:
            server = self._server(machine.cluster)
            server.delete_node(self._joined(machine, machine.cluster))

    def delete_instance(self, machine: kit.Machine, operation_id: str) -> None:
        """A host has no trace outside the kit: it is gone when its machine is."""

    def reattach_instance(self, kind: kit.Kind, machine: kit.Machine, operation_id: str) -> str | None:
        """We were killed during this work. A host that joined goes on; joining anew needs user data that is gone."""
        if kind is kit.Kind.CONFIGURE:
            if self._joined(machine, machine.cluster) != NOT_JOINED:
                return None
            raise RuntimeError("interrupted by a provider restart, and the bootstrap blob is gone")
        if kind is kit.Kind.CREATE:
            return self.create_instance(machine, operation_id)
        if kind is kit.Kind.DRAIN:
            self.drain_instance(machine, 0, operation_id)
        return None

    def _server(self, cluster_id: str) -> ApiServer:
        found = self.clusters.get(cluster_id) or self.clusters.get("")
        if found is None:
            raise RuntimeError(f"no kubeconfig for cluster {cluster_id!r}; start with --kubeconfig {cluster_id}=FILE")
        return found

    def _joined(self, machine: kit.Machine, cluster_id: str) -> str:
        return self._server(cluster_id).node_of(machine.host_ref)


class ApiServer:
    """The four requests a kubelet that is not there would make."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._host = cluster["server"].removeprefix("https://")
        self._trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._token = user["token"]
        self._kept = threading.local()
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def put_node(self, node: dict[str, Any]) -> None:
        """Create the Node, or give an old one of that name its new life. Its status is written with it, not ready."""
        name = node["metadata"]["name"]
        status, answer = self._ask("POST", "/api/v1/nodes", node)
        if status == 409:
            self.delete_node(name)
            status, answer = self._ask("POST", "/api/v1/nodes", node)
        if status >= 300:
            raise RuntimeError(f"node {name} was refused: {answer.get('message', status)}")
        with self._lock:
            self._names[node["spec"]["providerID"]] = name

    def is_ready(self, name: str) -> bool:
        status, node = self._ask("GET", f"/api/v1/nodes/{name}")
        conditions = node.get("status", {}).get("conditions", ()) if status == 200 else ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def delete_node(self, name: str) -> None:
        status, answer = self._ask("DELETE", f"/api/v1/nodes/{name}")
        if status >= 300 and status != 404:
            raise RuntimeError(f"node {name} was not deleted: {answer.get('message', status)}")

    def node_of(self, host: str) -> str:
        """The name a host joined with; after a restart of the provider the API server still knows it."""
        with self._lock:
            known = self._names.get(host)
        if known is None:
            status, answer = self._ask("GET", "/api/v1/nodes")
            if status != 200:
                raise RuntimeError(f"nodes could not be listed: {answer.get('message', status)}")
            with self._lock:
                for node in answer["items"]:
                    self._names[node["spec"].get("providerID", "")] = node["metadata"]["name"]
                known = self._names.get(host, NOT_JOINED)
        return known

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """One request on the thread's own connection; one that the server closed meanwhile is opened again."""
        content = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        for last in (False, True):
            connection = getattr(self._kept, "connection", None)
            if connection is None:
                connection = self._kept.connection = http.client.HTTPSConnection(
                    self._host, timeout=30, context=self._trust
                )
            try:
                connection.request(method, path, body=content, headers=headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read() or b"{}")
            except (OSError, http.client.HTTPException):
                connection.close()
                self._kept.connection = None
                if last:
                    raise
        raise AssertionError("unreachable")


def _node(machine: kit.Machine, told: dict[str, Any], boots_for: float) -> dict[str, Any]:
    """The Node as a kubelet with this user data would register it: Ready is False until kwok says otherwise, because a
    Node without a Ready condition is given pods within seconds."""
    labels = {
        **{key: value for key, value in machine.labels.items() if _LABEL_VALUE.fullmatch(value)},
        INSTANCE_TYPE_LABEL: machine.instance_type,
        ZONE_LABEL: machine.zone,
        CAPACITY_TYPE_LABEL: machine.capacity_type.label,
        MACHINE_ID_LABEL: machine_label(machine.id),
        SIMULATED_LABEL: "true",
        **told.get("labels", {}),
    }
    name = told.get("node_name") or machine.id
    if not _NODE_NAME.fullmatch(name):
        name = re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:200] or "host"
    labels["kubernetes.io/hostname"] = name[:63]
    annotations = {"kwok.x-k8s.io/node": "fake", "simnode/boots-for": f"{boots_for:g}s"}
    allocatable = {"pods": "110", **dict(machine.shape.allocatable or machine.shape.resources)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "providerID": machine.host_ref,
            "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in machine.shape.taints],
        },
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "False", "reason": "Booting", "message": "the host boots"}],
        },
    }


def _user_data(blob: bytes) -> dict[str, Any]:
    """What the operator's template wrote, where it is the JSON this provider understands; never kept."""
    try:
        told = json.loads(blob)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _clusters(given: object) -> dict[str, ApiServer]:
    found = {}
    for each in given if isinstance(given, list) else []:
        name, _, path = str(each).rpartition("=")
        found[name] = ApiServer(Path(path))
    return found


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", action="append", default=[], metavar="[CLUSTER=]FILE", help="where hosts join; repeat for more"
    )
    parser.add_argument("--boots-for", type=float, default=1.0, metavar="SECONDS", help="from joining to Ready (1)")


if __name__ == "__main__":
    raise SystemExit(kit.serve(SimNodeProvider, name="simnode", add_flags=_flags))
