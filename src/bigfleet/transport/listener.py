"""Accepts connections of a page that must be answered when nothing else works any more.

When a process runs out of file descriptors, asyncio's own listener tells of it a hundred times a second and accepts
nobody. This one keeps descriptors in reserve for its next visitors, says so once a second, and lets newcomers in by
sending those away who have been there longest: a probe is answered in a moment, who stays is slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger(__name__)

IN_RESERVE = 8
RETRY_SECONDS = 0.1
TELL_SECONDS = 1.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BACKLOG = 128

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """A bound address. `serve(reader, writer)` is run for every visitor, at most `most` at a time."""

    def __init__(self, host: str, port: int, serve: Serve, *, most: int, limit: int) -> None:
        """Bind; raises OSError."""
        self._socket = _bound(host, port)
        self._socket.setblocking(False)
        self._serve = serve
        self._most = most
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        # In the order they came.
        self._open: dict[asyncio.Task[None], None] = {}
        self._spare: list[int] = []
        self._told = 0.0
        self._closed = False
        self._fill_reserve()
        self._loop.add_reader(self._socket, self._visited)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    async def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        while self._spare:
            os.close(self._spare.pop())

    def _visited(self) -> None:
        for _ in range(_BACKLOG):
            try:
                visitor, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._tell(error)
                if not self._spare:
                    # Nobody can be let in before somebody leaves; asking at once again would keep the loop busy.
                    self._loop.remove_reader(self._socket)
                    self._loop.call_later(RETRY_SECONDS, self._resume)
                    return
                os.close(self._spare.pop())
                continue
            visitor.setblocking(False)
            self._admit(visitor)

    def _admit(self, visitor: socket.socket) -> None:
        while len(self._open) >= self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        task = self._loop.create_task(self._greet(visitor))
        self._open[task] = None
        task.add_done_callback(self._left)

    async def _greet(self, visitor: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=self._limit)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, visitor)
        except BaseException:
            visitor.close()
            raise
        await self._serve(reader, asyncio.StreamWriter(transport, protocol, reader, self._loop))

    def _left(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("page failed", err=str(task.exception()))
        # The transport gives its descriptor back in the loop's next turn.
        self._loop.call_soon(self._fill_reserve)

    def _resume(self) -> None:
        if not self._closed:
            self._fill_reserve()
            self._loop.add_reader(self._socket, self._visited)

    def _fill_reserve(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spare) < IN_RESERVE and not self._closed:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _tell(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            log.error(
                "no file descriptors left; pages are served from a reserve",
                err=error.strerror,
                reserve=len(self._spare),
            )


def _bound(host: str, port: int) -> socket.socket:
    if not host:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=_BACKLOG)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
