"""`fauxctl settle`: steady demand of every family must come to rest, and stay there."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.ctl.places import check_file, tell_written
from bigfleet.cli.output import Output, OutputOption, print_records
from bigfleet.cli.progress import simulation_progress, warm_up
from bigfleet.sim.soak.fixed_points import FAMILIES, QUIET_CYCLES, come_to_rest


def settle(
    pods: Annotated[int, typer.Option(help="About so many pods in each family.", min=4)] = 300,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed of the sizes drawn, 1 unless told; may be given again.", min=0)
    ] = None,
    family: Annotated[list[str] | None, typer.Option(help="Only this one; may be given again.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here too.", metavar="FILE")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play steady demand of every family for two payback times, and then 400 cycles in which nothing may happen.

    The exit code is 0 when every pod runs and no cycle of the last 400 decided anything.
    """
    check_file("--json", json_file)
    unknown = [name for name in family or () if name not in FAMILIES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not a family; {', '.join(FAMILIES)} are", param_hint="--family")
    names, seeds = family or list(FAMILIES), seed or [1]
    runs = [(name, each) for name in names for each in seeds]
    warm_up()
    found = []
    with simulation_progress(f"{len(names)} families at rest") as progress:
        for number, (name, each) in enumerate(runs):
            found.append(come_to_rest(name, pods, each))
            progress((number + 1) / len(runs))
    rows = [{**asdict(rest), "at_rest": rest.at_rest} for rest in found]
    if json_file is not None:
        record = {"pods": pods, "seeds": seeds, "quiet_cycles": QUIET_CYCLES, "families": rows}
        json_file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        tell_written(json_file)
    print_records(rows, output)
    raise typer.Exit(0 if all(rest.at_rest for rest in found) else 1)
