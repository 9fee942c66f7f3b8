"""Restarts: what was under way is picked up from the journal, nothing is bought twice, rails and baselines survive."""

from __future__ import annotations

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.builders import SECOND
from tests.strategies.shard_world import Operator, S, World, cpu, test_config

CREATE, CONFIGURE = CallKind.CREATE, CallKind.CONFIGURE


def back(world: World, operator: Operator) -> None:
    operator.connect()
    operator.report()


def test_a_purchase_under_way_is_not_made_twice() -> None:
    world = World()
    world.provider.several(6, "s", S.SPECULATIVE)
    world.provider.work[CREATE] = 60
    operator = world.operator("c")
    operator.send(cpu("c", 2))
    world.run(20)
    world.crash()
    back(world, operator)
    world.run(200)
    assert sum(count for (kind, _), count in world.provider.counts.items() if kind == CREATE) == 2
    assert world.provider.configured("c") == ["s0", "s1"]


def test_a_purchase_the_provider_never_heard_of_is_made_under_the_same_intent() -> None:
    world = World()
    world.provider.several(6, "s", S.SPECULATIVE)
    operator = world.operator("c")
    operator.send(cpu("c", 2))
    world.provider.call = lambda call: None  # type: ignore[method-assign]
    world.run(5)
    del world.provider.call
    world.crash()
    world.run(5)
    assert {call.machine for call in world.provider.calls if call.kind == CREATE} == {"s0", "s1"}
    back(world, operator)
    world.run(60)
    assert world.provider.configured("c") == ["s0", "s1"]


@pytest.mark.parametrize("keep_journal", [True, False])
@pytest.mark.parametrize("moment", [0.5, 1.06, 1.2, 2.0, 8.0, 33.0, 70.0])
def test_a_crash_at_any_moment_ends_with_demand_met_exactly(keep_journal: bool, moment: float) -> None:
    world = World()
    world.provider.several(6, "s", S.SPECULATIVE)
    world.provider.add("i0")
    world.provider.work[CREATE] = 30
    world.provider.work[CONFIGURE] = 30
    operator = world.operator("c")
    operator.send(cpu("c", 3))
    world.run(moment)
    if not keep_journal:
        world.journal.clear()
    world.crash()
    back(world, operator)
    world.run(400)
    assert len(world.provider.configured("c")) == 3
    if keep_journal:
        assert set(world.provider.counts.values()) == {1}
        assert sum(1 for kind, _ in world.provider.counts if kind == CREATE) == 2


def test_a_purchase_under_way_that_nobody_remembers_is_taken_over_and_not_made_again() -> None:
    world = World()
    world.provider.several(9, "s", S.SPECULATIVE)
    world.provider.several(3, "t", S.SPECULATIVE, type="small", size={"cpu": 500})
    world.provider.work[CREATE] = 60
    operator = world.operator("c")
    operator.send(cpu("c", 3))
    world.run(20)
    world.journal.clear()
    world.crash()
    back(world, operator)
    world.run(300)
    assert sum(count for (kind, _), count in world.provider.counts.items() if kind == CREATE) == 3
    assert world.provider.configured("c") == ["s0", "s1", "s2"]


def test_no_reclaim_before_the_first_rollup_of_a_new_process() -> None:
    world = World()
    world.provider.several(3, "i")
    operator = world.operator("c")
    operator.send(cpu("c", 3))
    world.run(15)
    world.crash()
    world.run(120)
    assert len(world.provider.configured("c")) == 3
    operator.connect()
    operator.send(cpu("c", 2))
    world.run(60)
    assert len(world.provider.configured("c")) == 2


def test_what_was_bought_is_kept_for_a_cluster_that_comes_back_late_after_a_restart() -> None:
    world = World(test_config(idle_hold_on_demand=60 * SECOND))
    world.provider.several(3, "s", S.SPECULATIVE)
    world.provider.work[CREATE] = 10
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(5)
    world.crash()
    world.run(150)
    back(world, operator)
    world.run(60)
    assert len(world.provider.configured("c")) == 1
    assert sum(count for (kind, _), count in world.provider.counts.items() if kind == CREATE) == 1


