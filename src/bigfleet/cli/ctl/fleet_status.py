"""`bigfleetctl status`, `pause`, `resume` and `dry-run`: the fleet on one screen, and its switches."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from bigfleet.cli.ctl.coordinator_calls import Coordinators, coordinator_command
from bigfleet.cli.ctl.shard_calls import as_json, at
from bigfleet.cli.output import print_record, print_records
from bigfleet.wire import capacity_pb2
from bigfleet.wire import coordinator_pb2 as pb

OneShard = Annotated[str, typer.Option("--shard-id", help="Only this shard; else the whole fleet.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever finds it switched on.")]


@coordinator_command(watchable=True)
def status(coordinators: Coordinators) -> None:
    """Show the fleet: leader, term, what is asked of shards, totals, and every shard with the age of its report."""
    shards = coordinators.ask("ListShards", pb.ListShardsRequest()).shards
    facts = {"leader": coordinators.leader, "term": coordinators.term, "pending_instructions": coordinators.pending}
    told = coordinators.ask("ListShardReports", pb.ListShardReportsRequest()).reports
    clusters = coordinators.ask("ListClusters", pb.ListClustersRequest()).clusters
    rails = coordinators.ask("SetRails", capacity_pb2.SetRailsRequest()).effective
    reports = {each.shard_id: each for each in told}
    totals = {
        "shards": len(shards),
        "clusters": len(clusters),
        "machines": sum(each.summary.total_machines for each in told),
        "free": sum(each.summary.free_machines for each in told),
        "shortfalls": sum(len(each.shortfalls) for each in told),
    }
    rows = [_row(each, reports.get(each.shard_id), time.time_ns()) for each in shards]
    if coordinators.output.for_people:
        print_record({**facts, **totals, "rails": _rails_text(rails)}, coordinators.output)
        typer.echo("")
        print_records(rows, coordinators.output)
    else:
        listed = [as_json(each) for each in shards]
        print_record({**facts, **totals, "rails": as_json(rails), "listed": listed}, coordinators.output)


@coordinator_command()
def pause(coordinators: Coordinators, shard_id: OneShard = "", reason: Reason = "") -> None:
    """Stop the fleet, or one shard, from doing anything to machines; it goes on deciding and reporting."""
    _switch(coordinators, shard_id, capacity_pb2.Rails(actuation_paused=True, reason=reason))


@coordinator_command()
def resume(coordinators: Coordinators, shard_id: OneShard = "") -> None:
    """Let the fleet, or one shard, act again."""
    _switch(coordinators, shard_id, capacity_pb2.Rails())


@coordinator_command()
def dry_run(coordinators: Coordinators, shard_id: OneShard = "", reason: Reason = "") -> None:
    """As `pause`, and shards log what they would have done."""
    _switch(coordinators, shard_id, capacity_pb2.Rails(dry_run=True, reason=reason))


def _switch(coordinators: Coordinators, shard_id: str, rails: capacity_pb2.Rails) -> None:
    request = capacity_pb2.SetRailsRequest(shard_id=shard_id, rails=rails)
    effective = coordinators.ask("SetRails", request).effective
    who = f"shard {shard_id}" if shard_id else "the fleet"
    coordinators.done(f"{who}: {_rails_text(effective)}", shard=shard_id, **_rails(effective))


def _rails(effective: capacity_pb2.Rails) -> dict[str, Any]:
    return {
        "paused": effective.actuation_paused,
        "dry_run": effective.dry_run,
        "reason": effective.reason,
        "set_by": effective.set_by,
    }


def _rails_text(effective: capacity_pb2.Rails) -> str:
    how = "paused" if effective.actuation_paused else "dry run" if effective.dry_run else "acting"
    why = f" ({effective.reason})" if effective.reason else ""
    since = f", by {effective.set_by} at {at(effective.set_at_unix_nanos)}" if effective.set_at_unix_nanos else ""
    return f"{how}{why}{since}"


def _row(shard: pb.ShardRegistryEntry, report: pb.ShardReportSnapshot | None, now: int) -> dict[str, Any]:
    age = (now - shard.last_heartbeat_unix_ns) / 1e9
    return {
        "SHARD": shard.shard_id,
        "AGE": f"{max(0.0, age):.0f} s" if shard.last_heartbeat_unix_ns else "not heard",
        "MACHINES": report.summary.total_machines if report is not None else None,
        "FREE": report.summary.free_machines if report is not None else None,
        "SHORTFALLS": len(report.shortfalls) if report is not None else None,
        "ADDRESS": shard.address,
    }
