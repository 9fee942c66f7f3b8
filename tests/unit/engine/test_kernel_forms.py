"""A kernel as plain Python and compiled: the same results, and nothing is compiled before somebody wants it to be."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

import numpy as np
import pytest

from bigfleet.engine.kernels import jit, view
from bigfleet.engine.kernels.jit import kernel


@kernel
def doubled(number: int) -> int:
    return number * 2


def fresh_kernels() -> Any:
    """The kernels of the shelf, as no other test has seen them."""
    name = "tests.strategies.shelf_kernels"
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def test_both_forms_compute_the_same_and_the_plain_one_compiles_nothing() -> None:
    kernels = fresh_kernels()
    summed = kernels.summed
    shelf = kernels.Shelf(np.array([3, 0, -5, 9], np.int32), np.array([0.1, 0.2, 0.3, 0.7], np.float64))
    summed.interpret()
    out = np.zeros(4, np.int64)
    plain = summed(shelf, 7, out)
    assert not kernels.total.overloads and not kernels.scaled.overloads, "a function was compiled by being called"
    assert out.tolist() == [1, 0, -3, 4] and plain == 0.1 * 7 + 0.7 * 7
    assert not summed.is_compiled

    summed.prepare()
    assert not summed.is_compiled, "compiling alone changes nothing"
    summed.switch()
    again = np.zeros(4, np.int64)
    compiled = summed(shelf, 7, again)
    assert summed.is_compiled
    assert float(compiled).hex() == float(plain).hex() and again.tolist() == out.tolist()


def test_elements_of_columns_are_the_same_in_both_forms() -> None:
    """Every width, both shapes, indices from the front and from the end, of any width themselves."""
    moved = fresh_kernels().moved
    forms = []
    for compiled in (False, True):
        if compiled:
            moved.prepare()
            moved.switch()
        else:
            moved.interpret()
        small, wide = np.array([7, 250, 3], np.uint8), np.array([-1, 0, 1 << 30], np.int32)
        long, real = np.array([2, -3, 1, 0], np.int64), np.array([0.5, -2.25])
        rows = np.arange(12, dtype=np.int64).reshape(3, 4)
        returned = moved(small, wide, long, real, rows)
        forms.append((returned, small.tolist(), wide.tolist(), long.tolist(), real.tolist(), rows.tolist()))
    assert forms[0] == forms[1]
    assert forms[0][1:] == (
        [7, 2, 10],
        [1 << 30, 0, 5],
        [2, -3, -3, 256],
        [7.0, -2.25],
        [[0, 1, 2, 3], [4, 5, 6, 100], [8, 9, 1, 11]],
    )


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


def test_a_view_that_two_threads_make_first_at_the_same_time_has_its_columns_for_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two shards of one process: while one engine still reads what a view is made of, the other makes one."""
    shelf = fresh_kernels().Shelf
    columns = np.array([3], np.int32), np.array([0.1], np.float64)
    made: list[Any] = []
    read = view.get_type_hints

    def interrupted(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(view, "get_type_hints", read)
        other = threading.Thread(target=lambda: made.append(shelf(*columns)))
        other.start()
        other.join()
        return read(*given, **more)

    monkeypatch.setattr(view, "get_type_hints", interrupted)
    made.append(shelf(*columns))
    assert [each.number.tolist() for each in made] == [[3], [3]]