def test_a_cluster_that_never_comes_back_does_not_keep_idle_machines_for_ever() -> None:
    world = World(test_config(idle_hold_on_demand=60 * SECOND, return_window=300 * SECOND))
    world.provider.several(3, "s", S.SPECULATIVE)
    world.provider.work[CREATE] = 10
    world.operator("c").send(cpu("c", 1))
    world.run(5)
    world.crash()
    world.run(290)
    assert world.provider.states() == {S.SPECULATIVE: 2, S.IDLE: 1}
    world.run(30)
    assert world.provider.states() == {S.SPECULATIVE: 3}


def test_the_epoch_of_a_new_process_outranks_the_calls_of_the_old_one() -> None:
    world = World()
    world.provider.several(1, "i")
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    world.crash()
    operator.connect()
    operator.send()
    world.run(60)
    epochs = [call.fence.epoch for call in world.provider.calls]
    assert epochs == [1, 2] and world.provider.states() == {S.IDLE: 1}


def test_rails_survive_a_restart() -> None:
    world = World()
    world.provider.several(1, "i")
    world.post(ev.RailsSet(paused=True, who="admin"))
    world.crash()
    assert world.core.published.paused and not world.core.published.dry_run
    world.operator("c").send(cpu("c", 1))
    world.run(30)
    assert not world.provider.calls
    world.post(ev.RailsSet(paused=False, dry_run=False, who="admin"))
    world.crash()
    world.run(1)
    assert not world.core.published.paused


def test_the_first_rollup_after_a_restart_is_checked_against_the_journalled_baseline() -> None:
    world = World(test_config(empty_rollup_guard=True))
    world.provider.several(12, "i")
    operator = world.operator("c")
    operator.send(*(cpu("c", 1, priority=index) for index in range(12)))
    world.run(30)
    assert len(world.provider.configured("c")) == 12
    world.crash()
    operator.connect()
    operator.send()
    world.run(8)
    assert operator.of(ev.Acknowledgement)[-1].outcome == "held"
    assert world.core.published.quarantined == {"c": 1}
    assert world.messages("rollup quarantined")
    for _ in range(2):
        operator.report(unchanged=True)
        world.run(12)
    assert len(world.provider.configured("c")) == 12
    operator.report(unchanged=True)
    world.run(10)
    assert operator.of(ev.Acknowledgement)[-1].outcome == "applied"
    assert world.messages("quarantined rollup accepted")
    world.run(120)
    assert world.provider.states() == {S.IDLE: 12}


def test_a_normal_first_rollup_after_a_restart_applies_at_once() -> None:
    world = World(test_config(empty_rollup_guard=True))
    world.provider.several(12, "i")
    operator = world.operator("c")
    lines = [cpu("c", 1, priority=index) for index in range(12)]
    operator.send(*lines)
    world.run(30)
    world.crash()
    operator.connect()
    operator.send(*lines[:6])
    world.run(3)
    assert operator.of(ev.Acknowledgement)[-1].outcome == "applied"
    assert world.core.published.quarantined == {}


def test_unreadable_journal_rows_are_dropped_and_do_no_harm() -> None:
    world = World()
    world.provider.several(2, "s", S.SPECULATIVE)
    for table in ev.Table:
        world.journal[table, "p/s0"] = "not json"
    world.journal[ev.Table.RAILS, "switches"] = "[]"
    world.journal[ev.Table.INTENT, "p/gone"] = (
        '{"kind": 2, "cluster": "c", "fingerprint": "f", "group": "", "deadline": 0, "reason": "", "cycle": 1}'
    )
    world.crash()
    world.run(5)
    world.operator("c").send(cpu("c", 1))
    world.run(20)
    assert len(world.provider.configured("c")) == 1
    assert not [key for table, key in world.journal if table in (ev.Table.INTENT, ev.Table.DRAIN)]


def test_a_clock_that_jumps_back_stops_nothing() -> None:
    world = World()
    world.provider.several(2, "i")
    world.run(20)
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.core.handle(ev.TimerDue(), world.now - 3600 * SECOND)
    world.run(30)
    assert len(world.provider.configured("c")) == 1
