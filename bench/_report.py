"""What every report of a benchmark holds: this machine's yardstick, its facts, figures against limits, a verdict."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def calibrate() -> float:
    """One bincount of 5,000,000 int32 over 1,000 classes, in ms, best of five: this machine's yardstick."""
    data = np.random.default_rng(1).integers(0, 1000, 5_000_000).astype(np.int32)
    return _best_of_five(lambda: np.bincount(data, minlength=1000))


def interpret() -> float:
    """200,000 calls, tuples and dict entries in plain Python, in ms, best of five: this interpreter's yardstick."""

    def entry(number: int) -> tuple[int, str]:
        return number & 1023, "text"

    def fill() -> None:
        known = {}
        for number in range(200_000):
            place, text = entry(number)
            known[place, text] = number

    return _best_of_five(fill)


def _best_of_five(work: Callable[[], object]) -> float:
    """Milliseconds of the fastest of five runs."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best * 1000


def machine_facts() -> dict[str, object]:
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}


def conclude(
    figures: Mapping[str, Any], limits: Mapping[str, float], path: Path | None, load_before: float | None = None
) -> int:
    """Hold the figures against their limits, print the report and keep it; the exit code says whether all held."""
    over = sorted(name for name, limit in limits.items() if figures[name] > limit)
    report: dict[str, Any] = {
        "figures": dict(figures),
        "limits": dict(limits),
        "over": over,
        "verdict": "FAILED" if over else "PASSED",
        "calibration_ms": round(calibrate(), 3),
        "interpreter_ms": round(interpret(), 1),
        "machine": machine_facts(),
    }
    if load_before is not None:
        report["load_average_before"] = round(load_before, 1)
    keep(report, path)
    return 1 if over else 0


def keep(report: Mapping[str, Any], path: Path | None) -> None:
    """Print a report as JSON and, if asked, write it to a file."""
    text = json.dumps(report, indent=2)
    print(text)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
