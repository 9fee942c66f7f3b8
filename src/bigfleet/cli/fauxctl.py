"""`fauxctl`: the whole fleet in a laptop, on a virtual clock. Exit code 0 means that every expectation held."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bigfleet.cli.commands import CommandError
from bigfleet.cli.output import Output, OutputOption, print_record, print_records
from bigfleet.shard.collecting import as_when_serving
from bigfleet.sim import library
from bigfleet.sim.comparison import Side, names, render_comparison
from bigfleet.sim.document import DocumentError
from bigfleet.sim.document_schema import schema
from bigfleet.sim.files import read_samples, read_summary, write_run
from bigfleet.sim.scenario import Scenario
from bigfleet.sim.summary import compare as compare_summaries

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

ScenarioArgument = Annotated[str, typer.Argument(help="A shipped scenario's name, or a YAML file.", metavar="SCENARIO")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder for summary, event log, metrics and report.", metavar="DIR")
]
WithinOption = Annotated[
    float | None, typer.Option("--within", help="Fail when it takes longer than this.", metavar="SECONDS")
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Another seed than the scenario's own.")]


@app.command()
def run(
    scenario: ScenarioArgument,
    out: OutOption = None,
    seed: SeedOption = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print the event log instead of the summary.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Validate every part after every decision (slow).")] = False,
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
    """Play a scenario and judge its expectations."""
    chosen = _found(scenario)
    if seed is not None:
        chosen = chosen.with_(seed=seed)
    if within is not None:
        warm_up()
    began, worked = time.perf_counter(), time.process_time()
    with simulation_progress(chosen.name) as progress, as_when_serving():
        finished = library.play(chosen, check=check, progress=progress, record=record)
    took = {"seconds": round(time.perf_counter() - began, 3), "cpu_seconds": round(time.process_time() - worked, 3)}
    verdict = timed(took["seconds"], within)
    if out is not None:
        write_run(finished, out)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps({**finished.summary, **took, **verdict}, indent=2) + "\n", encoding="utf-8")
    if trace:
        typer.echo(finished.run.trace.text(), nl=False)
    else:
        print_summary(finished.summary, output)
    tell_verdicts(finished)
    if not verdict.get("in_time", True):
        typer.echo(f"FAIL  it took {took['seconds']:g} s; {within:g} s are allowed", err=True)
    raise typer.Exit(0 if finished.passed and verdict.get("in_time", True) else 1)


@app.command("list")
def list_scenarios(output: OutputOption = Output.TABLE) -> None:
    """Name the shipped scenarios."""
    if output is Output.JSON:
        rows = [library.find(name) for name in library.shipped()]
        print_records([{"name": s.name, "tags": list(s.tags), "description": s.description} for s in rows], output)
        return
    for name in library.shipped():
        typer.echo(f"{name:<28} {library.find(name).description}")


@app.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Scenarios; all small ones without.", metavar="NAME")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play the shipped scenarios and compare their event logs with the goldens, byte by byte."""
    _each(names, lambda name: library.check(name), output)


@app.command("run-all")
def run_all(output: OutputOption = Output.TABLE) -> None:
    """Play all small shipped scenarios and judge their expectations."""

    def played(name: str) -> tuple[library.Finished, list[str]]:
        finished = library.play(library.find(name))
        return finished, finished.summary["failures"]

    _each(None, played, output)


