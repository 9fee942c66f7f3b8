"""What every need is told: satisfied or the one reason that comes first, shortfall ages, and matching supply."""

from __future__ import annotations

from typing import Any

from bigfleet.engine.batches import Breaker, Conditions, DemandBatch, Stamp
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import Supply, UnmetReason
from bigfleet.model.requirement import Operator, Requirement
from tests.oracle.implementations import BOTH
from tests.strategies.asking import bootstraps, decide, provisions, verdict
from tests.strategies.builders import (
    A3,
    BARE_METAL,
    GPU,
    HOSTNAME,
    RACK,
    SECOND,
    START,
    batch,
    bound,
    demand,
    idle,
    need,
    several,
    slot,
)

pytestmark = BOTH


def test_verdicts_cover_satisfied_and_unsatisfied(make: Any) -> None:
    met, unmet = need("c", priority=2000), need("c", 5, priority=10)
    result = decide(make, [several(2, idle, "i")], met, unmet)
    assert verdict(result, met).satisfied
    assert verdict(result, met).reason == UnmetReason.NONE
    assert verdict(result, met).supply is None
    assert not verdict(result, unmet).satisfied
    assert verdict(result, unmet).bootstraps == 1
    assert verdict(result, unmet).supply == Supply(2, 0, 0, False)


def test_matching_supply_exists_false_when_no_supply(make: Any) -> None:
    result = decide(make, [idle("i", type="other")], need("c", types=[A3]))
    assert result.verdicts[0].supply == Supply(0, 0, 0, False)
    assert result.verdicts[0].reason == UnmetReason.NO_MATCHING_SUPPLY


def test_matching_supply_exists_true_when_held_by_higher_priority(make: Any) -> None:
    low = need("c", priority=10)
    result = decide(make, [bound("b", "other")], need("other", priority=2000), low)
    assert verdict(result, low).claimed == 0
    assert verdict(result, low).supply == Supply(0, 0, 1, False)
    assert verdict(result, low).reason == UnmetReason.PRIORITY_STARVED


def test_supply_counts_stop_at_the_cap(make: Any) -> None:
    lines = [several(3, bound, "b", "other")]
    result = decide(make, lines, need("c", priority=-1), policy=Policy(supply_count_cap=2))
    assert result.verdicts[0].supply == Supply(0, 0, 2, True)
    result = decide(make, lines, need("c", priority=-1), policy=Policy(supply_count_cap=3))
    assert result.verdicts[0].supply == Supply(0, 0, 3, False)


def test_reason_resource_not_published_is_not_no_matching_supply(make: Any) -> None:
    result = decide(make, [idle("i", cpu=8)], need("c", gpu=1))
    assert result.verdicts[0].reason == UnmetReason.RESOURCE_NOT_PUBLISHED


def test_reason_acquisition_held(make: Any) -> None:
    result = decide(make, [idle("i")], need("c"), conditions=Conditions(acquire=False))
    assert not result.actions
    assert result.verdicts[0].reason == UnmetReason.ACQUISITION_HELD


def test_reason_supply_backed_off(make: Any) -> None:
    result = decide(make, [idle("i", not_before=START + 1)], need("c"))
    assert not result.actions
    assert result.verdicts[0].reason == UnmetReason.SUPPLY_BACKED_OFF
    assert bootstraps(decide(make, [idle("i", not_before=START)], need("c"))) == ["i"]


def test_breaker_sends_demand_to_the_next_cheapest_offer(make: Any) -> None:
    """A stocked-out cheapest class is not asked for ever."""
    lines = [slot("cheap", type="t1", price=1), slot("dear", type="t2", price=2)]
    tripped = Conditions(breakers=(Breaker("p", "t1", "a", BARE_METAL, START + 5 * SECOND),))
    assert provisions(decide(make, lines, need("c"), conditions=tripped)) == ["dear"]
    over = Conditions(breakers=(Breaker("p", "t1", "a", BARE_METAL, START),))
    assert provisions(decide(make, lines, need("c"), conditions=over)) == ["cheap"]
    idle_too = [idle("i", type="t1", price=1), *lines]
    assert bootstraps(decide(make, idle_too, need("c"), conditions=tripped)) == ["i"]


