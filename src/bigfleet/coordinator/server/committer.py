"""Commands in, committed rows out: one batch at a time, many commands to a sync.

The state runs ahead of the store by at most the batch in flight, so whoever tells others about the state waits for
`settled` first. A commit that fails breaks the committer for good: the state may be ahead, and the tenure ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.state import Applied, State
from bigfleet.coordinator.stores.store import NotLeader, Store, StoreError

if TYPE_CHECKING:
    from bigfleet.coordinator.core.commands import Command
    from bigfleet.coordinator.core.records import Row
    from bigfleet.coordinator.server.metrics import CoordinatorMetrics

# The most rows one command writes; a batch ends before the next could be too many.
ROWS_OF_ONE = 100


class Committer:
    """Applies and commits for one tenure; `run` until cancelled or broken."""

    def __init__(self, state: State, store: Store, metrics: CoordinatorMetrics) -> None:
        self._state = state
        self._store = store
        self._metrics = metrics
        self._waiting: deque[tuple[Command, asyncio.Future[Applied]]] = deque()
        self._work = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self.broken = asyncio.Event()

    async def submit(self, command: Command) -> Applied:
        """The outcome once it is durable; raises `Refused`, or `StoreError` when it is unknown or did not happen."""
        if self.broken.is_set():
            raise NotLeader("leadership lost")
        outcome: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, outcome))
        self._work.set()
        return await outcome

    async def settled(self) -> None:
        """When everything the state says is committed."""
        while not self._settled.is_set():
            await self._settled.wait()
        if self.broken.is_set():
            raise NotLeader("leadership lost")

    async def run(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while self._waiting:
                    await self._batch()
                    # Whoever waited for `settled` reads the state now, before the next batch runs ahead of the store.
                    await asyncio.sleep(0)
        finally:
            self.broken.set()
            self._settled.set()
            while self._waiting:
                _, outcome = self._waiting.popleft()
                _settle(outcome, NotLeader("leadership lost"))

    async def _batch(self) -> None:
        rows: dict[tuple[str, str], Row] = {}
        outcomes: list[tuple[asyncio.Future[Applied], Applied | Exception]] = []
        self._settled.clear()
        try:
            while self._waiting and len(rows) <= self._store.most_rows - ROWS_OF_ONE:
                command, outcome = self._waiting.popleft()
                try:
                    applied = self._state.apply(command)
                except Refused as refusal:
                    outcomes.append((outcome, refusal))
                    self._metrics.count("apply_total", "fsm_error")
                    continue
                rows.update({(row.table, row.key): row for row in applied.rows})
                outcomes.append((outcome, applied))
                self._metrics.count("apply_total", "success")
            if rows:
                begin = time.perf_counter()
                await self._store.commit(list(rows.values()))
                self._metrics.observe("store_commit_seconds", time.perf_counter() - begin)
        except BaseException as error:
            self._metrics.count("apply_total", "error", len(outcomes))
            self.broken.set()
            failure = error if isinstance(error, StoreError) else NotLeader("leadership lost")
            for outcome, _ in outcomes:
                _settle(outcome, failure)
            raise
        finally:
            self._settled.set()
        for outcome, result in outcomes:
            _settle(outcome, result)


def _settle(outcome: asyncio.Future[Applied], result: Applied | Exception) -> None:
    if outcome.done():
        return
    if isinstance(result, Exception):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)
