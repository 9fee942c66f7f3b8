"""`bigfleetctl clusters forget`: a shard lets go of the machines of a cluster that was deleted for good."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import grpc
import typer

from bigfleet.cli.commands import CommandError, MistakeError
from bigfleet.cli.ctl.shard_calls import Caller, at, shard_command
from bigfleet.cli.flags import TEN_SECONDS
from bigfleet.cli.output import print_record
from bigfleet.wire import shard_pb2, shard_pb2_grpc


@shard_command(TEN_SECONDS)
def forget(
    caller: Caller,
    cluster: Annotated[str, typer.Argument(help="The cluster's id.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the shard's log and audit log.")] = "",
) -> None:
    """Let go of all machines of a cluster that was deleted for good.

    A cluster that is away keeps its machines, and they are paid for, until it comes back or is forgotten. What is bound
    to it at this shard is shown first. Then its machines are drained at their providers, at once and without the cap on
    reclaims, and its demand is dropped. Refused while its operator is connected. Other formats than a table only tell,
    unless --yes is given.

        bigfleetctl clusters forget prod-1 --reason "decommissioned, ticket 4711"
    """
    found = caller.ask(lambda to: _asked(to, shard_pb2.ForgetClusterRequest(cluster_id=cluster)))
    has = f"{found.machines} machine{'' if found.machines == 1 else 's'}, ${found.dollars_per_hour:.3f}/h"
    people = caller.output.for_people
    if people:
        away = found.away_since_unix_nanos
        typer.echo(f"cluster {cluster} has {has} at this shard; its operator is away {_since(away)}")
    if not yes and people and not found.forgetting:
        if not sys.stdin.isatty():
            raise MistakeError(f"nobody is there to confirm it; give --yes to let go of cluster {cluster}: {has}")
        if not typer.confirm("Was it deleted for good? All of these machines are drained"):
            raise CommandError("nothing was changed")
    if yes or people:
        confirmed = shard_pb2.ForgetClusterRequest(cluster_id=cluster, confirm=True, reason=reason)
        found = caller.ask(lambda to: _asked(to, confirmed))
    if not people:
        print_record(_record(cluster, found), caller.output)
    elif not found.forgetting:
        typer.echo(f"forgotten cluster {cluster}")
    else:
        held = "; the rails are on: they are drained once they are off (`bigfleetctl rails`)" if found.held else ""
        typer.echo(f"forgetting cluster {cluster}: its machines are let go of{held}")


async def _asked(to: grpc.aio.Channel, request: shard_pb2.ForgetClusterRequest) -> shard_pb2.ForgetClusterResponse:
    return await shard_pb2_grpc.ShardAdminStub(to).ForgetCluster(request)


def _since(nanos: int) -> str:
    return f"since {at(nanos)}" if nanos else "since this shard started, or longer"


def _record(cluster: str, found: shard_pb2.ForgetClusterResponse) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "machines": found.machines,
        "dollars_per_hour": found.dollars_per_hour,
        "away_since": at(found.away_since_unix_nanos) if found.away_since_unix_nanos else "",
        "forgetting": found.forgetting,
        "held": found.held,
    }
