"""`bigfleet-conformance`: certify a provider over gRPC. Exit codes: 0 certified, 1 failed or incomplete, 2 usage."""

import typer

from bigfleet.cli.commands import Subcommand, VersionOption, run, table

_COMMANDS = "bigfleet.cli.conformance_commands"
EXIT_CODES = "Exit codes: 0 certified; 1 failed or incomplete; 2 a mistake in the command line or the set-up."

SUBCOMMANDS = (
    Subcommand("run", f"{_COMMANDS}:run", "Run the suite against a provider and say whether it is certified."),
    Subcommand("list", f"{_COMMANDS}:list_behaviours", "List every behaviour with its title, area and profiles."),
    Subcommand("explain", f"{_COMMANDS}:explain", "Say in words what a behaviour demands and why."),
    Subcommand("config", f"{_COMMANDS}:config", "Print a commented configuration to start your own from."),
)

# Plain help: the boxes of rich take longer to import than everything else here.
app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, cls=table("bigfleet-conformance", SUBCOMMANDS), epilog=EXIT_CODES
)


@app.callback()
def conformance(version: VersionOption = False) -> None:
    """Certify a BigFleet capacity provider over gRPC."""


def main() -> None:
    run(app, prog="bigfleet-conformance")


if __name__ == "__main__":
    main()
