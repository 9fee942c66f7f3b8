"""Random fleets, demand and failures: everything comes to rest, nothing leaks, every part stays valid."""

import pytest

from bigfleet.sim.document.text import to_yaml
from bigfleet.sim.scenario.expectations import Running
from bigfleet.sim.scenario.scenario import parse_scenario
from bigfleet.sim.soak.fuzz import problems, random_scenario, shrink

CHUNKS = 20
SEEDS = range(200)
# 499: the last firm machine is lost, and pods that are kept off spot must not have spot bought for them.
# 699: a node is closed and emptied long after the last trouble.
ONCE_FAILED = (499, 699)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_random_scenario_comes_to_rest(chunk: int) -> None:
    failed = {seed: found for seed in SEEDS[chunk::CHUNKS] if (found := problems(random_scenario(seed)))}
    assert failed == {}


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_scenario_that_once_failed_comes_to_rest(seed: int) -> None:
    assert problems(random_scenario(seed)) == []


def test_random_scenarios_can_be_saved_and_played_again() -> None:
    for seed in range(20):
        scenario = random_scenario(seed)
        assert parse_scenario(to_yaml(scenario), "saved") == scenario


def test_a_failing_scenario_is_shrunk_to_what_matters() -> None:
    impossible = random_scenario(3).with_(expect=(Running(pods=10**6),))
    small = shrink(impossible, lambda scenario: bool(problems(scenario)), budget=60)
    assert problems(small)
    assert len(small.steps) == 0
    assert len(small.workloads) < len(impossible.workloads) or len(impossible.workloads) <= 1
