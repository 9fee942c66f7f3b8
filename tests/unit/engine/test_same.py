"""Gangs: one domain per gang, how it is chosen, and what is credited and acquired inside it."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.batches import Stamp
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import DomainCoverage
from tests.oracle.implementations import BOTH
from tests.strategies.asking import bootstraps, decide, preempts, provisions, reclaims, verdict
from tests.strategies.builders import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    GPU,
    RACK,
    ZONE,
    MachineLine,
    bound,
    idle,
    machine,
    need,
    several,
    slot,
    stamp_of,
)

pytestmark = BOTH


def zones(lines: list[MachineLine], ids: list[str]) -> set[str]:
    return {line.shape.zone for line in lines if line.shape and line.id in ids}


def test_picks_one_zone(make: Any) -> None:
    lines = [*several(3, idle, "a", zone="a"), *several(3, idle, "b", zone="b")]
    result = decide(make, lines, need("c", 3, same=ZONE, group="g"))
    assert len(bootstraps(result)) == 3
    assert len(zones(lines, bootstraps(result))) == 1


def test_picks_atomic_satisfiable_zone(make: Any) -> None:
    lines = [*several(2, idle, "a", zone="a"), *several(4, idle, "b", zone="b")]
    result = decide(make, lines, need("c", 4, same=ZONE, group="g"))
    assert bootstraps(result) == ["b0", "b1", "b2", "b3"]


def test_falls_back_to_largest_bucket_with_shortfall(make: Any) -> None:
    lines = [*several(3, idle, "a", zone="a"), *several(3, idle, "b", zone="b")]
    result = decide(make, lines, need("c", 5, same=ZONE, group="g"))
    assert bootstraps(result) == ["a0", "a1", "a2"]
    assert result.shortfalls[0].deficit.get(GPU) == 16
    assert result.shortfalls[0].topology_constrained


def test_density_aware_machine_count(make: Any) -> None:
    result = decide(make, [several(3, idle, "i", cpu=100)], need("c", 8, same=ZONE, group="g", cpu=1))
    assert bootstraps(result) == ["i0"]


def test_two_needs_land_in_different_zones(make: Any) -> None:
    lines = [*several(3, idle, "a", zone="a"), *several(3, idle, "b", zone="b")]
    first, second = need("c", 3, same=ZONE, group="g1"), need("c", 3, same=ZONE, group="g2")
    result = decide(make, lines, first, second)
    assert verdict(result, first).domain == "a"
    assert verdict(result, second).domain == "b"
    assert len(bootstraps(result)) == 6


# Crediting


def test_same_credits_single_domain(make: Any) -> None:
    lines = [*several(2, bound, "a", "c", rack="r1", cpu=4), *several(3, bound, "b", "c", rack="r2", cpu=4)]
    result = decide(make, lines, need("c", 3, same=RACK, group="g", cpu=4))
    assert result.verdicts[0].domain == "r2"
    assert result.verdicts[0].claimed == 3
    assert reclaims(result) == ["a0", "a1"]


def test_same_unsatisfiable_credits_one_domain_only(make: Any) -> None:
    lines = [*several(2, bound, "a", "c", rack="r1", cpu=4), *several(2, bound, "b", "c", rack="r2", cpu=4)]
    result = decide(make, lines, need("c", 3, same=RACK, group="g", cpu=4))
    assert result.verdicts[0].claimed == 2
    assert result.verdicts[0].deficit.get("cpu") == 4000
    assert len(reclaims(result)) == 2


def test_same_claims_configured_before_configuring(make: Any) -> None:
    lines = [
        machine("a", CONFIGURING, "c", rack="r"),
        machine("b", CONFIGURING, "c", rack="r"),
        machine("z", CONFIGURED, "c", rack="r"),
    ]
    wanted = need("c", 2, same=RACK, group="g")
    result = decide(make, lines, wanted)
    assert result.verdicts[0].claimed == 2
    assert not result.actions


def test_joint_chooses_acquirable_rich_domain(make: Any) -> None:
    lines = [bound("a0", "c", rack="a"), *several(2, idle, "b", rack="b")]
    result = decide(make, lines, need("c", 2, same=RACK, group="g"))
    assert result.verdicts[0].domain == "b"
    assert bootstraps(result) == ["b0", "b1"]
    assert reclaims(result) == ["a0"]


def test_joint_excludes_claimed_idle(make: Any) -> None:
    lines = [bound("a0", "c", rack="a"), *several(2, idle, "b", rack="b")]
    result = decide(make, lines, need("other", 2, priority=2000), need("c", 2, same=RACK, group="g"))
    gang = next(v for v in result.verdicts if v.key.cluster == "c")
    assert gang.domain == "a"
    assert gang.claimed == 1
    assert not reclaims(result, "c")


def test_joint_progression_across_needs(make: Any) -> None:
    lines = [*several(2, bound, "a", "c", rack="a"), *several(2, idle, "b", rack="b")]
    first, second = need("c", 2, same=RACK, group="g1"), need("c", 2, same=RACK, group="g2")
    result = decide(make, lines, first, second)
    assert verdict(result, first).domain == "a"
    assert verdict(result, second).domain == "b"
    assert bootstraps(result) == ["b0", "b1"]
    assert not reclaims(result)


def test_incumbent_kept_over_matured_equivalent(make: Any) -> None:
    wanted = need("c", 2, same=RACK, group="g")
    own = stamp_of(wanted)
    lines = [bound("m1", "c", rack="r"), *several(2, bound, "own", "c", rack="r", stamp=own)]
    result = decide(make, lines, wanted)
    assert reclaims(result) == ["m1"]


def test_claimed_set_stable_across_maturation(make: Any) -> None:
    wanted = need("c", 2, same=RACK, group="g")
    own = several(2, bound, "own", "c", rack="r", stamp=stamp_of(wanted))
    young = decide(make, [*own, machine("m1", CONFIGURING, "c", rack="r")], wanted)
    grown = decide(make, [*own, machine("m1", CONFIGURED, "c", rack="r")], wanted)
    assert not young.actions
    assert reclaims(grown) == ["m1"]
    assert young.verdicts == grown.verdicts


def test_run_cycle_gang_own_attribution_picks_own_domain(make: Any) -> None:
    first, second = need("c", 2, same=RACK, group="g1"), need("c", 2, same=RACK, group="g2")
    lines = [
        *several(2, bound, "a", "c", rack="a", stamp=stamp_of(second)),
        *several(2, bound, "b", "c", rack="b", stamp=stamp_of(first)),
    ]
    result = decide(make, lines, first, second)
    assert verdict(result, first).domain == "b"
    assert verdict(result, second).domain == "a"
    assert not result.actions


# Domain chooser, each in both input orders


BOTH_ORDERS = pytest.mark.parametrize("turn", [1, -1], ids=["forward", "backward"])


def domain(make: Any, lines: list[MachineLine], turn: int, **facts: Any) -> str | None:
    size = {"cpu": facts.pop("cpu", 4)} | ({"mem": facts.pop("mem")} if "mem" in facts else {})
    wanted = need("c", facts.pop("units", 2), same=RACK, group="g", **facts, **size)
    return decide(make, lines[::turn], wanted).verdicts[0].domain


@BOTH_ORDERS
def test_satisfiable_beats_bigger_unsatisfiable(make: Any, turn: int) -> None:
    lines = [*several(9, idle, "a", rack="a", cpu=4), *several(2, idle, "b", rack="b", cpu=4, mem=8)]
    wanted = need("c", 2, same=RACK, group="g", cpu=4, mem=8, floor={})
    assert decide(make, lines[::turn], wanted).verdicts[0].domain == "b"


@BOTH_ORDERS
def test_smallest_satisfiable_total(make: Any, turn: int) -> None:
    lines = [*several(5, idle, "a", rack="a", cpu=4), *several(3, idle, "b", rack="b", cpu=4)]
    assert domain(make, lines, turn) == "b"


@BOTH_ORDERS
def test_most_covering_if_none(make: Any, turn: int) -> None:
    lines = [*several(2, idle, "a", rack="a", cpu=4), *several(3, idle, "b", rack="b", cpu=4)]
    assert domain(make, lines, turn, units=9) == "b"


@BOTH_ORDERS
def test_larger_count_on_score_tie(make: Any, turn: int) -> None:
    lines = [*several(1, idle, "a", rack="a", cpu=8), *several(2, idle, "b", rack="b", cpu=4)]
    assert domain(make, lines, turn, units=9) == "b"


@BOTH_ORDERS
def test_smallest_value_on_full_tie(make: Any, turn: int) -> None:
    lines = [*several(2, idle, "a", rack="r9", cpu=4), *several(2, idle, "b", rack="r10", cpu=4)]
    assert domain(make, lines, turn) == "r10"


@BOTH_ORDERS
def test_coverage_capped_per_dimension(make: Any, turn: int) -> None:
    """Forty times the cpu does not hide that memory is missing."""
    lines = [idle("a0", rack="a", cpu=160, mem=1), *several(3, idle, "b", rack="b", cpu=4, mem=4)]
    wanted = need("c", 4, same=RACK, group="g", cpu=4, mem=4, floor={})
    assert decide(make, lines[::turn], wanted).verdicts[0].domain == "b"


@BOTH_ORDERS
def test_no_candidates_none(make: Any, turn: int) -> None:
    lines = [*several(2, idle, "a", cpu=4), bound("b", "elsewhere", rack="r", cpu=4)]
    assert domain(make, lines, turn) is None


@BOTH_ORDERS
def test_gang_own_breaks_coverage_tie(make: Any, turn: int) -> None:
    wanted = need("c", 2, same=RACK, group="g", cpu=4)
    lines = [
        *several(2, bound, "a", "c", rack="a", cpu=4),
        *several(2, bound, "b", "c", rack="b", cpu=4, stamp=stamp_of(wanted)),
    ]
    assert decide(make, lines[::turn], wanted).verdicts[0].domain == "b"


@BOTH_ORDERS
def test_gang_own_does_not_override_creditable(make: Any, turn: int) -> None:
    wanted = need("c", 3, same=RACK, group="g", cpu=4)
    lines = [
        *several(2, bound, "a", "c", rack="a", cpu=4),
        bound("b0", "c", rack="b", cpu=4, stamp=stamp_of(wanted)),
        *several(3, idle, "ia", rack="a", cpu=4),
        *several(3, idle, "ib", rack="b", cpu=4),
    ]
    assert decide(make, lines[::turn], wanted).verdicts[0].domain == "a"


@BOTH_ORDERS
def test_no_gang_own_falls_through_to_slack(make: Any, turn: int) -> None:
    lines = [
        bound("a0", "c", rack="a", cpu=4),
        bound("b0", "c", rack="b", cpu=4),
        *several(4, idle, "ia", rack="a", cpu=4),
        *several(1, idle, "ib", rack="b", cpu=4),
    ]
    assert domain(make, lines, turn) == "b"


def test_coverage_per_mille(make: Any) -> None:
    """The worst dimension governs and nothing counts above 1000."""
    lines = [idle("a", rack="a", cpu=90, mem=1), idle("b", rack="b", cpu=2, mem=9)]
    wanted = need("c", 3, same=RACK, group="g", cpu=1, mem=1, floor={})
    result = decide(make, [*lines, idle("d0", rack="d", cpu=2, mem=2), idle("d1", rack="d", cpu=2, mem=2)], wanted)
    assert result.verdicts[0].candidates == (
        DomainCoverage("d", 1000, True),
        DomainCoverage("b", 666, False),
        DomainCoverage("a", 333, False),
    )


def test_top_same_candidates(make: Any) -> None:
    lines = [idle(f"i{n}{k}", rack=f"r{n}", cpu=4) for n in range(1, 9) for k in range(n)]
    wanted = need("c", 8, same=RACK, group="g", cpu=4)
    found = decide(make, lines, wanted).verdicts[0].candidates
    assert [c.domain for c in found] == ["r8", "r7", "r6", "r5", "r4", "r3"]
    assert [c.satisfiable for c in found] == [True, False, False, False, False, False]
    assert len(decide(make, lines, wanted, policy=Policy(same_candidates=2)).verdicts[0].candidates) == 2


# Finders


def test_find_same_prefers_the_bucket_that_covers(make: Any) -> None:
    lines = [*several(5, idle, "a", rack="a", cpu=1), *several(2, idle, "b", rack="b", cpu=4)]
    wanted = need("c", 8, same=RACK, group="g", cpu=1)
    assert bootstraps(decide(make, lines, wanted)) == ["b0", "b1"]


def test_find_same_else_most_available(make: Any) -> None:
    lines = [*several(2, slot, "a", rack="a", cpu=4, price=1), *several(3, slot, "b", rack="b", cpu=4, price=9)]
    assert provisions(decide(make, lines, need("c", 9, same=RACK, group="g", cpu=4))) == ["b0", "b1", "b2"]


def test_find_same_bucket_key_carries_key_and_value(make: Any) -> None:
    """Equal values under two keys are two domains."""
    rack, zone = need("c", 2, same=RACK, group="g1"), need("c", 2, same=ZONE, group="g2")
    lines = [*several(2, idle, "i", rack="x", zone="y"), *several(2, idle, "j", rack="y", zone="x")]
    result = decide(make, lines, rack, zone)
    assert {verdict(result, rack).domain, verdict(result, zone).domain} <= {"x", "y"}
    assert all(v.satisfied for v in result.verdicts)


def test_find_same_domain_confines_acquisition(make: Any) -> None:
    lines = [
        *several(2, bound, "b", "c", rack="a", cpu=4),
        *several(3, idle, "dear", rack="a", cpu=4, price=9),
        *several(3, idle, "cheap", rack="b", cpu=4, price=1),
    ]
    result = decide(make, lines, need("c", 4, same=RACK, group="g", cpu=4))
    assert bootstraps(result) == ["dear0", "dear1"]


def test_find_same_domain_with_no_candidates_returns_empty(make: Any) -> None:
    lines = [*several(3, bound, "b", "c", rack="a", cpu=4), *several(2, idle, "i", rack="b", cpu=4)]
    result = decide(make, lines, need("c", 4, same=RACK, group="g", cpu=4))
    assert result.verdicts[0].domain == "a"
    assert not bootstraps(result)
    assert not preempts(result)


# Reclaim of gangs


def test_same_keeps_chosen_domain_reclaims_scatter(make: Any) -> None:
    lines = [*several(3, bound, "a", "c", zone="a"), bound("b0", "c", zone="b"), bound("d0", "c", zone="d")]
    result = decide(make, lines, need("c", 3, same=ZONE, group="g"))
    assert reclaims(result) == ["b0", "d0"]


def test_same_no_satisfiable_domain_keeps_one_bucket_only(make: Any) -> None:
    lines = [*several(2, bound, "a", "c", zone="a"), *several(2, bound, "b", "c", zone="b")]
    assert reclaims(decide(make, lines, need("c", 5, same=ZONE, group="g"))) == ["b0", "b1"]


def test_same_configuring_anchors_the_domain(make: Any) -> None:
    lines = [
        bound("a0", "c", zone="a"),
        bound("b0", "c", zone="b"),
        machine("b1", CONFIGURING, "c", zone="b"),
    ]
    result = decide(make, lines, need("c", 2, same=ZONE, group="g"))
    assert result.verdicts[0].domain == "b"
    assert reclaims(result) == ["a0"]


def test_same_acquirable_fold_consumes(make: Any) -> None:
    """Two gangs see one idle zone; only the first may count on it, so only its serving machine is given back."""
    first, second = need("c", 2, same=ZONE, group="g1"), need("c", 2, same=ZONE, group="g2")
    lines = [
        bound("a0", "c", zone="a", stamp=stamp_of(first)),
        bound("b0", "c", zone="b", stamp=stamp_of(second)),
        *several(2, idle, "i", zone="d"),
    ]
    result = decide(make, lines, first, second)
    assert verdict(result, first).domain == "d"
    assert verdict(result, second).claimed == 1
    assert len(reclaims(result)) == 1


def test_same_prefers_serving_creditable_domain(make: Any) -> None:
    lines = [*several(3, bound, "a", "c", zone="b"), *several(2, idle, "i", zone="a")]
    result = decide(make, lines, need("c", 2, same=ZONE, group="g"))
    assert reclaims(result) == ["a2"]
    assert not bootstraps(result)


def test_creating_counts_for_its_gang_only(make: Any) -> None:
    first, second = need("c", 1, same=RACK, group="g1", cpu=8), need("c", 1, same=RACK, group="g2", cpu=8)
    mark = Stamp(fingerprint=first.profile.fingerprint, group="g1")
    lines = [*several(2, machine, "m", CREATING, "c", rack="r", cpu=4, stamp=mark)]
    result = decide(make, lines, *(n for n in (first, second)))
    # min_unit of eight cores: neither machine fits alone, so nothing is credited and nothing folds.
    assert [v.claimed for v in result.verdicts] == [0, 0]
    small = [need("c", 2, same=RACK, group=g, cpu=4) for g in ("g1", "g2")]
    result = decide(make, lines, *small)
    assert [(v.key.group, v.claimed) for v in result.verdicts] == [("g1", 2), ("g2", 0)]
