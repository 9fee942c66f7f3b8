"""What an explanation says about needs in units: what they got, what they lost and why, what would help (§8)."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine import Engine
from bigfleet.engine.batches import Conditions, DemandBatch
from bigfleet.engine.explain import Explanation, HigherPriority, MoreSupply, RemedyKind, Source, Why
from bigfleet.engine.placement import Backoff
from bigfleet.engine.policy import Placement, Policy
from bigfleet.engine.results import NeedKey, UnmetReason
from tests.strategies.builders import ON_DEMAND, RACK, SECOND, SPOT, START, bound, idle, machine, rollup, slot
from tests.strategies.placed import CountedLine, batch, counted, node, pods, reports

EIGHT: dict[str, Any] = {"capacity": ON_DEMAND, "type": "eight", "cpu": 8, "mem": 32, "price": 0.4}
SUPPLY, PRIORITY = (RemedyKind.SUPPLY,), (RemedyKind.PRIORITY,)


def key_of(line: CountedLine) -> NeedKey:
    unit = ",".join(f"{name}={amount}" for name, amount in sorted(line.row.min_unit.items()))
    return NeedKey("c", line.row.profile.fingerprint, line.row.group, unit)


def told(
    line: CountedLine, *machines: Any, others: Any = (), kinds: Any = None, at: int = 0, **outside: Any
) -> Explanation:
    """The explanation of one counted row of cluster c after one step; `at` seconds later it is explained once more."""
    engine = Engine()
    change = DemandBatch(rollups=[counted("c", line), *others], reports=outside.pop("shown", []))
    engine.step(batch(*machines), change, Policy(), START, Conditions(**outside))
    return engine.explain(key_of(line), **({} if kinds is None else {"kinds": kinds}))


def test_what_was_bought_is_granted() -> None:
    explained = told(pods("c", 3, cpu=5, mem=1), slot("s1", **EIGHT), slot("s2", **EIGHT), idle("i", **EIGHT))
    assert {(row.source, row.count) for row in explained.granted} == {(Source.SPECULATIVE, 2), (Source.IDLE, 1)}
    assert explained.price_per_hour == 3 * 0.4


def test_more_supply_is_counted_in_units_not_in_sums() -> None:
    """Forty pods of 5 cores want forty machines of 8, whatever the sum of their cores says."""
    explained = told(pods("c", 40, cpu=5, mem=1), idle("i", **EIGHT), kinds=SUPPLY)
    assert explained.verdict.units is not None and explained.verdict.units.missing == 39
    assert isinstance(explained.remedy, MoreSupply) and explained.remedy.count == 39


def test_a_higher_priority_preempts_what_a_reporting_cluster_runs() -> None:
    theirs = counted("d", pods("d", 1, running=1, stranded=0, cpu=8, mem=1, priority=50))
    shown = [reports("d", node("v", priority=50, cpu=8, mem=1))]
    explained = told(
        pods("c", 1, cpu=8, mem=1, priority=10), bound("v", "d", **EIGHT), others=[theirs], shown=shown, kinds=PRIORITY
    )
    assert explained.remedy == HigherPriority(50)
    assert [(row.why, row.winner_priority) for row in explained.lost] == [(Why.RUNS_AS_MUCH, 50)]


def test_a_node_of_its_own_without_room_is_told() -> None:
    shown = [reports("c", node("n", cpu=6, mem=1))]
    explained = told(pods("c", 2, running=1, cpu=6, mem=1), bound("n", "c", **EIGHT), shown=shown)
    assert explained.verdict.reason == UnmetReason.PRIORITY_STARVED
    assert [row.why for row in explained.lost] == [Why.NO_ROOM]


def test_a_kind_that_is_backed_off_and_one_that_is_too_risky_are_told() -> None:
    off = Backoff("c", "p", "eight", "a", ON_DEMAND, START + SECOND)
    explained = told(pods("c", 1, cpu=5, mem=1), slot("s", **EIGHT), backoffs=(off,))
    assert [row.why for row in explained.lost] == [Why.BACKED_OFF]
    spot = EIGHT | {"capacity": SPOT, "risk": 0.5}
    dear = pods("c", 1, cpu=5, mem=1, interruption=20)
    explained = told(dear, slot("s", **spot), machine("o", 8, **(EIGHT | {"type": "other"})))
    assert Why.RISK in [row.why for row in explained.lost]


def test_a_cluster_that_is_not_heard_is_told_so_and_no_other_profile_would_help() -> None:
    explained = told(pods("c", 1, cpu=5, mem=1), slot("s", **EIGHT), acquire=False)
    assert [row.why for row in explained.lost] == [Why.ACQUISITION_HELD]
    engine = Engine()
    line = pods("c", 1, cpu=5, mem=1)
    engine.step(
        batch(slot("s", **EIGHT)), DemandBatch(rollups=[counted("c", line)]), Policy(), START, Conditions(acquire=False)
    )
    engine.step(None, None, Policy(), START + 60 * SECOND)
    explained = engine.explain(key_of(line), PRIORITY)
    assert explained.verdict.reason == UnmetReason.ACQUISITION_HELD
    assert [row.why for row in explained.lost] == [Why.NOT_FRESH]
    assert explained.remedy is None


def test_explaining_changes_nothing_for_clusters_of_either_kind() -> None:
    engine = Engine()
    line = pods("c", 4, cpu=5, mem=1)
    change = DemandBatch(rollups=[counted("c", line), rollup("d")])
    first = engine.step(batch(slot("s", **EIGHT)), change, Policy(), START).actions.rows()
    engine.explain(key_of(line))
    engine.validate()
    assert engine.step(None, None, Policy(), START).actions.rows() == first


def test_one_machine_more_is_what_a_parked_gang_is_told_it_lacks() -> None:
    """At the instant of the last step: at the gang's next probe, minutes from now, its cluster's word is too old."""
    gang = pods("c", 4, cpu=8, mem=1, same=RACK, group="g")
    engine, policy = Engine(), Policy(park_after_cycles=1, placement=Placement(gangs_awake=0))
    racks = [slot("a-0", rack="a", **EIGHT), *(slot(f"r-{n}", rack="r", **EIGHT) for n in range(3))]
    change = DemandBatch(rollups=[counted("c", gang)])
    engine.step(batch(*racks), change, policy, START, Conditions())
    engine.step(None, change, policy, START + 10 * SECOND, Conditions())
    [told] = [engine.explain(verdict.key, kinds=SUPPLY) for verdict in engine.latest.result.verdicts.rows()]
    assert told.verdict.parked
    assert isinstance(told.remedy, MoreSupply)
    assert (told.remedy.count, told.remedy.domain) == (1, "r")
    assert told.remedy_at == START + 10 * SECOND


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (node("n"), Why.USED_BY_NOTHING),
        (node("n", cpu=1, mem=1), Why.SAID_NOT_TO_FIT),
        (node("n", empty=True), Why.SAID_NOT_TO_FIT),
        (node("n", cpu=3, mem=1), Why.NO_ROOM),
        (node("n", cpu=1, mem=1, closing_since=START), Why.CLOSED),
        (node("n", ready=False), Why.NOT_READY),
        (None, Why.NOT_READY),
    ],
)
def test_of_a_node_of_its_own_is_told_what_its_report_says(shown: Any, why: Why) -> None:
    """A cluster that calls everything stranded while its node has eight cores free is not said to have it full."""
    told_of = [reports("c", shown)] if shown is not None else []
    # Nothing is reopened; a node that is not ready takes one of the two.
    explained = told(pods("c", 2, cpu=6, mem=1), bound("n", "c", **EIGHT), shown=told_of, acquire=False)
    assert explained.verdict.units is not None and explained.verdict.units.missing
    assert [(row.why, row.winner_cluster) for row in explained.lost] == [(why, "c")]
