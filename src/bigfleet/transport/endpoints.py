"""The plaintext HTTP side of a process: `/metrics`, `/healthz`, `/readyz`, and nothing else.

It must never slow the process down or be a way in: one request per connection, small bounded headers, deadlines on
reading, rendering and writing, a bounded number of connections of which the newest stay, and metrics rendered in a
thread of their own.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from bigfleet.transport.address import split
from bigfleet.transport.errors import TransportError
from bigfleet.transport.listener import Listener

log = structlog.get_logger(__name__)

MAX_CONNECTIONS = 64
MAX_HEADER_BYTES = 8192
READ_SECONDS = 5.0
RENDER_SECONDS = 30.0
WRITE_SECONDS = 30.0
_TEXT = "text/plain; charset=utf-8"


class Readiness(Protocol):
    """Asked at each `/readyz`: None when ready, else one line saying what is missing."""

    def __call__(self) -> str | None: ...


class HttpEndpoints:
    """Serves the three pages on one address. `"0"` or an empty address means switched off."""

    def __init__(
        self,
        address: str,
        *,
        registry: CollectorRegistry,
        ready: Sequence[Readiness] = (),
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self.enabled = address not in ("", "0")
        self._host, self._port = split(address) if self.enabled else ("", 0)
        self._registry = registry
        self._ready = tuple(ready)
        self._read_seconds = read_seconds
        self._stopping = False
        self._renderer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics")
        self._listener: Listener | None = None
        self._pages: dict[str, Callable[[], asyncio.Future[_Answer] | _Answer]] = {
            "/metrics": self._metrics,
            "/healthz": lambda: _Answer(HTTPStatus.OK),
            "/readyz": self._readiness,
        }

    @property
    def port(self) -> int:
        """The bound port; 0 when switched off or not started."""
        return 0 if self._listener is None else self._listener.port

    async def start(self) -> None:
        if not self.enabled:
            return
        try:
            self._listener = Listener(self._host, self._port, self._serve, most=MAX_CONNECTIONS, limit=MAX_HEADER_BYTES)
        except OSError as error:
            raise TransportError(f"cannot serve metrics on {self._host}:{self._port}: {error.strerror}") from error
        log.info("metrics serving", addr=f"{self._host}:{self.port}")

    def begin_stop(self) -> None:
        """From now on `/readyz` answers 503, while the other pages go on until `stop`."""
        self._stopping = True

    async def stop(self) -> None:
        self.begin_stop()
        if self._listener is not None:
            await self._listener.close()
        self._renderer.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, answer = await self._answer(reader)
            writer.write(answer.encoded(with_body=method != "HEAD"))
            async with asyncio.timeout(WRITE_SECONDS):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            # The peer is gone or does not read; there is nobody to tell.
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise

    async def _answer(self, reader: asyncio.StreamReader) -> "tuple[str, _Answer]":
        try:
            async with asyncio.timeout(self._read_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return "", _Answer(HTTPStatus.REQUEST_TIMEOUT)
        except asyncio.LimitOverrunError:
            return "", _Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except asyncio.IncompleteReadError:
            return "", _Answer(HTTPStatus.BAD_REQUEST)
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "", _Answer(HTTPStatus.BAD_REQUEST)
        return words[0], await self._page(words[0], words[1].partition("?")[0])

    async def _page(self, method: str, path: str) -> "_Answer":
        page = self._pages.get(path)
        if page is None:
            return _Answer(HTTPStatus.NOT_FOUND, b"pages: /metrics /healthz /readyz\n")
        if method not in ("GET", "HEAD"):
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            answer = page()
            if isinstance(answer, _Answer):
                return answer
            async with asyncio.timeout(RENDER_SECONDS):
                return await answer
        except TimeoutError:
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"rendering took too long\n")
        except Exception:
            log.exception("page failed", path=path)
            return _Answer(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _metrics(self) -> "asyncio.Future[_Answer]":
        return asyncio.get_running_loop().run_in_executor(self._renderer, self._render)

    def _render(self) -> "_Answer":
        return _Answer(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)

    def _readiness(self) -> "_Answer":
        missing = [reason for check in self._ready if (reason := check())]
        if self._stopping:
            missing.append("shutting down")
        if missing:
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{line}\n" for line in missing).encode())
        return _Answer(HTTPStatus.OK)


class _Answer:
    """A complete response; the connection always closes after it."""

    def __init__(self, status: HTTPStatus, body: bytes = b"", content_type: str = _TEXT) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type

    def encoded(self, *, with_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode("latin-1") + (self.body if with_body else b"")
