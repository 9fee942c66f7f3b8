"""Waits for an effect, for tests, tools and benchmarks: asked again until it is so, within a limit.

A fixed sleep is too short on a busy machine and wasted on an idle one. The limit is met only by what will never happen,
so it is generous: it costs nothing where all is well.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

PATIENCE_SECONDS = 60.0
SHORTEST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.1

Found = TypeVar("Found")


async def until(
    ask: Callable[[], Awaitable[Found] | Found],
    holds: Callable[[Found], object] = bool,
    *,
    seconds: float = PATIENCE_SECONDS,
    what: str = "",
) -> Found:
    """Ask until the answer holds, and return it; the limit ends a question that hangs as well."""
    found: Found | None = None
    pauses = _pauses()
    try:
        async with asyncio.timeout(seconds) as limit:
            while True:
                asked = ask()
                found = await asked if inspect.isawaitable(asked) else asked
                if holds(found):
                    return found
                await asyncio.sleep(next(pauses))
    except TimeoutError:
        if not limit.expired():
            raise
    raise AssertionError(_never(what or ask, seconds, found))


def wait_until(
    ask: Callable[[], Found],
    *,
    seconds: float = PATIENCE_SECONDS,
    what: str = "",
    evidence: Callable[[], object] | None = None,
) -> Found:
    """The same where no loop runs: ask until the answer is true, and tell the evidence if it never is."""
    end, pauses = time.monotonic() + seconds, _pauses()
    while not (found := ask()):
        if time.monotonic() >= end:
            raise AssertionError(_never(what or ask, seconds, evidence() if evidence else found))
        time.sleep(next(pauses))
    return found


def _pauses() -> Iterator[float]:
    """Short at first, because most effects come at once; then longer, because asking costs those who work on it."""
    pause = SHORTEST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(LONGEST_PAUSE_SECONDS, pause * 1.5)


def _never(what: object, seconds: float, found: object) -> str:
    return f"not within {seconds:g} s: {what}; last seen: {found}"
