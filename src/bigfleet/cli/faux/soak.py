"""`fauxctl soak`: random demand for tens of thousands of cycles; nothing may leak, stick or grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.ctl.places import check_file, tell_written
from bigfleet.cli.faux.scenarios import WithinOption, timed
from bigfleet.cli.output import Output, OutputOption, print_record
from bigfleet.cli.progress import simulation_progress, warm_up
from bigfleet.engine.engine import Engine
from bigfleet.sim.soak.protocol import run_full_protocol
from bigfleet.sim.soak.soak import SoakConfig, run_soak


def soak(
    machines: Annotated[int, typer.Option(help="Machines; a third idle, the rest to buy.", min=3)] = 3_000,
    cycles: Annotated[int, typer.Option(help="Cycles of ten simulated seconds.", min=10)] = 10_000,
    clusters: Annotated[int, typer.Option(help="Clusters whose demand changes.", min=1)] = 30,
    seed: Annotated[int, typer.Option(help="Seed of the demand.", min=0)] = 0xCAFEBABE,
    full_protocol: Annotated[
        bool, typer.Option("--full-protocol", help="With sessions, links and the kit's provider in between (slower).")
    ] = False,
    within: WithinOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report here too.", metavar="FILE")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Soak the shard core and the engine in random demand; nothing may leak, stick or grow.

    Prints what was done and how fast; the exit code is 0 when nothing leaked, stuck or grew (and --within was kept).
    """
    idle = machines // 3
    config = SoakConfig(cycles=cycles, idle=idle, speculative=machines - idle, clusters=clusters, seed=seed)
    check_file("--json", json_file)
    warm_up()
    with simulation_progress(f"soak of {cycles:,} cycles") as progress:
        report = run_full_protocol(config, progress) if full_protocol else run_soak(config, Engine, progress)
    record = {**report.record(), **timed(report.seconds, within)}
    if json_file is not None:
        json_file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        tell_written(json_file)
    print_record(record, output)
    raise typer.Exit(0 if report.passed and record.get("in_time", True) else 1)
