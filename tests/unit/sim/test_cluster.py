"""The cluster model: what waits, what binds where, what a roll-up says about it."""

from collections import Counter

from bigfleet.engine.batches import Shape
from bigfleet.model.resources import Resources
from bigfleet.sim.document.document import Amounts
from bigfleet.sim.scenario.shapes import Colocation, PodShape, SpreadSpec
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.pods import Kinds, PodKind
from bigfleet.virtual.kernel import HOUR


class Watch:
    def __init__(self) -> None:
        self.waits: list[tuple[str, int, int]] = []
        self.interrupted: Counter[str] = Counter()

    def pods_bound(self, cluster: str, priority_class: str, waited: int, count: int) -> None:
        self.waits.append((priority_class, waited, count))

    def pods_waited(self, cluster: str, priority: int, since: int, until: int, count: int) -> None: ...

    def pods_interrupted(self, cluster: str, priority_class: str, cause: str, count: int) -> None:
        self.interrupted[cause] += count


SHAPES = {
    "web": PodShape(resources=Amounts({"cpu": "1"}), priority=1000),
    "big": PodShape(resources=Amounts({"cpu": "3"}), priority=1000),
    "batch": PodShape(resources=Amounts({"cpu": "1"}), priority=100),
    "gang": PodShape(resources=Amounts({"cpu": "4"}), same=Colocation.RACK),
    "even": PodShape(resources=Amounts({"cpu": "1"}), spread=(SpreadSpec(),)),
    "gpu": PodShape(resources=Amounts({"cpu": "1", "nvidia.com/gpu": "1"}), priority=1000),
}
KINDS = Kinds(SHAPES, ["cpu", "nvidia.com/gpu"])


def machine(cpu: int, zone: str = "a", rack: str = "") -> Shape:
    labels = (("topology.bigfleet/rack", rack),) if rack else ()
    return Shape("p", "box", zone, 1, 0.0, 0.0, Resources.of(cpu=cpu * 1000), labels)


def cluster(**facts: object) -> tuple[Cluster, Watch]:
    watch = Watch()
    return Cluster("c", KINDS, watch, **facts), watch  # type: ignore[arg-type]


def kind(name: str) -> PodKind:
    return KINDS[name]


def placed(of: Cluster, name: str) -> dict[str, int]:
    return {node.id: count for node, count in of.podsets[name].bound.items()}


def test_pods_go_to_the_emptiest_node_first() -> None:
    c, watch = cluster()
    c.create("w", "w", kind("web"), 5, now=0)
    c.join("n1", machine(4))
    c.join("n2", machine(8))
    c.bind(now=7)
    assert placed(c, "w") == {"n1": 2, "n2": 3}, "each to the node with the larger free share at that moment"
    assert watch.waits == [("service", 7, count) for _, _, count in watch.waits]
    c.validate()


def test_what_does_not_fit_waits_for_the_next_node() -> None:
    c, _ = cluster()
    c.create("b", "b", kind("big"), 3, now=0)
    c.join("n1", machine(7))
    c.bind(now=1)
    assert c.podsets["b"].waiting_count == 1
    c.join("n2", machine(3))
    c.bind(now=2)
    assert placed(c, "b") == {"n1": 2, "n2": 1}


def test_higher_priority_binds_first() -> None:
    c, _ = cluster()
    c.create("low", "low", kind("batch"), 4, now=0)
    c.create("high", "high", kind("web"), 4, now=5)
    c.join("n", machine(4))
    c.bind(now=9)
    assert placed(c, "high") == {"n": 4}
    assert placed(c, "low") == {}


def test_a_gang_stays_in_the_domain_that_holds_most_of_it() -> None:
    c, _ = cluster()
    c.create("g", "g", kind("gang"), 3, now=0)
    for number in range(2):
        c.join(f"a{number}", machine(4, rack="a"))
    for number in range(3):
        c.join(f"b{number}", machine(4, rack="b"))
    c.bind(now=1)
    assert placed(c, "g") == {"b0": 1, "b1": 1, "b2": 1}


