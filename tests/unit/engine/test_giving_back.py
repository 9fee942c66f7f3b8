"""Reporting clusters give back what the oracle would, told the same claims (engine.md P33 to P39)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.strategies.fleets import Size
from tests.strategies.given_back import GivenBack, TellingOracle
from tests.strategies.placed_fleets import play_placed
from tests.strategies.quiet_fleets import quiet_steps


class _Feeding:
    """Stands where a step is fed, after the oracle's."""

    def __init__(self, given: GivenBack, oracle: TellingOracle, outcomes: Any) -> None:
        self.given, self.oracle, self.outcomes = given, oracle, outcomes
        self.found: str | None = None

    def step(self, machines: Any, demand: Any, policy: Any, now: int, conditions: Any) -> None:
        self.found = self.given.decide(self.oracle, machines, demand, policy, now, conditions, self.outcomes)


@pytest.mark.parametrize("seed", range(30))
def test_the_same_is_given_back_for_the_same_reasons(seed: int) -> None:
    oracle, given = TellingOracle(), GivenBack()
    for number, (step, result) in enumerate(play_placed(seed, Size(machines=32, rows=8, steps=8), oracle)):
        feeding = _Feeding(given, oracle, result.rollups)
        step.feed(feeding)
        assert feeding.found is None, f"step {number}"


@pytest.mark.parametrize("seed", range(40))
def test_quiet_clusters_are_closed_and_moved_alike(seed: int) -> None:
    oracle, given = TellingOracle(), GivenBack()
    for number, step in enumerate(quiet_steps(seed)):
        feeding = _Feeding(given, oracle, step.feed(oracle).rollups)
        step.feed(feeding)
        assert feeding.found is None, f"step {number}"
