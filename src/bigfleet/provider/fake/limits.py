"""A token bucket: how long a call has to wait for a backend that takes only so many per second. Pure."""

from __future__ import annotations

from bigfleet.provider.fake.catalogue import RateLimit


class TokenBucket:
    """Full at the start; calls beyond the burst queue up in the order they come."""

    def __init__(self, limit: RateLimit, now: float) -> None:
        self._limit = limit
        self._tokens = float(limit.burst)
        self._at = now

    def take(self, now: float) -> float:
        """Seconds this call waits. A limit that fails the excess takes nothing for a call it turns away."""
        limit = self._limit
        self._tokens = min(float(limit.burst), self._tokens + (now - self._at) * limit.per_second)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        wait = (1.0 - self._tokens) / limit.per_second
        if not limit.fail:
            self._tokens -= 1.0
        return wait
