"""Durations as people write them: one grammar for every flag, file and document."""

from __future__ import annotations

import argparse
import re

import pytest

from bigfleet.duration import PATTERN, UNITS, nanoseconds, spelled
from bigfleet.provider.conformance.config import UsageError
from bigfleet.provider.conformance.config import seconds as conformance_seconds
from bigfleet.provider.fake.fields import CatalogueError, Fields
from bigfleet.provider.kit.flags import duration as kit_seconds
from bigfleet.shard.contract.config import ConfigError, parse_duration

GOOD = {"0": 0, "250ms": 0.25, "40s": 40, "1m30s": 90, "1.5h": 5400, "2h": 7200, "7d": 604800, "10us": 1e-5, "0s": 0}
BAD = ("", "s", "5 m", "-3s", "1m30", "10sec", "1e3s", "s10", "inf", "nan")


@pytest.mark.parametrize(("text", "seconds"), GOOD.items())
def test_every_place_reads_the_same_text_alike(text: str, seconds: float) -> None:
    assert nanoseconds(text) == round(seconds * UNITS["s"])
    assert re.fullmatch(PATTERN, text)
    assert parse_duration("x", text) == round(seconds * UNITS["s"])
    assert kit_seconds(text) == pytest.approx(seconds)
    assert conformance_seconds(text) == pytest.approx(seconds)
    assert Fields("x", {"d": text}).seconds("d") == pytest.approx(seconds)


@pytest.mark.parametrize("text", BAD)
def test_every_place_refuses_the_same_text(text: str) -> None:
    assert nanoseconds(text, bare="s") is None
    assert not re.fullmatch(PATTERN, text)
    with pytest.raises(ConfigError):
        parse_duration("x", text)
    with pytest.raises(argparse.ArgumentTypeError):
        kit_seconds(text)
    with pytest.raises(UsageError):
        conformance_seconds(text)
    with pytest.raises(CatalogueError):
        Fields("x", {"d": text}).seconds("d")


def test_a_bare_number_counts_only_where_its_unit_is_named() -> None:
    assert nanoseconds("10") is None
    assert nanoseconds("10", bare="s") == 10 * UNITS["s"]
    assert nanoseconds("2.5", bare="m") == 150 * UNITS["s"]


@pytest.mark.parametrize("ns", [0, 1, 1_500_000, 90 * UNITS["s"], 5 * UNITS["m"], 36 * UNITS["h"], 2 * UNITS["d"]])
def test_what_is_spelled_is_read_back(ns: int) -> None:
    assert nanoseconds(spelled(ns)) == ns
