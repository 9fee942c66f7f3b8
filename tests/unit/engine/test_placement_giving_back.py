"""Clusters that report placement lose what is empty, are preempted by what runs there, and are consolidated gently
(engine.md §14, §15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bigfleet.engine.batches import DemandBatch, Stamp
from bigfleet.engine.placement import Backoff, Move, Rest, RestKind
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind, NeedKey, Reason, UnmetReason
from tests.oracle.implementations import BOTH
from tests.strategies.builders import (
    DRAINING,
    IDLE,
    ON_DEMAND,
    RACK,
    RESERVED,
    SECOND,
    SPOT,
    START,
    ZONE,
    bound,
    idle,
    machine,
    need,
    rollup,
    several,
    slot,
)
from tests.strategies.placed import Steps, counted, did, node, pods, reports, verdict

B, P, R, X = ActionKind.BOOTSTRAP, ActionKind.PROVISION, ActionKind.RECLAIM, ActionKind.PREEMPT
CLOSE, REOPEN = ActionKind.CLOSE, ActionKind.REOPEN
FACTS: dict[str, Any] = {"capacity": ON_DEMAND, "cpu": 8, "mem": 32, "price": 0.4}
MINUTE = 60


def seen_again(*clusters: str, version: int = 1) -> DemandBatch:
    return DemandBatch(confirmed=[(name, version) for name in clusters or ("c",)])


# Reclaim


@BOTH
def test_only_empty_nodes_are_reclaimed_and_only_after_their_hold(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 2, running=2, cpu=1, mem=1)
    here = several(3, bound, "n", "c", **FACTS)
    shown = [node("n0", cpu=1, mem=1), node("n1", empty=True), node("n2", cpu=1, mem=1)]
    assert steps(here, rows=[row], nodes=shown).actions == []
    assert steps(demand=seen_again(), after=119).actions == []
    result = steps(demand=seen_again(), after=1)
    assert [(a.kind, a.machine, a.reason, a.voluntary) for a in result.actions] == [(R, "n1", Reason.EXCESS, True)]


@BOTH
def test_an_empty_node_is_held_for_a_boot_whatever_its_pods_were_worth(make: Any) -> None:
    """Nobody loses it: what moving those pods would have cost is no reason to pay for it."""
    steps = Steps(make, boot_ns=300 * SECOND)
    kept = bound("n", "c", **FACTS, stamp=Stamp(reclamation_dollars=64.0))
    steps(kept, rows=[], nodes=[node("n", empty=True)])
    assert steps(demand=seen_again(), after=299).actions == []
    assert did(steps(demand=seen_again(), after=1), R) == ["n"]


@BOTH
def test_a_cluster_that_is_not_believed_gives_nothing_back_until_it_is(make: Any) -> None:
    """Its two units run on two nodes it has and are called stranded: the third, empty, would be bought back."""
    steps = Steps(make)
    row = pods("c", 2, running=2, cpu=8, mem=1)
    here = several(3, bound, "n", "c", **FACTS)
    shown = [node("n0", cpu=8, mem=1), node("n1", cpu=8, mem=1), node("n2", empty=True)]
    steps(here, rows=[row], nodes=shown)
    nonsense = row.now(running=0, stranded=2)
    doubted = steps(rows=[nonsense], after=200, version=2)
    assert doubted.actions == []
    assert list(doubted.doubted) == ["c"]
    sense = steps(rows=[row], after=10, version=3)
    assert did(sense, R) == ["n2"]
    assert list(sense.doubted) == []


@BOTH
def test_a_run_of_emptiness_is_broken_when_the_cluster_is_not_heard(make: Any) -> None:
    steps = Steps(make)
    steps(bound("n", "c", **FACTS), rows=[], nodes=[node("n", empty=True)])
    steps(after=31)
    assert steps(demand=seen_again(), after=100).actions == []
    assert did(steps(demand=seen_again(), after=120), R) == ["n"]


@BOTH
def test_owned_nodes_go_after_the_shortest_hold(make: Any) -> None:
    steps = Steps(make, boot_ns=900 * SECOND)
    own = bound("own", "c", capacity=RESERVED, cpu=8, mem=8, price=9, stamp=Stamp(reclamation_dollars=64.0))
    steps(own, bound("n", "c", **FACTS), rows=[], nodes=[node("own", empty=True), node("n", empty=True)])
    assert did(steps(demand=seen_again(), after=120), R) == ["own"]


@BOTH
def test_a_node_that_no_roll_up_has_seen_is_not_reclaimed(make: Any) -> None:
    steps = Steps(make)
    steps(bound("n", "c", **FACTS), rows=[], nodes=[node("n", empty=True, version=9)], version=3)
    assert steps(demand=seen_again(version=8), after=200).actions == []


@BOTH
def test_a_refused_node_rests(make: Any) -> None:
    steps = Steps(make)
    steps(bound("n", "c", **FACTS), rows=[], nodes=[node("n", empty=True)])
    rest = (Rest("n", RestKind.DRAIN, START + 300 * SECOND),)
    assert did(steps(demand=seen_again(), after=120, rests=rest), R) == []
    assert did(steps(demand=seen_again(), after=180, rests=rest), R) == ["n"]


@BOTH
def test_reclaims_are_capped_per_cluster_dearest_first(make: Any) -> None:
    steps = Steps(make, Policy(reclaim_cap_fraction=0.05))
    here = [bound(f"n{n}", "c", **(FACTS | {"price": 0.1 * (n + 1)})) for n in range(3)]
    steps(here, rows=[], nodes=[node(f"n{n}", empty=True) for n in range(3)])
    result = steps(demand=seen_again(), after=120)
    assert (did(result, R), result.capped) == (["n2"], 2)


@BOTH
def test_a_change_of_mode_holds_reclaims(make: Any) -> None:
    steps = Steps(make)
    here = bound("n", "c", **FACTS)
    steps(here, sums=[need("c", 1, cpu=8, mem=1)])
    steps(rows=[], nodes=[node("n", empty=True)], after=10)
    assert did(steps(demand=seen_again(), after=599), R) == []
    steps(demand=seen_again(), after=1)
    assert did(steps(demand=seen_again(), after=120), R) == ["n"]


@BOTH
def test_a_machine_that_never_becomes_ready_is_drained(make: Any) -> None:
    steps = Steps(make)
    steps(bound("n", "c", **FACTS), rows=[], deadlines={"n": START + 600 * SECOND})
    assert steps(demand=seen_again(), after=599).actions == []
    result = steps(demand=seen_again(), after=1)
    assert [(a.machine, a.reason, a.voluntary) for a in result.actions] == [("n", Reason.NEVER_READY, False)]


# Preempt


@BOTH
def test_victims_are_judged_by_what_runs_there(make: Any) -> None:
    stamp = Stamp(priority=5)
    theirs = [bound(f"v{n}", "d", **FACTS, stamp=stamp) for n in range(3)]
    shown = [node("v0", priority=50, cpu=8, mem=1), node("v1", priority=1, cpu=8, mem=1), node("v2", empty=True)]
    row = pods("c", 2, cpu=8, mem=1, priority=100)
    other = pods("d", 2, running=2, cpu=8, mem=1)
    rollups = [counted("c", row), counted("d", other)]
    result = Steps(make)(theirs, demand=DemandBatch(rollups=rollups, reports=[reports("d", *shown)]))
    # The empty one has just come: whom it was bought for counts.
    assert did(result, X) == ["v1", "v2"]
    assert verdict(result, row).reason == UnmetReason.AWAITING_DRAIN


def wanted_by_less(steps: Steps) -> Any:
    """An empty node `v` that came for a priority of 1000, and one of 10 that lacks such a machine. It tells sums: they
    never take what is empty instead of buying, so that preemption is what looks."""
    theirs = bound("v", "d", **FACTS, stamp=Stamp(priority=1000))
    wanted = need("c", cpu=8, mem=1, priority=10)
    first = DemandBatch(rollups=[counted("d"), rollup("c", wanted)], reports=[reports("d", node("v", empty=True))])
    return steps(theirs, demand=first)


@BOTH
def test_a_node_that_has_just_become_ready_is_not_lost_to_a_lower_priority(make: Any) -> None:
    """Its pods are on their way. After a boot it is empty for all, and its operator may still refuse."""
    steps = Steps(make)
    assert wanted_by_less(steps).actions == []
    assert steps(demand=seen_again("d"), after=110).actions == []
    late = steps(demand=seen_again("d"), after=10)
    assert [(a.machine, a.reason, a.voluntary) for a in late.actions if a.kind == X] == [("v", Reason.EMPTY, True)]


@BOTH
def test_a_node_whose_drain_was_refused_is_judged_by_whom_it_was_bought_for(make: Any) -> None:
    steps = Steps(make)
    assert wanted_by_less(steps).actions == []
    rests = (Rest("v", RestKind.DRAIN, START + 1000 * SECOND),)
    assert steps(demand=seen_again("d"), after=120, rests=rests).actions == []


@BOTH
def test_a_node_whose_pods_matter_as_much_is_no_victim_whatever_its_stamp_says(make: Any) -> None:
    theirs = bound("v", "d", **FACTS, stamp=Stamp(priority=1))
    row = pods("c", 1, cpu=8, mem=1, priority=100)
    shown = node("v", priority=100, cpu=8, mem=1)
    rollups = [counted("c", row), counted("d", pods("d", 1, running=1, cpu=8, mem=1, priority=100))]
    result = Steps(make)(theirs, demand=DemandBatch(rollups=rollups, reports=[reports("d", shown)]))
    assert result.actions == []


@BOTH
def test_pinned_nodes_are_victims_last(make: Any) -> None:
    theirs = [bound(f"v{n}", "d", **FACTS) for n in range(2)]
    shown = [node("v0", pinned=True, priority=1, cpu=8, mem=1), node("v1", priority=1, cpu=8, mem=1)]
    row = pods("c", 1, cpu=8, mem=1, priority=100)
    rollups = [counted("c", row), counted("d", pods("d", 2, running=2, cpu=8, mem=1))]
    result = Steps(make)(theirs, demand=DemandBatch(rollups=rollups, reports=[reports("d", *shown)]))
    assert did(result, X) == ["v1"]


@BOTH
def test_a_victim_counts_as_empty_and_serves_several_units(make: Any) -> None:
    theirs = [bound(f"v{n}", "d", **FACTS) for n in range(3)]
    shown = [node(f"v{n}", priority=1, cpu=8, mem=1) for n in range(3)]
    first, second = pods("c", 1, cpu=4, mem=1, priority=100), pods("c", 2, cpu=2, mem=1, priority=90)
    rollups = [counted("c", first, second), counted("d", pods("d", 3, running=3, cpu=8, mem=1))]
    result = Steps(make)(theirs, demand=DemandBatch(rollups=rollups, reports=[reports("d", *shown)]))
    assert did(result, X) == ["v0"]
    assert verdict(result, second).units.awaiting == 2


@BOTH
def test_draining_machines_answer_before_victims(make: Any) -> None:
    draining = machine("gone", DRAINING, "d", **FACTS)
    theirs = bound("v", "d", **FACTS)
    row = pods("c", 1, cpu=8, mem=1, priority=100)
    rollups = [counted("c", row), counted("d", pods("d", 1, running=1, cpu=8, mem=1))]
    shown = reports("d", node("v", priority=1, cpu=8, mem=1))
    result = Steps(make)(draining, theirs, demand=DemandBatch(rollups=rollups, reports=[shown]))
    assert result.actions == []
    assert verdict(result, row).units.awaiting == 1


@BOTH
def test_a_gang_preempts_all_it_lacks_or_nothing(make: Any) -> None:
    gang = pods("c", 2, cpu=8, mem=1, priority=100, same=RACK, group="g")

    def fleet(racks: str) -> Any:
        theirs = [bound(f"v{n}", "d", rack=rack, **FACTS) for n, rack in enumerate(racks.split())]
        shown = [node(f"v{n}", priority=1, cpu=8, mem=1) for n in range(len(theirs))]
        rollups = [counted("c", gang), counted("d", pods("d", 9, running=9, cpu=8, mem=1))]
        return Steps(make)(theirs, demand=DemandBatch(rollups=rollups, reports=[reports("d", *shown)]))

    assert did(fleet("r1 r2 r2"), X) == ["v1", "v2"]
    assert did(fleet("r1 r2 r3"), X) == []


@BOTH
def test_a_gang_completes_free_machines_with_victims_in_one_rack(make: Any) -> None:
    gang = pods("c", 2, cpu=8, mem=1, priority=100, same=RACK, group="g")
    theirs = bound("v", "d", rack="r1", **FACTS)
    rollups = [counted("c", gang), counted("d", pods("d", 1, running=1, cpu=8, mem=1))]
    shown = reports("d", node("v", priority=1, cpu=8, mem=1))
    free = idle("i", rack="r1", **FACTS)
    result = Steps(make)(theirs, free, demand=DemandBatch(rollups=rollups, reports=[shown]))
    assert (did(result, B), did(result, X)) == (["i"], ["v"])


def _gang_chooses(make: Any, *racks: tuple[str, list[Any]]) -> list[str]:
    """Whom a gang of two evicts: by rack the priorities of what runs there, None for a machine that lies Idle."""
    gang = pods("c", 2, cpu=8, mem=1, priority=2000, same=RACK, group="g")
    lines, shown = [], []
    for rack, priorities in racks:
        for n, priority in enumerate(priorities):
            id = f"{rack}-{n}"
            if priority is None:
                lines.append(idle(id, rack=rack, **FACTS))
            else:
                lines.append(bound(id, "d", rack=rack, **FACTS))
                shown.append(node(id, priority=priority, cpu=8, mem=1))
    rollups = [counted("c", gang), counted("d", pods("d", 9, running=9, cpu=8, mem=1))]
    return did(Steps(make)(lines, demand=DemandBatch(rollups=rollups, reports=[reports("d", *shown)])), X)


@BOTH
def test_a_gang_evicts_the_rack_of_the_lowest_priority(make: Any) -> None:
    """Not the first by name: the gang of 1000 there would evict the other rack in its turn."""
    assert _gang_chooses(make, ("r0", [1000, 1000]), ("r1", [0, 0])) == ["r1-0", "r1-1"]
    assert _gang_chooses(make, ("r0", [0, 1000]), ("r1", [500, 500])) == ["r1-0", "r1-1"]
    assert _gang_chooses(make, ("r0", [-(2**31), 7]), ("r1", [7, 7])) == ["r0-0", "r0-1"]


@BOTH
def test_a_gang_evicts_the_fewest_of_one_priority(make: Any) -> None:
    assert _gang_chooses(make, ("r0", [500, 500]), ("r1", [500, None])) == ["r1-0"]
    assert _gang_chooses(make, ("r0", [0, 0]), ("r1", [500, None])) == ["r0-0", "r0-1"]


@BOTH
def test_a_machine_that_was_freed_for_a_gang_does_not_go_back_to_whom_it_was_taken_from(make: Any) -> None:
    """The gang's other machines still drain: it takes what is free already, and nobody is preempted once more."""
    gang = pods("c", 3, cpu=8, mem=1, priority=100, same=RACK, group="g")
    batch = pods("d", 9, running=2, cpu=8, mem=1, priority=1)
    freed = idle("f", rack="r1", **FACTS)
    going = [machine(f"g{n}", DRAINING, "d", rack="r1", **FACTS) for n in range(2)]
    others = [bound(f"v{n}", "d", rack="r2", **FACTS) for n in range(3)]
    shown = [node(f"v{n}", priority=1, cpu=8, mem=1) for n in range(3)]
    shown += [node(f"g{n}", priority=1, cpu=8, mem=1) for n in range(2)]
    rollups = [counted("c", gang), counted("d", batch)]
    result = Steps(make)(freed, going, others, demand=DemandBatch(rollups=rollups, reports=[reports("d", *shown)]))
    assert [(a.kind, a.machine, a.cluster) for a in result.actions] == [(B, "f", "c")]
    assert (verdict(result, gang).units.acquired, verdict(result, gang).units.awaiting) == (1, 2)
    assert verdict(result, gang).domain == "r1"