def test_a_job_begins_with_all_its_pods_or_waits() -> None:
    c, _ = cluster()
    c.create("g", "g", kind("gang"), 3, now=0, service=False)
    c.join("n1", machine(8, rack="r1"))
    c.join("n2", machine(4, rack="r2"))
    c.bind(now=0)
    assert placed(c, "g") == {}
    c.join("n3", machine(4, rack="r1"))
    c.bind(now=1)
    assert placed(c, "g") == {"n1": 2, "n3": 1}


def test_the_rest_of_a_gang_waits_rather_than_going_elsewhere() -> None:
    c, _ = cluster()
    c.create("g", "g", kind("gang"), 3, now=0)
    c.join("a0", machine(4, rack="a"))
    c.join("a1", machine(4, rack="a"))
    c.join("b0", machine(4, rack="b"))
    c.bind(now=1)
    assert placed(c, "g") == {"a0": 1, "a1": 1}
    assert c.podsets["g"].waiting_count == 1


def test_a_spread_is_evened_out_over_domains() -> None:
    c, _ = cluster()
    c.create("e", "e", kind("even"), 7, now=0)
    c.join("a", machine(8, zone="a"))
    c.join("b", machine(8, zone="b"))
    c.bind(now=1)
    assert sorted(placed(c, "e").values()) == [3, 4]


def test_lost_pods_come_back_when_somebody_manages_them() -> None:
    c, watch = cluster()
    c.create("w", "w", kind("web"), 3, now=0)
    c.join("n", machine(4))
    c.bind(now=1)
    c.leave("n", "loss", now=5)
    assert (c.podsets["w"].waiting_count, watch.interrupted["loss"]) == (3, 3)
    bare, _ = cluster(managed=False)
    bare.create("w", "w", kind("web"), 3, now=0)
    bare.join("n", machine(4))
    bare.bind(now=1)
    bare.leave("n", "loss", now=5)
    assert bare.podsets["w"].live == 0
    assert len(bare.rollup()) == 0


def test_scaling_down_takes_waiting_pods_first_then_where_most_stand_together() -> None:
    c, _ = cluster()
    c.create("w", "w", kind("web"), 4, now=0)
    c.join("n1", machine(4))
    c.bind(now=1)
    c.scale("w", 7, now=2)
    c.join("n2", machine(2))
    c.bind(now=3)
    assert c.podsets["w"].waiting_count == 1
    c.scale("w", 5, now=4)
    assert (c.podsets["w"].waiting_count, placed(c, "w")) == (0, {"n1": 3, "n2": 2})


def test_ten_full_nodes_are_ten_half_full_ones_after_a_deployment_was_halved() -> None:
    c, _ = cluster()
    c.create("w", "w", kind("web"), 100, now=0)
    for number in range(10):
        c.join(f"n{number}", machine(10))
    c.bind(now=1)
    c.scale("w", 50, now=HOUR)
    assert list(placed(c, "w").values()) == [5] * 10
    c.scale("w", 47, now=2 * HOUR)
    assert sorted(placed(c, "w").values()) == [4] * 3 + [5] * 7
    c.scale("w", 40, now=2 * HOUR)
    assert list(placed(c, "w").values()) == [4] * 10
    c.validate()


def test_a_scale_down_ranks_nodes_once_as_a_replica_set_does() -> None:
    """Five and three pods, four to go: all four leave the node of five, though it soon holds fewer than the other."""
    c, _ = cluster()
    c.create("w", "w", kind("web"), 8, now=0)
    c.join("n1", machine(5))
    c.join("n2", machine(3))
    c.bind(now=1)
    c.scale("w", 4, now=HOUR)
    assert placed(c, "w") == {"n1": 1, "n2": 3}


def test_of_nodes_that_hold_equally_many_the_clearly_younger_lose_theirs_first() -> None:
    c, _ = cluster()
    c.create("w", "w", kind("web"), 4, now=0)
    c.join("n1", machine(4))
    c.bind(now=1)
    c.join("n2", machine(4))
    c.scale("w", 8, now=9 * HOUR)
    c.bind(now=9 * HOUR)
    c.scale("w", 5, now=10 * HOUR)
    assert placed(c, "w") == {"n1": 4, "n2": 1}


