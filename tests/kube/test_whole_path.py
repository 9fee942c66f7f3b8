"""From a pod that fits nowhere to a pod that runs, on a real control plane."""

from __future__ import annotations

from pathlib import Path

from tools.kube.cluster import KubeCluster
from tools.kube.stack import Stack, deployment, wait_running
from tools.waiting import wait_until


def test_unschedulable_pods_get_nodes_and_run_and_scaling_to_zero_gives_the_machines_back(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    with Stack(tmp_path / "stack", {"c-1": cluster}) as stack:
        cluster.apply(deployment("web", 12, {"cpu": "2", "memory": "8Gi"}))
        pods = wait_running(cluster, 12, app="web")
        nodes = {node["metadata"]["name"]: node for node in cluster.items("/api/v1/nodes")}
        assert {pod["spec"]["nodeName"] for pod in pods} <= nodes.keys()
        assert all(node["metadata"]["labels"]["bigfleet.lucy.sh/simulated"] == "true" for node in nodes.values())
        requests = "/apis/bigfleet.lucy.sh/v1alpha1/capacityrequests"
        wait_until(
            lambda: {each["status"]["phase"] for each in cluster.items(requests)} == {"Acknowledged"},
            what="every request is acknowledged",
            evidence=lambda: cluster.items(requests),
        )
        upcoming = "/apis/bigfleet.lucy.sh/v1alpha1/upcomingnodes"
        wait_until(
            lambda: {each.get("status", {}).get("phase") for each in cluster.items(upcoming)} == {"Ready"},
            what="every upcoming node is Ready",
            evidence=lambda: [(u["metadata"]["name"], u.get("status")) for u in cluster.items(upcoming)],
        )
        assert {each["status"]["nodeRef"]["name"] for each in cluster.items(upcoming)} == nodes.keys()

        cluster.kubectl("scale", "deployment/web", "--replicas=0")
        wait_until(lambda: not cluster.items("/api/v1/nodes"), seconds=120, what="every node is given back")
        assert not stack.forbidden()
