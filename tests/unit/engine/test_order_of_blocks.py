"""Cells of one unit stay in the documented order of blocks while their smallest machines come and go."""

from __future__ import annotations

import random

import pytest

from bigfleet.engine import Engine
from bigfleet.engine.policy import Policy
from tests.strategies.builders import CONFIGURING, SECOND, START, batch, bound, demand, idle, machine, need, removed

ZONES = 12


@pytest.mark.parametrize("changes", [1, 3, 8, 40], ids=lambda n: f"{n}-at-a-time")
@pytest.mark.parametrize("width", [3, 24], ids=["short-ids", "ids-longer-than-their-keys"])
def test_blocks_stay_in_order_when_smallest_machines_come_and_go(changes: int, width: int) -> None:
    """Zones of one price, so that only ids decide: few of them step past each other, many are sorted."""
    dice, engine = random.Random(changes), Engine()
    here: dict[str, int] = {}

    def line(number: int) -> object:
        name, zone = f"m{number:0{width}}", f"zone-{number * 7 % ZONES}"
        state = dice.randrange(5)
        if state == 0 and name in here:
            del here[name]
            return removed(name)
        here[name] = state
        if state == 1:
            return [machine(name, CONFIGURING, "a", zone=zone, cpu=4)]
        if state == 2:
            return [idle(name, zone=zone, cpu=4)]
        return [bound(name, "a" if state == 3 else "b", zone=zone, cpu=4)]

    wanted = demand(need("a", 40, cpu=4), need("b", 40, cpu=4))
    engine.step(batch(*(line(n) for n in range(60))), wanted, Policy(), START)  # type: ignore[arg-type]
    for step in range(1, 60):
        chosen = dice.sample(range(60), changes)
        engine.step(batch(*(line(n) for n in chosen)), None, Policy(), START + step * SECOND)  # type: ignore[arg-type]
        engine.validate()
