"""New nodes reserved by tolerations on a real control plane: who may come when, and what may be done to pods."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.scene import Scene, played
from tools.kube.cluster import OPERATOR, KubeCluster
from tools.kube.scripted_shard import CONFIGURING, ScriptedShard
from tools.kube.stack import deployment, metrics, wait_running
from tools.waiting import wait_until

POLICY = Path(__file__).resolve().parents[2] / "deploy" / "admission" / "operator-adds-tolerations.yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
KEPT = "bigfleet.lucy.sh/kept"
ROOM = {"cpu": "4", "memory": "16Gi", "pods": "110"}


@pytest.fixture(scope="module")
def guarded_cluster(control_plane_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """With the policy in force: whatever the operator does below, it may do under it."""
    with KubeCluster(tmp_path_factory.mktemp("kube")) as made:
        made.install()
        made.kubectl("apply", "-f", str(POLICY))
        yield made


@pytest.fixture
def scene(guarded_cluster: KubeCluster, tmp_path: Path) -> Iterator[Scene]:
    with ScriptedShard() as shard, played(Scene(guarded_cluster, shard, tmp_path)) as made:
        yield made


def pods_of(scene: Scene, app: str) -> list[dict[str, Any]]:
    return scene.cluster.items(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{app}")


def asked_for(scene: Scene, app: str, count: int) -> list[str]:
    """The names of an app's pods once all of them wait, with a request for each, as the controller of pods makes it."""
    wait_until(lambda: len(pods_of(scene, app)) == count, what=f"{count} pods of {app}")
    found = pods_of(scene, app)
    for pod in found:
        meta = pod["metadata"]
        scene.cluster.apply(
            {
                "apiVersion": "bigfleet.lucy.sh/v1alpha1",
                "kind": "CapacityRequest",
                "metadata": {
                    "name": meta["name"],
                    "namespace": "default",
                    "labels": {"bigfleet.lucy.sh/owned-by-pod": meta["uid"]},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}],
                },
                "spec": {"priority": 0, "resources": pod["spec"]["containers"][0]["resources"]["requests"]},
            }
        )
    return [pod["metadata"]["name"] for pod in found]


def wanted(scene: Scene) -> str:
    """The name of a pod that wants a node each; four plain ones come before it and are enough to fill a node."""
    scene.cluster.apply(deployment("plain", 4, {"cpu": "1"}))
    asked_for(scene, "plain", 4)
    alone = deployment("alone", 1, {"cpu": "1"})
    alone["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    scene.cluster.apply(alone)
    [name] = asked_for(scene, "alone", 1)
    scene.shard.wait_for("rollup", lambda rollup: sum(need.stranded for need in rollup.needs) == 5)
    return name


def registers(scene: Scene) -> None:
    """The machine that was bought becomes a node, which boots for a while as a real one does."""
    scene.shard.has_node("m-1", CONFIGURING, resources={"resources": ROOM})
    wait_until(lambda: "un-m-1" in scene.upcoming(), what="the operator knows of the machine")
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "m-1",
            "labels": {"bigfleet.lucy.sh/machine-id": "m-1", "kubernetes.io/hostname": "m-1"},
            "annotations": {"kwok.x-k8s.io/node": "fake", "simnode/boots-for": "10s"},
        },
        "status": {
            "allocatable": ROOM,
            "capacity": ROOM,
            "conditions": [{"type": "Ready", "status": "False", "reason": "Booting", "message": ""}],
        },
    }
    status, answer = scene.cluster.ask("POST", "/api/v1/nodes", node)
    assert status == 201, answer


def becomes_ready(scene: Scene) -> None:
    scene.shard.has_node("m-1")
    wait_until(lambda: ready(scene), what="m-1 is ready")


def ready(scene: Scene) -> bool:
    node = scene.node("m-1")
    blocked = any(each["key"].startswith("node.kubernetes.io/") for each in node["spec"].get("taints", ()))
    return not blocked and any(
        each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"]
    )


def kept(scene: Scene) -> list[dict[str, Any]]:
    return [each for each in scene.node("m-1")["spec"].get("taints", ()) if each["key"] == KEPT]


def ours(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in pod["spec"].get("tolerations", ()) if each.get("key") == KEPT]