@BOTH
def test_a_gang_does_not_take_what_drains_while_somebody_before_it_lacks_room(make: Any) -> None:
    first = pods("e", 2, cpu=8, mem=1, priority=1000)
    gang = pods("c", 3, cpu=8, mem=1, priority=100, same=RACK, group="g")
    going = [machine(f"g{n}", DRAINING, "d", rack="r1", **FACTS) for n in range(2)]
    free = idle("f", rack="r1", **FACTS)
    rollups = [counted("e", first), counted("c", gang), counted("d", pods("d", 9, cpu=8, mem=1, priority=1))]
    result = Steps(make)(free, going, demand=DemandBatch(rollups=rollups))
    assert [(a.kind, a.machine, a.cluster) for a in result.actions] == [(B, "f", "e")]
    assert verdict(result, first).units.awaiting == 1


@BOTH
def test_victims_of_a_spread_obey_the_skew(make: Any) -> None:
    row = pods("c", 4, cpu=8, mem=1, priority=100, spread=(ZONE, 1))
    theirs = [
        bound(f"{zone}{n}", "d", zone=zone, **FACTS) for zone, count in (("a", 3), ("b", 1)) for n in range(count)
    ]
    shown = [node(line.id, priority=1, cpu=8, mem=1) for line in theirs]
    rollups = [counted("c", row), counted("d", pods("d", 9, running=9, cpu=8, mem=1))]
    result = Steps(make)(theirs, demand=DemandBatch(rollups=rollups, reports=[reports("d", *shown)]))
    assert sorted(did(result, X)) == ["a0", "a1", "b0"]


