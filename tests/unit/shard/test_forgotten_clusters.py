"""A cluster that was deleted for good: a person says so and its machines go, whatever happens meanwhile."""

from __future__ import annotations

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import S, World, cpu, test_config

WORD = ev.ClusterForgotten("gone", "bigfleet://admin/eve", "ticket 4711")
BEGUN, OVER = "cluster forgotten on request", "forgotten cluster has no machines left"


def deserted(machines: int = 4, **settings: object) -> World:
    """A cluster with machines and a shortfall whose operator was stopped, beside one that stays."""
    world = World(test_config(reclaim_cap_fraction=0.05, **settings))
    world.provider.several(machines + 1, "i")
    world.operator("stays").send(cpu("stays", 1, priority=9000))
    world.run(15)
    world.operator("gone").send(cpu("gone", machines), cpu("gone", 2, priority=7))
    world.run(30)
    assert len(world.provider.configured("gone")) == machines and world.core.published.shortfalls
    world.operators["gone"].disconnect()
    world.run(3600)
    assert len(world.provider.configured("gone")) == machines, "a cluster that is away keeps what it has"
    return world


def nothing_heard_from_the_first_process(world: World) -> None:
    away = (ev.Failure.UNREACHED, "nobody there")
    world.provider.refuse = lambda call: away if call.fence.epoch == 1 else None


@pytest.mark.parametrize("oracle", [True, False])
def test_its_machines_go_at_once_and_nothing_of_it_is_left(oracle: bool) -> None:
    world = deserted()
    if not oracle:
        # The same with the engine, which starts anew with the process.
        world.oracle = False
        world.crash()
        world.run(15)
    assert world.core.read.forgetting.bound("gone") == (4, 4.0)
    world.post(WORD)
    world.run(2)
    assert world.provider.configured("gone") == [], "the cap on reclaims would have let one go"
    world.run(30)
    assert len(world.provider.configured("stays")) == 1
    assert not world.core.published.shortfalls and "gone" not in world.core.read.known_clusters()
    assert not [key for table, key in world.journal if key == "gone" or table == ev.Table.DRAIN]
    assert world.core.read.forgetting.bound("gone") == (0, 0.0) and world.messages(OVER)


def test_who_let_go_of_what_is_told_in_log_audit_and_stories() -> None:
    world = deserted(machines=2)
    world.post(WORD)
    world.run(30)
    (line,) = world.messages(BEGUN)
    assert dict(line.attrs) == {
        "cluster": "gone",
        "who": "bigfleet://admin/eve",
        "reason": "ticket 4711",
        "machines": 2,
        "dollars_per_hour": 2.0,
    }
    act, *drains = [audit for audit in world.audits if audit.reason == "admin.forgotten"]
    assert (act.kind, act.cluster, act.outcome) == ("Forget", "gone", "success")
    assert act.detail == "forgotten by bigfleet://admin/eve: ticket 4711; 2 machines, $2.000/h"
    assert [(audit.kind, audit.outcome, audit.detail) for audit in drains] == [
        ("Reclaim", "success", "forgotten by bigfleet://admin/eve: ticket 4711")
    ] * 2
    told = [line.text for line in world.core.read.story(drains[0].machine)]
    assert "its cluster gone was forgotten by bigfleet://admin/eve: ticket 4711" in told


def test_a_cluster_that_is_connected_is_not_forgotten() -> None:
    world = World()
    world.provider.several(2, "i")
    world.operator("gone").send(cpu("gone", 2))
    world.run(30)
    world.post(WORD)
    world.run(60)
    assert len(world.provider.configured("gone")) == 2 and not world.messages(BEGUN)
    assert "gone" not in world.core.read.forgetting


def test_a_restart_in_the_middle_goes_on() -> None:
    world = deserted(machines=6, execute_concurrency=1)
    world.provider.latency = 5.0
    world.post(WORD)
    world.run(8)
    assert 0 < len(world.provider.configured("gone")) < 6
    world.crash()
    world.provider.latency = 0.05
    world.run(60)
    assert world.provider.configured("gone") == [] and world.messages(OVER)
    drained = [call.machine for call in world.provider.calls if call.kind == CallKind.DRAIN]
    assert all(world.provider.counts[CallKind.DRAIN, machine] == 1 for machine in drained)
    assert (ev.Table.FORGET, "gone") not in world.journal


def test_a_restart_before_anything_was_asked_goes_on() -> None:
    world = deserted(machines=3)
    nothing_heard_from_the_first_process(world)
    world.post(WORD)
    world.crash()
    world.run(120)
    assert world.provider.configured("gone") == []


