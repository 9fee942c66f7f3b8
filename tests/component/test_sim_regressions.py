"""Scenarios the fuzzer once broke, as it shrank them: each must hold for good."""

from pathlib import Path

import pytest

from bigfleet.sim.fuzz import problems
from bigfleet.sim.scenario import load_scenario

FOUND = sorted((Path(__file__).parents[1] / "data" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_scenario_that_once_failed_passes(path: Path) -> None:
    assert problems(load_scenario(path)) == []