@BOTH
def test_sums_judge_victims_of_reporting_clusters_by_their_reports_too(make: Any) -> None:
    theirs = [bound(f"v{n}", "d", **FACTS, stamp=Stamp(priority=1)) for n in range(2)]
    shown = [node("v0", priority=500, cpu=8, mem=1), node("v1", priority=1, cpu=8, mem=1)]
    steps = Steps(make)
    steps(theirs, cluster="d", rows=[pods("d", 2, running=2, cpu=8, mem=1)], nodes=shown)
    result = steps(sums=[need("sums", 2, cpu=8, mem=1, priority=100)], after=1)
    assert did(result, X) == ["v1"]


# Closing, reopening, moves


def low(line: Any, name: str, **facts: Any) -> Any:
    """A node that carries one small pod of the row."""
    return node(name, profiles=[line.row.profile.fingerprint], **({"cpu": 1, "mem": 4} | facts))


@BOTH
def test_nothing_is_closed_or_moved_unless_it_is_switched_on(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=1, mem=4)
    steps = Steps(make, settle_ns=0)
    small = slot("s", capacity=ON_DEMAND, cpu=2, mem=8, price=0.1)
    assert steps(bound("n", "c", **FACTS), small, rows=[row], nodes=[low(row, "n")]).actions == []


