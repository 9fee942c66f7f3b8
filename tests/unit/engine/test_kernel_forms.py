"""A kernel as plain Python and compiled: the same results, and nothing is compiled before somebody wants it to be."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels import jit
from bigfleet.engine.kernels.jit import F8, I4, I8, inner, kernel, prefetch
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
def doubled(number: int) -> int:
    return number * 2


def shelf() -> Shelf:
    return Shelf(np.array([3, 0, -5, 9], np.int32), np.array([0.1, 0.2, 0.3, 0.7], np.float64))


def test_both_forms_compute_the_same_and_the_plain_one_compiles_nothing() -> None:
    summed.interpret()  # type: ignore[attr-defined]
    out = np.zeros(4, np.int64)
    plain = summed(shelf(), 7, out)
    assert not total.overloads and not scaled.overloads, "a function was compiled by being called"  # type: ignore[attr-defined]
    assert out.tolist() == [1, 0, -3, 4] and plain == 0.1 * 7 + 0.7 * 7
    assert not summed.is_compiled  # type: ignore[attr-defined]

    summed.prepare()  # type: ignore[attr-defined]
    assert not summed.is_compiled, "compiling alone changes nothing"  # type: ignore[attr-defined]
    summed.switch()  # type: ignore[attr-defined]
    again = np.zeros(4, np.int64)
    compiled = summed(shelf(), 7, again)
    assert summed.is_compiled  # type: ignore[attr-defined]
    assert float(compiled).hex() == float(plain).hex() and again.tolist() == out.tolist()


def test_a_compiled_kernel_does_not_go_back_to_plain_python() -> None:
    assert doubled(4) == 8
    assert doubled.is_compiled, "without a choice the first call compiles"  # type: ignore[attr-defined]
    jit.interpret()
    assert doubled.is_compiled and doubled(5) == 10  # type: ignore[attr-defined]
    jit.switch()


def test_switching_before_anything_is_compiled_leaves_it_to_the_first_call() -> None:
    @kernel
    def halved(number: int) -> int:
        return number // 2

    halved.interpret()  # type: ignore[attr-defined]
    assert halved(9) == 4
    halved.switch()  # type: ignore[attr-defined]
    assert not halved.is_compiled and halved(9) == 4  # type: ignore[attr-defined]
    assert halved.is_compiled  # type: ignore[attr-defined]