@app.command()
def bless(
    name: Annotated[str, typer.Argument(help="A shipped scenario, or `all`.")],
    path: Annotated[Path | None, typer.Argument(help="Another file than the scenario's own golden.")] = None,
) -> None:
    """Record what a scenario does now as right."""
    for each in _small() if name == "all" else [name]:
        _found(each)
        target, lines = library.bless(each, path)
        typer.echo(f"{target}: {lines} lines")


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="A scenario, or the folder or summary.json of a run.", metavar="A")],
    second: Annotated[str, typer.Argument(help="Another one.", metavar="B")],
    report: Annotated[
        Path | None, typer.Option("--html", help="Also write both into one page with plots.", metavar="FILE")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put two runs side by side, number by number."""
    one, other = _side(first), _side(second)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(render_comparison(one, other), encoding="utf-8")
    rows = compare_summaries(one.summary, other.summary)
    heads = names(one, other)
    print_records([_shown(row, heads) for row in rows] if output is Output.TABLE else rows, output)


@app.command("schema")
def print_schema() -> None:
    """Print the JSON schema of scenario files."""
    typer.echo(json.dumps(schema(Scenario, "BigFleet scenario"), indent=2))


app.command("verify", hidden=True, help="Alias of check.")(check)
app.command("record", hidden=True, help="Alias of bless.")(bless)


def main() -> None:
    # Added here and not above: these pull in what only they need.
    from bigfleet.cli import fauxctl_replay, fauxctl_soak

    app.command("replay")(fauxctl_replay.replay)
    app.command("soak")(fauxctl_soak.soak)
    try:
        app(prog_name="fauxctl")
    except (CommandError, DocumentError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


# --------------------------------------------------------------------------------------------------------------- parts


def print_summary(summary: dict[str, Any], output: Output) -> None:
    """The record itself, or one line per fact."""
    if output is Output.JSON:
        print_record(summary, output)
        return
    dollars, pods = summary["dollars"], summary["pods"]
    facts: dict[str, Any] = {
        "scenario": f"{summary['scenario']}, seed {summary['seed']}",
        "simulated": f"{summary['simulated']}, {summary['cycles']:,} cycles",
        "pods": f"{pods['running']:,} of {pods['live']:,} running",
        "machines": ", ".join(f"{count:,} {state}" for state, count in summary["machines"].items()),
        "dollars": f"{dollars['total']:,.2f} ({dollars['per_hour']:,.2f} per hour)",
        "used": ", ".join(f"{name} {share:.0%}" for name, share in summary["utilisation"].items()) or "nothing",
        "actions": ", ".join(f"{count:,} {kind}" for kind, count in summary["actions"].items() if count) or "none",
        "interrupted": ", ".join(f"{n:,} by {cause}" for cause, n in summary["interruptions"]["pods"].items())
        or "none",
        "shortfalls": summary["shortfalls"],
    }
    for name, row in summary["time_to_capacity_seconds"].items():
        facts[f"{name} waits"] = (
            f"p50 {row['p50']:g} s, p90 {row['p90']:g} s, p99 {row['p99']:g} s, max {row['max']:g} s"
        )
    if "baseline" in summary:
        base = summary["baseline"]
        facts["baseline"] = f"{base['sharding']}: {base['dollars']:,.2f} dollars, {base['saved_share']:.1%} saved"
    print_record(facts, output)


def warm_up() -> None:
    """Have the engine's kernels compiled before a clock starts; that happens once per machine and version."""
    from bigfleet.engine.engine import Engine

    Engine().warm()


def timed(seconds: float, within: float | None) -> dict[str, Any]:
    """Whether a run kept to the time it was given, if it was given any."""
    return {} if within is None else {"within": within, "in_time": seconds <= within}


def tell_verdicts(finished: library.Finished) -> None:
    """One line per expectation on standard error."""
    for clause in finished.run.scenario.expect:
        problem = clause.judge(finished.run)
        typer.echo(f"FAIL  {clause.TAG[1]}: {problem}" if problem else f"PASS  {clause.TAG[1]}", err=True)


@contextmanager
def simulation_progress(title: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error while somebody watches; silence otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)


def _each(names: list[str] | None, play: Callable[[str], tuple[library.Finished, list[str]]], output: Output) -> None:
    rows = []
    for name in names or _small():
        _found(name)
        began = time.monotonic()
        try:
            finished, problems = play(name)
            clauses = len(finished.run.scenario.expect)
            lines = len(finished.run.trace.lines)
            word = "FAIL" if problems else "PASS"
        except Exception as error:
            problems, clauses, lines, word = [f"{type(error).__name__}: {error}"], 0, 0, "ERROR"
        seconds = round(time.monotonic() - began, 2)
        rows.append({"scenario": name, "verdict": word, "problems": problems, "lines": lines, "seconds": seconds})
        if output is Output.TABLE:
            typer.echo(f"{word:<5} {name:<32} {clauses} expectations, {lines} lines, {seconds:.1f} s", err=True)
            for problem in problems:
                typer.echo(f"      {problem}", err=True)
    if output is Output.JSON:
        print_records(rows, output)
    raise typer.Exit(0 if all(row["verdict"] == "PASS" for row in rows) else 1)


def _small() -> list[str]:
    return [name for name in library.shipped() if library.LARGE not in library.find(name).tags]


def _found(name: str) -> Scenario:
    try:
        return library.find(name)
    except DocumentError as error:
        raise CommandError(str(error)) from error


def _side(name: str) -> Side:
    path = Path(name)
    if path.is_dir() or path.suffix == ".json":
        folder = path.parent if path.name == "summary.json" else path
        return Side(folder.resolve().stem, read_summary(path), read_samples(folder))
    finished = library.play(_found(name))
    return Side(finished.run.scenario.name, finished.summary, finished.run.meter.samples)


def _shown(row: dict[str, Any], heads: tuple[str, str]) -> dict[str, str]:
    values = ["–" if row[side] is None else f"{row[side]:,.10g}" for side in ("first", "second")]
    return {"what": row["what"], **dict(zip(heads, values, strict=True)), "change": row["change"]}


if __name__ == "__main__":
    main()
