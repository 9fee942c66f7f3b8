"""What clusters that report placement are told, in which order things happen, what ends early (§13, §16)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bigfleet.engine.batches import DemandBatch
from bigfleet.engine.placement import Backoff, Move
from bigfleet.engine.policy import Policy, RollupGuard
from bigfleet.engine.results import ActionKind, Reason, UnmetReason
from bigfleet.model.requirement import Operator, Requirement
from tests.oracle.implementations import BOTH
from tests.strategies.builders import DRAINING, ON_DEMAND, RACK, SECOND, START, bound, idle, machine, removed, slot
from tests.strategies.placed import Steps, counted, did, node, pods, reports, verdict

FACTS: dict[str, Any] = {"capacity": ON_DEMAND, "cpu": 8, "mem": 32, "price": 0.4}
B, P, R, X = ActionKind.BOOTSTRAP, ActionKind.PROVISION, ActionKind.RECLAIM, ActionKind.PREEMPT


@BOTH
def test_where_every_unit_is_told_apart(make: Any) -> None:
    row = pods("c", 10, running=3, stranded=5, cpu=8, mem=1)
    coming = machine("k", 2, "c", **FACTS)
    draining = machine("d", 6, "e", **FACTS)
    result = Steps(make)(coming, draining, slot("s", **FACTS), rows=[row])
    told = verdict(result, row).units
    assert (told.count, told.running, told.room, told.stranded) == (10, 3, 2, 5)
    assert (told.coming, told.acquired, told.awaiting, told.missing) == (1, 1, 1, 2)
    [short] = result.shortfalls
    assert (short.units, short.coming, short.deficit.get("cpu")) == (2, 3, 16000)


@BOTH
def test_the_age_of_a_shortfall_follows_profile_and_group_not_the_unit(make: Any) -> None:
    steps = Steps(make)
    steps(rows=[pods("c", 1, cpu=5, mem=1)])
    rounded = pods("c", 1, cpu=6, mem=1)
    [short] = steps(rows=[rounded], after=30).shortfalls
    assert (short.since, short.age) == (START, 4)
    assert verdict(steps(rows=[rounded]), rounded).arrival == START


@BOTH
def test_a_row_uses_what_later_purchases_leave(make: Any) -> None:
    """Backed off nowhere, but nothing on offer was for it: the first row only fits what the second one buys."""
    large = slot("m", type="large", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    first = pods("c", 1, cpu=2, mem=1, priority=9)
    second = pods("c", 1, cpu=4, mem=1, priority=1)
    key = verdict(Steps(make)(rows=[first]), first).key
    off = Backoff("c", "p", "large", "a", ON_DEMAND, START + SECOND, key)
    result = Steps(make)(large, rows=[first, second], backoffs=(off,))
    assert did(result, P) == ["m"]
    assert verdict(result, first).units.acquired == 1


@BOTH
def test_actions_come_phase_by_phase(make: Any) -> None:
    steps = Steps(make)
    shown = [node("e", empty=True), node("v", priority=1, cpu=8, mem=1)]
    mine = [bound("e", "d", **FACTS), bound("v", "d", **(FACTS | {"cpu": 16}))]
    steps(mine, cluster="d", rows=[pods("d", 1, running=1, cpu=8, mem=1)], nodes=shown)
    large, small = pods("c", 1, cpu=16, mem=1, priority=9), pods("c", 1, cpu=4, mem=1, priority=8)
    demand = DemandBatch(rollups=[counted("c", large, small)], confirmed=[("d", 1)])
    old = idle("old", capacity=ON_DEMAND, cpu=1, mem=1, price=0.1)
    steps(old, demand=DemandBatch(confirmed=[("d", 1)]))
    result = steps(demand=demand, after=400)
    assert [(a.kind, a.machine, a.reason) for a in result.actions] == [
        (R, "e", Reason.EMPTY),
        (X, "v", Reason.INVERSION),
        (ActionKind.DELETE, "old", Reason.RELEASE),
    ]


@BOTH
def test_a_gang_nobody_can_place_is_parked_and_tried_again(make: Any) -> None:
    steps = Steps(make, Policy(park_after_cycles=1, reprobe_every_cycles=3), gangs_awake=0)
    gang = pods("c", 2, cpu=8, mem=1, same=RACK, group="g")
    held = replace(slot("r-1", rack="r", **FACTS), not_before=START + 15 * SECOND)
    steps(slot("r-0", rack="r", **FACTS), held, rows=[gang])
    parked = steps(rows=[gang], after=10)
    assert (verdict(parked, gang).parked, verdict(parked, gang).reason) == (True, UnmetReason.TOPOLOGY_UNSATISFIABLE)
    assert did(steps(rows=[gang], after=10), P) == []
    assert did(steps(rows=[gang], after=10), P) == ["r-0", "r-1"]


def _parked(make: Any, gang: Any) -> Steps:
    """A gang that lacks one machine in its rack, and rests for 32 cycles."""
    steps = Steps(make, Policy(park_after_cycles=1), gangs_awake=0)
    steps(slot("r-0", rack="r", **FACTS), rows=[gang])
    assert verdict(steps(rows=[gang], after=10), gang).parked
    return steps


@BOTH
@pytest.mark.parametrize(
    ("comes", "bought"),
    [
        (slot("r-1", rack="r", **FACTS), [(P, "r-0"), (P, "r-1")]),
        (idle("r-1", rack="r", **FACTS), [(B, "r-1"), (P, "r-0")]),
        (machine("r-1", DRAINING, "d", rack="r", **FACTS), [(P, "r-0")]),
    ],
)
def test_a_parked_gang_takes_what_comes_before_a_lower_priority_does(make: Any, comes: Any, bought: Any) -> None:
    gang = pods("c", 2, cpu=8, mem=1, priority=1000, same=RACK, group="g")
    batch = pods("c", 9, running=7, cpu=8, mem=1, priority=0)
    steps = _parked(make, gang)
    result = steps(comes, rows=[gang, batch], after=10)
    assert [(a.kind, a.machine) for a in result.actions if a.need.group] == bought
    assert not [a for a in result.actions if not a.need.group]
    assert not verdict(result, gang).parked


@BOTH
@pytest.mark.parametrize(
    "comes",
    [
        slot("r-1", rack="r", **(FACTS | {"cpu": 4})),
        slot("r-1", **FACTS),
        bound("r-1", "d", rack="r", **FACTS),
        # One more of that class and state, one less: nothing is gained.
        [*removed("r-0"), slot("r-1", rack="r", **FACTS)],
    ],
    ids=["too small", "no rack", "bound", "one for another"],
)
def test_a_parked_gang_rests_while_nothing_comes_that_it_could_use(make: Any, comes: Any) -> None:
    gang = pods("c", 2, cpu=8, mem=1, priority=1000, same=RACK, group="g")
    steps = _parked(make, gang)
    result = steps(comes, rows=[gang], after=10)
    assert (verdict(result, gang).parked, verdict(result, gang).parked_age) == (True, 2)


@BOTH
def test_a_gang_whom_too_little_came_for_rests_again_and_its_probe_stays_where_it_was(make: Any) -> None:
    gang = pods("c", 3, cpu=8, mem=1, priority=1000, same=RACK, group="g")
    steps = _parked(make, gang)
    tried = steps(slot("r-1", rack="r", **FACTS), rows=[gang], after=10)
    assert (verdict(tried, gang).parked, verdict(tried, gang).parked_age) == (False, 2)
    rests = steps(rows=[gang], after=10)
    assert (verdict(rests, gang).parked, verdict(rests, gang).parked_age) == (True, 3)
    assert not verdict(steps(rows=[gang], after=290), gang).parked


@BOTH
def test_the_first_hopeless_gangs_are_tried_in_every_step(make: Any) -> None:
    """The third of priority 1 rests; a rack that another cluster's pods have left goes to whom it is due."""
    gangs = [pods("c", 2, cpu=8, mem=1, priority=n, same=RACK, group=f"g{n}") for n in (3, 2, 1)]
    batch = pods("c", 9, running=7, cpu=8, mem=1, priority=0)
    other = [pods("d", 2, running=2, cpu=8, mem=1, priority=9)]
    steps = Steps(make, Policy(park_after_cycles=1), gangs_awake=2)
    rack = [bound(f"r-{n}", "d", rack="r", **FACTS) for n in range(2)]
    full = [node(f"r-{n}", priority=9, cpu=8, mem=1) for n in range(2)]
    steps(*rack, cluster="d", rows=other, nodes=full)
    steps(rows=gangs)
    for _ in range(20):
        resting = steps(rows=gangs, after=10)
    assert [verdict(resting, gang).parked for gang in gangs] == [False, False, True]
    left = [node(f"r-{n}", version=2, empty=True) for n in range(2)]
    steps(cluster="d", rows=[], nodes=left, version=2, after=5)
    taken = steps(rows=[*gangs, batch], after=5)
    assert [(a.kind, a.machine, a.need.group) for a in taken.actions] == [(R, "r-0", "g3"), (R, "r-1", "g3")]


