"""Actions are read page by page while more of them happen: none is skipped, none is told twice."""

from __future__ import annotations

from itertools import islice

from bigfleet.model.machine import CallKind
from bigfleet.model.names import PLACEMENT, ZONE_LABEL
from bigfleet.shard.read.action_pages import actions_after, is_token
from tests.strategies.placed import counted, pods
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import ALL, S, World, cpu

RACK = "example.com/rack"


def page(world: World, token: str, size: int) -> list[tuple[str, str]]:
    read = world.core.read
    rows = actions_after(token, read.operations(), world.core.published.actions, read.record)
    return [(token, view.machine_id) for token, view in islice(rows, size)]


def test_pages_skip_nothing_and_repeat_nothing_while_actions_end() -> None:
    world = World()
    world.provider.several(30, "i")
    world.provider.work[CallKind.CONFIGURE] = 20.0
    operator = world.operator("c")
    operator.send(cpu("c", 10))
    world.run(30)
    operator.send(cpu("c", 25))
    world.run(4)
    under_way = {operation.machine.key for operation in world.core.read.operations()}
    assert len(under_way) == 15 and len(world.core.published.actions) == 10
    ended_before = {taken.machine for taken in world.core.published.actions}
    seen: list[str] = []
    token = ""
    while rows := page(world, token, 4):
        token = rows[-1][0]
        assert is_token(token)
        seen += [machine for _, machine in rows]
        if len(seen) == 16:
            world.run(40)  # Everything under way ends while somebody reads.
    assert ended_before <= set(seen) and len(seen) == len(set(seen))
    assert under_way <= set(seen)


