"""Requests to the API server: one HTTP client, one rate limit, errors that say what the server said.

No client library: one would decode every object into its own classes, which is most of what a list costs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bigfleet.operator.kube.access import Access
from bigfleet.operator.kube.http import BrokenError, Http, SilentError, target

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
# Bookmarks come about every minute where anything happens to a kind: a stream that is silent for longer is opened anew,
# because it may be dead whatever TCP believes.
SILENT_SECONDS = 100.0


class ApiError(Exception):
    """The server refused. `retry_after` is what it asked us to wait, in seconds; `causes` are those of its Status."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0, causes: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.causes = causes


class UnreachableError(Exception):
    """No answer: the connection could not be made, broke, or stayed silent."""


class QuietError(UnreachableError):
    """A stream that was open said nothing for long: dead, or nothing happened."""


class RateLimit:
    """So many requests a second on average, so many at once."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / qps if qps > 0 else 0.0
        self._allowance = self._interval * max(1, burst)
        self._clock = clock
        self._free_at = 0.0

    def reserve(self) -> float:
        """Take one request; how long to wait before it may go."""
        now = self._clock()
        self._free_at = max(self._free_at, now - self._allowance) + self._interval
        return max(0.0, self._free_at - now)


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0.0
    causes: tuple[_Cause, ...] = ()


class Status(msgspec.Struct):
    """Kubernetes' own form of an error."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class Client:
    """One connection pool to one API server."""

    def __init__(self, access: Access, *, qps: float = 50.0, burst: int = 100, agent: str = "bigfleet") -> None:
        self._access = access
        self._limit = RateLimit(qps, burst)
        self.answers: Callable[[str, int], None] = lambda verb, status: None
        # A proxy of the environment is for the world outside; this is the cluster's own API server.
        self._http = Http(access.server, access.trust, agent=agent, connect_seconds=CONNECT_SECONDS)

    async def close(self) -> None:
        self._http.close()

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> bytes:
        return await self._call("GET", path, parameters=parameters)

    async def create(self, path: str, body: object) -> bytes:
        return await self._call("POST", path, body)

    async def replace(self, path: str, body: object) -> bytes:
        return await self._call("PUT", path, body)

    async def patch(self, path: str, body: object, kind: str = MERGE_PATCH) -> bytes:
        return await self._call("PATCH", path, body, kind)

    async def delete(self, path: str, body: object = None) -> bytes:
        return await self._call("DELETE", path, body)

    @asynccontextmanager
    async def stream(self, path: str, parameters: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch: its lines, for as long as the server goes on."""
        await asyncio.sleep(self._limit.reserve())
        try:
            opening = self._http.stream(target(path, parameters), self._access.headers(), SILENT_SECONDS)
            async with opening as (head, pieces):
                self.answers("WATCH", head.status)
                if head.status != 200:
                    raise _refused(head.status, b"".join([piece async for piece in pieces]), head.headers)
                yield _lines(pieces)
        except SilentError as error:
            raise QuietError(str(error)) from error
        except BrokenError as error:
            raise UnreachableError(str(error)) from error

    async def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        kind: str = "application/json",
        *,
        parameters: Mapping[str, str] | None = None,
    ) -> bytes:
        wait = self._limit.reserve()
        if wait:
            await asyncio.sleep(wait)
        headers = self._access.headers()
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers["Content-Type"] = kind
        try:
            head, answer = await self._http.ask(method, target(path, parameters), headers, content, ANSWER_SECONDS)
        except BrokenError as error:
            raise UnreachableError(str(error)) from error
        self.answers(method, head.status)
        if head.status >= 400:
            raise _refused(head.status, answer, head.headers)
        return answer


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest: list[bytes] = []
    async for chunk in pieces:
        first, *more = chunk.split(b"\n")
        rest.append(first)
        for part in more:
            line = b"".join(rest)
            rest = [part]
            if line:
                yield line


def _refused(status: int, content: bytes, headers: Mapping[str, Any]) -> ApiError:
    try:
        told = msgspec.json.decode(content, type=Status)
    except msgspec.MsgspecError:
        told = Status(status, "", content[:300].decode(errors="replace").strip())
    details = told.details or _Details()
    try:
        asked = float(headers.get("retry-after", 0))
    except ValueError:
        asked = 0.0
    causes = "; ".join(cause.message for cause in details.causes if cause.message)
    return ApiError(status, told.reason, told.message, asked or details.retry_after_seconds, causes)
