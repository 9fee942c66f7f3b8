"""The budget of evictions by itself: what is earned, spent and kept, over a restart too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bigfleet.shard.contract.events import Table
from bigfleet.shard.core.clusters.evictions import Evictions


class Journal:
    """What a turn writes, as rows of the journal."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Table, str], str] = {}

    def write(self, table: Table, key: str, text: str, *, lazy: bool = False) -> None:
        self.rows[table, key] = text

    def erase(self, table: Table, key: str) -> None:
        self.rows.pop((table, key), None)


@pytest.fixture
def journal() -> Journal:
    return Journal()


def budget(journal: Journal) -> Evictions:
    config = SimpleNamespace(eviction_rate=0.1, eviction_most=5)
    state: Any = SimpleNamespace(config=config, turn=journal)
    return Evictions(state, dict(journal.rows))


def left(evictions: Evictions) -> int:
    return dict(evictions.allowed()).get("c", 0)


def test_a_share_of_those_that_become_old_may_be_evicted_and_a_large_cluster_saves_up_more(journal: Journal) -> None:
    small, large = budget(journal), budget(Journal())
    small.earn("c", 1000, 20)
    large.earn("c", 1000, 500)
    assert (left(small), left(large)) == (5, 50)


def test_who_was_evicted_and_becomes_old_again_earns_nothing(journal: Journal) -> None:
    evictions = budget(journal)
    evictions.earn("c", 40, 40)
    evictions.spend("c", 3)
    again = budget(journal)  # a restart between the two
    again.earn("c", 3, 40)
    assert left(again) == 1
    again.earn("c", 10, 40)
    assert left(again) == 2


@pytest.mark.parametrize(("had", "pods", "least", "then"), [(4, 3, 0, 1), (4, 9, 0, 0), (0, 9, 0, 0), (4, 9, -3, -3)])
def test_a_move_that_waits_for_none_uses_up_what_is_left_as_far_as_it_may(
    journal: Journal, had: int, pods: int, least: int, then: int
) -> None:
    evictions = budget(journal)
    evictions.earn("c", 10 * had, 40)
    evictions.spend("c", pods, least)
    assert left(evictions) == then


def test_what_was_lent_is_paid_back_first(journal: Journal) -> None:
    evictions = budget(journal)
    evictions.spend("c", 2)
    assert left(evictions) == -2
    evictions.spend("c", 9, 0)
    assert left(evictions) == -2
    evictions.earn("c", 11 + 10, 40)
    assert left(evictions) == -1
