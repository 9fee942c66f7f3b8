"""Machines neither go because pods come and go, nor stay when nobody needs them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools.kube.budget_witness import BudgetWitness
from tools.kube.cluster import KubeCluster
from tools.kube.stack import QUICK, Stack, deployment, wait_running
from tools.waiting import wait_until

pytestmark = pytest.mark.skipif(os.environ.get("BIGFLEET_E2E") != "1", reason="takes minutes: make e2e")

SIZE = {"cpu": "8", "memory": "32Gi", "pods": "110"}
SMALL = {
    "instance_type": "sim.small",
    "zone": "z",
    "capacity_type": "on_demand",
    "count": 8,
    "resources": SIZE,
    "allocatable": SIZE,
    "price_per_hour": 0.4,
}
FLAGS = ("--rollup-interval", "2s")
# An empty node is kept longer than a pod takes to be replaced, as with the product's own two minutes.
HOLDING = {**QUICK, "empty-hold": "25s", "consolidate": False}
# Everything that takes minutes or an hour in earnest takes seconds.
MOVING = {
    **QUICK,
    "consolidate-interval": "2s",
    "consolidate-settle": "5s",
    "consolidate-closing": "5s",
    "closed-empty-hold": "2s",
    "consolidate-closing-fraction": 0.5,
    "consolidate-move-fraction": 0.5,
    "eviction-rate": 1.0,
}
# A pod is old after a second, too.
MOVED = (*FLAGS, "--old-after", "1s")


def given_back(stack: Stack) -> list[str]:
    """Machines that the shard took from the cluster."""
    lines = (stack.folder / "audit.jsonl").read_text().splitlines()
    return [entry["machine"] for entry in map(json.loads, lines) if entry["kind"] in ("Reclaim", "Drain")]


def stateful(name: str, replicas: int, requests: dict[str, str]) -> dict[str, Any]:
    made = deployment(name, replicas, requests)
    return {**made, "kind": "StatefulSet", "spec": {**made["spec"], "serviceName": name}}


def nodes(cluster: KubeCluster) -> list[str]:
    return sorted(node["metadata"]["name"] for node in cluster.items("/api/v1/nodes"))


def test_pods_that_are_replaced_drain_nothing_and_scaling_to_zero_gives_everything_back(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    stack = Stack(tmp_path / "stack", {"c-1": cluster}, offerings=[SMALL], settings=HOLDING, operator_flags=FLAGS)
    with stack:
        # Each of the database's pods fills a machine: restarting it leaves that machine empty for a moment.
        cluster.apply(deployment("web", 6, {"cpu": "2"}), stateful("db", 2, {"cpu": "8"}))
        wait_running(cluster, 6, app="web", seconds=120)
        wait_running(cluster, 2, app="db", seconds=120)
        before = nodes(cluster)
        for _ in range(6):
            oldest = min(wait_running(cluster, 6, app="web"), key=lambda pod: pod["metadata"]["creationTimestamp"])
            cluster.kubectl("delete", "pod", oldest["metadata"]["name"])
        cluster.kubectl("rollout", "restart", "statefulset/db")
        cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=120s")
        wait_running(cluster, 6, app="web")
        assert given_back(stack) == []
        assert nodes(cluster) == before
        assert not any(node["spec"].get("unschedulable") for node in cluster.items("/api/v1/nodes"))

        cluster.kubectl("scale", "deployment/web", "statefulset/db", "--replicas=0")
        wait_until(lambda: not nodes(cluster), seconds=180, what="every node is given back", evidence=stack.shard.tail)
        assert not stack.forbidden()


def test_a_fragmented_deployment_moves_to_fewer_nodes_within_its_budget(cluster: KubeCluster, tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack", {"c-1": cluster}, offerings=[SMALL], settings=MOVING, operator_flags=MOVED)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 5, "selector": {"matchLabels": {"app": "web"}}},
    }
    with stack:
        apart = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        spread = [{**apart, "labelSelector": {"matchLabels": {"app": "web"}}}]
        cluster.apply(deployment("web", 16, {"cpu": "2"}, topologySpreadConstraints=spread))
        wait_running(cluster, 16, app="web", seconds=120)
        assert len(nodes(cluster)) == 4
        cluster.apply(budget)
        cluster.kubectl("scale", "deployment/web", "--replicas=6")
        wait_until(
            lambda: len(cluster.items("/api/v1/namespaces/default/pods")) == 6, seconds=60, what="six pods are left"
        )
        with BudgetWitness(cluster, "web") as witness:
            # Six pods of two cpu fit two nodes of eight.
            wait_until(
                lambda: len(nodes(cluster)) == 2,
                seconds=180,
                what="two nodes are left",
                evidence=lambda: (nodes(cluster), stack.shard.tail(1500)),
            )
            wait_running(cluster, 6, app="web")
        assert witness.broken == []
        assert not stack.forbidden()
