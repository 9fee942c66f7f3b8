"""A machine that is rented for nobody, longer than the policy keeps it, is a leak."""

import pytest

from bigfleet.sim.scenario.scenario import parse_scenario
from bigfleet.sim.world.simulation import Simulation

SCENARIO = """\
name: forgotten
description: A rented machine and nobody who wants it.
duration: 40m
fleets:
  - can_delete: CAN_DELETE
    offers: [{name: rented, instance_type: m6i.large, capacity_type: MARKET, idle: 1}]
clusters: [{name: web}]
steps: [{at: 0s, do: rails, paused: PAUSED}]
expect: [{check: nothing-leaked}]
"""


@pytest.mark.parametrize(
    ("market", "paused", "can_delete", "leaks"),
    [
        ("on-demand", "true", "true", 1),
        ("spot", "true", "true", 1),
        ("on-demand", "false", "true", 0),
        ("on-demand", "true", "false", 0),
        ("bare-metal", "true", "true", 0),
        ("reserved", "true", "true", 0),
    ],
)
def test_what_is_paid_by_the_hour_is_not_kept_for_nobody(market: str, paused: str, can_delete: str, leaks: int) -> None:
    text = SCENARIO.replace("MARKET", market).replace("PAUSED", paused).replace("CAN_DELETE", can_delete)
    found = Simulation(parse_scenario(text, "forgotten")).run().failures()
    assert len(found) == leaks
    assert all("rented-zone-a-0000 of sim has been Idle for" in each for each in found)
