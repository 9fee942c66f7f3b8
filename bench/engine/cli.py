"""Command line of the engine benchmarks: list shapes, run one, or rebuild `docs/performance.md`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench._report import keep
from bench.engine.measure import run
from bench.engine.page import PAGE, page
from bench.engine.shapes import SHAPES


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench engine", description="Times engine steps on populated fleets and prints JSON."
    )
    parser.add_argument("--list", action="store_true", help="name every shape")
    parser.add_argument("--shape", choices=sorted(SHAPES), metavar="NAME", help="run one shape")
    parser.add_argument("--page", action="store_true", help="rebuild docs/performance.md from the kept results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result here")
    parser.add_argument("--cycles", type=int, default=300, help="timed cycles (default 300)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="stop after this many seconds of timed cycles (default 60)"
    )
    parser.add_argument(
        "--ticker",
        action="store_true",
        help="run steps in a thread beside an asyncio ticker and report its worst lateness",
    )
    options = parser.parse_args(argv)
    if options.list:
        for spec in SHAPES.values():
            print(f"{spec.name:28} {spec.about}")
        return 0
    if options.page:
        PAGE.write_text(page())
        return 0
    if not options.shape:
        parser.error("give --shape NAME, --list or --page")
    report = run(SHAPES[options.shape], options.cycles, options.seconds, ticker=options.ticker)
    keep(report, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
