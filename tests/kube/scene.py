"""A real cluster, a shard that says what a test wants, and our operator between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.kube.cluster import OPERATOR, KubeCluster
from tools.kube.scripted_shard import ScriptedShard
from tools.kube.stack import OPERATOR_PROGRAM, metrics
from tools.processes import Program, free_address
from tools.waiting import wait_until

OURS = "/apis/bigfleet.lucy.sh/v1alpha1"


class Scene:
    """One cluster, one scripted shard, one operator; nodes of ours by machine id."""

    def __init__(
        self, cluster: KubeCluster, shard: ScriptedShard, folder: Path, *, kubeconfig: Path | None = None
    ) -> None:
        self.cluster = cluster
        self.shard = shard
        self.http = free_address()
        # A fresh API server forbids everything until it has read its rules.
        self.cluster_restarted = False
        flags = ("--rollup-interval", "1s", "--drained-retention", "3s", "--no-leader-elect")
        flags = (*flags, "--keep-off-interruptible", "64")
        self.operator = Program(
            "operator",
            [
                *(*OPERATOR_PROGRAM, "--cluster-id", "c-1", "--shard-addr", shard.address, "--metrics-addr", self.http),
                *("--kubeconfig", str(kubeconfig or cluster.kubeconfig(OPERATOR)), "--log-format", "json", *flags),
            ],
            folder,
        )

    def add_node(self, machine: str, cpu: str = "4", **more: str) -> None:
        """A node that kwok keeps alive, and a machine the shard knows."""
        room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        labels = {
            "bigfleet.lucy.sh/machine-id": machine,
            "kubernetes.io/hostname": machine,
            "node.kubernetes.io/instance-type": "t",
            **{f"bigfleet.lucy.sh/{key.replace('_', '-')}": value for key, value in more.items()},
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": machine, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {
                "allocatable": room,
                "capacity": room,
                "conditions": [{"type": "Ready", "status": "False", "reason": "Booting", "message": ""}],
            },
        }
        status, answer = self.cluster.ask("POST", "/api/v1/nodes", node)
        assert status == 201, answer
        self.shard.has_node(machine)
        wait_until(lambda: self.is_ready(machine), what=f"{machine} is ready")

    def node(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.ask("GET", f"/api/v1/nodes/{name}")[1]
        return found

    def is_ready(self, name: str) -> bool:
        conditions = self.node(name).get("status", {}).get("conditions", ())
        taints = self.node(name)["spec"].get("taints", ())
        blocked = any(each["effect"] != "PreferNoSchedule" for each in taints)
        return not blocked and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def upcoming(self) -> dict[str, str]:
        return {
            each["metadata"]["name"]: each.get("status", {}).get("phase", "")
            for each in self.cluster.items(f"{OURS}/upcomingnodes")
        }

    def pods_on(self, node: str) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.cluster.items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
            if not pod["metadata"].get("deletionTimestamp")
        ]

    def clear(self) -> None:
        """The cluster as it was before the test."""
        for kind in ("deployments", "poddisruptionbudgets"):
            self.cluster.kubectl("delete", kind, "--all", "--wait=true", "--timeout=60s")
        self.cluster.ask("DELETE", "/api/v1/namespaces/default/pods", {"gracePeriodSeconds": 0})
        self.cluster.ask("DELETE", f"{OURS}/namespaces/default/capacityrequests")
        self.cluster.ask("DELETE", "/api/v1/nodes")
        self.cluster.ask("DELETE", f"{OURS}/upcomingnodes")
        wait_until(lambda: not self.cluster.items("/api/v1/pods"), what="no pod is left")


@contextmanager
def played(made: Scene) -> Iterator[Scene]:
    made.operator.start()
    try:
        made.shard.wait_for("rollup")
        yield made
        if made.cluster_restarted:
            return
        forbidden = [key for key in metrics(made.http) if key[0].endswith("api_requests_total") and "403" in key]
        assert not forbidden, "calls the operator's role does not allow"
    finally:
        made.operator.kill()
        print(made.operator.tail(3000), file=sys.stderr)
        made.clear()
