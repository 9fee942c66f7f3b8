"""When a roll-up goes: at once on a new stream, at every interval, early only when demand grew, one in flight.

None goes before the view of the cluster is complete: half a list would withdraw the other half of the demand. And none
in the middle of a growth: pods of a Deployment come one after the other, and told one by one each
would be bought a machine of its own (ADR 25).
"""

from __future__ import annotations

from bigfleet.operator.core.events import SECOND

EARLY_INTERVAL = SECOND
# A shard of the base contract does not answer a roll-up it rejects; the next one must still come.
ANSWER_LOST_AFTER = 30 * SECOND
# Growth is told once it has paused for so long, and so long after it began at the latest.
GATHER_PAUSE = 2 * SECOND
GATHER_MOST = 10 * SECOND
# A shard buys nothing by a roll-up older than 30 s: gathering keeps well within that.
OLDEST = 20 * SECOND


class RollupPace:
    """The roll-ups of one stream after the other. `gathers`: growth is told together; without it as it comes."""

    def __init__(self, interval: int, *, complete: bool, gathers: bool = False) -> None:
        if interval <= 0:
            raise ValueError(f"roll-up interval {interval} ns is not positive; give at least one second")
        self.complete = complete
        self.in_flight: int | None = None
        self._interval = interval
        self._gathers = gathers
        self._grows_since: int | None = None
        self._due: int | None = None
        self._last: int | None = None

    def opened(self, now: int) -> None:
        self._due, self._last, self.in_flight, self._grows_since = now, None, None, None

    def closed(self) -> None:
        self._due = self._last = self.in_flight = self._grows_since = None

    def grew(self, now: int) -> None:
        if self._due is None or self._last is None:
            return  # no stream, or its first roll-up is due at once
        soonest = max(now, self._last + EARLY_INTERVAL)
        if not self._gathers:
            self._due = min(self._due, soonest)
            return
        if self._grows_since is None:
            self._grows_since = now
        gathered = min(now + GATHER_PAUSE, self._grows_since + GATHER_MOST)
        self._due = min(max(soonest, gathered), self._last + max(self._interval, OLDEST))

    def sent(self, now: int) -> None:
        self._grows_since = None
        self.in_flight = self._last = now
        self._due = now + self._interval

    def answered(self, timestamp: int) -> int | None:
        """Which roll-up this answers, if one waits for an answer."""
        if self.in_flight is None or timestamp not in (0, self.in_flight):
            return None
        answered, self.in_flight = self.in_flight, None
        return answered

    def due(self) -> int | None:
        if self._due is None or not self.complete:
            return None
        if self.in_flight is None:
            return self._due
        return max(self._due, self.in_flight + ANSWER_LOST_AFTER)

    def validate(self) -> None:
        assert self.in_flight is None or self.in_flight == self._last, "a roll-up in flight that is not the last"
        assert self._due is not None or self._last is None, "a roll-up without a stream"
