"""Chunks of int32 in one growing array: members of cells and ordered cell lists of owners live in such pools.

Chunks have power-of-two sizes and freed ones are reused by size. Kernels never grow the array: callers reserve first.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels.columns import grown, room
from bigfleet.engine.kernels.jit import I4, I8, inner, kernel
from bigfleet.engine.kernels.view import View, view

_BUMP = 40


@view
class Pool(View):
    """`heads[k]` is the first free chunk of size 2**k (or -1), linked through each chunk's first element."""

    data: I4
    heads: I8


class PoolStore:
    """Owns the array of a pool."""

    def __init__(self) -> None:
        heads = np.full(48, -1, np.int64)
        heads[_BUMP] = 0
        self.v = Pool(np.zeros(64, np.int32), heads)

    def reserve(self, elements: int) -> None:
        """Room for chunks of `elements` in all, rounding included, even if no freed chunk can be reused."""
        need = int(self.v.heads[_BUMP]) + elements
        if need > len(self.v.data):
            self.v = self.v._replace(data=grown(self.v.data, room(len(self.v.data), need)))

    def clear(self) -> None:
        self.v.heads[:] = -1
        self.v.heads[_BUMP] = 0


@inner
def chunk_size(count: int) -> int:
    """The size of the chunk that holds `count` elements."""
    size = 1
    while size < count:
        size *= 2
    return size


@inner
def pool_room(pool: Pool) -> int:
    """How many elements can be taken even if no freed chunk can be reused."""
    return len(pool.data) - pool.heads[_BUMP]


@inner
def take_chunk(pool: Pool, size: int) -> int:
    """Offset of a chunk; `size` is a power of two."""
    order = 0
    while (1 << order) < size:
        order += 1
    at = pool.heads[order]
    if at >= 0:
        pool.heads[order] = pool.data[at]
        return at
    at = pool.heads[_BUMP]
    pool.heads[_BUMP] = at + size
    return at


@inner
def give_chunk(pool: Pool, at: int, size: int) -> None:
    order = 0
    while (1 << order) < size:
        order += 1
    pool.data[at] = pool.heads[order]
    pool.heads[order] = at


@inner
def move_chunk(pool: Pool, old: int, used: int, old_size: int, size: int) -> int:
    """Offset of a chunk of another size with the elements `used` of the old one (`old_size` 0: there is none), which
    is given back."""
    start = take_chunk(pool, size)
    for k in range(used):
        pool.data[start + k] = pool.data[old + k]
    if old_size > 0:
        give_chunk(pool, old, old_size)
    return start


@kernel
def take_region(pool: Pool, size: int) -> int:
    return take_chunk(pool, size)


@kernel
def give_region(pool: Pool, at: int, size: int) -> None:
    give_chunk(pool, at, size)


def region_size(count: int) -> int:
    """`chunk_size` for Python."""
    return 1 << max(0, count - 1).bit_length()
