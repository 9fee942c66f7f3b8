"""What a report tells the coordinator: free machines as others would ask for them, and shortfalls in units."""

from __future__ import annotations

from dataclasses import replace

from bigfleet.engine.results import NeedKey, Shortfall, UnmetReason
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.shortfalls import folded
from bigfleet.shard.contract.step_result import Listed
from bigfleet.shard.coordinator_link.report import standing_of
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import OLD, S, World, cpu, test_config


def short(unit: str, units: int = 0, coming: int = 0, since: int = 5, cluster: str = "c") -> Shortfall:
    key = NeedKey(cluster, "fp", "", unit)
    return Shortfall(key, 7, Resources.of(cpu=1000), since, 1, False, False, units, coming, UnmetReason.FRAGMENTATION)


def test_units_of_one_size_add_up_and_of_two_sizes_are_told_apart() -> None:
    told = folded(Listed((short("cpu=1000", 3, 1), short("cpu=1000", 2, since=1, cluster="d"), short("cpu=4000", 1))))
    assert [(each.min_unit, each.units, each.coming, each.cluster) for each in told] == [
        ("cpu=1000", 5, 1, ""),
        ("cpu=4000", 1, 0, "c"),
    ]
    assert told[0].cause is UnmetReason.FRAGMENTATION and told[0].since == 1


def test_sums_are_told_by_fingerprint_as_ever() -> None:
    (told,) = folded(Listed((short("cpu=1000"), short("cpu=4000"))))
    assert (told.min_unit, told.units, told.rows, told.deficit) == ("", 0, 2, Resources.of(cpu=2000))


def test_a_report_says_what_free_machines_are_whose_and_what_they_cost() -> None:
    world = World(test_config(providers=("p", "q"), with_coordinator=False))
    world.providers["p"].several(2, "a", price=2.0, probability=0.25)
    world.providers["q"].add("s", S.SPECULATIVE)
    world.operator("new").send(cpu("new", 9))
    world.operator("old", OLD)
    world.run(30)
    world.operators["new"].send()
    world.run(60)
    standing = standing_of(world.core, world.now)
    cells = {
        (each.provider, each.price_per_hour, each.interruption_probability) for each in standing.summary.free_cells
    }
    assert ("p", 2.0, 0.25) in cells
    assert all(dict(each.allocatable) == {"cpu": "4"} for each in standing.summary.free_cells)
    assert list(standing.providers) == ["p", "q"]
    assert {each.cluster_id: each.follows_referrals for each in standing.clusters} == {"new": True, "old": False}


def test_a_shortfall_is_reported_with_unit_units_coming_and_cause() -> None:
    world = World(test_config())
    world.operator("c").send(cpu("c", 1))
    world.run(20)
    world.core._last.shortfalls = tuple(
        replace(each, min_unit="cpu=2000", units=4, coming=1, cause=UnmetReason.AWAITING_NODE)
        for each in world.core._last.shortfalls
    )
    world.core._published = None
    (told,) = standing_of(world.core, world.now).shortfalls
    assert (dict(told.min_unit), told.units, told.coming, told.cause) == ({"cpu": "2"}, 4, 1, "awaiting_node")


def test_what_a_cluster_lacks_that_is_away_is_not_reported() -> None:
    world = World(test_config())
    world.operator("c").send(cpu("c", 1))
    world.run(20)
    assert len(standing_of(world.core, world.now).shortfalls) == 1
    world.core._last.shortfalls = tuple(replace(each, away=True) for each in world.core._last.shortfalls)
    world.core._published = None
    assert not standing_of(world.core, world.now).shortfalls


def test_a_report_says_how_many_pods_consolidation_may_still_move_and_of_whom_that_can_be_said() -> None:
    """`c` reports placement, and thirty pods that became old have earned it one eviction (0.045 each)."""
    world = World(test_config(with_coordinator=False))
    world.provider.several(40, "s", S.SPECULATIVE, size={"cpu": 4000})
    world.operator("sums").send(cpu("sums", 1))
    cluster = PlacingOperator(world, "c")
    cluster.start(30, 3)
    world.run(1200)
    told = {
        each.cluster_id: (each.reports_placement, each.evictions_left)
        for each in standing_of(world.core, world.now).clusters
    }
    assert told == {"c": (True, 1), "sums": (False, 0)}
