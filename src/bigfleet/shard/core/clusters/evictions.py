"""How many pods consolidation may evict: a little for each pod that has run for a quarter of an hour.

Clusters know which of their pods those are, and count them where they stand (`NodeReport.matured`); what a report adds
to the one before it in the same stream earns the budget. (Reckoned from the rows instead, starts and ends of one row
hid each other, and who had ended was a guess: clusters earned from 0.6 to 1.2 of their due.) What was old before the
stream began earns nothing, so the budget is journalled: without it a steady cluster could never be consolidated again
after a restart.

Whoever is evicted is made anew and becomes old once more. For each of them one that becomes old earns nothing, so that
never more than that share of the pods is evicted, however often the same ones are.
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
        # Pods that were evicted and have not become old again.
        self._moved: dict[str, int] = {}
        for (table, cluster), text in rows.items():
            if table == Table.EVICTIONS:
                self._restore(cluster, text)

    def earn(self, cluster: str, pods: int, running: int) -> None:
        """So many pods more have become old in a cluster that runs so many. What a large one may save up grows with it:
        60 evictions are soon gone where 5,000 pods run, and who is steady earns none. What it has saved it keeps when
        it shrinks, for that is when moves are worth most."""
        moved, had, config = self._moved.get(cluster, 0), self._tokens.get(cluster, 0.0), self._state.config
        again = min(pods, moved)
        most = max(float(config.eviction_most), config.eviction_rate * running)
        self._keep(cluster, max(had, min(most, had + config.eviction_rate * (pods - again))), moved - again)

    def spend(self, cluster: str, pods: int, least: float = -math.inf) -> None:
        """A move has begun that will evict so many. What does not wait for evictions that are not left uses up those
        that are, down to the `least` (`docs/engine.md`, P46)."""
        had = self._tokens.get(cluster, 0.0)
        self._keep(cluster, min(had, max(least, had - pods)), self._moved.get(cluster, 0) + pods)

    def forget(self, cluster: str) -> None:
        self._moved.pop(cluster, None)
        if self._tokens.pop(cluster, None) is not None:
            self._state.turn.erase(Table.EVICTIONS, cluster)

    def allowed(self) -> tuple[tuple[str, int], ...]:
        """(Cluster, pods that may be evicted now), where that is any; below 0 what was borrowed for hostages (P39)."""
        whole = ((cluster, math.floor(tokens)) for cluster, tokens in sorted(self._tokens.items()))
        return tuple((cluster, pods) for cluster, pods in whole if pods)

    def _keep(self, cluster: str, tokens: float, moved: int) -> None:
        if (tokens, moved) != (self._tokens.get(cluster), self._moved.get(cluster)):
            self._tokens[cluster], self._moved[cluster] = tokens, moved
            self._state.turn.write(Table.EVICTIONS, cluster, f"{tokens!r} {moved}", lazy=True)

    def _restore(self, cluster: str, text: str) -> None:
        """A row that cannot be read is as good as none: nothing is evicted before somebody has earned it. (Rows of
        earlier versions say what may be evicted and no more.)"""
        tokens, _, moved = text.partition(" ")
        try:
            self._tokens[cluster], self._moved[cluster] = _finite(tokens), max(0, int(moved or 0))
        except ValueError:
            self._state.turn.erase(Table.EVICTIONS, cluster)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"evictions left are {text}; a finite number was journalled")
    return number
