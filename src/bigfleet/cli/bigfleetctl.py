"""`bigfleetctl`: the tool of the person who runs a fleet."""

from typing import Annotated, Any

import typer

from bigfleet.cli.commands import ASKING_CODES, EXIT_CODES, Subcommand, VersionOption, run, table

_LISTS, _REGISTRY, _FLEET = "bigfleet.cli.ctl.fleet_lists", "bigfleet.cli.ctl.registry", "bigfleet.cli.ctl.fleet_status"

SUBCOMMANDS = (
    Subcommand("status", f"{_FLEET}:status", "The fleet on one screen: leader, term, shards, totals."),
    Subcommand("shards", f"{_LISTS}:shards", "Shards of the fleet: list, remove."),
    Subcommand("domains", f"{_LISTS}:domains", "Who owns which topology domain: list, assign, unassign, move."),
    Subcommand(
        "clusters", f"{_LISTS}:clusters", "Which shard a cluster belongs to: list, move; forget one that was deleted."
    ),
    Subcommand("quotas", f"{_REGISTRY}:quotas", "Speculative slots per provider and shard: list, set."),
    Subcommand("providers", f"{_REGISTRY}:providers", "Providers that shards dial: list, set, remove."),
    Subcommand("reports", f"{_LISTS}:reports", "What shards told the coordinator last: list."),
    Subcommand("pause", f"{_FLEET}:pause", "Stop the fleet, or one shard, from acting."),
    Subcommand("resume", f"{_FLEET}:resume", "Let the fleet, or one shard, act again."),
    Subcommand("dry-run", f"{_FLEET}:dry_run", "Pause, and log what would have been done."),
    Subcommand("needs", "bigfleet.cli.ctl.reading:needs", "What clusters want from a shard, and what they got."),
    Subcommand(
        "explain", "bigfleet.cli.ctl.explaining:explain", "Why a need got what it got, and what would satisfy it."
    ),
    Subcommand(
        "machines",
        "bigfleet.cli.ctl.reading:machines",
        "Machines a shard knows: state, whether they are its own, what they serve.",
    ),
    Subcommand("story", "bigfleet.cli.ctl.reading:story", "The recent history of one machine."),
    Subcommand("actions", "bigfleet.cli.ctl.reading:actions", "What a shard did and does, newest first."),
    Subcommand("rails", "bigfleet.cli.ctl.rails:rails", "Read or flip a shard's kill switch and dry run."),
    Subcommand("snapshot", "bigfleet.cli.ctl.snapshot", "Save, verify and restore the coordinator's state."),
    Subcommand("certs", "bigfleet.cli.ctl.certs", "Make a development authority and role certificates."),
    # The reference's flat names.
    Subcommand("list-shards", f"{_LISTS}:list_shards", "As `shards list`.", hidden=True),
    Subcommand("list-domain-assignments", f"{_LISTS}:list_domains", "As `domains list`.", hidden=True),
    Subcommand("assign-domain", f"{_LISTS}:assign_domain", "As `domains assign`.", hidden=True),
    Subcommand("unassign-domain", f"{_LISTS}:unassign_domain", "As `domains unassign`.", hidden=True),
    Subcommand("remove-shard", f"{_LISTS}:remove_shard", "As `shards remove`.", hidden=True),
    Subcommand("list-quotas", f"{_REGISTRY}:list_quotas", "As `quotas list`.", hidden=True),
)

# Plain help: the boxes of rich take longer to import than everything else here.
app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    cls=table("bigfleetctl", SUBCOMMANDS),
    epilog=f"{EXIT_CODES} {ASKING_CODES}",
)


class _Everywhere(dict[str, Any]):
    """Flags given before the command, as defaults of whatever command and verb follow."""

    def get(self, name: str, default: Any = None) -> Any:
        verbs = ("list", "remove", "assign", "unassign", "move", "forget", "set", "save", "verify", "restore")
        return _Everywhere(self) if name in verbs else super().get(name, default)


class _Root(_Everywhere):
    def get(self, name: str, default: Any = None) -> Any:
        return _Everywhere(self) if any(name == row.name for row in SUBCOMMANDS) else None


@app.callback()
def bigfleetctl(
    context: typer.Context,
    coordinator: Annotated[str, typer.Option(help="Any replica of the coordinator.", metavar="HOST:PORT")] = "",
    shard: Annotated[str, typer.Option(help="The shard, for what is asked of one.", metavar="HOST:PORT")] = "",
    timeout: Annotated[str, typer.Option(help="How long a question may take.", metavar="DURATION")] = "",
    tls_cert: Annotated[str, typer.Option(help="Own certificate chain, PEM.", metavar="FILE")] = "",
    tls_key: Annotated[str, typer.Option(help="Key of --tls-cert, PEM.", metavar="FILE")] = "",
    tls_ca: Annotated[str, typer.Option(help="Authority that peers are verified against, PEM.", metavar="FILE")] = "",
    version: VersionOption = False,
) -> None:
    """Inspect and steer a BigFleet fleet. The flags here may also follow the command."""
    given = {"coordinator": coordinator, "shard": shard, "timeout": timeout}
    given |= {"tls_cert": tls_cert, "tls_key": tls_key, "tls_ca": tls_ca}
    context.default_map = _Root({name: value for name, value in given.items() if value})


def main() -> None:
    run(app, prog="bigfleetctl")