@BOTH
def test_a_node_is_closed_when_other_room_saves_enough(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=1, mem=4)
    for price, closes in ((0.29, ["n"]), (0.31, [])):
        steps = Steps(make, consolidate=True, settle_ns=0)
        small = slot("s", capacity=ON_DEMAND, cpu=2, mem=8, price=price)
        result = steps(bound("n", "c", **FACTS), small, rows=[row], nodes=[low(row, "n")])
        assert did(result, CLOSE) == closes


@BOTH
def test_nodes_are_closed_with_whom_they_would_share_a_machine_and_nobody_twice(make: Any) -> None:
    """Each of three would share a machine with the one that carries little, and none with another of the three: only
    one of them can, so that the others would be closed for nothing, for ever."""
    row = pods("c", 4, running=4, cpu=1, mem=4)
    here = [bound(name, "c", **FACTS) for name in ("little", "n0", "n1", "n2")]
    shown = [low(row, "little", cpu=3, mem=12), *(low(row, f"n{n}", cpu=5, mem=20) for n in range(3))]
    steps = Steps(make, consolidate=True, settle_ns=0, closing_fraction=1.0)
    result = steps(here, several(4, slot, "s", **FACTS), rows=[row], nodes=shown)
    assert did(result, CLOSE) == ["little", "n0"]
    closing = [replace(report, closing_since=START) for report in shown[:2]]
    assert did(steps(rows=[row], nodes=closing, after=30), CLOSE) == []


