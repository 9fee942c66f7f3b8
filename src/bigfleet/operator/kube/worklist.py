"""Work on objects by name: told often, done once, tried again with growing pauses until it is done.

What has to be done is worked out when it is done, from what is known then; so however often a key is added meanwhile,
it is worked on at most once at a time and once more afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from bigfleet.operator.kube.client import ApiError, UnreachableError

log = structlog.get_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
CONFLICT = 409

# Does what has to be done; returns after how many seconds to look again, if that is known.
Work = Callable[[str], Awaitable[float | None]]


class Worklist:
    """Keys to work on, `at_once` of them side by side."""

    def __init__(self, name: str, work: Work, *, at_once: int = 32) -> None:
        self._name = name
        self._work = work
        self._at_once = at_once
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._active: set[str] = set()
        self._again: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._later: dict[str, asyncio.TimerHandle] = {}
        self.failures = 0

    def add(self, key: str) -> None:
        if key in self._active:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._queue.put_nowait(key)
        if (timer := self._later.pop(key, None)) is not None:
            timer.cancel()

    def add_later(self, key: str, seconds: float) -> None:
        if (timer := self._later.pop(key, None)) is not None:
            timer.cancel()
        self._later[key] = asyncio.get_running_loop().call_later(seconds, self._due, key)

    @property
    def busy(self) -> int:
        return len(self._active)

    @property
    def idle(self) -> bool:
        return not (self._active or self._waiting)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._at_once):
                workers.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            key = await self._queue.get()
            self._waiting.discard(key)
            self._active.add(key)
            pause: float | None = None
            try:
                pause = await self._work(key)
                self._attempts.pop(key, None)
            except (ApiError, UnreachableError) as error:
                pause = self._failed(key, error)
            finally:
                self._active.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif pause is not None:
                self.add_later(key, pause)

    def _failed(self, key: str, error: ApiError | UnreachableError) -> float:
        self.failures += 1
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        asked = error.retry_after if isinstance(error, ApiError) else 0.0
        if not (isinstance(error, ApiError) and error.status == CONFLICT):
            log.warning("will be tried again", what=self._name, object=key, err=str(error), attempt=attempt + 1)
        pause: float = min(FIRST_PAUSE * 2.0 ** min(attempt, 12), LONGEST_PAUSE)
        return max(asked, pause) * random.uniform(0.5, 1.0)

    def _due(self, key: str) -> None:
        self._later.pop(key, None)
        self.add(key)
