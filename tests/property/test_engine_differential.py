"""The engine and the oracle agree on everything a step returns, over random fleets and several steps each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.engine.counted import belief
from tests.strategies.differential import disagreement, is_placed
from tests.strategies.fleets import Size

SEEDS = json.loads((Path(__file__).parents[1] / "data" / "engine_seeds.json").read_text())
FLEETS = settings(
    max_examples=1000,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@FLEETS
@given(
    seed=st.integers(0, 2**31),
    machines=st.integers(0, 24),
    rows=st.integers(1, 8),
    steps=st.integers(1, 4),
    placed=st.booleans(),
)
def test_engine_agrees_with_the_oracle_on_small_fleets(
    seed: int, machines: int, rows: int, steps: int, placed: bool
) -> None:
    """A thousand fleets; in about half of them some clusters report placement and others send sums."""
    assert disagreement(seed, Size(machines, rows, steps), placed=placed) is None


@pytest.mark.parametrize("block", range(10))
def test_engine_agrees_with_the_oracle_on_fixed_seeds(block: int) -> None:
    """A thousand further fleets whose seeds never change, half of them of both kinds of clusters; together with the
    others two thousand."""
    for seed in range(block * 100, block * 100 + 100):
        assert disagreement(seed, Size(machines=32, rows=8, steps=6), placed=is_placed(seed)) is None


def test_engine_agrees_with_the_oracle_when_belief_remembers_one_kind_of_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small fleets never have too many kinds to remember; here every second one is."""
    monkeypatch.setattr(belief, "_KINDS", 1)
    for seed in range(2_000, 2_100):
        assert disagreement(seed, Size(machines=32, rows=8, steps=4), placed=True) is None


@pytest.mark.parametrize("block", range(4))
def test_engine_agrees_with_the_oracle_on_names_that_no_machine_has(block: int) -> None:
    """Rows, overheads and nodes name resources nobody has, until a machine comes that has them."""
    for seed in range(block * 100, block * 100 + 100):
        size = Size(machines=24, rows=8, steps=6)
        assert disagreement(seed, size, placed=is_placed(seed), odd=True) is None


@pytest.mark.parametrize("case", SEEDS, ids=lambda case: f"{case['seed']}-{case['machines']}x{case['rows']}")
def test_seeds_that_once_failed(case: dict[str, int]) -> None:
    size = Size(case["machines"], case["rows"], case["steps"])
    assert disagreement(case["seed"], size, placed=bool(case.get("placed"))) is None
