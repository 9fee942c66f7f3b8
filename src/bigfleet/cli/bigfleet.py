"""`bigfleet`: runs the parts of a fleet, one subcommand each."""

import typer

from bigfleet.cli.commands import EXIT_CODES, Subcommand, VersionOption, run, table

SUBCOMMANDS: tuple[Subcommand, ...] = (
    Subcommand("demo", "bigfleet.cli.serve.demo", "Watch a small pretend fleet being run.", extra="shard"),
    Subcommand(
        "shard", "bigfleet.cli.serve.shard", "Run a part of the fleet: hold sessions, decide, act.", extra="shard"
    ),
    Subcommand(
        "all-in-one", "bigfleet.cli.serve.all_in_one", "Run a shard and a pretend fleet in one process.", extra="shard"
    ),
    Subcommand("coordinator", "bigfleet.cli.serve.coordinator", "Say who owns what, and move capacity between shards."),
    Subcommand("fake-provider", "bigfleet.cli.serve.fake_provider", "Serve a pretend fleet on this machine."),
    Subcommand("warm", "bigfleet.cli.serve.warm", "Compile the engine's kernels ahead, for images.", extra="shard"),
    Subcommand("version", "bigfleet.cli.version:version", "Print the installed version."),
)
ELSEWHERE = (
    "In each cluster run bigfleet-operator and bigfleet-unschedulable-pod-controller: the extra bigfleet[operator]. "
    "The extra bigfleet[coordinator] is for a coordinator over etcd; one over a file needs none."
)

# Plain help: the boxes of rich take longer to import than everything else here.
app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    cls=table("bigfleet", SUBCOMMANDS),
    epilog=f"{ELSEWHERE}\n\n{EXIT_CODES}",
)


@app.callback()
def bigfleet(version: VersionOption = False) -> None:
    """Decide, for a whole fleet of Kubernetes clusters, which machine serves which cluster."""


def main() -> None:
    run(app, prog="bigfleet")
