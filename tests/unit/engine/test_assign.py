"""Assignment of plain needs: what is credited, what is bound, what is bought, and in which order."""

from __future__ import annotations

import random
from typing import Any

from bigfleet.engine.batches import DemandBatch, Stamp
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind, Reason, UnmetReason
from tests.oracle.implementations import BOTH
from tests.strategies.asking import bootstraps, decide, of_kind, provisions, reclaims, verdict
from tests.strategies.builders import (
    A3,
    FAILED,
    GPU,
    ON_DEMAND,
    RACK,
    SPOT,
    START,
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
)

pytestmark = BOTH


def test_idle_only(make: Any) -> None:
    result = decide(make, [several(4, idle, "i")], need("c", 3))
    assert bootstraps(result, "c") == ["i0", "i1", "i2"]
    assert not result.shortfalls
    assert all(v.satisfied for v in result.verdicts)
    action = result.actions[0]
    assert (action.reason, action.grace_seconds, action.preemptor_priority) == (Reason.IDLE, 0, 0)
    assert action.need == result.verdicts[0].key


def test_speculative_fallback_prefers_cheapest(make: Any) -> None:
    lines = [slot("dear", price=3), slot("cheap", price=1), slot("risky", price=0.5, risk=0.1)]
    result = decide(make, lines, need("c", interruption=16))
    assert provisions(result, "c") == ["cheap"]
    assert result.actions[0].reason == Reason.SPECULATIVE


def test_high_penalty_prefers_on_demand(make: Any) -> None:
    lines = [slot("spot", price=1.8, risk=0.1, capacity=SPOT), slot("demand", price=6, capacity=ON_DEMAND)]
    assert provisions(decide(make, lines, need("c", interruption=8_388_608))) == ["demand"]
    assert provisions(decide(make, lines, need("c"))) == ["spot"]


def test_idle_beats_speculative(make: Any) -> None:
    result = decide(make, [slot("s", price=1), idle("i", price=6)], need("c"))
    assert bootstraps(result) == ["i"]
    assert not provisions(result)


def test_no_op_when_satisfied(make: Any) -> None:
    result = decide(make, [several(3, bound, "b", "c"), idle("i")], need("c", 3))
    assert not result.actions
    assert result.verdicts[0].satisfied
    assert result.verdicts[0].claimed == 3


def test_partial_stockout(make: Any) -> None:
    result = decide(make, [several(2, idle, "i")], need("c", 5))
    assert len(result.actions) == 2
    assert [s.deficit.get(GPU) for s in result.shortfalls] == [24]
    assert not result.verdicts[0].satisfied


def test_high_priority_wins_contested_pool(make: Any) -> None:
    low, high = need("a", 2, priority=0), need("b", 2, priority=1_000_000)
    result = decide(make, [several(2, idle, "i")], low, high)
    assert bootstraps(result, "b") == ["i0", "i1"]
    assert not bootstraps(result, "a")


def test_many_needs_sharing_fingerprint_distributes_across_needs(make: Any) -> None:
    lines = [several(5, bound, "b", "c"), [idle(f"i{n:02}") for n in range(25)]]
    result = decide(make, lines, *[need("c") for _ in range(30)])
    assert len(bootstraps(result)) == 25
    assert not result.shortfalls


def test_dense_machine_one_absorbs_many_pods(make: Any) -> None:
    result = decide(make, [bound("b", "c", cpu=16, mem=32)], need("c", 10, cpu=1, mem=4))
    assert result.shortfalls[0].deficit.to_wire() == {"memory": "8Gi"}
    assert result.verdicts[0].claimed == 1


def test_realistic_catalog_binds_idle_seed(make: Any) -> None:
    types = ("c6i.4xlarge", "c6i.8xlarge", "n2-standard-32")
    sizes = ((4, 8), (8, 16), (16, 32), (32, 64))
    lines = [
        idle(
            f"i{k:03}",
            type=types[k % 3],
            zone="abc"[k % 3],
            rack=f"rack-{k % 8}",
            cpu=sizes[k % 4][0],
            mem=sizes[k % 4][1],
        )
        for k in range(100)
    ]
    needs = [
        need("c", priority=100, types=[types[i % 3]], interruption=8192, cpu=sizes[i % 4][0], mem=sizes[i % 4][1])
        for i in range(50)
    ]
    result = decide(make, lines, *needs)
    assert bootstraps(result)
    assert not result.shortfalls


