"""While nothing changes in a cluster no node is moved twice: what counts as a change, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.placement import RestKind
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract.events import Table
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, test_config

MINUTE = 60.0


def steady(pods: int = 4, **settings: Any) -> tuple[World, PlacingOperator]:
    """A cluster that has had what it wants for more than a payback, and one of whose nodes a move has brought."""
    seldom = {"cycle_interval": round(20e9), "reconcile_interval": round(20e9), "transition_poll_interval": 0}
    world = World(config=test_config(**{**seldom, **settings}))
    world.provider.work[CallKind.CREATE] = 20
    world.provider.several(12, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(pods, 3)
    world.run(10 * MINUTE)
    brought = world.provider.configured("c")[-1]
    world.core.placement.spared.spare(brought, RestKind.CLOSE, round(3600e9), unless_changed="c")
    world.run(62 * MINUTE)
    assert not cluster.waiting and spared(world) == [brought]
    return world, cluster


def spared(world: World) -> list[str]:
    """Machines that the last step knew to be left alone."""
    return [rest.machine for rest in world.steps[-1].conditions.rests]


def test_a_restart_changes_nothing() -> None:
    world, cluster = steady()
    before = spared(world)
    world.crash()
    cluster.connect()
    world.run(5 * MINUTE)
    assert spared(world) == before
    cluster.stop(1, 3)
    world.crash()
    cluster.connect()
    world.run(5 * MINUTE)
    assert not spared(world), "what changed meanwhile is noticed"


@pytest.mark.parametrize("text", ["", "7", "{}", '{"since": "x", "asks": ""}'])
def test_a_row_that_cannot_be_read_is_as_good_as_none(text: str) -> None:
    world, cluster = steady()
    world.journal[Table.STEADY, "c"] = text
    world.crash()
    cluster.connect()
    world.run(5 * MINUTE)
    assert not spared(world)


def test_demand_that_falls_for_a_minute_is_a_change() -> None:
    world, cluster = steady()
    cluster.stop(1, 3)
    world.run(30)
    cluster.start(1, 3)
    world.run(5 * MINUTE)
    assert spared(world), "a pod that was replaced"
    cluster.stop(1, 3)
    world.run(3 * MINUTE)
    assert not spared(world)


def test_a_machine_that_is_bought_is_a_change_though_demand_is_as_before() -> None:
    world, cluster = steady()
    [lost, *_] = world.provider.configured("c")
    world.provider.lose_host(lost)
    world.run(5 * MINUTE)
    assert not cluster.waiting and not spared(world)


def test_a_kind_or_a_price_that_was_not_there_is_a_change_and_one_that_goes_is_none() -> None:
    world, _ = steady()
    world.provider.units.pop("s9")
    world.run(5 * MINUTE)
    assert spared(world), "there is less to be had: nothing to be rearranged for"
    world.provider.add("s9", S.SPECULATIVE, price=5.0)
    world.run(2 * MINUTE)
    assert not spared(world)


def test_what_moves_bring_about_is_no_change() -> None:
    """Their pods count twice for a while, and who finds no room after all is bought for."""
    world, _ = steady()
    book, now = world.core.placement.steady, world.now
    book.look(frozenset({"c"}), listed=True)
    book.bought("c")
    assert book.is_since("c", now - round(3600e9))
    book.look(frozenset(), listed=True)
    book.bought("c")
    assert not book.is_since("c", now - round(3600e9))


def test_a_node_that_left_its_cluster_is_not_spared_any_more() -> None:
    world, cluster = steady()
    cluster.stop(4, 3)
    cluster.start(4, 3)
    [machine] = spared(world)
    world.provider.lose_host(machine)
    world.run(20)
    assert not spared(world)


def test_a_refused_deletion_is_asked_for_again_ever_later_and_then_not_until_something_changes() -> None:
    world, _ = steady()
    book, [machine] = world.core.placement.spared, world.provider.configured("c")[:1]
    waits = []
    for _ in range(5):
        book.refused(machine, "c", round(300e9), round(3600e9))
        [until] = [rest.until for rest in book.rests() if rest.machine == machine]
        waits.append(-((world.now - until) // round(60e9)))
        world.run(max(0, min(until - world.now, round(3600e9))) / 1e9 + 1)
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[4] > 10**6, "nobody knows when something will change"


def test_a_cluster_that_was_forgotten_leaves_no_row() -> None:
    world, _ = steady()
    assert (Table.STEADY, "c") in world.journal
    world.core.placement.forget("c")
    world.run(MINUTE)
    assert (Table.STEADY, "c") not in world.journal
