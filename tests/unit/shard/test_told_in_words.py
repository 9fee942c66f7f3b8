"""What `needs`, `explain` and `actions` print is the case: of rails, tokens, kinds that were no use, clusters that are
away, stock-outs, groups no domain holds, and work that must not be interrupted.

The production engine and shard core, a cluster that reports placement, and the lines a person reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bigfleet.cli import words
from bigfleet.cli.ctl.explaining import folded
from bigfleet.cli.ctl.reading import need_row
from bigfleet.model.machine import CallKind
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.shard.contract import events as ev
from bigfleet.shard.core.actions.emission import beaten
from bigfleet.shard.read.explaining import rendered
from bigfleet.shard.read.service import need_of
from tests.strategies.builders import RACK, ZONE, need
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, cpu, test_config

SPOT = 4


def placing(**asks: Any) -> tuple[World, PlacingOperator]:
    world = World(oracle=False)
    cluster = PlacingOperator(world, "c")
    cluster.exclusive = asks.pop("exclusive", ())
    cluster.asks = asks
    return world, cluster


def row(world: World) -> dict[str, Any]:
    """The one line of `needs`."""
    (verdict,) = world.results[-1].verdicts.rows()
    return need_row(need_of(world.core, verdict))


def explained(world: World) -> list[str]:
    """What `explain --all` prints."""

    def told() -> Iterator[Any]:
        for verdict in world.results[-1].verdicts.rows():
            view = need_of(world.core, verdict)
            made = rendered(world.engine.explain(verdict.key), world.core.published, view)
            made.need.CopyFrom(view)
            yield made

    return "\n".join(folded(told())).splitlines()


def line(lines: list[str], word: str) -> str:
    (found,) = [each.strip().removeprefix(word).strip() for each in lines if each.strip().startswith(word)]
    return found


def test_while_rails_are_paused_nothing_reads_as_if_it_were_bought() -> None:
    world, cluster = placing()
    world.provider.several(4, "s", S.SPECULATIVE)
    world.run(5)
    world.post(ev.RailsSet(paused=True, who="eve", reason="incident 7"))
    cluster.start(1, 3)
    world.run(30)
    assert not world.provider.calls
    told = row(world)
    assert told["UNITS"] == "1 wanted: 1 stranded (1 would get a machine)"
    assert told["WHY"] == "rails are paused (incident 7)"
    assert told["BUYING"] == "0 (1 held)"
    lines = explained(world)
    assert line(lines, "why") == "Rails are paused (incident 7): nothing of what was decided for it is done."
    assert line(lines, "remedy").startswith("resume: ")
    assert line(lines, "has").endswith("(would be taken, but rails hold it)")
    assert line(lines, "would cost") == "$1.00/h"
    world.post(ev.RailsSet(paused=False, who="eve"))
    world.run(60)
    assert row(world)["UNITS"] == "1 wanted: 1 runs"
    assert row(world)["WHY"] == "-"


def filled_at_a_low_priority() -> tuple[World, PlacingOperator]:
    """Two machines, and two pods of a low priority that run on them."""
    world = World(oracle=False)
    world.provider.several(2, "s", S.SPECULATIVE)
    low = PlacingOperator(world, "low")
    low.asks = {"priority": 10}
    low.start(2, 3)
    world.run(60)
    assert not low.waiting
    return world, low


def test_in_a_dry_run_nothing_reads_as_if_it_were_drained() -> None:
    world, low = filled_at_a_low_priority()
    world.post(ev.RailsSet(dry_run=True, who="eve"))
    high = PlacingOperator(world, "high")
    high.asks = {"priority": 1000}
    high.start(2, 3)
    world.run(30)
    assert not low.waiting, "nothing is drained"
    (verdict,) = [each for each in world.results[-1].verdicts.rows() if each.key.cluster == "high"]
    told = need_row(need_of(world.core, verdict))
    assert told["UNITS"] == "2 wanted: 2 stranded (2 would get machines drained for them)"
    assert told["WHY"] == "rails are set to dry run"
    lines = [each for each in explained(world) if "drained for" not in each or "units" in each]
    assert line(lines, "remedy").startswith("resume: ")


def test_a_sum_whose_machines_are_decided_and_held_has_not_got_them() -> None:
    world = World(oracle=False)
    world.provider.several(4, "s", S.SPECULATIVE)
    world.run(5)
    world.post(ev.RailsSet(dry_run=True, who="eve", reason="audit"))
    world.operator("c").send(cpu("c", 2))
    world.run(30)
    assert not world.provider.calls
    told = row(world)
    assert told["WHY"] == "rails are set to dry run (audit)"
    assert told["BUYING"] == "0 (2 held)"
    assert "has all it wants" not in explained(world)[0]


def test_pods_one_per_node_are_told_that_the_token_forbids_not_that_pieces_are_small() -> None:
    world, cluster = placing(exclusive=("app",))
    world.provider.several(4, "s", S.SPECULATIVE, size={"cpu": 4000})
    cluster.start(6, 1)
    world.run(3)
    for _ in range(10):
        told = row(world)
        assert told["ASKS"] == "one per node"
        assert told["WHY"] == "one per node, and nodes with room have one"
        world.run(6)
    assert len(cluster.waiting) == 2
    lines = explained(world)
    assert line(lines, "asks") == "one per node"
    assert line(lines, "why").startswith("One goes on a node: those with room have one already")
    assert line(lines, "lost").endswith(
        "has room, but has one already, or gets one, that it must not share a node with"
    )
    assert line(lines, "remedy").startswith("2 more ")


def test_pods_that_do_not_use_what_came_for_them_are_told_that_and_until_when() -> None:
    world, cluster = placing()
    world.provider.several(4, "s", S.SPECULATIVE, type="m.nh", zone="z-a")
    world.provider.several(4, "t", S.SPECULATIVE, type="small", size={"cpu": 2000})
    cluster.unplaceable = True
    cluster.start(2, 3)
    world.run(60)
    why = row(world)["WHY"]
    assert why.startswith("came and did not help: m.nh in z-a (its pods did not run there, tried again in ")
    assert 0 < int(why.rpartition(" ")[2].removesuffix("s)")) <= 300
    lines = explained(world)
    assert line(lines, "why").startswith("Came and did not help: m.nh in z-a (its pods did not run there, tried ")
    assert line(lines, "remedy") == "find out why its pods did not run on the machines `actions` names"
    world.run(120)
    reclaims = [each for each in world.core.published.actions if each.kind == "Reclaim"]
    assert reclaims and cluster.waiting
    for each in reclaims:
        assert beaten(each) == "keeping it at $1.000/h: nothing runs on it"
        assert words.with_reasons_in_words(each.reason) == "nothing uses it"


@pytest.mark.parametrize(
    ("asks", "came", "words"),
    [
        (
            {"where": [Requirement(ZONE, Operator.IN, ("z-a",))]},
            {"zone": "z-b"},
            "m.4 is offered in zone z-a and arrives in z-b",
        ),
        ({}, {"allocatable": Resources({"cpu": 2900})}, "m.4 in z-a is offered with 4 vCPU and arrives with 2.9 vCPU"),
    ],
)
def test_what_comes_as_something_else_is_told_as_offered_and_as_it_arrives(
    asks: dict[str, Any], came: dict[str, Any], words: str
) -> None:
    """Whoever reads it must not go looking in the cluster: nothing ever came there."""
    world, cluster = placing(**asks)
    world.provider.several(20, "s", S.SPECULATIVE, type="m.4", zone="z-a")
    world.provider.delivers = lambda offered: replace(offered, **came)
    cluster.start(2, 3)
    world.run(60)
    assert row(world)["WHY"].startswith(f"not as offered: {words} (tried again in ")
    lines = explained(world)
    assert line(lines, "why").startswith(f"Not as offered: {words} (tried again in ")
    assert line(lines, "remedy").startswith("repair the offering at its provider")
    assert "did not run" not in "\n".join(lines)
    (bought,) = {(each.outcome, each.detail) for each in world.core.published.actions if each.kind == "Provision"}
    assert bought == ("transition_error", words)
    machine = next(each.machine for each in world.core.published.actions)
    assert words in str(world.core.read.story(machine))
    assert [audit.detail for audit in world.audits if audit.kind == "Provision"] == [words, words]


def test_nodes_that_never_came_up_are_told_as_that() -> None:
    world = World(config=test_config(ready_timeout=round(60e9)), oracle=False)
    cluster = PlacingOperator(world, "c")
    world.provider.several(4, "s", S.SPECULATIVE, type="m.nv", zone="z-a")
    cluster.never_ready = {f"s{n}" for n in range(4)}
    cluster.start(1, 3)
    world.run(90)
    assert row(world)["WHY"].startswith("came and did not help: m.nv in z-a (its nodes did not become ready, tried ")


def test_what_a_cluster_said_before_it_went_away_is_dated() -> None:
    world, cluster = placing()
    world.provider.several(4, "s", S.SPECULATIVE)
    cluster.start(2, 3)
    world.run(60)
    assert row(world)["WHY"] == "-"
    cluster.disconnect()
    gone = words_of_time(world.now)
    world.run(120)
    assert row(world)["UNITS"] == "2 wanted: 2 run"
    assert row(world)["WHY"] == f"said before {gone}: its operator is not connected since then"
    lines = explained(world)
    assert lines[0].startswith("c at priority 1000 had all it wanted when last heard of: ")
    assert line(lines, "away").startswith(f"its operator is not connected since {gone}")
    cluster.connect()
    world.run(30)
    assert row(world)["WHY"] == "-"
    assert " has all it wants: " in explained(world)[0]


def words_of_time(now: int) -> str:
    seconds = now // 10**9 % 86400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def test_what_is_sold_out_is_told_by_both_and_not_as_failures() -> None:
    world, cluster = placing()
    world.provider.several(4, "s", S.SPECULATIVE, type="m.sold", zone="z-a")
    world.provider.refuse = lambda call: (ev.Failure.SOLD_OUT, "none left")
    cluster.start(2, 3)
    world.run(30)
    assert row(world)["WHY"].startswith("sold out: m.sold in z-a of p, tried again in ")
    why = line(explained(world), "why")
    assert why.startswith("Sold out: m.sold in z-a of p, tried again in ") and "failed" not in why
    assert line(explained(world), "lost").endswith("its offer rests: purchases failed or it was sold out")


def test_work_that_must_not_be_interrupted_is_told_so_where_only_spot_is_free() -> None:
    world, cluster = placing(interruption=math.inf)
    world.provider.several(4, "s", S.SPECULATIVE, capacity=SPOT, probability=0.05)
    cluster.start(2, 3)
    world.run(30)
    assert row(world)["WHY"] == "what is free may be interrupted, and its units must not be"
    lines = explained(world)
    assert line(lines, "why") == "What is free may be interrupted, and its units must not be."
    assert line(lines, "lost").endswith("may be interrupted, and the units must not be")


@pytest.mark.parametrize("minutes", [0.2, 3])
def test_a_group_no_rack_holds_is_never_told_as_if_it_got_machines_later(minutes: float) -> None:
    world, cluster = placing(same=RACK, group="g")
    for rack in "abc":
        world.provider.several(3, f"{rack}-", S.SPECULATIVE, labels={RACK: rack})
    cluster.start(4, 3)
    world.run(60 * minutes)
    never = "ll of it must be in one rack, and none could hold it even if it were empty: the largest takes 3 of its 4"
    assert row(world)["WHY"] == f"a{never}"
    assert line(explained(world), "why") == f"A{never}."
    lost = line(explained(world), "lost")
    assert "whole group" in lost and "probe" not in lost


def test_a_group_whose_rack_is_in_use_is_not_told_that_no_rack_could_hold_it() -> None:
    """One rack of four machines; a pod of another cluster stands on one of them when a group of four comes."""
    world = World(oracle=False)
    world.provider.several(4, "i", labels={RACK: "a"}, size={"cpu": 4000})
    other = PlacingOperator(world, "other")
    other.asks = {"priority": 1000}
    other.start(1, 3)
    world.run(60)
    assert len(world.provider.configured("other")) == 1
    cluster = PlacingOperator(world, "c")
    cluster.asks = {"same": RACK, "group": "g", "priority": 0}
    cluster.start(4, 3)
    world.run(60)
    (verdict,) = [each for each in world.results[-1].verdicts.rows() if each.key.cluster == "c"]
    assert need_row(need_of(world.core, verdict))["WHY"] == (
        "all of it must be in one rack, and none has room now: a could hold it, "
        "but 1 of its 4 machines is in use by other"
    )


def test_a_group_that_is_tried_only_now_and_then_is_told_so() -> None:
    """Of sums, which are parked; of units only those behind many others are."""
    world = World(oracle=False)
    for rack in "abc":
        world.provider.several(3, f"{rack}-", S.SPECULATIVE, labels={RACK: rack})
    world.operator("c").send(need("c", 4, cpu=4, same=RACK, group="g"))
    world.run(180)
    (verdict,) = world.results[-1].verdicts.rows()
    assert verdict.parked
    lost = line(explained(world), "lost")
    assert lost.endswith("too few in one domain for the whole group when it was last tried; it is tried now and then")


def test_who_waits_for_a_drain_is_told_for_how_long_at_most() -> None:
    """Nothing is free: what lower priorities run is drained, which takes two minutes."""
    world, _ = filled_at_a_low_priority()
    world.provider.work[CallKind.DRAIN] = 120.0
    high = PlacingOperator(world, "high")
    high.asks = {"priority": 1000}
    high.start(2, 3)
    world.run(30)
    (verdict,) = [each for each in world.results[-1].verdicts.rows() if each.key.cluster == "high"]
    why = need_row(need_of(world.core, verdict))["WHY"]
    assert why.startswith("waits for a drain: 2 that would fit drain, for at most ")
    assert 90 < int(why.split()[-2].removesuffix("s")) < 3600
    world.run(200)
    beat = {each.beat for each in world.core.published.actions if each.kind == "Preempt" and each.cluster == "low"}
    # Its nodes were bought at priority 10 and report pods of priority 0: that is what had to give way.
    assert beat == {"low at priority 0, below 1000"}


def test_empty_nodes_their_cluster_refuses_to_let_go_of_are_told_as_such() -> None:
    """`c` has six nodes, five of them empty, and refuses every drain; nothing else is to be had."""
    world = World(oracle=False)
    world.provider.several(6, "s", S.SPECULATIVE, size={"cpu": 4000})
    holder = PlacingOperator(world, "c")
    holder.asks = {"priority": 0}
    holder.start(6, 3)
    world.run(60)
    assert len(world.provider.configured("c")) == 6
    holder.refusals.of = {f"s{n}" for n in range(6)}
    holder.stop(5, 3)
    other = PlacingOperator(world, "hi")
    other.asks = {"priority": 0}
    other.start(2, 3)
    world.run(200)
    assert len(other.waiting) == 2 and holder.refusals.said
    seen = []
    for _ in range(20):
        (verdict,) = [each for each in world.results[-1].verdicts.rows() if each.key.cluster == "hi"]
        view = need_of(world.core, verdict)
        made = rendered(world.engine.explain(verdict.key, kinds=()), world.core.published, view)
        seen += [(words.why(view), each.reason, each.count) for each in made.lost if each.winner_cluster_id == "c"]
        world.run(3)
    whys = {why for why, _, _ in seen if not why.startswith("waits for a drain")}
    assert whys == {"5 that would fit stand empty, and c refused to let go"}
    assert not [each for each in seen if "runs units" in each[1] and each[2] > 1]
