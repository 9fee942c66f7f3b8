"""The operator's mirror: 5,000 nodes and 100,000 pods of which 1 % change between two looks.

    python -m bench operator [--nodes 5000] [--pods 100000] [--changed 0.01] [--passes 120] [--json FILE]

A pass is what the operator does between two roll-ups: take the deltas, look once (waiting pods, stranded units, nodes
that could go), build the rows and the node reports that changed. Changes are drawn after the pass before: pods end,
pods come and wait, the scheduler binds what waits, nodes come, go, and lose and regain readiness. Runs without NumPy
in the mirror's process: memory is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench._samples import spread

LIMITS = {"pass_p99_ms": 50.0, "rss_mb": 250.0}
EVIDENCE = Path("docs/evidence/operator-core.json")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench operator", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--changed", type=float, default=0.01, help="share of the pods that change per pass (0.01)")
    parser.add_argument("--passes", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.alone:
        print(json.dumps(measure(chosen.nodes, chosen.pods, chosen.changed, chosen.passes, chosen.seed)))
        return 0
    return run(chosen, chosen.json)


def evidence() -> int:
    return main(["--json", str(EVIDENCE)])


def run(chosen: argparse.Namespace, path: Path | None) -> int:
    from bench._report import conclude  # NumPy, which the measured process must not have

    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "bench", "operator", "--alone"]
    for name in ("nodes", "pods", "changed", "passes", "seed"):
        command += [f"--{name}", str(getattr(chosen, name))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return conclude(json.loads(done.stdout), LIMITS, path, load)


def measure(nodes: int, pods: int, changed: float, passes: int, seed: int) -> dict[str, Any]:
    """Figures of this process."""
    from bench._operator_world import World
    from bigfleet.operator.core.mirror.mirror import Mirror

    began = time.perf_counter()
    world = World(nodes, pods, seed)
    first = world.begin()
    built = time.perf_counter() - began
    empty_mb = _rss_mb()
    mirror = Mirror()
    began = time.perf_counter()
    mirror.apply(first)
    mirror.settle(world.now)
    rows, reports = mirror.rows(), mirror.reports(anew=True)
    cold = time.perf_counter() - began
    del first
    # As the operator does: what is old is left alone, and the collector runs between two looks, not inside one.
    gc.collect()
    gc.freeze()
    gc.disable()
    samples: list[float] = []
    busy: list[float] = []
    parts: dict[str, list[float]] = {"apply": [], "settle": [], "rows": [], "reports": []}
    deltas_seen = stranded = waiting = 0
    for number in range(passes):
        deltas = world.change(changed)
        deltas_seen += len(deltas)
        clock = time.thread_time
        began = time.perf_counter()
        marks = [clock()]
        mirror.apply(deltas)
        marks.append(clock())
        found = mirror.settle(world.now)
        marks.append(clock())
        rows = mirror.rows()
        marks.append(clock())
        reports = mirror.reports()
        marks.append(clock())
        samples.append((time.perf_counter() - began) * 1000)
        busy.append((marks[-1] - marks[0]) * 1000)
        for name, begin, end in zip(parts, marks, marks[1:], strict=False):
            parts[name].append((end - begin) * 1000)
        gc.collect(1)
        stranded += found.stranded
        waiting += len(world.waiting)
        if sys.stderr.isatty():
            print(f"pass {number + 1} of {passes}: {samples[-1]:.1f} ms", end="\r", file=sys.stderr)
    told = mirror.reports(anew=True)
    figures = spread(samples)
    return {
        "pass_p50_ms": figures["p50"],
        "pass_p99_ms": figures["p99"],
        "pass_max_ms": figures["max"],
        # Time on the processor alone: what a pass takes when nobody else wants it.
        "busy_ms": spread(busy),
        "busy_parts_p50_ms": {name: spread(values)["p50"] for name, values in parts.items()},
        "cold_ms": round(cold * 1000, 1),
        "rss_mb": round(_rss_mb(), 1),
        "rss_without_mirror_mb": round(empty_mb, 1),
        "numpy_loaded": "numpy" in sys.modules,
        "shape": {
            "nodes": nodes,
            "pods": pods,
            "changed": changed,
            "passes": passes,
            "seed": seed,
            "deltas_per_pass": round(deltas_seen / passes),
            "waiting_per_pass": round(waiting / passes),
            "stranded_per_pass": round(stranded / passes),
            "rows": len(rows),
            "reports_last_pass": len(reports),
            "kinds": world.kinds,
            "with_hard_filters": world.hard_share,
            "removable_nodes": sum(report.removable for report in told),
            "empty_nodes": sum(report.empty for report in told),
            "built_seconds": round(built, 1),
        },
    }


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
