"""HTTP/1.1 towards one server: kept connections, plain answers, and answers that never end.

Our own, because what an operator does most is small requests to one server it trusts: a general client spends several
milliseconds of processor on each, mostly on looking through its pool, and a burst of pods then keeps the operator from
answering its shard. Speaks only what API servers speak: no redirects, no proxies, no compression.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

# How long an unused connection is kept; servers close theirs later, so that it is hardly ever met half closed.
KEPT_SECONDS = 30.0
MOST_HEADERS = 64 * 1024
_READ = 256 * 1024


class BrokenError(Exception):
    """No whole answer: the connection could not be made, broke, or what came is not HTTP."""


class SilentError(BrokenError):
    """Nothing came for too long."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first part of an answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]


class _Connection:
    __slots__ = ("free_since", "reader", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.free_since = 0.0

    @property
    def is_usable(self) -> bool:
        fresh = time.monotonic() - self.free_since < KEPT_SECONDS
        return fresh and not self.reader.at_eof() and not self.writer.is_closing()

    def close(self) -> None:
        self.writer.close()


class Http:
    """At most `at_once` requests side by side; streams have connections of their own."""

    def __init__(
        self, server: str, trust: ssl.SSLContext, *, agent: str, connect_seconds: float, at_once: int = 32
    ) -> None:
        parts = urlsplit(server)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._trust = trust if self._secure else None
        self._connect_seconds = connect_seconds
        self._fixed = f"Host: {parts.netloc}\r\nUser-Agent: {agent}\r\nAccept: application/json\r\n"
        self._free: list[_Connection] = []
        self._places = asyncio.Semaphore(at_once)

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> tuple[Head, bytes]:
        """One request and its whole answer."""
        message = self._message(method, path, headers, body)
        async with self._places:
            kept = self._kept()
            if kept is not None:
                try:
                    return await self._exchange(kept, message, seconds)
                except BrokenError:
                    # It may have been closed while it was not used. What creates something is left to the caller: the
                    # server may have got it.
                    if method == "POST":
                        raise
            return await self._exchange(await self._connected(), message, seconds)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], silent_seconds: float
    ) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
        """An answer in the pieces it comes in; silence for so long is its end."""
        connection = await self._connected()
        try:
            try:
                async with asyncio.timeout(silent_seconds):
                    connection.writer.write(self._message("GET", path, headers, None))
                    head = await _head(connection.reader)
            except _BROKEN as error:
                raise _broken(error) from error
            yield head, _pieces(connection.reader, head, silent_seconds)
        finally:
            connection.close()

    def _message(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if body is not None:
            lines += f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._fixed}{lines}\r\n"
        return head.encode("latin-1") + (body or b"")

    def _kept(self) -> _Connection | None:
        while self._free:
            # The one used last: others may age and go.
            connection = self._free.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def _connected(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_seconds):
                opened = await asyncio.open_connection(self._host, self._port, ssl=self._trust, limit=_READ)
        except _BROKEN as error:
            raise _broken(error) from error
        return _Connection(*opened)

    async def _exchange(self, connection: _Connection, message: bytes, seconds: float) -> tuple[Head, bytes]:
        whole = False
        try:
            async with asyncio.timeout(seconds):
                connection.writer.write(message)
                head = await _head(connection.reader)
                body = b"".join([piece async for piece in _pieces(connection.reader, head)])
                whole = "close" not in head.headers.get("connection", "").lower() and _is_delimited(head)
                return head, body
        except _BROKEN as error:
            raise _broken(error) from error
        finally:
            if whole:
                connection.free_since = time.monotonic()
                self._free.append(connection)
            else:
                connection.close()


def target(path: str, parameters: Mapping[str, str] | None) -> str:
    """Path and query of a request."""
    written = quote(path, safe="/:@!$&'()*+,;=~-._%")
    return f"{written}?{urlencode(parameters)}" if parameters else written


_BROKEN = (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError)


def _broken(error: BaseException) -> BrokenError:
    if isinstance(error, TimeoutError):
        return SilentError("no answer in time")
    if isinstance(error, asyncio.IncompleteReadError):
        return BrokenError("the server closed the connection in the middle of an answer")
    return BrokenError(f"{type(error).__name__}: {error}")


async def _head(reader: asyncio.StreamReader) -> Head:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    if len(text) > MOST_HEADERS:
        raise ValueError(f"headers of {len(text)} bytes")
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"not an HTTP answer: {first[:60]!r}")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return Head(int(rest[:3]), headers)


def _is_delimited(head: Head) -> bool:
    return _has_no_body(head) or "content-length" in head.headers or _is_chunked(head)


def _has_no_body(head: Head) -> bool:
    return head.status in (204, 304) or head.status < 200


def _is_chunked(head: Head) -> bool:
    return "chunked" in head.headers.get("transfer-encoding", "").lower()


async def _pieces(reader: asyncio.StreamReader, head: Head, silent: float | None = None) -> AsyncIterator[bytes]:
    """The body; each piece within `silent` seconds of the one before."""
    if _has_no_body(head):
        return
    try:
        if _is_chunked(head):
            while True:
                async with asyncio.timeout(silent):
                    size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
                    piece = (await reader.readexactly(size + 2))[:-2]
                if not size:
                    return
                yield piece
        elif (length := head.headers.get("content-length")) is not None:
            async with asyncio.timeout(silent):
                whole = await reader.readexactly(int(length))
            yield whole
        else:
            while True:
                async with asyncio.timeout(silent):
                    piece = await reader.read(_READ)
                if not piece:
                    return
                yield piece
    except _BROKEN as error:
        raise _broken(error) from error