def pod_named(scene: Scene, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.cluster.ask("GET", f"/api/v1/namespaces/default/pods/{name}")[1]
    return found


def test_those_a_new_node_is_reserved_for_are_bound_there_and_others_when_it_opens(scene: Scene) -> None:
    name = wanted(scene)
    before = pod_named(scene, name)
    registers(scene)
    wait_until(lambda: ours(pod_named(scene, name)), what="the pod may come before others")
    toleration = {"key": KEPT, "operator": "Equal", "value": "m-1", "effect": "NoSchedule"}
    after = pod_named(scene, name)
    assert after["spec"].pop("tolerations") == [*before["spec"].pop("tolerations"), toleration]
    assert after["spec"] == before["spec"], "nothing else was changed"
    assert kept(scene) == [{"key": KEPT, "value": "m-1", "effect": "NoSchedule"}]

    def riders() -> set[str]:
        return {each["metadata"]["name"] for each in pods_of(scene, "plain") if ours(each)}

    wait_until(lambda: len(riders()) == 3, what="whoever rides along by plan may come with it")
    becomes_ready(scene)
    wait_running(scene.cluster, 1, app="alone")
    wait_until(lambda: len(scene.pods_on("m-1")) == 4, what="the node is full")
    assert set(scene.pods_on("m-1")) == {name, *riders()}, "the one it was not reserved for did not come in between"
    wait_until(lambda: not kept(scene), what="the node is open to all")


def reserved_in_vain(scene: Scene) -> None:
    """A node registers for a pod that never comes (its claim of a volume is not there, which only the scheduler minds),
    and four pods that nobody asks a machine for would take its room."""
    lost = {"name": "v", "persistentVolumeClaim": {"claimName": "lost"}}
    alone = deployment("alone", 1, {"cpu": "1"}, volumes=[lost])
    alone["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    scene.cluster.apply(alone)
    asked_for(scene, "alone", 1)
    scene.shard.wait_for("rollup", lambda rollup: sum(need.stranded for need in rollup.needs) == 1)
    registers(scene)
    scene.cluster.apply(deployment("plain", 4, {"cpu": "1"}))
    wait_until(lambda: ours(pods_of(scene, "alone")[0]), what="the pod may come before others")


def test_a_pod_nobody_reserved_for_waits_until_the_taint_goes_and_no_longer(scene: Scene) -> None:
    reserved_in_vain(scene)
    becomes_ready(scene)
    began = time.monotonic()
    while kept(scene) and time.monotonic() - began < 20:
        assert not [each for each in pods_of(scene, "plain") if each["spec"].get("nodeName")]
        time.sleep(0.5)
    assert kept(scene), "reserved for a while"
    wait_running(scene.cluster, 4, app="plain", seconds=40)
    assert not kept(scene)
    assert not any(map(ours, pods_of(scene, "plain")))


def test_an_operator_that_starts_again_opens_a_reserved_node_in_time(scene: Scene) -> None:
    reserved_in_vain(scene)
    scene.operator.kill()
    becomes_ready(scene)
    assert kept(scene)
    scene.operator.start()
    wait_running(scene.cluster, 4, app="plain", seconds=60)
    assert not kept(scene)
    assert len(ours(pods_of(scene, "alone")[0])) == 1, "it was not told a second time"


def test_where_pods_may_not_be_patched_no_node_is_reserved_until_they_may(scene: Scene) -> None:
    """An old role, or owners who did not grant it: nobody waits for a toleration that never comes."""
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bigfleet-operator"
    rules = scene.cluster.ask("GET", role)[1]["rules"]
    less = [{**each, "verbs": ["list", "watch"]} if each["resources"] == ["pods"] else each for each in rules]
    assert less != rules
    assert metrics(scene.http)[("bigfleet_operator_reserves_nodes",)] == 1
    assert scene.cluster.ask("PATCH", role, {"rules": less}, kind=MERGE)[0] == 200
    scene.operator.kill()
    scene.operator.start()
    try:
        scene.operator.told("pods may not be patched")
        assert metrics(scene.http)[("bigfleet_operator_reserves_nodes",)] == 0
        name = wanted(scene)
        registers(scene)
        becomes_ready(scene)
        began = time.monotonic()
        wait_until(lambda: len(scene.pods_on("m-1")) == 4, what="the node is open to all")
        assert time.monotonic() - began < 10
        assert not kept(scene) and not ours(pod_named(scene, name))
        assert len(list(scene.operator.lines("pods may not be patched"))) == 1
    finally:
        assert scene.cluster.ask("PATCH", role, {"rules": rules}, kind=MERGE)[0] == 200


def as_operator(scene: Scene, name: str, *patch: dict[str, Any]) -> tuple[int, str]:
    """The answer to a JSON patch of the operator's own account."""
    path = f"/api/v1/namespaces/default/pods/{name}?dryRun=All"
    status, answer = scene.cluster.ask("PATCH", path, list(patch), user=OPERATOR, kind=JSON_PATCH)
    return status, answer.get("message", "")


def test_the_operators_account_may_change_nothing_of_a_pod_but_add_our_toleration(scene: Scene) -> None:
    scene.cluster.apply(deployment("web", 1, {"cpu": "1"}))
    wait_until(lambda: len(pods_of(scene, "web")) == 1, what="a pod")
    name = pods_of(scene, "web")[0]["metadata"]["name"]
    image = {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}
    wait_until(lambda: as_operator(scene, name, image)[0] != 200, what="the policy is in force")

    def add(**toleration: str) -> dict[str, Any]:
        return {"op": "add", "path": "/spec/tolerations/-", "value": toleration}

    mine = add(key=KEPT, operator="Equal", value="m-1", effect="NoSchedule")
    refused = {
        "an image": [image],
        "an image beside our toleration": [mine, image],
        "another toleration": [add(key="theirs", operator="Exists", effect="NoSchedule")],
        "one of every taint": [add(operator="Exists")],
        "ours of every node": [add(key=KEPT, operator="Exists", effect="NoSchedule")],
        "ours against eviction": [add(key=KEPT, operator="Equal", value="m-1", effect="NoExecute")],
        "a deadline": [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}],
        "a label": [{"op": "add", "path": "/metadata/labels/app", "value": "other"}],
        "an annotation": [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}],
        "a finalizer": [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/stay"]}],
        "an owner": [{"op": "remove", "path": "/metadata/ownerReferences"}],
    }
    for what, patch in refused.items():
        status, message = as_operator(scene, name, *patch)
        assert status == 422 and "bigfleet-operator may" in message, (what, status, message)
    assert as_operator(scene, name, mine)[0] == 200
    two = add(key=KEPT, operator="Equal", value="m-2", effect="NoSchedule")
    assert as_operator(scene, name, mine, two)[0] == 200
    path = f"/api/v1/namespaces/default/pods/{name}?dryRun=All"
    assert scene.cluster.ask("PATCH", path, [image], kind=JSON_PATCH)[0] == 200, "others are left alone"
    policy = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/operator-adds-tolerations.bigfleet.lucy.sh"
    )
    wait_until(lambda: "typeChecking" in scene.cluster.ask("GET", policy)[1]["status"], what="the policy is checked")
    assert not scene.cluster.ask("GET", policy)[1]["status"]["typeChecking"].get("expressionWarnings")
