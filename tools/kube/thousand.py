"""A thousand pods that fit nowhere, until the real scheduler has bound every one: how long, on what, for how much.

    python -m tools.kube.thousand --json docs/evidence/kube-thousand-pods.json

GPUs, gangs that must share a rack, pods that must not share a node, plain ones, and a DaemonSet that takes a cpu of
every node. Judged by the cluster alone: pods bound, and the list price of the nodes against an integer lower bound.
GPU nodes carry the usual taint, which the API server lets pods with GPUs through; `--untainted` is the plain workload,
where pods without GPUs may stand there. The bound lets them stand there in both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp

from tools.kube.cluster import RATES, KubeCluster
from tools.kube.stack import QUICK, Stack, deployment, metrics

RACK = "example.com/rack"
WITHIN_SECONDS = 30.0
# Acknowledgements are in nobody's way: few at a time leave the API server to those that somebody waits for.
ACKS_AT_ONCE = 4
DOLLARS_LIMIT = 1.10
GPU = "nvidia.com/gpu"
# name, dollars an hour, cpu, memory in GiB, GPUs, how many in each of the racks
TYPES = (("small", 0.40, 8, 32, 0, 60), ("large", 1.50, 32, 128, 0, 20), ("gpu", 12.0, 32, 128, 8, 8))
RACKS = ("r1", "r2", "r3")


def offerings(*, tainted: bool) -> list[dict[str, Any]]:
    made = []
    for name, price, cpu, memory, gpus, count in TYPES:
        size = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110", **({GPU: str(gpus)} if gpus else {})}
        for rack in RACKS:
            made.append(
                {
                    "instance_type": f"sim.{name}",
                    "zone": f"zone-{rack}",
                    "capacity_type": "on_demand",
                    "count": count,
                    "resources": size,
                    "allocatable": size,
                    "labels": {RACK: rack},
                    "taints": [{"key": GPU, "effect": "NoSchedule"}] if gpus and tainted else [],
                    "price_per_hour": price,
                }
            )
    return made


def workload(scale: float) -> list[dict[str, Any]]:
    def count(whole: int) -> int:
        return max(2, round(whole * scale))

    def together(name: str) -> dict[str, Any]:
        term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": name}}}
        return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    def apart(name: str) -> dict[str, Any]:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    gangs = [f"gang-{number}" for number in range(5)]
    return [
        deployment("web", count(700), {"cpu": "1", "memory": "2Gi"}),
        deployment("train", count(100), {"cpu": "2", "memory": "8Gi", GPU: "1"}),
        deployment("apart", count(100), {"cpu": "500m", "memory": "1Gi"}, **apart("apart")),
        *(deployment(name, count(20), {"cpu": "2", "memory": "4Gi"}, **together(name)) for name in gangs),
    ]


def daemons() -> dict[str, Any]:
    """What every node carries. With the priority that agents of nodes have: without one, a pod that is bound to a node
    first keeps the agent off it for ever, whoever made the node."""
    everywhere = {"tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"}
    made = deployment("agent", 1, {"cpu": "1", "memory": "1Gi"}, **everywhere)
    spec = {key: value for key, value in made["spec"].items() if key != "replicas"}
    return {**made, "kind": "DaemonSet", "spec": spec}


def least_dollars(objects: list[dict[str, Any]]) -> float:
    """No fleet can carry this for less: whole machines, sums of resources, a node for each that stands alone."""
    cpu = memory = gpus = apart = 0.0
    for each in objects:
        replicas, pod = each["spec"]["replicas"], each["spec"]["template"]["spec"]
        asked = pod["containers"][0]["resources"]["requests"]
        cpu += replicas * (float(asked["cpu"].removesuffix("m")) / (1000 if asked["cpu"].endswith("m") else 1))
        memory += replicas * float(asked["memory"].removesuffix("Gi"))
        gpus += replicas * float(asked.get(GPU, 0))
        if "podAntiAffinity" in pod.get("affinity", {}):
            apart = max(apart, float(replicas))
    # What the DaemonSet takes of every machine: one cpu and one GiB.
    offered = numpy.array([[c - 1, m - 1, g, 1] for _, _, c, m, g, _ in TYPES], dtype=float).T
    needed = LinearConstraint(offered, lb=[cpu, memory, gpus, apart])
    prices = [price for _, price, *_ in TYPES]
    most = [count * len(RACKS) for *_, count in TYPES]
    found = milp(prices, constraints=needed, integrality=numpy.ones(len(TYPES)), bounds=Bounds(0, most))
    assert found.success, found.message
    return float(found.fun)


def run(folder: Path, scale: float, flags: list[str], *, compiled: bool, limit: float, tainted: bool) -> dict[str, Any]:
    objects = workload(scale)
    wanted = sum(each["spec"]["replicas"] for each in objects)
    prices = {f"sim.{name}": price for name, price, *_ in TYPES}
    with KubeCluster(folder / "kube", admission=("ExtendedResourceToleration",)) as cluster:
        cluster.install()
        stack = Stack(
            folder / "stack",
            {"c-1": cluster},
            offerings=offerings(tainted=tainted),
            settings={**QUICK, "max-actions-per-cycle": 10_000},
            operator_flags=flags,
            compiled=compiled,
            leader_elect=False,
        )
        with stack:
            # What a shard compiles in its first seconds is timed elsewhere (bench start).
            stack.shard.told("engine warm")
            cluster.apply(daemons())
            load = os.getloadavg()[0]
            before = {each.name: each.processor_seconds() for each in (*cluster.programs.values(), *stack.programs())}
            began, began_at = time.monotonic(), time.time()
            cluster.apply(*objects)
            applied = time.monotonic() - began
            created = bound = running = None
            while running is None and time.monotonic() - began < limit:
                time.sleep(0.5)
                now = time.monotonic() - began
                made, ready = _progress(cluster, objects)
                if created is None and made >= wanted:
                    created = now
                if created is not None and bound is None and not _is_any_unbound(cluster):
                    bound = now
                if bound is not None and ready >= wanted:
                    running = now
            pods = cluster.items("/api/v1/namespaces/default/pods")
            nodes = cluster.items("/api/v1/nodes")
            dollars = sum(prices[node["metadata"]["labels"]["node.kubernetes.io/instance-type"]] for node in nodes)
            ours = [each for each in pods if each["metadata"]["labels"]["app"] != "agent"]
            used = {each["spec"].get("nodeName") for each in ours}
            unused = sum(node["metadata"]["name"] not in used for node in nodes)
            left = [p["metadata"]["name"] for p in pods if not p["spec"].get("nodeName")]
            requests = cluster.items("/apis/bigfleet.lucy.sh/v1alpha1/capacityrequests")
            forbidden = stack.forbidden()
            bought = _bought(folder / "stack" / "audit.jsonl")
            asked = {name: _requests(address) for name, address in stack.http.items()}
            programs = (*cluster.programs.values(), *stack.programs())
            spent = {program.name: round(program.processor_seconds() - before[program.name], 1) for program in programs}
    least = least_dollars(objects)
    counts: dict[str, int] = {}
    for node in nodes:
        kind = node["metadata"]["labels"]["node.kubernetes.io/instance-type"]
        counts[kind] = counts.get(kind, 0) + 1
    good = bound is not None and bound <= WITHIN_SECONDS and not left and dollars <= DOLLARS_LIMIT * least
    return {
        "pods": wanted,
        "seconds": {
            "applied": _round(applied),
            "created": _round(created),
            "bound": _round(bound),
            "running": _round(running),
        },
        # By the API server's own stamps, to the second: how many there were after so many seconds.
        "timeline": {
            "pods made": _by_second([_stamp(each) for each in ours], began_at),
            "requests made": _by_second([_stamp(each) for each in requests], began_at),
            "nodes made": _by_second([_stamp(each) for each in nodes], began_at),
            "pods bound": _by_second([at for each in ours if (at := _bound_at(each))], began_at),
        },
        "slowest_pod_seconds": max((_seconds(_stamp(p), at) for p in ours if (at := _bound_at(p))), default=None),
        "limit_seconds": WITHIN_SECONDS,
        "left_over": len(left),
        "nodes": counts,
        # With those that were given back before the end: whatever is above the nodes was bought for nothing.
        "machines_bought": bought,
        "nodes_without_pods": unused,
        "dollars_per_hour": round(dollars, 2),
        "integer_bound": round(least, 2),
        "ratio": round(dollars / least, 3),
        "limit_ratio": DOLLARS_LIMIT,
        "client_limits": {
            "operator and pod controller": f"300/s, burst 600; {ACKS_AT_ONCE} acknowledgements at a time",
            "scheduler and controllers": " ".join(RATES),
        },
        "gpu_nodes": "tainted" if tainted else "without a taint",
        "load_average_at_start": round(load, 1),
        "cores": os.cpu_count(),
        "processor_seconds": spent,
        "requests_to_the_api_server": asked,
        "forbidden_calls": forbidden,
        "verdict": "PASS" if good else "FAIL",
    }


def _bought(audit: Path) -> dict[str, int]:
    """Purchases by type of machine, as the shard wrote them down."""
    found: dict[str, int] = {}
    for line in audit.read_text().splitlines():
        action = json.loads(line)
        if action["kind"] == "Provision" and action["outcome"] == "success":
            kind = action["machine"].split("/")[2]
            found[kind] = found.get(kind, 0) + 1
    return found


def _requests(address: str) -> dict[str, int]:
    """What a program of ours asked the API server, by verb."""
    found: dict[str, int] = {}
    for (name, *labels), count in metrics(address).items():
        if name.endswith("_api_requests_total"):
            verb = next(label for label in labels if label.isupper())
            found[verb] = found.get(verb, 0) + int(count)
    return found


def _progress(cluster: KubeCluster, objects: list[dict[str, Any]]) -> tuple[int, int]:
    """Pods that were made and pods that are ready: asked of the Deployments, because listing pods costs the API server
    more than BigFleet does."""
    status = [each.get("status", {}) for each in cluster.items("/apis/apps/v1/namespaces/default/deployments")]
    assert len(status) == len(objects)
    return sum(each.get("replicas", 0) for each in status), sum(each.get("readyReplicas", 0) for each in status)


def _is_any_unbound(cluster: KubeCluster) -> bool:
    return bool(cluster.items("/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D&limit=1"))


def _stamp(given: dict[str, Any]) -> str:
    return str(given["metadata"]["creationTimestamp"])


def _bound_at(pod: dict[str, Any]) -> str:
    for each in pod["status"].get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "True":
            return str(each["lastTransitionTime"])
    return ""


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _by_second(stamps: list[str], began: float) -> dict[int, int]:
    after = sorted(int(datetime.fromisoformat(each).timestamp() - began) for each in stamps)
    return {second: sum(each <= second for each in after) for second in sorted(set(after))}


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is a thousand pods")
    parser.add_argument("--sums", action="store_true", help="without placement")
    parser.add_argument("--untainted", action="store_true", help="let plain pods onto GPU nodes")
    parser.add_argument("--interpreted", action="store_true", help="kernels without compiling")
    parser.add_argument("--limit", type=float, default=180.0, help="give up after so many seconds")
    parser.add_argument("--folder", type=Path, help="keep logs here")
    parser.add_argument("--operator-flag", action="append", default=[], help="one more flag of the operator; repeat")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    flags = ["--sums" if options.sums else "--placement", f"--ack-concurrency={ACKS_AT_ONCE}", *options.operator_flag]
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        found = run(
            folder,
            options.scale,
            flags,
            compiled=not options.interpreted,
            limit=options.limit,
            tainted=not options.untainted,
        )
    found = {"command": f"python -m tools.kube.thousand {' '.join(sys.argv[1:])}".strip(), "mode": flags[0], **found}
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 0 if found["verdict"] == "PASS" else 1


if __name__ == "__main__":
    sys.exit(main())
