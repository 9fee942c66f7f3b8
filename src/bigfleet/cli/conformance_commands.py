"""What `bigfleet-conformance` does: run the suite against an endpoint, list what it checks, explain one behaviour.

Judges nothing itself. Must not load the provider kit or the model: the suite shares no code with what it judges.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bigfleet.cli.commands import CommandError
from bigfleet.cli.ctl.places import check_folder, tell_written
from bigfleet.cli.flags import TlsCa, TlsCert, TlsKey
from bigfleet.cli.output import Output, OutputOption, print_data
from bigfleet.provider.conformance import console as screen
from bigfleet.provider.conformance.config import EXAMPLE, UsageError, load_config
from bigfleet.provider.conformance.registry import PROFILES, Behaviour, catalogue, find
from bigfleet.provider.conformance.report import CERTIFIED, report, verdict, write_reports
from bigfleet.provider.conformance.runner import run as run_suite

USAGE = 2


class SetupError(CommandError):
    """A run that could not begin; 1 is for providers that failed."""

    code = USAGE


def run(
    target: Annotated[
        str,
        typer.Option(help="Address of the running provider.", envvar="BIGFLEET_PROVIDER_TARGET", metavar="HOST:PORT"),
    ] = "",
    config: Annotated[
        Path | None, typer.Option(help="YAML, TOML or JSON file with the settings of the run.", metavar="FILE")
    ] = None,
    profile: Annotated[str, typer.Option(help=f"Comma list of {', '.join(PROFILES)}.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.json, junit.xml, badge.json.", metavar="DIR")
    ] = None,
    only: Annotated[str, typer.Option(help="Comma list of behaviour ids; the verdict cannot be CERTIFIED.")] = "",
    skip_baseline: Annotated[bool, typer.Option("--skip-baseline", help="Numbered behaviours only.")] = False,
    time_multiplier: Annotated[float | None, typer.Option(help="Stretch every time limit.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Behaviours at once.")] = None,
    slots: Annotated[int | None, typer.Option(help="Use at most this many machines.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random behaviours.")] = None,
    tls_ca: TlsCa = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_server_name: Annotated[str | None, typer.Option(help="Name expected in the provider's certificate.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run the behaviours the profiles require and say whether the provider is certified."""
    overrides: dict[str, Any] = {
        "target": target or None,
        "profiles": profile or None,
        "seed": seed,
        "timing": {"multiplier": time_multiplier},
        "pool": {"jobs": jobs, "slots": slots},
        "tls": {
            "ca": tls_ca or None,
            "cert": tls_cert or None,
            "key": tls_key or None,
            "server_name": tls_server_name,
        },
    }
    console = Console(stderr=not output.for_people)
    begun = time.monotonic()
    try:
        settings = load_config(config, overrides)
        check_folder("--out", out)
        chosen = frozenset(_known(name) for name in only.split(",") if name.strip())
        with screen.Watcher(console) as watcher:
            results = asyncio.run(run_suite(settings, watcher, chosen, not skip_baseline))
        took = time.monotonic() - begun
        if out is not None:
            write_reports(out, settings, results, took)
    except UsageError as error:
        raise SetupError(str(error)) from error
    if output.for_people:
        screen.print_summary(console, settings, results, took)
    else:
        print_data(report(settings, results, took), output)
    tell_written(out)
    raise typer.Exit(0 if verdict(results, settings.profiles) == CERTIFIED else 1)


def list_behaviours(
    profile: Annotated[str, typer.Option(help="Only what this profile requires.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List every behaviour with its title, area and profiles."""
    if profile and profile not in PROFILES:
        raise SetupError(f"profile {profile!r} is unknown; accepted are {', '.join(PROFILES)}")
    members = [b for b in catalogue() if not profile or profile in b.profiles]
    if output.for_people:
        screen.print_catalogue(Console(), members)
    else:
        print_data([_record(behaviour) for behaviour in members], output)


def explain(
    behaviour: Annotated[str, typer.Argument(help="An id such as B305 or a baseline name.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say in words what a behaviour demands and why."""
    found = find(behaviour)
    if found is None:
        raise SetupError(f"no behaviour {behaviour!r}; `bigfleet-conformance list` shows them all")
    if output.for_people:
        screen.print_explanation(Console(), found)
    else:
        print_data({**_record(found), "explanation": found.explanation, "presumes": found.capability.value}, output)


def config() -> None:
    """Print a commented configuration with every key, to start your own from."""
    typer.echo(EXAMPLE.read_text(encoding="utf-8"), nl=False)


def _record(behaviour: Behaviour) -> dict[str, Any]:
    return {
        "id": behaviour.id,
        "title": behaviour.title,
        "area": behaviour.area,
        "profiles": list(behaviour.profiles),
    }


def _known(name: str) -> str:
    found = find(name.strip())
    if found is None:
        raise UsageError(f"--only {name.strip()!r} names no behaviour; `bigfleet-conformance list` shows them all")
    return found.id
