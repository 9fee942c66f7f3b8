"""Needs: key and merging."""

from __future__ import annotations

import pytest

from bigfleet.model.need import Need, aggregate
from bigfleet.model.profile import Profile
from bigfleet.model.resources import MAX_NEED_UNITS, ResourceError, Resources

WEB = Profile([], [], 1000, 0, 0)
BATCH = Profile([], [], 0, 0, 0)
UNIT = Resources.of(cpu=500)


def _need(cpu: int, arrival: int = 0, *, profile: Profile = WEB, unit: Resources = UNIT, group: str = "") -> Need:
    return Need("c1", profile, Resources.of(cpu=cpu), unit, arrival, group)


def test_key_names_cluster_fingerprint_group_and_unit() -> None:
    need = _need(1000, group="rack\x00;")
    assert need.key == ("c1", WEB.fingerprint, "rack\x00;", "cpu=500")


def test_rows_with_one_key_merge_in_order_of_first_appearance() -> None:
    merged = aggregate([_need(1000, 0), _need(7, 3, profile=BATCH), _need(500, 9), _need(250, 4)])
    assert merged == (_need(1750, 4), _need(7, 3, profile=BATCH))


def test_a_different_unit_or_group_is_a_different_row() -> None:
    rows = (_need(1000), _need(1000, unit=Resources.of(cpu=501)), _need(1000, group="g"))
    assert aggregate(rows) == rows


def test_unknown_arrivals_stay_unknown() -> None:
    assert aggregate([_need(1), _need(1)])[0].arrival_ns == 0


def test_sums_out_of_range_are_refused() -> None:
    with pytest.raises(ResourceError, match="'cpu'"):
        aggregate([_need(MAX_NEED_UNITS), _need(1)])


def test_needs_are_hashable_values() -> None:
    assert len({_need(1), _need(1), _need(2)}) == 2
