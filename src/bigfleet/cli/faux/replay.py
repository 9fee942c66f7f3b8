"""`fauxctl replay`: your own past, decided by BigFleet: a CSV of jobs, or what a shard recorded."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from bigfleet.cli.commands import CommandError, MistakeError
from bigfleet.cli.ctl.places import check_file, check_folder, tell_written
from bigfleet.cli.faux.run_output import print_summary, tell_misfits, tell_verdicts
from bigfleet.cli.faux.scenarios import OutOption, SeedOption
from bigfleet.cli.output import Output, OutputOption, print_data, print_record
from bigfleet.cli.progress import simulation_progress, warm_up
from bigfleet.engine.engine import Engine
from bigfleet.shard.recording.format import MAGIC
from bigfleet.sim import library
from bigfleet.sim.document.document import DocumentError, compose, read
from bigfleet.sim.document.text import to_yaml
from bigfleet.sim.files import write_run
from bigfleet.sim.replay.recording import decide_again, scenario_of
from bigfleet.sim.replay.replay import replay_csv, what_if
from bigfleet.sim.scenario.scenario import PolicySettings, Scenario, Sharding


def replay(
    history: Annotated[Path, typer.Argument(help="A CSV of jobs, or a shard's --record file.", metavar="FILE")],
    mapping: Annotated[
        Path | None, typer.Option("--map", help="How to read the CSV, and the fleet to buy from.", metavar="FILE")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            help="What if this cost so much per hour; NAME is an offer, an instance type, or TYPE/MARKET such as "
            "m6i.large/spot. Repeatable.",
            metavar="NAME=DOLLARS",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="What if the policy were this, such as reclaim_hold=5m; keys as in a scenario's policy. Repeatable.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option("--baseline", help="Also run it with each cluster on machines of its own: what sharing is worth."),
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Recording only: decide every recorded step again, nothing more.")
    ] = False,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", help="Write the scenario here and do not run it.", metavar="FILE")
    ] = None,
    seed: SeedOption = None,
    out: OutOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replay a demand history and say what it would have cost.

    fauxctl replay jobs.csv --map jobs-map.yaml --baseline --out build/history

    fauxctl replay shard.rec --policy reclaim_hold=5m --price m6i.xlarge/spot=0.02

    `fauxctl schema map` describes the map; a recording comes from `bigfleet shard --record FILE` and needs none.
    """
    prices = dict(_price(each) for each in price or [])
    changes = _policy(policy or [])
    recorded = _is_recording(history)
    if decisions:
        if not recorded:
            raise MistakeError(f"--decisions is for recordings and {str(history)!r} is none; leave it out")
        warm_up()
        _print_decisions(dataclasses.asdict(decide_again(history, Engine, prices=prices, policy=changes)), output)
        return
    check_folder("--out", out)
    check_file("--scenario", scenario)
    chosen = what_if(_scenario(history, mapping, recorded), prices=prices, changes=changes)
    if baseline:
        chosen = chosen.with_(baseline=Sharding.PER_CLUSTER)
    if seed is not None:
        chosen = chosen.with_(seed=seed)
    if scenario is not None:
        scenario.write_text(to_yaml(chosen), encoding="utf-8")
        tell_written(scenario)
        return
    tell_misfits(chosen)
    warm_up()
    with simulation_progress(chosen.name) as progress:
        finished = library.play(chosen, progress=progress)
    if out is not None:
        write_run(finished, out)
    print_summary(finished.summary, output)
    if not recorded and (left := finished.summary["unfinished"]["longest_left_seconds"]):
        longer = f"{math.ceil(left / 3600)}h"
        typer.echo(f"WARN  jobs were cut off; a `tail` in the map that is {longer} longer plays all of them", err=True)
    tell_verdicts(finished)
    tell_written(out)
    raise typer.Exit(0 if finished.passed else 1)


def _scenario(history: Path, mapping: Path | None, recorded: bool) -> Scenario:
    if recorded and mapping is not None:
        raise MistakeError(f"{str(history)!r} is a recording, which needs no --map; leave it out")
    if recorded:
        return scenario_of(history)
    if mapping is None:
        raise MistakeError(f"{str(history)!r} is not a recording; give --map to read it as a CSV of jobs")
    return replay_csv(history, mapping)


def _print_decisions(decided: dict[str, Any], output: Output) -> None:
    if not output.for_people:
        print_data(decided, output)
        return
    trace = decided.pop("trace")
    actions = ", ".join(f"{count:,} {kind}" for kind, count in decided["actions"].items()) or "none"
    print_record({**decided, "actions": actions}, output)
    typer.echo(trace, nl=False)


def _is_recording(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error


def _price(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        price = float(value)
    except ValueError:
        price = math.nan
    if not name or not 0 <= price < math.inf:
        raise MistakeError(f"--price is {text!r}; give NAME=DOLLARS, such as m6i.large=0.08")
    return name, price


def _policy(texts: list[str]) -> dict[str, Any]:
    """`reclaim_hold=5m` and its like, read as the scenario's `policy:` would be."""
    found: dict[str, Any] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if not key or not value:
            raise MistakeError(f"--policy is {text!r}; give KEY=VALUE, such as reclaim_hold=5m")
        try:
            settings = read(PolicySettings, compose(f"{key}: {value}", "--policy"))
            found[key] = getattr(settings, key)
        except DocumentError as error:
            raise MistakeError(f"--policy is {text!r}: {str(error).removeprefix('--policy:1: ')}") from error
    return found
