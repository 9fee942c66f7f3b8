"""Which clusters belong here and which elsewhere, as the coordinator said last; kept in the journal.

An answer tells of the clusters its report named. One nobody has bound yet is judged by what its operator claims.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bigfleet.shard.contract.coordination import ClusterBinding
from bigfleet.shard.contract.events import JournalState, Table
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.state.state import ShardState

ROW = "bindings"


class Bindings:
    """Clusters and their shards."""

    def __init__(self, state: ShardState, demand: Demand, boot: JournalState) -> None:
        self._state = state
        self._demand = demand
        self._known: tuple[ClusterBinding, ...] = ()
        # Clusters that other shards serve → the address of that shard.
        self.referrals: dict[str, str] = {}
        row = boot.rows.get((Table.OWNERSHIP, ROW)) if state.config.with_coordinator else None
        if row is not None:
            self._install(msgspec.json.decode(row, type=tuple[ClusterBinding, ...]))

    def receive(self, bindings: Iterable[ClusterBinding]) -> bool:
        """What an answer said; returns whether it changed anything."""
        told = tuple(sorted(bindings, key=lambda each: each.cluster))
        if told == self._known or not self._state.config.with_coordinator:
            return False
        self._install(told)
        self._state.turn.write(Table.OWNERSHIP, ROW, msgspec.json.encode(told).decode())
        return True

    def _install(self, bindings: tuple[ClusterBinding, ...]) -> None:
        self._known = bindings
        me = self._state.config.id
        here = frozenset(each.cluster for each in bindings if each.shard == me)
        elsewhere = frozenset(each.cluster for each in bindings if each.shard != me)
        self._demand.bind(here, elsewhere)
        self.referrals = {each.cluster: each.address for each in bindings if each.shard != me and each.address}
