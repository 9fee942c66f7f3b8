"""`bigfleetctl`: the tool of the person who runs a fleet."""

import typer

from bigfleet.cli.commands import Subcommand, run

SUBCOMMANDS = (
    Subcommand("needs", "bigfleet.cli.ctl.reading:needs_app", "What clusters want from a shard, and what they got."),
    Subcommand(
        "machines", "bigfleet.cli.ctl.reading:machines_app", "A shard's machines: state, owner, what they serve."
    ),
    Subcommand("actions", "bigfleet.cli.ctl.reading:actions_app", "What a shard did and does, newest first."),
    Subcommand("explain", "bigfleet.cli.ctl.explaining:app", "Why a need got what it got, and what would satisfy it."),
    Subcommand("story", "bigfleet.cli.ctl.reading:story_app", "The recent history of one machine."),
    Subcommand("rails", "bigfleet.cli.ctl.rails:app", "Read or flip a shard's kill switch and dry run."),
    Subcommand("snapshot", "bigfleet.cli.snapshot", "Save, verify and restore the coordinator's state."),
    Subcommand("certs", "bigfleet.cli.ctl.certs", "Make a development authority and role certificates."),
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bigfleetctl() -> None:
    """Inspect and steer a BigFleet fleet."""


def main() -> None:
    run(app, SUBCOMMANDS, prog="bigfleetctl")
