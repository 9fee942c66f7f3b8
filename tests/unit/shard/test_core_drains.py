"""Drains: through the operator where it reports, at the provider at once where it does not, resumed after a crash."""

from __future__ import annotations

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.builders import SECOND
from tests.strategies.shard_world import ALL, OLD, Operator, S, World, cpu, test_config

FALLBACK = "reclaim fallback"


def bound(capabilities: frozenset[str] = ALL, machines: int = 1, **config: object) -> tuple[World, Operator]:
    world = World(test_config(**config))
    world.provider.several(machines, "i")
    operator = world.operator("c", capabilities)
    operator.send(cpu("c", machines))
    world.run(15)
    assert len(world.provider.configured("c")) == machines
    return world, operator


def drains(world: World) -> list[ev.CallProvider]:
    return [call for call in world.provider.calls if call.kind == CallKind.DRAIN]


def test_the_provider_waits_for_the_eviction() -> None:
    world, operator = bound()
    operator.evict_after = 45
    operator.send()
    world.run(40)
    assert world.state_of("i0") == S.DRAINING and not drains(world)
    world.run(20)
    assert world.provider.states() == {S.IDLE: 1}
    (call,) = drains(world)
    assert 500 < call.grace_seconds < 600


def test_pods_that_remain_after_the_grace_fail_the_machine() -> None:
    world, operator = bound(reclaim_grace=60 * SECOND)
    operator.blocked.add("i0")
    operator.send()
    world.run(75)
    assert world.state_of("i0") == S.FAILED and not drains(world)
    assert "pods remain after the grace" in world.core.state.fleet.machines["i0"].error
    assert operator.node_states("i0")[-1] == S.FAILED
    assert operator.of(ev.NodeState)[-1].last_error
    operator.blocked.clear()
    world.run(700)
    assert world.provider.states() == {S.IDLE: 1}


def test_drain_after_grace_lets_the_provider_go_on() -> None:
    world, operator = bound(reclaim_grace=60 * SECOND, drain_after_grace=True)
    operator.blocked.add("i0")
    operator.send()
    world.run(80)
    assert world.provider.states() == {S.IDLE: 1}


def test_an_operator_that_never_reports_back_counts_as_expired() -> None:
    world, operator = bound(reclaim_grace=60 * SECOND)
    operator.evict_after = 10_000
    operator._drain = lambda frame, machine: None  # type: ignore[method-assign]
    operator.send()
    world.run(90)
    assert world.state_of("i0") == S.FAILED


def test_an_operator_that_is_away_is_waited_for_up_to_the_grace() -> None:
    world, operator = bound(reclaim_grace=60 * SECOND)
    operator.evict_after = 30
    operator.send()
    world.run(1.2)
    operator.disconnect()
    world.run(50)
    assert not drains(world) and world.state_of("i0") == S.DRAINING
    world.run(20)
    assert world.provider.states() == {S.IDLE: 1}
    assert world.messages(FALLBACK)


def test_an_operator_that_returns_in_time_gets_the_instruction_again() -> None:
    world, operator = bound()
    operator.evict_after = 20
    operator.send()
    world.run(5)
    operator.disconnect()
    world.run(10)
    operator.draining.clear()
    operator.frames.clear()
    operator.connect()
    world.run(40)
    assert [frame.nodes for frame in operator.of(ev.ReclaimInstruction)] == [("i0",)]
    assert world.provider.states() == {S.IDLE: 1}
    assert not world.messages(FALLBACK)


def test_a_base_operator_is_told_and_the_provider_drains_at_once_with_the_same_grace() -> None:
    world, operator = bound(OLD)
    operator.send()
    world.run(10)
    (call,) = drains(world)
    (frame,) = operator.of(ev.ReclaimInstruction)
    assert call.grace_seconds == frame.grace_seconds == 600
    assert frame.nodes == ("i0",) and frame.preemptor_priority == 0


def test_without_a_base_operator_a_reclaim_drains_at_once_and_says_so() -> None:
    world, operator = bound(OLD)
    operator.send()
    operator.disconnect()
    world.run(10)
    assert world.provider.states() == {S.IDLE: 1}
    assert world.messages(FALLBACK)


def test_an_asynchronous_drain_keeps_the_binding_until_it_ends() -> None:
    world, operator = bound(OLD)
    world.provider.work[CallKind.DRAIN] = 40
    operator.send()
    world.run(20)
    record = world.core.state.fleet.machines["i0"]
    assert (record.state, record.cluster, record.error) == (S.DRAINING, "c", "")
    world.run(60)
    assert (record.state, record.cluster, record.stamp.fingerprint) == (S.IDLE, "", "")
    assert operator.node_states("i0")[-2:] == [S.DRAINING, S.IDLE]


def test_demand_that_returns_takes_the_drain_back() -> None:
    world, operator = bound()
    operator.evict_after = 300
    operator.send()
    world.run(15)
    assert world.state_of("i0") == S.DRAINING
    operator.send(cpu("c", 1))
    world.run(10)
    assert len(operator.of(ev.ReclaimCancel)) == 1
    assert world.state_of("i0") == S.CONFIGURED and not drains(world)
    assert world.outcomes("Reclaim") == {"cancelled": 1}
    world.run(400)
    assert world.provider.configured("c") == ["i0"] and len(world.provider.calls) == 1


def test_a_drain_is_kept_rather_than_buying_an_equal_machine() -> None:
    world, operator = bound()
    operator.evict_after = 300
    world.provider.add("s0", S.SPECULATIVE)
    operator.send()
    world.run(15)
    operator.send(cpu("c", 1))
    world.run(15)
    assert world.provider.configured("c") == ["i0"]
    assert not [call for call in world.provider.calls if call.kind == CallKind.CREATE]


