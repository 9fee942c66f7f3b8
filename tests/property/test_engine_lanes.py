"""The differential test in two more lanes: with every index checked, and with the kernels as plain Python.

Each lane runs in a process of its own, because how kernels are compiled is decided when they are imported. Compiled
kernels of the checked lane are kept beside those of the ordinary one, keyed by the engine's sources.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FLEETS = 150
LANES = {"bounds": {"NUMBA_BOUNDSCHECK": "1"}, "plain": {"NUMBA_DISABLE_JIT": "1"}}
# Seeds nobody else uses: the fuzzer starts at 1,000,000.
FIRST = {"bounds": 900_000, "plain": 950_000}


def run(lane: str, cache: Path) -> dict[str, Any]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = {
        **kept,
        **LANES[lane],
        "BIGFLEET_KERNEL_CACHE": str(cache),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    command = [sys.executable, "-m", "tests.strategies.lane", str(FIRST[lane]), str(FLEETS)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture
def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "bigfleet-lanes"


def test_with_bounds_checks_the_engine_agrees_and_never_leaves_a_column(cache: Path) -> None:
    told = run("bounds", cache)
    assert (told["jit"], told["bounds"]) == (True, True)
    assert told["noticed"] == ["passed", "seen", "overwritten"]
    assert told["steps"] > FLEETS
    assert told["reports"] == []


def test_without_the_jit_the_engine_agrees(cache: Path) -> None:
    told = run("plain", cache)
    assert (told["jit"], told["noticed"]) == (False, ["passed", "seen", "overwritten"])
    assert told["steps"] > FLEETS
    assert told["reports"] == []
