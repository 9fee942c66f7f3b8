"""Where pods go and why some wait: filters, scores and soft taints as kube-scheduler's defaults have them."""

from __future__ import annotations

import pytest

from bigfleet.engine.batches import Shape
from bigfleet.model.names import ZONE_LABEL
from bigfleet.model.resources import Resources
from bigfleet.sim.document.document import Amounts, Dollars
from bigfleet.sim.scenario.scenario import Scoring
from bigfleet.sim.scenario.shapes import PodShape, SpreadSpec, Unsatisfiable
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.meter import Meter
from bigfleet.sim.world.pods import ForSale, Kinds
from bigfleet.sim.world.reasons import waiting, why_waiting

GIB = 1 << 20
SHAPES = {
    "small": PodShape(resources=Amounts({"cpu": "1", "memory": "1Gi"})),
    "core": PodShape(resources=Amounts({"cpu": "1"})),
    "heap": PodShape(resources=Amounts({"memory": "8Gi"})),
    "lean": PodShape(resources=Amounts({"cpu": "1", "memory": "8Gi"})),
    "apart": PodShape(resources=Amounts({"cpu": "1"}), apart=True),
    "strict": PodShape(resources=Amounts({"cpu": "1"}), spread=(SpreadSpec(),)),
    "soft": PodShape(resources=Amounts({"cpu": "1"}), spread=(SpreadSpec(when=Unsatisfiable.SCHEDULE_ANYWAY),)),
    "precious": PodShape(resources=Amounts({"cpu": "1"}), interruption_penalty=Dollars(256)),
    "pinned": PodShape(resources=Amounts({"cpu": "1"}), interruption_penalty=Dollars(float("inf"))),
    "cheap": PodShape(resources=Amounts({"cpu": "1"}), interruption_penalty=Dollars(0.5)),
}
FOR_SALE = [ForSale((8000, 32 * GIB), 0.4, 0.0), ForSale((8000, 32 * GIB), 0.12, 0.05)]
KINDS = Kinds(SHAPES, ["cpu", "memory"], FOR_SALE)


def test_what_a_pod_may_not_use_is_no_reason_to_keep_it_off_a_risky_node() -> None:
    """Where only spot is to be had, the risk is part of the cheapest place there is."""
    shapes = {
        "bound": PodShape(resources=Amounts({"cpu": "1"}), interruption_penalty=Dollars(256), zones=("a",)),
        "free": PodShape(resources=Amounts({"cpu": "1"}), interruption_penalty=Dollars(256)),
    }
    size = (8000, 32 * GIB)
    places = [({ZONE_LABEL: zone}, Resources.of(cpu=8000, memory=32 * GIB), ()) for zone in "ab"]
    kinds = Kinds(
        shapes, ["cpu", "memory"], [ForSale(size, 0.12, 0.05, (places[0],)), ForSale(size, 0.4, 0.0, (places[1],))]
    )
    risk = 0.05 * kinds["bound"].interruption_dollars
    assert risk <= kinds["bound"].most_risk
    assert risk > kinds["free"].most_risk


def machine(cpu: int = 8, memory: int = 32, zone: str = "a", probability: float = 0.0) -> Shape:
    return Shape("p", "box", zone, 1, 0.4, probability, Resources.of(cpu=cpu * 1000, memory=memory * GIB))


def cluster(scoring: Scoring = Scoring.LEAST_ALLOCATED, *, risk_rule: bool = True, **nodes: Shape) -> Cluster:
    made = Cluster("c", KINDS, Meter(("cpu", "memory")), scoring=scoring, risk_rule=risk_rule)
    for name, shape in nodes.items():
        made.join(name, shape)
    return made


def ask(of: Cluster, kind: str, pods: int, name: str = "w") -> dict[str, int]:
    of.create(name, name, KINDS[kind], pods, now=0)
    of.bind(now=1)
    of.validate()
    return {node.id: count for node, count in of.podsets[name].bound.items()}


def test_the_default_spreads_and_the_other_packs() -> None:
    assert ask(cluster(n1=machine(), n2=machine()), "small", 4) == {"n1": 2, "n2": 2}
    assert ask(cluster(Scoring.MOST_ALLOCATED, n1=machine(), n2=machine()), "small", 4) == {"n1": 4}