@BOTH
@pytest.mark.parametrize(("cluster", "closes"), [("c", []), ("other", ["n"])])
def test_no_room_is_looked_for_in_a_kind_that_is_backed_off(make: Any, cluster: str, closes: list[str]) -> None:
    """Whichever row it was that such machines did not help: a node must not give way to one of them."""
    row = pods("c", 1, running=1, cpu=1, mem=4)
    key = NeedKey(cluster, "another", "", "cpu=1")
    steps = Steps(make, consolidate=True, settle_ns=0)
    small = slot("s", type="small", capacity=ON_DEMAND, cpu=2, mem=8, price=0.1)
    off = (Backoff(cluster, "p", "small", "a", ON_DEMAND, START + SECOND, key),)
    result = steps(bound("n", "c", **FACTS), small, rows=[row], nodes=[low(row, "n")], backoffs=off)
    assert did(result, CLOSE) == closes


@BOTH
def test_a_removable_node_is_closed_worst_first_within_the_fraction(make: Any) -> None:
    row = pods("c", 10, running=10, cpu=1, mem=4)
    here = [bound(f"n{n}", "c", **FACTS) for n in range(10)]
    shown = [low(row, f"n{n}", removable=True, cpu=1 + n % 5, mem=1) for n in range(10)]
    result = Steps(make, consolidate=True, settle_ns=0)(here, rows=[row], nodes=shown)
    assert did(result, CLOSE) == ["n0"]
    wider = Steps(make, consolidate=True, settle_ns=0, closing_fraction=0.35)(here, rows=[row], nodes=shown)
    assert did(wider, CLOSE) == ["n0", "n5", "n1"]


@BOTH
@pytest.mark.parametrize(
    ("facts", "rests"),
    [
        ({"pinned": True}, ()),
        ({"groups": ["g"]}, ()),
        ({"profiles": ["nobody's"]}, ()),
        ({"profiles": []}, ()),
        ({}, (Rest("n", RestKind.CLOSE, START + SECOND),)),
        ({"cpu": 7, "mem": 28}, ()),
    ],
)
def test_some_nodes_are_left_alone(make: Any, facts: dict[str, Any], rests: Any) -> None:
    row = pods("c", 1, running=1, cpu=1, mem=4)
    shown = node("n", **({"profiles": [row.row.profile.fingerprint], "cpu": 1, "mem": 4, "removable": True} | facts))
    result = Steps(make, consolidate=True, settle_ns=0)(
        bound("n", "c", **FACTS), rows=[row], nodes=[shown], rests=rests
    )
    assert result.actions == []


@BOTH
def test_nothing_is_closed_while_a_unit_waits(make: Any) -> None:
    row, waits = pods("c", 1, running=1, cpu=1, mem=4), pods("c", 1, cpu=99, mem=4)
    steps = Steps(make, consolidate=True, settle_ns=0)
    assert steps(bound("n", "c", **FACTS), rows=[row, waits], nodes=[low(row, "n", removable=True)]).actions == []


@BOTH
def test_a_young_node_is_not_closed(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=1, mem=4)
    steps = Steps(make, consolidate=True)
    assert did(steps(bound("n", "c", **FACTS), rows=[row], nodes=[low(row, "n", removable=True)]), CLOSE) == []
    assert did(steps(demand=seen_again(), after=600), CLOSE) == ["n"]


@BOTH
def test_a_closing_node_is_reopened_before_anything_is_bought(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 2, running=1, cpu=1, mem=4)
    shown = low(row, "n", closing_since=START - SECOND)
    result = steps(bound("n", "c", **FACTS), slot("s", **FACTS), rows=[row], nodes=[shown])
    assert [(a.kind, a.machine, a.reason) for a in result.actions] == [(REOPEN, "n", Reason.REOPEN)]
    reopened = low(row, "n", version=2**62)
    again = steps(nodes=[reopened], after=1)
    assert again.actions == []
    assert verdict(again, row).units.coming == 1


@BOTH
def test_a_dear_closing_node_is_not_kept_alive_for_one_small_unit(make: Any) -> None:
    """One GPU would keep a machine of eight at twenty times the price of the one that is bought instead."""
    dear = {"capacity": ON_DEMAND, "cpu": 32, "mem": 128, "price": 20.0}
    row = pods("c", 2, running=1, cpu=1, mem=4)
    shown = low(row, "n", closing_since=START - SECOND)
    small = slot("s", capacity=ON_DEMAND, cpu=1, mem=4, price=1.0)
    result = Steps(make)(bound("n", "c", **dear), small, rows=[row], nodes=[shown])
    assert [(a.kind, a.machine) for a in result.actions] == [(P, "s")]
    alone = Steps(make)(bound("n", "c", **dear), rows=[row], nodes=[shown])
    assert did(alone, REOPEN) == ["n"], "where nothing is for sale, what is there serves"
    many = pods("c", 31, running=1, cpu=1, mem=4)
    slots = [slot(f"s{each}", capacity=ON_DEMAND, cpu=1, mem=4, price=1.0) for each in range(40)]
    full = Steps(make)(
        bound("n", "c", **dear), slots, rows=[many], nodes=[low(many, "n", closing_since=START - SECOND)]
    )
    assert [(a.kind, a.machine) for a in full.actions] == [(REOPEN, "n")], "with all of them it is worth its price"


