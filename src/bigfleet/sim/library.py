"""The shipped scenarios and their goldens: finding, running, checking and blessing them."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigfleet.refusal import NOT_FOUND
from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.scenario.scenario import Scenario, load_scenario, shipped_file
from bigfleet.sim.world.simulation import Simulation
from bigfleet.sim.world.summary import summarise

LARGE = "large"
"""Tag of scenarios that take minutes: they are run by name only."""

DIFF_LINES = 40


class NoScenarioError(DocumentError):
    """There is no scenario of that name."""

    code = NOT_FOUND


@dataclass(frozen=True, slots=True)
class Finished:
    """A run with its summary and, where the scenario has one, its baseline."""

    run: Simulation
    summary: dict[str, Any]
    baseline: Simulation | None = None
    timing: dict[str, Any] = field(default_factory=dict)
    """How long it took on this machine: the one part of a run that differs from one machine to the next."""

    @property
    def passed(self) -> bool:
        return bool(self.summary["passed"])


def shipped() -> list[str]:
    """Names of the shipped scenarios, in order."""
    return sorted(path.stem for path in shipped_file("x").parent.glob("*.yaml"))


def checked() -> list[str]:
    """Those of them that are held to their promises and goldens whenever nobody names any."""
    return [name for name in shipped() if LARGE not in find(name).tags]


def find(name: str) -> Scenario:
    """A shipped scenario by name, or the one in a file."""
    path = Path(name)
    if _is_file(path):
        return load_scenario(path)
    known = shipped_file(name)
    if not known.exists():
        raise NoScenarioError(f"scenario {name!r} is neither a shipped one nor a file; `fauxctl list` names them")
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
    began, worked = time.perf_counter(), time.process_time()
    baseline = None
    if scenario.baseline is not None:
        twin = scenario.with_(sharding=scenario.baseline, baseline=None, expect=())
        half = None if progress is None else (lambda done: progress(done / 2))
        baseline = Simulation(twin, shuffle=shuffle, check=check).run(half)
    rest = progress if baseline is None or progress is None else (lambda done: progress(0.5 + done / 2))
    run = Simulation(scenario, shuffle=shuffle, check=check, record=record).run(rest)
    if baseline is not None:
        run.compare_with(baseline)
    took = {"seconds": round(time.perf_counter() - began, 3), "cpu_seconds": round(time.process_time() - worked, 3)}
    return Finished(run, summarise(run, baseline), baseline, {**took, "decision_milliseconds": _decisions(run)})


def golden_path(name: str) -> Path:
    """Where a scenario's golden trace is kept: beside a file of one's own, in the package for a shipped scenario."""
    path = Path(name)
    return (
        path.with_suffix(".golden.jsonl")
        if _is_file(path)
        else shipped_file(name).parents[1] / "golden" / f"{name}.jsonl"
    )


def check(name: str, progress: Callable[[float], None] | None = None) -> tuple[Finished, list[str]]:
    """Run a scenario against its golden; the problems found, none when all is well."""
    finished = play(find(name), progress=progress)
    problems = list(finished.summary["failures"])
    path = golden_path(name)
    if not path.exists():
        return finished, [*problems, f"there is no golden trace; `fauxctl bless {name}` records one"]
    expected, found = path.read_text(encoding="utf-8"), finished.run.trace.text()
    if expected != found:
        problems.append("the trace changed:\n" + "\n".join(_difference(expected, found)))
    return finished, problems


def bless(name: str, path: Path | None = None, progress: Callable[[float], None] | None = None) -> tuple[Path, int]:
    """Record what the scenario does now as right; where it was written and how many lines it has."""
    finished = play(find(name), progress=progress)
    target = path or golden_path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(finished.run.trace.text(), encoding="utf-8")
    return target, len(finished.run.trace.lines)


def _difference(expected: str, found: str) -> Iterable[str]:
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "golden", "now", lineterm="", n=1)
    shown = [line if len(line) <= 400 else line[:397] + "..." for line in lines]
    return shown[:DIFF_LINES] + ([f"... {len(shown) - DIFF_LINES} more lines"] if len(shown) > DIFF_LINES else [])


def _decisions(run: Simulation) -> dict[str, float]:
    """How long the engine took to decide, over all cycles."""
    times = sorted(run.decision_seconds.elements())
    if not times:
        return {}
    share = {f"p{p}": times[-(-len(times) * p // 100) - 1] for p in (50, 90, 99)}
    return {name: round(seconds * 1000, 3) for name, seconds in {**share, "max": times[-1]}.items()}


def _is_file(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml") or path.is_file()
