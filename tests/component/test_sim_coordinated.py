"""The coordinator over several simulated shards: neighbours help, with no more than is missing, and not back again."""

from __future__ import annotations

from pathlib import Path

from bigfleet.sim.scenario.scenario import load_scenario
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import HOUR

SCENARIOS = Path(__file__).parents[1] / "data" / "coordinated"


def test_a_shard_that_is_short_gets_its_neighbours_idle_machines_and_no_more_than_it_lacks() -> None:
    scenario = load_scenario(SCENARIOS / "helped-by-a-neighbour.yaml")
    played = Simulation(scenario, check=True).run()
    assert played.failures() == [] and played.coordinating is not None
    assert [(each.donor, each.recipient) for each in played.coordinating.moved] == [("shard-1", "shard-0")] * 4
    alone = Simulation(scenario.with_(coordinator=None)).run()
    assert alone.failures(), "without the coordinator it would have stayed short"


def test_swinging_demand_moves_what_is_needed_and_nothing_again_within_its_cool_down() -> None:
    scenario = load_scenario(SCENARIOS / "swinging-day.yaml").with_(duration=3 * HOUR)
    played = Simulation(scenario).run()
    assert scenario.coordinator is not None and played.coordinating is not None
    moved = played.coordinating.moved
    last: dict[str, int] = {}
    for each in moved:
        assert each.at - last.get(each.machine, -(10**18)) >= scenario.coordinator.cooldown, each
        last[each.machine] = each.at
    # Five clusters rise by fourteen pods, a machine each, once in two hours; nobody gets more than that.
    assert 0 < len(moved) <= 5 * 14 * 2
