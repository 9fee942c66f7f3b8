"""The files of a run: `summary.json`, `events.jsonl`, `metrics.jsonl`, `report.html`, `scenario.yaml`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bigfleet.sim.document import DocumentError
from bigfleet.sim.document_text import to_yaml
from bigfleet.sim.library import Finished
from bigfleet.sim.meter import Sample
from bigfleet.sim.report import render


def write_run(finished: Finished, folder: Path) -> None:
    """Everything about a run, in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run = finished.run
    _write(folder / "summary.json", json.dumps(finished.summary, indent=2) + "\n")
    _write(folder / "events.jsonl", run.trace.text())
    _write(folder / "metrics.jsonl", "".join(json.dumps(asdict(sample)) + "\n" for sample in run.meter.samples))
    _write(folder / "report.html", render(run, finished.summary, finished.baseline))
    _write(folder / "scenario.yaml", to_yaml(run.scenario))


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
        return [Sample(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except (TypeError, ValueError) as error:
        raise DocumentError(f"{file}: not the metrics of a run: {error}") from error


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