def test_a_preemption_is_not_taken_back_by_the_victim() -> None:
    world, operator = bound()
    operator.evict_after = 5
    high = world.operator("high")
    high.send(cpu("high", 1, priority=10**6))
    world.run(3)
    assert world.state_of("i0") == S.DRAINING
    operator.report()
    world.run(30)
    assert world.provider.configured("high") == ["i0"]


def test_a_journalled_drain_goes_on_after_a_crash_with_the_same_instruction() -> None:
    world, operator = bound()
    operator.evict_after = 60
    operator.send()
    world.run(10)
    (before,) = operator.of(ev.ReclaimInstruction)
    operator.frames.clear()
    world.crash()
    operator.connect()
    world.run(1)
    assert [frame.instruction_id for frame in operator.of(ev.ReclaimInstruction)][:1] == [before.instruction_id]
    assert world.state_of("i0") == S.DRAINING
    world.run(90)
    assert world.provider.states() == {S.IDLE: 1}
    assert not [key for table, key in world.journal if table == ev.Table.DRAIN]


def test_a_drain_the_provider_was_at_work_on_is_waited_for_after_a_crash() -> None:
    world, operator = bound(OLD)
    world.provider.work[CallKind.DRAIN] = 60
    operator.send()
    world.run(10)
    world.crash()
    world.run(5)
    assert world.state_of("i0") == S.DRAINING and len(world.core.state.operations) == 1
    world.run(90)
    assert world.provider.states() == {S.IDLE: 1} and world.state_of("i0") == S.IDLE
    assert world.outcomes("Reclaim") == {"success": 1}


def test_a_preemption_of_an_absent_operators_machine_ends_after_its_short_grace() -> None:
    world, operator = bound()
    operator.disconnect()
    world.operator("high").send(cpu("high", 1, priority=10**6))
    world.run(40)
    assert world.provider.configured("high") == ["i0"]


def test_an_operator_that_returns_while_the_provider_drains_is_told_to_keep_the_cordon() -> None:
    world, operator = bound(reclaim_grace=20 * SECOND)
    operator.evict_after = 15
    world.provider.work[CallKind.DRAIN] = 60
    operator.send()
    world.run(3)
    operator.disconnect()
    world.run(30)
    assert drains(world)
    operator.frames.clear()
    operator.connect()
    world.run(1)
    assert [frame.nodes for frame in operator.of(ev.ReclaimInstruction)] == [("i0",)]
    world.run(90)
    assert world.provider.states() == {S.IDLE: 1}


def test_another_clusters_drain_report_counts_for_nothing() -> None:
    world, operator = bound()
    operator.evict_after = 300
    operator.send()
    world.run(5)
    (frame,) = operator.of(ev.ReclaimInstruction)
    stranger = world.operator("d")
    world.post(ev.DrainReported(stranger.session, frame.instruction_id, "i0", "drained"))
    world.post(ev.DrainReported(operator.session, "0000000000000000", "i0", "drained"))
    world.run(5)
    assert not drains(world) and world.state_of("i0") == S.DRAINING


def test_a_preemption_without_a_base_operator_is_silent() -> None:
    world, operator = bound(OLD)
    operator.disconnect()
    world.operator("high").send(cpu("high", 1, priority=10**6))
    world.run(30)
    assert world.provider.configured("high") == ["i0"]
    assert not world.messages(FALLBACK)


def test_a_machine_whose_host_will_be_taken_away_is_drained_before_and_replaced() -> None:
    world = World()
    world.provider.several(2, "i")
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(10)
    assert world.provider.configured("c") == ["i0"]
    taken_at = world.now + 300 * SECOND
    world.provider.units["i0"].interruption_at = taken_at
    world.run(170)
    assert world.state_of("i0") == S.CONFIGURED, "not before the last two minutes"
    world.run(40)
    assert world.provider.configured("c") == ["i1"]
    assert [audit.reason for audit in world.audits if audit.kind == "Preempt"] == ["provider.interruption"]
    [drain] = [call for call in world.provider.calls if call.kind == CallKind.DRAIN]
    assert 0 < drain.grace_seconds <= 120
    assert world.state_of("i0") == S.IDLE


@pytest.mark.parametrize("capacity", [3, 4])
def test_a_machine_that_was_drained_on_notice_is_given_back_at_once(capacity: int) -> None:
    """Nobody may take it for the rest of the notice, so nobody pays for it, however long idle machines are held."""
    world = World(test_config(idle_hold_on_demand=600 * SECOND, idle_hold_spot=600 * SECOND))
    world.provider.several(2, "s", S.SPECULATIVE, capacity=capacity)
    world.operator("c").send(cpu("c", 1))
    world.run(10)
    [taken] = world.provider.configured("c")
    world.provider.units[taken].interruption_at = world.now + 100 * SECOND
    world.run(20)
    assert world.provider.units[taken].state == S.SPECULATIVE
    assert len(world.provider.configured("c")) == 1
    world.run(60)
    assert world.provider.counts[CallKind.CREATE, taken] == 1, "and not bought again before the notice is over"


def test_an_idle_machine_with_a_notice_is_given_back_unless_the_provider_cannot() -> None:
    world = World(test_config(idle_hold_on_demand=600 * SECOND))
    world.provider.add("i0").interruption_at = world.now + 100 * SECOND
    world.run(15)
    assert world.provider.units["i0"].state == S.SPECULATIVE
    fixed = World(test_config(idle_hold_on_demand=600 * SECOND))
    fixed.provider.can_delete = False
    fixed.provider.add("i0").interruption_at = fixed.now + 100 * SECOND
    fixed.run(60)
    assert fixed.provider.units["i0"].state == S.IDLE
    assert len(fixed.provider.calls) == 1
