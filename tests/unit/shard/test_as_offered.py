"""Machines that come as something else than their slot offered: what is bought, bound, paid, tried again and told.

Judged by what a cluster and its bill feel: how many are bought, whom they are bound for, what runs, and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import CallKind
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint, Toleration
from bigfleet.shard.core.machines.as_offered import difference
from tests.strategies.builders import RACK, ZONE, need
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, cpu, shape_of, test_config

MINUTE = 60.0
IN_R1 = (Requirement(RACK, Operator.IN, ("r1",)),)
IN_A = (Requirement(ZONE, Operator.IN, ("a",)),)


def elsewhere(offered: Shape) -> Shape:
    return replace(offered, zone="b") if offered.zone == "a" else offered


def smaller(offered: Shape) -> Shape:
    return replace(offered, allocatable=Resources({"cpu": 2900}))


def world_of(delivers: Callable[[Shape], Shape], shown_in: Any = S.CREATING, **settings: Any) -> World:
    """Boots of 20 s; what nobody uses is given back after half a minute."""
    world = World(config=test_config(**{"idle_hold_on_demand": round(30e9), **settings}), oracle=False)
    world.provider.work[CallKind.CREATE] = 20
    world.provider.delivers, world.provider.shown_in = delivers, shown_in
    return world


def asking(world: World, name: str = "c", pods: int = 4, **asks: Any) -> PlacingOperator:
    cluster = PlacingOperator(world, name)
    cluster.asks = asks
    cluster.start(pods, 3)
    return cluster


def calls(world: World, kind: CallKind, prefix: str = "") -> int:
    return sum(1 for each in world.provider.calls if each.kind == kind and each.machine.startswith(prefix))


@pytest.mark.parametrize("shown_in", [S.CREATING, S.IDLE])
@pytest.mark.parametrize(("delivers", "asks"), [(elsewhere, {"where": IN_A}), (smaller, {})])
def test_what_its_row_cannot_use_is_not_bound_nor_bought_again_and_is_given_back(
    delivers: Callable[[Shape], Shape], asks: dict[str, Any], shown_in: Any
) -> None:
    world = world_of(delivers, shown_in)
    world.provider.several(40, "s", S.SPECULATIVE)
    cluster = asking(world, **asks)
    world.run(4 * MINUTE)
    assert len(cluster.waiting) == 4
    assert calls(world, CallKind.CREATE) == 4, "a machine for each pod, and none for those that came as something else"
    assert not calls(world, CallKind.CONFIGURE) and not calls(world, CallKind.DRAIN)
    assert world.provider.states() == {S.SPECULATIVE: 40}, "nobody pays for what nobody can use"


@pytest.mark.parametrize("shown_in", [S.CREATING, S.IDLE])
def test_pods_of_many_sizes_pay_for_it_once(shown_in: Any) -> None:
    world = world_of(elsewhere, shown_in)
    world.provider.several(200, "s", S.SPECULATIVE, size={"cpu": 16_000})
    cluster = asking(world, where=IN_A)
    for cores in (1, 2, 4, 5, 6, 7, 8, 9, 10):
        cluster.start(3, cores)
    whole = -(-sum(pod.cores for pod in cluster.pods) // 16)
    world.run(4 * MINUTE)
    assert whole <= calls(world, CallKind.CREATE) <= whole + 1, "what one size has learnt the others need not"
    assert not calls(world, CallKind.CONFIGURE)


def test_it_is_tried_again_after_ever_longer_pauses() -> None:
    world = world_of(elsewhere)
    world.provider.several(40, "s", S.SPECULATIVE)
    asking(world, where=IN_A)
    tries = []
    for minute in range(1, 201):
        before = calls(world, CallKind.CREATE)
        world.run(MINUTE)
        if calls(world, CallKind.CREATE) > before:
            tries.append(minute)
    assert calls(world, CallKind.CREATE) == 4 * len(tries)
    pauses = [later - sooner for sooner, later in pairwise(tries)]
    assert pauses == [5, 10, 20, 40, 60, 60]


@pytest.mark.parametrize(("delivers", "asks"), [(elsewhere, {"where": IN_A}), (smaller, {})])
def test_what_comes_as_offered_is_bought_instead_though_it_is_dearer(
    delivers: Callable[[Shape], Shape], asks: dict[str, Any]
) -> None:
    world = world_of(lambda offered: delivers(offered) if offered.instance_type == "liar" else offered)
    world.provider.several(40, "s", S.SPECULATIVE, type="liar", price=0.5)
    world.provider.several(40, "t", S.SPECULATIVE, type="honest", price=2.0)
    cluster = asking(world, **asks)
    world.run(2 * MINUTE)
    assert not cluster.waiting
    assert (calls(world, CallKind.CREATE, "s"), calls(world, CallKind.CREATE, "t")) == (4, 4)
    assert all(machine.startswith("t") for machine in world.provider.configured("c"))


def test_what_came_serves_whom_it_fits() -> None:
    world = world_of(elsewhere)
    world.provider.several(4, "s", S.SPECULATIVE)
    asking(world, where=IN_A)
    other = asking(world, "d", 2, where=[Requirement(ZONE, Operator.IN, ("b",))])
    world.run(1.5 * MINUTE)
    assert not other.waiting, "what stands in b is free for those who ask for b"
    assert len(world.provider.configured("d")) == 2 and not world.provider.configured("c")


@pytest.mark.parametrize(
    "delivers",
    [
        elsewhere,
        lambda offered: replace(offered, allocatable=Resources({"cpu": 8000})),
        lambda offered: replace(offered, allocatable=Resources({"cpu": 3000})),
        lambda offered: replace(offered, price=2.0, labels=(("new", "label"),)),
    ],
)
def test_what_differs_and_still_fits_is_used_as_ever(delivers: Callable[[Shape], Shape]) -> None:
    world = world_of(delivers)
    world.provider.several(40, "s", S.SPECULATIVE)
    cluster = asking(world)
    world.run(1.5 * MINUTE)
    assert not cluster.waiting
    assert world.outcomes("Provision") == {"success": calls(world, CallKind.CREATE)}
    assert not world.core.placement.backoffs.in_force()


def test_purchases_that_were_not_sent_yet_are_not_made() -> None:
    world = world_of(elsewhere, execute_concurrency=2)
    world.provider.latency = 2.0
    world.provider.several(60, "s", S.SPECULATIVE)
    asking(world, pods=40, where=IN_A)
    world.run(4 * MINUTE)
    assert calls(world, CallKind.CREATE) <= 4
    assert not calls(world, CallKind.CONFIGURE)


def test_a_restart_while_it_comes_changes_nothing() -> None:
    world = world_of(elsewhere, S.IDLE)
    world.provider.several(40, "s", S.SPECULATIVE)
    cluster = asking(world, where=IN_A)
    world.run(15)
    assert world.provider.states()[S.CREATING] == 4
    world.crash()
    cluster.connect()
    world.run(4 * MINUTE)
    assert calls(world, CallKind.CREATE) == 4 and not calls(world, CallKind.CONFIGURE)


def test_a_gang_that_comes_whole_in_another_rack_runs_there() -> None:
    world = world_of(lambda offered: replace(offered, labels=((RACK, "r9"),)))
    world.provider.several(8, "s", S.SPECULATIVE, labels={RACK: "r1"})
    cluster = asking(world, pods=2, same=RACK, group="g")
    world.run(MINUTE)
    assert not cluster.waiting and len(world.provider.configured("c")) == 2
    assert calls(world, CallKind.CREATE) == 2


def test_a_gang_whose_machines_come_too_small_buys_them_once() -> None:
    world = world_of(smaller)
    world.provider.several(30, "s", S.SPECULATIVE, labels={RACK: "r1"})
    asking(world, pods=3, same=RACK, group="g")
    world.run(4 * MINUTE)
    assert calls(world, CallKind.CREATE) == 3 and not calls(world, CallKind.CONFIGURE)


def test_a_spread_over_zones_does_not_buy_on_where_one_zone_comes_as_the_other() -> None:
    world = world_of(elsewhere)
    world.provider.several(30, "s", S.SPECULATIVE)
    world.provider.several(30, "t", S.SPECULATIVE, zone="b")
    asking(world, pods=4, spread=(ZONE, 1))
    world.run(4 * MINUTE)
    assert calls(world, CallKind.CREATE) <= 5


def test_a_cluster_that_tells_sums_gets_another_kind_and_does_not_buy_for_ever() -> None:
    world = world_of(lambda offered: elsewhere(offered) if offered.instance_type == "liar" else offered)
    world.provider.several(100, "s", S.SPECULATIVE, type="liar", price=0.5)
    world.provider.several(10, "t", S.SPECULATIVE, type="honest", price=2.0)
    world.operator("r").send(cpu("r", 4, where=IN_A))
    world.run(3 * MINUTE)
    assert len(world.provider.configured("r")) == 4
    assert all(machine.startswith("t") for machine in world.provider.configured("r"))
    assert calls(world, CallKind.CREATE, "s") <= 8


@pytest.mark.parametrize("delivers", [elsewhere, smaller])
def test_a_move_to_what_comes_as_something_else_is_given_up(delivers: Callable[[Shape], Shape]) -> None:
    world = world_of(delivers, eviction_rate=1.0, cycle_interval=round(20e9), reconcile_interval=round(20e9))
    world.provider.add("dear", S.SPECULATIVE, type="dear", price=4.0)
    world.provider.delivers = lambda offered: delivers(offered) if offered.instance_type == "cheap" else offered
    cluster = asking(world, pods=1, where=IN_A)
    world.run(2 * MINUTE)
    cluster.profile = cluster._row(3).row.profile.fingerprint
    world.run(9 * MINUTE)
    assert world.provider.configured("c") == ["dear"]
    world.provider.several(4, "cheap", S.SPECULATIVE, type="cheap", price=1.0)
    for _ in range(240):
        world.run(15)
        if calls(world, CallKind.CREATE, "cheap"):
            break
    else:
        raise AssertionError("it was never moved")
    world.run(4 * MINUTE)
    assert not calls(world, CallKind.CONFIGURE, "cheap") and not calls(world, CallKind.DRAIN)
    assert world.provider.configured("c") == ["dear"] and not cluster.waiting
    assert not list(world.core.consolidation.moves)
    assert calls(world, CallKind.CREATE, "cheap") == 1


def profile_of(**facts: Any) -> Any:
    return need("c", 1, cpu=3, **facts).profile


OFFERED = shape_of("p", type="m.4", labels={RACK: "r1"})
THREE = [Resources({"cpu": 3000})]


@pytest.mark.parametrize(
    ("facts", "came", "words"),
    [
        ({"where": IN_A}, {"zone": "b"}, "m.4 is offered in zone a and arrives in b"),
        ({"where": IN_A}, {"zone": ""}, "m.4 is offered in zone a and arrives without zone"),
        ({}, {"zone": "b"}, ""),
        ({}, {"allocatable": Resources({"cpu": 2900})}, "m.4 in a is offered with 4 vCPU and arrives with 2.9 vCPU"),
        ({}, {"allocatable": Resources({"cpu": 3000})}, ""),
        ({"where": IN_R1}, {"labels": ((RACK, "r2"),)}, f"m.4 in a is offered with {RACK} r1 and arrives with r2"),
        ({"same": RACK, "group": "g"}, {"labels": ((RACK, "r2"),)}, ""),
        ({"same": RACK}, {"labels": ()}, f"m.4 in a is offered with {RACK} r1 and arrives without {RACK}"),
        ({"spread": (ZONE, 1)}, {"zone": "b"}, "m.4 is offered in zone a and arrives in b"),
        ({"anyway": ZONE}, {"zone": "b"}, ""),
        ({}, {"taints": (Taint("gpu", "yes"),)}, "m.4 in a is offered without and arrives with taint gpu"),
        ({"tolerations": [Toleration("gpu", "Exists")]}, {"taints": (Taint("gpu", "yes"),)}, ""),
        (
            {"interruption": inf},
            {"probability": 0.1},
            "m.4 in a is offered as never interrupted and arrives as at risk",
        ),
        ({"interruption": 1.0}, {"probability": 0.1}, ""),
        ({}, {"price": 9.0}, ""),
    ],
)
def test_what_is_told_of_a_difference(facts: dict[str, Any], came: dict[str, Any], words: str) -> None:
    found = difference(OFFERED, replace(OFFERED, **came), profile_of(**facts), THREE, Resources.ZERO, "m")
    assert found == words


def test_a_gang_uses_what_holds_any_of_its_units() -> None:
    units = [Resources({"cpu": 3500}), Resources({"cpu": 1000})]
    came = replace(OFFERED, allocatable=Resources({"cpu": 2000}))
    assert not difference(OFFERED, came, profile_of(), units, Resources.ZERO, "m")
    assert difference(OFFERED, came, profile_of(), units, Resources({"cpu": 1500}), "m")


def test_a_provider_is_not_blamed_for_what_the_offer_did_not_hold_either() -> None:
    came = replace(OFFERED, allocatable=Resources({"cpu": 2900}))
    assert not difference(OFFERED, came, profile_of(), THREE, Resources({"cpu": 2000}), "m")
