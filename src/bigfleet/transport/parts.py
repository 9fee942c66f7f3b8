"""The parts of a process that run until it stops: one that breaks ends the process, and none outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


class Parts:
    """Background work of one process. What breaks is told by `until`, in the order in which it broke."""

    def __init__(self) -> None:
        self._broken: asyncio.Queue[BaseException] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def watched() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self._broken.put_nowait(error)

        task = asyncio.get_running_loop().create_task(watched())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, stop: asyncio.Event) -> None:
        """Until `stop` is set or a part breaks; raises what broke."""
        stopping = asyncio.ensure_future(stop.wait())
        broken = asyncio.ensure_future(self._broken.get())
        try:
            await asyncio.wait({stopping, broken}, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                raise broken.result()
        finally:
            stopping.cancel()
            broken.cancel()

    async def serve(
        self, stop: asyncio.Event, start: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
    ) -> None:
        """From `start` until `stop` is set or a part breaks, then `end` in any case; raises what broke."""
        await start()
        try:
            await self.until(stop)
        finally:
            await end()

    async def end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
