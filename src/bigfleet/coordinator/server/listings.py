"""What the listing calls answer, in the orders the contract promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bigfleet.coordinator.core.quotas import live_shares
from bigfleet.wire import coordinator_pb2

if TYPE_CHECKING:
    from bigfleet.coordinator.core.reports import ReportedCluster
    from bigfleet.coordinator.core.tables import Tables
    from bigfleet.coordinator.server.tenure import Tenure


def shards(tenure: Tenure) -> coordinator_pb2.ListShardsResponse:
    made = coordinator_pb2.ListShardsResponse()
    for name, shard in sorted(tenure.state.tables.shards.items()):
        heard = tenure.leader.heard.get(shard.generation)
        made.shards.add(
            shard_id=name,
            address=shard.address,
            registered_at_unix_ns=shard.registered_at,
            last_heartbeat_unix_ns=heard.at if heard is not None else 0,
        )
    return made


async def domains(tables: Tables) -> coordinator_pb2.ListDomainAssignmentsResponse:
    """By shard, then key, then value; a domain is shown with its new owner from the commit on.

    Rendered in a thread: a hundred thousand of them would keep reports, and the lease, waiting.
    """
    names = {generation: shard.id for generation, shard in tables.generations.items()}
    assigned = [(each.holder, *place) for place, each in tables.domains.items() if each.holder]
    return await asyncio.to_thread(_rendered, names, assigned)


def _rendered(
    names: dict[int, str], assigned: list[tuple[int, str, str]]
) -> coordinator_pb2.ListDomainAssignmentsResponse:
    made = coordinator_pb2.ListDomainAssignmentsResponse()
    for shard, key, value in sorted((names[holder], key, value) for holder, key, value in assigned):
        made.assignments.add(topology_key=key, topology_value=value, shard_id=shard)
    return made


def quotas(tables: Tables) -> coordinator_pb2.ListQuotasResponse:
    made = coordinator_pb2.ListQuotasResponse()
    for (provider, region), division in sorted(tables.divisions.items()):
        entry = made.allocations.add(provider=provider, region=region)
        for share in live_shares(tables, division):
            shard = tables.generations[share.holder].id
            entry.per_shard[shard] = share.limit
            if share.slots:
                entry.slots.add(shard_id=shard, machine_ids=share.slots)
    return made


def reports(tenure: Tenure, shard_id: str) -> coordinator_pb2.ListShardReportsResponse:
    made = coordinator_pb2.ListShardReportsResponse()
    for name, shard in sorted(tenure.state.tables.shards.items()):
        if shard_id not in ("", name) or shard.generation not in tenure.raw:
            continue
        raw, at = tenure.raw[shard.generation]
        report = coordinator_pb2.ShardReport.FromString(raw)
        made.reports.add(
            shard_id=name,
            cycle=report.cycle,
            received_at_unix_ns=at,
            summary=report.summary if report.HasField("summary") else None,
            shortfalls=report.shortfalls,
        )
    return made


def clusters(tenure: Tenure, shard_id: str) -> coordinator_pb2.ListClustersResponse:
    tables = tenure.state.tables
    seen: dict[str, list[tuple[str, ReportedCluster]]] = {}
    for generation, heard in tenure.leader.heard.items():
        shard = tables.generations.get(generation)
        for each in heard.report.clusters if shard is not None else ():
            seen.setdefault(each.cluster, []).append((shard.id, each))  # type: ignore[union-attr]
    made = coordinator_pb2.ListClustersResponse()
    for name in sorted(tables.clusters):
        bound = binding(tables, name)
        if shard_id not in ("", bound.shard_id):
            continue
        told = sorted(seen.get(name, ()), key=lambda each: each[0])
        made.clusters.add(
            binding=bound,
            connected=any(each.connected for _, each in told),
            bound_machines=sum(each.machines for _, each in told),
            reporting_shard_ids=[shard for shard, _ in told],
            reports_placement=any(each.placed for _, each in told),
            evictions_left=sum(each.evictions for _, each in told),
            closing_nodes=sum(each.closing for _, each in told),
        )
    return made


def binding(tables: Tables, cluster: str) -> coordinator_pb2.ClusterBinding:
    known = tables.clusters[cluster]
    shard = tables.generations[known.holder]
    return coordinator_pb2.ClusterBinding(
        cluster_id=cluster, shard_id=shard.id, shard_address=shard.address, bound_at_unix_nanos=known.bound_at
    )