def test_a_pod_goes_where_it_evens_out_cpu_and_memory() -> None:
    c = cluster(n1=machine(), n2=machine())
    c.cordon("n1", True)
    ask(c, "core", 4, "processors")
    c.cordon("n1", False)
    c.cordon("n2", True)
    ask(c, "heap", 2, "memories")
    c.cordon("n2", False)
    # Half of the one's cpu is used and half of the other's memory, so both are used alike.
    assert ask(c, "lean", 1) == {"n2": 1}


def test_soft_taints_weigh_three_times_and_never_block() -> None:
    c = cluster(n1=machine(), n2=machine())
    c.nodes["n1"].level = 6
    assert ask(c, "small", 8) == {"n2": 8}, "though the other one is empty"
    assert ask(c, "small", 8, "rest") == {"n1": 8}, "where else"


def test_fewer_levels_win_over_more_until_scores_outweigh_them() -> None:
    c = cluster(n1=machine(), n2=machine(), n3=machine())
    c.nodes["n1"].level, c.nodes["n2"].level, c.nodes["n3"].level = 5, 6, 6
    assert ask(c, "small", 2) == {"n1": 2}


def test_closing_nodes_take_nobody_until_they_are_open() -> None:
    c = cluster(n1=machine(), n2=machine())
    c.close("n1", 1)
    assert ask(c, "small", 12) == {"n2": 8}
    assert "Of 2 nodes 1 are closing" in why_waiting(c, c.podsets["w"], KINDS.resources)
    c.close("n1", 0)
    c.bind(0)
    assert {node.id: count for node, count in c.podsets["w"].bound.items()} == {"n2": 8, "n1": 4}


def test_cordoned_nodes_take_nobody() -> None:
    c = cluster(n1=machine())
    c.cordon("n1", True)
    assert ask(c, "small", 1) == {}
    assert why_waiting(c, c.podsets["w"], KINDS.resources) == "Of 1 nodes 1 are cordoned."


def test_pods_that_may_not_share_a_node_do_not() -> None:
    c = cluster(n1=machine(), n2=machine())
    assert ask(c, "apart", 3) == {"n1": 1, "n2": 1}
    assert ask(c, "apart", 1, "other") == {"n1": 1}, "another object's pods may be neighbours"
    told = why_waiting(c, c.podsets["w"], KINDS.resources)
    assert told == "Of 2 nodes 2 have a pod of the same object, which may share none."


def test_a_strict_spread_waits_and_a_soft_one_does_not() -> None:
    nodes = {"n1": machine(cpu=8, zone="a"), "n2": machine(cpu=1, zone="b")}
    c = cluster(**nodes)
    assert ask(c, "strict", 5) == {"n1": 2, "n2": 1}
    told = why_waiting(c, c.podsets["w"], KINDS.resources)
    assert told == "Of 2 nodes 1 are where its spread lets no more of them be, 1 have too little vCPU."
    assert ask(cluster(**nodes), "soft", 5) == {"n1": 4, "n2": 1}


@pytest.mark.parametrize(("kind", "goes"), [("precious", False), ("pinned", False), ("cheap", True), ("small", True)])
def test_what_an_interruption_would_cost_too_much_is_kept_off_interruptible_nodes(kind: str, goes: bool) -> None:
    spot = machine(probability=0.05)
    assert bool(ask(cluster(n1=spot), kind, 1)) is goes
    assert ask(cluster(risk_rule=False, n1=spot), kind, 1) == {"n1": 1}
    assert ask(cluster(n1=spot, n2=machine()), kind, 2).get("n2", 0) >= 1


def test_everybody_who_waits_is_told_once() -> None:
    c = cluster(n1=machine(cpu=2))
    ask(c, "small", 5, "some")
    ask(c, "apart", 4, "others")
    rows = waiting([c], KINDS.resources, lambda cluster, podset: "The shard says so.", end=61)
    assert [(row.workload, row.pods, row.longest, row.shard) for row in rows] == [
        ("others", 4, 61, "The shard says so."),
        ("some", 3, 61, "The shard says so."),
    ]
    assert {row.why for row in rows} == {"Of 1 nodes 1 have too little vCPU."}
    assert why_waiting(cluster(), c.podsets["some"], KINDS.resources) == "The cluster has no node."
