"""Hosts the provider will take, around the pure core: pods run on until what replaces them is there."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.policy import SECOND
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, test_config


def served(create: float = 40, **settings: Any) -> tuple[World, PlacingOperator, str]:
    """Two pods on a node each, and the machine of one of them."""
    world = World(config=test_config(**{"idle_hold_on_demand": 60 * SECOND, **settings}))
    world.provider.work[CallKind.CREATE] = create
    world.provider.several(6, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(2, 3)
    world.run(create + 100)
    assert not cluster.waiting and len(world.provider.configured("c")) == 2
    return world, cluster, world.provider.configured("c")[0]


def notice(world: World, machine: str, seconds: float) -> int:
    taken_at = world.now + round(seconds * SECOND)
    world.provider.units[machine].interruption_at = taken_at
    return taken_at


def waits(world: World, cluster: PlacingOperator, seconds: int) -> int:
    """For how many of the next seconds somebody waits."""
    late = 0
    for _ in range(seconds):
        world.run(1)
        late += bool(cluster.waiting)
    return late


def drains(world: World) -> list[ev.CallProvider]:
    return [call for call in world.provider.calls if call.kind == CallKind.DRAIN]


def provisions(world: World) -> int:
    return sum(call.kind == CallKind.CREATE for call in world.provider.calls)


@pytest.mark.parametrize("seconds", [120, 600])
def test_pods_leave_a_host_that_will_be_taken_when_their_new_node_is_ready(seconds: int) -> None:
    world, cluster, taken = served()
    taken_at = notice(world, taken, seconds)
    world.run(max(1, seconds - 190))
    assert world.state_of(taken) == S.CONFIGURED, "not before a boot and a minute"
    assert waits(world, cluster, min(seconds, 185) - 5) <= 10, "no longer than a look takes"
    assert world.now < taken_at
    assert [call.machine for call in drains(world)] == [taken] and taken not in world.provider.configured("c")
    assert provisions(world) == 3, "one for one"
    [order] = cluster.of(ev.ReclaimInstruction)
    assert 60 <= order.room_within_seconds <= 145 and not order.voluntary
    assert world.provider.units[taken].state == S.SPECULATIVE, "nobody pays for what is left of the notice"
    world.run(300)
    assert provisions(world) == 3 and not cluster.waiting


def test_pods_without_a_new_node_leave_in_time_to_end_as_they_like_to() -> None:
    world, cluster, taken = served()
    world.provider.work[CallKind.CREATE] = 300
    taken_at = notice(world, taken, 120)
    while not cluster.waiting and world.now < taken_at:
        world.run(1)
    assert 30 <= (taken_at - world.now) / SECOND <= 36
    world.run(400)
    assert not cluster.waiting and provisions(world) == 3, "the same pods are bought for once"


def test_a_node_without_pods_is_left_at_once() -> None:
    world, cluster, _ = served()
    cluster.stop(1, 3)
    [empty] = [machine for machine in world.provider.configured("c") if not cluster.on(machine)]
    notice(world, empty, 120)
    world.run(30)
    assert empty not in world.provider.configured("c") and provisions(world) == 2


@pytest.mark.parametrize("later", [0, 3600])
def test_a_notice_that_is_withdrawn_or_put_off_moves_nobody(later: int) -> None:
    world, cluster, taken = served(create=150)
    before = world.provider.configured("c")
    notice(world, taken, 120)
    world.run(30)
    assert world.state_of(taken) == S.DRAINING and taken in cluster.held
    world.provider.units[taken].interruption_at = later and world.now + later * SECOND
    assert waits(world, cluster, 900) == 0
    assert cluster.on(taken) and not cluster.nodes[taken].draining and world.state_of(taken) == S.CONFIGURED
    assert drains(world) == [] or {call.machine for call in drains(world)}.isdisjoint(before)
    assert world.provider.configured("c") == before, "what was bought in vain is given back"


def test_a_restarted_shard_goes_on_with_the_time_that_is_left() -> None:
    world, cluster, taken = served(create=70)
    notice(world, taken, 120)
    world.run(20)
    assert taken in cluster.held
    world.crash()
    cluster.connect()
    assert waits(world, cluster, 110) <= 10
    last = cluster.of(ev.ReclaimInstruction)[-1]
    assert 30 <= last.room_within_seconds <= 70
    assert taken not in world.provider.configured("c") and provisions(world) == 3


def test_a_shard_that_restarts_early_in_the_notice_does_not_take_the_drain_back() -> None:
    world, cluster, taken = served(create=150)
    notice(world, taken, 200)
    world.run(30)
    assert taken in cluster.held
    world.crash()
    world.run(10)
    assert world.state_of(taken) == S.DRAINING and not cluster.of(ev.ReclaimCancel)
    cluster.connect()
    world.run(10)
    assert taken in cluster.held and not cluster.of(ev.ReclaimCancel)


def test_a_shard_that_has_lost_its_journal_hears_of_the_notice_again() -> None:
    world, cluster, taken = served(create=50)
    notice(world, taken, 120)
    world.run(15)
    world.journal.clear()
    world.crash()
    cluster.connect()
    assert waits(world, cluster, 110) <= 10
    assert taken not in world.provider.configured("c") and len(world.provider.configured("c")) == 2


def test_an_operator_that_returns_in_between_is_told_what_time_is_left() -> None:
    world, cluster, taken = served()
    cluster.disconnect()
    notice(world, taken, 120)
    world.run(30)
    assert world.state_of(taken) == S.DRAINING and not cluster.of(ev.ReclaimInstruction)
    cluster.connect()
    assert waits(world, cluster, 90) <= 10
    [order] = cluster.of(ev.ReclaimInstruction)
    assert 40 <= order.room_within_seconds <= 60
    assert taken not in world.provider.configured("c")


def test_nothing_is_drained_on_notice_while_the_shard_is_paused() -> None:
    world, cluster, taken = served()
    world.post(ev.RailsSet(paused=True))
    notice(world, taken, 400)
    assert waits(world, cluster, 300) == 0 and world.state_of(taken) == S.CONFIGURED
    world.post(ev.RailsSet(paused=False))
    assert waits(world, cluster, 95) <= 10
    assert taken not in world.provider.configured("c") and provisions(world) == 3
