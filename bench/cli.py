"""How long a person waits for a command line: processor time (user and system) of whole processes, as JSON.

    python -m bench cli [--runs 20] [--json FILE]

Each figure is the median over fresh processes with warm file caches and written byte code. The limit is that of the
project for `bigfleetctl --help`; the others are held to the same. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench._report import conclude

EVIDENCE = Path("docs/evidence/cli-start.json")
LIMIT_MS = 300.0
ENTRIES = {
    "bigfleet": "bigfleet.cli.bigfleet",
    "bigfleetctl": "bigfleet.cli.bigfleetctl",
    "fauxctl": "bigfleet.cli.fauxctl",
    "bigfleet-conformance": "bigfleet.cli.conformance",
}
# What is typed, and whether the limit holds for it.
TYPED = (
    *((name, "--help") for name in ENTRIES),
    ("bigfleetctl", "--version"),
    ("bigfleetctl", "machines --help"),
    ("bigfleetctl", "explain --help"),
    ("bigfleet-conformance", "list"),
    ("bigfleet", "shard --help"),
    ("fauxctl", "list"),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench cli", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="processes per figure (20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    arguments = parser.parse_args(argv)
    load = os.getloadavg()[0]
    figures: dict[str, float] = {"runs": arguments.runs}
    for name, words in TYPED:
        _processor_ms(name, words.split())
        taken = [_processor_ms(name, words.split()) for _ in range(arguments.runs)]
        figures[f"{name} {words} ms"] = round(statistics.median(taken), 1)
        figures[f"{name} {words} worst ms"] = round(max(taken), 1)
    limits = {f"{name} --help ms": LIMIT_MS for name in ENTRIES}
    return conclude(figures, limits, arguments.json, load)


def evidence() -> int:
    return main(["--json", str(EVIDENCE)])


def _processor_ms(name: str, words: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", f"from {ENTRIES[name]} import main; main()", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * ((after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime))


if __name__ == "__main__":
    sys.exit(main())
