"""Columns that lie in rows: read and written as any other, grown and copied together, the same in both forms."""

from __future__ import annotations

import numpy as np
import pytest

from bigfleet.engine.kernels.columns import grown_rows, made
from bigfleet.engine.kernels.jit import F8R, I4, I4R, U1R, kernel
from bigfleet.engine.kernels.rows import copied_rows, places, row_length
from bigfleet.engine.kernels.view import View, view


@view
class Things(View):
    small: U1R
    number: I4R
    share: F8R
    alone: I4


@kernel
def work(things: Things, number: I4R, factor: int) -> int:
    total = 0
    for i in range(len(things.number)):
        things.small[i] += 1
        things.share[i] = things.number[i] * 0.5
        number[i] *= factor
        things.alone[i] = things.number[i]
        total += things.number[i]
    # Behind the end is the beginning of the end, as in Python.
    return total + things.number[-1]


def filled(count: int) -> Things:
    things = made(Things, count)
    things.number[:] = np.arange(count)
    things.small[:] = 254
    return things


def test_elements_of_rows_are_what_they_are_in_plain_python() -> None:
    compiled, plain = filled(9), filled(9)
    assert work(compiled, compiled.number, -3) == work.__wrapped__(plain, plain.number, -3)  # type: ignore[attr-defined]
    for name, column in plain._asdict().items():
        assert (compiled._asdict()[name] == column).all(), name
    assert compiled.small.tolist() == [255] * 9
    assert compiled.share.tolist() == [n * 0.5 for n in range(9)]
    assert compiled.number.tolist() == compiled.alone.tolist() == [n * -3 for n in range(9)]


def test_columns_of_one_place_share_a_line_and_do_not_overlap() -> None:
    assert row_length(Things) == 16
    taken = [at for element, offset, _ in places(Things).values() for at in range(offset, offset + element.itemsize)]
    assert len(taken) == len(set(taken)) == 13
    assert all(offset % element.itemsize == 0 for element, offset, _ in places(Things).values())


def test_rows_grow_together_and_keep_what_they_hold() -> None:
    things = filled(5)
    more = things._replace(**grown_rows(things, 12), alone=np.zeros(12, np.int32))
    assert more.number.tolist() == [0, 1, 2, 3, 4] + [0] * 7
    assert more.small.tolist() == [254] * 5 + [0] * 7
    assert work(more, more.number, 2) == 20


def test_a_copy_shares_nothing_with_what_it_was_copied_from() -> None:
    things = filled(5)
    copy = things._replace(**copied_rows(things))
    copy.number[:] = 7
    work(copy, copy.number, 1)
    assert things.number.tolist() == [0, 1, 2, 3, 4]
    assert things.small.tolist() == [254] * 5


def test_a_column_that_does_not_lie_in_rows_is_refused() -> None:
    with pytest.raises(TypeError, match="number"):
        filled(5)._replace(number=np.zeros(5, np.int32))
