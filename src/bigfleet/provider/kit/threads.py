"""Threads for plain (blocking) provider methods.

They are daemons and reused: a backend call that never returns must not keep the process from ending, and starting
a thread per call would hold up the event loop, and with it every acknowledgement. Only the event loop calls this
module.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_stop_requested: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("stop", default=None)

_Call = Callable[[], None]


def stop_requested() -> bool:
    """For plain methods that block: True once nobody waits for this call any more."""
    event = _stop_requested.get()
    return event is not None and event.is_set()


class DaemonThreads:
    """At most `limit` calls at once; further ones wait their turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._started = 0
        self._pending = 0

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The function's result. A cancelled caller still stays until the thread ends, so a late host is noticed."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        stop = threading.Event()
        context = contextvars.copy_context()
        context.run(_stop_requested.set, stop)

        def report(result: Any, error: BaseException | None) -> None:
            self._pending -= 1
            if outcome.done():
                return
            if error is None:
                outcome.set_result(result)
            else:
                outcome.set_exception(_portable(error))

        def call() -> None:
            try:
                result, error = context.run(function, *arguments), None
            except BaseException as raised:
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(report, result, error)
            except RuntimeError:
                return  # the loop has ended; nobody waits

        self._submit(call)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            if outcome.done():
                raise
            stop.set()
            return await outcome

    def _submit(self, call: _Call) -> None:
        self._pending += 1
        self._calls.put(call)
        if self._pending > self._started and self._started < self._limit:
            self._started += 1
            # Not Thread.start(): it waits until the thread runs, and a burst of those would stall the loop.
            _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        while True:
            self._calls.get()()


def _portable(error: BaseException) -> Exception:
    """Exceptions a future cannot carry, or the loop would take for its own, become plain ones."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | asyncio.CancelledError):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
