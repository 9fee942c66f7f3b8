"""Levels of fill on the real scheduler: how many nodes empty under steady churn, and what marking them costs.

    python -m tools.kube.fill_levels --json docs/evidence/kube-fill-levels.json

The same nodes in three zones and the same pods, of which some are taken away at random and replaced all the time: first
without levels, then with three, with six, and with a scheduler that prefers full nodes (MostAllocated) without and with
levels. What counts is how many nodes hold nothing any more (they would be given back), what the others cost, and how
often the operator wrote to nodes. Two workloads: `mixed`, one Deployment that says nothing about where it stands, one
that would rather spread over zones, one that would rather spread over hosts; and `hosts`, where every pod would rather
spread over hosts. Time runs ten times as fast as in earnest: levels change every 3 s, and pods live a tenth as long;
updates are told per hour of earnest. Judged over the last third.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.kube.cluster import OPERATOR, KubeCluster
from tools.kube.scripted_shard import ScriptedShard
from tools.kube.stack import OPERATOR_PROGRAM, deployment, metrics
from tools.processes import Program, free_address
from tools.waiting import wait_until

NODES, CORES, ZONES = 12, 8, 3
AT_ONCE = 1
HOSTS, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
# Name, pods, cpu each, what it would rather spread over.
WORKLOADS = {
    "mixed": (("web", 20, "1", ""), ("api", 12, "1", ZONE), ("cache", 8, "500m", HOSTS)),
    "hosts": (("web", 40, "1", HOSTS),),
}
FASTER = 10
INTERVAL_SECONDS = 30 / FASTER
PRICE = 0.4
MOST_ALLOCATED = {
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "scoringStrategy": {
                            "type": "MostAllocated",
                            "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
                        }
                    },
                }
            ],
        }
    ]
}
VARIANTS: dict[str, tuple[int, dict[str, Any] | None]] = {
    "none": (0, None),
    "three": (3, None),
    "six": (6, None),
    "MostAllocated, none": (0, MOST_ALLOCATED),
    "MostAllocated, six": (6, MOST_ALLOCATED),
}
PODS_PATH = "/api/v1/namespaces/default/pods"


def run(workload: str, levels: int, scheduler: dict[str, Any] | None, seconds: float, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder), workload, levels, scheduler, seconds, seed)


def _run(
    folder: Path, workload: str, levels: int, scheduler: dict[str, Any] | None, seconds: float, seed: int
) -> dict[str, Any]:
    with KubeCluster(folder, scheduler_config=scheduler) as cluster, ScriptedShard() as shard:
        cluster.install()
        for number in range(NODES):
            _add_node(cluster, f"n-{number:02d}", f"z{number % ZONES}")
        at = free_address()
        operator = Program(
            "operator",
            [
                *(*OPERATOR_PROGRAM, "--cluster-id", "c-1", "--shard-addr", shard.address, "--metrics-addr", at),
                *("--kubeconfig", str(cluster.kubeconfig(OPERATOR)), "--log-format", "json", "--no-leader-elect"),
                *("--fill-levels", str(levels), "--fill-interval", f"{INTERVAL_SECONDS:g}s"),
            ],
            folder,
        )
        operator.start()
        try:
            shard.wait_for("rollup")
            return _churn(cluster, at, workload, seconds, seed)
        finally:
            operator.kill()


def _churn(cluster: KubeCluster, at: str, workload: str, seconds: float, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    asked = WORKLOADS[workload]
    pods = sum(count for _, count, _, _ in asked)
    for name, count, cpu, over in asked:
        spread = {
            "maxSkew": 1,
            "topologyKey": over,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": name}},
        }
        wishes = {"topologySpreadConstraints": [spread]} if over else {}
        cluster.apply(deployment(name, count, {"cpu": cpu, "memory": "2Gi"}, **wishes))
    wait_until(lambda: len(_standing(cluster)) == pods, seconds=120, what="every pod is bound")
    written, began = _patches(at), time.monotonic()
    empty: list[int] = []
    while (past := time.monotonic() - began) < seconds:
        # Every pod is replaced about once in twenty seconds: minutes in earnest.
        for name in dice.sample(sorted(_standing(cluster)), 2):
            cluster.ask("DELETE", f"{PODS_PATH}/{name}", {"gracePeriodSeconds": 0})
        time.sleep(1.0)
        if past > seconds * 2 / 3:
            empty.append(NODES - len(set(_standing(cluster).values())))
    cores = sum(count * (0.5 if cpu == "500m" else float(cpu)) for _, count, cpu, _ in asked)
    hours = (time.monotonic() - began) * FASTER / 3600
    emptied = statistics.mean(empty)
    return {
        "nodes_that_emptied": round(emptied, 1),
        "dollars_per_hour": round((NODES - emptied) * PRICE, 2),
        "least_dollars_per_hour": round(math.ceil(cores / CORES) * PRICE, 2),
        "node_updates_per_hour": round((_patches(at) - written) / hours),
    }


def _standing(cluster: KubeCluster) -> dict[str, str]:
    """Pods that are not leaving, and their nodes."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in cluster.items(PODS_PATH)
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    }


def _patches(at: str) -> float:
    return sum(count for key, count in metrics(at).items() if key[0].endswith("api_requests_total") and "PATCH" in key)


def _add_node(cluster: KubeCluster, name: str, zone: str) -> None:
    room = {"cpu": str(CORES), "memory": "32Gi", "pods": "110"}
    labels = {"bigfleet.lucy.sh/machine-id": name, HOSTS: name, ZONE: zone}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {
            "allocatable": room,
            "capacity": room,
            "conditions": [{"type": "Ready", "status": "False", "reason": "Booting", "message": ""}],
        },
    }
    status, answer = cluster.ask("POST", "/api/v1/nodes", node)
    assert status == 201, answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=90.0, help="of churn per variant")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="these alone; default both")
    parser.add_argument("--only", action="append", choices=list(VARIANTS), help="these variants alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {
        "command": f"python -m tools.kube.fill_levels {' '.join(sys.argv[1:])}".strip(),
        "nodes": NODES,
        "load_average_at_start": round(os.getloadavg()[0], 1),
    }
    wanted = [(workload, name) for workload in options.workload or WORKLOADS for name in options.only or VARIANTS]
    # Each has a control plane of its own, which is idle most of the time.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {
            (workload, name): pool.submit(run, workload, *VARIANTS[name], options.seconds, options.seed)
            for workload, name in wanted
        }
        for (workload, name), one in runs.items():
            found.setdefault(workload, {})[name] = one.result()
            print(workload, name, json.dumps(found[workload][name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