@pytest.mark.parametrize("switch", [ev.RailsSet(paused=True), ev.RailsSet(dry_run=True)])
def test_rails_hold_it_and_it_goes_on_when_they_are_off(switch: ev.RailsSet) -> None:
    world = deserted()
    world.post(switch)
    world.post(WORD)
    world.run(120)
    assert len(world.provider.configured("gone")) == 4 and not world.core.published.shortfalls
    world.post(ev.RailsSet(paused=False, dry_run=False, who="eve"))
    world.run(30)
    assert world.provider.configured("gone") == []


def test_pausing_in_the_middle_keeps_the_rest_until_it_is_over() -> None:
    world = deserted(machines=6, execute_concurrency=1)
    world.provider.latency = 5.0
    world.post(WORD)
    world.run(1)
    world.post(ev.RailsSet(paused=True, who="eve"))
    world.run(60)
    assert len(world.provider.configured("gone")) == 5
    world.post(ev.RailsSet(paused=False, who="eve"))
    world.run(60)
    assert world.provider.configured("gone") == []


def test_one_that_connects_in_the_middle_keeps_what_no_provider_was_asked_for() -> None:
    world = deserted(machines=6, execute_concurrency=1)
    world.provider.latency = 5.0
    world.post(WORD)
    world.run(1)
    operator = world.operators["gone"]
    operator.connect()
    operator.send(cpu("gone", 6))
    world.provider.latency = 0.05
    world.run(60)
    assert len(world.provider.configured("gone")) == 6
    assert sum(call.kind == CallKind.DRAIN for call in world.provider.calls) == 1
    assert world.messages("a cluster that was forgotten came back") and (ev.Table.FORGET, "gone") not in world.journal


def test_one_that_connects_before_the_machines_are_listed_again_keeps_them() -> None:
    world = deserted(machines=3)
    nothing_heard_from_the_first_process(world)
    world.post(WORD)
    world.crash()
    operator = world.operators["gone"]
    operator.connect()
    operator.send(cpu("gone", 3))
    world.run(60)
    assert len(world.provider.configured("gone")) == 3
    assert not world.provider.counts.keys() & {(CallKind.DRAIN, f"i{index}") for index in range(4)}
    assert not operator.of(ev.ReclaimInstruction)


def test_one_that_connects_afterwards_is_served_as_a_new_one() -> None:
    world = deserted(empty_rollup_guard=True)
    world.post(WORD)
    world.run(60)
    operator = world.operators["gone"]
    operator.connect()
    operator.send(cpu("gone", 2))
    world.run(30)
    assert operator.of(ev.Acknowledgement)[-1].outcome == "applied"
    assert len(world.provider.configured("gone")) == 2


def test_what_is_still_being_bound_to_it_goes_too() -> None:
    world = World()
    world.provider.several(2, "i")
    world.provider.work[CallKind.CONFIGURE] = 60
    operator = world.operator("gone")
    operator.send(cpu("gone", 1))
    world.run(15)
    operator.silent = True
    operator.send(cpu("gone", 2))
    world.run(5)
    assert world.core.published.operations == 2
    operator.disconnect()
    world.post(WORD)
    world.run(2)
    assert world.core.published.operations == 1, "what no provider heard of is called off"
    world.run(180)
    assert world.provider.states() == {S.IDLE: 2} and world.messages(OVER)


def test_a_machine_that_its_provider_calls_failed_goes_once_it_has_recovered() -> None:
    world = deserted(machines=2)
    broken, _ = world.provider.configured("gone")
    world.provider.breaks(broken)
    world.run(60)
    world.post(WORD)
    world.run(60)
    assert world.provider.configured("gone") == [] and "gone" in world.core.read.forgetting
    world.provider.units[broken].state, world.provider.units[broken].error = S.CONFIGURED, ""
    world.run(900)
    assert world.provider.configured("gone") == [] and world.messages(OVER)


def test_a_roll_up_in_a_step_that_runs_does_not_bring_its_demand_back() -> None:
    world = World()
    world.step_seconds = 5.0
    operator = world.operator("gone")
    operator.send(cpu("gone", 2))
    world.run(3)
    operator.disconnect()
    world.post(WORD)
    world.run(60)
    assert "gone" not in world.core.demand.clusters and not world.core.published.shortfalls


def test_a_row_that_cannot_be_read_lets_go_of_nothing() -> None:
    world = deserted(machines=2)
    world.journal[ev.Table.FORGET, "gone"] = '{"who": 1}'
    world.crash()
    world.run(120)
    assert len(world.provider.configured("gone")) == 2
