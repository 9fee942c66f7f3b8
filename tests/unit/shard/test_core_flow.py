"""A shard end to end in virtual time: demand is met, withdrawn, preempted, and told about."""

from __future__ import annotations

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import ALL, OLD, USER_DATA, S, World, cpu, test_config


def test_idle_machines_are_bound_with_one_bootstrap_request_each() -> None:
    world = World()
    world.provider.several(4, "i")
    operator = world.operator("c", OLD)
    operator.send(cpu("c", 4))
    world.run(15)
    assert world.provider.configured("c") == ["i0", "i1", "i2", "i3"]
    assert len(operator.of(ev.BootstrapRequest)) == 4
    assert world.outcomes("Bootstrap") == {"success": 4}
    assert world.journal.keys() == {(ev.Table.GUARD, "c")}


def test_demand_beyond_supply_binds_what_there_is_and_stays_stable() -> None:
    world = World()
    world.provider.several(2, "i")
    world.operator("c").send(cpu("c", 8))
    world.run(60)
    assert world.provider.configured("c") == ["i0", "i1"]
    assert len(world.provider.calls) == 2
    assert world.messages("shortfalls detected")
    assert world.core.published.shortfalls[0].deficit.get("cpu") == 6 * 4000


def test_withdrawn_demand_drains_every_machine_back_to_idle() -> None:
    world = World()
    world.provider.several(4, "i")
    operator = world.operator("c")
    operator.send(cpu("c", 4))
    world.run(15)
    operator.send()
    world.run(30)
    assert world.provider.states() == {S.IDLE: 4}
    assert operator.node_states("i0") == [S.CONFIGURING, S.CONFIGURED, S.DRAINING, S.IDLE]


def test_a_higher_priority_takes_machines_and_the_victims_operator_hears_of_each_once() -> None:
    world = World()
    world.provider.several(4, "i")
    low = world.operator("low", OLD)
    low.send(cpu("low", 4, priority=100))
    world.run(15)
    high = world.operator("high", OLD)
    high.send(cpu("high", 4, priority=1_000_000))
    world.run(60)
    assert world.provider.configured("high") == ["i0", "i1", "i2", "i3"]
    assert len(low.of(ev.ReclaimInstruction)) == 4
    assert {frame.grace_seconds for frame in low.of(ev.ReclaimInstruction)} == {10}


def test_a_purchase_goes_through_create_and_configure_under_one_intent() -> None:
    world = World()
    world.provider.several(3, "s", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 40
    world.provider.work[CallKind.CONFIGURE] = 25
    operator = world.operator("c")
    operator.send(cpu("c", 2))
    world.run(20)
    assert world.state_of("s0") == S.CREATING and world.core.state.fleet.machines["s0"].cluster == "c"
    assert {key for table, key in world.journal if table == ev.Table.INTENT} == {"p/s0", "p/s1"}
    world.run(120)
    assert world.provider.configured("c") == ["s0", "s1"]
    assert world.outcomes() == {"success": 2}
    assert {kind for kind, _ in world.provider.counts} == {CallKind.CREATE, CallKind.CONFIGURE}
    assert operator.node_states("s0") == [S.CONFIGURING, S.CONFIGURED]
    assert not [key for table, key in world.journal if table == ev.Table.INTENT]


def test_configure_carries_user_data_and_the_stamp_of_the_need() -> None:
    world = World()
    world.provider.add("i0")
    line = cpu("c", 1, priority=700, interruption=3.0)
    world.operator("c").send(line)
    world.run(15)
    call = next(call for call in world.provider.calls if call.kind == CallKind.CONFIGURE)
    metadata = dict(call.metadata)
    assert call.blob == USER_DATA and call.cluster == "c"
    assert metadata["bigfleet.lucy.sh/assigned-priority"] == "700"
    assert metadata["bigfleet.lucy.sh/assigned-interruption-penalty-dollars"] == "4"
    assert metadata["bigfleet.lucy.sh/assigned-need-fingerprint"] == line.profile.fingerprint


def test_idle_on_demand_machines_are_released_after_their_hold() -> None:
    world = World(test_config(idle_hold_on_demand=60 * 10**9))
    world.provider.several(2, "i")
    world.run(50)
    assert world.provider.states() == {S.IDLE: 2}
    world.run(60)
    assert world.provider.states() == {S.SPECULATIVE: 2}
    assert world.count("bigfleet_shard_idle_releases_total") == 2
    assert world.outcomes("Delete") == {"success": 2}


def test_an_early_cycle_follows_new_demand_but_not_within_a_second() -> None:
    world = World()
    world.provider.several(2, "i")
    world.run(31)
    before = len(world.steps)
    operator = world.operator("c")
    for index in range(10):
        operator.send(cpu("c", 1 + index % 2))
        world.run(0.1)
    assert len(world.steps) - before <= 2
    gaps = [b.now - a.now for a, b in zip(world.steps, world.steps[1:], strict=False)]
    assert min(gaps) >= 10**9


def test_without_changes_a_cycle_comes_every_ten_seconds() -> None:
    world = World()
    world.run(100.5)
    gaps = [b.now - a.now for a, b in zip(world.steps[1:], world.steps[2:], strict=False)]
    assert set(gaps) == {10 * 10**9}


def test_capacity_hints_come_once_and_change_no_more_often_than_the_interval() -> None:
    world = World()
    world.provider.several(3, "i", price=2.0)
    world.provider.add("cheap", price=0.0)
    operator = world.operator("c")
    line = cpu("c", 1)
    operator.send(line)
    world.run(30)
    first, *rest = operator.of(ev.AvailableCapacity)
    assert first.fingerprint == line.profile.fingerprint and first.confidence == "HIGH" and first.cost_per_hour == 0.0
    assert [(hint.count, hint.cost_per_hour) for hint in rest] == [(3, 2.0)]
    told = len(operator.of(ev.AvailableCapacity))
    world.run(60)
    assert len(operator.of(ev.AvailableCapacity)) == told
    operator.send()
    world.run(30)
    assert operator.of(ev.AvailableCapacity)[-1].confidence == "NONE"


def test_a_reference_operator_and_one_of_ours_reach_the_same_end() -> None:
    ends = []
    for capabilities in (OLD, ALL):
        world = World()
        world.provider.several(3, "i")
        operator = world.operator("c", capabilities)
        operator.send(cpu("c", 3))
        world.run(20)
        operator.send(cpu("c", 1))
        world.run(40)
        ends.append(world.provider.configured("c"))
        assert bool(operator.of(ev.ResyncEnd)) == (capabilities == ALL)
    assert ends[0] == ends[1] and len(ends[0]) == 1
