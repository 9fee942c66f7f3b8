"""Three clusters, two shards, one coordinator, one pool of machines: what BigFleet is for, on real control planes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bigfleet.model.names import ZONE_LABEL
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.coordinators import Coordinators
from tools.kube.budget_witness import BudgetWitness
from tools.kube.cluster import KubeCluster
from tools.kube.stack import QUICK, Stack, deployment, wait_running
from tools.waiting import wait_until

pytestmark = pytest.mark.skipif(os.environ.get("BIGFLEET_E2E") != "1", reason="takes minutes: make e2e")

RACK = "example.com/rack"
NAMES = ("a", "b", "c")
FLAGS = ("--rollup-interval", "2s")
# Machines of 4 cpu: four in the first shard's zone, in two racks, and two in the second's.
RACKS = (("z0", "r1", 2), ("z0", "r2", 2), ("z1", "r3", 2))


def offerings() -> list[dict[str, Any]]:
    size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return [
        {
            "instance_type": f"sim.{rack}",
            "zone": zone,
            "capacity_type": "on_demand",
            "count": count,
            "resources": size,
            "allocatable": size,
            "labels": {RACK: rack},
            "price_per_hour": 1.0,
        }
        for zone, rack, count in RACKS
    ]


class Fleet:
    """Shard s0 serves clusters a and b out of zone z0, shard s1 cluster c out of z1."""

    def __init__(self, folder: Path, clusters: dict[str, KubeCluster]) -> None:
        self.clusters = clusters
        self.coordinators = Coordinators(folder / "coordinator", (), replicas=1)

        def settings(name: str) -> dict[str, Any]:
            return {
                **QUICK,
                "id": name,
                "coordinator-addr": self.coordinators.addresses[0],
                "coordinator-heartbeat-interval": "500ms",
            }

        ours = {name: clusters[name] for name in ("a", "b")}
        theirs = {"c": clusters["c"]}
        self.first = Stack(
            folder / "s0",
            ours,
            offerings=offerings(),
            settings=settings("s0"),
            operator_flags=FLAGS,
            leader_elect=False,
            joining=theirs,
        )
        self.second = Stack(
            folder / "s1", theirs, settings=settings("s1"), operator_flags=FLAGS, leader_elect=False, pool=self.first
        )

    def start(self) -> None:
        self.coordinators.start()
        self.first.start()
        self.second.start()
        asyncio.run(self._divide())

    def stop(self) -> None:
        for stack in (self.second, self.first):
            stack.stop()
        self.coordinators.stop()

    async def _divide(self) -> None:
        async with channel(self.coordinators.addresses[0]) as opened:
            stub: Any = coordinator_pb2_grpc.CoordinatorStub(opened)
            while len((await stub.ListShardReports(pb.ListShardReportsRequest())).reports) < 2:
                await asyncio.sleep(0.2)
            for number, zone in enumerate(("z0", "z1")):
                request = pb.MoveDomainRequest(topology_key=ZONE_LABEL, topology_value=zone, to_shard_id=f"s{number}")
                await stub.MoveDomain(request)

    def zones(self, name: str) -> list[str]:
        nodes = self.clusters[name].items("/api/v1/nodes")
        return sorted(node["metadata"]["labels"][ZONE_LABEL] for node in nodes)

    def instances(self, name: str) -> set[str]:
        return {node["metadata"]["name"] for node in self.clusters[name].items("/api/v1/nodes")}


@pytest.fixture
def fleet(clusters: Callable[[str], KubeCluster], tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "fleet", {name: clusters(name) for name in NAMES})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def priority_class(name: str, value: int) -> dict[str, Any]:
    # The scheduler of a cluster must not evict by itself what the fleet is to decide about.
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "Never",
    }


def at_least(app: str, count: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"minAvailable": count, "selector": {"matchLabels": {"app": app}}},
    }


def test_a_critical_job_borrows_from_batch_elsewhere_and_gives_back_when_it_is_done(fleet: Fleet) -> None:
    a, b, c = (fleet.clusters[name] for name in NAMES)
    for cluster in (a, b, c):
        cluster.apply(priority_class("batch", 1000), priority_class("critical", 1_000_000))

    # Batch in b takes the whole pool of its shard; c has one of its own.
    b.apply(deployment("batch", 8, {"cpu": "2", "memory": "1Gi"}, priorityClassName="batch"), at_least("batch", 2))
    c.apply(deployment("web", 4, {"cpu": "2", "memory": "1Gi"}))
    wait_running(b, 8, app="batch", seconds=180)
    wait_running(c, 4, app="web", seconds=180)
    assert (fleet.zones("b"), fleet.zones("c")) == (["z0"] * 4, ["z1"] * 2)
    before = fleet.instances("b")

    # A gang that trains in one rack, in another cluster, more urgent than all of it.
    with BudgetWitness(b, "batch") as witness:
        term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "train"}}}
        together = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        asks = {"cpu": "4", "memory": "1Gi"}
        a.apply(deployment("train", 2, asks, priorityClassName="critical", affinity=together))
        wait_running(a, 2, app="train", seconds=240)
        racks = {node["metadata"]["labels"][RACK] for node in a.items("/api/v1/nodes")}
        assert len(racks) == 1, "the gang stands in one rack"
        assert fleet.instances("a") < before, "machines that were b's work for a"
        wait_until(lambda: len(fleet.instances("b")) == 2, what="b keeps the rest")

        # Done: batch comes back to where it was.
        a.kubectl("delete", "deployment", "train")
        wait_running(b, 8, app="batch", seconds=240)
        wait_until(lambda: not fleet.instances("a"), seconds=120, what="a holds nothing any more")
    assert witness.evicted, "somebody was evicted, or nothing was tested"
    assert witness.broken == []
    assert fleet.zones("c") == ["z1"] * 2 and len(c.items("/api/v1/namespaces/default/pods")) == 4
    assert not fleet.first.forbidden() and not fleet.second.forbidden()
