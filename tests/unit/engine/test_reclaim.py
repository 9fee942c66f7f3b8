"""Giving back: excess of clusters that reported, in which order, and idle machines whose hold is over."""

from __future__ import annotations

from typing import Any

from bigfleet.engine.batches import Conditions, Stamp
from bigfleet.engine.policy import IdleHold, Policy
from bigfleet.engine.results import ActionKind, Reason
from tests.oracle.implementations import BOTH
from tests.strategies.asking import decide, deletes, of_kind, reclaims
from tests.strategies.builders import (
    A3,
    BARE_METAL,
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DRAINING,
    FAILED,
    ON_DEMAND,
    RESERVED,
    SECOND,
    SPOT,
    START,
    batch,
    bound,
    demand,
    idle,
    machine,
    need,
    several,
)

pytestmark = BOTH
MINUTE = 60 * SECOND


def test_all_excess_when_no_needs(make: Any) -> None:
    result = decide(make, [several(5, bound, "b", "c")], empty=["c"])
    actions = of_kind(result, ActionKind.RECLAIM)
    assert [a.machine for a in actions] == ["b0", "b1", "b2", "b3", "b4"]
    assert {(a.grace_seconds, a.preemptor_priority, a.cluster, a.reason, a.need) for a in actions} == {
        (600, 0, "c", Reason.EXCESS, None)
    }


def test_no_op_when_exactly_met(make: Any) -> None:
    assert not decide(make, [several(5, bound, "b", "c")], need("c", 5)).actions


def test_reclaims_cheapest_first(make: Any) -> None:
    """Despite its name: the cheap ones are kept, so what is given back costs $6."""
    lines = [*several(3, bound, "dear", "c", price=6), *several(2, bound, "free", "c", price=0)]
    assert reclaims(decide(make, lines, need("c", 3))) == ["dear1", "dear2"]


def test_tiebreak_by_reclamation_penalty(make: Any) -> None:
    lines = [bound("a", "c", stamp=Stamp(0, 0.0, 1.0)), bound("b", "c", stamp=Stamp(0, 0.0, 1024.0))]
    assert reclaims(decide(make, lines, need("c"))) == ["a"]


def test_excess_is_emitted_by_price_then_lower_reclamation_penalty_then_id(make: Any) -> None:
    lines = [
        bound("a", "c", price=2),
        bound("b", "c", price=1, stamp=Stamp(0, 0.0, 64.0)),
        bound("d", "c", price=1, stamp=Stamp(0, 0.0, 1.0)),
        bound("e", "c", price=1, stamp=Stamp(0, 0.0, 1.0)),
    ]
    assert reclaims(decide(make, lines, empty=["c"])) == ["d", "e", "b", "a"]


def test_keeps_by_match_profile_not_fingerprint(make: Any) -> None:
    stale = several(2, bound, "b", "c", stamp=Stamp(7, 1.0, 1.0, "an older fingerprint", ""))
    assert not decide(make, stale, need("c", 2)).actions
    assert reclaims(decide(make, stale, need("c", 2, types=["other"]))) == ["b0", "b1"]


def test_per_profile_matching(make: Any) -> None:
    assert len(reclaims(decide(make, [several(4, bound, "b", "c")], need("c", 1, types=[A3])))) == 3


def test_conservation(make: Any) -> None:
    for wanted in range(8):
        result = decide(make, [several(6, bound, "b", "c")], need("c", wanted))
        assert sum(v.claimed for v in result.verdicts) + len(reclaims(result)) == 6


def test_dense_machine_one_covers_many_pods_of_demand(make: Any) -> None:
    lines = several(2, bound, "b", "c", cpu=64, mem=256)
    assert reclaims(decide(make, lines, need("c", 50, cpu=1, mem=4))) == ["b1"]


def test_gate_skips_reclaim_when_cluster_not_ready(make: Any) -> None:
    assert not decide(make, [[bound(f"b{n}", "c") for n in range(100)]]).actions


def test_gate_allows_reclaim_after_empty_rollup(make: Any) -> None:
    assert len(reclaims(decide(make, [[bound(f"b{n}", "c") for n in range(50)]], empty=["c"]))) == 50