@BOTH
def test_what_stands_on_a_closing_node_counts_when_it_is_weighed(make: Any) -> None:
    facts = {"capacity": ON_DEMAND, "cpu": 8, "mem": 32, "price": 8.0}
    small = slot("s", capacity=ON_DEMAND, cpu=1, mem=4, price=1.0)
    for cpu, expected in ((2, [(P, "s")]), (6, [(REOPEN, "n")])):
        row = pods("c", cpu + 1, running=cpu, cpu=1, mem=4)
        shown = low(row, "n", cpu=cpu, mem=4 * cpu, closing_since=START - SECOND)
        result = Steps(make)(bound("n", "c", **facts), small, rows=[row], nodes=[shown])
        assert [(a.kind, a.machine) for a in result.actions] == expected, cpu


@BOTH
def test_a_closing_node_is_no_room(make: Any) -> None:
    """It counts as reopened, not as there."""
    row = pods("c", 2, running=1, cpu=1, mem=4)
    shown = low(row, "n", closing_since=START - SECOND)
    result = Steps(make)(bound("n", "c", **FACTS), rows=[row], nodes=[shown])
    assert verdict(result, row).units.coming == 0
    assert verdict(result, row).units.acquired == 1


@BOTH
def test_an_emptied_closing_node_goes_after_two_minutes(make: Any) -> None:
    steps = Steps(make)
    steps(bound("n", "c", **FACTS), rows=[], nodes=[node("n", empty=True, closing_since=START)])
    assert did(steps(demand=seen_again(), after=119), R) == []
    assert did(steps(demand=seen_again(), after=1), R) == ["n"]


def closed_for_long(line: Any, name: str, **facts: Any) -> Any:
    return low(line, name, closing_since=START - 20 * MINUTE * SECOND, **facts)


@BOTH
def test_spot_that_returns_takes_over_from_on_demand(make: Any) -> None:
    """Close, move after twenty minutes, drain the old one once the cluster has seen the new one."""
    row = pods("c", 1, running=1, cpu=6, mem=24)
    steps = Steps(make, consolidate=True, settle_ns=0)
    spot: dict[str, Any] = FACTS | {"capacity": SPOT, "price": 0.12, "risk": 0.05}
    first = steps(bound("n", "c", **FACTS), slot("s", **spot), rows=[row], nodes=[low(row, "n", cpu=6, mem=24)])
    assert [(a.kind, a.machine) for a in first.actions] == [(CLOSE, "n")]
    closing = low(row, "n", cpu=6, mem=24, closing_since=START)
    assert steps(nodes=[closing], demand=None, rows=[row], after=600).actions == []
    moved = steps(rows=[row], after=600, evictions=(("c", 1),))
    assert [(a.kind, a.machine, a.replaces, a.reason) for a in moved.actions] == [(P, "s", ("n",), Reason.MOVE)]
    move = Move("c", ("n",), "s", steps.now, steps.now + 600 * SECOND)
    under_way = steps(machine("s", IDLE, **spot), rows=[row], after=30, moves=(move,), evictions=(("c", 1),))
    assert [(a.kind, a.machine, a.replaces) for a in under_way.actions] == [(B, "s", ("n",))]
    ready = [node("s", version=2), closing]
    unseen = steps(bound("s", "c", **spot), rows=[row], nodes=ready, after=30, moves=(move,))
    assert unseen.actions == []
    seen = steps(rows=[row], version=2, after=10, moves=(move,))
    assert [(a.kind, a.machine, a.reason, a.voluntary) for a in seen.actions] == [(R, "n", Reason.MOVE, True)]


@BOTH
def test_bought_gives_way_to_an_owned_machine_that_becomes_free(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=7, mem=30)
    steps = Steps(make, consolidate=True, settle_ns=0, candidate_ratio=1.0)
    own = idle("own", capacity=RESERVED, cpu=8, mem=32, price=0.4)
    shown = closed_for_long(row, "n", cpu=7, mem=30)
    result = steps(bound("n", "c", **FACTS), own, rows=[row], nodes=[shown], evictions=(("c", 1),))
    assert [(a.kind, a.machine, a.replaces) for a in result.actions] == [(B, "own", ("n",))]


