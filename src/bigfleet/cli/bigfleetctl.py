"""`bigfleetctl`: the tool of the person who runs a fleet."""

import typer

from bigfleet.cli.commands import Subcommand, run

SUBCOMMANDS = (Subcommand("certs", "bigfleet.cli.certs", "Make a development authority and role certificates."),)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bigfleetctl() -> None:
    """Inspect and steer a BigFleet fleet."""


def main() -> None:
    run(app, SUBCOMMANDS, prog="bigfleetctl")
