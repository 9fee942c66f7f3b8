"""What compiling the engine's kernels costs, beside another revision of this repository, as JSON.

    python -m bench kernels [--against 7eab7f6] [--runs 2] [--json docs/evidence/kernels-compile.json]

Each run is a fresh process with an empty cache that compiles every kernel. Processor seconds count (user and system,
the interpreter's start included): they depend little on who else is busy. Revisions take turns, so that a slower hour
is slow for both; the limit is the median of what the other revision took. Without `--against` there is none.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench._report import conclude

ROOT = Path(__file__).parents[1]
EVIDENCE = Path("docs/evidence/kernels-compile.json")
# The last commit before the tree got its rooms.
BEFORE_THE_ROOMS = "7eab7f6"

# Both revisions know an engine that can warm itself and tells of every kernel that is done.
_COMPILE = """
import json, time
from bigfleet.engine.engine import Engine
done, began = [], time.process_time()
Engine().warm(lambda number, total: done.append(time.process_time()))
print(json.dumps([after - before for before, after in zip([began, *done], done)]))
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench kernels", description=__doc__)
    parser.add_argument("--against", default="", metavar="REVISION", help=f"compare with this ({BEFORE_THE_ROOMS})")
    parser.add_argument("--runs", type=int, default=2, help="processes per revision (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    chosen = parser.parse_args(argv)
    load = os.getloadavg()[0]
    with _sources_of(chosen.against) as other:
        taken: dict[str, list[_Run]] = {"now": [], **({"before": []} if other else {})}
        for _ in range(chosen.runs):
            if other:
                taken["before"].append(_Run(other))
            taken["now"].append(_Run(ROOT / "src"))
    figures: dict[str, Any] = {"against": chosen.against} if other else {}
    for name, runs in taken.items():
        figures[f"{name}_kernels"] = runs[0].kernels
        figures[f"{name}_cpu_seconds"] = round(statistics.median(each.seconds for each in runs), 1)
        figures[f"{name}_cpu_seconds_each"] = [round(each.seconds, 1) for each in runs]
        figures[f"{name}_cache_mb"] = runs[0].megabytes
    limits = {"now_cpu_seconds": figures["before_cpu_seconds"]} if other else {}
    return conclude(figures, limits, chosen.json, load)


def evidence() -> int:
    return main(["--against", BEFORE_THE_ROOMS, "--json", str(EVIDENCE)])


class _Run:
    """One process that compiled every kernel of some sources, with nothing compiled before."""

    def __init__(self, sources: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="bigfleet-kernels-") as cache:
            before = _children()
            said = subprocess.run(
                [sys.executable, "-c", _COMPILE],
                env={**os.environ, "PYTHONPATH": str(sources), "BIGFLEET_KERNEL_CACHE": cache},
                cwd=cache,
                capture_output=True,
                text=True,
                check=True,
            )
            self.seconds = _children() - before
            self.kernels = said.stdout.count(",") + 1
            files = (each for each in Path(cache).rglob("*") if each.is_file())
            self.megabytes = round(sum(each.stat().st_size for each in files) / 1e6, 1)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _sources_of(revision: str) -> Iterator[Path | None]:
    """The sources of another revision, for as long as they are needed."""
    if not revision:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bigfleet-revision-") as folder:
        archive = Path(folder) / "sources.tar"
        subprocess.run(["git", "archive", "-o", str(archive), revision, "src"], cwd=ROOT, check=True)
        subprocess.run(["tar", "-xf", str(archive)], cwd=folder, check=True)
        yield Path(folder) / "src"


if __name__ == "__main__":
    sys.exit(main())
