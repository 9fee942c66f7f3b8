"""Command line of the judge.

    python -m bench quality --family web --json build/web.json
    python -m bench quality --page        # docs/quality.md's tables from docs/evidence/quality.json

Families not asked for keep the figures they have in the file, so that a long run can be made in parts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench._report import calibrate, keep, machine_facts
from bench.quality.families import FAMILIES, SEEDS
from bench.quality.judge import HOURS, Plan, judge
from bench.quality.page import PAGE, rewritten
from bench.quality.plot import PICTURE, evictions
from bigfleet.shard.runtime.gc_tuning import as_when_serving

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "quality.json"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench quality", description=__doc__.split("\n")[0])
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), metavar="NAME", help="only this one")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), metavar="SEED", help="1 2 3 unless told")
    parser.add_argument("--rival-seeds", type=int, nargs="*", metavar="SEED", help="where rivals run too: the first")
    parser.add_argument("--hours", type=float, default=HOURS, help="so much of each trace: 12 unless told")
    parser.add_argument("--jobs", type=int, default=1, help="families side by side: 1 unless told")
    parser.add_argument("--without-curve", action="store_true", help="leave out dollars over evictions")
    parser.add_argument("--page", action="store_true", help="only rebuild the tables of docs/quality.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    chosen = parser.parse_args(argv)
    if chosen.page:
        _tell(json.loads(EVIDENCE.read_text(encoding="utf-8")))
        return 0
    rivals = chosen.seeds[:1] if chosen.rival_seeds is None else chosen.rival_seeds
    plan = Plan(tuple(chosen.seeds), tuple(rivals), not chosen.without_curve, chosen.hours)
    return run(chosen.family or list(FAMILIES), plan, chosen.json, chosen.jobs)


def run(names: Sequence[str], plan: Plan, path: Path | None, jobs: int = 1) -> int:
    families: dict[str, Any] = {}
    if path is not None and path.exists():
        families = json.loads(path.read_text(encoding="utf-8"))["families"]
    for name, row in _judged(names, plan, jobs):
        families[name] = row
        if path is not None:
            _write(families, path)
    report = _report(families)
    keep(report, path)
    return 1 if any(families[name]["missed"] for name in names) else 0


def _judged(names: Sequence[str], plan: Plan, jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Families as they are done; with several jobs each has a process of its own."""
    if jobs <= 1:
        yield from ((name, _judge(name, plan)) for name in names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        under_way = {pool.submit(_judge, name, plan): name for name in names}
        for done in as_completed(under_way):
            yield under_way[done], done.result()


def _judge(name: str, plan: Plan) -> dict[str, Any]:
    begin = time.process_time()
    with as_when_serving():
        row = judge(FAMILIES[name], plan, lambda text: print(text, file=sys.stderr, flush=True))
    return {**row, "cpu_seconds": round(time.process_time() - begin, 1)}


def _tell(report: dict[str, Any]) -> None:
    """The page and its picture, from the evidence alone."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), report), encoding="utf-8")
    curves = {
        name: [(point["evicted"], point["ratio"]) for point in row["seeds"][0]["curve"].values()]
        for name, row in report["families"].items()
        if "curve" in row["seeds"][0]
    }
    if curves:
        PICTURE.write_text(evictions(curves), encoding="utf-8")


def _write(families: dict[str, Any], path: Path) -> None:
    """After each family: a run that is cut keeps what it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_report(families), indent=2) + "\n", encoding="utf-8")


def _report(families: dict[str, Any]) -> dict[str, Any]:
    missed = {name: row["missed"] for name, row in families.items() if row["missed"]}
    return {
        "families": {name: families[name] for name in FAMILIES if name in families},
        "missed": missed,
        "verdict": "FAILED" if missed else "PASSED",
        "calibration_ms": round(calibrate(), 3),
        "machine": machine_facts(),
    }
