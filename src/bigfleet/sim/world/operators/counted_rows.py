"""Rows of the operator's core as the roll-up a shard's decoder would hand over: units, not sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigfleet.engine.batches import NONE, Rollup
from bigfleet.engine.placement import Counted
from bigfleet.model.resources import Resources
from bigfleet.operator.core.rows import Row


def counted_rollup(
    cluster: str, rows: Sequence[Row], version: int, names: tuple[str, ...], overhead: Resources
) -> Rollup:
    """All rows in their order; `names` are the run's resource dimensions."""
    profiles = {profile: place for place, profile in enumerate(dict.fromkeys(row.profile for row in rows))}
    groups = {group: place for place, group in enumerate(dict.fromkeys(row.group for row in rows if row.group))}
    units = np.array([[row.unit.get(name) for name in names] for row in rows], np.int64).reshape(len(rows), len(names))
    counts = np.array([row.count for row in rows], np.int64)
    # Columns as in `demand_rows`, which sums what these rows count.
    return Rollup(
        cluster=cluster,
        profiles=list(profiles),
        groups=list(groups),
        resources=names,
        profile=np.array([profiles[row.profile] for row in rows], np.int32),
        group=np.array([groups[row.group] if row.group else NONE for row in rows], np.int32),
        aggregate=units * counts[:, None],
        min_unit=units,
        overhead=overhead,
        counted=Counted(
            count=counts.astype(np.int32),
            running=np.array([row.running for row in rows], np.int32),
            stranded=np.array([row.stranded for row in rows], np.int32),
            mirror_version=version,
            domain_units={place: row.domain_units for place, row in enumerate(rows) if row.domain_units},
            exclusive={place: row.exclusive for place, row in enumerate(rows) if row.exclusive},
        ),
    )
