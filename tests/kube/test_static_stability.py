"""Everything of BigFleet may die: clusters run on, and what comes back converges without a needless drain."""

from __future__ import annotations

from pathlib import Path

from tools.kube.cluster import KubeCluster
from tools.kube.stack import QUICK, Stack, deployment, wait_running
from tools.waiting import wait_until


def test_no_pod_dies_with_bigfleet_and_nothing_is_drained_when_it_returns(cluster: KubeCluster, tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack", {"c-1": cluster}, settings={**QUICK, "reclaim-hold": "5s"})
    stack.start()
    try:
        cluster.apply(deployment("web", 8, {"cpu": "2", "memory": "4Gi"}))
        before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in wait_running(cluster, 8, app="web")}
        nodes = {node["metadata"]["uid"] for node in cluster.items("/api/v1/nodes")}
        for program in stack.programs():
            program.kill()
        assert _running(cluster) == before
        for program in reversed(stack.programs()):
            program.start()
        stack.wait_ready()
        # Demand that came while all were dead is served: BigFleet works again, not merely runs.
        cluster.apply(deployment("late", 4, {"cpu": "2", "memory": "4Gi"}))
        wait_running(cluster, 4, app="late")
        assert _running(cluster) == before
        after = cluster.items("/api/v1/nodes")
        assert nodes <= {node["metadata"]["uid"] for node in after}
        assert not any(node["spec"].get("unschedulable") for node in after)
        wait_until(
            lambda: {each.get("status", {}).get("phase") for each in cluster.items(_UPCOMING)} == {"Ready"},
            what="every upcoming node is Ready again",
            evidence=lambda: [(each["metadata"]["name"], each.get("status")) for each in cluster.items(_UPCOMING)],
        )
        drained = [
            line for line in (tmp_path / "stack" / "audit.jsonl").read_text().splitlines() if '"drain' in line.lower()
        ]
        assert not drained, drained[:3]
        assert not stack.forbidden()
    finally:
        stack.stop()


_UPCOMING = "/apis/bigfleet.lucy.sh/v1alpha1/upcomingnodes"


def _running(cluster: KubeCluster) -> dict[str, str]:
    pods = cluster.items("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb")
    assert all(pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp") for pod in pods)
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}