# Crediting


def test_credits_high_pri_first(make: Any) -> None:
    low, high = need("c", priority=100), need("c", priority=1000)
    result = decide(make, [bound("b", "c")], low, high)
    assert verdict(result, high).satisfied
    assert verdict(result, low).deficit.get(GPU) == 8


def test_only_credits_matching_machines(make: Any) -> None:
    result = decide(make, [bound("b", "c", type="other")], need("c", types=[A3]))
    assert result.verdicts[0].claimed == 0
    assert reclaims(result) == ["b"]
    assert result.shortfalls[0].deficit.get(GPU) == 8


def test_credits_own_creating(make: Any) -> None:
    wanted = need("c")
    own = machine("m", 2, "c", stamp=Stamp(fingerprint=wanted.profile.fingerprint))
    unnamed = machine("m", 2, stamp=Stamp(fingerprint=wanted.profile.fingerprint))
    for line in (own, unnamed):
        result = decide(make, [line, idle("i")], wanted)
        assert not result.actions
        assert result.verdicts[0].satisfied


def test_ignores_non_own_creating(make: Any) -> None:
    wanted = need("c")
    fingerprint = wanted.profile.fingerprint
    for line in (
        machine("m", 2),
        machine("m", 2, "c", stamp=Stamp(fingerprint="another")),
        machine("m", 2, "c", stamp=Stamp(fingerprint=fingerprint, group="a gang's")),
        machine("m", 2, "other", stamp=Stamp(fingerprint=fingerprint)),
    ):
        assert bootstraps(decide(make, [line, idle("i")], wanted)) == ["i"]


# Finders


def test_find_basic_cheapest_unclaimed(make: Any) -> None:
    lines = [idle("a", price=2), idle("b", price=1), idle("c", price=1)]
    assert bootstraps(decide(make, lines, need("x"))) == ["b"]


def test_find_basic_skips_claimed(make: Any) -> None:
    high, low = need("x", priority=2000), need("y")
    result = decide(make, [idle("a", price=1), idle("b", price=2)], low, high)
    assert bootstraps(result, "x") == ["a"]
    assert bootstraps(result, "y") == ["b"]


def test_find_basic_accumulates_until_covered(make: Any) -> None:
    result = decide(make, [several(5, idle, "i", cpu=4)], need("x", 10, cpu=1))
    assert bootstraps(result) == ["i0", "i1", "i2"]


def test_find_basic_zero_deficit_is_empty(make: Any) -> None:
    result = decide(make, [idle("i")], need("x", 0))
    assert not result.actions
    assert result.verdicts[0].satisfied


def test_machine_that_helps_nothing_is_not_taken(make: Any) -> None:
    """A machine without any dimension that is still missing is neither credited nor bought."""
    lines = [bound("a", "c", gpu=8), bound("b", "c", cpu=4), idle("i", cpu=4), idle("j", gpu=8)]
    wanted = need("c", 2, gpu=8, floor={})
    result = decide(make, lines, wanted)
    assert bootstraps(result) == ["j"]
    assert reclaims(result) == ["b"]


# Cycle


def test_empty_needs(make: Any) -> None:
    result = decide(make, [several(3, idle, "i"), slot("s")], empty=["c"])
    assert not result.actions
    assert not result.verdicts


def test_fully_absorbed_by_existing_supply(make: Any) -> None:
    result = decide(make, [several(4, bound, "b", "c")], need("c", 2), need("c", 2, priority=5))
    assert not result.actions
    assert [v.claimed for v in result.verdicts] == [2, 2]


def test_covered_by_idle(make: Any) -> None:
    assert bootstraps(decide(make, [idle("dear", price=9), idle("cheap", price=1)], need("c"))) == ["cheap"]


def test_partially_covered_records_unsatisfied(make: Any) -> None:
    result = decide(make, [bound("b", "c"), idle("i")], need("c", 3))
    assert bootstraps(result) == ["i"]
    assert result.verdicts[0].deficit.get(GPU) == 8
    assert result.verdicts[0].claimed == 2


def test_no_inventory_all_unsatisfied(make: Any) -> None:
    result = decide(make, [], need("a"), need("b", 2))
    assert not result.actions
    assert {v.reason for v in result.verdicts} == {UnmetReason.NO_MATCHING_SUPPLY}
    assert len(result.shortfalls) == 2


