"""The mirror against the real scheduler: random clusters, one pod after the other, the same question to both.

    python -m tools.kube.mirror_check --clusters 300 --json docs/evidence/mirror-against-scheduler.json

Before each pod is created the mirror, told everything the API server holds, says whether it would find room; then the
scheduler says it. Pods stay where the scheduler put them, so that later ones meet its choices and not ours.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bigfleet.crd.capacity_request import CapacityRequest
from bigfleet.operator.core.mirror.mirror import Mirror
from bigfleet.operator.kube.objects import Claim, CsiNode, Node, PersistentVolume, Pod
from bigfleet.operator.pods.rule import request_for
from bigfleet.operator.reading.view import ClusterView
from tools.kube.cluster import KubeCluster
from tools.waiting import wait_until

HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
APPS = ("web", "db", "job")
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CSINODES = "/apis/storage.k8s.io/v1/csinodes"
DRIVER = "csi.example.com"
VOLUMES = 4
SECOND_THOUGHT_SECONDS = 15.0


def random_node(draw: random.Random, number: int) -> dict[str, Any]:
    name = f"n{number}"
    labels = {
        HOSTNAME: name,
        RACK: draw.choice("xyz"),
        "disk": draw.choice(("ssd", "hdd")),
        "cores": str(draw.choice((2, 4, 8))),
    }
    if draw.random() < 0.9:
        labels[ZONE] = draw.choice("ab")
    room = {"cpu": labels["cores"], "memory": f"{draw.choice((4, 8, 16))}Gi", "pods": str(draw.choice((3, 110)))}
    if draw.random() < 0.3:
        room["example.com/gpu"] = str(draw.choice((1, 2)))
    taints = []
    if draw.random() < 0.3:
        taints.append({"key": "team", "value": draw.choice("ab"), "effect": draw.choice(("NoSchedule", "NoExecute"))})
    if draw.random() < 0.2:
        taints.append({"key": "soft", "effect": "PreferNoSchedule"})
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, **({"unschedulable": True} if draw.random() < 0.1 else {})},
        "status": {
            "allocatable": room,
            "capacity": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}],
        },
    }


def random_pod(draw: random.Random, number: int) -> dict[str, Any]:
    """A pod with one or two wishes of every kind that is emulated."""
    app = draw.choice(APPS)
    labels = {"app": app, "version": draw.choice(("1", "2"))}
    spec: dict[str, Any] = {"containers": [_container(draw, "c")], "affinity": {}}
    for wish in draw.sample(list(_WISHES), draw.choice((0, 1, 1, 2, 3))):
        _WISHES[wish](draw, spec, app)
    return {"metadata": {"name": f"p{number}", "labels": labels}, "spec": spec}


def _container(draw: random.Random, name: str, **more: Any) -> dict[str, Any]:
    requests = {"cpu": draw.choice(("250m", "1", "1500m", "3")), "memory": draw.choice(("512Mi", "1Gi", "5Gi"))}
    return {"name": name, "image": "x", "resources": {"requests": requests}, **more}


def _init(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    restart = {"restartPolicy": "Always"} if draw.random() < 0.5 else {}
    spec["initContainers"] = [_container(draw, "i", **restart), _container(draw, "j")]


def _gpu(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    resources = spec["containers"][0]["resources"]
    for kind in ("requests", "limits"):
        resources.setdefault(kind, {})["example.com/gpu"] = "1"


def _selector(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    spec["nodeSelector"] = {draw.choice(("disk", RACK)): draw.choice(("ssd", "x", "y"))}


def _affinity(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    def expression() -> dict[str, Any]:
        return draw.choice(
            (
                {"key": "disk", "operator": "In", "values": ["ssd"]},
                {"key": RACK, "operator": "NotIn", "values": ["x"]},
                {"key": ZONE, "operator": draw.choice(("Exists", "DoesNotExist"))},
                {"key": "cores", "operator": draw.choice(("Gt", "Lt")), "values": ["4"]},
            )
        )

    terms = [
        {"matchExpressions": [expression() for _ in range(draw.choice((1, 2)))]} for _ in range(draw.choice((1, 2)))
    ]
    spec["affinity"]["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _tolerations(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    spec["tolerations"] = [
        draw.choice(
            (
                {"operator": "Exists"},
                {"key": "team", "operator": "Equal", "value": "a"},
                {"key": "team", "operator": "Exists", "effect": "NoSchedule"},
            )
        )
    ]


def _ports(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    ip = draw.choice(({}, {"hostIP": "10.0.0.1"}))
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": draw.choice((8080, 9090)), **ip}]


def _term(draw: random.Random, app: str) -> dict[str, Any]:
    key = draw.choice((HOSTNAME, ZONE, RACK))
    chosen = draw.choice((app, *APPS))
    selector = draw.choice(
        (
            {"matchLabels": {"app": chosen}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": [chosen]}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [chosen]}]},
        )
    )
    more = {"matchLabelKeys": ["version"]} if draw.random() < 0.2 else {}
    if draw.random() < 0.2:
        more["namespaceSelector"] = {}
    return {"topologyKey": key, "labelSelector": selector, **more}


def _near(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    spec["affinity"]["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(draw, app)]}


def _apart(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    spec["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(draw, app)]}


def _spread(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": draw.choice((1, 2)),
            "topologyKey": draw.choice((ZONE, HOSTNAME, RACK)),
            "whenUnsatisfiable": draw.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {"app": draw.choice((app, *APPS))}},
        }
    ]


def _volumes(draw: random.Random, spec: dict[str, Any], app: str) -> None:
    spec["volumes"] = [
        {"name": f"v{each}", "persistentVolumeClaim": {"claimName": f"v{each}"}}
        for each in draw.sample(range(VOLUMES), draw.choice((1, 2)))
    ]


def _make_volumes(cluster: KubeCluster, draw: random.Random, nodes: int) -> None:
    """Claims bound to volumes of one driver, some of them in one zone, and nodes that attach few of them."""
    for number in range(VOLUMES):
        name = f"v{number}"
        zone = [{"key": ZONE, "operator": "In", "values": [draw.choice("ab")]}]
        inside = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": zone}]}}}
        size = {"storage": "1Gi"}
        _made(
            cluster,
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": name},
                "spec": {
                    "capacity": size,
                    "accessModes": ["ReadWriteMany"],
                    "csi": {"driver": DRIVER, "volumeHandle": name},
                    "claimRef": {"namespace": "default", "name": name},
                    **(inside if draw.random() < 0.6 else {}),
                },
            },
        )
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": size}, "volumeName": name}
        bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        _made(
            cluster,
            CLAIMS,
            {"metadata": {"name": name, "annotations": bound}, "spec": {**claim, "storageClassName": ""}},
        )
    for number in range(nodes):
        if draw.random() < 0.6:
            driver = {"name": DRIVER, "nodeID": "x", "allocatable": {"count": draw.choice((1, 2, 3))}}
            _made(cluster, CSINODES, {"metadata": {"name": f"n{number}"}, "spec": {"drivers": [driver]}})


_WISHES = {
    "volumes": _volumes,
    "init": _init,
    "gpu": _gpu,
    "selector": _selector,
    "affinity": _affinity,
    "tolerations": _tolerations,
    "ports": _ports,
    "near": _near,
    "apart": _apart,
    "spread": _spread,
}


def compare(cluster: KubeCluster, seed: int, pods: int = 12) -> dict[str, Any]:
    """One random cluster: how often both agreed, and every case where they did not."""
    draw = random.Random(seed)
    _clear(cluster)
    nodes = draw.randint(2, 7)
    _make_volumes(cluster, draw, nodes)
    for number in range(nodes):
        wanted_node = random_node(draw, number)
        _made(cluster, "/api/v1/nodes", wanted_node)
        # Every new Node is marked not ready, and the controller that takes the mark away is not running here.
        taints = {"spec": {"taints": wanted_node["spec"]["taints"]}}
        cluster.ask("PATCH", f"/api/v1/nodes/n{number}", taints, kind="application/merge-patch+json")
    asked, disagreements, outcomes = 0, [], Counter[str]()
    for number in range(pods):
        wanted = random_pod(draw, number)
        created = _made(cluster, PODS, wanted)
        said = mirror_says(cluster, created["metadata"]["uid"])
        bound = _verdict(cluster, created["metadata"]["name"])
        if said and not bound:
            # It may have judged before it had heard of everything; then it tries again by itself.
            bound = _second_thought(cluster, created["metadata"]["name"])
        asked += 1
        outcomes["bound" if bound else "left"] += 1
        if said != bool(bound):
            pod = cluster.ask("GET", f"{PODS}/{created['metadata']['name']}")[1]
            disagreements.append(
                {
                    "seed": seed,
                    "pod": number,
                    "mirror": "fits" if said else "stranded",
                    "scheduler": bound or _reason(pod),
                    "cause": cause_of(wanted["spec"], said),
                    "spec": wanted["spec"],
                    "labels": wanted["metadata"]["labels"],
                }
            )
    return {"asked": asked, "disagreements": disagreements, "outcomes": dict(outcomes)}


def cause_of(spec: Mapping[str, Any], mirror_fits: bool) -> str:
    """Why both may disagree about such a pod, where that is known and meant so."""
    if not mirror_fits and {"operator": "Exists"} in spec.get("tolerations", ()):
        return "tolerates a cordon: the scheduler uses cordoned nodes for it, the mirror gives those no room"
    if not mirror_fits and spec.get("volumes"):
        return "shares a volume with a pod of that node: the mirror counts both against the attach limit"
    return "unknown"


def mirror_says(cluster: KubeCluster, uid: str) -> bool:
    """Whether a mirror that is told what the API server holds now finds room for this one pod.

    The scheduler may already have bound it: it is told unbound, as it was when it came.
    """
    view = ClusterView(lambda *_: None)
    for item in cluster.items("/api/v1/persistentvolumes"):
        view.volumes.volume_seen(_typed(item, PersistentVolume))
    for item in cluster.items(CLAIMS):
        view.volumes.claim_seen(_typed(item, Claim))
    for item in cluster.items(CSINODES):
        view.volumes.limits_seen(_typed(item, CsiNode))
    for node in cluster.items("/api/v1/nodes"):
        view.node_seen(_typed(node, Node))
    for item in cluster.items(PODS):
        if item["metadata"]["uid"] == uid:
            item["spec"].pop("nodeName", None)
            request, _ = request_for(_typed(item, Pod))
            if request is not None:
                view.request_seen(_typed(request, CapacityRequest))
            else:
                # What no fleet can be asked for is placed all the same: count it under a plain request.
                plain = {
                    "metadata": {**item["metadata"], "ownerReferences": [{"kind": "Pod", "name": "x", "uid": uid}]}
                }
                view.request_seen(
                    _typed({**plain, "spec": {"priority": 0, "resources": {"cpu": "1m"}}}, CapacityRequest)
                )
        elif not item["spec"].get("nodeName"):
            continue
        view.pod_seen(_typed(item, Pod))
    mirror = Mirror()
    mirror.apply(view.take())
    return mirror.settle(1).stranded == 0


def _typed(document: Mapping[str, Any], kind: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


def _made(cluster: KubeCluster, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    status, answer = cluster.ask("POST", path, body)
    assert status == 201, (status, answer, body)
    made: dict[str, Any] = answer
    return made


def _verdict(cluster: KubeCluster, name: str) -> str:
    """The node, or nothing once the scheduler has said that there is none."""
    found: list[str] = []

    def decided() -> bool:
        pod = cluster.ask("GET", f"{PODS}/{name}")[1]
        node = pod["spec"].get("nodeName", "")
        if node or _reason(pod):
            found.append(node)
            return True
        return False

    wait_until(decided, what=f"the scheduler decides about {name}")
    return found[0]


def _second_thought(cluster: KubeCluster, name: str) -> str:
    until = time.monotonic() + SECOND_THOUGHT_SECONDS
    while time.monotonic() < until:
        node: str = cluster.ask("GET", f"{PODS}/{name}")[1]["spec"].get("nodeName", "")
        if node:
            return node
        time.sleep(0.1)
    return ""


def _reason(pod: Mapping[str, Any]) -> str:
    for each in pod["status"].get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            message: str = each.get("message", "") or each.get("reason", "")
            return message
    return ""


def _clear(cluster: KubeCluster) -> None:
    cluster.ask("DELETE", PODS, {"gracePeriodSeconds": 0})
    rest = ("/api/v1/nodes", CSINODES, CLAIMS, "/api/v1/persistentvolumes")
    for path in rest:
        cluster.ask("DELETE", path)
    for path in (CLAIMS, "/api/v1/persistentvolumes"):
        # Their protection is taken away by a controller that is not running here.
        for item in cluster.items(path):
            freed = {"metadata": {"finalizers": None}}
            cluster.ask("PATCH", f"{path}/{item['metadata']['name']}", freed, kind="application/merge-patch+json")
    wait_until(lambda: not any(cluster.items(path) for path in (PODS, *rest)), what="the cluster is empty")


def start_scheduler_only(folder: Path) -> KubeCluster:
    """No controllers and no kubelets: nothing but the scheduler acts, and nodes stay as they are written."""
    cluster = KubeCluster(folder, kwok=False, manager=False).start()
    cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    return cluster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clusters", type=int, default=300)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    asked, found, outcomes = 0, [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        cluster = start_scheduler_only(Path(folder))
        try:
            for seed in range(options.first_seed, options.first_seed + options.clusters):
                one = compare(cluster, seed)
                asked += one["asked"]
                outcomes.update(one["outcomes"])
                found += one["disagreements"]
                for each in one["disagreements"]:
                    print(json.dumps(each), flush=True)
        finally:
            cluster.stop()
    outcome = {
        "command": f"python -m tools.kube.mirror_check --clusters {options.clusters}",
        "clusters": options.clusters,
        "pods_asked": asked,
        "scheduler": dict(outcomes),
        "disagreements": len(found),
        "share": round(len(found) / max(1, asked), 5),
        "limit": 0.01,
        "listed": found,
        "seconds": round(time.monotonic() - began, 1),
        "verdict": "PASS" if len(found) <= 0.01 * asked else "FAIL",
    }
    if options.json:
        options.json.write_text(json.dumps(outcome, indent=2) + "\n")
    print(json.dumps({key: value for key, value in outcome.items() if key != "listed"}, indent=2))
    return 0 if outcome["verdict"] == "PASS" else 1


if __name__ == "__main__":
    sys.exit(main())
