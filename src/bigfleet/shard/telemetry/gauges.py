"""Turns what the core publishes into gauges. One pass over counts, whatever the number of machines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bigfleet.engine.policy import SECOND
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.penalty import BUCKETS, bucket_label

if TYPE_CHECKING:
    from bigfleet.shard.core.published import Published
    from bigfleet.shard.telemetry.metrics import ShardMetrics

_STATES = {int(state): state.label for state in MachineState}
_CAPACITY_TYPES = {
    int(kind): "".join(word.capitalize() for word in kind.name.split("_"))
    for kind in CapacityType
    if kind is not CapacityType.UNSPECIFIED
}
_AGES = ((10, "1-9"), (60, "10-59"), (300, "60-299"))
_OLDEST = "300+"
_CLASSES = ((1_000_000, "critical"), (1000, "service"), (100, "batch"))
_OTHER = "other"


def publish_gauges(
    metrics: ShardMetrics, published: Published, before: Published | None = None, now: int | None = None
) -> None:
    """Replace every gauge that comes from the core; what is the same object as in `before` is left as it is."""
    inventory: Counter[tuple[str, ...]] = Counter()
    for (state, kind, bucket), count in published.states.items():
        if count:
            labels = (_STATES[state], _CAPACITY_TYPES.get(kind, f"CapacityType({kind})"), bucket_label(bucket))
            inventory[labels] += count
    metrics.publish("inventory_machines", inventory)
    metrics.publish(
        "demand_machines", {(bucket_label(bucket),): published.demand_rows.get(bucket, 0) for bucket in BUCKETS}
    )
    if before is None or before.shortfalls is not published.shortfalls:
        _publish_shortfalls(metrics, published)
    metrics.publish("rollup_quarantined", {(cluster,): held for cluster, held in published.quarantined.items()})
    metrics.publish("cluster_doubted", {(cluster,): 1 for cluster in published.doubted})
    metrics.publish("actuation_paused", int(published.paused))
    metrics.publish("active_sessions", published.sessions)
    metrics.publish("action_queue_depth", published.queue_depth)
    metrics.publish("execute_inflight", published.inflight)
    metrics.publish("epoch", published.epoch)
    metrics.publish("coordinator_term", published.term)
    metrics.publish("provider_listed", {(each.name,): int(each.listed) for each in published.providers})
    metrics.publish("provider_machines", {(each.name,): each.machines for each in published.providers})
    fenced = published.stood_off
    metrics.publish("provider_fenced", {(each.name,): int(each.name in fenced) for each in published.providers})
    metrics.publish("provider_away", {(each.name,): int(each.name in published.away) for each in published.providers})
    limiting = published.limiting
    metrics.publish("provider_limits_calls", {(each.name,): int(each.name in limiting) for each in published.providers})
    if now is not None:
        since = {each.name: each.last_complete or published.started for each in published.providers}
        metrics.publish("provider_list_age_seconds", {(name,): max(0, now - at) / SECOND for name, at in since.items()})
    metrics.publish("dollars_per_hour", published.dollars_per_hour)
    metrics.publish("consolidation_open_moves", published.open_moves)
    for name, by_cluster in (
        ("consolidation_closing_nodes", published.closing),
        ("consolidation_evictions_allowed", published.evictions),
        ("fragmentation_dollars_per_hour", published.fragmented),
    ):
        metrics.publish(name, {(cluster,): amount for cluster, amount in by_cluster.items()})


def _publish_shortfalls(metrics: ShardMetrics, published: Published) -> None:
    ages: Counter[tuple[str, ...]] = Counter({(label,): 0 for _, label in (*_AGES, (0, _OLDEST))})
    classes: Counter[tuple[str, ...]] = Counter({(label,): 0 for _, label in (*_CLASSES, (0, _OTHER))})
    for short in published.shortfalls:
        ages[(next((label for bound, label in _AGES if short.age < bound), _OLDEST),)] += 1
        classes[(next((label for bound, label in _CLASSES if short.priority >= bound), _OTHER),)] += 1
    metrics.publish("shortfalls", published.short_total)
    metrics.publish("shortfalls_aged", ages)
    metrics.publish("shortfalls_by_priority", classes)
