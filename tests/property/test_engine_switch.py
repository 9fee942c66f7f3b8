"""An engine that goes over to compiled kernels between two steps decides as if it never had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Seeds nobody else uses.
FIRST, FLEETS = 970_000, 120


def test_a_run_that_switches_in_the_middle_gives_the_same_bytes() -> None:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, "-m", "tests.strategies.switching", str(FIRST), str(FLEETS)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["plays"] > FLEETS / 2 and told["steps"] > 2 * told["plays"] and told["actions"] > FLEETS
    assert told["uncompiled_until_here"] and told["still_plain_after_prepare"] and told["compiled_in_the_end"]
    assert told["switched_differ"] == [] and told["compiled_differ"] == []
