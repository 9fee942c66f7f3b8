"""`bigfleetctl`: the tool of the person who runs a fleet."""

import typer

from bigfleet.cli.commands import EXIT_CODES, Subcommand, VersionOption, run, table

SUBCOMMANDS = (
    Subcommand("needs", "bigfleet.cli.ctl.reading:needs", "What clusters want from a shard, and what they got."),
    Subcommand(
        "explain", "bigfleet.cli.ctl.explaining:explain", "Why a need got what it got, and what would satisfy it."
    ),
    Subcommand("machines", "bigfleet.cli.ctl.reading:machines", "A shard's machines: state, owner, what they serve."),
    Subcommand("story", "bigfleet.cli.ctl.reading:story", "The recent history of one machine."),
    Subcommand("actions", "bigfleet.cli.ctl.reading:actions", "What a shard did and does, newest first."),
    Subcommand("rails", "bigfleet.cli.ctl.rails:rails", "Read or flip a shard's kill switch and dry run."),
    Subcommand("snapshot", "bigfleet.cli.ctl.snapshot", "Save, verify and restore the coordinator's state."),
    Subcommand("certs", "bigfleet.cli.ctl.certs", "Make a development authority and role certificates."),
)

# Plain help: the boxes of rich take longer to import than everything else here.
app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, cls=table("bigfleetctl", SUBCOMMANDS), epilog=EXIT_CODES)


@app.callback()
def bigfleetctl(version: VersionOption = False) -> None:
    """Inspect and steer a BigFleet fleet."""


def main() -> None:
    run(app, prog="bigfleetctl")
