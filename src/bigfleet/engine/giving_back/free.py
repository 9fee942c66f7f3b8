"""The free pool as consolidation sees it: blocks that are not held, and the next machine of each (P18, P36)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.published import Published
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import CONFIGURED, OWNER_IDLE, OWNER_SPECULATIVE, Cells
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.fleet.members import order_members
from bigfleet.engine.giving_back.other_room import FreeBlocks
from bigfleet.engine.kernels.ids import Ids
from bigfleet.engine.kernels.jit import I4R, kernel
from bigfleet.engine.kernels.pool import Pool


class FreePool:
    """Blocks; `order` has the cheapest first, those of one class together and by id. What is taken is claimed."""

    def __init__(self, w: World, fleet: Fleet, published: Published, dropped: NDArray[np.int32]) -> None:
        self._w, self._fleet = w, fleet
        self._cells = self._free_cells()
        cells, count = w.cells, len(self._cells)
        # A block's machines that were claimed and given back again, the smallest id last.
        self._back: dict[int, list[int]] = {}
        for slot in sorted(dropped.tolist(), key=lambda slot: fleet.ids.text(slot).encode(), reverse=True):
            self._back.setdefault(int(fleet.v.cell[slot]), []).append(slot)
        cls = np.ascontiguousarray(cells.cls[self._cells])
        unpaid = (np.arange(count) < int(w.owners.used[OWNER_IDLE])) & (published.owned[cls] != 0)
        back = np.array([len(self._back.get(cell, ())) for cell in self._cells.tolist()], np.int32)
        left = (cells.count[self._cells] - cells.taken[self._cells] + back).astype(np.int32)
        least = np.ascontiguousarray(cells.least[self._cells])
        texts = [text.encode() for text in fleet.ids.texts(least)]
        by_id = np.empty(count, np.int64)
        by_id[sorted(range(count), key=texts.__getitem__)] = np.arange(count)
        order = np.lexsort((by_id, unpaid, cls, np.where(unpaid, 0.0, w.k.price[cls]))).astype(np.int32)
        self.blocks = FreeBlocks(
            cls=cls, unpaid=unpaid.astype(np.uint8), least=least, left=left,
            order=order, room=np.zeros((max(1, count), w.k.alloc.shape[1]), np.int64),
        )  # fmt: skip

    def _free_cells(self) -> NDArray[np.int32]:
        w = self._w
        spans = []
        for owner in (OWNER_IDLE, OWNER_SPECULATIVE):
            start = int(w.owners.start[owner])
            spans.append(w.held.data[start : start + int(w.owners.used[owner])])
        idle, slots = spans
        return np.concatenate((idle, slots[w.k.broken[w.cells.cls[slots]] == 0]))

    def take(self, block: int) -> int:
        """The unclaimed machine of a block with the smallest id, -1 if there is none."""
        if self.blocks.left[block] <= 0:
            return -1
        w, fleet, cell = self._w, self._fleet, int(self._cells[block])
        self.blocks.left[block] -= 1
        back = self._back.get(cell)
        if back:
            return back.pop()
        order_cell(w.cells, fleet.cells.members.v, w.ids, fleet.v.place, cell)
        slot = int(fleet.cells.members.v.data[int(w.cells.start[cell]) + int(w.cells.taken[cell])])
        w.cells.taken[cell] += 1
        return slot


@kernel
def order_cell(cells: Cells, members: Pool, ids: Ids, place: I4R, cell: int) -> None:
    order_members(cells, members, ids, place, cell)


@kernel
def configured_of(w: World, cluster: int) -> int:
    """Configured machines of a cluster."""
    total = 0
    for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
        for at in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
            cell = w.held.data[at]
            if w.cells.state[cell] == CONFIGURED:
                total += w.cells.count[cell]
    return total
