"""What must hold of the rules for clusters that report placement, whoever carries them out: here the oracle."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bigfleet.engine.policy import Placement, Policy
from tests.oracle.step import Oracle
from tests.strategies.builders import ON_DEMAND, RESERVED, SECOND, SPOT, idle, slot
from tests.strategies.differential import difference
from tests.strategies.fleets import Size
from tests.strategies.placed import pods
from tests.strategies.placed_fleets import play_placed
from tests.strategies.placed_loop import Loop
from tests.strategies.placed_mutants import killed

KINDS = ((2, 8, 0.1), (4, 16, 0.2), (8, 32, 0.4), (16, 64, 0.8), (8, 64, 0.5), (16, 32, 0.7))


@pytest.mark.parametrize("seed", range(60))
def test_the_order_of_records_changes_nothing(seed: int) -> None:
    other, dice = Oracle(), random.Random(seed)
    for step, result in play_placed(seed, Size(machines=32, rows=8, steps=8), Oracle()):
        again = step.shuffled(dice).feed(other)
        assert difference(result, again) is None
        assert result.aborted == again.aborted


@pytest.mark.parametrize("seed", range(60, 120))
def test_no_machine_is_used_twice_and_every_stranded_unit_is_accounted_for(seed: int) -> None:
    for _, result in play_placed(seed, Size(machines=32, rows=8, steps=8), Oracle()):
        used = [action.machine for action in result.actions]
        assert len(used) == len(set(used))
        for verdict in result.verdicts:
            if verdict.units is None:
                continue
            units = verdict.units
            found = (units.coming, units.acquired, units.awaiting, units.missing)
            assert min(found) >= 0
            assert sum(found) == units.stranded
            assert units.count == units.running + units.room + units.stranded
            assert verdict.satisfied == (units.stranded == 0)


def _fleet(dice: random.Random) -> list[Any]:
    machines = [
        slot(f"k{k}-{n:02}", type=f"t{k}", capacity=ON_DEMAND, cpu=cpu, mem=mem, price=price)
        for k, (cpu, mem, price) in enumerate(KINDS)
        for n in range(20)
    ]
    spot: dict[str, Any] = {"type": "t2", "capacity": SPOT, "cpu": 8, "mem": 32, "price": 0.12, "risk": 0.05}
    machines += [slot(f"spot-{n:02}", **spot) for n in range(dice.choice((0, 5, 20)))]
    own: dict[str, Any] = {"type": "own", "capacity": RESERVED, "cpu": 16, "mem": 64, "price": 0.5}
    machines += [idle(f"own-{n}", **own) for n in range(dice.choice((0, 2)))]
    return machines


@pytest.mark.parametrize("consolidate", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_steady_demand_comes_to_rest_with_every_pod_running(seed: int, consolidate: bool) -> None:
    """Demand grows, shrinks and then stands still; after forty minutes nothing has happened for ten."""
    dice = random.Random(seed)
    policy = Policy.production().with_(
        placement=Placement(consolidate=consolidate, closing_ns=60 * SECOND, settle_ns=60 * SECOND)
    )
    loop = Loop(Oracle(), _fleet(dice), policy, emptiest_first=bool(seed % 2))
    rows = [
        pods(
            cluster, 1, cpu=dice.choice((0.5, 1, 3, 5)), mem=dice.choice((1, 4, 12)), interruption=dice.choice((0, 256))
        )
        for cluster in ("a", "b")
        for _ in range(3)
    ]
    for row in rows:
        loop.start(row, dice.randint(1, 6))
    for cycle in range(40):
        if cycle == 20:
            loop.stop("a", 6, dice)
            loop.start(rows[0], 3)
        loop.cycle()
    actions = [loop.cycle() for _ in range(240)]
    assert not any(actions[-60:])
    assert all(pod.node for cluster in loop.clusters.values() for pod in cluster.pods)
    assert loop.result.shortfalls == []


def test_broken_rules_are_each_noticed() -> None:
    """`python -m tests.strategies.placed_mutants` says how many fleets each takes."""
    assert {name for name, after in killed().items() if after is None} == set()
