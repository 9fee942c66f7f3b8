"""`bigfleet`: runs the parts of a fleet, one subcommand each."""

from importlib.metadata import version as installed_version

import typer

from bigfleet.cli.commands import Subcommand, run

SUBCOMMANDS: tuple[Subcommand, ...] = (
    Subcommand(
        "all-in-one", "bigfleet.cli.serve.all_in_one", "Run a shard and a pretend fleet in one process.", extra="shard"
    ),
    Subcommand("coordinator", "bigfleet.cli.coordinator", "Say who owns what, and move capacity between shards."),
    Subcommand("demo", "bigfleet.cli.serve.demo", "Watch a small pretend fleet being run.", extra="shard"),
    Subcommand("fake-provider", "bigfleet.cli.serve.fake_provider", "Serve a pretend fleet on this machine."),
    Subcommand(
        "shard", "bigfleet.cli.serve.shard", "Run a part of the fleet: hold sessions, decide, act.", extra="shard"
    ),
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bigfleet() -> None:
    """Decide, for a whole fleet of Kubernetes clusters, which machine serves which cluster."""


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(installed_version("bigfleet"))


def main() -> None:
    run(app, SUBCOMMANDS, prog="bigfleet")
