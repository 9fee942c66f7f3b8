"""Kernels and their functions over a small view and over bare columns, for tests that load them anew.

Any test of this process may compile every kernel there is (a shard that warms up does), those of a test module among
them: whoever asks whether something was compiled by being called needs kernels nobody has had yet.
"""

from __future__ import annotations

from bigfleet.engine.kernels.jit import F8, I4, I8, I8M, U1, inner, kernel, prefetch
from bigfleet.engine.kernels.view import View, view


@view
class Shelf(View):
    """Two columns, as kernels see those of the engine."""

    number: I4
    price: F8


@inner
def scaled(shelf: Shelf, at: int, factor: int) -> float:
    return shelf.price[at] * factor


@inner
def total(shelf: Shelf, factor: int) -> float:
    found = 0.0
    for at in range(len(shelf.number)):
        prefetch(shelf.price, at)
        if shelf.number[at] > 0:
            found += scaled(shelf, at, factor)
    return found


@kernel
def summed(shelf: Shelf, factor: int, out: I8) -> float:
    """A sum through two functions, and something written."""
    for at in range(len(out)):
        out[at] = shelf.number[at] // 2
    return total(shelf, factor)


@kernel
def moved(small: U1, wide: I4, long: I8, real: F8, rows: I8M) -> int:
    """Elements from one column to another."""
    small[1] = 2
    small[-1] = small[0] + 3
    wide[0] = wide[-1]
    wide[len(wide) - 1] = 5
    at = small[1]
    long[at] = long[-3]
    long[wide[1] - 1] = 256
    real[0] = small[0]
    rows[1, -1] = 100
    rows[-1, at] = rows[0, 1]
    return int(rows[-2, 3] + wide[0] + len(rows))
