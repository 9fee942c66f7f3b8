"""The shipped scenarios and their goldens: finding, running, checking and blessing them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bigfleet.sim.document import DocumentError
from bigfleet.sim.scenario import Scenario, load_scenario
from bigfleet.sim.simulation import Simulation
from bigfleet.sim.summary import summarise

LARGE = "large"
"""Tag of scenarios that take minutes: they are run by name only."""

DIFF_LINES = 40


@dataclass(frozen=True, slots=True)
class Finished:
    """A run with its summary and, where the scenario has one, its baseline."""

    run: Simulation
    summary: dict[str, Any]
    baseline: Simulation | None = None

    @property
    def passed(self) -> bool:
        return bool(self.summary["passed"])


def shipped() -> list[str]:
    """Names of the shipped scenarios, in order."""
    return sorted(path.stem for path in _folder("scenarios").glob("*.yaml"))


def find(name: str) -> Scenario:
    """A shipped scenario by name, or the one in a file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return load_scenario(path)
    known = _folder("scenarios") / f"{name}.yaml"
    if not known.exists():
        raise DocumentError(f"scenario {name!r} is neither a shipped one nor a file; `fauxctl list` names them")
    return load_scenario(known)


def play(
    scenario: Scenario,
    *,
    shuffle: int | None = None,
    check: bool = False,
    progress: Callable[[float], None] | None = None,
    record: Path | None = None,
) -> Finished:
    """Run a scenario, and its baseline first if it names one."""
    baseline = None
    if scenario.baseline is not None:
        twin = scenario.with_(sharding=scenario.baseline, baseline=None, expect=())
        half = None if progress is None else (lambda done: progress(done / 2))
        baseline = Simulation(twin, shuffle=shuffle, check=check).run(half)
    rest = progress if baseline is None or progress is None else (lambda done: progress(0.5 + done / 2))
    run = Simulation(scenario, shuffle=shuffle, check=check, record=record).run(rest)
    if baseline is not None:
        run.compare_with(baseline)
    return Finished(run, summarise(run, baseline), baseline)


def golden_path(name: str) -> Path:
    return _folder("golden") / f"{name}.jsonl"


def check(name: str) -> tuple[Finished, list[str]]:
    """Run a scenario against its golden; the problems found, none when all is well."""
    finished = play(find(name))
    problems = list(finished.summary["failures"])
    path = golden_path(name)
    if not path.exists():
        return finished, [*problems, f"there is no golden trace; `fauxctl bless {name}` records one"]
    expected, found = path.read_text(encoding="utf-8"), finished.run.trace.text()
    if expected != found:
        problems.append("the trace changed:\n" + "\n".join(_difference(expected, found)))
    return finished, problems


def bless(name: str, path: Path | None = None) -> tuple[Path, int]:
    """Record what the scenario does now as right; where it was written and how many lines it has."""
    finished = play(find(name))
    target = path or golden_path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(finished.run.trace.text(), encoding="utf-8")
    return target, len(finished.run.trace.lines)


def _difference(expected: str, found: str) -> Iterable[str]:
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "golden", "now", lineterm="", n=1)
    shown = [line if len(line) <= 400 else line[:397] + "..." for line in lines]
    return shown[:DIFF_LINES] + ([f"... {len(shown) - DIFF_LINES} more lines"] if len(shown) > DIFF_LINES else [])


def _folder(name: str) -> Path:
    return Path(str(resources.files("bigfleet.sim").joinpath(name)))
