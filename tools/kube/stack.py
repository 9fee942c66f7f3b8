"""BigFleet around real control planes: a shard, provider-simnode, and an operator and a pod controller per cluster.

Every part is a process of its own on loopback, with the rights that deploy/rbac gives it.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tools.kube.cluster import OPERATOR, POD_CONTROLLER, KubeCluster
from tools.processes import BIGFLEET, INTERPRETED, START_SECONDS, Program, free_address
from tools.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SIMNODE = ROOT / "examples" / "provider-simnode"
OPERATOR_PROGRAM = (sys.executable, "-c", "from bigfleet.cli.operator import main; main()")
CONTROLLER_PROGRAM = (sys.executable, "-c", "from bigfleet.cli.pod_controller import main; main()")
QUICK = {
    "reclaim-hold": "3s",
    "rollup-guard-hold": "4s",
    "boot-time": "3s",
    "empty-hold": "3s",
    "idle-hold-on-demand": "5s",
    "idle-hold-spot": "5s",
    "transition-poll-interval": "200ms",
    "reclaim-cap-fraction": 1.0,
}


class Stack:
    """One shard with its provider, serving any number of clusters.

    `pool` is another stack whose provider this shard uses as well; `joining` are further clusters its own may join.
    """

    def __init__(
        self,
        folder: Path,
        clusters: Mapping[str, KubeCluster],
        *,
        offerings: Sequence[Mapping[str, Any]] = (),
        slots: int = 64,
        settings: Mapping[str, Any] = QUICK,
        operator_flags: Sequence[str] = (),
        compiled: bool = False,
        qps: int = 300,
        leader_elect: bool = True,
        pool: Stack | None = None,
        joining: Mapping[str, KubeCluster] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.clusters = dict(clusters)
        # One replica on a machine that may be starved has nothing to win by an election, and its lead to lose.
        self.elects = () if leader_elect else ("--no-leader-elect",)
        self.environment = {} if compiled else dict(INTERPRETED)
        self.shard_address, self.shard_http = free_address(), free_address()
        self.provider_address = pool.provider_address if pool else free_address()
        self.http: dict[str, str] = {}
        self.provider = None if pool else self._provider(offerings, slots, {**self.clusters, **(joining or {})})
        self.shard = self._shard(settings)
        self.operators = {name: self._operator(name, operator_flags, qps) for name in self.clusters}
        self.controllers = {name: self._controller(name, qps) for name in self.clusters}

    def programs(self) -> list[Program]:
        served = [*self.controllers.values(), *self.operators.values(), self.shard]
        return [*served, self.provider] if self.provider else served

    def start(self) -> Stack:
        try:
            for program in reversed(self.programs()):
                program.start()
            if self.provider:
                self.provider.told("provider serving")
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def wait_ready(self) -> None:
        def greeted() -> bool:
            for program in self.programs():
                assert program.alive, f"{program.name} ended with {program.wait()}: {program.tail()}"
            return all(any(operator.lines("greeted by the shard")) for operator in self.operators.values())

        wait_until(greeted, seconds=START_SECONDS, what="every operator is greeted", evidence=self.shard.tail)
        for name in self.clusters:
            self.controllers[name].told("pod controller started")

    def stop(self) -> None:
        for program in self.programs():
            if program.lives and program.alive:
                program.kill()

    def __enter__(self) -> Stack:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def forbidden(self) -> list[str]:
        """Calls of our programs that the API server did not allow; there must be none."""
        found = []
        for name in self.clusters:
            for what, at in (
                ("operator", self.http[f"operator-{name}"]),
                ("controller", self.http[f"controller-{name}"]),
            ):
                found += [
                    f"{what} of {name}: {key}"
                    for key in metrics(at)
                    if key[0].endswith("_api_requests_total") and "403" in key[1:]
                ]
        return found

    # ------------------------------------------------------------------------------------------------------- programs

    def _provider(
        self, offerings: Sequence[Mapping[str, Any]], slots: int, clusters: Mapping[str, KubeCluster]
    ) -> Program:
        sold: tuple[str, ...] = ("--seed-count", str(slots))
        if offerings:
            path = self.folder / "offerings.json"
            path.write_text(json.dumps(list(offerings)))
            sold = ("--offerings", str(path))
        joins = [f"--kubeconfig={name}={cluster.kubeconfig()}" for name, cluster in clusters.items()]
        return Program(
            "provider",
            [
                *(sys.executable, str(SIMNODE / "simnode_provider.py"), "--addr", self.provider_address, *sold, *joins),
                *("--metrics-addr", "", "--log-format", "json", "--state", str(self.folder / "provider.db")),
            ],
            self.folder,
        )

    def _shard(self, settings: Mapping[str, Any]) -> Program:
        document = {
            "provider": [f"simnode={self.provider_address}"],
            "data-dir": str(self.folder / "data"),
            "audit-log": str(self.folder / "audit.jsonl"),
            "listen": self.shard_address,
            "metrics-addr": self.shard_http,
            **settings,
        }
        (self.folder / "shard.yaml").write_text(yaml.safe_dump(document))
        return Program(
            "shard",
            [*BIGFLEET, "shard", "--log-format", "json", "--config", str(self.folder / "shard.yaml")],
            self.folder,
            self.environment,
        )

    def _operator(self, name: str, flags: Sequence[str], qps: int) -> Program:
        at = self.http[f"operator-{name}"] = free_address()
        return Program(
            f"operator-{name}",
            [
                *(*OPERATOR_PROGRAM, "--cluster-id", name, "--shard-addr", self.shard_address),
                *("--kubeconfig", str(self.clusters[name].kubeconfig(OPERATOR)), "--metrics-addr", at),
                *("--bootstrap-template-file", str(SIMNODE / "bootstrap.tmpl")),
                *("--qps", str(qps), "--burst", str(2 * qps), "--log-format", "json", *flags, *self.elects),
            ],
            self.folder,
        )

    def _controller(self, name: str, qps: int) -> Program:
        at = self.http[f"controller-{name}"] = free_address()
        return Program(
            f"controller-{name}",
            [
                *(*CONTROLLER_PROGRAM, "--kubeconfig", str(self.clusters[name].kubeconfig(POD_CONTROLLER))),
                *("--metrics-addr", at, "--qps", str(qps), "--burst", str(2 * qps), "--log-format", "json"),
                *self.elects,
            ],
            self.folder,
        )


def metrics(address: str) -> dict[tuple[str, ...], float]:
    """Every series of a process as (name, label values in order of label names)."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[(sample.name, *(value for _, value in sorted(sample.labels.items())))] = sample.value
    return found


