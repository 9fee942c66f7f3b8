"""Rails: kill switch and dry run at run time, reclaim cap, quarantine, the action limit, and what each one tells."""

from __future__ import annotations

import random

import pytest

from bigfleet.engine.policy import Policy
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.builders import SECOND
from tests.strategies.shard_world import S, World, cpu, test_config

SUPPRESSED = "bigfleet_shard_actions_suppressed_total"
DRYRUN = "bigfleet_shard_actions_dryrun_total"
CAPPED = "bigfleet_shard_reclaims_capped_total"


@pytest.mark.parametrize(
    ("fraction", "configured", "allowed"),
    [
        (0.05, 0, 1),
        (0.05, 1, 1),
        (0.05, 19, 1),
        (0.05, 21, 1),
        (0.05, 40, 2),
        (0.05, 100, 5),
        (0.25, 40, 10),
        (0.5, 7, 3),
    ],
)
def test_cap_arithmetic(fraction: float, configured: int, allowed: int) -> None:
    assert Policy(reclaim_cap_fraction=fraction).reclaim_cap(configured) == allowed


def test_paused_still_decides_and_reports_but_changes_nothing() -> None:
    world = World(test_config(actuation_paused=True))
    world.provider.several(2, "i")
    world.operator("c").send(cpu("c", 3))
    world.run(40)
    assert not world.provider.calls and world.state_of("i0") == S.IDLE
    assert world.count(SUPPRESSED, "Bootstrap") >= 2
    assert world.count(DRYRUN, "Bootstrap") == 0
    assert set(world.outcomes()) == {"suppressed"}
    assert world.core.published.paused and world.core.published.shortfalls
    assert world.messages("actuation paused")


def test_dry_run_tells_every_action_and_changes_nothing() -> None:
    world = World(test_config(dry_run=True))
    world.provider.several(2, "i")
    world.operator("c").send(cpu("c", 2))
    world.run(40)
    assert not world.provider.calls
    assert world.count(DRYRUN, "Bootstrap") >= 2 and world.count(SUPPRESSED, "Bootstrap") == 0
    assert set(world.outcomes()) == {"dryrun"} and not world.core.published.paused
    attrs = dict(world.messages("dry-run: would execute action")[0].attrs)
    assert (attrs["kind"], attrs["cluster"], attrs["reason"]) == ("Bootstrap", "c", "phase1.idle")


def test_an_executed_action_is_audited_with_everything_about_it() -> None:
    world = World()
    world.provider.add("i0")
    world.operator("c").send(cpu("c", 1))
    world.run(15)
    (audit,) = world.audits
    beat = "beat nothing else that fits"
    assert audit == ev.Audit(audit.cycle, "Bootstrap", "i0", "c", "phase1.idle", 0, "success", beat)
    assert audit.cycle > 0
    (taken,) = world.core.published.actions
    assert taken.outcome == "success" and taken.fingerprint.startswith("p=1000|")


def test_pausing_calls_off_what_no_provider_has_heard_of_and_unpausing_goes_on() -> None:
    world = World(test_config(execute_concurrency=1))
    world.provider.several(4, "s", S.SPECULATIVE)
    world.provider.latency = 4.0
    world.operator("c").send(cpu("c", 4))
    world.run(3)
    assert len(world.provider.calls) == 1
    world.post(ev.RailsSet(paused=True, who="admin"))
    world.run(60)
    assert len(world.provider.calls) == 1
    assert world.provider.states() == {S.IDLE: 1, S.SPECULATIVE: 3}
    assert [world.state_of(f"s{index}") for index in range(4)] == [S.IDLE] + [S.SPECULATIVE] * 3
    world.post(ev.RailsSet(paused=False, who="admin"))
    world.run(120)
    assert len(world.provider.configured("c")) == 4
    assert set(world.provider.counts.values()) == {1}


def test_pausing_takes_back_drains_that_can_be_taken_back() -> None:
    world = World()
    world.provider.add("i0")
    operator = world.operator("c")
    operator.evict_after = 100
    operator.send(cpu("c", 1))
    world.run(15)
    operator.send()
    world.run(10)
    assert world.state_of("i0") == S.DRAINING
    world.post(ev.RailsSet(paused=True))
    world.run(1)
    assert world.state_of("i0") == S.CONFIGURED and operator.of(ev.ReclaimCancel)


def test_a_draining_fleet_stays_within_the_cap_and_ends_idle() -> None:
    world = World(test_config(reclaim_cap_fraction=0.25))
    world.provider.several(40, "i")
    operator = world.operator("c")
    operator.send(cpu("c", 40))
    world.run(30)
    assert len(world.provider.configured("c")) == 40
    operator.send()
    per_step = []
    drained = 0
    for _ in range(60):
        world.run(10)
        now = sum(call.kind == CallKind.DRAIN for call in world.provider.calls)
        per_step.append(now - drained)
        drained = now
    assert max(per_step) <= 20 and drained == 40 and world.provider.states() == {S.IDLE: 40}
    assert world.count(CAPPED) > 0
    (begun,), (over,) = world.messages("cap engaged"), world.messages("cap no longer engaged")
    assert dict(begun.attrs) == {"deferred_reclaims": 30, "cap_fraction": 0.25}
    assert dict(over.attrs)["deferred_reclaims"] == 30 and dict(over.attrs)["cycles"] > 2


