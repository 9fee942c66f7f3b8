"""The commands of `fauxctl` that play scenarios: run, check, bless, compare. 0 means that every expectation held."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bigfleet.cli.commands import CommandError, MistakeError
from bigfleet.cli.ctl.places import check_file, check_folder, tell_written
from bigfleet.cli.faux.run_output import print_summary, tell_misfits, tell_verdicts
from bigfleet.cli.flags import Seconds, duration
from bigfleet.cli.output import Output, OutputOption, print_data, print_records
from bigfleet.cli.progress import Report, simulation_progress, warm_up
from bigfleet.shard.runtime.gc_tuning import as_when_serving
from bigfleet.sim import library
from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.document.schema import schema
from bigfleet.sim.files import read_samples, read_summary, write_run
from bigfleet.sim.replay.replay import ReplayMapping
from bigfleet.sim.report.comparison import Side, names, render_comparison
from bigfleet.sim.scenario.scenario import Scenario
from bigfleet.sim.world.summary import compare as compare_summaries


class Schema(StrEnum):
    """The kinds of files people write."""

    SCENARIO = "scenario"
    MAP = "map"


ScenarioArgument = Annotated[
    str,
    typer.Argument(
        help="A shipped scenario's name, or a YAML file.",
        metavar="SCENARIO",
        autocompletion=lambda: list(library.shipped()),
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder for summary, event log, metrics and report.", metavar="DIR")
]
WithinOption = Annotated[
    Seconds | None,
    typer.Option("--within", help="Fail when it takes longer than this.", metavar="DURATION", parser=duration),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Another seed than the scenario's own.", min=0)]


def run(
    scenario: ScenarioArgument,
    out: OutOption = None,
    seed: SeedOption = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print the event log instead of the summary.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Validate every part after every decision (slow).")] = False,
    shuffle: Annotated[
        int | None,
        typer.Option("--shuffle", help="Permute whatever has no order, by this seed: nothing may change.", min=0),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Record the engine's inputs, as a shard's --record does.", metavar="FILE"),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write the summary and how long it took here.", metavar="FILE"),
    ] = None,
    within: WithinOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play a scenario and judge its expectations.

    Prints a summary, then PASS or FAIL for each expectation; the exit code is 0 when all of them held. With --out the
    folder gets summary.json, report.html (plots; one file that loads nothing), events.jsonl, metrics.jsonl,
    scenario.yaml (to edit and run again) and timing.json.

    fauxctl run spot-crunch --out build/crunch

    fauxctl run mine.yaml --seed 7 -o json
    """
    chosen = _found(scenario)
    if seed is not None:
        chosen = chosen.with_(seed=seed)
    check_folder("--out", out)
    check_file("--json", json_file)
    check_file("--record", record, new=True)
    if record is not None and len(chosen.shard_names()) > 1:
        raise MistakeError(f"--record is for one shard and {chosen.name!r} has several; give a scenario with one")
    tell_misfits(chosen)
    warm_up()
    with simulation_progress(chosen.name) as progress, as_when_serving():
        finished = library.play(chosen, shuffle=shuffle, check=check, progress=progress, record=record)
    seconds = finished.timing["seconds"]
    verdict = timed(seconds, within)
    if out is not None:
        write_run(finished, out)
    if json_file is not None:
        json_file.write_text(
            json.dumps({**finished.summary, **finished.timing, **verdict}, indent=2) + "\n", encoding="utf-8"
        )
    if trace:
        typer.echo(finished.run.trace.text(), nl=False)
    else:
        print_summary(finished.summary, output)
    tell_verdicts(finished)
    tell_written(out, json_file, record)
    if not verdict.get("in_time", True):
        typer.echo(f"FAIL  it took {seconds:g} s; {within:g} s are allowed", err=True)
    raise typer.Exit(0 if finished.passed and verdict.get("in_time", True) else 1)


def list_scenarios(output: OutputOption = Output.TABLE) -> None:
    """Name the shipped scenarios."""
    found = [library.find(name) for name in library.shipped()]
    if output.for_people:
        typer.echo("\n".join(f"{each.name:<28} {each.description}" for each in found))
    else:
        print_data([{"name": s.name, "tags": list(s.tags), "description": s.description} for s in found], output)


