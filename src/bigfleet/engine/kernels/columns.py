"""Growing of columns: how every store of the engine makes room. Owns no data and knows no rule.

Memory that nobody has written to costs nothing, so zeros are neither written nor copied: what most machines leave at
zero (`deadline`, `closing`) is nearly free. Large columns are mapped by themselves: an allocator would hand out what
was used before, and write zeros into it. They are mapped with far more places than were asked for, so that they grow
where they are: a step that had to copy a column of millions would be slow for no reason a user can see.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.rows import in_rows, memory_of, row_length

A = TypeVar("A", bound=NDArray[Any])
V = TypeVar("V")

# A list of fewer elements is not worth giving back.
MANY = 65536
# Bytes from which on a column is mapped by itself, and from which on it is worth large pages; bytes moved at a time.
_LARGE, _HUGE, _PIECE = 1 << 17, 1 << 24, 1 << 16
# How many times as many bytes as were asked for are mapped for a column that is worth large pages.
_AHEAD = 64
_MAPS = hasattr(mmap, "MAP_ANONYMOUS")
# Linux: what is mapped is not counted as memory in use before it is written to. Python 3.11 has no name for it.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
UINT8, INT32, INT64 = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64)


def grown(column: A, size: int, fill: int = 0, used: int | None = None) -> A:
    """The column with room for `size` rows; the new ones hold `fill`. Of those before, only the first `used` are worth
    anything if told. The column before it may be the same memory: nobody reads both."""
    before = len(column)
    if size <= before:
        return column
    shape = (size, *column.shape[1:])
    made = _longer(column, shape)
    if made is None:
        used = before if used is None else used
        made = zeros(shape, column.dtype)
        _move(column[:used], made[:used])
    if fill:
        made[before:] = fill
    return made  # type: ignore[return-value]


def given_back(column: A, most: int, used: int) -> A:
    """The column of a list that once had `most` elements: one that nobody has written to yet, if few of them are left.
    Loading a fleet makes lists of all machines, which a step then needs a thousandth of."""
    if most < MANY or used * 8 > most:
        return column
    made = zeros(column.shape, column.dtype)
    made[:used] = column[:used]
    return made  # type: ignore[return-value]


def zeros(shape: int | tuple[int, ...], kind: np.dtype[Any]) -> NDArray[Any]:
    """A column of zeros that nobody has written to yet."""
    size = (prod(shape) if isinstance(shape, tuple) else shape) * kind.itemsize
    if size < _LARGE or not _MAPS:
        return np.zeros(shape, kind)
    memory = _mapped(size)
    memory.told = size
    return np.frombuffer(memory, kind, size // kind.itemsize).reshape(shape)


class _Memory(mmap.mmap):
    """Memory of one column, of which the first `told` bytes are in use."""

    told: int


def _mapped(size: int) -> _Memory:
    """Memory for a column of this size and for what it may grow to, as much of it as can be had."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if size < _HUGE:
        # One that outgrows it moves, once, to where pages are large.
        return _Memory(-1, _HUGE, flags=private | _NO_RESERVE)
    try:
        memory = _Memory(-1, _AHEAD * size, flags=private | _NO_RESERVE)
    except (OSError, OverflowError):
        memory = _Memory(-1, size, flags=private)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _longer(column: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The column with more rows in the memory it has; None if it has none of its own, or too little of it, or if it is
    a part of what is there, or has grown before and is grown again."""
    seen: Any = column.base
    if isinstance(seen, np.ndarray):
        seen = seen.base
    memory = seen.obj if isinstance(seen, memoryview) else None
    size = prod(shape) * column.itemsize
    if not isinstance(memory, _Memory) or memory.told != column.nbytes or size > len(memory):
        return None
    memory.told = size
    return np.frombuffer(memory, column.dtype, size // column.itemsize).reshape(shape)


def _move(column: NDArray[Any], into: NDArray[Any]) -> None:
    """Copies all but zeros."""
    if column.nbytes < _LARGE or not column.flags.c_contiguous:
        into[:] = column
        return
    old, new = column.reshape(-1).view(np.uint8), into.reshape(-1).view(np.uint8)
    for first in range(0, len(old), _PIECE):
        piece = old[first : first + _PIECE]
        if piece[0] or len(piece) < _PIECE or piece.view(np.int64).any():
            new[first : first + _PIECE] = piece


def owned(column: A, kind: np.dtype[Any]) -> A:
    """The column as kernels are compiled for: of this kind, contiguous and writable."""
    if column.dtype is kind and column.flags.carray:
        return column
    made = np.ascontiguousarray(column, kind)
    return made if made.flags.writeable else made.copy()  # type: ignore[return-value]


def widened(matrix: A, width: int, fill: int = 0) -> A:
    """The matrix with room for `width` columns."""
    if width <= matrix.shape[1]:
        return matrix
    made = zeros((len(matrix), width), matrix.dtype)
    if fill:
        made[:, matrix.shape[1] :] = fill
    made[:, : matrix.shape[1]] = matrix
    return made  # type: ignore[return-value]


def room(size: int, needed: int) -> int:
    """A capacity of at least `needed` that grows by half, so that adding rows one by one stays linear."""
    return size if needed <= size else max(needed, size + size // 2, 16)


def appended(column: A, used: int, more: Sequence[int] | NDArray[np.int64]) -> A:
    """The column with more values behind the first `used` ones."""
    column = grown(column, room(len(column), used + len(more)))
    column[used : used + len(more)] = more
    return column


def made(kind: type[V], size: int, **widths: int) -> V:
    """Zeroed columns of a store, as its annotations say; matrices are one wide unless told."""
    rows = in_rows(kind, zeros(size * row_length(kind), UINT8))
    columns = [
        rows[name] if name in rows else zeros(size if dimensions == 1 else (size, widths.get(name, 1)), element)
        for name, element, dimensions in _annotated(kind)  # type: ignore[arg-type]  # a class is hashable
    ]
    return kind(*columns)


def grown_rows(store: V, size: int) -> dict[str, NDArray[Any]]:
    """The columns of a store's rows with room for `size` of them; the new ones hold zeros."""
    kind = type(store)
    return in_rows(kind, grown(memory_of(store), size * row_length(kind)))


@cache
def _annotated(kind: type[Any]) -> tuple[tuple[str, np.dtype[Any], int], ...]:
    """Name, element and dimensions of each column; evaluating annotations costs more than making the columns."""
    hints = get_type_hints(kind, include_extras=True)
    declared = ((name, *get_args(hint)[1:3]) for name, hint in hints.items())
    return tuple((name, np.dtype(element), dimensions) for name, element, dimensions in declared)
