"""Plays in which rows, overheads and nodes name resources that no machine has, until one comes that has them.

The dice of these names are their own: the plays beneath are those of the other strategies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bigfleet.engine.batches import Shape
from bigfleet.model.resources import Resources
from tests.oracle.step import OracleResult
from tests.strategies.builders import NeedLine
from tests.strategies.fleets import Asked, MachineLine, Size, StepInput, _World
from tests.strategies.placed_fleets import NodeLine, PlacedStep, _PlacedWorld

NAMES = ("a.example/x", "b.example/w", "z.example/y", "z.example/z")


def play_odd(seed: int, size: Size, oracle: Any, *, placed: bool) -> Iterator[tuple[Any, OracleResult]]:
    """Step inputs and what the oracle made of them."""
    world: Any = (_PlacedOdd if placed else _Odd)(random.Random(seed), size)
    result: OracleResult | None = None
    for _ in range(world.dice.randint(1, size.steps)):
        inputs: StepInput | PlacedStep = world.next_placed(result) if placed else world.next_step(result)
        result = inputs.feed(oracle)
        yield inputs, result


class _Names(_World):
    """Asks for odd names, and sometimes has machines that publish one."""

    def __init__(self, dice: random.Random, size: Size) -> None:
        self.odd = random.Random(dice.getstate()[1][1])
        super().__init__(dice, size)

    def _machine(self, id: str) -> MachineLine:
        line = super()._machine(id)
        if line.shape is not None and self.odd.random() < 0.06:
            line = replace(line, shape=_having(line.shape, self._some()))
        return line

    def _need(self, cluster: str) -> NeedLine:
        row, odd = super()._need(cluster), self.odd
        if odd.random() < 0.5:
            return row
        unit, count = self._some(), odd.choice((1, 2, 3))
        which = odd.random()
        aggregate = {name: amount * count for name, amount in unit.items()} if which < 0.9 else {}
        return replace(
            row,
            aggregate={**row.aggregate, **aggregate},
            min_unit={**row.min_unit, **(unit if which < 0.8 or which >= 0.9 else {})},
        )

    def _asked(self, cluster: str) -> Asked:
        asked, odd = super()._asked(cluster), self.odd
        if asked.needs and odd.random() < 0.3:
            # Rows of one key, and of keys that differ in odd names only.
            row = odd.choice(asked.needs)
            some = self._some()
            asked = replace(asked, needs=(*asked.needs, row, replace(row, min_unit={**row.min_unit, **some})))
        if odd.random() < 0.03 and asked.needs:
            wrong = {odd.choice(NAMES): odd.choice((-1, 2**52, 2**52 + 1))}
            asked = replace(asked, needs=(*asked.needs, replace(asked.needs[0], aggregate=wrong)))
        if odd.random() < 0.15:
            asked = replace(asked, overhead=(*asked.overhead, (odd.choice(NAMES), 1)))
        return asked

    def _some(self) -> dict[str, int]:
        names = self.odd.sample(NAMES, self.odd.choice((1, 1, 2)))
        return {name: self.odd.choice((1, 1, 2, 5)) for name in sorted(names)}


class _Odd(_Names):
    """Clusters that send sums."""


class _PlacedOdd(_Names, _PlacedWorld):
    """Clusters of both kinds."""

    def _node(self, line: MachineLine, cluster: str) -> NodeLine:
        node, odd = super()._node(line, cluster), self.odd
        if odd.random() < 0.1:
            some = self._some()
            node = replace(node, used={**node.used, **some} if not node.empty else node.used)
            if node.allocatable:
                more = {name: amount + odd.choice((0, 3)) for name, amount in some.items()}
                node = replace(node, allocatable={**node.allocatable, **more})
        return node


def _having(shape: Shape, more: dict[str, int]) -> Shape:
    return replace(shape, allocatable=Resources({**dict(shape.allocatable.items()), **more}))
