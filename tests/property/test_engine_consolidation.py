"""Quiet clusters are closed, moved and emptied as the oracle would (engine.md P33 to P39).

Random fleets hardly ever move anything; these do in every other step.
"""

from __future__ import annotations

import pytest

from tests.oracle.implementations import EngineRows
from tests.oracle.step import Oracle
from tests.strategies.differential import difference
from tests.strategies.quiet_fleets import quiet_steps


@pytest.mark.parametrize("seed", range(60))
def test_quiet_clusters_are_consolidated_alike(seed: int) -> None:
    oracle, engine = Oracle(), EngineRows(gives_back=bool(seed % 2))
    for number, step in enumerate(quiet_steps(seed)):
        assert difference(step.feed(oracle), step.feed(engine)) is None, f"step {number}"
        engine.engine.validate()


def test_quiet_clusters_show_every_kind_of_giving_back() -> None:
    """Otherwise agreeing on them would say little."""
    told = set()
    for seed in range(60):
        oracle = Oracle()
        for step in quiet_steps(seed):
            told |= {(action.kind.name, min(2, len(action.replaces))) for action in step.feed(oracle).actions}
    assert {
        ("CLOSE", 0),
        ("RECLAIM", 0),
        ("BOOTSTRAP", 1),
        ("PROVISION", 1),
        ("BOOTSTRAP", 2),
        ("PROVISION", 2),
    } <= told
