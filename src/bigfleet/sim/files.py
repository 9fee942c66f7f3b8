"""The files of a run: `summary.json`, `events.jsonl`, `metrics.jsonl`, `report.html`, `scenario.yaml`, `timing.json`.

The last one alone depends on the machine; all others are the same bytes wherever the same scenario is played.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.document.text import to_yaml
from bigfleet.sim.library import Finished
from bigfleet.sim.report.report import render
from bigfleet.sim.world.meter import Sample
from bigfleet.virtual.kernel import SECOND

_METRICS = {
    "machines": "states",
    "dollars_per_hour": "rates",
    "pods": "live",
    "pods_running": "running",
    "pods_interrupted": "interrupted",
    "shortfalls": "shortfalls",
    "oldest_shortfall_seconds": "oldest_shortfall",
    "actions": "actions",
    "actions_queued": "queued",
    "operations": "operations",
}
"""What a reader of `metrics.jsonl` finds, and what it is called in code."""


def write_run(finished: Finished, folder: Path) -> None:
    """Everything about a run, in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run = finished.run
    _write(folder / "summary.json", json.dumps(finished.summary, indent=2) + "\n")
    _write(folder / "events.jsonl", run.trace.text())
    _write(folder / "metrics.jsonl", "".join(json.dumps(_metrics(sample)) + "\n" for sample in run.meter.samples))
    _write(folder / "report.html", render(run, finished.summary, finished.baseline))
    _write(folder / "scenario.yaml", to_yaml(run.scenario))
    _write(folder / "timing.json", json.dumps(finished.timing, indent=2) + "\n")


def read_summary(path: Path) -> dict[str, Any]:
    """The summary in a run's folder, or in a file."""
    file = path / "summary.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DocumentError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DocumentError(f"{file}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DocumentError(f"{file}: holds {type(found).__name__}; give the summary of a run")
    return found


def read_samples(path: Path) -> list[Sample]:
    """The samples in a run's folder; none where only a summary was kept."""
    file = path / "metrics.jsonl"
    if not file.is_file():
        return []
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [
            Sample(at=round(line["seconds"] * SECOND), **{ours: line[theirs] for theirs, ours in _METRICS.items()})
            for line in lines
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"{file}: not the metrics of a run: {error}") from error


def _metrics(sample: Sample) -> dict[str, Any]:
    return {"seconds": sample.at / SECOND, **{theirs: getattr(sample, ours) for theirs, ours in _METRICS.items()}}


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
