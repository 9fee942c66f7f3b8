"""Preemption: who may take from whom, who goes first, how long a victim has, what draining supply already answers."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.batches import Conditions, DemandBatch, Stamp
from bigfleet.engine.policy import Policy, VictimWeights
from bigfleet.engine.results import ActionKind, Reason, UnmetReason
from tests.oracle.implementations import BOTH
from tests.strategies.asking import bootstraps, decide, of_kind, preempts, reclaims, verdict
from tests.strategies.builders import (
    CONFIGURED,
    DRAINING,
    GPU,
    RACK,
    START,
    ZONE,
    MachineLine,
    amounts,
    batch,
    bound,
    demand,
    idle,
    machine,
    need,
    rollup,
    several,
    slot,
    stamp_of,
)

pytestmark = BOTH


def holders(count: int, priority: int, **facts: Any) -> list[MachineLine]:
    """Machines of a cluster that never reported: judged by their stamps."""
    return several(count, bound, facts.pop("prefix", "v"), "quiet", stamp=Stamp(priority, 1.0, 1.0), **facts)


def test_no_op_when_all_resolved(make: Any) -> None:
    result = decide(make, [holders(4, 100), bound("b", "c")], need("c", priority=1_000_000))
    assert not result.actions


def test_priority_inversion_preempts(make: Any) -> None:
    result = decide(make, [holders(4, 400_000)], need("c", 4, priority=1_000_000))
    actions = of_kind(result, ActionKind.PREEMPT)
    assert [a.machine for a in actions] == ["v0", "v1", "v2", "v3"]
    assert {(a.grace_seconds, a.preemptor_priority, a.cluster, a.reason) for a in actions} == {
        (30, 1_000_000, "quiet", Reason.INVERSION)
    }
    assert all(a.need == result.verdicts[0].key for a in actions)


def test_refuses_to_preempt_equal_or_higher(make: Any) -> None:
    for priority in (1000, 2000):
        result = decide(make, [holders(2, priority)], need("c", priority=1000))
        assert not result.actions
        assert result.verdicts[0].reason == UnmetReason.PRIORITY_STARVED


def test_prefers_lower_interruption_penalty(make: Any) -> None:
    lines = [
        bound("a", "quiet", stamp=Stamp(100, 100_000.0, 1.0)),
        bound("b", "quiet", stamp=Stamp(100, 1.0, 1.0)),
    ]
    assert preempts(decide(make, lines, need("c"))) == ["b"]


def test_grace_period_matches_gap(make: Any) -> None:
    for victim, grace in ((0, 10), (499_999, 30), (899_999, 120), (999_999, 600)):
        result = decide(make, [holders(1, victim)], need("c", priority=1_000_000))
        assert [a.grace_seconds for a in result.actions] == [grace]


def test_multiple_preemptors_resolved_by_priority(make: Any) -> None:
    first, second = need("a", priority=500_000), need("b", priority=1_000_000)
    result = decide(make, [holders(1, 0)], first, second)
    assert of_kind(result, ActionKind.PREEMPT)[0].preemptor_priority == 1_000_000
    assert [s.key.cluster for s in result.shortfalls] == ["a"]


def test_preempted_true_when_fell_short(make: Any) -> None:
    result = decide(make, [holders(2, 0)], need("c", 4))
    assert result.verdicts[0].victims == 2
    assert result.verdicts[0].freed.get(GPU) == 16
    assert result.verdicts[0].reason == UnmetReason.PREEMPTION_EXHAUSTED
    assert result.shortfalls[0].deficit.get(GPU) == 16


def test_preempted_false_when_no_victim(make: Any) -> None:
    result = decide(make, [holders(1, 5000)], need("c", 2))
    assert result.verdicts[0].victims == 0
    assert result.verdicts[0].freed.is_zero


# Scoping


def test_scoping_min_unit_floor(make: Any) -> None:
    lines = [holders(3, 0, prefix="small", cpu=2), holders(1, 0, prefix="large", cpu=8)]
    assert preempts(decide(make, lines, need("c", 2, cpu=4))) == ["large0"]


def test_scoping_same_only_in_its_domain(make: Any) -> None:
    lines = [idle("i", rack="a"), holders(2, 0, prefix="a", rack="a"), holders(2, 0, prefix="b", rack="b")]
    result = decide(make, lines, need("c", 3, same=RACK, group="g"))
    assert bootstraps(result) == ["i"]
    assert preempts(result) == ["a0", "a1"]


def test_scoping_no_domain_takes_one_that_can_be_covered_whole(make: Any) -> None:
    """The reference skips a gang without a domain; here it may take one that victims cover completely, or nothing."""
    lines = [holders(2, 0, prefix="a", rack="a"), holders(3, 0, prefix="b", rack="b")]
    result = decide(make, lines, need("c", 3, same=RACK, group="g"))
    assert preempts(result) == ["b0", "b1", "b2"]
    assert result.verdicts[0].domain is None
    assert not preempts(decide(make, lines, need("c", 4, same=RACK, group="g")))


def test_scoping_parked_never_preempts(make: Any) -> None:
    """A gang that is stuck parks after eight cycles and stops taking machines from others."""
    engine, policy = make(), Policy()
    gang = need("c", 3, same=RACK, group="g")
    engine.step(batch(bound("b", "c", rack="r")), demand(gang), policy, START)
    later = START + 9 * policy.cycle_ns
    result = engine.step(batch(*holders(3, 0, rack="r")), None, policy, later)
    assert result.verdicts[0].parked
    assert not preempts(result)
    assert not reclaims(result)


# Victim score


def test_victim_score_prefers_lower_priority(make: Any) -> None:
    lines = [holders(1, 500, prefix="a"), holders(1, 100, prefix="b")]
    assert preempts(decide(make, lines, need("c"))) == ["b0"]


def test_victim_score_prefers_lower_reclamation_penalty(make: Any) -> None:
    lines = [bound("a", "q", stamp=Stamp(1, 1.0, 64.0)), bound("b", "q", stamp=Stamp(1, 1.0, 2.0))]
    assert preempts(decide(make, lines, need("c"))) == ["b"]


def test_victim_score_zero_denominators_stay_finite(make: Any) -> None:
    lines = [bound("a", "q", stamp=Stamp(1, 0.0, 0.0)), bound("b", "q", stamp=Stamp(1, 0.5, 0.0))]
    assert preempts(decide(make, lines, need("c"))) == ["a"]


def test_victim_score_weights_are_policy(make: Any) -> None:
    lines = [bound("a", "q", stamp=Stamp(10, 1.0, 1.0)), bound("b", "q", stamp=Stamp(5, 1024.0, 1024.0))]
    heavy = Policy(victim=VictimWeights(priority=0.0, interruption=1.0))
    assert preempts(decide(make, lines, need("c"))) == ["b"]
    assert preempts(decide(make, lines, need("c"), policy=heavy)) == ["a"]


# Improvements over the reference


def test_improvement_draining_victims_count_for_their_preemptor(make: Any) -> None:
    """The reference forgets draining victims and picks new ones in every cycle of the drain."""
    lines = [*several(2, machine, "d", DRAINING, "quiet"), *holders(4, 0)]
    wanted = need("c", 2, priority=1_000_000)
    result = decide(make, lines, wanted)
    assert not preempts(result)
    assert not result.shortfalls
    assert result.verdicts[0].reason == UnmetReason.AWAITING_DRAIN
    assert not result.verdicts[0].satisfied


def test_improvement_draining_supply_goes_to_the_higher_need_first(make: Any) -> None:
    lines = [machine("d", DRAINING, "quiet"), *holders(1, 0)]
    high, low = need("a", priority=2000), need("b", priority=1000)
    result = decide(make, lines, low, high)
    assert [a.preemptor_priority for a in of_kind(result, ActionKind.PREEMPT)] == [1000]
    assert verdict(result, high).reason == verdict(result, low).reason == UnmetReason.AWAITING_DRAIN


def test_improvement_gang_preempts_only_if_the_whole_deficit_can_be_met(make: Any) -> None:
    """The reference disturbs two machines for a gang that needs three."""
    lines = [idle("i", rack="r"), holders(1, 0, rack="r")]
    gang = need("c", 3, same=RACK, group="g")
    assert not preempts(decide(make, lines, gang))
    lines.append(bound("more", "quiet", rack="r", stamp=Stamp(0, 1.0, 1.0)))
    assert sorted(preempts(decide(make, lines, gang))) == ["more", "v0"]


def test_improvement_victims_judged_by_the_need_that_claims_them_now(make: Any) -> None:
    """A stale stamp of priority 0 on a machine that serves a need of 5000 does not make it a victim."""
    stale = several(2, bound, "m", "busy", stamp=Stamp(0, 0.0, 0.0))
    serving = need("busy", 2, priority=5000)
    assert not preempts(decide(make, stale, serving, need("c", priority=1000)))
    fresh = several(2, bound, "m", "busy", stamp=Stamp(5000, 0.0, 0.0))
    serving = need("busy", 2, priority=10)
    assert len(preempts(decide(make, fresh, serving, need("c", priority=1000)))) == 1


def test_improvement_a_need_never_preempts_what_it_was_credited_with(make: Any) -> None:
    lines = several(2, bound, "m", "c", stamp=Stamp(0, 0.0, 0.0))
    result = decide(make, lines, need("c", 3, priority=1000))
    assert not result.actions


def test_improvement_unclaimed_excess_goes_first(make: Any) -> None:
    """Before a machine that serves someone is taken, one that serves nobody is, however good the other's score."""
    wanted = need("c", priority=1000)
    lines = [bound("used", "busy"), bound("spare", "busy", price=9, stamp=Stamp(900, 8192.0, 8192.0))]
    result = decide(make, lines, need("busy", priority=0), wanted)
    assert preempts(result) == ["spare"]
    assert not reclaims(result)


