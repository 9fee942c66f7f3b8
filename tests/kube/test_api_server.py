"""What a real API server makes of our kinds, and what the operator makes of an API server that is hard to work with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bigfleet.wire import shard_pb2
from tests.kube.cuttable import Cuttable
from tests.kube.scene import OURS, Scene, played
from tools.kube.cluster import OPERATOR, POD_CONTROLLER, KubeCluster
from tools.kube.scripted_shard import ScriptedShard
from tools.kube.stack import CONTROLLER_PROGRAM, deployment, metrics
from tools.processes import Program, free_address
from tools.waiting import wait_until

REQUESTS = f"{OURS}/namespaces/default/capacityrequests"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def shared_cluster(control_plane_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    with KubeCluster(tmp_path_factory.mktemp("kube"), scheduler=False) as made:
        made.install()
        yield made


def request(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": 0, "resources": {"cpu": "1"}, **spec},
    }


def test_requests_are_found_by_phase_and_what_is_invalid_is_refused_at_once(shared_cluster: KubeCluster) -> None:
    cluster = shared_cluster
    for name in ("waits", "known"):
        assert cluster.ask("POST", REQUESTS, request(name))[0] == 201
    told = {"status": {"phase": "Acknowledged", "acknowledgedAt": "2026-01-01T00:00:00Z"}}
    assert cluster.ask("PATCH", f"{REQUESTS}/known/status", told, kind=MERGE)[0] == 200
    found = cluster.kubectl("get", "capacityrequests", "-A", "--field-selector=status.phase=Pending", "-o", "name")
    assert found.split() == ["capacityrequest.bigfleet.lucy.sh/waits"]
    for name, spec, words in (
        ("absurd", {"resources": {"cpu": "1e99999999"}}, "quantity"),
        ("negative", {"resources": {"cpu": "-1"}}, "resources"),
        ("dear", {"interruptionPenalty": "1e99999999"}, "nterruption"),
    ):
        began = time.monotonic()
        status, answer = cluster.ask("POST", REQUESTS, request(name, **spec))
        assert status == 422 and words in answer["message"], answer
        # The same objects kept an API server busy for half a minute without the rules that come first.
        assert time.monotonic() - began < 10
    cluster.ask("DELETE", REQUESTS)


def test_writers_that_never_rest_neither_lose_their_taints_nor_keep_ours_off(
    shared_cluster: KubeCluster, tmp_path: Path
) -> None:
    with ScriptedShard() as shard, played(Scene(shared_cluster, shard, tmp_path)) as scene:
        scene.add_node("m-1")
        theirs = {"key": "example.com/theirs", "effect": "PreferNoSchedule"}
        stormy = threading.Event()
        written = [0]

        def storm() -> None:
            """Another controller that writes to the node all the time, and now and then to its taints."""
            while not stormy.is_set():
                written[0] += 1
                change: dict[str, Any] = {"metadata": {"annotations": {"example.com/turn": str(written[0])}}}
                if written[0] % 10 == 0:
                    node = scene.node("m-1")
                    others = [each for each in node["spec"].get("taints", ()) if each["key"] != theirs["key"]]
                    change["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"]
                    change["spec"] = {"taints": [*others, theirs]}
                scene.cluster.ask("PATCH", "/api/v1/nodes/m-1", change, kind=MERGE)

        def taints() -> set[str]:
            return {each["key"] for each in scene.node("m-1")["spec"].get("taints", ())}

        writer = threading.Thread(target=storm)
        writer.start()
        try:
            wait_until(lambda: theirs["key"] in taints(), what="the other controller got its taint in")
            wait_until(lambda: written[0] > 20, what="a storm")
            scene.shard.say(node_closing=shard_pb2.NodeClosing(machine_id="m-1", closing=True))
            wait_until(lambda: "bigfleet.lucy.sh/closing" in taints(), what="ours got in too", evidence=taints)
            scene.shard.say(node_closing=shard_pb2.NodeClosing(machine_id="m-1", closing=False))
            wait_until(lambda: "bigfleet.lucy.sh/closing" not in taints(), what="and out", evidence=taints)
            assert theirs["key"] in taints()
        finally:
            stormy.set()
            writer.join()


def test_streams_that_are_cut_again_and_again_lose_no_demand(shared_cluster: KubeCluster, tmp_path: Path) -> None:
    cluster = shared_cluster
    between = Cuttable(cluster.ports["api"])
    kubeconfig = between.kubeconfig(cluster.kubeconfig(OPERATOR), tmp_path)
    try:
        with ScriptedShard() as shard, played(Scene(cluster, shard, tmp_path, kubeconfig=kubeconfig)) as scene:

            def asked() -> list[int]:
                return [sum(need.count for need in rollup.needs) for rollup in scene.shard.all("rollup")]

            for turn in range(1, 7):
                for number in range(5):
                    assert cluster.ask("POST", REQUESTS, request(f"r-{turn}-{number}"))[0] == 201
                    between.cut()
                most = 5 * turn
                wait_until(lambda most=most: asked()[-1] == most, what=f"{most} requests are told", evidence=asked)
            told = asked()
            assert told == sorted(told), "demand was withdrawn although nobody withdrew any"
    finally:
        between.close()


def test_pods_the_scheduler_has_not_looked_at_are_asked_for_once_it_refused_one_like_them(
    shared_cluster: KubeCluster, tmp_path: Path
) -> None:
    """No scheduler runs here: one verdict is written by hand, as it would."""
    cluster, at = shared_cluster, free_address()
    kubeconfig = str(cluster.kubeconfig(POD_CONTROLLER))
    flags = ("--kubeconfig", kubeconfig, "--metrics-addr", at, "--log-format", "json", "--no-leader-elect")
    controller = Program("controller", [*CONTROLLER_PROGRAM, *flags], tmp_path)
    pods_path = "/api/v1/namespaces/default/pods"

    def asked() -> set[str]:
        """Whose pods have requests."""
        owners = {each["metadata"]["ownerReferences"][0]["uid"] for each in cluster.items(REQUESTS)}
        return {pod["metadata"]["name"] for pod in cluster.items(pods_path) if pod["metadata"]["uid"] in owners}

    def named(app: str) -> set[str]:
        return {each["metadata"]["name"] for each in cluster.items(f"{pods_path}?labelSelector=app%3D{app}")}

    controller.start()
    try:
        controller.told("pod controller started")
        cluster.apply(deployment("web", 5, {"cpu": "1"}), deployment("other", 2, {"cpu": "1"}))
        wait_until(lambda: len(named("web")) == 5 and len(named("other")) == 2, what="all pods are made")
        assert asked() == set()
        verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
        path = f"{pods_path}/{min(named('web'))}/status"
        assert cluster.ask("PATCH", path, {"status": {"conditions": [verdict]}}, kind=MERGE)[0] == 200
        wait_until(
            lambda: asked() == named("web"), what="all of its kind are asked for, and nobody else", evidence=asked
        )
        forbidden = [key for key in metrics(at) if key[0].endswith("api_requests_total") and "403" in key]
        assert not forbidden, "calls the controller's role does not allow"
    finally:
        controller.kill()
        cluster.kubectl("delete", "deployment", "web", "other")
