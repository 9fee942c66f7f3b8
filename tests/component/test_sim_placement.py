"""Clusters that report placement: the rules keep what scenarios promise, and sums break it for what they miss."""

from __future__ import annotations

import re

import pytest

from bigfleet.sim import library
from bigfleet.sim.scenario.scenario import OperatorKind, shipped_file
from bigfleet.sim.world.operators.placing import PlacementReports
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import SECOND
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


def test_every_shipped_scenario_says_which_operators_it_plays() -> None:
    """Ordinary clusters report placement; those of the reference's scenarios send sums, and say so."""
    for name in library.shipped():
        text = shipped_file(name).read_text(encoding="utf-8")
        while (base := re.search(r"^extends: (\S+)$", text, re.MULTILINE)) and "\noperator:" not in text:
            text = shipped_file(base.group(1)).read_text(encoding="utf-8")
        assert re.search(r"^operator: (placement|reference)$", text, re.MULTILINE), name


def test_the_first_purchase_costs_at_most_a_tenth_more_than_the_cheapest_machines_that_hold_all() -> None:
    """$23.60 an hour is the integer optimum of what the scenario wants (its own comment says of what it is made)."""
    run = Simulation(library.find("sizes-at-once"))
    run.kernel.run_until(15 * SECOND)
    core = run.sites[0].host.core
    assert core is not None
    assert 23.60 <= core.published.dollars_per_hour <= 23.60 * 1.10


def test_without_reservations_others_take_the_nodes_bought_for_pods_that_want_one_each() -> None:
    scenario = library.find("room-for-each")
    assert Simulation(scenario, engine=OracleEngine, check=True).run().failures() == []
    left_alone = Simulation(scenario, engine=OracleEngine)
    for site in left_alone.sites:
        for member in site.members.values():
            assert isinstance(member.says, PlacementReports)
            member.says.mirror.reserve(False)
    assert left_alone.run().failures() == [
        "configured: 15 machines serve clusters, not 10",
        "actions: 15 Provision actions, more than 10",
    ]