def test_gate_is_per_cluster(make: Any) -> None:
    lines = [*several(10, bound, "a", "told"), *several(10, bound, "b", "silent")]
    result = decide(make, lines, empty=["told"])
    assert len(reclaims(result, "told")) == 10
    assert len(reclaims(result)) == 10


def test_only_configured_machines_are_reclaimed(make: Any) -> None:
    lines = [machine(f"m{state}", state, "c") for state in (CONFIGURING, CREATING, DRAINING, FAILED)]
    assert not decide(make, lines, empty=["c"]).actions


def test_reclaim_can_be_closed_by_conditions(make: Any) -> None:
    closed = Conditions(reclaim=False, release=False)
    assert not decide(make, [bound("b", "c")], empty=["c"], conditions=closed).actions


# Release


def test_hold_expires_per_capacity_type(make: Any) -> None:
    lines = [
        idle("metal", capacity=BARE_METAL),
        idle("reserved", capacity=RESERVED),
        idle("unspecified", capacity=0),
        idle("demand", capacity=ON_DEMAND),
        idle("spot", capacity=SPOT),
    ]
    engine, policy = make(), Policy()
    assert not engine.step(batch(*lines), None, policy, START).actions
    assert deletes(engine.step(None, None, policy, START + 2 * MINUTE)) == ["spot"]
    result = engine.step(None, None, policy, START + 11 * MINUTE)
    assert deletes(result) == ["demand", "spot"]
    assert {(a.cluster, a.grace_seconds, a.reason, a.need) for a in result.actions} == {("", 0, Reason.RELEASE, None)}
    assert deletes(engine.step(None, None, policy, START + 60_000 * MINUTE)) == ["demand", "spot"]


def test_idle_since_starts_again_after_leaving_idle(make: Any) -> None:
    engine, policy = make(), Policy()
    line = idle("i", capacity=SPOT)
    engine.step(batch(line), None, policy, START)
    engine.step(batch(line.to(CONFIGURED, "c")), None, policy, START + 50 * SECOND)
    engine.step(batch(line), None, policy, START + 60 * SECOND)
    assert not deletes(engine.step(batch(line), None, policy, START + 110 * SECOND))
    assert deletes(engine.step(None, None, policy, START + 120 * SECOND)) == ["i"]


def test_claimed_idle_never_released(make: Any) -> None:
    engine, policy = make(), Policy()
    engine.step(batch(idle("i", capacity=SPOT)), demand(need("c")), policy, START)
    result = engine.step(None, None, policy, START + 100 * MINUTE)
    assert not deletes(result)
    assert len(result.actions) == 1


def test_zero_policy_releases_nothing(make: Any) -> None:
    engine, policy = make(), Policy(idle_hold=IdleHold(0, 0))
    engine.step(batch(idle("i", capacity=SPOT), idle("j", capacity=ON_DEMAND)), None, policy, START)
    assert not engine.step(None, None, policy, START + 100 * MINUTE).actions


def test_holds_are_configurable_per_provider(make: Any) -> None:
    engine = make()
    policy = Policy(idle_hold_by_provider={"slow": IdleHold(on_demand_ns=60 * MINUTE, spot_ns=0)})
    lines = [idle("i", capacity=ON_DEMAND, provider="slow"), idle("j", capacity=ON_DEMAND)]
    engine.step(batch(*lines, idle("k", capacity=SPOT, provider="slow")), None, policy, START)
    assert deletes(engine.step(None, None, policy, START + 10 * MINUTE)) == ["j"]
    assert deletes(engine.step(None, None, policy, START + 60 * MINUTE)) == ["i", "j"]


def test_coexists_with_reclaim(make: Any) -> None:
    engine, policy = make(), Policy()
    lines = [*several(3, bound, "b", "c"), idle("i", capacity=SPOT)]
    engine.step(batch(*lines), demand(need("c", 3)), policy, START)
    result = engine.step(None, demand(need("c", 1)), policy, START + 2 * MINUTE)
    assert [a.kind.name for a in result.actions] == ["RECLAIM", "RECLAIM", "DELETE"]
