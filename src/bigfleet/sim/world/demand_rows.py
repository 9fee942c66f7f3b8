"""The rows of a cluster's roll-up, kept as pods come and go.

One row per profile, group and size class, as the operator builds them: cpu and memory are told apart by powers of two,
every other resource by its exact amount, so that one large pod does not decide the machines of all small ones.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.batches import NONE, Rollup
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.sim.world.pods import Kinds, PodSet


class DemandRows:
    """All rows of one cluster."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._rows: dict[tuple[str, str, str], _Row] = {}

    def count(self, podset: PodSet, change: int) -> None:
        """So many pods more or less."""
        row = self._rows.get(podset.row_key)
        if row is None:
            row = self._rows[podset.row_key] = _Row(podset.kind.profile, podset.group)
        size = podset.kind.request
        left = row.sizes.get(size, 0) + change
        if left:
            row.sizes[size] = left
        else:
            del row.sizes[size]
            if not row.sizes:
                del self._rows[podset.row_key]

    def rollup(self, cluster: str, overhead: Resources) -> Rollup:
        """All rows in canonical order."""
        rows = [row for _, row in sorted(self._rows.items())]
        names = self._kinds.resources
        profiles = {profile: place for place, profile in enumerate(dict.fromkeys(row.profile for row in rows))}
        groups = {group: place for place, group in enumerate(dict.fromkeys(row.group for row in rows if row.group))}
        aggregate = np.zeros((len(rows), len(names)), np.int64)
        min_unit = np.zeros((len(rows), len(names)), np.int64)
        for place, row in enumerate(rows):
            for size, count in row.sizes.items():
                vector = np.array(self._kinds.vector(size), np.int64)
                aggregate[place] += vector * count
                np.maximum(min_unit[place], vector, out=min_unit[place])
        return Rollup(
            cluster=cluster,
            profiles=list(profiles),
            groups=list(groups),
            resources=names,
            profile=np.array([profiles[row.profile] for row in rows], np.int32),
            group=np.array([groups[row.group] if row.group else NONE for row in rows], np.int32),
            aggregate=aggregate,
            min_unit=min_unit,
            overhead=overhead,
        )


class _Row:
    """One row of the roll-up: how many pods of which size."""

    __slots__ = ("group", "profile", "sizes")

    def __init__(self, profile: Profile, group: str) -> None:
        self.profile = profile
        self.group = group
        self.sizes: dict[Resources, int] = {}
