"""Clusters that report placement: the rules keep what scenarios promise, and sums break it for what they miss."""

from __future__ import annotations

import pytest

from bigfleet.sim import library
from bigfleet.sim.scenario.scenario import OperatorKind
from bigfleet.sim.world.simulation import Simulation
from tests.strategies.oracle_engine import OracleEngine

# Scenario, and what sums get wrong about it.
KEPT = {
    "pods-of-five": "demand-met: demand is not met at the end: 25 of 40 pods run",
    "one-gpu-pods": "configured: 0 machines of quad serve clusters, not 3",
    "one-large-among-small": "demand-met: demand is not met at the end: 22 of 25 pods run",
    "one-pod-per-node": "demand-met: 7 pods waited longer than 10m",
    "services-beside-spot": "no-shortfall: 10 pods of priority 1000 or more waited longer than 5m",
    "nothing-bought-back": "demand-met: 4 pods waited longer than 5m",
    "refused-drain": "demand-met: demand is not met at the end: 8 of 12 pods run",
    "nonsense-stranded": "demand-met: demand is not met at the end: 13 of 20 pods run",
    "nonsense-nothing-removable": "interruptions: 3 pods interrupted (reclaim), more than 0",
}


@pytest.mark.parametrize("name", KEPT)
def test_deciding_for_pods_keeps_what_sums_break(name: str) -> None:
    scenario = library.find(name)
    assert Simulation(scenario, engine=OracleEngine, check=True).run().failures() == []
    sums = Simulation(scenario.with_(operator=OperatorKind.REFERENCE), engine=OracleEngine).run()
    assert any(failure.startswith(KEPT[name]) for failure in sums.failures()), sums.failures()


def test_scenarios_that_wait_to_be_switched_on_exist_and_have_no_golden() -> None:
    assert set(library.shipped()) >= library.AWAITED
    assert [name for name in sorted(library.AWAITED) if library.golden_path(name).exists()] == []
