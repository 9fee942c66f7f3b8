"""docs/architecture.md against the tree: its pictures are fresh, and a request meets the stops of its walk in order."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import bigfleet
from bigfleet.sim.scenario.scenario import load_scenario
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import MINUTE
from tools.architecture import page

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STOPS = re.findall(r"^\| (\d+) \| `([\w.]+)` `(\w+)` \| .+ \| (\w+) \|$", DOCUMENT, re.M)
PACKAGE = Path(bigfleet.__file__).parent
ARRIVAL = 5 * MINUTE  # of the pod in one-request.yaml


def test_the_pictures_are_made_from_the_tree() -> None:
    assert page(DOCUMENT) == DOCUMENT, "run `make generate`"


def test_the_walk_has_at_most_twelve_stops_and_each_is_there() -> None:
    assert [int(number) for number, *_ in STOPS] == list(range(1, len(STOPS) + 1))
    assert 8 <= len(STOPS) <= 12
    assert {kind for *_, kind in STOPS} == {"core", "shell", "kernel"}
    for _, module, function, _ in STOPS:
        source = Path(str(importlib.import_module(f"bigfleet.{module}").__file__)).read_text()
        assert re.search(rf"^\s*(async )?def {function}\(", source, re.M), f"{module} has no {function}"


@pytest.fixture(scope="module")
def met() -> dict[tuple[str, str], int]:
    """Module and function → when it was first called after the pod arrived."""
    run = Simulation(load_scenario(ROOT / "tests" / "data" / "one-request.yaml"))
    order: dict[tuple[str, str], int] = {}

    def watch(frame: FrameType, event: str, _given: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and run.kernel.now >= ARRIVAL and path.is_relative_to(PACKAGE):
            name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            order.setdefault((name, frame.f_code.co_name), len(order))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        run.run()
    finally:
        sys.setprofile(before)
    assert sum(run.clusters["prod"].running.values()) == 1, "the pod runs in the end"
    return order


def test_a_request_meets_the_stops_in_their_order(met: dict[tuple[str, str], int]) -> None:
    stops = [(module, function) for _, module, function, kind in STOPS if kind == "core"]
    assert [stop for stop in stops if stop not in met] == []
    assert sorted(stops, key=lambda stop: met[stop]) == stops
