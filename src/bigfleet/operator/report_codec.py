"""Rows and node reports as protobuf, for every shell around the operator's core.

Deterministic: equal rows give equal bytes but for the timestamp, so that a shard can tell an unchanged roll-up by them.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.model.quantity import from_units
from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror.reports import Amounts, NodeReport
from bigfleet.operator.core.rows import Row
from bigfleet.operator.need_codec import need_to_wire
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
        matured=report.matured,
    )


def _need(row: Row) -> capacity_pb2.CapacityNeed:
    need = need_to_wire(row.profile, row.resources, row.unit, row.group)
    need.count, need.stranded, need.running = row.count, row.stranded, row.running
    need.domain_units.update(row.domain_units)
    need.exclusive.extend(row.exclusive)
    return need


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {name: from_units(name, amount) for name, amount in amounts}
