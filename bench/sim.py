"""The soak as a benchmark: 50,000 cycles of random demand on 3,000 machines, engine and shard core in this process.

    python -m bench sim [--cycles 50000] [--json FILE]

The same run as `fauxctl soak --clusters 50`, with the time each cycle took and this machine's yardsticks beside it: the
soak is nearly all interpreted Python, so how the interpreter was built counts as much as the processor.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench._report import conclude
from bench._samples import spread
from bigfleet.cli.progress import simulation_progress, warm_up
from bigfleet.engine.engine import Engine
from bigfleet.sim.soak.soak import SoakConfig, run_soak

# Of 50,000 cycles. Unsound is a soak that leaked or stuck machines or grew.
LIMITS = {"seconds": 30.0, "unsound": 0}
EVIDENCE = Path("docs/evidence/sim-soak.json")
_CYCLES = 50_000


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench sim", description=__doc__)
    parser.add_argument("--cycles", type=int, default=_CYCLES, help="cycles of ten simulated seconds (50000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    chosen = parser.parse_args(argv)
    return run(chosen.cycles, chosen.json)


def evidence() -> int:
    return run(_CYCLES, EVIDENCE)


def run(cycles: int, path: Path | None) -> int:
    warm_up()
    took: list[float] = []
    with simulation_progress(f"soak of {cycles:,} cycles") as progress:
        report = run_soak(SoakConfig(cycles=cycles, clusters=50), Engine, progress, each=took.append)
    figures = {
        **report.record(),
        "unsound": int(not report.passed),
        "cycle_ms": spread([1000 * seconds for seconds in took], 3),
    }
    limits = {**LIMITS, "seconds": LIMITS["seconds"] * cycles / _CYCLES}
    return conclude(figures, limits, path)
