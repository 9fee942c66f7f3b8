"""The shard's clock: Unix nanoseconds that never jump.

Anchored to the wall clock once, then driven by the monotonic one: whoever sets the host's clock moves no deadline,
hold or grace of a running shard.
"""

from __future__ import annotations

import time


class SteadyClock:
    """Callable: the instant now."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return time.monotonic_ns() + self._offset

    def from_monotonic(self, monotonic_ns: int) -> int:
        """The instant a monotonic reading stands for."""
        return monotonic_ns + self._offset