def test_improvement_pinned_workloads_go_last_of_all(make: Any) -> None:
    pinned = need("a", priority=10, interruption=9e9)
    plain = need("b", priority=10, interruption=8_388_608, reclamation=8_388_608)
    lines = [bound("m1", "a", stamp=stamp_of(pinned)), bound("m2", "b", stamp=stamp_of(plain))]
    assert preempts(decide(make, lines, pinned, plain, need("c"))) == ["m2"]
    assert preempts(decide(make, lines, pinned, plain, need("c", 2))) == ["m2", "m1"]


def test_plain_needs_preempt_partially(make: Any) -> None:
    assert len(preempts(decide(make, [holders(2, 0)], need("c", 5)))) == 2


def test_disconnected_cluster_keeps_credit_but_neither_acquires_nor_preempts(make: Any) -> None:
    change = DemandBatch([rollup("c", need("c", 3))], links=[("c", False)])
    result = make().step(batch(bound("b", "c"), idle("i"), slot("s"), *holders(2, 0)), change, Policy(), START)
    assert not result.actions
    assert result.verdicts[0].claimed == 1
    assert result.verdicts[0].reason == UnmetReason.CLUSTER_DISCONNECTED


def test_preemption_can_be_closed_by_conditions(make: Any) -> None:
    result = decide(make, [holders(2, 0)], need("c"), conditions=Conditions(preempt=False))
    assert not result.actions
    assert result.shortfalls


