"""Steady demand comes to rest in every family, and prices that move undo no move before it has paid for itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bigfleet.engine.results import Reason
from bigfleet.shard.contract import events as ev
from bigfleet.sim.document.document import Nanoseconds
from bigfleet.sim.scenario.scenario import Scenario
from bigfleet.sim.scenario.steps import Price
from bigfleet.sim.soak.fixed_points import FAMILIES, come_to_rest, steady
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import HOUR, MINUTE

PAYBACK = HOUR


@pytest.mark.parametrize("family", FAMILIES)
def test_after_two_paybacks_of_steady_demand_400_cycles_decide_nothing(family: str) -> None:
    rest = come_to_rest(family, pods=18)
    assert rest.settling > 0
    assert (rest.running, rest.late) == (rest.pods, 0)


@pytest.mark.parametrize("seed", [3, 4])
def test_moves_are_no_reason_for_further_moves(seed: int) -> None:
    """Three hours on, these two still moved what moves had brought together, and what had been refused before."""
    rest = come_to_rest("mixed-8", pods=300, seed=seed)
    assert rest.settling > 100
    assert (rest.running, rest.late) == (rest.pods, 0)


class Watched(Simulation):
    """A run that remembers which machines took the pods of which."""

    def stepped(self, shard: str, wanted: ev.RunStep, result: Any) -> None:
        for action in result.actions.rows():
            if action.reason == Reason.MOVE and action.replaces:
                self.moves.append((self.kernel.now, action.replaces, action.machine))
        super().stepped(shard, wanted, result)

    def __init__(self, scenario: Scenario) -> None:
        self.moves: list[tuple[int, tuple[str, ...], str]] = []
        super().__init__(scenario)


def _with_prices_that_move(family: str, seed: int) -> Scenario:
    """Every quarter of an hour some offer costs half or twice as much."""
    scenario = steady(family, 12, seed)
    dice = random.Random(f"prices/{seed}")
    offers = [(offer.name, offer.price_per_hour) for offer in scenario.fleets[0].offers]
    steps = []
    for quarter in range(1, 14):
        name, _ = dice.choice(offers)
        price = round(dice.choice((0.05, 0.1, 0.2, 0.4, 0.8)), 3)
        steps.append(Price(at=Nanoseconds(quarter * 15 * MINUTE), offer=name, price_per_hour=price))
    return scenario.with_(steps=tuple(steps), duration=Nanoseconds(4 * HOUR))


def test_no_move_is_undone_within_its_payback_while_prices_change() -> None:
    moved = 0
    for seed in range(4):
        run = Watched(_with_prices_that_move(("markets", "mixed-8", "thirds")[seed % 3], seed)).run()
        bought: dict[str, int] = {}
        for at, old, new in run.moves:
            for machine in old:
                # What a move brought is not moved away again before the move has paid for itself.
                assert at - bought.get(machine, -PAYBACK) >= PAYBACK, (seed, machine)
            bought[new] = at
        moved += len(run.moves)
        assert run.pods("", "")[0] == run.pods("", "")[1]
    assert moved >= 5, "prices moved and hardly anything followed: this shows nothing"
