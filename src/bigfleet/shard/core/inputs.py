"""All the engine knows of the fleet and of demand, as one step's worth of inputs: how a late recording begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.engine.batches import NONE, DemandBatch
from bigfleet.shard.contract.events import RunStep
from bigfleet.shard.core.state.fleet import NO_STAMP, BatchRow, batch_of

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions, MachineBatch, Shape, Stamp
    from bigfleet.shard.core.clusters.demand import Demand
    from bigfleet.shard.core.clusters.placement import Placement
    from bigfleet.shard.core.state.state import ShardState


def snapshot_step(state: ShardState, demand: Demand, placement: Placement, conditions: Conditions, now: int) -> RunStep:
    """A step that tells an empty engine all there is; its number is 0."""
    clusters = demand.clusters
    rollups = [each.rollup for _, each in sorted(clusters.items()) if each.rollup is not None]
    links = tuple((name, demand.may_acquire(name)) for name in sorted(clusters))
    return RunStep(
        step=0,
        now=now,
        machines=_machines(state),
        demand=DemandBatch(rollups, links, reports=placement.reports.all()),
        policy=state.config.policy(),
        conditions=conditions,
    )


def _machines(state: ShardState) -> MachineBatch:
    shapes: dict[Shape, int] = {}
    names: dict[str, int] = {}
    stamps: dict[Stamp, int] = {}
    keys: list[str] = []
    rows: list[BatchRow] = []
    not_before = state.not_before
    for record in state.fleet.all():
        if not record.owned:
            continue
        keys.append(record.key)
        rows.append(
            (
                int(record.state),
                shapes.setdefault(record.shape, len(shapes)),
                names.setdefault(record.cluster, len(names)) if record.cluster else NONE,
                NONE if record.stamp is NO_STAMP else stamps.setdefault(record.stamp, len(stamps)),
                not_before.get(record.key, 0),
            )
        )
    until = state.deadlines.of((key, row[0]) for key, row in zip(keys, rows, strict=True))
    return batch_of(keys, rows, shapes, names, stamps, until)
