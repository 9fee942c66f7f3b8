"""Levels of fill on the real scheduler: what nodes cost when those that emptied are given back, and what marking costs.

    python -m tools.kube.fill_levels --json docs/evidence/kube-fill-levels.json

Pods of three Deployments come and go on nodes in three zones: first without levels, then with three, with six, and
with a scheduler that prefers full nodes (MostAllocated) without and with levels. A node that has been empty for two
minutes is given back, and pods that wait get a new one after 40 s, as a fleet would do; nothing is evicted or closed.
What counts is what the nodes cost, how many were given back, how many pods waited for a new one, and how often the
operator wrote to nodes. Of the Deployments of `mixed` and `swing` one says nothing about where it stands (the
scheduler's own default spreads it, weakly), one would rather spread over zones, one over hosts; in `hosts` every pod
would rather spread over hosts. In `swing` the replicas fall to half and return, once every 12.5 min. A seed draws which
Deployment loses a pod when, alike for all variants. Time runs ten times as fast as in earnest: levels change every 3 s,
and pods live a tenth as long; everything is told per hour of earnest. Judged over the second half.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.kube.cluster import OPERATOR, KubeCluster
from tools.kube.scripted_shard import ScriptedShard
from tools.kube.stack import OPERATOR_PROGRAM, deployment, metrics
from tools.processes import Program, free_address
from tools.waiting import wait_until

NODES, CORES, ZONES = 12, 8, 3
HOSTS, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
# Name, pods, cores each, what it would rather spread over.
THREE = (("web", 20, 1.0, ""), ("api", 12, 1.0, ZONE), ("cache", 8, 0.5, HOSTS))
WORKLOADS = {"mixed": THREE, "swing": THREE, "hosts": (("web", 40, 1.0, HOSTS),)}
FASTER = 10
INTERVAL_SECONDS = 30 / FASTER
EMPTY_HOLD_SECONDS = 120 / FASTER
BOOT_SECONDS = 40 / FASTER
SWING_SECONDS = 750 / FASTER
# Two of forty a second: a pod lives 200 s of earnest.
REPLACED_PER_SECOND = 2
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
        fleet = Fleet(cluster)
        for _ in range(NODES):
            fleet.add()
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
            return _churn(cluster, fleet, at, workload, seconds, seed)
        finally:
            operator.kill()


class Fleet:
    """The nodes: one that stays empty is given back, and pods that wait get one more."""

    def __init__(self, cluster: KubeCluster) -> None:
        self._cluster = cluster
        self.zones: dict[str, str] = {}
        self.given_back = 0
        self._made = 0
        self._empty_since: dict[str, float] = {}
        self._booting: list[float] = []

    def add(self) -> None:
        has = [*self.zones.values()]
        zone = min((f"z{number}" for number in range(ZONES)), key=has.count)
        name = f"n-{self._made:02d}"
        self._made += 1
        self.zones[name] = zone
        _add_node(self._cluster, name, zone)

    def look(self, pods: Sequence[dict[str, Any]], now: float) -> None:
        used = {pod["spec"].get("nodeName") for pod in pods}
        self._empty_since = {node: self._empty_since.get(node, now) for node in self.zones if node not in used}
        for node, since in self._empty_since.items():
            if now - since >= EMPTY_HOLD_SECONDS:
                self._give_back(node)
        waiting = sum(_cores(pod) for pod in pods if _is_refused(pod))
        self._booting += [now + BOOT_SECONDS] * (math.ceil(waiting / CORES) - len(self._booting))
        while self._booting and self._booting[0] <= now:
            self._booting.pop(0)
            self.add()

    def _give_back(self, node: str) -> None:
        """Cordoned first: what is bound at this very moment stays."""
        path = f"/api/v1/nodes/{node}"
        self._cordon(path, cordoned=True)
        if any(pod["spec"].get("nodeName") == node for pod in self._cluster.items(PODS_PATH)):
            self._cordon(path, cordoned=False)
            return
        assert self._cluster.ask("DELETE", path)[0] == 200
        del self.zones[node]
        self.given_back += 1

    def _cordon(self, path: str, *, cordoned: bool) -> None:
        change = {"spec": {"unschedulable": cordoned}}
        status, answer = self._cluster.ask("PATCH", path, change, kind="application/merge-patch+json")
        assert status == 200, answer


def _churn(cluster: KubeCluster, fleet: Fleet, at: str, workload: str, seconds: float, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    asked = WORKLOADS[workload]
    for name, count, cores, over in asked:
        spread = {
            "maxSkew": 1,
            "topologyKey": over,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": name}},
        }
        wishes = {"topologySpreadConstraints": [spread]} if over else {}
        cluster.apply(deployment(name, count, {"cpu": f"{cores:g}", "memory": "2Gi"}, **wishes))
    pods = sum(count for _, count, _, _ in asked)
    wait_until(lambda: _bound(cluster.items(PODS_PATH)) == pods, seconds=120, what="every pod is bound")
    written, began = _patches(at), time.monotonic()
    nodes: list[int] = []
    least: list[int] = []
    refused: set[str] = set()
    replicas = {name: count for name, count, _, _ in asked}
    for second in range(int(seconds)):
        for _ in range(REPLACED_PER_SECOND):
            [name] = dice.choices(asked, weights=[count for _, count, _, _ in asked])
            _replace_one(cluster, name[0], dice.random())
        for name, count, _, _ in asked:
            share = 0.75 + 0.25 * math.cos(2 * math.pi * second / SWING_SECONDS) if workload == "swing" else 1.0
            if replicas[name] != (now_wanted := round(count * share)):
                replicas[name] = now_wanted
                _scale(cluster, name, now_wanted)
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
        present = _standing(cluster)
        fleet.look(present, time.monotonic())
        refused |= {pod["metadata"]["uid"] for pod in present if _is_refused(pod)}
        if second >= seconds / 2:
            nodes.append(len(fleet.zones))
            least.append(math.ceil(sum(replicas[name] * cores for name, _, cores, _ in asked) / CORES))
    past = time.monotonic() - began
    hours = past * FASTER / 3600
    return {
        "nodes_given_back": fleet.given_back,
        "nodes": round(statistics.mean(nodes), 1),
        "dollars_per_hour": round(statistics.mean(nodes) * PRICE, 2),
        "least_dollars_per_hour": round(statistics.mean(least) * PRICE, 2),
        "node_updates_per_hour": round((_patches(at) - written) / hours),
        "pods_that_waited_for_a_node": len(refused),
        "seconds_behind": round(past - int(seconds), 1),
    }


def _replace_one(cluster: KubeCluster, app: str, which: float) -> None:
    """Its Deployment makes another at once."""
    names = sorted(pod["metadata"]["name"] for pod in _standing(cluster) if pod["metadata"]["labels"]["app"] == app)
    if names:
        cluster.ask("DELETE", f"{PODS_PATH}/{names[int(which * len(names))]}", {"gracePeriodSeconds": 0})


def _scale(cluster: KubeCluster, name: str, replicas: int) -> None:
    path = f"/apis/apps/v1/namespaces/default/deployments/{name}/scale"
    change = {"spec": {"replicas": replicas}}
    status, answer = cluster.ask("PATCH", path, change, kind="application/merge-patch+json")
    assert status == 200, answer


def _standing(cluster: KubeCluster) -> list[dict[str, Any]]:
    """Pods that are not leaving."""
    return [pod for pod in cluster.items(PODS_PATH) if not pod["metadata"].get("deletionTimestamp")]


def _bound(pods: Sequence[dict[str, Any]]) -> int:
    return sum(1 for pod in pods if pod["spec"].get("nodeName"))


def _is_refused(pod: dict[str, Any]) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod.get("status", {}).get("conditions", ()))


def _cores(pod: dict[str, Any]) -> float:
    text: str = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


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
    parser.add_argument("--seconds", type=float, default=150.0, help="of churn per variant")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="these alone; default all")
    parser.add_argument("--only", action="append", choices=list(VARIANTS), help="these variants alone")
    parser.add_argument("--seed", type=int, action="append", help="default 1, 2 and 3")
    parser.add_argument("--at-once", type=int, default=1, help="control planes side by side, idle most of the time")
    parser.add_argument("--json", type=Path, help="kept after every run; what it has of other runs stays")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    command = f"python -m tools.kube.fill_levels {' '.join(sys.argv[1:])}".strip()
    wanted = [
        (workload, name, seed)
        for seed in options.seed or (1, 2, 3)
        for workload in options.workload or WORKLOADS
        for name in options.only or VARIANTS
    ]
    with ThreadPoolExecutor(options.at_once) as pool:
        runs = {each: pool.submit(run, each[0], *VARIANTS[each[1]], options.seconds, each[2]) for each in wanted}
        for (workload, name, seed), one in runs.items():
            figures = {**one.result(), "command": command, "load_average": round(os.getloadavg()[0], 1)}
            found.setdefault(workload, {}).setdefault(name, {})[f"seed {seed}"] = figures
            print(workload, name, seed, json.dumps(figures), flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
