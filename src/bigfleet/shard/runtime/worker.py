"""One thread that does one thing after the other for the event loop, and that never keeps a process from ending.

`ThreadPoolExecutor` joins its threads when the interpreter exits: a disk that hangs or a kernel that compiles would
keep a shard that was told to stop. This thread is a daemon; what must be durable has been waited for before.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs functions in order; `run` is called from the event loop."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._busy = False
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether it is in the middle of something."""
        return self._busy

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """The result of `work(*args)`, computed in the thread after everything asked for before."""
        future: Future[T] = Future()
        self._jobs.put((future, lambda: work(*args)))
        return asyncio.wrap_future(future)

    def close(self) -> None:
        """No more jobs; the thread ends after those it has."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            if not future.set_running_or_notify_cancel():
                continue
            self._busy = True
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                self._busy = False