def test_what_fits_and_has_failed_is_not_told_as_nothing_that_fits(make: Any) -> None:
    failed = [machine("f", FAILED), machine("g", FAILED)]
    assert {v.reason for v in decide(make, failed, need("a")).verdicts} == {UnmetReason.SUPPLY_BACKED_OFF}
    small = [machine("f", FAILED, gpu=4)]
    assert {v.reason for v in decide(make, small, need("a")).verdicts} == {UnmetReason.NO_MATCHING_SUPPLY}


def test_priority_wins_contested_pool(make: Any) -> None:
    for trial in range(16):
        needs = [need(f"c{n}", priority=1000 if n == trial % 5 else 100) for n in range(5)]
        random.Random(trial).shuffle(needs)
        assert bootstraps(decide(make, [idle("i")], *needs), f"c{trial % 5}") == ["i"]


def test_dispatch_scales_to_worker_count(make: Any) -> None:
    needs = [need(f"c{n:03}") for n in range(100)]
    result = decide(make, [[idle(f"i{n:03}") for n in range(100)]], *needs)
    assert len(set(bootstraps(result))) == 100
    assert all(v.satisfied for v in result.verdicts)


def test_outcome_equivalence_across_runs(make: Any) -> None:
    lines = [[idle(f"i{n}", rack=f"r{n % 3}", price=n % 2) for n in range(10)]]
    needs = [need(f"c{n % 3}", 1 + n % 3, priority=100 * (n % 2), same=RACK if n % 4 == 0 else None) for n in range(9)]
    outcomes = [[v.satisfied for v in decide(make, lines, *needs).verdicts] for _ in range(10)]
    assert all(outcome == outcomes[0] for outcome in outcomes)


# Precedence, which the reference's broker enforced by displacement


def test_penalty_buckets_break_priority_ties(make: Any) -> None:
    plain, dear = need("a", interruption=1), need("b", interruption=1024)
    assert bootstraps(decide(make, [idle("i")], plain, dear), "b") == ["i"]
    plain, dear = need("a", reclamation=1), need("b", reclamation=1024)
    assert bootstraps(decide(make, [idle("i")], plain, dear), "b") == ["i"]


def test_precedence_less(make: Any) -> None:
    """Priority first, then the interruption bucket, then the reclamation bucket."""
    needs = [
        need("a", priority=2, interruption=0, reclamation=0),
        need("b", priority=1, interruption=8, reclamation=0),
        need("c", priority=1, interruption=4, reclamation=8),
        need("d", priority=1, interruption=4, reclamation=4),
    ]
    result = decide(make, [several(4, idle, "i")], *reversed(needs))
    assert [action.cluster for action in of_kind(result, ActionKind.BOOTSTRAP)] == ["a", "b", "c", "d"]


def test_older_need_goes_first_at_equal_precedence(make: Any) -> None:
    engine = make()
    engine.step(batch(), demand(need("z")), Policy(), START)
    result = engine.step(batch(idle("i")), demand(need("a")), Policy(), START + 10)
    assert bootstraps(result, "z") == ["i"]


def test_overhead_of_a_name_counts_from_when_a_machine_has_it(make: Any) -> None:
    """Nobody has the device when the cluster says what every node of it loses; then a machine with two of them comes,
    of which one is left."""
    name = "a.example/odd"
    wanted = [need("c", 1, cpu=1, **{name: 2}), need("c", 1, cpu=1, priority=5, **{name: 1})]
    engine = make()
    engine.step(None, DemandBatch([rollup("c", *wanted, overhead={name: 1})]), Policy(), START)
    result = engine.step(batch(idle("m", cpu=4, **{name: 2})), None, Policy(), START)
    assert [(each.key.min_unit, each.satisfied) for each in result.verdicts] == [
        (f"{name}=2,cpu=1000", False),
        (f"{name}=1,cpu=1000", True),
    ]


def test_overhead_is_subtracted_for_that_cluster_only(make: Any) -> None:
    lines = batch(several(4, idle, "i", cpu=4))
    heavy, light = need("heavy", 4, cpu=1), need("light", 4, cpu=1)
    change = DemandBatch([rollup("heavy", heavy, overhead=amounts(cpu=1)), rollup("light", light)])
    result = make().step(lines, change, Policy(), START)
    assert bootstraps(result, "heavy") == ["i0", "i1"]
    assert bootstraps(result, "light") == ["i2"]
