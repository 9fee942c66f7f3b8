"""Shortfalls are told once per fingerprint, and folding columns says the same as folding rows."""

from __future__ import annotations

from bigfleet.engine import Engine
from bigfleet.engine.batches import Conditions, DemandBatch
from bigfleet.engine.policy import Policy
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.shortfalls import Short, Shorts, folded, shorts
from bigfleet.shard.contract.step_result import Listed, unmet_of
from tests.strategies.builders import A3, RACK, SECOND, START, batch, demand, idle, need


def _both(*needs: object, later: int = 0) -> tuple[Short, ...]:
    engine, policy = Engine(), Policy()
    machines, wanted = batch(idle("i", type="other")), demand(*needs)  # type: ignore[arg-type]
    result = engine.step(machines, wanted, policy, START, Conditions())
    if later:
        result = engine.step(None, None, policy, START + later, Conditions())
    by_columns, by_rows = folded(result.shortfalls), folded(Listed(tuple(result.shortfalls.rows())))
    assert by_columns == by_rows
    assert folded(Shorts(by_columns)) == by_columns
    return by_columns


def test_rows_of_one_fingerprint_are_one_with_their_deficits_summed() -> None:
    (short,) = _both(need("a", 3, types=[A3]), need("b", 2, types=[A3]))
    assert (short.rows, short.cluster, short.age, short.escalated) == (2, "", 1, False)
    (alone,) = _both(need("a", 5, types=[A3]))
    assert alone.cluster == "a" and alone.deficit == short.deficit != Resources.ZERO


def test_the_highest_priority_comes_first_and_ages_in_time() -> None:
    found = _both(
        need("a", 1, types=[A3], priority=5),
        need("a", 1, types=[A3], priority=2000),
        need("b", 2, types=[A3], priority=5, group="g", same=RACK),
        later=70 * SECOND,
    )
    assert [short.priority for short in found] == [2000, 5, 5]
    assert all(short.escalated and short.age == 8 for short in found)
    assert {short.group for short in found if short.topology_constrained} == {"g"}


def test_what_clusters_lack_that_are_away_is_told_apart() -> None:
    engine, machines = Engine(), batch(idle("i", type="other"))
    wanted = demand(need("away", 3, types=[A3]), need("there", 2, types=[A3]))
    engine.step(machines, wanted, Policy(), START, Conditions())
    gone = DemandBatch([], (("away", False),))
    result = engine.step(None, gone, Policy(), START + SECOND, Conditions())
    found = {(short.cluster, short.away): short.rows for short in folded(result.shortfalls)}
    assert found == {("away", True): 1, ("there", False): 1}
    assert shorts(result.shortfalls).total == 2


def test_without_shortfalls_there_is_nothing_to_tell() -> None:
    assert _both() == ()


def test_of_very_many_the_first_are_told_and_all_are_counted() -> None:
    engine = Engine()
    needs = [need("a", 1, types=[A3], priority=number) for number in range(40)]
    result = engine.step(batch(idle("i", type="other")), demand(*needs), Policy(), START, Conditions())
    told = shorts(result.shortfalls, 7)
    assert [short.priority for short in told.items] == [39, 38, 37, 36, 35, 34, 33]
    assert told.total == 40
    assert told.items == folded(result.shortfalls)[:7]


def test_unmet_needs_of_some_clusters_are_those_of_all_that_are_theirs() -> None:
    engine = Engine()
    needs = [need(name, 1, types=[A3], priority=number) for number, name in enumerate("abcabc")]
    verdicts = engine.step(batch(idle("i", type="other")), demand(*needs), Policy(), START, Conditions()).verdicts
    theirs = [verdict for verdict in verdicts.unmet() if verdict.key.cluster in ("a", "c")]
    assert theirs and list(unmet_of(verdicts, {"a", "c"})) == theirs
    assert list(unmet_of(verdicts, {"nobody"})) == []
