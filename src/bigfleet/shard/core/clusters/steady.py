"""Since when nothing has changed that a cluster could be rearranged for: meanwhile no node is moved twice.

Three things count as a change: what its rows ask for in all, machines bought for them, and what there is to be had at
which price. What consolidation does itself does not, or each move would be the reason for the next one: pods that are
being moved count twice until their old ones have ended, and those who found no room after all are bought for.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import encode

from bigfleet.engine.policy import MINUTE
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.events import Table
from bigfleet.shard.core.state.backoff import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.engine.batches import Rollup
    from bigfleet.shard.core.state.state import ShardState

# What changed so lately that it was written down is not written down again.
_PACE = 5 * MINUTE
_BOUGHT = frozenset({CapacityType.ON_DEMAND, CapacityType.SPOT})

# A kind that can be had, its price, its probability, and whether it is paid for already.
Offer = tuple[Kind, float, float, bool]


class SteadyRow(Struct):
    """As the journal has it: since when, and what its rows asked for then."""

    since: int
    asks: str


class Steady:
    """What every reporting cluster asked for when it last changed."""

    def __init__(self, state: ShardState, rows: Mapping[tuple[Table, str], str]) -> None:
        self._state = state
        self._kept: dict[str, SteadyRow] = {}
        # What rows in force ask for; since when that has been something else than what is kept; clusters with a move
        # under way or only just over.
        self._asks: dict[str, str] = {}
        self._other: dict[str, int] = {}
        self._moving: frozenset[str] = frozenset()
        self._offers: frozenset[Offer] | None = None
        self._looked = 0
        for (table, cluster), text in rows.items():
            if table == Table.STEADY:
                self._restore(cluster, text)

    def applied(self, rollup: Rollup) -> None:
        """These rows are in force."""
        totals = rollup.aggregate.sum(axis=0).tolist()
        asked = {name: total for name, total in zip(rollup.resources, totals, strict=True) if total > 0}
        self._asks[rollup.cluster] = Resources(asked).canonical

    def bought(self, cluster: str) -> None:
        """A machine is bought or bound for its rows."""
        if cluster not in self._moving:
            self._changed(cluster)

    def look(self, moving: frozenset[str], *, listed: bool) -> None:
        """Before a step: find out who has changed. What can be had is known once all providers are `listed`."""
        self._moving = moving
        if listed and self._offers_came():
            for cluster in self._asks:
                self._changed(cluster)
        now, grace = self._state.now, self._state.config.reclaim_grace
        for cluster, asks in self._asks.items():
            kept = self._kept.get(cluster)
            if kept is None:
                self._changed(cluster)
            elif asks == kept.asks:
                self._other.pop(cluster, None)
            # Pods that move have ended twice over when the grace of their drain has.
            elif now - self._other.setdefault(cluster, now) >= (grace if cluster in moving else 0) + MINUTE:
                self._changed(cluster)

    def is_since(self, cluster: str, instant: int) -> bool:
        """Whether nothing has changed there after this instant."""
        kept = self._kept.get(cluster)
        return kept is not None and kept.since <= instant

    def forget(self, cluster: str) -> None:
        self._asks.pop(cluster, None)
        self._other.pop(cluster, None)
        if self._kept.pop(cluster, None) is not None:
            self._state.turn.erase(Table.STEADY, cluster)

    def _changed(self, cluster: str) -> None:
        now, kept = self._state.now, self._kept.get(cluster)
        if kept is not None and 0 <= now - kept.since < _PACE:
            return
        self._other.pop(cluster, None)
        row = self._kept[cluster] = SteadyRow(now, self._asks.get(cluster, ""))
        self._state.turn.write(Table.STEADY, cluster, encode(row).decode(), lazy=True)

    def _offers_came(self) -> bool:
        """Whether something can be had that could not, or not at this price."""
        state = self._state
        if self._offers is not None and state.now - self._looked < state.config.consolidate_interval:
            return False
        self._looked = state.now
        before, self._offers = self._offers, frozenset(self._to_be_had())
        return before is not None and not self._offers <= before

    def _to_be_had(self) -> set[Offer]:
        """Kinds that can be bought, and those that lie idle and are paid for."""
        state, found = self._state, set()
        for free, count in state.fleet.counts.free.items():
            kind: Kind = (free.provider, free.instance_type, free.zone, free.capacity_type)
            sold = free.state == MachineState.SPECULATIVE
            if count <= 0 or (not sold and free.capacity_type in _BOUGHT) or state.breakers.resting(kind, state.now):
                continue
            found.add((kind, free.price, free.probability, not sold))
        return found

    def _restore(self, cluster: str, text: str) -> None:
        """A row that cannot be read is as good as none: the cluster counts as changed."""
        try:
            row = json.loads(text)
            self._kept[cluster] = SteadyRow(int(row["since"]), str(row["asks"]))
        except (ValueError, KeyError, TypeError):
            self._state.turn.erase(Table.STEADY, cluster)
