"""Play random histories of coordinator and shards with losses and crashes: `python tools/fuzz_coordinator.py`.

Prints a JSON verdict; exit code 1 when a machine had two owners, or none, or another promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.strategies import coordinator_world, multi_shard_world

# Shards written from the contract alone, and the real cores of both sides.
WORLDS = {"model": coordinator_world.history, "cores": multi_shard_world.history}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=5_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--json", type=Path, help="write the verdict here too")
    options = parser.parse_args()
    began = time.monotonic()
    seeds = range(options.first, options.first + options.histories)
    verdict: dict[str, object] = {"histories": options.histories, "first": options.first, "passed": True}
    for world in WORLDS:
        with ProcessPoolExecutor(options.jobs) as pool:
            played = list(pool.map(_play, [world] * len(seeds), seeds, chunksize=25))
        failed = [
            {"seed": seed, "problem": problem} for seed, (_, problem) in zip(seeds, played, strict=True) if problem
        ]
        verdict[world] = {"machines_moved": sum(moves for moves, _ in played), "failed": failed[:20]}
        verdict["passed"] = verdict["passed"] and not failed
    verdict["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(verdict, indent=2)
    print(text)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0 if verdict["passed"] else 1


def _play(world: str, seed: int) -> tuple[int, str]:
    try:
        return len(WORLDS[world](seed).moves), ""
    except AssertionError as error:
        return 0, str(error) or "a promise was broken"


if __name__ == "__main__":
    sys.exit(main())
