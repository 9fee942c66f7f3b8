"""Columns cost what is written to them, and tables of texts number what they are told whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bigfleet.engine.kernels import columns
from bigfleet.engine.kernels.columns import grown, widened, zeros
from bigfleet.engine.kernels.texts import TextTable

STATM = Path("/proc/self/statm")
INT64 = np.dtype(np.int64)
ROWS = 1 << 21


def resident() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
def test_zeros_cost_nothing_when_a_column_grows() -> None:
    column = zeros(ROWS, INT64)
    before = resident()
    column = grown(column, 2 * ROWS)
    column = grown(column, 3 * ROWS)
    assert resident() - before < column.nbytes // 8
    assert not column[::4096].any()


def test_growing_keeps_every_value() -> None:
    dice = np.random.default_rng(1)
    column = zeros(ROWS, INT64)
    places = np.sort(dice.choice(ROWS, 50, replace=False))
    # Both ends as well, and values whose lowest byte is zero.
    column[places] = dice.integers(1, 1000, len(places)) << 8
    column[0] = column[-1] = 1 << 40
    bigger = grown(column, ROWS + 12345)
    assert (bigger[:ROWS] == column).all()
    assert not bigger[ROWS:].any()
    assert (grown(column, ROWS + 5, -1)[ROWS:] == -1).all()


@pytest.mark.parametrize("rows", [ROWS // 64, ROWS], ids=["large", "huge"])
def test_a_large_column_grows_where_it_is(rows: int) -> None:
    column = zeros((rows, 2), INT64)
    column[:] = 7
    bigger = grown(column, rows + rows // 2)
    assert np.shares_memory(bigger, column)
    assert (bigger[:rows] == 7).all() and not bigger[rows:].any()
    bigger[rows:] = 9
    assert (grown(bigger, 2 * rows, fill=5)[rows:].T.tolist()) == [[9] * (rows // 2) + [5] * (rows // 2)] * 2


def test_what_one_column_grew_into_no_other_one_gets() -> None:
    column = zeros(ROWS, INT64)
    grown(column, 2 * ROWS)[ROWS:] = 1
    # Neither the column before it, nor a part of a column: behind both lies what others have written.
    assert not grown(column, 2 * ROWS)[ROWS:].any()
    column[:] = 1
    assert not grown(column[: ROWS // 2], ROWS)[ROWS // 2 :].any()


def test_a_column_that_outgrows_its_memory_moves() -> None:
    column = zeros(1 << 15, INT64)
    column[:] = 3
    while len(column) < ROWS * 2:
        column = grown(column, 2 * len(column), fill=3)
    assert (column == 3).all()


def test_a_column_is_had_where_no_more_memory_than_it_needs_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_AHEAD", 1 << 45)
    column = zeros(ROWS, INT64)
    column[:] = 4
    bigger = grown(column, ROWS + 1)
    assert (bigger[:-1] == 4).all() and bigger[-1] == 0


def test_a_widened_matrix_has_what_it_had_and_what_it_is_filled_with() -> None:
    matrix = np.arange(6).reshape(3, 2)
    assert widened(matrix, 3, 7).tolist() == [[0, 1, 7], [2, 3, 7], [4, 5, 7]]


def test_texts_met_twice_or_known_are_numbered_without_gaps() -> None:
    table = TextTable()
    table.intern("known")
    assert table.intern_all(["new", "known", "new", "", "newer"]) == [2, 1, 2, 0, 3]
    assert table.texts == ["", "known", "new", "newer"]
    assert [table.index[text] for text in table.texts] == [0, 1, 2, 3]


def test_texts_that_cannot_be_written_leave_the_table_as_it_was() -> None:
    table = TextTable()
    with pytest.raises(UnicodeEncodeError):
        table.intern_all(["fine", "\ud800"])
    assert table.texts == [""]
    assert table.index == {"": 0}
    assert table.intern_all(["fine"]) == [1]
