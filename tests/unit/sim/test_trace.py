"""Event logs stay small and readable: folded ids, plain instants, a line only when something happened."""

import json

import pytest

from bigfleet.sim.document.text import instant
from bigfleet.sim.scenario.scenario import Detail
from bigfleet.sim.world.trace import Trace, fold
from bigfleet.virtual.kernel import HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (["m-0001"], "m-0001"),
        ([f"m-{n:04}" for n in range(64)], "m-[0000-0063]"),
        (["m-0002", "m-0001", "m-0004", "x"], "m-[0001-0002] m-0004 x"),
        (["a-9", "a-10"], "a-10 a-9"),
        ([], ""),
    ],
)
def test_runs_of_ids_are_folded(ids: list[str], text: str) -> None:
    assert fold(ids) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [(0, "0s"), (1_500_000_000, "1.500s"), (61 * SECOND, "1m01s"), (HOUR + 2 * MINUTE + 3 * SECOND, "1h02m03s")],
)
def test_instants_read_like_a_clock(at: int, text: str) -> None:
    assert instant(at) == text


def test_a_quiet_cycle_leaves_no_line() -> None:
    trace = Trace(Detail.MACHINES)
    for at in range(3):
        trace.decided(at * SECOND, "s", at, [], {"machines": {"Idle": 1}})
    assert len(trace.lines) == 1


def test_actions_are_grouped_by_kind_and_cluster() -> None:
    trace = Trace(Detail.MACHINES)
    trace.decided(0, "s", 1, [("Bootstrap", "b", "m-2"), ("Bootstrap", "a", "m-1"), ("Bootstrap", "b", "m-1")], {})
    assert json.loads(trace.lines[0])["actions"] == [
        {"kind": "Bootstrap", "cluster": "a", "count": 1, "machines": "m-1"},
        {"kind": "Bootstrap", "cluster": "b", "count": 2, "machines": "m-[1-2]"},
    ]


def test_hourly_traces_have_one_line_per_hour() -> None:
    trace = Trace(Detail.HOURLY)
    for minute in range(0, 180, 5):
        trace.decided(minute * MINUTE, "s", minute, [("Provision", "a", f"m-{minute}")], {"short": 0})
    trace.finish(180 * MINUTE, {})
    lines = [json.loads(line) for line in trace.lines]
    assert [line["event"] for line in lines] == ["hour", "hour", "hour", "end"]
    assert sum(line.get("actions", {}).get("Provision", 0) for line in lines) == 36
