"""Sorting in kernels: every order as Python's own stable sort has it, whatever comes in."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bigfleet.engine.kernels.jit import I4, I8, kernel
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sort_by_key, sorting


# Pieces are called by kernels only.
@kernel
def begin(first: int, count: int) -> I8:
    return sorting(first, count)


@kernel
def go_on(sort: I8, data: I4) -> bool:
    return asks(sort, data)


@kernel
def sort_numbers(data: I4, keys: I8, count: int) -> None:
    sort_by_key(data, keys, count)


COUNTS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 200]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kinds", [1, 3, 1000])
def test_answers_put_a_stretch_in_order_and_leave_equal_ones_and_neighbours_as_they_were(
    count: int, kinds: int
) -> None:
    dice = random.Random(count * 7919 + kinds)
    first, worth = 3, [dice.randrange(kinds) for _ in range(count + 6)]
    data = np.array(dice.sample(range(count + 6), count + 6), np.int32)
    wanted = data.tolist()
    wanted[first : first + count] = sorted(wanted[first : first + count], key=lambda each: worth[each])
    sort = begin(first, count)
    while go_on(sort, data):
        sort[ANSWER] = worth[int(sort[LATER])] < worth[int(sort[EARLIER])]
    assert data.tolist() == wanted


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_in_order_already_takes_one_question_per_neighbour(count: int) -> None:
    data, questions = np.arange(count, dtype=np.int32), 0
    sort = begin(0, count)
    while go_on(sort, data):
        questions += 1
        sort[ANSWER] = sort[LATER] < sort[EARLIER]
    assert data.tolist() == list(range(count))
    assert questions == max(0, count - 1)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("span", [(0, 0), (0, 2), (-3, 3), (10**17, 10**17 + 300), (-(2**63), 2**63 - 1)])
def test_numbers_sort_by_value_and_equal_ones_stay_as_they_were(count: int, span: tuple[int, int]) -> None:
    dice = random.Random(f"{count} {span}")
    keys = np.array([dice.randint(*span) for _ in range(count)], np.int64)
    data = np.arange(count, dtype=np.int32)
    wanted = sorted(range(count), key=keys.tolist().__getitem__)
    sort_numbers(data, keys, count)
    assert data.tolist() == wanted
