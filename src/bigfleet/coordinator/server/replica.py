"""One replica over its whole life: campaigns, leads, loses, campaigns again; never ends because of the store.

What is served at an instant depends on `tenure` alone, and that is None unless this replica leads.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.records import Phase
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.server.tenure import Tenure
from bigfleet.coordinator.stores.store import StoreError

if TYPE_CHECKING:
    from bigfleet.coordinator.core.policy import Policy
    from bigfleet.coordinator.server.metrics import CoordinatorMetrics
    from bigfleet.coordinator.stores.store import Store

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 1.0


class Replica:
    """Leads whenever the store lets it."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        metrics: CoordinatorMetrics,
        *,
        address: str,
        rebalance_seconds: float,
        keys: tuple[str, ...] = (),
    ) -> None:
        self.store = store
        self.metrics = metrics
        self.tenure: Tenure | None = None
        self._policy = policy
        self._address = address
        self._rebalance_seconds = rebalance_seconds
        self._keys = keys

    async def run(self) -> None:
        while True:
            try:
                leadership = await self.store.campaign()
                # In a thread: the lease must be kept while a large state is read.
                state = await asyncio.to_thread(State, leadership.rows)
                tenure = Tenure(state, leadership.term, self.store, self._policy, self.metrics)
                log.info("leading", term=tenure.term, revision=tenure.state.revision)
                await self._lead(tenure)
            except StoreError as error:
                log.warning("the store does not let this replica lead", err=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                self.tenure = None
            log.info("no longer leading")

    def leader_elsewhere(self) -> str:
        """Where callers should go; empty when nobody leads, or this replica itself is about to find out."""
        leader = self.store.leader()
        return leader if leader != self._address else ""

    def publish(self) -> None:
        """The gauges, as they stand."""
        tenure, metrics = self.tenure, self.metrics
        metrics.publish("leader", float(tenure is not None and self.store.leading()))
        metrics.publish("raft_term", self.store.known_term())
        if tenure is None:
            metrics.publish("pending_instructions", {})
            metrics.publish("heartbeat_age_seconds", {})
            return
        tables, now = tenure.state.tables, time.time_ns()
        metrics.publish("shards", len(tables.shards))
        metrics.publish("clusters", len(tables.clusters))
        metrics.publish("domains", len(tables.domains))
        # By the index: there may be a hundred thousand domains, and everybody waits while they are counted.
        metrics.publish("domains_pending", len({place for places in tables.waiting.values() for place in places}))
        metrics.publish("looks_pending", tenure.leader.looks.pending)
        phases = dict.fromkeys((phase.name.lower() for phase in Phase), 0.0)
        for transfer in tables.transfers.values():
            phases[transfer.phase.name.lower()] += 1
        metrics.publish("transfers", phases)
        tenure.pending = {name: count for name, count in tenure.pending.items() if name in tables.shards}
        metrics.publish("pending_instructions", tenure.pending)
        ages = {
            tables.generations[generation].id: (now - heard.at) / 1e9
            for generation, heard in tenure.leader.heard.items()
            if generation in tables.generations
        }
        metrics.publish("heartbeat_age_seconds", ages)

    async def _lead(self, tenure: Tenure) -> None:
        running = asyncio.create_task(tenure.run(self._rebalance_seconds))
        try:
            if self._keys:
                await self._take_keys(tenure)
            self.tenure = tenure
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _take_keys(self, tenure: Tenure) -> None:
        try:
            await tenure.submit(do.SetKeys(self._keys))
        except Refused as refusal:
            log.error("ownership keys stay as they are", err=str(refusal))
