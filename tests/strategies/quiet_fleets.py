"""Random clusters in which nothing waits and little is used: what consolidation closes, moves and deletes.

Beside `placed_fleets.py`, where such things are rare. A few profiles with constraints, nodes that carry one or two of
them, a free pool of cheaper and dearer machines, and policies that let much happen.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from bigfleet.engine.batches import Conditions
from bigfleet.engine.placement import Load, Move, Rest, RestKind
from bigfleet.engine.policy import Placement, Policy
from bigfleet.model.requirement import Operator, Requirement
from tests.strategies.builders import (
    GPU,
    ON_DEMAND,
    RESERVED,
    SECOND,
    SPOT,
    START,
    ZONE,
    MachineLine,
    bound,
    idle,
    slot,
)
from tests.strategies.placed import CountedLine, NodeLine, pods
from tests.strategies.placed_fleets import AskedUnits, PlacedStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PRICES = (0.1, 0.2, 0.4, 0.8, 1.6)


def quiet_steps(seed: int, nodes: int = 14, free: int = 14) -> Iterator[PlacedStep]:
    """Steps of one quiet fleet."""
    world = _Quiet(random.Random(seed), nodes, free)
    for number in range(world.dice.randint(2, 5)):
        yield world.step(number)


class _Quiet:
    def __init__(self, dice: random.Random, nodes: int, free: int) -> None:
        self.dice, self.now = dice, START
        self.clusters = ("c", "d")[: dice.choice((1, 1, 2))]
        self.pods_published = dice.random() < 0.5
        self.rows = {name: [self._row(name) for _ in range(dice.randint(1, 4))] for name in self.clusters}
        self.bound = [bound(f"n{n}", dice.choice(self.clusters), **self._facts()) for n in range(nodes)]
        self.free = [dice.choice((idle, slot, slot))(f"f{n}", **self._facts(free=True)) for n in range(free)]
        self.ready = {line.id: START for line in self.bound}

    def _row(self, cluster: str) -> CountedLine:
        dice = self.dice
        facts: dict[str, Any] = {}
        if dice.random() < 0.3:
            facts["where"] = [Requirement(ZONE, Operator.IN, (dice.choice("ab"),))]
        if dice.random() < 0.1:
            facts["spread"] = (ZONE, 1)
        return pods(cluster, 3, running=3, cpu=dice.choice((1, 2)), mem=1, priority=dice.choice((0, 1)), **facts)

    def _facts(self, free: bool = False) -> dict[str, Any]:
        dice = self.dice
        size = dice.choice((4, 8, 16))
        facts: dict[str, Any] = {
            "cpu": size,
            "mem": size * dice.choice((2, 4)),
            "price": dice.choice(PRICES),
            "zone": dice.choice("ab"),
            "capacity": dice.choice((ON_DEMAND, ON_DEMAND, SPOT, RESERVED)),
        }
        if facts["capacity"] == SPOT:
            facts["risk"] = dice.choice((0.0, 0.05))
        if dice.random() < 0.1:
            facts["gpu"] = 1
        if self.pods_published and dice.random() < 0.8:
            facts["pods"] = dice.choice((2, 6, 12))
        return facts

    def step(self, number: int) -> PlacedStep:
        dice = self.dice
        self.now += dice.choice((30, 60, 600)) * SECOND
        shown = {name: tuple(self._node(line) for line in self.bound if line.cluster == name) for name in self.clusters}
        return PlacedStep(
            now=self.now,
            policy=Policy(placement=self._placement()),
            machines=(*self.bound, *self.free) if number == 0 else (),
            units=tuple(AskedUnits(name, tuple(self.rows[name]), number + 1) for name in self.clusters),
            nodes=tuple(shown.items()),
            conditions=self._conditions(),
        )

    def _node(self, line: MachineLine) -> NodeLine:
        dice = self.dice
        assert line.shape is not None
        have = dict(line.shape.allocatable.items())
        used = {name: int(amount * dice.choice((0.05, 0.1, 0.25, 0.5))) for name, amount in have.items()}
        if GPU in have and dice.random() < 0.5:
            used[GPU] = 1
        rows = self.rows[line.cluster]
        prints = {row.row.profile.fingerprint for row in dice.sample(rows, min(len(rows), dice.choice((1, 1, 2))))}
        tokens = dice.choice(((), (), (), ("port:80",), ("port:81", "port:80")))
        real = {name: amount - amount // 8 for name, amount in have.items()} if dice.random() < 0.2 else {}
        return NodeLine(
            line.id,
            empty=dice.random() < 0.05,
            removable=dice.random() < 0.1,
            used={name: amount for name, amount in used.items() if amount},
            allocatable=real,
            reclamation=dice.choice((0.0, 0.0, 0.005, 0.05, 8.0)),
            interruption=dice.choice((0.0, 0.0, 0.5, 1.0)),
            closing_since=self.now - dice.choice((10, 1500)) * SECOND if dice.random() < 0.5 else 0,
            load=Load(tuple(sorted(prints)), (), tokens),
        )

    def _placement(self) -> Placement:
        dice = self.dice
        return Placement(
            consolidate=True,
            pass_ns=dice.choice((0, 30)) * SECOND,
            settle_ns=dice.choice((0, 0, 60)) * SECOND,
            candidate_ratio=dice.choice((0.5, 0.8, 1.0)),
            candidates=dice.choice((1, 3, 64)),
            min_saving=dice.choice((0.0, 0.1, 0.25)),
            closing_fraction=dice.choice((0.15, 0.5, 1.0)),
            closing_ns=dice.choice((0, 1200)) * SECOND,
            payback_ns=dice.choice((600, 3600)) * SECOND,
            move_size=dice.choice((1, 2, 3, 6)),
            move_fraction=dice.choice((0.05, 0.3, 1.0)),
            move_window_ns=dice.choice((0, 300)) * SECOND,
            boot_ns=dice.choice((0, 120, 1800)) * SECOND,
        )

    def _conditions(self) -> Conditions:
        dice = self.dice
        kept = dice.sample(self.bound, 2)
        moves = [
            Move(kept[0].cluster, (kept[0].id,), dice.choice(("", self.free[0].id)), self.now - SECOND, 0, ended)
            for ended in (dice.random() < 0.5,)
            if dice.random() < 0.3
        ]
        rests = [Rest(kept[1].id, dice.choice((RestKind.DRAIN, RestKind.CLOSE)), self.now + SECOND)]
        return Conditions(
            acquire=dice.random() < 0.9,
            reclaim=dice.random() < 0.95,
            moves=tuple(moves),
            rests=tuple(rests) if dice.random() < 0.3 else (),
            evictions=tuple((name, dice.choice((0, 3, 10, 100, 100))) for name in self.clusters),
        )
