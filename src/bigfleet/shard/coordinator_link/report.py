"""How the shard stands, as its report to the coordinator says it: counts, free cells, shortfalls, clusters."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from bigfleet.model.machine import BOUND, MachineState
from bigfleet.model.names import REFERRALS
from bigfleet.operator.need_codec import requirements_to_wire
from bigfleet.shard.coordinator_link.link import Standing
from bigfleet.shard.core.machines.matching import parse_canonical
from bigfleet.shard.read.views import capacity_type
from bigfleet.wire import capacity_pb2, coordinator_pb2, provider_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.shard.contract.shortfalls import Short
    from bigfleet.shard.core.core import ShardCore
    from bigfleet.shard.core.published import ClusterView
    from bigfleet.shard.core.state.counts import FreeKind

SHORTFALLS_REPORTED = 100
_FREE = (MachineState.IDLE, MachineState.SPECULATIVE)
_SECOND = 1_000_000_000


def standing_of(core: ShardCore, now: int) -> Standing:
    """What a report says now."""
    published = core.published
    summary = _summary(published.cells, published.dollars_per_hour)
    for kind, count in sorted(core.read.free_kinds().items(), key=lambda each: (each[0][:7], each[0][7].canonical)):
        _free_cell(summary, kind, count)
    # Before everything was listed most of what it has is missing on paper only; and what a cluster lacks that is away
    # nobody may buy for it, nor bring.
    lacking = (each for each in published.shortfalls if not each.away) if published.ready else ()
    shortfalls = islice(lacking, SHORTFALLS_REPORTED)
    return Standing(
        summary,
        [_shortfall(core, each, now) for each in shortfalls],
        [_cluster(core, view) for view in core.read.clusters()],
        published.ownership_version,
        published.term,
        core.read.acks(),
        tuple(health.name for health in published.providers),
        core.read.arriving(),
        [
            coordinator_pb2.RelabelledMachine(provider=provider, machine_id=id, shard_id=owner)
            for provider, id, owner in core.read.relabelled()
        ],
        *core.read.looked(),
    )


def _summary(cells: Mapping[tuple[str, str, int, int], int], dollars: float) -> coordinator_pb2.ShardSummary:
    types: Counter[str] = Counter()
    zones: Counter[str] = Counter()
    summary = coordinator_pb2.ShardSummary(dollars_per_hour=dollars)
    for (instance_type, zone, _, state), count in sorted(cells.items()):
        summary.total_machines += count
        if instance_type:
            types[instance_type] += count
        if zone:
            zones[zone] += count
        if state in _FREE:
            summary.free_machines += count
    summary.per_instance_type_counts.update(types)
    summary.per_zone_counts.update(zones)
    return summary


def _free_cell(summary: coordinator_pb2.ShardSummary, kind: FreeKind, count: int) -> None:
    summary.free_cells.add(
        instance_type=kind.instance_type,
        zone=kind.zone,
        state=provider_pb2.MachineState.ValueType(kind.state),
        capacity_type=capacity_type(kind.capacity_type),
        count=count,
        allocatable=kind.allocatable.to_wire(),
        price_per_hour=kind.price,
        interruption_probability=kind.probability,
        provider=kind.provider,
    )


def _shortfall(core: ShardCore, short: Short, now: int) -> coordinator_pb2.Shortfall:
    """One per fingerprint; the cluster and group are named when it is the demand of one alone."""
    made = coordinator_pb2.Shortfall(
        priority=short.priority,
        age_cycles=short.age,
        cluster_id=short.cluster,
        group=short.group,
        fingerprint=short.fingerprint,
        age_seconds=max(0, now - short.since) // _SECOND,
        topology_constrained=short.topology_constrained,
        units=short.units,
        coming=short.coming,
        cause=short.cause.name.lower() if short.cause else "",
    )
    made.min_unit.update(parse_canonical(short.min_unit).to_wire())
    made.deficit.resources.update(short.deficit.to_wire())
    profile = core.read.profile(short.fingerprint, short.cluster)
    if profile is not None:
        made.requirements.extend(requirements_to_wire(profile.requirements))
        made.interruption_penalty_bucket = capacity_pb2.PenaltyBucket.ValueType(profile.interruption_bucket)
    return made


def _cluster(core: ShardCore, view: ClusterView) -> coordinator_pb2.ReportedCluster:
    return coordinator_pb2.ReportedCluster(
        cluster_id=view.name,
        connected=view.connected,
        bound_machines=sum(count for state, count in view.machines.items() if state in BOUND),
        claimed_shard_id=core.read.claimed_shard(view.name),
        follows_referrals=REFERRALS in view.capabilities,
        reports_placement=core.read.placement.reports_placement(view.name),
        evictions_left=core.published.evictions.get(view.name, 0),
        closing_nodes=core.published.closing.get(view.name, 0),
    )
