"""`bigfleetctl rails`: a shard's kill switch and dry run, read and flipped; what is set survives restarts."""

from __future__ import annotations

from typing import Annotated, Any

import grpc
import typer

from bigfleet.cli.commands import MistakeError
from bigfleet.cli.ctl.shard_calls import Caller, at, shard_command
from bigfleet.cli.flags import TEN_SECONDS
from bigfleet.cli.output import print_record
from bigfleet.wire import capacity_pb2, shard_pb2_grpc


@shard_command(TEN_SECONDS)
def rails(
    caller: Caller,
    pause: Annotated[bool, typer.Option("--pause", help="Decide and report, execute nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As --pause, and log what would have been done.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Act again.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever finds it switched on.")] = "",
) -> None:
    """Show the rails of a shard, or flip them.

    What is set survives a restart of the shard.

        bigfleetctl rails --pause --reason "provider incident 4711"
        bigfleetctl rails --resume
    """
    if pause + dry_run + resume > 1:
        raise MistakeError("give one of --pause, --dry-run and --resume")
    request = capacity_pb2.SetRailsRequest()
    if pause or dry_run or resume:
        request.rails.CopyFrom(capacity_pb2.Rails(actuation_paused=pause, dry_run=dry_run, reason=reason))
    elif reason:
        raise MistakeError("--reason goes with --pause, --dry-run or --resume")
    print_record(caller.ask(lambda to: _set(to, request)), caller.output)


async def _set(to: grpc.aio.Channel, request: capacity_pb2.SetRailsRequest) -> dict[str, Any]:
    effective = (await shard_pb2_grpc.ShardAdminStub(to).SetRails(request)).effective
    return {
        "paused": effective.actuation_paused,
        "dry_run": effective.dry_run,
        "reason": effective.reason,
        "set_by": effective.set_by,
        "set_at": at(effective.set_at_unix_nanos) if effective.set_at_unix_nanos else "",
    }
