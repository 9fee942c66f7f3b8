"""Chunks of a pool: never two at one place, and given back ones are used before the pool grows."""

from __future__ import annotations

import random

import pytest

from bigfleet.engine.kernels.pool import PoolStore, give_region, region_size, take_region


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 1023, 1024, 1025])
def test_regions_are_powers_of_two_that_hold_what_is_asked(count: int) -> None:
    size = region_size(count)
    assert size >= count and size & (size - 1) == 0
    assert size == 1 or size < 2 * max(1, count)


@pytest.mark.parametrize("seed", range(5))
def test_regions_never_overlap(seed: int) -> None:
    dice, store, held = random.Random(seed), PoolStore(), {}
    for _ in range(400):
        if held and dice.random() < 0.45:
            at = dice.choice(list(held))
            give_region(store.v, at, held.pop(at))
            continue
        size = region_size(dice.randint(1, 40))
        store.reserve(size)
        at = int(take_region(store.v, size))
        assert at + size <= len(store.v.data)
        assert all(at + size <= start or start + length <= at for start, length in held.items())
        held[at] = size


def test_a_region_given_back_is_taken_before_the_pool_grows() -> None:
    store = PoolStore()
    store.reserve(64)
    first, second = int(take_region(store.v, 16)), int(take_region(store.v, 16))
    give_region(store.v, first, 16)
    assert int(take_region(store.v, 16)) == first
    give_region(store.v, second, 16)
    assert int(take_region(store.v, 8)) not in range(second, second + 16)


def test_what_is_in_a_region_survives_growth() -> None:
    store = PoolStore()
    store.reserve(4)
    at = int(take_region(store.v, 4))
    store.v.data[at : at + 4] = (1, 2, 3, 4)
    store.reserve(10_000)
    assert store.v.data[at : at + 4].tolist() == [1, 2, 3, 4]
