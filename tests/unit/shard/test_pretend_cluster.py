"""The pretended cluster of demo and rehearsals: who stays when there is less work."""

from __future__ import annotations

from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror import facts
from bigfleet.shard.rehearsal.placing import shape_of
from bigfleet.shard.rehearsal.pretend_cluster import PretendCluster
from bigfleet.shard.rehearsal.synthetic import Row

SHAPE: facts.PodShape = shape_of(0, Row(pods=1, unit={"cpu": "3", "memory": "8Gi"}).need())


def joined(cluster: PretendCluster, machine: str) -> None:
    cluster.join(machine, {}, Resources.parse({"cpu": "8", "memory": "32Gi", "pods": "110"}, round_up=False), ())


def on(cluster: PretendCluster, machine: str) -> int:
    return len(cluster.nodes[machine].pods)


def test_of_too_many_pods_those_that_wait_go_first_and_then_the_youngest() -> None:
    cluster = PretendCluster()
    joined(cluster, "own")
    cluster.want({"work": (SHAPE, 2)}, 1)
    cluster.look(1)
    cluster.want({"work": (SHAPE, 5)}, 2)
    joined(cluster, "bought")
    cluster.look(2)
    assert (on(cluster, "own"), on(cluster, "bought"), cluster.waiting) == (2, 2, 1)

    cluster.want({"work": (SHAPE, 4)}, 3)
    assert (on(cluster, "own"), on(cluster, "bought"), cluster.waiting) == (2, 2, 0), "who waited goes first"
    cluster.want({"work": (SHAPE, 2)}, 4)
    assert (on(cluster, "own"), on(cluster, "bought")) == (2, 0), "what a burst brought goes before what was there"
