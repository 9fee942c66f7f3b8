"""Rows that cannot be true: told in the answer, the log, the metric and to readers, until the cluster says better."""

from __future__ import annotations

from typing import Any

from bigfleet.cli.ctl.explaining import folded
from bigfleet.cli.ctl.reading import need_row
from bigfleet.model.session import AckOutcome
from bigfleet.shard.contract import events as ev
from bigfleet.shard.read.explaining import refused
from bigfleet.shard.read.service import left_out_of
from tests.strategies.placed import CountedLine, counted, pods
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, cpu, test_config

GOOD = pods("c", 2, cpu=1)
ABSURD = pods("c", 8, running=24, stranded=40, cpu=2)
WHY = "needs[1]: running 24 and stranded 40 are more than its count 8"
REASON = f"1 of 2 rows left out: {WHY}"
REJECTED = "bigfleet_shard_rows_rejected_total"


class Teller(PlacingOperator):
    """Says what it is told to, instead of what is the case."""

    def tell(self, *lines: CountedLine) -> None:
        self.version += 1
        self.rollup = counted(self.cluster, *lines, version=self.version)
        self.report()
        self.world.run(15)

    def look(self) -> None:
        pass

    @property
    def answer(self) -> ev.Acknowledgement:
        answer: Any = self.of(ev.Acknowledgement)[-1]
        return answer


def teller(**config: Any) -> tuple[World, Teller]:
    world = World(test_config(**config), oracle=False)
    world.provider.several(4, "s", S.SPECULATIVE)
    return world, Teller(world, "c")


def test_a_row_that_cannot_be_true_is_told_to_its_operator_and_the_others_are_served() -> None:
    world, operator = teller()
    operator.tell(GOOD, ABSURD)
    assert (operator.answer.outcome, operator.answer.reason) == (AckOutcome.APPLIED, REASON)
    assert world.provider.configured("c"), "the good row"
    operator.report(unchanged=True)
    world.run(1)
    assert (operator.answer.outcome, operator.answer.reason) == (AckOutcome.APPLIED, REASON), "and so for ever"


def test_it_is_logged_once_an_episode_and_counted_as_a_row_of_its_cluster() -> None:
    world, operator = teller()
    for _ in range(3):
        operator.tell(GOOD, ABSURD)
    (line,) = world.messages("rows of a rollup rejected")
    assert dict(line.attrs)["cluster"] == "c" and WHY in str(dict(line.attrs)["err"])
    assert world.count(REJECTED, "c") == 3
    assert world.count("bigfleet_shard_machines_rejected_total", "count") == 0, "it is no machine"
    operator.tell(GOOD)
    assert operator.answer.reason == ""
    assert len(world.messages("every row of the cluster's rollups is taken again")) == 1
    operator.tell(GOOD, ABSURD)
    assert len(world.messages("rows of a rollup rejected")) == 2


def test_needs_and_explain_show_the_row_with_its_reason_until_it_is_mended() -> None:
    world, operator = teller()
    operator.tell(GOOD, ABSURD)
    (view,) = left_out_of(world.core, "")
    told = need_row(view)
    assert (told["CLUSTER"], told["WANTS"], told["MISSING"]) == ("c", "16 vCPU", "16 vCPU")
    assert told["WHY"] == f"refused: {WHY}"
    assert not view.satisfied
    (paragraph,) = folded([refused(view)])
    first, remedy, why, *_ = paragraph.splitlines()
    assert first == "c at priority 1000 wants 16 vCPU and has none of it"
    assert remedy == "  remedy   repair its cluster's operator: nothing is done for such a row"
    assert why == f"  why      Refused: {WHY}."
    assert left_out_of(world.core, "another") == []
    operator.tell(GOOD)
    assert left_out_of(world.core, "") == []


def test_a_held_rollup_is_told_its_refused_rows_too() -> None:
    world, operator = teller(empty_rollup_guard=True)
    many = [pods("c", 1, cpu=1 + n) for n in range(4)]
    operator.tell(*many)
    operator.tell(ABSURD)
    assert operator.answer.outcome == AckOutcome.HELD
    assert "applied once confirmed; 1 of 1 rows left out: needs[0]: running 24" in operator.answer.reason
    assert world.messages("rows of a rollup rejected")


def test_a_peer_that_speaks_in_sums_hears_and_sees_nothing_of_it() -> None:
    world = World(test_config(), oracle=False)
    world.provider.several(2, "i")
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    answers = [each for each in operator.of(ev.Acknowledgement) if each.echo == "rollup"]
    assert {(each.outcome, each.reason) for each in answers} == {(AckOutcome.APPLIED, "")}
    assert left_out_of(world.core, "") == [] and not world.messages("rows of a rollup")
