"""The table of cells: a cell is found as long as it is there, whatever came and went around it. And the machines of a
cell: it keeps them and needs no more and more room, however often they leave and come back."""

from __future__ import annotations

import random

import pytest

from bigfleet.engine import Engine
from bigfleet.engine.fleet.cells import Cells, CellStore, cell_hash, drop_cell, find_cell, make_cell
from bigfleet.engine.kernels.jit import kernel
from bigfleet.engine.policy import Policy
from tests.strategies.builders import CONFIGURED, CONFIGURING, SECOND, START, batch, machine

Key = tuple[int, int, int, int, int]


@kernel
def made(cells: Cells, cls: int, state: int, held: int, cluster: int, stamp: int) -> int:
    return make_cell(cells, cell_hash(cls, state, held, cluster, stamp), cls, state, held, cluster, stamp)


@kernel
def found(cells: Cells, cls: int, state: int, held: int, cluster: int, stamp: int) -> int:
    return find_cell(cells, cell_hash(cls, state, held, cluster, stamp), cls, state, held, cluster, stamp)


@kernel
def drop(cells: Cells, cell: int) -> None:
    drop_cell(cells, cell)


def drawn(dice: random.Random) -> Key:
    return (dice.randrange(40), dice.randrange(1, 6), dice.randrange(2), dice.randrange(-1, 5), dice.randrange(-1, 3))


def test_cells_are_found_until_they_are_dropped_and_not_after() -> None:
    dice, store = random.Random(1), CellStore()
    live: dict[Key, int] = {}
    for step in range(8000):
        # First more and more, then fewer and fewer: searches go over what was dropped, and over the end of the table.
        if live and dice.random() < (0.3 if step < 4000 else 0.7):
            key = dice.choice(list(live))
            drop(store.v, live.pop(key))
            assert found(store.v, *key) == -1
        else:
            key = drawn(dice)
            store.reserve(1)
            assert found(store.v, *key) == live.get(key, -1)
            if key not in live:
                live[key] = int(made(store.v, *key))
        if step % 100 == 0:
            assert all(found(store.v, *key) == cell for key, cell in live.items())
            assert len(set(live.values())) == len(live) == int((store.v.table >= 0).sum())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 25, 33])
def test_a_cell_whose_machines_come_and_go_keeps_its_room(count: int) -> None:
    dice, engine, policy = random.Random(count), Engine(), Policy()
    lines = [machine(f"m-{number:02d}", CONFIGURED, "c-1") for number in range(count)]
    engine.step(batch(lines), None, policy, START)
    told: set[int] = set()
    room = []
    for step in range(1, 300):
        back, told = told, set(dice.sample(range(count), dice.randint(0, count)))
        changed = [lines[number].to(CONFIGURED, "c-1") for number in sorted(back - told)]
        changed += [lines[number].to(CONFIGURING, "c-1") for number in sorted(told)]
        engine.step(batch(changed), None, policy, START + step * SECOND)
        if step % 25 == 0:
            engine.validate()
        room.append(int(engine.fleet.cells.v.size.max()))
    # Room for all of them and a quarter more, of which it is the next power of two.
    assert max(room) <= 2 * (count + count // 4 + 1)
