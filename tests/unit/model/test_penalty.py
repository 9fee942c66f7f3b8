"""Penalty buckets both ways."""

from __future__ import annotations

import math

import pytest

from bigfleet.model.penalty import BUCKETS, MICRO, PINNED, bucket_dollars, bucket_for, bucket_label, finer_bound


@pytest.mark.parametrize(
    ("dollars", "bucket"),
    [
        (-1, 1),
        (0, 1),
        (0.01, 2),
        (0.5, 2),
        (0.51, 3),
        (1, 3),
        (1.01, 4),
        (2, 4),
        (40, 9),
        (64, 9),
        (8000, 16),
        (64_000, 19),
        (8_388_608, 26),
        (8_388_608.5, 27),
        (20_000_000, 27),
        (math.inf, 27),
        (-math.inf, 1),
    ],
)
def test_documented_amounts(dollars: float, bucket: int) -> None:
    assert bucket_for(dollars) == bucket


def test_every_upper_bound_belongs_to_its_bucket_and_the_next_float_does_not() -> None:
    for bucket in range(1, PINNED):
        bound = bucket_dollars(bucket)
        assert bucket_for(bound) == bucket
        assert bucket_for(math.nextafter(bound, math.inf)) == bucket + 1


def test_dollars_and_labels() -> None:
    assert [bucket_dollars(bucket) for bucket in (0, 1, 2, 3, 26, 27)] == [0, 0, 0.5, 1, 8_388_608, math.inf]
    labels = [bucket_label(bucket) for bucket in BUCKETS]
    assert labels[:5] == ["unspecified", "0", "0.5", "1", "2"]
    assert labels[-2:] == ["8388608", "pinned"]
    assert len(set(labels)) == len(BUCKETS) == 28


@pytest.mark.parametrize("bucket", [-1, 28])
def test_unknown_bucket_is_refused(bucket: int) -> None:
    with pytest.raises(ValueError, match=rf"penalty bucket {bucket} is unknown; 0 to 27 are accepted"):
        bucket_dollars(bucket)
    with pytest.raises(ValueError, match="is unknown"):
        bucket_label(bucket)


def test_nan_is_no_amount() -> None:
    with pytest.raises(ValueError, match="nan"):
        bucket_for(math.nan)


@pytest.mark.parametrize(
    ("dollars", "bound"),
    [
        (-1, 0), (0, 0), (0.000001, 7_813), (0.01, 15_625), (0.015625, 15_625), (0.1, 125_000), (0.25, 250_000),
        (0.26, 0), (0.5, 0), (1, 0), (256, 0), (math.inf, 0),
    ],
)  # fmt: skip
def test_what_a_cent_costs_is_told_closer_than_half_a_dollar(dollars: float, bound: int) -> None:
    assert finer_bound(dollars) == bound
    assert not bound or dollars <= bound / MICRO < bucket_dollars(bucket_for(dollars))
