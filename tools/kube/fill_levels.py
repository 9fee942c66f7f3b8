"""Levels of fill on the real scheduler: how many nodes empty under steady churn, and what marking them costs.

    python -m tools.kube.fill_levels --json docs/evidence/kube-fill-levels.json

The same nodes and the same Deployment, whose pods would rather spread over them (ScheduleAnyway); pods are taken away
at random and replaced, first without levels, then with three, with six, and with a scheduler that prefers full nodes
(MostAllocated) and no levels. What counts is how many nodes hold nothing any more (they would be given back), what the
others cost, and how often the operator wrote to nodes. Time runs ten times as fast as in earnest: levels change every
3 s, and pods live a tenth as long; updates are told per hour of earnest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.kube.cluster import OPERATOR, KubeCluster
from tools.kube.scripted_shard import ScriptedShard
from tools.kube.stack import OPERATOR_PROGRAM, deployment, metrics
from tools.processes import Program, free_address
from tools.waiting import wait_until

NODES, CORES, PODS = 12, 8, 40
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


def run(folder: Path, levels: int, scheduler: dict[str, Any] | None, seconds: float, seed: int) -> dict[str, Any]:
    with KubeCluster(folder, scheduler_config=scheduler) as cluster, ScriptedShard() as shard:
        cluster.install()
        for number in range(NODES):
            _add_node(cluster, f"n-{number:02d}")
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
            return _churn(cluster, at, seconds, seed)
        finally:
            operator.kill()


def _churn(cluster: KubeCluster, at: str, seconds: float, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    asks = {"cpu": "1", "memory": "2Gi"}
    cluster.apply(deployment("web", PODS, asks, topologySpreadConstraints=[spread]))
    wait_until(lambda: len(_standing(cluster)) == PODS, seconds=120, what="every pod is bound")
    written, began = _patches(at), time.monotonic()
    empty: list[int] = []
    while (past := time.monotonic() - began) < seconds:
        # Every pod is replaced about once in twenty seconds: minutes in earnest.
        for name in dice.sample(sorted(_standing(cluster)), 2):
            cluster.ask("DELETE", f"{PODS_PATH}/{name}", {"gracePeriodSeconds": 0})
        time.sleep(1.0)
        if past > seconds / 2:
            empty.append(NODES - len(set(_standing(cluster).values())))
    hours = (time.monotonic() - began) * FASTER / 3600
    emptied = statistics.mean(empty)
    return {
        "nodes_that_emptied": round(emptied, 1),
        "dollars_per_hour": round((NODES - emptied) * PRICE, 2),
        "least_dollars_per_hour": round(-(-PODS // CORES) * PRICE, 2),
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


def _add_node(cluster: KubeCluster, name: str) -> None:
    room = {"cpu": str(CORES), "memory": "32Gi", "pods": "110"}
    labels = {"bigfleet.lucy.sh/machine-id": name, "kubernetes.io/hostname": name}
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
    parser.add_argument("--seconds", type=float, default=60.0, help="of churn per variant")
    parser.add_argument("--only", action="append", choices=list(VARIANTS), help="these variants alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {
        "command": f"python -m tools.kube.fill_levels {' '.join(sys.argv[1:])}".strip(),
        "nodes": NODES,
        "pods": PODS,
        "load_average_at_start": round(os.getloadavg()[0], 1),
        "variants": {},
    }
    for name in options.only or VARIANTS:
        levels, scheduler = VARIANTS[name]
        with tempfile.TemporaryDirectory() as folder:
            found["variants"][name] = run(Path(folder), levels, scheduler, options.seconds, options.seed)
        print(name, json.dumps(found["variants"][name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