def deployment(
    name: str,
    replicas: int,
    requests: Mapping[str, str],
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    grace: int = 0,
    **spec: Any,
) -> dict[str, Any]:
    """A Deployment of pods that ask for this; further fields of the pod's spec by name."""
    chosen = {"app": name, **(labels or {})}
    limits = {key: value for key, value in requests.items() if "/" in key}
    container = {
        "name": "c",
        "image": "pretend",
        "resources": {"requests": dict(requests), **({"limits": limits} if limits else {})},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": chosen, "annotations": dict(annotations or {})},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": grace, **spec},
            },
        },
    }


def wait_running(
    cluster: KubeCluster,
    count: int,
    *,
    app: str = "",
    namespace: str = "default",
    seconds: float = 90.0,
) -> list[dict[str, Any]]:
    """Wait until so many pods run, and return them."""
    selector = f"?labelSelector=app%3D{app}" if app else ""
    path = f"/api/v1/namespaces/{namespace}/pods{selector}"

    def running() -> list[dict[str, Any]]:
        found = [pod for pod in cluster.items(path) if pod["status"].get("phase") == "Running"]
        return found if len(found) >= count else []

    def evidence() -> object:
        return [
            (p["metadata"]["name"], p["status"].get("phase"), p["spec"].get("nodeName")) for p in cluster.items(path)
        ][:20]

    return wait_until(running, seconds=seconds, what=f"{count} pods of {app or namespace} run", evidence=evidence)
