"""Counting domains for one entry after another, and the arithmetic by which gangs choose and rest."""

from __future__ import annotations

import numpy as np
import pytest

from bigfleet.engine import Engine
from bigfleet.engine.decide.gang import parked_at, per_mille, score
from bigfleet.engine.decide.spread import begin_domains, fewest, touch_domain
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import NO_TIME
from bigfleet.engine.kernels.jit import I4, I8, I8M, kernel
from bigfleet.engine.policy import Policy
from tests.strategies.builders import RACK, START, batch, demand, idle, need


@kernel
def counted(w: World, domains: I4, visited: I4) -> int:
    """The smallest count after one machine each in `domains` and none in `visited`."""
    begin_domains(w)
    for i in range(len(visited)):
        touch_domain(w, visited[i])
    for i in range(len(domains)):
        touch_domain(w, domains[i])
        w.dom.machines[domains[i]] += 1
    return fewest(w)


@kernel
def resting(since: int, now: int, cycle: int, park_after: int, reprobe_every: int) -> bool:
    return parked_at(since, now, cycle, park_after, reprobe_every)


@kernel
def covered(have: I8M, want: I8) -> int:
    return per_mille(have, 0, want)


@kernel
def scored(have: I8M, want: I8, capped: bool) -> float:
    return score(have, 0, want, capped)


@pytest.fixture
def world() -> World:
    engine = Engine()
    lines = [idle(f"i{n}", rack=f"r{n}") for n in range(4)]
    engine.step(batch(lines), demand(need("c", 9, spread=(RACK, 1))), Policy(), START)
    assert engine.latest is not None
    return engine.latest.result.verdicts.needs.current


def places(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def test_the_fewest_count_is_over_the_domains_of_this_entry_only(world: World) -> None:
    assert counted(world, places(0, 0, 1), places()) == 1
    assert counted(world, places(0, 0, 1), places(2)) == 0
    # What an earlier entry counted is gone.
    assert counted(world, places(3, 3, 3), places()) == 3
    assert counted(world, places(), places()) == 0


def test_parking_begins_after_so_many_cycles_and_is_left_for_one_probe() -> None:
    ages = [age for age in range(70) if resting(100, 100 + age * 10, 10, 8, 32)]
    assert ages == [*range(8, 32), *range(33, 64), *range(65, 70)]
    assert not resting(NO_TIME, 10_000, 10, 8, 32)


@pytest.mark.parametrize(
    ("have", "want", "expected"),
    [
        ([5, 5], [10, 5], 500),
        ([20, 5], [10, 5], 1000),
        ([0, 5], [10, 5], 0),
        ([1, 1], [0, 0], 1000),
        ([2**52, 0], [2**53, 0], 500),
        ([2**61, 0], [2**62, 0], 500),
    ],
)
def test_coverage_is_the_worst_resource_and_does_not_overflow(have: list[int], want: list[int], expected: int) -> None:
    assert covered(np.array([have], np.int64), np.array(want, np.int64)) == expected


def test_scores_add_up_millionths_capped_or_not() -> None:
    have, want = np.array([[15, 1]], np.int64), np.array([10, 4], np.int64)
    assert scored(have, want, True) == 1_250_000
    assert scored(have, want, False) == 1_750_000