@BOTH
def test_several_nodes_give_way_to_one(make: Any) -> None:
    row = pods("c", 3, running=3, cpu=2, mem=4)
    here = [bound(f"n{n}", "c", **FACTS) for n in range(3)]
    shown = [closed_for_long(row, f"n{n}", cpu=2, mem=4) for n in range(3)]
    one = slot("s", capacity=ON_DEMAND, cpu=8, mem=32, price=0.4)
    steps = Steps(make, consolidate=True, settle_ns=0, move_fraction=1.0)
    result = steps(here, one, rows=[row], nodes=shown, evictions=(("c", 3),))
    assert [(a.machine, a.replaces) for a in result.actions] == [("s", ("n0", "n1", "n2"))]


@BOTH
def test_several_nodes_of_a_small_cluster_close_and_give_way_to_one_at_a_time(make: Any) -> None:
    """A share of four nodes is less than one; a pair goes all the same, and the next one when it is done."""
    row = pods("c", 4, running=4, cpu=2, mem=4)
    here = [bound(f"n{n}", "c", **FACTS) for n in range(4)]
    spare = [slot(f"s{n}", capacity=ON_DEMAND, cpu=4, mem=8, price=0.2) for n in range(4)]
    steps = Steps(make, consolidate=True, settle_ns=0, move_size=2)
    shown = [low(row, f"n{n}", cpu=2, mem=4) for n in range(4)]
    assert did(steps(here, spare, rows=[row], nodes=shown), CLOSE) == ["n0", "n1"]
    shown = [closed_for_long(row, f"n{n}", cpu=2, mem=4) for n in range(4)]
    steps = Steps(make, consolidate=True, settle_ns=0, move_size=2)
    result = steps(here, spare, rows=[row], nodes=shown, evictions=(("c", 4),))
    assert [(a.machine, a.replaces) for a in result.actions] == [("s0", ("n0", "n1"))]


@BOTH
@pytest.mark.parametrize(("evictions", "evictable", "closes"), [(0, 0.3, []), (1, 0.3, ["n"]), (0, 0.5, ["n"])])
def test_what_a_cluster_can_never_pay_for_emptying_stays_open(
    make: Any, evictions: int, evictable: float, closes: list[str]
) -> None:
    """Two pods run, one of them on a node that could go; they may ever earn two times `evictable`."""
    row = pods("c", 2, running=2, cpu=1, mem=4)
    steps = Steps(make, consolidate=True, settle_ns=0, evictable=evictable)
    shown = low(row, "n", removable=True)
    result = steps(bound("n", "c", **FACTS), rows=[row], nodes=[shown], evictions=(("c", evictions),))
    assert did(result, CLOSE) == closes


@BOTH
def test_pods_that_exclude_each_other_are_not_moved_together(make: Any) -> None:
    row = pods("c", 2, running=2, cpu=2, mem=4, exclusive=["port"])
    here = [bound(f"n{n}", "c", **FACTS) for n in range(2)]
    shown = [closed_for_long(row, f"n{n}", cpu=2, mem=4, exclusive=["port"]) for n in range(2)]
    one = slot("s", capacity=ON_DEMAND, cpu=8, mem=32, price=0.4)
    steps = Steps(make, consolidate=True, settle_ns=0, move_fraction=1.0)
    assert steps(here, one, rows=[row], nodes=shown, evictions=(("c", 3),)).actions == []


@BOTH
def test_evictions_stay_within_the_budget_and_the_rate(make: Any) -> None:
    row = pods("c", 3, running=3, cpu=1, mem=4)
    here = [bound(f"n{n}", "c", **FACTS) for n in range(3)]
    shown = [closed_for_long(row, f"n{n}", removable=True, pods=2) for n in range(3)]

    def moves(evictions: int, fraction: float, before: Any = ()) -> list[str]:
        steps = Steps(make, consolidate=True, settle_ns=0, move_fraction=fraction)
        return did(steps(here, rows=[row], nodes=shown, evictions=(("c", evictions),), moves=before), R)

    assert moves(0, 1.0) == []
    assert moves(5, 1.0) == ["n0", "n1"]
    assert moves(9, 0.05) == ["n0"]
    earlier = Move("c", ("gone",), "", START - 60 * SECOND, START, ended=True)
    assert moves(9, 0.05, (earlier,)) == []
    assert moves(9, 0.05, (replace(earlier, started=START - 301 * SECOND),)) == ["n0"]


@BOTH
def test_a_move_must_pay_for_its_overlap_and_the_pods_it_evicts(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=1, mem=4)
    cheap = slot("s", capacity=ON_DEMAND, cpu=2, mem=8, price=0.1)

    def moved(reclamation: float, boot: int) -> list[str]:
        steps = Steps(make, consolidate=True, settle_ns=0, boot_ns=boot * SECOND)
        shown = closed_for_long(row, "n", reclamation=reclamation)
        return did(steps(bound("n", "c", **FACTS), cheap, rows=[row], nodes=[shown], evictions=(("c", 1),)), P)

    assert moved(0.005, 120) == ["s"]
    assert moved(0.3, 120) == []
    assert moved(0.2, 3600 * 2) == []