def test_a_day_or_a_day_and_an_hour_is_the_same_age_to_a_scale_down() -> None:
    c, _ = cluster()
    c.create("w", "w", kind("web"), 4, now=0)
    c.join("n1", machine(4))
    c.bind(now=1)
    c.join("n2", machine(4))
    c.scale("w", 8, now=HOUR)
    c.bind(now=HOUR)
    c.scale("w", 4, now=25 * HOUR)
    assert placed(c, "w") == {"n1": 2, "n2": 2}


def test_a_cordoned_node_gets_no_new_pods() -> None:
    c, _ = cluster()
    c.join("n", machine(4))
    c.cordon("n", True)
    c.create("w", "w", kind("web"), 1, now=0)
    c.bind(now=1)
    assert c.podsets["w"].bound_count == 0
    c.cordon("n", False)
    c.bind(now=2)
    assert c.podsets["w"].bound_count == 1


def test_a_rolling_step_keeps_the_number_of_pods() -> None:
    c, watch = cluster()
    c.create("w", "w", kind("web"), 4, now=0)
    c.join("n", machine(8))
    c.bind(now=1)
    c.replace_oldest("w", 2, now=5)
    assert (c.podsets["w"].live, c.podsets["w"].bound_count, watch.interrupted) == (4, 4, Counter())
    c.validate()


def test_a_roll_up_has_one_row_per_profile_group_and_size_class() -> None:
    c, _ = cluster()
    c.create("w", "w", kind("web"), 3, now=0)
    c.create("b", "b", kind("big"), 2, now=0)
    c.create("g1", "g", kind("gang"), 2, now=0)
    c.create("g2", "g", kind("gang"), 4, now=0)
    c.create("x", "x", kind("gpu"), 1, now=0)
    rollup = c.rollup()
    rows = sorted(
        (rollup.groups[g] if g >= 0 else "", tuple(map(int, total)), tuple(map(int, unit)))
        for g, total, unit in zip(rollup.group, rollup.aggregate, rollup.min_unit, strict=True)
    )
    assert rollup.resources == ("cpu", "nvidia.com/gpu")
    assert [row[1:] for row in rows if not row[0]] == [
        ((1000, 1), (1000, 1)),
        ((3000, 0), (1000, 0)),
        ((6000, 0), (3000, 0)),
    ]
    assert sorted(row[1] for row in rows if row[0]) == [(8000, 0), (16000, 0)]


def test_only_waiting_pods_ask_where_requests_are_for_unmet_pods() -> None:
    c, _ = cluster(request_per_pod=False)
    c.create("w", "w", kind("web"), 3, now=0)
    assert int(c.rollup().aggregate[0][0]) == 3000
    c.join("n", machine(2))
    c.bind(now=1)
    assert int(c.rollup().aggregate[0][0]) == 1000
    c.leave("n", "loss", now=2)
    assert int(c.rollup().aggregate[0][0]) == 3000


def test_overhead_makes_nodes_smaller() -> None:
    c, _ = cluster(overhead=Resources.of(cpu=1000))
    c.create("w", "w", kind("web"), 4, now=0)
    c.join("n", machine(4))
    c.bind(now=1)
    assert c.podsets["w"].bound_count == 3
    assert c.rollup().overhead == Resources.of(cpu=1000)


def test_nodes_are_reported_when_they_become_empty_or_no_longer_are() -> None:
    c, _ = cluster()
    c.join("n1", machine(4))
    c.join("n2", machine(4))
    c.create("w", "w", kind("web"), 1, now=0)
    c.bind(now=0)
    (used,) = placed(c, "w")
    free = "n2" if used == "n1" else "n1"
    assert c.emptied_or_filled() == [(free, True)]
    assert c.emptied_or_filled() == []
    c.scale("w", 0, now=1)
    assert c.emptied_or_filled() == [(used, True)]
    c.scale("w", 2, now=2)
    c.bind(now=2)
    filled = sorted(placed(c, "w"))
    assert c.emptied_or_filled() == [(node, False) for node in filled]
    c.scale("w", 0, now=3)
    assert c.emptied_or_filled() == [(node, True) for node in filled]
    c.report_nodes_anew()
    assert c.emptied_or_filled() == [("n1", True), ("n2", True)]
    c.leave("n1", "loss", now=4)
    c.report_nodes_anew()
    assert c.emptied_or_filled() == [("n2", True)]
