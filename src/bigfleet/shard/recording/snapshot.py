"""All the engine knows of the fleet and of demand, as one step's worth of inputs: how a late recording begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigfleet.engine.batches import NONE, DemandBatch, Ids, MachineBatch
from bigfleet.shard.contract.events import RunStep
from bigfleet.shard.core.state.fleet import NO_STAMP

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape, Stamp
    from bigfleet.shard.core.core import ShardCore


def snapshot_step(core: ShardCore, now: int) -> RunStep:
    """A step that tells an empty engine all there is; its number is 0."""
    clusters = core.demand.clusters
    rollups = [each.rollup for _, each in sorted(clusters.items()) if each.rollup is not None]
    links = tuple((name, core.demand.may_acquire(name)) for name in sorted(clusters))
    return RunStep(
        step=0,
        now=now,
        machines=_machines(core),
        demand=DemandBatch(rollups, links),
        policy=core.state.config.policy(),
        conditions=core.cycle.conditions,
    )


def _machines(core: ShardCore) -> MachineBatch:
    shapes: dict[Shape, int] = {}
    names: dict[str, int] = {}
    stamps: dict[Stamp, int] = {}
    keys: list[str] = []
    rows: list[tuple[int, int, int, int, int]] = []
    not_before = core.state.not_before
    for record in core.state.fleet.all():
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
    columns = np.array(rows, np.int64).reshape(len(rows), 5)
    return MachineBatch(
        ids=Ids.of(keys),
        state=columns[:, 0].astype(np.uint8),
        shape=columns[:, 1].astype(np.int32),
        cluster=columns[:, 2].astype(np.int32),
        stamp=columns[:, 3].astype(np.int32),
        not_before=columns[:, 4].copy(),
        shapes=tuple(shapes),
        clusters=tuple(names),
        stamps=tuple(stamps),
    )
