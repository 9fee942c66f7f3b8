"""What an explanation says about needs: what serves them and at what cost, what they lost and why, what would help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigfleet.engine import Engine, StepResult
from bigfleet.engine.batches import Breaker, Conditions, DemandBatch
from bigfleet.engine.explain import (
    Explanation,
    HigherPriority,
    LossReporter,
    MoreSupply,
    RemedyKind,
    Source,
    Why,
    WithoutConstraint,
)
from bigfleet.engine.kernels.view import View
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import NeedKey, UnmetReason
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.taint import Taint
from tests.strategies.builders import (
    CONFIGURED,
    CREATING,
    DRAINING,
    FAILED,
    IDLE,
    INSTANCE_TYPE,
    ON_DEMAND,
    RACK,
    SECOND,
    SPOT,
    START,
    ZONE,
    MachineLine,
    NeedLine,
    batch,
    bound,
    demand,
    idle,
    machine,
    need,
    removed,
    rollup,
    several,
    slot,
    stamp_of,
)

SUPPLY, PRIORITY, CONSTRAINT = (RemedyKind.SUPPLY,), (RemedyKind.PRIORITY,), (RemedyKind.CONSTRAINT,)


def told(
    lines: list[MachineLine], needs: list[NeedLine], which: int = 0, kinds: Any = None, **outside: Any
) -> Explanation:
    """The explanation of one of the needs after one step."""
    engine = Engine()
    links = [(name, False) for name in outside.pop("away", ())]
    asked = demand(*needs)
    engine.step(
        batch(lines), DemandBatch(asked.rollups, links), outside.pop("policy", Policy()), START, Conditions(**outside)
    )
    key = key_of(needs[which])
    return engine.explain(key) if kinds is None else engine.explain(key, kinds)


def key_of(line: NeedLine) -> NeedKey:
    from bigfleet.model.resources import Resources

    gang = line.profile.same is not None
    unit = "" if gang else Resources(line.min_unit).canonical
    return NeedKey(line.cluster, line.profile.fingerprint, line.group, unit)


def whys(explanation: Explanation) -> dict[Why, int]:
    found: dict[Why, int] = {}
    for lost in explanation.lost:
        found[lost.why] = found.get(lost.why, 0) + lost.count
    return found


# What it got


def test_granted_machines_and_their_cost() -> None:
    wanted = need("c", 3, interruption=4.0)
    explanation = told(
        [
            bound("b", "c", price=2.0),
            idle("i", price=3.0, zone="b"),
            slot("s", price=1.0, risk=0.5, capacity=SPOT),
        ],
        [wanted],
    )
    assert [(g.source, g.count, g.zone, g.price, g.effective_cost) for g in explanation.granted] == [
        (Source.CREDITED, 1, "a", 2.0, 2.0),
        (Source.IDLE, 1, "b", 3.0, 3.0),
        (Source.SPECULATIVE, 1, "a", 1.0, 3.0),
    ]
    assert (explanation.price_per_hour, explanation.effective_cost_per_hour) == (6.0, 8.0)
    assert explanation.verdict.satisfied
    assert (explanation.lost, explanation.remedy, explanation.trials) == ((), None, 0)


def test_granted_machines_of_a_group_say_their_domain() -> None:
    explanation = told(several(2, idle, "i", rack="r1", price=1.0), [need("c", 2, same=RACK, group="g")])
    assert [(g.domain, g.count) for g in explanation.granted] == [("r1", 2)]


def test_victims_count_as_preempted_for_it() -> None:
    low, high = need("low", 2, priority=1), need("high", 2, priority=9)
    explanation = told(several(2, bound, "b", "low", price=1.5, stamp=stamp_of(low)), [low, high], 1)
    assert [(g.source, g.count) for g in explanation.granted] == [(Source.PREEMPTED, 2)]
    assert explanation.awaits_drain
    assert explanation.remedy is None


def test_a_key_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(KeyError, match="no need"):
        Engine().explain(NeedKey("c", "f", "", ""))


def test_a_folded_group_is_found_by_its_own_key() -> None:
    line = need("c", 2, same=RACK, group="g", cpu=1)
    explanation = told([idle("i", rack="r", cpu=8)], [line])
    assert explanation.verdict.satisfied
    assert explanation.key.group == ""


# What it lost, to whom and why


def test_lost_to_a_higher_priority() -> None:
    high, low = need("high", 2, priority=9), need("low", 1, priority=1)
    explanation = told(several(2, bound, "b", "high", stamp=stamp_of(high)), [high, low], 1)
    (lost,) = explanation.lost
    assert (lost.why, lost.count, lost.state, lost.winner, lost.winner_priority) == (
        Why.PRIORITY,
        2,
        CONFIGURED,
        key_of(high),
        9,
    )


def test_lost_free_machines_to_a_higher_priority_in_the_same_step() -> None:
    high, low = need("high", 1, priority=9), need("low", 1, priority=1)
    (lost,) = told([idle("i")], [high, low], 1).lost
    assert (lost.why, lost.state, lost.winner) == (Why.PRIORITY, IDLE, key_of(high))


def test_lost_to_a_higher_penalty() -> None:
    dear, cheap = need("dear", 1, interruption=1000.0), need("cheap", 1)
    (lost,) = told([idle("i")], [dear, cheap], 1).lost
    assert (lost.why, lost.winner) == (Why.PENALTY, key_of(dear))


def test_lost_to_an_earlier_arrival() -> None:
    (lost,) = told([idle("i")], [need("a", 1), need("b", 1)], 1).lost
    assert (lost.why, lost.winner_cluster) == (Why.ARRIVAL, "a")


def test_lost_to_an_equal_priority_that_is_never_preempted() -> None:
    held, wanted = need("a", 1), need("b", 1, interruption=1000.0)
    (lost,) = told([bound("m", "a", stamp=stamp_of(held))], [held, wanted], 1).lost
    assert (lost.why, lost.winner) == (Why.EQUAL_PRIORITY, key_of(held))


def test_lost_because_it_has_nothing_of_what_is_missing() -> None:
    wanted = need("c", 1, floor={"cpu": 1000}, cpu=4, gpu=8)
    explanation = told([idle("i", cpu=64), idle("j", cpu=64)], [wanted])
    assert whys(explanation) == {Why.NOT_USEFUL: 1}


def test_lost_because_a_domain_is_too_small() -> None:
    lines = [*several(2, idle, "a", rack="r1"), *several(2, idle, "b", rack="r2")]
    explanation = told(lines, [need("c", 3, same=RACK, group="g")])
    assert explanation.verdict.reason is UnmetReason.TOPOLOGY_UNSATISFIABLE
    assert whys(explanation) == {Why.DOMAIN_TOO_SMALL: 2}
    assert {(lost.domain, lost.count) for lost in explanation.lost} == {("r2", 2)}


def test_lost_because_of_the_spread() -> None:
    lines = [idle("a", zone="a"), *several(4, idle, "b", zone="b")]
    explanation = told(lines, [need("c", 5, spread=(ZONE, 1))])
    assert whys(explanation) == {Why.SPREAD: 2}


def test_lost_because_of_taints_requirements_and_size() -> None:
    lines = [
        idle("t", zone="a", taints=[Taint("team", "x", "NoSchedule")]),
        idle("r", zone="b"),
        idle("s", zone="a", gpu=4),
    ]
    explanation = told(lines, [need("c", 1, where=[Requirement(ZONE, Operator.IN, ("a",))])])
    assert {(lost.why, lost.detail) for lost in explanation.lost} == {
        (Why.TAINT, "team"),
        (Why.REQUIREMENT, ZONE),
        (Why.TOO_SMALL, "nvidia.com/gpu"),
    }


def test_lost_to_what_the_cluster_runs_on_every_node() -> None:
    wanted = need("c", 1, cpu=15.5)
    engine = Engine()
    asked = DemandBatch([rollup("c", wanted, overhead={"cpu": 1000})], [])
    engine.step(batch([idle("i", cpu=16), idle("j", cpu=8)]), asked, Policy(), START, Conditions())
    lost = engine.explain(key_of(wanted)).lost
    assert {(each.why, each.detail) for each in lost} == {
        (Why.OVERHEAD, "15.5 vCPU of 16 vCPU less 1 vCPU"),
        (Why.TOO_SMALL, "cpu"),
    }


def test_lost_because_it_rests_or_its_offer_is_closed() -> None:
    lines = [idle("n", not_before=START + 60 * SECOND), slot("s", type="t", capacity=ON_DEMAND)]
    closed = (Breaker("p", "t", "a", ON_DEMAND, START + SECOND),)
    assert whys(told(lines, [need("c", 2)], breakers=closed)) == {Why.NOT_BEFORE: 1, Why.BREAKER: 1}


def test_lost_because_it_is_in_flight_or_has_failed() -> None:
    lines = [machine("n", CREATING, "d"), machine("f", FAILED, zone="c")]
    assert whys(told(lines, [need("c", 3)])) == {Why.IN_FLIGHT: 1, Why.FAILED: 1}


def test_lost_draining_machines_to_whom_they_are_promised() -> None:
    high, low = need("h", 1, priority=9), need("l", 1, priority=1)
    assert whys(told([machine("d", DRAINING, "x")], [high, low], 1)) == {Why.DRAINING: 1}


def test_lost_victims_of_another_need() -> None:
    low, middle, high = (need(name, 1, priority=p) for name, p in (("l", 1), ("m", 5), ("h", 9)))
    (lost,) = told([bound("b", "l", stamp=stamp_of(low))], [low, middle, high], 1).lost
    assert (lost.why, lost.winner) == (Why.PREEMPTED_FOR_ANOTHER, key_of(high))


def test_a_later_group_is_told_that_every_domain_is_too_small() -> None:
    """The first of two gangs takes the rack that holds one; what is left is one machine too few."""
    lines = [*several(2, idle, "a", rack="r1"), idle("b", rack="r2")]
    first, second = need("a", 2, same=RACK, group="g"), need("b", 2, same=RACK, group="g")
    assert whys(told(lines, [first, second], 1)) == {Why.DOMAIN_TOO_SMALL: 2}


def test_lost_while_a_group_is_parked() -> None:
    engine, wanted = Engine(), need("c", 3, same=RACK, group="g")
    policy = Policy(park_after_cycles=1)
    engine.step(batch(several(2, slot, "s", rack="r", not_before=START + SECOND)), demand(wanted), policy, START)
    engine.step(batch([slot("t", rack="r")]), None, policy, START + 20 * SECOND)
    explanation = engine.explain(key_of(wanted), ())
    assert explanation.verdict.parked
    assert whys(explanation) == {Why.PARKED: 3}


def test_lost_because_rails_or_the_link_hold_it_back() -> None:
    assert whys(told([idle("i")], [need("c", 1)], acquire=False)) == {Why.ACQUISITION_HELD: 1}
    assert whys(told([idle("i")], [need("c", 1)], away=["c"])) == {Why.CLUSTER_DISCONNECTED: 1}
    low, high = need("low", 1, priority=1), need("high", 1, priority=9)
    held = told([bound("b", "low", stamp=stamp_of(low))], [low, high], 1, preempt=False)
    assert whys(held) == {Why.PREEMPTION_HELD: 1}


def test_lost_excess_that_its_stamp_protects() -> None:
    kept = need("other", 1, priority=9)
    explanation = told([bound("b", "other", stamp=stamp_of(kept))], [need("c", 1, priority=5)], reclaim=False)
    (lost,) = explanation.lost
    assert (lost.why, lost.winner, lost.winner_cluster, lost.winner_priority) == (
        Why.EXCESS_ELSEWHERE,
        None,
        "other",
        9,
    )


# What would help


def test_more_supply_says_what_where_and_how_many() -> None:
    explanation = told(several(2, idle, "i", zone="b", price=2.0), [need("c", 5)])
    remedy = explanation.remedy
    assert isinstance(remedy, MoreSupply)
    assert (remedy.shape.instance_type, remedy.domain_key, remedy.domain, remedy.count) == (
        "a3-highgpu-8g",
        ZONE,
        "b",
        3,
    )


def test_more_supply_for_a_group_names_its_domain() -> None:
    lines = [*several(3, idle, "a", rack="r1"), *several(2, idle, "b", rack="r2")]
    remedy = told(lines, [need("c", 5, same=RACK, group="g")]).remedy
    assert isinstance(remedy, MoreSupply)
    assert (remedy.domain_key, remedy.domain, remedy.count) == (RACK, "r1", 2)


def test_more_supply_counts_what_needs_before_it_would_take() -> None:
    high, low = need("high", 3, priority=9), need("low", 1, priority=1)
    remedy = told([idle("i")], [high, low], 1).remedy
    assert isinstance(remedy, MoreSupply)
    assert remedy.count == 3


def test_more_supply_moves_a_known_kind_where_the_need_wants_it() -> None:
    remedy = told([idle("i", zone="a")], [need("c", 1, where=[Requirement(ZONE, Operator.IN, ("z",))])]).remedy
    assert isinstance(remedy, MoreSupply)
    assert (remedy.shape.zone, remedy.domain, remedy.count) == ("z", "z", 1)


def test_more_supply_for_a_spread_is_the_fewest_that_help() -> None:
    """One machine more in zone a lets the spread take one more of zone b too: two are missing, one is enough."""
    lines = [idle("a", zone="a"), *several(4, idle, "b", zone="b")]
    explanation = told(lines, [need("c", 5, spread=(ZONE, 1))])
    assert sum(each.count for each in explanation.granted) == 3
    remedy = explanation.remedy
    assert isinstance(remedy, MoreSupply)
    assert (remedy.domain_key, remedy.domain, remedy.count) == (ZONE, "a", 1)


def test_names_that_no_machine_has_are_told_by_name() -> None:
    """Free machines are near misses, and what they lack is what the need names."""
    odd = need("c", 2, cpu=1, **{"a.example/odd": 3, "z.example/odder": 1})
    explanation = told([idle("i", cpu=4), idle("j", cpu=4)], [need("c", 1, cpu=4), odd], 1)
    assert explanation.verdict.reason is UnmetReason.RESOURCE_NOT_PUBLISHED
    assert explanation.verdict.deficit.names() >= {"a.example/odd", "z.example/odder"}
    assert [(each.why, each.detail) for each in explanation.lost] == [(Why.TOO_SMALL, "a.example/odd,z.example/odder")]
    assert explanation.remedy is None and explanation.exhausted


def test_more_supply_may_be_more_than_65536_machines() -> None:
    remedy = told([idle("i")], [need("c", 80_001)]).remedy
    assert isinstance(remedy, MoreSupply)
    assert remedy.count == 80_000


def test_more_machines_than_can_be_tried_is_giving_up_and_not_nothing_helps() -> None:
    explanation = told([idle("i")], [need("c", 10**9)], kinds=SUPPLY)
    assert (explanation.remedy, explanation.exhausted) == (None, False)


def test_a_search_that_runs_out_leaves_trials_to_the_other_kinds_of_changes() -> None:
    """One zone is full of machines and nineteen are poor: more of them in one zone never help, dropping the spread
    does."""
    lines = several(30, idle, "rich", zone="z00") + [idle(f"poor{z}", zone=f"z{z:02}") for z in range(1, 20)]
    wanted = need("c", 45, spread=(ZONE, 1))
    assert told(lines, [wanted]).remedy == WithoutConstraint(f"{ZONE}:1:1;")
    supply = told(lines, [wanted], kinds=SUPPLY)
    assert (supply.remedy, supply.exhausted) == (None, False)


def test_a_higher_priority_says_above_whose() -> None:
    high, middle, low = (need(name, 1, priority=p) for name, p in (("h", 9), ("m", 5), ("l", 1)))
    lines = [bound("b", "h", stamp=stamp_of(high)), bound("d", "m", stamp=stamp_of(middle))]
    explanation = told(lines, [high, middle, low], 2, PRIORITY)
    assert explanation.remedy == HigherPriority(5)


def test_dropping_a_constraint_names_it() -> None:
    picky = need("c", 1, where=[Requirement(ZONE, Operator.EXISTS), Requirement(INSTANCE_TYPE, Operator.IN, ("none",))])
    explanation = told([idle("i")], [picky])
    assert explanation.remedy == WithoutConstraint(f"{INSTANCE_TYPE}:1:none;")


def test_dropping_same_or_the_spread() -> None:
    lines = [*several(2, idle, "a", rack="r1", zone="a"), *several(2, idle, "b", rack="r2", zone="b")]
    apart = told(lines, [need("c", 4, same=RACK, group="g")], kinds=CONSTRAINT)
    assert apart.remedy == WithoutConstraint(f"{RACK}:5:;")
    lines = [idle("a", zone="a"), *several(4, idle, "b", zone="b")]
    lopsided = told(lines, [need("c", 5, spread=(ZONE, 1))], kinds=CONSTRAINT)
    assert lopsided.remedy == WithoutConstraint(f"{ZONE}:1:1;")


def test_nothing_helps_a_cluster_that_is_away() -> None:
    explanation = told([idle("i")], [need("c", 1)], away=["c"])
    assert explanation.remedy is None
    assert explanation.exhausted


def test_trials_are_limited_and_say_so() -> None:
    engine = Engine()
    wanted = need("c", 1)
    engine.step(batch(several(1, idle, "i", gpu=4)), demand(wanted), Policy(), START)
    explanation = engine.explain(key_of(wanted), PRIORITY, trials=0)
    assert (explanation.remedy, explanation.exhausted, explanation.trials) == (None, False, 0)


def test_a_parked_group_is_judged_at_its_next_probe() -> None:
    engine, wanted = Engine(), need("c", 3, same=RACK, group="g")
    policy = Policy(park_after_cycles=1, reprobe_every_cycles=4)
    engine.step(batch(several(2, bound, "b", "c", rack="r")), demand(wanted), policy, START)
    engine.step(batch([idle("x", rack="q", gpu=1)]), None, policy, START + 20 * SECOND)
    explanation = engine.explain(key_of(wanted))
    assert explanation.verdict.parked
    assert explanation.remedy_at == START + 40 * SECOND
    assert isinstance(explanation.remedy, MoreSupply)


# Nobody listens, somebody does


def test_explaining_leaves_the_engine_alone() -> None:
    engine, wanted = Engine(), need("c", 5)
    before = engine.step(batch(several(2, idle, "i")), demand(wanted), Policy(), START)
    rows = before.actions.rows()
    engine.explain(key_of(wanted))
    assert before.actions.rows() == rows
    assert engine.step(None, None, Policy(), START).actions.rows() == rows


def columns_of(value: Any, seen: dict[int, Any], found: set[int]) -> set[int]:
    """Addresses of every array that can be reached, leaving out what the last step returned."""
    if id(value) in seen or (isinstance(value, (str, int, float, StepResult)) and not isinstance(value, View)):
        return found
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        found |= {value.__array_interface__["data"][0]} if value.size else set()
    elif isinstance(value, dict):
        for each in value.values():
            columns_of(each, seen, found)
    elif isinstance(value, (list, tuple, set, View)):
        for each in value:
            columns_of(each, seen, found)
    elif type(value).__module__.startswith("bigfleet.engine") and hasattr(value, "__dict__"):
        columns_of(vars(value), seen, found)
    return found


def test_a_copy_shares_no_column_and_decides_the_same() -> None:
    engine, wanted = Engine(), need("c", 5, priority=3, spread=(ZONE, 1))
    low = need("low", 2, priority=1, same=RACK, group="g")
    lines = [*several(3, idle, "i", zone="b"), *several(2, bound, "b", "low", rack="r", stamp=stamp_of(low))]
    first = engine.step(batch(lines), demand(wanted, low), Policy(), START)
    rows = (first.actions.rows(), first.verdicts.rows(), first.shortfalls.rows())
    other = engine.copy()
    assert len(columns_of(engine, {}, set())) > 100
    assert not columns_of(engine, {}, set()) & columns_of(other, {}, set())
    again = other.step(None, None, Policy(), START)
    assert (again.actions.rows(), again.verdicts.rows(), again.shortfalls.rows()) == rows
    other.step(batch(removed("i0", "i1", "b0")), demand(empty=["c", "low"]), Policy(), START)
    assert (first.actions.rows(), first.verdicts.rows(), first.shortfalls.rows()) == rows


def test_a_reporter_hears_who_lost_what() -> None:
    engine, heard = Engine(), {}
    engine.reporter = LossReporter(engine, lambda key, lost: heard.update({key: lost}))
    high, low = need("high", 1, priority=9), need("low", 1, priority=1)
    engine.step(batch([idle("i")]), demand(high, low), Policy(), START)
    assert [(key.cluster, [each.why for each in lost]) for key, lost in heard.items()] == [("low", [Why.PRIORITY])]
