"""The lifetime of a binary: run until a signal, stop in order, exit with a code that tells the truth.

SIGINT and SIGTERM ask for an orderly stop, also where whoever started us had them ignored, as a shell does for what
runs in its background: servers are stopped by signal, and a request to stop must not get lost. A second signal, or a
stop that outlasts its grace, cancels whatever is left; a task that ignores even that is abandoned, because a process
told to stop must stop.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable

import structlog

from bigfleet.refusal import REFUSED, RefusalError, exit_code

log = structlog.get_logger(__name__)

STOP_SECONDS = 30.0
_CANCEL_SECONDS = 5.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Serve = Callable[[asyncio.Event], Awaitable[None]]


def run_until_signal(serve: Serve, *, grace: float = STOP_SECONDS) -> int:
    """Run `serve(stop)` and return the exit code: 0 for an orderly end, that of the refusal or failure otherwise.

    `serve` sets its parts up, awaits `stop.wait()`, takes them down within `grace` seconds and returns. Returning
    earlier also ends the process. A task or worker thread that cannot be ended makes the process exit with 1 here.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        code = loop.run_until_complete(supervise(serve, grace=grace))
        # asyncio's own clean-up waits for stubborn tasks and threads without a limit.
        last_resort = threading.Timer(_CANCEL_SECONDS, _exit_now)
        last_resort.daemon = True
        last_resort.start()
        loop.run_until_complete(_cancel_the_rest())
        last_resort.cancel()
        return code
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def supervise(serve: Serve, *, grace: float = STOP_SECONDS) -> int:
    """`run_until_signal` for a loop that already runs."""
    loop = asyncio.get_running_loop()
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal(received: signal.Signals) -> None:
        if stop.is_set():
            hurry.set()
            return
        log.info("signal received, shutting down", signal=received.name)
        stop.set()

    for received in _SIGNALS:
        loop.add_signal_handler(received, on_signal, received)
    task = loop.create_task(_completed(serve(stop)))
    try:
        await _first_of(task, stop, None)
        if not task.done():
            await _first_of(task, hurry, grace)
        return await _finish(task)
    finally:
        for received in _SIGNALS:
            loop.remove_signal_handler(received)


async def _completed(served: Awaitable[None]) -> None:
    await served


async def _first_of(task: asyncio.Task[None], event: asyncio.Event, seconds: float | None) -> None:
    waiting = asyncio.create_task(_happened(event))
    await asyncio.wait({task, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _happened(event: asyncio.Event) -> None:
    await event.wait()


async def _finish(task: asyncio.Task[None]) -> int:
    if not task.done():
        log.warning("shutdown outlasted its grace; cancelling what is left")
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_SECONDS)
        return 1
    if task.cancelled():
        return 1
    error = task.exception()
    if error is None:
        return 0
    if isinstance(error, RefusalError):
        log.error("component exited", err=str(error))
        return exit_code(error)
    log.error("component exited", err=str(error), exc_info=error)
    return REFUSED


async def _cancel_the_rest() -> None:
    loop = asyncio.get_running_loop()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def _exit_now() -> None:
    log.error("tasks or threads ignored the stop; exiting without them")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
