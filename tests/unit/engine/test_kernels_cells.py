"""The table of cells: a cell is found as long as it is there, whatever came and went around it."""

from __future__ import annotations

import random

from bigfleet.engine.fleet.cells import Cells, CellStore, cell_hash, drop_cell, find_cell, make_cell
from bigfleet.engine.kernels.jit import kernel

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
