"""The operator on a real control plane, towards a shard that says what the test wants."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bigfleet.wire import shard_pb2
from tools.kube.cluster import OPERATOR, KubeCluster
from tools.kube.scripted_shard import IDLE, ScriptedShard
from tools.kube.stack import OPERATOR_PROGRAM, deployment, metrics, wait_running
from tools.processes import Program, free_address
from tools.waiting import wait_until

OURS = "/apis/bigfleet.lucy.sh/v1alpha1"
REPORT = shard_pb2.DrainReport
MERGE = "application/merge-patch+json"


class Scene:
    """One cluster, one scripted shard, one operator; nodes of ours by machine id."""

    def __init__(self, cluster: KubeCluster, shard: ScriptedShard, folder: Path) -> None:
        self.cluster = cluster
        self.shard = shard
        self.http = free_address()
        # A fresh API server forbids everything until it has read its rules.
        self.cluster_restarted = False
        flags = ("--placement", "--rollup-interval", "1s", "--drained-retention", "3s", "--no-leader-elect")
        self.operator = Program(
            "operator",
            [
                *(*OPERATOR_PROGRAM, "--cluster-id", "c-1", "--shard-addr", shard.address, "--metrics-addr", self.http),
                *("--kubeconfig", str(cluster.kubeconfig(OPERATOR)), "--log-format", "json", *flags),
            ],
            folder,
        )

    def add_node(self, machine: str, cpu: str = "4") -> None:
        """A node that kwok keeps alive, and a machine the shard knows."""
        room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        labels = {
            "bigfleet.lucy.sh/machine-id": machine,
            "kubernetes.io/hostname": machine,
            "node.kubernetes.io/instance-type": "t",
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


@pytest.fixture(scope="module")
def shared_cluster(control_plane_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    with KubeCluster(tmp_path_factory.mktemp("kube")) as made:
        made.install()
        yield made


@pytest.fixture
def scene(shared_cluster: KubeCluster, tmp_path: Path) -> Iterator[Scene]:
    with ScriptedShard() as shard:
        made = Scene(shared_cluster, shard, tmp_path)
        made.operator.start()
        try:
            shard.wait_for("rollup")
            yield made
            if made.cluster_restarted:
                return
            forbidden = [key for key in metrics(made.http) if key[0].endswith("api_requests_total") and "403" in key]
            assert not forbidden, "calls the operator's role does not allow"
        finally:
            made.operator.kill()
            print(made.operator.tail(3000), file=sys.stderr)
            made.clear()


def budget(name: str, app: str, at_least: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": at_least, "selector": {"matchLabels": {"app": app}}},
    }


def test_a_drain_evicts_within_the_budget_and_reports_when_the_node_is_empty(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.cluster.apply(deployment("web", 4, {"cpu": "1"}), budget("web", "web", 3))
    wait_running(scene.cluster, 4, app="web")
    scene.add_node("m-2")
    scene.shard.reclaim("i-1", "m-1", grace=120)
    scene.shard.wait_for("reclaim_ack", lambda ack: ack.instruction_id == "i-1" and ack.nodes_started == 1)
    report = scene.shard.wait_for("drain_report", seconds=120)
    assert (report.machine_id, report.outcome) == ("m-1", REPORT.OUTCOME_DRAINED)
    assert scene.pods_on("m-1") == [] and len(scene.pods_on("m-2")) == 4
    assert scene.node("m-1")["spec"]["unschedulable"] is True
    assert scene.upcoming()["un-m-1"] == "Draining"


def test_a_budget_without_room_is_never_broken_and_the_end_of_the_grace_is_told(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.cluster.apply(deployment("db", 2, {"cpu": "1"}), budget("db", "db", 2))
    wait_running(scene.cluster, 2, app="db")
    before = scene.pods_on("m-1")
    scene.shard.reclaim("i-1", "m-1", grace=4)
    report = scene.shard.wait_for("drain_report")
    assert report.outcome == REPORT.OUTCOME_GRACE_EXPIRED
    assert scene.pods_on("m-1") == before
    counted = metrics(scene.http)
    assert counted[("bigfleet_operator_evictions_total", "budget")] >= 1
    assert ("bigfleet_operator_evictions_total", "accepted") not in counted


def test_a_cancelled_drain_lets_pods_on_the_node_again(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.cluster.apply(deployment("db", 1, {"cpu": "1"}), budget("db", "db", 1))
    wait_running(scene.cluster, 1, app="db")
    scene.shard.reclaim("i-1", "m-1")
    wait_until(lambda: scene.node("m-1")["spec"].get("unschedulable"), what="m-1 is cordoned")
    scene.shard.say(reclaim_cancel=shard_pb2.ReclaimCancel(instruction_id="i-1"))
    assert scene.shard.wait_for("drain_report").outcome == REPORT.OUTCOME_CANCELLED
    wait_until(lambda: not scene.node("m-1")["spec"].get("unschedulable"), what="m-1 takes pods again")
    assert "bigfleet.lucy.sh/drain" not in scene.node("m-1")["metadata"]["annotations"]


def test_a_voluntary_drain_is_refused_when_pods_would_have_no_room(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.cluster.apply(deployment("web", 2, {"cpu": "1"}))
    wait_running(scene.cluster, 2, app="web")
    scene.shard.wait_for("node_report", lambda report: report.machine_id == "m-1" and not report.empty)
    scene.shard.reclaim("i-1", "m-1", voluntary=True)
    assert scene.shard.wait_for("drain_report").outcome == REPORT.OUTCOME_REFUSED
    assert not scene.node("m-1")["spec"].get("unschedulable")
    assert len(scene.pods_on("m-1")) == 2


def test_a_restarted_operator_goes_on_with_its_drain(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.cluster.apply(deployment("db", 2, {"cpu": "1"}), budget("db", "db", 2))
    wait_running(scene.cluster, 2, app="db")
    scene.shard.reclaim("i-1", "m-1", grace=600)
    wait_until(lambda: "bigfleet.lucy.sh/drain" in scene.node("m-1")["metadata"]["annotations"], what="m-1 is marked")
    scene.operator.kill()
    scene.operator.start()
    hello = scene.shard.wait_for("hello", lambda hello: bool(hello.active_drains))
    assert list(hello.active_drains) == ["m-1"]
    scene.shard.reclaim("i-2", "m-1", grace=600)
    scene.cluster.kubectl("delete", "pdb", "db")
    scene.add_node("m-2")
    report = scene.shard.wait_for("drain_report", seconds=120)
    assert (report.instruction_id, report.outcome) == ("i-2", REPORT.OUTCOME_DRAINED)


def test_a_closing_node_is_marked_and_opens_again_when_only_it_has_room(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.shard.say(node_closing=shard_pb2.NodeClosing(machine_id="m-1", closing=True))
    wait_until(
        lambda: any(t["key"] == "bigfleet.lucy.sh/closing" for t in scene.node("m-1")["spec"].get("taints", ())),
        what="m-1 has the soft taint",
    )
    scene.shard.wait_for("node_report", lambda report: report.closing_since > 0)
    # Keep the scheduler off, so that the pod waits and the operator has to open the node by itself.
    scene.cluster.ask("PATCH", "/api/v1/nodes/m-1", {"spec": {"unschedulable": True}}, kind=MERGE)
    scene.cluster.apply(deployment("web", 1, {"cpu": "1"}))
    wait_until(
        lambda: "bigfleet.lucy.sh/closing-since" not in scene.node("m-1")["metadata"]["annotations"],
        what="m-1 is open again",
        evidence=lambda: scene.node("m-1"),
    )


def test_an_upcoming_node_follows_its_machine_and_its_real_node_until_it_is_gone(scene: Scene) -> None:
    scene.shard.has_node("m-9", labels={"zone": "a"}, resources={"resources": {"cpu": "4"}})
    wait_until(lambda: scene.upcoming().get("un-m-9") == "Registered", what="not Ready without a Node")
    scene.add_node("m-9")
    wait_until(lambda: scene.upcoming().get("un-m-9") == "Ready", what="Ready with its Node")
    seen = scene.cluster.ask("GET", f"{OURS}/upcomingnodes/un-m-9")[1]
    assert seen["status"]["nodeRef"]["name"] == "m-9"
    assert seen["status"]["conditions"][0]["status"] == "True"
    scene.shard.has_node("m-9", IDLE)
    wait_until(lambda: scene.upcoming().get("un-m-9") == "Drained", what="Drained once it left")
    wait_until(lambda: "un-m-9" not in scene.upcoming(), what="removed after its retention")


def test_what_the_shard_no_longer_names_after_a_replay_is_removed(scene: Scene) -> None:
    scene.shard.has_node("m-1")
    wait_until(lambda: "un-m-1" in scene.upcoming(), what="un-m-1 is there")
    scene.shard.nodes.clear()
    scene.shard.hang_up()
    wait_until(lambda: "un-m-1" not in scene.upcoming(), what="un-m-1 is removed")


def test_a_request_is_acknowledged_only_after_the_shards_answer_and_only_once(scene: Scene) -> None:
    scene.shard.answers_rollups = False
    request = {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": "r", "namespace": "default"},
        "spec": {"priority": 5, "resources": {"cpu": "2"}},
    }
    scene.cluster.apply(request)
    told = scene.shard.wait_for("rollup", lambda rollup: len(rollup.needs) == 1)
    path = f"{OURS}/namespaces/default/capacityrequests/r"
    assert scene.cluster.ask("GET", path)[1]["status"] == {"phase": "Pending"}
    need = told.needs[0]
    assert (need.count, need.stranded, need.running, need.priority) == (1, 1, 0, 5)
    scene.shard.answers_rollups = True
    scene.shard.hang_up()
    wait_until(lambda: scene.cluster.ask("GET", path)[1]["status"]["phase"] == "Acknowledged", what="acknowledged")
    version = scene.cluster.ask("GET", path)[1]["metadata"]["resourceVersion"]
    sent = len(scene.shard.all("rollup"))
    wait_until(lambda: len(scene.shard.all("rollup")) >= sent + 2, what="two more roll-ups")
    assert scene.cluster.ask("GET", path)[1]["metadata"]["resourceVersion"] == version


def test_an_api_server_that_restarts_withdraws_no_demand(scene: Scene) -> None:
    names = [f"r-{number}" for number in range(5)]
    for name in names:
        body = {"metadata": {"name": name}, "spec": {"priority": 0, "resources": {"cpu": "1"}}}
        document = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest", **body}
        assert scene.cluster.ask("POST", f"{OURS}/namespaces/default/capacityrequests", document)[0] == 201
    scene.shard.wait_for("rollup", lambda rollup: sum(need.count for need in rollup.needs) == 5)
    heard = len(scene.shard.all("rollup"))
    scene.cluster_restarted = True
    server = scene.cluster.programs["apiserver"]
    server.kill()
    server.start()
    scene.cluster._wait_ready()
    scene.cluster.ask("DELETE", f"{OURS}/namespaces/default/capacityrequests/r-0")
    wait_until(
        lambda: sum(need.count for need in scene.shard.all("rollup")[-1].needs) == 4,
        seconds=120,
        what="the watch goes on and one request is gone",
    )
    counts = [sum(need.count for need in rollup.needs) for rollup in scene.shard.all("rollup")[heard:]]
    assert set(counts) == {5, 4}, json.dumps(counts)
