"""Scenarios that once broke something, most of them as the fuzzer shrank them: each must hold for good."""

from pathlib import Path

import pytest

from bigfleet.sim import library
from bigfleet.sim.scenario.scenario import load_scenario
from bigfleet.sim.soak.fuzz import problems

FOUND = sorted((Path(__file__).parents[1] / "data" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_scenario_that_once_failed_passes(path: Path) -> None:
    assert problems(load_scenario(path)) == []


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_the_order_of_inputs_changes_neither_events_nor_samples(path: Path) -> None:
    plain, shuffled = (library.play(load_scenario(path), shuffle=seed).run for seed in (None, 7))
    assert shuffled.trace.text() == plain.trace.text()
    assert shuffled.meter.samples == plain.meter.samples
