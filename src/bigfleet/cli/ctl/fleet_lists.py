"""`bigfleetctl shards`, `domains`, `clusters` and `reports`: what the coordinator knows, and who owns what.

The reference's flat names (`list-shards`, `assign-domain`, ...) are the same functions.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bigfleet.cli import words
from bigfleet.cli.ctl.coordinator_calls import Coordinators, coordinator_command
from bigfleet.cli.ctl.forget import forget
from bigfleet.cli.ctl.shard_calls import at
from bigfleet.wire import coordinator_pb2 as pb

shards = typer.Typer(add_completion=False, no_args_is_help=True, help="Shards of the fleet.")
domains = typer.Typer(add_completion=False, no_args_is_help=True, help="Topology domains and the shards that own them.")
clusters = typer.Typer(add_completion=False, no_args_is_help=True, help="Clusters and the shards they belong to.")
reports = typer.Typer(add_completion=False, no_args_is_help=True, help="What shards told the coordinator last.")

Key = Annotated[str, typer.Option("--key", "--topology-key", help="Label key, such as topology.kubernetes.io/zone.")]
Value = Annotated[str, typer.Option("--value", "--topology-value", help="The label's value.")]
Owner = Annotated[str, typer.Option("--shard", "--shard-id", help="The shard's id.")]
OnlyShard = Annotated[str, typer.Option("--shard", "--shard-id", help="Only this shard's.")]
To = Annotated[str, typer.Option("--to", "--shard", "--shard-id", help="The shard it goes to.")]


@shards.command("list")
@coordinator_command(watchable=True)
def list_shards(coordinators: Coordinators) -> None:
    """List registered shards with the time of their last report."""
    found = coordinators.ask("ListShards", pb.ListShardsRequest())
    coordinators.show(found.shards, _shard_row)


@shards.command("remove")
@coordinator_command()
def remove_shard(
    coordinators: Coordinators,
    name: Annotated[str, typer.Argument(metavar="SHARD", help="The shard's id.")] = "",
    shard_id: Owner = "",
) -> None:
    """Forget a shard that was stopped for good, with everything it owned: `bigfleetctl shards remove shard-3`."""
    shard = name or _given("SHARD", shard_id)
    coordinators.ask("RemoveShard", pb.RemoveShardRequest(shard_id=shard))
    coordinators.done(f"removed shard {shard}", removed=shard)


@domains.command("list")
@coordinator_command(watchable=True)
def list_domains(coordinators: Coordinators, shard_id: OnlyShard = "") -> None:
    """List assigned domains by shard."""
    found = coordinators.ask("ListDomainAssignments", pb.ListDomainAssignmentsRequest())
    coordinators.show([each for each in found.assignments if shard_id in ("", each.shard_id)], _domain_row)


@domains.command("assign")
@coordinator_command()
def assign_domain(coordinators: Coordinators, key: Key, value: Value, shard_id: To) -> None:
    """Give a domain that nobody owns to a shard."""
    request = pb.AssignDomainRequest(topology_key=key, topology_value=value, shard_id=shard_id)
    coordinators.ask("AssignDomain", request)
    coordinators.done(f"assigned {key}={value} → {shard_id}", key=key, value=value, shard=shard_id)


@domains.command("unassign")
@coordinator_command()
def unassign_domain(coordinators: Coordinators, key: Key, value: Value) -> None:
    """Take a domain from its owner; its machines fall to the next key or the default owner."""
    coordinators.ask("UnassignDomain", pb.UnassignDomainRequest(topology_key=key, topology_value=value))
    coordinators.done(f"unassigned {key}={value}", key=key, value=value)


@domains.command("move")
@coordinator_command()
def move_domain(coordinators: Coordinators, key: Key, value: Value, to: To) -> None:
    """Give a domain to another shard in one step; nobody acts on it until its owner has confirmed."""
    request = pb.MoveDomainRequest(topology_key=key, topology_value=value, to_shard_id=to)
    before = coordinators.ask("MoveDomain", request).from_shard_id
    origin = f" from {before}" if before else ""
    coordinators.done(f"moved {key}={value}{origin} → {to}", key=key, value=value, **{"from": before, "to": to})


@clusters.command("list")
@coordinator_command(watchable=True)
def list_clusters(coordinators: Coordinators, shard_id: OnlyShard = "") -> None:
    """List clusters, the shard each belongs to, and who reports it.

    EVICTIONS LEFT: pods that may still be moved to save money. A cluster earns a few with every hundred pods that have
    run for a quarter of an hour; without any, nodes in use stay as they are until pods leave by themselves. CLOSING:
    nodes that take no new pods so that this happens. Both only of clusters whose operator reports placement.
    """
    found = coordinators.ask("ListClusters", pb.ListClustersRequest(shard_id=shard_id))
    coordinators.show(found.clusters, _cluster_row)


@clusters.command("move")
@coordinator_command()
def move_cluster(
    coordinators: Coordinators, cluster: Annotated[str, typer.Argument(help="The cluster's id.")], to: To
) -> None:
    """Bind a cluster to another shard: `bigfleetctl clusters move prod-1 --to shard-2`. Move its machines first."""
    coordinators.ask("MoveCluster", pb.MoveClusterRequest(cluster_id=cluster, to_shard_id=to))
    coordinators.done(f"moved cluster {cluster} → {to}", cluster=cluster, to=to)


# It asks the shard that has the machines: the coordinator acts on none.
clusters.command("forget")(forget)


@reports.callback()
def _reports() -> None:
    """What shards told the coordinator last."""


@reports.command("list")
@coordinator_command(watchable=True)
def list_reports(coordinators: Coordinators, shard_id: OnlyShard = "") -> None:
    """List the last report of every shard: machines, free ones, shortfalls."""
    found = coordinators.ask("ListShardReports", pb.ListShardReportsRequest(shard_id=shard_id))
    coordinators.show(found.reports, _report_row)


def _given(name: str, value: str) -> str:
    if not value:
        raise typer.BadParameter(f"give {name}, as `bigfleetctl shards list` shows them")
    return value


def _shard_row(each: pb.ShardRegistryEntry) -> dict[str, Any]:
    return {
        "SHARD": each.shard_id,
        "ADDRESS": each.address,
        "REGISTERED": at(each.registered_at_unix_ns),
        "LAST_HEARTBEAT": at(each.last_heartbeat_unix_ns),
    }


def _domain_row(each: pb.DomainAssignment) -> dict[str, Any]:
    return {"TOPOLOGY_KEY": each.topology_key, "TOPOLOGY_VALUE": each.topology_value, "SHARD": each.shard_id}


def _cluster_row(each: pb.ClusterStatus) -> dict[str, Any]:
    return {
        "CLUSTER": each.binding.cluster_id,
        "SHARD": each.binding.shard_id,
        "CONNECTED": each.connected,
        "MACHINES": each.bound_machines,
        "CLOSING": each.closing_nodes if each.reports_placement else None,
        "EVICTIONS LEFT": words.evictions_left(each.evictions_left) if each.reports_placement else None,
        "REPORTED BY": list(each.reporting_shard_ids),
        "SINCE": at(each.binding.bound_at_unix_nanos),
    }


def _report_row(each: pb.ShardReportSnapshot) -> dict[str, Any]:
    return {
        "SHARD": each.shard_id,
        "MACHINES": each.summary.total_machines,
        "FREE": each.summary.free_machines,
        "SHORTFALLS": len(each.shortfalls),
        "OLDEST": f"{max((short.age_seconds for short in each.shortfalls), default=0)} s" if each.shortfalls else "-",
        "REPORTS": each.cycle,
        "RECEIVED": at(each.received_at_unix_ns),
    }