@BOTH
def test_a_parked_gang_is_not_woken_by_another_way_to_tell_machines_apart(make: Any) -> None:
    """A row that names a new label splits every class; the machines are those of the step before."""
    gang = pods("c", 2, cpu=8, mem=1, priority=1000, same=RACK, group="g")
    steps = _parked(make, gang)
    other = pods("c", 1, cpu=8, mem=1, where=[Requirement("team", Operator.IN, ("x",))])
    assert verdict(steps(bound("b", "d", rack="r", **FACTS), rows=[gang, other], after=10), gang).parked
    assert verdict(steps(slot("r-1", rack="r", **FACTS), rows=[gang], after=10), gang).parked is False


@BOTH
def test_a_victim_aborts_the_move_it_was_part_of(make: Any) -> None:
    row = pods("c", 1, running=1, cpu=8, mem=4)
    urgent = pods("d", 1, cpu=8, mem=4, priority=9000)
    steps = Steps(make, consolidate=True, settle_ns=0)
    shown = node("n", profiles=[row.row.profile.fingerprint], priority=1, cpu=8, mem=4)
    new = machine("s", 2, "c", **FACTS)
    demand = DemandBatch(rollups=[counted("c", row), counted("d", urgent)], reports=[reports("c", shown)])
    move = Move("c", ("n",), "s", START, START + 600 * SECOND)
    result = steps(bound("n", "c", **FACTS), new, demand=demand, moves=(move,))
    assert did(result, X) == ["n"]
    assert result.aborted == ["n"]


