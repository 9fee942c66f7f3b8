"""Play random scenarios and keep every failing one, shrunk, as YAML: `python tools/fuzz_scenarios.py --count 5000`.

Prints progress and a JSON verdict; exit code 1 when something failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bigfleet.sim.document_text import to_yaml
from bigfleet.sim.fuzz import problems, random_scenario, shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where failing scenarios go")
    parser.add_argument("--json", type=Path, help="write the verdict here too")
    options = parser.parse_args()
    began = time.monotonic()
    failed = []
    for seed in range(options.first, options.first + options.count):
        scenario = random_scenario(seed)
        found = problems(scenario)
        if found:
            failed.append({"seed": seed, "problems": found, "file": str(_keep(seed, options.out))})
            print(f"seed {seed}: {found[0]}", file=sys.stderr, flush=True)
        if (seed + 1) % 250 == 0:
            print(f"{seed + 1 - options.first} played, {len(failed)} failed", file=sys.stderr, flush=True)
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


def _keep(seed: int, folder: Path) -> Path:
    """The smallest scenario that fails like this one, as a file `fauxctl run` takes."""
    small = shrink(random_scenario(seed), lambda scenario: bool(problems(scenario)))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fuzz-{seed}.yaml"
    path.write_text(to_yaml(small), encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
