"""`bigfleet fake-provider`: a provider whose machines do not exist, and `inject`, which makes things go wrong in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from bigfleet.cli.commands import CommandError, MistakeError
from bigfleet.cli.flags import LogFormatOption, LogLevel, Seconds, TlsCa, TlsCert, TlsKey, duration, off
from bigfleet.cli.output import Output, OutputOption, print_record
from bigfleet.provider.fake.catalogue import (
    LATENCIES,
    Catalogue,
    builtin_catalogue,
    load_catalogue,
    with_reference_faults,
)
from bigfleet.provider.fake.control import send_command
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.process import FakeProcess, FakeSettings
from bigfleet.provider.kit.core.core import Timeouts
from bigfleet.provider.kit.store import StoreError
from bigfleet.transport.certificates import TlsFiles
from bigfleet.transport.logs import LogFormat, configure
from bigfleet.transport.process import run_until_signal

app = typer.Typer(add_completion=False, no_args_is_help=False)


class Durations(StrEnum):
    """Named sets of durations."""

    INSTANT = "instant"
    QUICK = "quick"
    REALISTIC = "realistic"


@app.callback(invoke_without_command=True)
def fake_provider(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option("--listen", "--addr", help="gRPC address, loopback only.", metavar="HOST:PORT")
    ] = "127.0.0.1:9000",
    catalogue: Annotated[
        Path | None, typer.Option(help="YAML catalogue; without one a built-in fleet.", metavar="FILE")
    ] = None,
    state: Annotated[str, typer.Option(help="SQLite state file; without one nothing survives.", metavar="FILE")] = "",
    seed_count: Annotated[
        int, typer.Option("--seed-count", help="Scale the catalogue to this many slots; 0 keeps it.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of durations and misfortunes; 0 keeps the catalogue's.")] = 0,
    provider: Annotated[str, typer.Option(help="Name on every host reference; empty keeps the catalogue's.")] = "",
    durations: Annotated[
        Durations | None, typer.Option(help="How long transitions take, instead of the catalogue's own.")
    ] = None,
    transition_timeout: Annotated[
        Seconds | None,
        typer.Option(help="One timeout for all transitions, such as 30s.", metavar="DURATION", parser=duration),
    ] = None,
    reference_faults: Annotated[
        bool, typer.Option("--reference-faults", help="Fail work on fault-* clusters, for the conformance fault lane.")
    ] = False,
    control: Annotated[
        str, typer.Option(help="Address for `inject`, loopback or unix:/path; empty is off.", metavar="ADDR")
    ] = "",
    metrics_addr: Annotated[
        str, typer.Option(help="HTTP metrics and health; 0 or empty is off.", metavar="HOST:PORT")
    ] = "",
    use_fake_backend: Annotated[bool, typer.Option("--use-fake-backend", hidden=True)] = True,
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_ca: TlsCa = "",
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevel = "info",
) -> None:
    """Serve a pretend fleet on this machine, until interrupted.

    Speaks the whole provider contract and passes its conformance suite; nothing it sells exists.
    """
    if context.invoked_subcommand is not None:
        return
    configure(log_format=log_format, level=log_level)
    try:
        chosen = load_catalogue(catalogue) if catalogue is not None else builtin_catalogue()
        chosen = _adjusted(chosen, seed_count=seed_count, seed=seed, provider=provider, durations=durations)
        if reference_faults:
            chosen = with_reference_faults(chosen)
        if transition_timeout:
            every = float(transition_timeout)
            chosen = replace(chosen, timeouts=Timeouts(every, every, every, every))
        settings = FakeSettings(listen, chosen, state, control, off(metrics_addr), TlsFiles(tls_cert, tls_key, tls_ca))
        raise typer.Exit(run_until_signal(lambda stop: FakeProcess(settings).run(stop)))
    except (CatalogueError, StoreError) as error:
        raise CommandError(str(error)) from error


@app.command()
def inject(
    control: Annotated[str, typer.Option(help="Control address of the running fake.", metavar="ADDR")],
    do: Annotated[
        str,
        typer.Argument(
            help="status, lose-hosts, break, repair, interrupt, shrink-quota, restore-quota, close-zone, open-zone, "
            "fault-next, failure-rate, hold or release."
        ),
    ],
    fields: Annotated[
        list[str] | None, typer.Argument(help="Fields of the command, such as zone=eu-west-1a count=2.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make something happen in a running fake: `inject --control 127.0.0.1:9001 lose-hosts zone=eu-west-1a count=2`."""
    document: dict[str, Any] = {"do": do}
    for text in fields or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise MistakeError(f"field {text!r} is not name=value")
        document[name] = yaml.safe_load(value) if value else ""
    answer = asyncio.run(send_command(control, document))
    if not answer.pop("ok"):
        raise CommandError(str(answer.get("error", "the fake gave no reason")))
    print_record(answer, output)


def _adjusted(
    catalogue: Catalogue, *, seed_count: int, seed: int, provider: str, durations: Durations | None
) -> Catalogue:
    if seed_count:
        catalogue = catalogue.with_slots(seed_count)
    if seed:
        catalogue = replace(catalogue, seed=seed)
    if provider:
        catalogue = replace(catalogue, provider=provider)
    if durations is not None:
        catalogue = replace(catalogue, latencies=LATENCIES[durations.value])
    return catalogue
