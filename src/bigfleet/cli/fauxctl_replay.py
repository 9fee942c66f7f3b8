"""`fauxctl replay`: your own past, decided by BigFleet: a CSV of jobs, or what a shard recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from bigfleet.cli.commands import CommandError
from bigfleet.cli.fauxctl import OutOption, print_summary, simulation_progress, tell_verdicts
from bigfleet.cli.output import Output, OutputOption, print_record
from bigfleet.engine.engine import Engine
from bigfleet.shard.recorder import MAGIC, RecordingError
from bigfleet.sim import library
from bigfleet.sim.document import DocumentError, compose, read
from bigfleet.sim.document_text import to_yaml
from bigfleet.sim.files import write_run
from bigfleet.sim.recording import decide_again, scenario_of
from bigfleet.sim.replay import replay_csv, what_if
from bigfleet.sim.scenario import PolicySettings, Sharding


def replay(
    history: Annotated[Path, typer.Argument(help="A CSV of jobs, or a shard's --record file.", metavar="FILE")],
    mapping: Annotated[
        Path | None, typer.Option("--map", help="How to read the CSV, and the fleet to buy from.", metavar="FILE")
    ] = None,
    price: Annotated[
        list[str] | None, typer.Option(help="What if an offer or instance type cost this much.", metavar="NAME=DOLLARS")
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="What if the policy were this.", metavar="KEY=VALUE")] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Also run one autoscaler per cluster and compare.")
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Recording only: decide every recorded step again, nothing more.")
    ] = False,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", help="Write the scenario here and do not run it.", metavar="FILE")
    ] = None,
    out: OutOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replay a demand history and say what it would have cost."""
    prices = dict(_price(each) for each in price or [])
    changes = _policy(policy or [])
    if decisions and changes:
        raise CommandError("--decisions decides under the recorded policy; leave out --policy or --decisions")
    try:
        if decisions:
            print_record(dataclasses.asdict(decide_again(history, Engine, prices=prices)), output)
            return
        if _is_recording(history):
            chosen = scenario_of(history)
        elif mapping is not None:
            chosen = replay_csv(history, mapping)
        else:
            raise CommandError(f"{history} is not a recording; give --map to read it as a CSV of jobs")
        chosen = what_if(chosen, prices=prices, changes=changes)
    except (DocumentError, RecordingError) as error:
        raise CommandError(str(error)) from error
    if baseline:
        chosen = chosen.with_(baseline=Sharding.PER_CLUSTER)
    if scenario is not None:
        scenario.write_text(to_yaml(chosen), encoding="utf-8")
        return
    with simulation_progress(chosen.name) as progress:
        finished = library.play(chosen, progress=progress)
    if out is not None:
        write_run(finished, out)
    print_summary(finished.summary, output)
    tell_verdicts(finished)
    raise typer.Exit(0 if finished.passed else 1)


def _is_recording(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error


def _price(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise CommandError(f"--price is {text!r}; give NAME=DOLLARS, such as m6i.large=0.08") from None


def _policy(texts: list[str]) -> dict[str, Any]:
    """`reclaim_hold=5m` and its like, read as the scenario's `policy:` would be."""
    if not texts:
        return {}
    pairs = [text.partition("=")[::2] for text in texts]
    document = "\n".join(f"{key}: {value}" for key, value in pairs)
    try:
        given = read(PolicySettings, compose(document, "--policy"))
    except DocumentError as error:
        raise CommandError(str(error)) from error
    named = set(yaml.safe_load(document))
    return {each.name: getattr(given, each.name) for each in dataclasses.fields(given) if each.name in named}