def test_hostname_is_the_machine_itself(make: Any) -> None:
    lines = [idle("m1", labels={HOSTNAME: "m9"}), idle("m2"), idle("m9", price=7)]
    only = need("c", where=[Requirement(HOSTNAME, Operator.IN, ("m9",))])
    assert bootstraps(decide(make, lines, only)) == ["m9"]
    but = need("c", 2, where=[Requirement(HOSTNAME, Operator.NOT_IN, ("m1",))])
    assert bootstraps(decide(make, lines, but)) == ["m2", "m9"]


def test_improvement_shortfalls_of_clusters_gangs_and_sizes_do_not_overwrite_each_other(make: Any) -> None:
    """The reference keys the ledger by fingerprint alone."""
    needs = [
        need("a", 1),
        need("b", 2),
        need("b", 3, gpu=4),
        need("b", 9, group="x"),
        need("b", 4, same=RACK, group="y"),
    ]
    result = decide(make, [bound("v", "other", stamp=Stamp(9999))], *needs)
    assert len(result.shortfalls) == 5
    assert sorted(s.deficit.get(GPU) for s in result.shortfalls) == [8, 12, 16, 32, 72]


def test_improvement_shortfalls_age_once_per_nominal_cycle(make: Any) -> None:
    """In the reference every unresolved row of one fingerprint aged the entry again; here age is time."""
    engine, policy = make(), Policy()
    engine.step(None, demand(need("a"), need("b")), policy, START)
    ages = []
    for seconds in (1, 2, 10, 25, 59, 60):
        result = engine.step(None, None, policy, START + seconds * SECOND)
        ages.append({(s.age, s.escalated) for s in result.shortfalls})
    assert ages == [{(1, False)}, {(1, False)}, {(2, False)}, {(3, False)}, {(6, False)}, {(7, True)}]
    assert {v.unmet_age for v in result.verdicts} == {7}


def test_shortfall_age_starts_again_after_a_step_without(make: Any) -> None:
    engine, policy = make(), Policy()
    engine.step(None, demand(need("c")), policy, START)
    engine.step(batch(idle("i")), None, policy, START + 30 * SECOND)
    result = engine.step(batch(idle("i").to(8)), None, policy, START + 40 * SECOND)
    assert [(s.since, s.age) for s in result.shortfalls] == [(START + 40 * SECOND, 1)]


def test_shortfalls_are_listed_by_priority_then_age(make: Any) -> None:
    engine, policy = make(), Policy()
    old = need("z", priority=5)
    engine.step(None, demand(old), policy, START)
    result = engine.step(None, demand(need("a", priority=5), need("b", priority=9)), policy, START + 60 * SECOND)
    assert [s.key.cluster for s in result.shortfalls] == ["b", "z", "a"]


def test_arrival_is_the_first_time_a_row_was_seen(make: Any) -> None:
    engine, policy = make(), Policy()
    engine.step(None, demand(need("c", 3)), policy, START)
    result = engine.step(None, demand(need("c", 5), need("c", priority=1)), policy, START + 7)
    assert sorted(v.arrival for v in result.verdicts) == [START, START + 7]
    engine.step(None, demand(empty=["c"]), policy, START + 8)
    assert engine.step(None, demand(need("c")), policy, START + 9).verdicts[0].arrival == START + 9


def test_forgetting_a_cluster_drops_its_rows_and_its_readiness(make: Any) -> None:
    engine, policy = make(), Policy()
    engine.step(batch(several(2, bound, "b", "c")), demand(need("c", 2)), policy, START)
    result = engine.step(None, DemandBatch(forgotten=["c"]), policy, START + 1)
    assert not result.verdicts
    assert not result.actions