def test_swinging_demand_never_reclaims_faster_than_the_cap() -> None:
    world = World(test_config(reclaim_cap_fraction=0.1))
    world.provider.several(30, "i")
    operator = world.operator("c")
    dice = random.Random(5)
    allowed = 0.0
    for _ in range(50):
        operator.send(cpu("c", dice.randint(1, 30)))
        configured = len(world.provider.configured("c"))
        allowed += max(1, configured // 10)
        world.run(10)
    drains = sum(call.kind == CallKind.DRAIN for call in world.provider.calls)
    assert drains <= allowed + 3


def test_quarantine_holds_twice_and_applies_the_third_report() -> None:
    world = World(test_config(empty_rollup_guard=True))
    world.provider.several(20, "i")
    operator = world.operator("c")
    lines = [cpu("c", 1, priority=index) for index in range(20)]
    operator.send(*lines)
    world.run(30)
    operator.send()
    world.run(16)
    assert world.core.published.quarantined == {"c": 1}
    operator.report(unchanged=True)
    world.run(16)
    assert world.core.published.quarantined == {"c": 2}
    assert len(world.provider.configured("c")) == 20
    operator.report(unchanged=True)
    world.run(60)
    assert world.core.published.quarantined == {}
    assert world.provider.states() == {S.IDLE: 20}
    assert world.messages("rollup quarantined") and world.messages("quarantined rollup accepted")


def test_a_recovering_rollup_applies_at_once_and_ends_the_quarantine() -> None:
    world = World(test_config(empty_rollup_guard=True))
    world.provider.several(20, "i")
    operator = world.operator("c")
    lines = [cpu("c", 1, priority=index) for index in range(20)]
    operator.send(*lines)
    world.run(30)
    operator.send()
    world.run(5)
    operator.send(*lines[:19])
    world.run(5)
    assert world.core.published.quarantined == {}
    assert not world.messages("quarantined rollup accepted")


def test_the_action_limit_defers_and_follows_up_soon() -> None:
    world = World(test_config(max_actions_per_cycle=3))
    world.provider.several(12, "i")
    world.operator("c").send(cpu("c", 12))
    world.run(20)
    assert len(world.provider.configured("c")) == 12
    assert world.count("bigfleet_shard_actions_deferred_total") > 0


def test_an_escalated_shortfall_is_reported_at_once_and_once() -> None:
    world = World()
    world.operator("c").send(cpu("c", 1))
    world.run(50)
    assert world.reports == 0
    world.run(100)
    assert world.reports == 1


def test_the_reclaim_hold_waits_before_draining() -> None:
    world = World(test_config(reclaim_hold=120 * SECOND))
    world.provider.add("i0")
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    operator.send()
    world.run(100)
    assert world.state_of("i0") == S.CONFIGURED
    world.run(60)
    assert world.state_of("i0") == S.IDLE


def test_the_coordinators_switch_and_the_admins_are_two_and_the_stricter_holds() -> None:
    world = World()
    world.post(ev.RailsSet(paused=True, who="bigfleet://admin/eve", reason="incident 4711"))
    world.post(
        ev.RailsSet(paused=False, dry_run=True, who="bigfleet://admin/joe", reason="audit", from_coordinator=True)
    )
    assert world.core.published.paused and world.core.published.dry_run
    world.post(ev.RailsSet(paused=False, dry_run=False, who="joe", from_coordinator=True))
    assert world.core.published.paused and not world.core.published.dry_run
    assert world.core.rails.in_force.who == "bigfleet://admin/eve"
    world.post(ev.RailsSet(paused=False, dry_run=False, who="bigfleet://admin/eve"))
    assert not world.core.published.paused


def test_who_paused_why_and_when_survive_a_restart() -> None:
    world = World()
    world.post(ev.RailsSet(paused=True, who="bigfleet://admin/eve", reason="incident 4711"))
    world.post(ev.RailsSet(paused=True, who="joe", reason="freeze", from_coordinator=True))
    at = world.now
    world.run(100)
    world.crash()
    held = world.core.rails.in_force
    assert (held.paused, held.who, held.reason, held.at) == (True, "bigfleet://admin/eve", "incident 4711", at)
    world.post(ev.RailsSet(paused=False, who="bigfleet://admin/eve"))
    held = world.core.rails.in_force
    assert (held.paused, held.who, held.reason, held.at) == (True, "joe", "freeze", at)
