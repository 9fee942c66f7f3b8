"""How the shard stands, as its report to the coordinator says it: counts, free cells, shortfalls, clusters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bigfleet.model.machine import BOUND, MachineState
from bigfleet.operator.need_codec import requirements_to_wire
from bigfleet.shard.coordinator_link.link import Standing
from bigfleet.shard.read.views import capacity_type
from bigfleet.wire import capacity_pb2, coordinator_pb2, provider_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.shard.contract.shortfalls import Short
    from bigfleet.shard.core.core import ShardCore

SHORTFALLS_REPORTED = 100
_FREE = (MachineState.IDLE, MachineState.SPECULATIVE)
_SECOND = 1_000_000_000


def standing_of(core: ShardCore, now: int) -> Standing:
    """What a report says now."""
    published = core.published
    return Standing(
        _summary(published.cells),
        [_shortfall(core, each, now) for each in published.shortfalls[:SHORTFALLS_REPORTED]],
        [_cluster(core, view.name, view.connected, view.machines) for view in core.read.clusters()],
        published.ownership_version,
    )


def _summary(cells: Mapping[tuple[str, str, int, int], int]) -> coordinator_pb2.ShardSummary:
    types: Counter[str] = Counter()
    zones: Counter[str] = Counter()
    summary = coordinator_pb2.ShardSummary()
    for (instance_type, zone, kind, state), count in sorted(cells.items()):
        summary.total_machines += count
        if instance_type:
            types[instance_type] += count
        if zone:
            zones[zone] += count
        if state in _FREE:
            summary.free_machines += count
            summary.free_cells.add(
                instance_type=instance_type,
                zone=zone,
                state=provider_pb2.MachineState.ValueType(state),
                capacity_type=capacity_type(kind),
                count=count,
            )
    summary.per_instance_type_counts.update(types)
    summary.per_zone_counts.update(zones)
    return summary


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
    )
    made.deficit.resources.update(short.deficit.to_wire())
    profile = core.read.profile(short.fingerprint, short.cluster)
    if profile is not None:
        made.requirements.extend(requirements_to_wire(profile.requirements))
        made.interruption_penalty_bucket = capacity_pb2.PenaltyBucket.ValueType(profile.interruption_bucket)
    return made


def _cluster(
    core: ShardCore, name: str, connected: bool, machines: Mapping[int, int]
) -> coordinator_pb2.ReportedCluster:
    return coordinator_pb2.ReportedCluster(
        cluster_id=name,
        connected=connected,
        bound_machines=sum(count for state, count in machines.items() if state in BOUND),
        claimed_shard_id=core.read.claimed_shard(name),
    )
