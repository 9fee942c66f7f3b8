"""Command line of the shard benchmarks: one figure of the issue each, with its limit and a verdict."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench._report import conclude
from bench.shard import bound, burst, crowd, fleet, load, rate, streams

EVIDENCE = Path("docs/evidence")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench shard", description="Times a shard process under operators and a provider of their own processes."
    )
    modes = parser.add_subparsers(dest="mode", required=True)

    made = modes.add_parser("load", help="many streams and roll-ups at a steady rate: cycle and ack times")
    made.add_argument("--streams", type=int, default=1000, help="operators, one cluster each (1000)")
    made.add_argument("--rate", type=int, default=1000, help="roll-ups per second, all streams together (1000)")
    made.add_argument("--rows", type=int, default=10, help="rows of a roll-up (10)")
    made.add_argument("--changed", type=float, default=0.1, help="share of roll-ups that differ from the last (0.1)")
    made.add_argument("--machines", type=int, default=10_000, help="machines of the provider (10000)")
    made.add_argument("--seconds", type=float, default=60.0, help="how long it is timed (60)")
    made.set_defaults(run=load.run)

    made = modes.add_parser("streams", help="open streams and what each of them costs")
    made.add_argument("--streams", type=int, default=10_000, help="operators, one cluster each (10000)")
    made.add_argument("--connections", type=int, default=2000, help="connections they share (2000)")
    made.set_defaults(run=streams.run)

    made = modes.add_parser("rate", help="the highest rate of roll-ups that is sustained, unchanged and changed")
    made.add_argument("--streams", type=int, default=1000, help="operators, one cluster each (1000)")
    made.add_argument("--rows", type=int, default=10, help="rows of a roll-up (10)")
    made.add_argument("--seconds", type=float, default=10.0, help="how long each rate is held (10)")
    made.set_defaults(run=rate.run)

    made = modes.add_parser("fleet", help="a large provider: cold start, memory, steady cycles, a burst of bindings")
    made.add_argument("--machines", type=int, default=500_000, help="machines of the provider (500000)")
    made.add_argument("--bindings", type=int, default=5000, help="machines asked for at once (5000)")
    made.add_argument("--clusters", type=int, default=50, help="operators (50)")
    made.add_argument("--seconds", type=float, default=60.0, help="how long steady cycles are timed (60)")
    made.set_defaults(run=fleet.run)

    made = modes.add_parser("bound", help="a fleet that is bound as a whole: cycles while needs and machines change")
    made.add_argument("--machines", type=int, default=500_000, help="bound machines (500000)")
    made.add_argument("--needs", type=int, default=50_000, help="rows of all clusters together (50000)")
    made.add_argument("--clusters", type=int, default=50, help="operators (50)")
    made.add_argument("--changes", type=int, default=500, help="machines that change in every cycle (500)")
    made.add_argument("--seconds", type=float, default=120.0, help="how long cycles are timed (120)")
    made.set_defaults(run=bound.run)

    made = modes.add_parser("burst", help="very many provider calls at once: how long until the last is answered")
    made.add_argument("--calls", type=int, default=1000, help="machines asked for at once (1000)")
    made.add_argument("--clusters", type=int, default=50, help="operators (50)")
    made.add_argument("--waves", type=int, default=5, help="how often; the slowest counts (5)")
    made.set_defaults(run=burst.run)

    made = modes.add_parser("crowd", help="how long a cluster waits while another one sends very many rows")
    made.add_argument("--rows", type=int, default=100_000, help="rows of the large roll-up (100000)")
    made.add_argument("--profiles", type=int, default=100_000, help="how many of them have requirements of their own")
    made.set_defaults(run=crowd.run)

    for each in modes.choices.values():
        each.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    options = parser.parse_args(argv)
    load_before = os.getloadavg()[0]
    figures = asyncio.run(options.run(options))
    return conclude(figures, figures.pop("limits"), options.json, load_before)


def evidence() -> int:
    """Everything the documentation quotes, one after the other."""
    code = 0
    for mode in ("load", "streams", "rate", "fleet", "bound", "burst", "crowd"):
        print(f"-- shard {mode}", file=sys.stderr)
        code = max(code, main([mode, "--json", str(EVIDENCE / f"shard-{mode}.json")]))
    return code
