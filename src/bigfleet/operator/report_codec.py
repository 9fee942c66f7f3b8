"""Rows and node reports as protobuf, for every shell around the operator's core.

Deterministic: equal rows give equal bytes but for the timestamp, so that a shard can tell an unchanged roll-up by them.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.model.quantity import from_units
from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror.reports import Amounts, NodeReport
from bigfleet.operator.core.rows import Row
from bigfleet.wire import capacity_pb2, shard_pb2


def rollup_to_wire(
    cluster: str, rows: Iterable[Row], *, timestamp: int, version: int, overhead: Resources = Resources.ZERO
) -> capacity_pb2.ClusterCapacityNeeds:
    """The whole demand of a cluster; `overhead` is what DaemonSets take on every node."""
    return capacity_pb2.ClusterCapacityNeeds(
        cluster_id=cluster,
        timestamp_unix_nanos=timestamp,
        needs=[_need(row) for row in rows],
        node_overhead=overhead.to_wire(),
        mirror_version=version,
    )


def report_to_wire(report: NodeReport) -> shard_pb2.NodeReport:
    return shard_pb2.NodeReport(
        machine_id=report.machine,
        node_name=report.node_name,
        ready=report.ready,
        empty=report.empty,
        max_pod_priority=report.max_pod_priority,
        removable=report.removable,
        used=_quantities(report.used),
        allocatable=_quantities(report.allocatable),
        reclamation_dollars=report.reclamation_dollars,
        interruption_dollars=report.interruption_dollars,
        pinned=report.pinned,
        groups=report.groups,
        profiles=report.profiles,
        exclusive=report.exclusive,
        closing_since=report.closing_since,
        mirror_version=report.version,
    )


def _need(row: Row) -> capacity_pb2.CapacityNeed:
    profile = row.profile
    return capacity_pb2.CapacityNeed(
        requirements=[
            capacity_pb2.NodeSelectorRequirement(
                key=each.key,
                operator=capacity_pb2.NodeSelectorRequirement.Operator.ValueType(each.operator),
                values=each.values,
            )
            for each in profile.requirements
        ],
        aggregate_resources=row.resources.to_wire(),
        min_unit=row.unit.to_wire(),
        priority=profile.priority,
        spread=[
            capacity_pb2.TopologySpread(
                topology_key=each.topology_key,
                max_skew=each.max_skew,
                when_unsatisfiable=capacity_pb2.TopologySpread.WhenUnsatisfiable.ValueType(each.when),
            )
            for each in profile.spread
        ],
        interruption_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(profile.interruption_bucket),
        reclamation_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(profile.reclamation_bucket),
        group=row.group,
        tolerations=[
            capacity_pb2.Toleration(key=each.key, operator=each.operator, value=each.value, effect=each.effect)
            for each in profile.tolerations
        ],
        count=row.count,
        stranded=row.stranded,
        running=row.running,
        domain_units=dict(row.domain_units),
        exclusive=row.exclusive,
    )


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {name: from_units(name, amount) for name, amount in amounts}
