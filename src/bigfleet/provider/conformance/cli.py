"""`bigfleet-conformance`: run the suite against an endpoint, list what it checks, explain one behaviour.

Exit codes: 0 certified, 1 failed or incomplete, 2 usage or set-up error.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bigfleet.provider.conformance import console as screen
from bigfleet.provider.conformance.config import UsageError, load_config
from bigfleet.provider.conformance.registry import PROFILES, catalogue, find
from bigfleet.provider.conformance.report import CERTIFIED, report, verdict, write_reports
from bigfleet.provider.conformance.runner import run as run_suite

EXAMPLE = Path(__file__).with_name("example.yaml")

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Certify a BigFleet capacity provider over gRPC.")


@app.command()
def run(
    target: Annotated[
        str, typer.Option(help="HOST:PORT of the running provider.", envvar="BIGFLEET_PROVIDER_TARGET")
    ] = "",
    config: Annotated[Path | None, typer.Option(help="YAML, TOML or JSON file with the settings of the run.")] = None,
    profile: Annotated[str, typer.Option(help=f"Comma list of {', '.join(PROFILES)}.")] = "",
    out: Annotated[Path | None, typer.Option(help="Directory for report.json, junit.xml, badge.json.")] = None,
    only: Annotated[str, typer.Option(help="Comma list of behaviour ids; the verdict cannot be CERTIFIED.")] = "",
    skip_baseline: Annotated[bool, typer.Option("--skip-baseline", help="Numbered behaviours only.")] = False,
    time_multiplier: Annotated[float | None, typer.Option(help="Stretch every time limit.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Behaviours at once.")] = None,
    slots: Annotated[int | None, typer.Option(help="Use at most this many machines.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random behaviours.")] = None,
    tls_ca: Annotated[str | None, typer.Option(help="CA that signed the provider's certificate.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Client certificate for mTLS.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Key of the client certificate.")] = None,
    tls_server_name: Annotated[str | None, typer.Option(help="Name expected in the provider's certificate.")] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """Run the behaviours the profiles require and say whether the provider is certified."""
    overrides: dict[str, Any] = {
        "target": target or None,
        "profiles": profile or None,
        "seed": seed,
        "timing": {"multiplier": time_multiplier},
        "pool": {"jobs": jobs, "slots": slots},
        "tls": {"ca": tls_ca, "cert": tls_cert, "key": tls_key, "server_name": tls_server_name},
    }
    console = Console(stderr=output == "json")
    begun = time.monotonic()
    try:
        if output not in ("text", "json"):
            raise UsageError(f"--output {output!r} is not accepted; give text or json")
        settings = load_config(config, overrides)
        chosen = frozenset(_known(name) for name in only.split(",") if name.strip())
        with screen.Watcher(console) as watcher:
            results = asyncio.run(run_suite(settings, watcher, chosen, not skip_baseline))
        took = time.monotonic() - begun
        if out is not None:
            write_reports(out, settings, results, took)
    except UsageError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    if output == "json":
        typer.echo(json.dumps(report(settings, results, took), indent=2, ensure_ascii=False))
    else:
        screen.print_summary(console, settings, results, took)
    raise typer.Exit(0 if verdict(results, settings.profiles) == CERTIFIED else 1)


@app.command("list")
def list_behaviours(
    profile: Annotated[str, typer.Option(help="Only what this profile requires.")] = "",
    output: Annotated[str, typer.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """List every behaviour with its title, area and profiles."""
    if profile and profile not in PROFILES:
        Console(stderr=True).print(f"error: profile {profile!r} is unknown; accepted are {', '.join(PROFILES)}")
        raise typer.Exit(2)
    members = [b for b in catalogue() if not profile or profile in b.profiles]
    if output == "json":
        rows = [{"id": b.id, "title": b.title, "area": b.area, "profiles": list(b.profiles)} for b in members]
        typer.echo(json.dumps(rows, indent=2))
    else:
        screen.print_catalogue(Console(), members)


@app.command()
def explain(behaviour: Annotated[str, typer.Argument(help="An id such as B305 or a baseline name.")]) -> None:
    """Say in words what a behaviour demands and why."""
    found = find(behaviour)
    if found is None:
        Console(stderr=True).print(f"error: no behaviour {behaviour!r}; `bigfleet-conformance list` shows them all")
        raise typer.Exit(2)
    screen.print_explanation(Console(), found)


@app.command()
def config() -> None:
    """Print a commented configuration with every key, to start your own from."""
    typer.echo(EXAMPLE.read_text(encoding="utf-8"), nl=False)


def main() -> None:
    """Entry point."""
    app()


def _known(name: str) -> str:
    found = find(name.strip())
    if found is None:
        raise UsageError(f"--only {name.strip()!r} names no behaviour; `bigfleet-conformance list` shows them all")
    return found.id


if __name__ == "__main__":
    main()
