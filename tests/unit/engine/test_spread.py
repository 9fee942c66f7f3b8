"""Strict topology spread: skew while acquiring, bound machines counted, and what is not enforced."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bigfleet.engine.results import UnmetReason
from tests.oracle.implementations import BOTH
from tests.strategies.asking import bootstraps, decide, preempts, reclaims
from tests.strategies.builders import GPU, HOSTNAME, RACK, ZONE, bound, idle, need, several

pytestmark = BOTH


def per_prefix(ids: list[str]) -> Counter[str]:
    return Counter(id[0] for id in ids)


def test_max_skew1_distributes_evenly(make: Any) -> None:
    lines = [*several(4, idle, "a", zone="a"), *several(4, idle, "b", zone="b"), *several(4, idle, "c", zone="c")]
    result = decide(make, lines, need("x", 6, spread=(ZONE, 1)))
    assert per_prefix(bootstraps(result)) == {"a": 2, "b": 2, "c": 2}


def test_respects_constraint_when_supply_uneven(make: Any) -> None:
    lines = [*several(1, idle, "a", zone="a"), *several(5, idle, "b", zone="b"), *several(5, idle, "c", zone="c")]
    result = decide(make, lines, need("x", 6, spread=(ZONE, 1)))
    assert per_prefix(bootstraps(result)) == {"a": 1, "b": 2, "c": 2}
    assert result.shortfalls[0].deficit.get(GPU) == 8
    assert result.verdicts[0].reason == UnmetReason.SPREAD_UNSATISFIABLE


def test_max_skew2_allows_larger_skew(make: Any) -> None:
    lines = [*several(5, idle, "a", zone="a"), *several(5, idle, "b", zone="b")]
    counts = per_prefix(bootstraps(decide(make, lines, need("x", 8, spread=(ZONE, 2)))))
    assert sum(counts.values()) == 8
    assert abs(counts["a"] - counts["b"]) <= 2


def test_schedule_anyway_does_not_enforce(make: Any) -> None:
    lines = [*several(4, idle, "a", zone="a", price=1), *several(4, idle, "b", zone="b", price=5)]
    assert per_prefix(bootstraps(decide(make, lines, need("x", 4, anyway=ZONE)))) == {"a": 4}


def test_prefers_cheaper_bucket_within_skew(make: Any) -> None:
    lines = [*several(4, idle, "a", zone="a", price=1), *several(4, idle, "b", zone="b", price=5)]
    assert per_prefix(bootstraps(decide(make, lines, need("x", 4, spread=(ZONE, 1))))) == {"a": 2, "b": 2}
    assert bootstraps(decide(make, lines, need("x", 1, spread=(ZONE, 1)))) == ["a0"]


def test_find_spread_respects_max_skew(make: Any) -> None:
    lines = [*several(3, idle, "a", rack="r1"), *several(3, idle, "b", rack="r2"), *several(3, idle, "c", rack="r3")]
    assert per_prefix(bootstraps(decide(make, lines, need("x", 3, spread=(RACK, 1))))) == {"a": 1, "b": 1, "c": 1}


def test_machines_without_the_key_are_not_eligible(make: Any) -> None:
    result = decide(make, [idle("bare"), bound("b", "x"), idle("racked", rack="r")], need("x", 1, spread=(RACK, 1)))
    assert bootstraps(result) == ["racked"]
    assert reclaims(result) == ["b"]


def test_spread_on_hostname_is_met_by_any_machines(make: Any) -> None:
    assert len(bootstraps(decide(make, [several(3, idle, "i")], need("x", 3, spread=(HOSTNAME, 1))))) == 3


def test_improvement_spread_counts_bound_machines(make: Any) -> None:
    """The reference starts at zero and puts two more into the zone that already has two."""
    lines = [
        *several(2, bound, "a", "x", zone="a"),
        *several(4, idle, "i", zone="a", price=1),
        *several(4, idle, "j", zone="b", price=5),
    ]
    assert per_prefix(bootstraps(decide(make, lines, need("x", 4, spread=(ZONE, 1))))) == {"j": 2}


def test_improvement_spread_credit_is_round_robin_and_excess_comes_from_the_full_domain(make: Any) -> None:
    """The reference credits in keep order and would keep the whole cheap zone."""
    lines = [*several(4, bound, "a", "x", zone="a", price=1), *several(2, bound, "b", "x", zone="b", price=5)]
    result = decide(make, lines, need("x", 4, spread=(ZONE, 1)))
    assert reclaims(result) == ["a2", "a3"]


def test_improvement_victims_obey_the_skew(make: Any) -> None:
    """The reference preempts wherever the score is best."""
    lines = [
        *several(4, bound, "a", "low", zone="a", stamp=None),
        *several(2, bound, "b", "low", zone="b", stamp=None),
    ]
    low = need("low", 6, priority=10)
    high = need("x", 4, priority=1000, spread=(ZONE, 1))
    assert per_prefix(preempts(decide(make, lines, low, high))) == {"a": 2, "b": 2}
