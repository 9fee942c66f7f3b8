"""Shortfalls are told once per fingerprint, and folding columns says the same as folding rows."""

from __future__ import annotations

from bigfleet.engine import Engine
from bigfleet.engine.batches import Conditions
from bigfleet.engine.policy import Policy
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.shortfalls import Short, Shorts, folded
from bigfleet.shard.contract.step_result import Listed
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


def test_without_shortfalls_there_is_nothing_to_tell() -> None:
    assert _both() == ()
