"""Acknowledged: written once to every request whose roll-up the shard has answered, several side by side.

What was in which roll-up is remembered until its answer; what the shard rejected is not acknowledged, and nothing waits
for the writing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from bigfleet.model.names import API_GROUP, API_VERSION
from bigfleet.model.session import AckOutcome
from bigfleet.operator.kube.client import ApiError, Client
from bigfleet.operator.kube.worklist import Worklist
from bigfleet.operator.shell.metrics import OperatorMetrics


class Acknowledging:
    """`waiting` is kept by the view: requests that do not say Acknowledged yet, with their uids."""

    def __init__(self, client: Client, waiting: Mapping[str, str], metrics: OperatorMetrics, at_once: int) -> None:
        self._client = client
        self._waiting = waiting
        self._metrics = metrics
        self._sent: dict[int, dict[str, str]] = {}
        # Written by us and not yet seen so: whoever reads a stale list must not write again.
        self._written: dict[str, str] = {}
        self._batches: list[tuple[float, set[str]]] = []
        self.work = Worklist("acknowledge", self._acknowledge, at_once=max(1, at_once))

    def sent(self, timestamp: int) -> None:
        """A roll-up with everything that waits now has gone."""
        fresh = {key: uid for key, uid in self._waiting.items() if self._written.get(key) != uid}
        if fresh:
            self._sent[timestamp] = fresh
        for stale in [each for each in self._sent if each < timestamp - _FORGOTTEN_AFTER]:
            del self._sent[stale]
        if self._written:
            self._written = {key: uid for key, uid in self._written.items() if self._waiting.get(key) == uid}

    def answered(self, timestamp: int, outcome: AckOutcome) -> None:
        batch = self._sent.pop(timestamp, None)
        if batch is None or outcome is AckOutcome.REJECTED:
            return
        self._batches.append((time.monotonic(), set(batch)))
        for key in batch:
            self.work.add(key)

    async def _acknowledge(self, key: str) -> None:
        uid = self._waiting.get(key)
        if uid is not None and self._written.get(key) != uid:
            namespace, _, name = key.partition("/")
            path = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{namespace}/capacityrequests/{name}/status"
            body = {
                # A request of the same name that came after it is another request.
                "metadata": {"uid": uid},
                "status": {"phase": "Acknowledged", "acknowledgedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
            }
            try:
                await self._client.patch(path, body)
                self._written[key] = uid
                self._metrics.acknowledged.inc()
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
        self._finished(key)

    def _finished(self, key: str) -> None:
        for began, batch in self._batches:
            if key in batch:
                batch.discard(key)
                if not batch:
                    self._metrics.acknowledge.observe(time.monotonic() - began)
        self._batches = [each for each in self._batches if each[1]]


_FORGOTTEN_AFTER = 120 * 1_000_000_000
