"""How many pods consolidation may evict: a little for each pod that has run for a quarter of an hour.

Clusters count pods, they do not name them. Units of a row that begin to run are kept by the minute; where fewer run
than before, all minutes lose the same share of theirs, as if it were chance who ended. Those left after 15 minutes earn
the budget (a fifteenth of `eviction-age` is a minute here). What ran before the shard looked earns nothing, so the
budget is journalled: without it a steady cluster could never be consolidated again after a restart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bigfleet.engine.batches import NONE
from bigfleet.shard.contract.events import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigfleet.engine.batches import Rollup
    from bigfleet.shard.core.state.state import ShardState

# A unit begun in one minute is old when its column comes round again.
_MINUTES = 16


class _Young:
    """Units of one cluster that have not run for 15 minutes, by row and minute."""

    __slots__ = ("begun", "minute", "rollup", "running")

    def __init__(self, minute: int) -> None:
        self.minute = minute
        self.rollup: Rollup | None = None
        self.running: NDArray[np.float64] = np.zeros(0)
        self.begun: NDArray[np.float64] = np.zeros((0, _MINUTES))

    def grow_up(self, minute: int) -> float:
        """Time has passed: how many units became old."""
        old = 0.0
        for passed in range(self.minute + 1, min(minute, self.minute + _MINUTES) + 1):
            old += float(self.begun[:, passed % _MINUTES].sum())
            self.begun[:, passed % _MINUTES] = 0.0
        self.minute = max(self.minute, minute)
        return old

    def count(self, rollup: Rollup, running: NDArray[np.float64]) -> None:
        """So many of each row run now."""
        before = self.rollup
        if before is None:
            # Whoever runs at first sight has for as long as anybody knows.
            self.running, self.begun = running, np.zeros((len(running), _MINUTES))
        else:
            if not _aligned(before, rollup):
                self._align(before, rollup)
            less = running < self.running
            self.begun[less] *= (running[less] / self.running[less])[:, None]
            self.begun[:, self.minute % _MINUTES] += np.maximum(0.0, running - self.running)
            self.running = running
        self.rollup = rollup

    def _align(self, before: Rollup, after: Rollup) -> None:
        known = {key: row for row, key in enumerate(_keys(before))}
        rows = [known.get(key, -1) for key in _keys(after)]
        running, begun = np.zeros(len(rows)), np.zeros((len(rows), _MINUTES))
        for row, was in enumerate(rows):
            if was >= 0:
                running[row], begun[row] = self.running[was], self.begun[was]
        self.running, self.begun = running, begun


class Evictions:
    """The budget of every cluster."""

    def __init__(self, state: ShardState, rows: Mapping[tuple[Table, str], str]) -> None:
        self._state = state
        self._length = max(1, state.config.eviction_age // (_MINUTES - 1))
        self._young: dict[str, _Young] = {}
        self._tokens: dict[str, float] = {}
        for (table, cluster), text in rows.items():
            if table == Table.EVICTIONS:
                self._restore(cluster, text)

    def applied(self, rollup: Rollup) -> None:
        """A counted roll-up is in force."""
        assert rollup.counted is not None
        young = self._young.setdefault(rollup.cluster, _Young(self._minute))
        self._earn(rollup.cluster, young)
        young.count(rollup, np.maximum(0, rollup.counted.running).astype(np.float64))

    def spend(self, cluster: str, pods: int) -> None:
        """A move has begun that will evict so many."""
        self._keep(cluster, self._tokens.get(cluster, 0.0) - pods)

    def forget(self, cluster: str) -> None:
        self._young.pop(cluster, None)
        if self._tokens.pop(cluster, None) is not None:
            self._state.turn.erase(Table.EVICTIONS, cluster)

    def allowed(self) -> tuple[tuple[str, int], ...]:
        """(Cluster, pods that may be evicted now), where that is any."""
        for cluster, young in self._young.items():
            self._earn(cluster, young)
        return tuple((cluster, int(tokens)) for cluster, tokens in sorted(self._tokens.items()) if tokens >= 1)

    @property
    def _minute(self) -> int:
        return self._state.now // self._length

    def _earn(self, cluster: str, young: _Young) -> None:
        old = young.grow_up(self._minute)
        if old:
            config = self._state.config
            earned = self._tokens.get(cluster, 0.0) + config.eviction_rate * old
            self._keep(cluster, min(float(config.eviction_most), earned))

    def _keep(self, cluster: str, tokens: float) -> None:
        if tokens != self._tokens.get(cluster):
            self._tokens[cluster] = tokens
            self._state.turn.write(Table.EVICTIONS, cluster, repr(tokens), lazy=True)

    def _restore(self, cluster: str, text: str) -> None:
        """A row that cannot be read is as good as none: nothing is evicted before somebody has earned it."""
        try:
            tokens = float(text)
        except ValueError:
            tokens = math.nan
        if math.isfinite(tokens):
            self._tokens[cluster] = min(float(self._state.config.eviction_most), tokens)
        else:
            self._state.turn.erase(Table.EVICTIONS, cluster)


def _aligned(one: Rollup, other: Rollup) -> bool:
    """Whether row for row both are about the same."""
    return (
        len(one) == len(other)
        and one.profiles == other.profiles
        and one.groups == other.groups
        and one.resources == other.resources
        and one.profile.tobytes() == other.profile.tobytes()
        and one.group.tobytes() == other.group.tobytes()
        and one.min_unit.tobytes() == other.min_unit.tobytes()
    )


def _keys(rollup: Rollup) -> list[tuple[str, str, tuple[tuple[str, int], ...]]]:
    found = []
    for row in range(len(rollup)):
        unit = [pair for pair in zip(rollup.resources, rollup.min_unit[row].tolist(), strict=True) if pair[1]]
        group = "" if rollup.group[row] == NONE else rollup.groups[rollup.group[row]]
        found.append((rollup.profiles[rollup.profile[row]].fingerprint, group, tuple(unit)))
    return found