def test_decided_and_finished_are_two_times_and_every_kind_says_what_it_beat() -> None:
    world = World()
    world.provider.add("s0", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 30.0
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(60)
    operator.send()
    world.run(60)
    views = [view for _, view in actions_after("", [], world.core.published.actions, world.core.read.record)]
    assert {view.kind for view in views} >= {2, 3}
    bought = next(view for view in views if view.kind == 2)
    assert bought.finished_at_unix_nanos - bought.decided_at_unix_nanos > 29 * 10**9
    assert all(view.beat for view in views)


def beats(world: World) -> dict[str, str]:
    views = [view for _, view in actions_after("", [], world.core.published.actions, world.core.read.record)]
    return {view.machine_id: view.beat for view in views}


def test_a_purchase_names_the_next_best_kind_that_serves_the_need() -> None:
    """One is cheaper and too small, one dearer by its interruptions, one dearer still: the second comes next."""
    world = World()
    world.provider.add("a", S.SPECULATIVE, type="good", price=1.0)
    world.provider.add("b", S.SPECULATIVE, type="small", price=0.5, size={"cpu": 500})
    world.provider.add("c", S.SPECULATIVE, type="risky", capacity=4, price=0.9, probability=0.01)
    world.provider.add("d", S.SPECULATIVE, type="dear", price=3.0)
    world.operator("x").send(cpu("x", 1, interruption=64.0))
    world.run(30)
    assert beats(world) == {"a": "risky in a of p at $0.900/h, $1.540/h with interruptions (to be bought)"}


def test_a_free_machine_names_the_next_free_one_and_then_what_would_have_been_bought() -> None:
    world = World()
    world.provider.add("a", price=1.0, type="first")
    world.provider.add("b", price=2.0, type="second")
    world.provider.add("s", S.SPECULATIVE, price=0.5, type="slot")
    operator = world.operator("x")
    operator.send(cpu("x", 1))
    world.run(30)
    operator.send(cpu("x", 2))
    world.run(30)
    assert beats(world) == {
        "a": "second in a of p at $2.000/h (free)",
        "b": "slot in a of p at $0.500/h (to be bought)",
    }


def test_a_victim_names_the_need_that_had_to_give_way_and_what_goes_back_what_it_cost() -> None:
    world = World()
    world.provider.add("m", price=1.5)
    low, high = world.operator("low"), world.operator("high")
    low.send(cpu("low", 1, priority=10))
    world.run(30)
    high.send(cpu("high", 1, priority=500))
    world.run(120)
    views = [view for _, view in actions_after("", [], world.core.published.actions, world.core.read.record)]
    assert "low at priority 10, below 500" in [view.beat for view in views]
    high.send()
    low.send()
    world.run(120)
    views = [view for _, view in actions_after("", [], world.core.published.actions, world.core.read.record)]
    assert "keeping it at $1.500/h: its cluster is served without it" in [view.beat for view in views]


def test_what_is_given_up_for_being_useless_does_not_say_that_its_cluster_is_served() -> None:
    """Boots for ever: it goes although its pods wait, and for no other reason than that."""
    world = World()
    world.provider.several(2, "a", S.SPECULATIVE)
    cluster = PlacingOperator(world, "x")
    cluster.never_ready = {"a0"}
    cluster.start(1, 1)
    world.run(1500)
    views = [view for _, view in actions_after("", [], world.core.published.actions, world.core.read.record)]
    given_up = [view.beat for view in views if view.kind == 3 and view.machine_id == "a0"]
    assert given_up == ["waiting longer: its node did not become ready in time"]


def test_what_is_no_token_is_refused() -> None:
    assert is_token("") and is_token("u:m-1") and is_token("e:17")
    assert not is_token("17") and not is_token("e:") and not is_token("e:x")


def test_pods_name_the_machine_on_which_each_of_them_would_cost_least() -> None:
    """Chosen: four pods for a dollar. A dear one for one pod is no rival, eight pods for 2.4 dollars are."""
    world = World()
    world.provider.several(9, "a", S.SPECULATIVE, type="good", price=1.0, size={"cpu": 4000})
    world.provider.several(9, "b", S.SPECULATIVE, type="single", price=0.9, size={"cpu": 1000})
    world.provider.several(9, "c", S.SPECULATIVE, type="large", price=2.4, size={"cpu": 8000})
    cluster = PlacingOperator(world, "x")
    cluster.start(8, 1)
    world.run(60)
    told = beats(world)
    assert set(told) == {"a0", "a1"}
    assert set(told.values()) == {"large in a of p at $2.400/h for 8 of its pods (to be bought)"}


def test_a_spread_names_the_next_kind_of_the_domain_whose_turn_it_was() -> None:
    world = World()
    for zone, dear in (("a", 5.0), ("b", 3.0)):
        world.provider.several(2, f"{zone}-good", S.SPECULATIVE, zone=zone, type="good", price=1.0)
        world.provider.several(2, f"{zone}-dear", S.SPECULATIVE, zone=zone, type="dear", price=dear)
    world.operator("x").send(cpu("x", 2, spread=(ZONE_LABEL, 1)))
    world.run(30)
    assert beats(world) == {
        "a-good0": "dear in a of p at $5.000/h (to be bought)",
        "b-good0": "dear in b of p at $3.000/h (to be bought)",
    }


def test_a_gang_names_the_next_domain_that_could_have_held_all_of_it() -> None:
    """r1 is cheapest, r2 could hold it too, r3 would be cheaper than r2 and has one machine too few."""
    for kind in ("sum", "pods"):
        world = World()
        for rack, price, count in (("r1", 1.0, 3), ("r2", 2.0, 3), ("r3", 1.5, 2)):
            world.provider.several(count, rack, S.SPECULATIVE, type="m", price=price, labels={RACK: rack})
        operator = world.operator("x", ALL | {PLACEMENT}) if kind == "pods" else world.operator("x")
        if kind == "pods":
            operator.rollup = counted("x", pods("x", 3, cpu=4, same=RACK, group="g"))
            operator.report()
        else:
            operator.send(cpu("x", 3, same=RACK, group="g"))
        world.run(30)
        told = beats(world)
        assert set(told) == {"r10", "r11", "r12"}, kind
        assert set(told.values()) == {f"{RACK} r2, which could have held all of it at $6.000/h"}, kind


def test_a_gang_without_another_domain_says_so() -> None:
    world = World()
    world.provider.several(2, "r1", S.SPECULATIVE, labels={RACK: "r1"})
    world.provider.several(1, "r2", S.SPECULATIVE, labels={RACK: "r2"})
    world.operator("x").send(cpu("x", 2, same=RACK, group="g"))
    world.run(30)
    assert set(beats(world).values()) == {f"waiting: no other {RACK} has room for all of it"}
