"""Rows: columns that lie side by side in memory, for what is always read together at places all over a store.

A column of its own costs a cache line for each place that is looked at. Columns of rows (`I4R`, `U1R`, `I8R`) are read
and written as any other, `cells.count[i]`, and those of one place share a line. They are made, grown and copied
together; a store has one set of rows. What most places leave at zero stays a column of its own, which costs nothing.
"""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

# What the annotation of such a column says behind its element and dimensions.
ROW = "row"


_PLACES: dict[type[Any], dict[str, tuple[np.dtype[Any], int, int]]] = {}


def places(kind: type[Any]) -> dict[str, tuple[np.dtype[Any], int, int]]:
    """Element, offset within a row and length of a row, by column; empty for a store without rows."""
    known = _PLACES.get(kind)
    if known is None:
        known = _PLACES[kind] = _placed(kind)
    return known


def _placed(kind: type[Any]) -> dict[str, tuple[np.dtype[Any], int, int]]:
    found: dict[str, np.dtype[Any]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        said = get_args(hint)[1:]
        if ROW in said:
            found[name] = np.dtype(said[0])
    # The longest first, so that each is where its length wants it; a row of a power of two crosses no line.
    length = 1
    while length < sum(each.itemsize for each in found.values()):
        length *= 2
    made: dict[str, tuple[np.dtype[Any], int, int]] = {}
    at = 0
    for name, each in sorted(found.items(), key=lambda item: -item[1].itemsize):
        made[name] = (each, at, length)
        at += each.itemsize
    return made


def row_length(kind: type[Any]) -> int:
    """Bytes from one place to the next; 0 for a store without rows."""
    return next((length for _element, _offset, length in places(kind).values()), 0)


def in_rows(kind: type[Any], memory: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The columns of a store that lie in this memory."""
    return {
        name: np.ndarray(len(memory) // length, element, memory, offset, (length,))
        for name, (element, offset, length) in places(kind).items()
    }


def memory_of(store: Any) -> NDArray[Any]:
    """What all columns of a store's rows are parts of."""
    memory: NDArray[Any] = getattr(store, next(iter(places(type(store))))).base
    return memory


def copied_rows(store: Any) -> dict[str, NDArray[Any]]:
    """Columns with what the store's rows hold, and nothing of the store's memory."""
    return in_rows(type(store), memory_of(store).copy()) if row_length(type(store)) else {}
