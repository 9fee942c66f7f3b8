"""The operator on a real control plane, towards a shard that says what the test wants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bigfleet.model.quantity import parse_quantity
from bigfleet.wire import shard_pb2
from tests.kube.scene import OURS, Scene, played
from tools.kube.cluster import KubeCluster
from tools.kube.reference_shard import ReferenceShard
from tools.kube.scripted_shard import CONFIGURING, DRAINING, IDLE, ScriptedShard
from tools.kube.stack import deployment, metrics, wait_running
from tools.waiting import wait_until

ADMISSION = Path(__file__).resolve().parents[2] / "deploy" / "admission" / "keep-off-interruptible.yaml"
PROPORTION = ADMISSION.with_name("prefer-own-proportion.yaml")
REPORT = shard_pb2.DrainReport
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def shared_cluster(control_plane_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    with KubeCluster(tmp_path_factory.mktemp("kube")) as made:
        made.install()
        yield made


@pytest.fixture
def scene(shared_cluster: KubeCluster, tmp_path: Path) -> Iterator[Scene]:
    with ScriptedShard() as shard, played(Scene(shared_cluster, shard, tmp_path)) as made:
        yield made


@pytest.fixture
def reference_scene(shared_cluster: KubeCluster, tmp_path: Path) -> Iterator[Scene]:
    with ReferenceShard() as shard, played(Scene(shared_cluster, shard, tmp_path)) as made:
        yield made


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
    assert scene.pods_on("m-1") == []
    wait_until(lambda: len(scene.pods_on("m-2")) == 4, what="the last pod evicted is on m-2")
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


def test_a_closing_node_takes_nobody_and_opens_for_a_pod_nobody_else_serves(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.shard.say(node_closing=shard_pb2.NodeClosing(machine_id="m-1", closing=True))
    wait_until(
        lambda: (
            ("bigfleet.lucy.sh/closing", "NoSchedule")
            in {(t["key"], t["effect"]) for t in scene.node("m-1")["spec"].get("taints", ())}
        ),
        what="m-1 has the hard taint",
    )
    scene.shard.wait_for("node_report", lambda report: report.closing_since > 0)
    # No request counts this pod, so that the shard never hears of it: the operator opens the node by itself.
    scene.cluster.apply(deployment("web", 1, {"cpu": "1"}))
    wait_running(scene.cluster, 1, app="web")
    assert "bigfleet.lucy.sh/closing-since" not in scene.node("m-1")["metadata"]["annotations"]


def test_a_node_that_has_become_empty_closes_by_itself(scene: Scene) -> None:
    scene.add_node("m-1")
    scene.cluster.apply(deployment("web", 1, {"cpu": "1"}))
    wait_running(scene.cluster, 1, app="web")
    scene.cluster.kubectl("delete", "deployment", "web")
    scene.shard.wait_for("node_report", lambda report: report.closing_since > 0 and report.empty)
    taints = {(t["key"], t["effect"]) for t in scene.node("m-1")["spec"].get("taints", ())}
    assert ("bigfleet.lucy.sh/closing", "NoSchedule") in taints


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


def test_pods_and_requests_that_are_dear_to_interrupt_keep_off_spot_nodes(scene: Scene) -> None:
    scene.cluster.kubectl("apply", "-f", str(ADMISSION))
    dear = {"bigfleet.lucy.sh/interruption-penalty": "8k"}
    pod = deployment("dear", 1, {"cpu": "1"}, annotations=dear)["spec"]["template"]
    probe = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**pod["metadata"], "name": "probe"}}
    try:
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        wait_until(lambda: scene.cluster.ask("POST", path, probe)[1]["spec"].get("affinity"), what="the policy acts")
        scene.add_node("m-spot", capacity_type="spot")
        scene.add_node("m-owned", cpu="1", capacity_type="on-demand")
        scene.cluster.apply(
            deployment("cheap", 1, {"cpu": "100m"}, annotations={"bigfleet.lucy.sh/interruption-penalty": "64"}),
            deployment("dear", 2, {"cpu": "600m"}, annotations=dear),
        )
        wait_running(scene.cluster, 1, app="dear")
        wait_running(scene.cluster, 1, app="cheap")
        dears = scene.cluster.items("/api/v1/namespaces/default/pods?labelSelector=app%3Ddear")
        assert {each["spec"].get("nodeName") for each in dears} == {"m-owned", None}
        # A request without a pod keeps to the same rule: m-spot has room for it, and it is stranded all the same.
        request = {
            "apiVersion": "bigfleet.lucy.sh/v1alpha1",
            "kind": "CapacityRequest",
            "metadata": {"name": "kept", "namespace": "default"},
            "spec": {"priority": 7, "resources": {"cpu": "1"}, "interruptionPenalty": "8k"},
        }
        scene.cluster.apply(request)
        told = scene.shard.wait_for("rollup", lambda rollup: any(need.priority == 7 for need in rollup.needs))
        [need] = [need for need in told.needs if need.priority == 7]
        assert (need.count, need.stranded) == (1, 1)
        assert [(each.key, list(each.values)) for each in need.requirements] == [
            ("bigfleet.lucy.sh/capacity-type", ["spot"])
        ]
    finally:
        scene.cluster.kubectl("delete", "-f", str(ADMISSION))


def _preferences(pod: dict[str, Any]) -> list[dict[str, Any]]:
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    found: list[dict[str, Any]] = node.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return found


def test_pods_prefer_nodes_of_their_own_proportion_of_memory_to_cores(scene: Scene) -> None:
    scene.cluster.kubectl("apply", "-f", str(PROPORTION))
    path = "/api/v1/namespaces/default/pods?dryRun=All"

    def created(requests: dict[str, str], **spec: Any) -> dict[str, Any]:
        pod = deployment("probe", 1, requests, **spec)["spec"]["template"]
        document = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**pod["metadata"], "name": "probe"}}
        status, answer = scene.cluster.ask("POST", path, document)
        assert status == 201, answer
        return dict(answer)

    def wanted(requests: dict[str, str], **spec: Any) -> list[list[str]]:
        return [each["preference"]["matchExpressions"][0]["values"] for each in _preferences(created(requests, **spec))]

    try:
        rich = {"cpu": "500m", "memory": "4Gi"}
        wait_until(lambda: _preferences(created(rich)), what="the policy acts")
        assert [wanted({"cpu": "2", "memory": size}) for size in ("1Gi", "8Gi", "13Gi", "64Gi")] == [
            [["2"]], [["4"]], [["8"]], [["16"]],
        ]  # fmt: skip
        assert wanted({"cpu": "1"}) == [], "whoever says nothing of memory has no proportion"
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        theirs = [{"weight": 50, "preference": term}]
        own = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": theirs}}
        assert wanted(rich, affinity=own) == [["ssd"], ["8"]], "what the owner prefers stays"
        assert wanted(rich, affinity={"podAffinity": {}}) == [["8"]]

        scene.add_node("m-lean", cpu="8")
        scene.add_node("m-rich", cpu="2")
        labels = lambda: [  # noqa: E731
            scene.node(name)["metadata"]["labels"].get("bigfleet.lucy.sh/memory-per-core")
            for name in ("m-lean", "m-rich")
        ]
        wait_until(lambda: labels() == ["2", "8"], what="nodes say their proportion")
        scene.cluster.apply(deployment("rich", 3, rich), deployment("lean", 4, {"cpu": "1", "memory": "1Gi"}))
        wait_running(scene.cluster, 3, app="rich")
        wait_running(scene.cluster, 4, app="lean")
        for app, node in (("rich", "m-rich"), ("lean", "m-lean")):
            pods = scene.cluster.items(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{app}")
            assert {each["spec"]["nodeName"] for each in pods} == {node}, app
    finally:
        scene.cluster.kubectl("delete", "-f", str(PROPORTION))


def test_a_reference_shard_reads_sums_of_everything_and_drives_nodes_as_it_knows_how(reference_scene: Scene) -> None:
    scene = reference_scene
    shard = scene.shard
    assert isinstance(shard, ReferenceShard)
    for number, cpu in enumerate(("500m", "500m", "2")):
        request = {
            "apiVersion": "bigfleet.lucy.sh/v1alpha1",
            "kind": "CapacityRequest",
            "metadata": {"name": f"r-{number}", "namespace": "default"},
            "spec": {"priority": 5, "resources": {"cpu": cpu}},
        }
        scene.cluster.apply(request)

    def sums(rollup: Any) -> tuple[float, float]:
        """All demand, and the largest unit, as a shard folds rows of one profile."""
        cores = [float(parse_quantity(need.aggregate_resources["cpu"]).to_float()) for need in rollup.needs]
        units = [float(parse_quantity(need.min_unit["cpu"]).to_float()) for need in rollup.needs]
        return sum(cores), max(units, default=0.0)

    shard.wait_for("rollup", lambda rollup: sums(rollup) == (3.0, 2.0))
    path = f"{OURS}/namespaces/default/capacityrequests/r-0"
    wait_until(lambda: scene.cluster.ask("GET", path)[1]["status"]["phase"] == "Acknowledged", what="acknowledged")

    shard.wants_blob("b-1", "c-1")
    answer = shard.wait_for("bootstrap_response", lambda told: told.request_id == "b-1")
    assert answer.user_data and not answer.error
    shard.has_node("m-1", CONFIGURING)
    wait_until(lambda: scene.upcoming().get("un-m-1") == "Registered", what="the host joins")
    scene.add_node("m-1")
    wait_until(lambda: scene.upcoming().get("un-m-1") == "Ready", what="its node is ready")

    scene.cluster.apply(deployment("web", 2, {"cpu": "1"}))
    wait_running(scene.cluster, 2, app="web")
    scene.add_node("m-2")
    shard.reclaim("i-1", "m-1", grace=60)
    ack = shard.wait_for("reclaim_ack", lambda told: told.instruction_id == "i-1")
    assert ack.nodes_started == 1
    wait_until(lambda: not scene.pods_on("m-1") and len(scene.pods_on("m-2")) == 2, what="m-1 is emptied")
    shard.has_node("m-1", DRAINING)
    wait_until(lambda: scene.upcoming().get("un-m-1") == "Draining", what="m-1 drains")
    shard.has_node("m-1", IDLE)
    wait_until(lambda: "un-m-1" not in scene.upcoming(), what="m-1 is gone")
    assert shard.streams == 1, "nothing of this ended the stream"


# Last: a fresh API server forbids everything until it has read its rules.
def test_an_api_server_that_restarts_withdraws_no_demand(scene: Scene) -> None:
    names = [f"r-{number}" for number in range(5)]
    for name in names:
        body = {"metadata": {"name": name}, "spec": {"priority": 0, "resources": {"cpu": "1"}}}
        document = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest", **body}
        assert scene.cluster.ask("POST", f"{OURS}/namespaces/default/capacityrequests", document)[0] == 201
    scene.shard.wait_for("rollup", lambda rollup: sum(need.count for need in rollup.needs) == 5)
    heard = len(scene.shard.all("rollup"))
    scene.cluster_restarted = True
    scene.cluster.restart_api_server()
    scene.cluster.ask("DELETE", f"{OURS}/namespaces/default/capacityrequests/r-0")
    wait_until(
        lambda: sum(need.count for need in scene.shard.all("rollup")[-1].needs) == 4,
        seconds=120,
        what="the watch goes on and one request is gone",
    )
    counts = [sum(need.count for need in rollup.needs) for rollup in scene.shard.all("rollup")[heard:]]
    assert set(counts) == {5, 4}, json.dumps(counts)
