"""Counted rows that cannot be true (P1): each is left out and told with its field, the others are served."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bigfleet.engine import Engine
from bigfleet.engine.batches import DemandBatch, Rollup
from bigfleet.engine.demand.refused import TOLD
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import RollupOutcome
from tests.strategies.builders import ON_DEMAND, START, slot
from tests.strategies.placed import CountedLine, batch, counted, pods

GOOD = pods("c", 2, cpu=1, mem=1)
SUPPLY = batch(slot("s", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4))


def uneven(line: CountedLine, **amounts: int) -> Rollup:
    """A roll-up of the good row and of this one, with other totals than its count says."""
    made = counted("c", GOOD, line)
    aggregate = made.aggregate.copy()
    for name, amount in amounts.items():
        aggregate[1, made.resources.index(name)] = amount
    return structs.replace(made, aggregate=aggregate)


@pytest.mark.parametrize(
    ("rollup", "why"),
    [
        (counted("c", GOOD, pods("c", 8, running=24, stranded=40, cpu=2, mem=1)),
         "needs[1]: running 24 and stranded 40 are more than its count 8"),
        (counted("c", GOOD, pods("c", 8, running=-5, stranded=-7, cpu=2, mem=1)),
         "needs[1].running is -5; at least 0 is accepted"),
        (counted("c", GOOD, pods("c", 8, stranded=-7, cpu=2, mem=1)),
         "needs[1].stranded is -7; at least 0 is accepted"),
        (counted("c", GOOD, replace(pods("c", 3, cpu=2, mem=1), count=-3)),
         "needs[1].count is -3; at least 1 is accepted"),
        (counted("c", GOOD, pods("c", 1, domains={"a": 1, "b": -1}, cpu=2, mem=1)),
         "needs[1].domain_units of 'b' is -1; at least 0 is accepted"),
        (uneven(pods("c", 8, cpu=2, mem=1), cpu=7_000),
         "needs[1].aggregate_resources has 7 of cpu; its count 8 times min_unit 2 is accepted"),
        (uneven(pods("c", 8, cpu=2, mem=1), cpu=0),
         "needs[1].aggregate_resources has 0 of cpu; its count 8 times min_unit 2 is accepted"),
        (counted("c", GOOD, pods("c", 8, cpu=0, mem=0)),
         "needs[1].min_unit is empty; a row with a count needs one"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_true_is_told_with_its_field_and_the_others_apply(rollup: Rollup, why: str) -> None:
    engine = Engine()
    result = engine.step(SUPPLY, DemandBatch(rollups=[rollup]), Policy(), START)
    assert result.rejected == {"count": 1}
    assert result.rollups == {"c": RollupOutcome.APPLIED}
    assert result.refused["c"].total == 1
    assert [(each.row, each.why) for each in result.refused["c"].first] == [(1, why)]
    (served,) = result.verdicts.rows()
    assert served.provisions == 1, "the good row"
    again = engine.step(None, None, Policy(), START)
    assert again.refused == {}, "told once, with the roll-up"


def test_amounts_of_a_resource_that_no_machine_has_are_judged_by_the_same_rule() -> None:
    line = pods("c", 2, cpu=2, mem=1, **{"example.org/odd": 3})
    made = counted("c", GOOD, line)
    odd = made.resources.index("example.org/odd")
    aggregate = made.aggregate.copy()
    aggregate[1, odd] += 1
    result = Engine().step(SUPPLY, DemandBatch(rollups=[structs.replace(made, aggregate=aggregate)]), Policy(), START)
    (told,) = result.refused["c"].first
    assert told.row == 1 and "example.org/odd; its count 2 times min_unit 3 is accepted" in told.why


def test_of_very_many_the_first_are_told_and_all_are_counted() -> None:
    lines = [pods("c", 1, running=2, cpu=1 + n, mem=1) for n in range(3 * TOLD)]
    result = Engine().step(None, DemandBatch(rollups=[counted("c", *lines)]), Policy(), START)
    assert result.refused["c"].total == result.rejected["count"] == 3 * TOLD
    assert [each.row for each in result.refused["c"].first] == list(range(TOLD))


units = st.integers(-2, 4)


@settings(deadline=None)
@given(st.lists(st.tuples(units, units, units, st.booleans()), min_size=1, max_size=6))
def test_what_is_refused_is_what_the_rule_says_and_sums_are_never_asked(rows: list[tuple[int, int, int, bool]]) -> None:
    """P1, written down a second time for this test alone; the same rows without counts are taken as they are."""
    lines = [pods("c", 1, cpu=1 + n, mem=1) for n in range(len(rows))]
    made = counted(
        "c", *(replace(line, count=a, running=b, stranded=c) for line, (a, b, c, _) in zip(lines, rows, strict=True))
    )
    times = np.array([[max(a, 0) if even else 9] for a, _, _, even in rows], np.int64)
    made = structs.replace(made, aggregate=made.min_unit * times)
    wrong = [n for n, (a, b, c, even) in enumerate(rows) if a < 1 or b < 0 or c < 0 or b + c > a or not even]
    result = Engine().step(None, DemandBatch(rollups=[made]), Policy(), START)
    assert [each.row for told in result.refused.values() for each in told.first] == wrong
    sums = Engine().step(None, DemandBatch(rollups=[structs.replace(made, counted=None)]), Policy(), START)
    assert (sums.refused, sums.rejected, len(list(sums.verdicts.rows()))) == ({}, {}, len(rows))