def test_preemptors_overhead_decides_whether_a_victim_fits(make: Any) -> None:
    change = DemandBatch([rollup("c", need("c", cpu=4), overhead=amounts(cpu=1))])
    lines = [holders(1, 0, prefix="four", cpu=4), holders(1, 0, prefix="six", cpu=6)]
    result = make().step(batch(*lines), change, Policy(), START)
    assert preempts(result) == ["six0"]
    assert result.verdicts[0].freed.get("cpu") == 5000


@pytest.mark.parametrize("key", [RACK, ZONE])
def test_gang_with_several_sizes_preempts_all_or_nothing(make: Any, key: str) -> None:
    """Parts of one gang are covered together: a large part alone is not worth a victim."""
    large = need("c", 1, same=key, group="g", cpu=8)
    small = need("c", 2, same=key, group="g", cpu=2)
    lines = [bound("v8", "q", rack="r", cpu=8, stamp=Stamp(0)), bound("v2", "q", rack="r", cpu=2, stamp=Stamp(0))]
    assert not preempts(decide(make, lines, large, small))
    lines.append(machine("v3", CONFIGURED, "q", rack="r", cpu=3, stamp=Stamp(0)))
    assert sorted(preempts(decide(make, lines, large, small))) == ["v2", "v3", "v8"]
