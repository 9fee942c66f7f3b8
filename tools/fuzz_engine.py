"""Fuzzes the engine against the oracle: `python tools/fuzz_engine.py --fleets 50000 --json FILE`.

Half of the fleets send sums only, half have clusters of both kinds. Prints a verdict and exits 1 if any disagrees.
Seeds that fail are appended to tests/data/engine_seeds.json, where the test suite replays them for ever; the report of
each goes to standard error with inputs cut down to what is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEEDS = ROOT / "tests" / "data" / "engine_seeds.json"
# Many small fleets find ties and edge cases, some larger ones find what only shows with many blocks.
SIZES = ((12, 4, 3), (24, 8, 4), (32, 8, 6), (48, 10, 8))


def main() -> int:
    arguments = _parse()
    source = _source()
    _warm()
    began = time.monotonic()
    work = [
        (seed, SIZES[seed // 4 % len(SIZES)]) for seed in range(arguments.first, arguments.first + arguments.fleets)
    ]
    failures, steps = [], 0
    with get_context("spawn").Pool(arguments.workers) as pool:
        for done, (seed, size, count, report) in enumerate(pool.imap_unordered(_check, work, chunksize=20), 1):
            steps += count
            if report is not None:
                kept = {"seed": seed, "machines": size[0], "rows": size[1], "steps": size[2]}
                failures.append(kept | ({"placed": True} if seed // 2 % 2 else {}))
                print(report, file=sys.stderr, flush=True)
            if done % 500 == 0:
                _progress(done, arguments.fleets, steps, len(failures), time.monotonic() - began)
            if len(failures) >= arguments.stop_after:
                pool.terminate()
                break
    result = {
        "fleets": arguments.fleets,
        "first_seed": arguments.first,
        "steps": steps,
        "disagreements": len(failures),
        "seeds": sorted(f["seed"] for f in failures),
        "seconds": round(time.monotonic() - began, 1),
        "workers": arguments.workers,
        "engine_sha256": source,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "verdict": "pass" if not failures else "fail",
    }
    if failures:
        _keep(failures)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))
    return 1 if failures else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=1_000_000, help="first seed; tests use those below 1,000,000")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--stop-after", type=int, default=20, help="disagreements after which to give up")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _warm() -> None:
    """Compiles every kernel once, so that the workers load them instead of compiling each for itself."""
    sys.path[:0] = [str(ROOT)]
    from bigfleet.engine import Engine

    Engine().warm(lambda done, total: print(f"kernels {done} of {total}", flush=True) if done == total else None)


def _progress(done: int, total: int, steps: int, failures: int, seconds: float) -> None:
    left = round(seconds / done * (total - done))
    rate = done / seconds * 60
    print(
        f"{done} of {total} fleets, {steps} steps, {failures} disagreements, {rate:.0f} fleets a minute, {left} s left",
        flush=True,
    )


def _source() -> str:
    """Which engine was fuzzed: a digest over its files, taken before the workers import them."""
    sys.path[:0] = [str(ROOT)]
    from bigfleet.engine.kernels.cache import sources_digest

    return sources_digest()


def _check(item: tuple[int, tuple[int, int, int]]) -> tuple[int, tuple[int, int, int], int, str | None]:
    sys.path[:0] = [str(ROOT)]
    from tests.strategies.differential import compared, is_placed
    from tests.strategies.fleets import Size

    seed, size = item
    steps, report = compared(seed, Size(*size), placed=is_placed(seed))
    return seed, size, steps, report


def _keep(failures: list[dict[str, int]]) -> None:
    known = json.loads(SEEDS.read_text())
    known += [failure for failure in failures if failure not in known]
    SEEDS.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
