"""Group commit: what depends on a row happens after that row is durable, and many rows share one sync.

Rows are written in the order they were appended; a follow-up runs on the event loop once everything appended up to
it is committed. A store that fails ends the process (`failed`): answering from a state that was not kept would
break every promise the kit makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from bigfleet.provider.kit.core.events import Row
from bigfleet.provider.kit.store import Store, StoreError

log = structlog.get_logger(__name__)

FollowUp = Callable[[StoreError | None], None]


class Journal:
    """Feeds one store from one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: list[Row] = []
        self._follow_ups: list[FollowUp] = []
        self._writer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal") if store.durable else None
        self._error: StoreError | None = None
        self.commits = 0
        self.failed = asyncio.Event()

    def append(self, rows: Sequence[Row], then: FollowUp) -> None:
        """Write rows, then run the follow-up; both keep the order of the calls. After a failure nothing is written."""
        if self._error is not None:
            then(self._error)
        elif self._thread is None:
            self._store.write(rows)
            then(None)
        elif self._writer is None and not rows:
            then(None)
        else:
            self._rows.extend(rows)
            self._follow_ups.append(then)
            if self._writer is None:
                self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def settled(self) -> None:
        """Return once everything appended so far is durable; raise if it cannot become so."""
        if self._writer is None and self._error is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append((), lambda error: resolve(done, None, error))
        await done

    async def close(self) -> None:
        """Commit what is left and close the store."""
        while self._writer is not None:
            await self._writer
        if self._thread is not None:
            self._thread.shutdown()
        self._store.close()

    async def _write_all(self) -> None:
        while self._follow_ups:
            rows, self._rows = self._rows, []
            follow_ups, self._follow_ups = self._follow_ups, []
            await self._write(rows)
            for follow_up in follow_ups:
                follow_up(self._error)
        self._writer = None

    async def _write(self, rows: list[Row]) -> None:
        if not rows or self._error is not None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.write, rows)
        except Exception as error:
            log.error("state cannot be written; stopping", error=str(error))
            self._error = StoreError(f"state cannot be written: {error}")
            self.failed.set()
        else:
            self.commits += 1


Answer = TypeVar("Answer")


def resolve(future: asyncio.Future[Answer], result: Answer, error: Exception | None) -> None:
    """Settle a future its waiter may have given up on."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