def check(
    names: Annotated[list[str] | None, typer.Argument(help="Shipped scenarios or YAML files.", metavar="NAME")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play scenarios and compare their event logs with the goldens, byte by byte.

    Without a name: all shipped scenarios but the large ones. The golden of a file mine.yaml is mine.golden.jsonl beside
    it. A change shows as a diff; when it is meant, `fauxctl bless NAME` records it. `verify` is another name for check.
    """
    _each(names, lambda name, progress: library.check(name, progress), output)


def run_all(output: OutputOption = Output.TABLE) -> None:
    """Play all small shipped scenarios and judge their expectations."""

    def played(name: str, progress: Report) -> tuple[library.Finished, list[str]]:
        finished = library.play(library.find(name), progress=progress)
        return finished, finished.summary["failures"]

    _each(None, played, output)


def bless(
    name: Annotated[str, typer.Argument(help="A shipped scenario, a YAML file, or `all`.", metavar="NAME")],
    path: Annotated[
        Path | None, typer.Argument(help="Another file than the scenario's own golden.", metavar="FILE")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Record what a scenario does now as right: its event log becomes the golden that `check` compares with.

    `record` is another name for bless.
    """
    if name == "all" and path is not None:
        raise MistakeError(f"bless all is given the file {str(path)!r}; leave it out, or name one scenario")
    check_file("the golden", path)
    chosen = _chosen([name] if name != "all" else None)
    warm_up()
    rows = []
    for each in chosen:
        with simulation_progress(each) as progress:
            target, lines = library.bless(each, path, progress)
        rows.append({"scenario": each, "golden": str(target), "lines": lines})
        if output.for_people:
            typer.echo(f"{target}: {lines} lines")
    if not output.for_people:
        print_data(rows, output)


def compare(
    first: Annotated[str, typer.Argument(help="A scenario, or the folder or summary.json of a run.", metavar="A")],
    second: Annotated[str, typer.Argument(help="Another one.", metavar="B")],
    report: Annotated[
        Path | None, typer.Option("--html", help="Also write both into one page with plots.", metavar="FILE")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put two runs side by side, number by number; with --html also as one page with plots.

    fauxctl compare host-loss-0s host-loss-300s

    fauxctl compare build/before build/after --html build/change.html
    """
    check_file("--html", report)
    known = [_known_side(name) for name in (first, second)]
    one, other = (side or _played_side(name) for side, name in zip(known, (first, second), strict=True))
    if report is not None:
        report.write_text(render_comparison(one, other), encoding="utf-8")
        tell_written(report)
    rows = compare_summaries(one.summary, other.summary)
    heads = names(one, other)
    print_records([_shown(row, heads) for row in rows] if output.for_people else rows, output)


def print_schema(
    of: Annotated[Schema, typer.Argument(help="Which files: scenarios, or the maps of `replay`.")] = Schema.SCENARIO,
    output: Annotated[Output, typer.Option("-o", "--output", help="json, or the same schema as yaml.")] = Output.JSON,
) -> None:
    """Print the JSON schema of scenario files, for editors and other programs."""
    if output.for_people:
        raise MistakeError("-o is 'table', which a schema has no form for; give json or yaml")
    print_data(published_schema(of), output)


# --------------------------------------------------------------------------------------------------------------- parts


def published_schema(of: Schema) -> dict[str, Any]:
    """The JSON schema of one kind of file."""
    if of is Schema.MAP:
        return schema(ReplayMapping, "BigFleet replay map")
    return schema(Scenario, "BigFleet scenario", extends="a scenario beside it, or a shipped one, to start from")


def timed(seconds: float, within: float | None) -> dict[str, Any]:
    """Whether a run kept to the time it was given, if it was given any."""
    return {} if within is None else {"within": within, "in_time": seconds <= within}


def _each(
    names: list[str] | None, play: Callable[[str, Report], tuple[library.Finished, list[str]]], output: Output
) -> None:
    rows = []
    chosen = _chosen(names)
    warm_up()
    for name in chosen:
        began = time.monotonic()
        try:
            with simulation_progress(name) as progress:
                finished, problems = play(name, progress)
            clauses = len(finished.run.scenario.expect)
            lines = len(finished.run.trace.lines)
            word = "FAIL" if problems else "PASS"
        except Exception as error:
            problems, clauses, lines, word = [f"{type(error).__name__}: {error}"], 0, 0, "ERROR"
        seconds = round(time.monotonic() - began, 2)
        rows.append({"scenario": name, "verdict": word, "problems": problems, "lines": lines, "seconds": seconds})
        if output.for_people:
            typer.echo(f"{word:<5} {name:<32} {clauses} expectations, {lines} lines, {seconds:.1f} s", err=True)
            for problem in problems:
                typer.echo(f"      {problem}", err=True)
    passed = sum(row["verdict"] == "PASS" for row in rows)
    if not output.for_people:
        print_data(rows, output)
    elif len(rows) > 1:
        typer.echo(f"{passed} of {len(rows)} scenarios passed", err=True)
    raise typer.Exit(0 if passed == len(rows) else 1)


def _chosen(names: list[str] | None) -> list[str]:
    """The scenarios meant, every one of them readable: a typing error must not show after minutes of work."""
    if not names:
        return library.checked()
    for name in names:
        _found(name)
    return names


def _found(name: str) -> Scenario:
    try:
        return library.find(name)
    except DocumentError as error:
        raise CommandError(str(error)) from error


def _known_side(name: str) -> Side | None:
    """An earlier run, from its files; None for a scenario, which is known to exist."""
    path = Path(name)
    if path.is_dir() or path.suffix == ".json":
        folder = path.parent if path.name == "summary.json" else path
        return Side(folder.resolve().stem, read_summary(path), read_samples(folder))
    _found(name)
    return None


def _played_side(name: str) -> Side:
    warm_up()
    with simulation_progress(name) as progress:
        finished = library.play(_found(name), progress=progress)
    return Side(finished.run.scenario.name, finished.summary, finished.run.meter.samples)


def _shown(row: dict[str, Any], heads: tuple[str, str]) -> dict[str, str]:
    values = ["–" if row[side] is None else f"{row[side]:,.10g}" for side in ("first", "second")]
    return {"what": row["what"], **dict(zip(heads, values, strict=True)), "change": row["change"]}
