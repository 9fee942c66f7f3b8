"""Play random scenarios and keep every failing one, shrunk, as YAML: `python tools/fuzz_scenarios.py --count 5000`.

Prints progress and a JSON verdict; exit code 1 when something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from bigfleet.shard.runtime.gc_tuning import while_serving
from bigfleet.sim.document.text import to_yaml
from bigfleet.sim.soak.fuzz import problems, random_scenario, shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where failing scenarios go")
    parser.add_argument("--json", type=Path, help="write the verdict here too")
    options = parser.parse_args()
    began = time.monotonic()
    failed = []
    seeds = range(options.first, options.first + options.count)
    with ProcessPoolExecutor(options.jobs, initializer=while_serving) as pool:
        played = pool.map(_play, seeds, repeat(options.out), chunksize=5)
        for number, failure in enumerate(played, 1):
            if failure is not None:
                failed.append(failure)
                print(f"seed {failure['seed']}: {failure['problems'][0]}", file=sys.stderr, flush=True)
            if number % 250 == 0:
                print(f"{number} played, {len(failed)} failed", file=sys.stderr, flush=True)
    verdict = {
        "scenarios": options.count,
        "first": options.first,
        "failed": failed,
        "passed": not failed,
        "seconds": round(time.monotonic() - began, 1),
    }
    text = json.dumps(verdict, indent=2)
    print(text)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 1 if failed else 0


def _play(seed: int, folder: Path) -> dict[str, Any] | None:
    found = problems(random_scenario(seed))
    return {"seed": seed, "problems": found, "file": str(_keep(seed, folder))} if found else None


def _keep(seed: int, folder: Path) -> Path:
    """The smallest scenario that fails like this one, as a file `fauxctl run` takes."""
    small = shrink(random_scenario(seed), lambda scenario: bool(problems(scenario)))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fuzz-{seed}.yaml"
    path.write_text(to_yaml(small), encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
