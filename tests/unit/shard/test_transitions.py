"""Machines that take their time are looked up before the next List, and clusters that left for good are forgotten."""

from __future__ import annotations

from bigfleet.shard.contract import events as ev
from bigfleet.shard.read.views import action_kind
from bigfleet.wire import shardread_pb2
from tests.strategies.builders import SECOND
from tests.strategies.shard_world import S, World, cpu, test_config


def test_a_configure_that_takes_two_seconds_is_seen_long_before_the_next_list() -> None:
    world = World(test_config(reconcile_interval=300 * SECOND))
    world.provider.several(1, "i")
    world.provider.work[ev.CallKind.CONFIGURE] = 2.0
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(10)
    assert operator.node_states("i0")[-1] == S.CONFIGURED


def test_without_polling_the_list_tells() -> None:
    world = World(test_config(reconcile_interval=300 * SECOND, transition_poll_interval=0))
    world.provider.several(1, "i")
    world.provider.work[ev.CallKind.CONFIGURE] = 2.0
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(30)
    assert operator.node_states("i0")[-1] == S.CONFIGURING


def test_a_slot_that_failed_without_a_host_costs_nothing() -> None:
    world = World()
    world.provider.several(1, "i", price=2.0)
    world.provider.several(1, "s", S.SPECULATIVE, price=2.0)
    world.run(5)
    slot = world.core.state.fleet.machines["s0"]
    world.core.state.fleet.change(slot, state=S.FAILED, error="create: refused")
    assert world.core.read.publish().dollars_per_hour == 2.0
    world.core.state.fleet.change(slot, host="h-1")
    assert world.core.read.publish().dollars_per_hour == 4.0
    world.core.state.fleet.change(slot, host="")
    world.core.validate()


def test_a_cluster_that_left_for_good_leaves_nothing_behind() -> None:
    world = World(test_config(forget_cluster_after=600 * SECOND, cycle_interval=2 * SECOND))
    world.provider.several(2, "i")
    stays, leaves = world.operator("stays"), world.operator("leaves")
    stays.send(cpu("stays", 1))
    leaves.send(cpu("leaves", 1), cpu("leaves", 50, priority=7))
    world.run(30)
    leaves.disconnect()
    world.run(1200)
    assert "leaves" in world.core.demand.clusters, "it has a machine"
    leaves.connect()
    leaves.send()
    world.run(60)
    leaves.disconnect()
    world.run(1500)
    assert world.core.demand.clusters.keys() == {"stays"}
    assert (ev.Table.GUARD, "leaves") not in world.journal and world.messages("cluster forgotten")
    assert sum(world.core.published.demand_rows.values()) == 1
    leaves.connect()
    leaves.send(cpu("leaves", 1))
    world.run(60)
    assert len(world.provider.configured("leaves")) == 1
    world.core.validate()


def test_kinds_of_actions_are_read_from_words_and_stages() -> None:
    kinds = shardread_pb2.ActionKind
    assert action_kind("Bootstrap") == action_kind("BOOTSTRAP") == kinds.ACTION_KIND_BOOTSTRAP
    assert action_kind("Reclaim: operator evicting pods") == kinds.ACTION_KIND_RECLAIM
    assert action_kind("") == action_kind("nonsense: calling") == kinds.ACTION_KIND_UNSPECIFIED