@BOTH
def test_shortage_aborts_a_move_and_its_new_machine_is_an_ordinary_one(make: Any) -> None:
    row = pods("c", 2, running=1, cpu=1, mem=4)
    steps = Steps(make, consolidate=True, settle_ns=0)
    move = Move("c", ("n",), "s", START, START + 600 * SECOND)
    new = idle("s", capacity=ON_DEMAND, cpu=2, mem=8, price=0.1)
    result = steps(bound("n", "c", **FACTS), new, rows=[row], nodes=[low(row, "n")], moves=(move,))
    assert result.aborted == ["n"]
    assert [(a.kind, a.machine, a.need is not None) for a in result.actions] == [(B, "s", True)]


@BOTH
def test_the_new_machine_of_a_move_is_nobody_elses(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=1, mem=4)
    other = pods("d", 1, cpu=1, mem=4, priority=9)
    steps = Steps(make, consolidate=True, settle_ns=0)
    move = Move("c", ("n",), "s", START, START + 600 * SECOND)
    new = idle("s", capacity=ON_DEMAND, cpu=2, mem=8, price=0.1, not_before=START + SECOND)
    demand = DemandBatch(rollups=[counted("c", row), counted("d", other)], reports=[reports("c", low(row, "n"))])
    result = steps(bound("n", "c", **FACTS), new, demand=demand, moves=(move,), preempt=False)
    assert result.actions == []
    assert steps(demand=seen_again("c"), moves=(move,), after=600, preempt=False).aborted == ["n"]


@BOTH
def test_paused_nothing_is_emitted_for_real(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=1, mem=4)
    steps = Steps(make, consolidate=True, settle_ns=0)
    result = steps(bound("n", "c", **FACTS), rows=[row], nodes=[low(row, "n", removable=True)], paused=True)
    assert [(a.kind, int(a.disposition)) for a in result.actions] == [(CLOSE, 1)]


@BOTH
def test_an_owned_machine_is_freed_where_others_buy_and_only_for_room_that_is_there(make: Any) -> None:
    row, own = pods("c", 1, running=1, cpu=1, mem=1), {**FACTS, "capacity": RESERVED}
    cheap = slot("s", **{**FACTS, "cpu": 2, "mem": 4, "price": 0.1})

    def freed(*others: Any, removable: bool = True) -> list[tuple[Any, str]]:
        steps = Steps(make, consolidate=True, settle_ns=0)
        shown = closed_for_long(row, "own", cpu=1, mem=1, removable=removable)
        result = steps(bound("own", "c", **own), *others, rows=[row], nodes=[shown], evictions=(("c", 1),))
        return [(a.kind, a.machine) for a in result.actions]

    bought = bound("n", "d", **FACTS)
    assert freed(bought) == [(R, "own")]
    assert freed() == [], "nobody pays for a machine that it could stand in for"
    assert freed(bought, idle("spare", **own)) == [], "another like it lies idle"
    assert freed(bought, cheap, removable=False) == [], "what is paid for gives way to nothing that is bought"


@BOTH
@pytest.mark.parametrize(
    ("price", "evictions", "moves"),
    [
        (30.0, 0, ["n"]),  # one pod of a few cents holds it, and nobody has earned an eviction
        (30.0, -3, ["n"]),  # the last one that is lent
        (30.0, -4, []),  # all is lent
        (0.9, 0, []),  # it carries more than a twentieth of what it costs
        (0.9, 1, ["n"]),
    ],
)
def test_a_pod_that_holds_a_dear_machine_does_not_wait_for_others_to_grow_old(
    make: Any, price: float, evictions: int, moves: list[str]
) -> None:
    row = pods("c", 2, running=2, cpu=1, mem=4)
    usual = bound("other", "c", **FACTS)
    dear = bound("n", "c", **{**FACTS, "price": price})
    shown = closed_for_long(row, "n", cpu=1, mem=4, removable=True)
    steps = Steps(make, consolidate=True, settle_ns=0, lent_least=4)
    result = steps([usual, dear], rows=[row], nodes=[shown], evictions=(("c", evictions),))
    assert did(result, R) == moves


@BOTH
@pytest.mark.parametrize(
    ("new", "old", "moves"),
    [
        (slot("s", capacity=SPOT, cpu=8, mem=32, price=0.1, risk=0.05), {}, ["s"]),  # spot is back
        (slot("s", capacity=SPOT, cpu=8, mem=32, price=0.1, risk=0.05), {"risk": 0.05}, []),
        (slot("s", capacity=ON_DEMAND, cpu=8, mem=32, price=0.1), {}, []),
        (idle("s", capacity=RESERVED, cpu=8, mem=32, price=0.3), {}, ["s"]),  # one of its own became free
    ],
)
def test_a_change_of_market_is_charged_to_nobody(make: Any, new: Any, old: dict[str, Any], moves: list[str]) -> None:
    """Seven pods on one node, and not one eviction was earned."""
    row = pods("c", 7, running=7, cpu=1, mem=4)
    shown = closed_for_long(row, "n", cpu=7, mem=28, pods=7)
    steps = Steps(make, consolidate=True, settle_ns=0, evictable=0.0)
    result = steps(bound("n", "c", **{**FACTS, **old}), new, rows=[row], nodes=[shown])
    assert [action.machine for action in result.actions] == moves
