"""A day of demand that swings across five shards, in the simulator: real cores of shards and coordinator, virtual time.

Counted are the machines that changed shards, and those that did so again within the cool-down; the same day without a
coordinator tells what the moves are worth.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from bigfleet.sim.scenario.scenario import load_scenario
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import HOUR

SCENARIO = Path("tests/data/coordinated/swinging-day.yaml")
# Each of five clusters rises by fourteen pods, a machine each, once in two hours: nobody needs more than that.
CLUSTERS, RISE, PERIOD_HOURS = 5, 14, 2


async def run(options: argparse.Namespace) -> dict[str, Any]:
    return await asyncio.to_thread(_played, options.hours)


def _played(hours: int) -> dict[str, Any]:
    scenario = load_scenario(SCENARIO).with_(duration=hours * HOUR)
    assert scenario.coordinator is not None
    begin = time.process_time()
    played = Simulation(scenario).run()
    assert played.coordinating is not None
    moved = played.coordinating.moved
    last: dict[str, int] = {}
    again = 0
    shortest = 0.0
    for each in moved:
        if each.machine in last:
            since = each.at - last[each.machine]
            again += since < scenario.coordinator.cooldown
            shortest = min(shortest or since, since)
        last[each.machine] = each.at
    return {
        "hours": hours,
        "shards": scenario.shards,
        "machines": 100,
        "machines_moved": len(moved),
        "machines_that_moved": len(last),
        "cooldown_s": scenario.coordinator.cooldown / 1e9,
        "shortest_time_between_two_moves_s": round(shortest / 1e9, 1),
        "moved_again_within_cooldown": again,
        "failures": played.failures(),
        "processor_seconds": round(time.process_time() - begin, 1),
        "limits": {
            "moved_again_within_cooldown": 0,
            "machines_moved": CLUSTERS * RISE * hours / PERIOD_HOURS,
        },
    }
