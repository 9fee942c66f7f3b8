"""Which shard a cluster belongs to, decided when a shard first reports it.

A cluster that names a registered shard belongs there. Otherwise it stays with the shard its operator reached, unless
the operator follows referrals: then the least loaded shard that has machines takes it. Bound once, it stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.records import Shard
from bigfleet.coordinator.core.reports import Report, ReportedCluster
from bigfleet.coordinator.core.tables import Tables


def bindings_for(tables: Tables, heard: Collection[int], shard: Shard, report: Report, now: int) -> list[do.Command]:
    """Bindings for the clusters of a report that have none; `heard` are the shards that report."""
    found: list[do.Command] = []
    for each in report.clusters:
        if each.cluster and each.cluster not in tables.clusters and (each.connected or each.machines):
            found.append(do.BindCluster(each.cluster, _shard_for(tables, heard, shard, each), now))
    return found


def _shard_for(tables: Tables, heard: Collection[int], shard: Shard, cluster: ReportedCluster) -> str:
    if cluster.claimed in tables.shards:
        return cluster.claimed
    if not cluster.referable or cluster.machines:
        return shard.id
    load = Counter(binding.holder for binding in tables.clusters.values())
    able = [each for each in heard if each in tables.generations]
    best = min(able, key=lambda each: (load[each], each != shard.generation, tables.generations[each].id))
    return tables.generations[best].id