@BOTH
def test_a_confirmation_does_not_count_while_a_roll_up_is_held(make: Any) -> None:
    steps = Steps(make, Policy(guard=RollupGuard(enabled=True, min_rows=2, retain_fraction=0.6)))
    rows = [pods("c", 1, cpu=8, mem=n) for n in (1, 2, 3)]
    steps(rows=rows)
    steps(rows=rows[:1], after=20)
    result = steps(slot("s", **FACTS), demand=DemandBatch(confirmed=[("c", 2)]), after=20)
    assert result.actions == []
    assert verdict(result, rows[0]).reason == UnmetReason.ACQUISITION_HELD


@BOTH
def test_a_held_roll_up_keeps_empty_nodes(make: Any) -> None:
    guard = RollupGuard(enabled=True, min_rows=2, retain_fraction=0.6)
    steps = Steps(make, Policy(guard=guard))
    rows = [pods("c", 1, running=1, cpu=1, mem=n) for n in (1, 2, 3)]
    steps(bound("n", "c", **FACTS), rows=rows, nodes=[node("n", cpu=3, mem=6)])
    steps(rows=[], nodes=[node("n", empty=True)], after=5)
    assert steps(rows=[], after=140).actions == []
    steps(rows=[], after=10)
    assert steps(demand=DemandBatch(confirmed=[("c", 1)]), after=119).actions == []
    assert did(steps(demand=DemandBatch(confirmed=[("c", 1)]), after=1), R) == ["n"]


@BOTH
def test_a_forgotten_cluster_leaves_nothing_behind(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 1, cpu=8, mem=1)
    steps(bound("n", "c", **FACTS), rows=[row], nodes=[node("n", empty=True)])
    result = steps(demand=DemandBatch(forgotten=["c"]), after=1000)
    assert (result.verdicts, result.shortfalls, result.actions) == ([], [], [])
