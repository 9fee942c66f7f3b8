"""`fauxctl`: the whole fleet in a laptop, on a virtual clock. Exit code 0 means that every expectation held."""

import typer

from bigfleet.cli.commands import EXIT_CODES, Subcommand, VersionOption, run, table

_COMMANDS = "bigfleet.cli.faux.scenarios"

SUBCOMMANDS = (
    Subcommand("list", f"{_COMMANDS}:list_scenarios", "Name the shipped scenarios.", extra="sim"),
    Subcommand("run", f"{_COMMANDS}:run", "Play a scenario and judge its expectations.", extra="sim"),
    Subcommand(
        "replay",
        "bigfleet.cli.faux.replay:replay",
        "Replay a demand history and say what it would have cost.",
        extra="sim",
    ),
    Subcommand("compare", f"{_COMMANDS}:compare", "Put two runs side by side, number by number.", extra="sim"),
    Subcommand("run-all", f"{_COMMANDS}:run_all", "Play all small shipped scenarios.", extra="sim"),
    Subcommand("check", f"{_COMMANDS}:check", "Compare scenarios' event logs with the goldens.", extra="sim"),
    Subcommand("bless", f"{_COMMANDS}:bless", "Record what a scenario does now as right.", extra="sim"),
    Subcommand("soak", "bigfleet.cli.faux.soak:soak", "Random demand for tens of thousands of cycles.", extra="sim"),
    Subcommand("settle", "bigfleet.cli.faux.settle:settle", "Steady demand must come to rest.", extra="sim"),
    Subcommand("schema", f"{_COMMANDS}:print_schema", "Print the JSON schema of scenario files.", extra="sim"),
    Subcommand("verify", f"{_COMMANDS}:check", "Another name of check.", extra="sim", hidden=True),
    Subcommand("record", f"{_COMMANDS}:bless", "Another name of bless.", extra="sim", hidden=True),
)

# Plain help: the boxes of rich take longer to import than everything else here.
app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, cls=table("fauxctl", SUBCOMMANDS), epilog=EXIT_CODES)


@app.callback()
def fauxctl(version: VersionOption = False) -> None:
    """Run a whole fleet on this machine, on a virtual clock: scenarios, what-ifs and your own history."""


def main() -> None:
    run(app, prog="fauxctl")


if __name__ == "__main__":
    main()
