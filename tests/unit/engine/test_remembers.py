"""What the engine keeps from step to step changes no decision: a fresh engine comes to the same."""

from __future__ import annotations

import random

import pytest

from bigfleet.engine import Engine
from bigfleet.engine.policy import Policy
from tests.strategies.builders import START, MachineLine, batch, bound, demand, idle, machine, need

CONFIGURING = 4
TYPES = ("small", "large")


@pytest.mark.parametrize("seed", range(20))
def test_an_old_engine_decides_what_a_fresh_one_does(seed: int) -> None:
    """Amounts grow and shrink, cells empty and others take their numbers, machines pass through Configuring."""
    rng = random.Random(seed)
    old = Engine()
    fleet: dict[str, MachineLine] = {}
    wanted = {(cluster, kind): rng.randint(1, 6) for cluster in ("c", "d") for kind in TYPES}
    for step in range(12):
        changed = []
        for _ in range(rng.randint(1, 6)):
            name = f"m{rng.randint(0, 30):02d}"
            facts = {"type": rng.choice(TYPES), "price": float(rng.randint(1, 3))}
            line = rng.choice(
                [
                    lambda n, f: bound(n, rng.choice("cd"), **f),
                    lambda n, f: machine(n, CONFIGURING, cluster=rng.choice("cd"), **f),
                    lambda n, f: idle(n, **f),
                ]
            )(name, facts)
            fleet[name] = line
            changed.append(line)
        wanted[rng.choice(list(wanted))] = rng.randint(1, 6)
        rows = demand(
            *(need(cluster, units, types=(kind,)) for (cluster, kind), units in wanted.items()),
        )
        latest = {line.id: line for line in changed}
        was = old.step(batch(list(latest.values())), rows, Policy(), START + step)
        fresh = Engine().step(batch(list(fleet.values())), rows, Policy(), START + step)
        assert was.actions.rows() == fresh.actions.rows()
        assert [(row.key, row.deficit) for row in was.shortfalls.rows()] == [
            (row.key, row.deficit) for row in fresh.shortfalls.rows()
        ]
