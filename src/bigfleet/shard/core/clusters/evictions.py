"""How many pods consolidation may evict: a little for each pod that has run for a quarter of an hour.

Clusters know which of their pods those are, and count them where they stand (`NodeReport.matured`); what a report adds
to the one before it in the same stream earns the budget. (Reckoned from the rows instead, starts and ends of one row
hid each other, and who had ended was a guess: clusters earned from 0.6 to 1.2 of their due.) What was old before the
stream began earns nothing, so the budget is journalled: without it a steady cluster could never be consolidated again
after a restart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bigfleet.shard.contract.events import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.shard.core.state.state import ShardState


class Evictions:
    """The budget of every cluster."""

    def __init__(self, state: ShardState, rows: Mapping[tuple[Table, str], str]) -> None:
        self._state = state
        self._tokens: dict[str, float] = {}
        for (table, cluster), text in rows.items():
            if table == Table.EVICTIONS:
                self._restore(cluster, text)

    def earn(self, cluster: str, pods: int) -> None:
        """So many pods more have become old."""
        if pods > 0:
            config = self._state.config
            earned = self._tokens.get(cluster, 0.0) + config.eviction_rate * pods
            self._keep(cluster, min(float(config.eviction_most), earned))

    def spend(self, cluster: str, pods: int) -> None:
        """A move has begun that will evict so many."""
        self._keep(cluster, self._tokens.get(cluster, 0.0) - pods)

    def forget(self, cluster: str) -> None:
        if self._tokens.pop(cluster, None) is not None:
            self._state.turn.erase(Table.EVICTIONS, cluster)

    def allowed(self) -> tuple[tuple[str, int], ...]:
        """(Cluster, pods that may be evicted now), where that is any; below 0 what was borrowed for hostages (P39)."""
        whole = ((cluster, math.floor(tokens)) for cluster, tokens in sorted(self._tokens.items()))
        return tuple((cluster, pods) for cluster, pods in whole if pods)

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
