"""How fast a provider that limits calls is asked: found out by its own answers.

A refusal for rate makes calls fewer, each one taken makes them a little more, until nothing is left of the limit. What
was under way when a refusal came belongs to the same wave and says nothing new. Up to a modest pace one refusal is
enough to slow down; beyond it takes several in a row, because some clouds refuse by chance and not by rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.engine.policy import MINUTE, SECOND

FIRST = SECOND // 4
MODEST = SECOND // 2
# Refusals in a row after which even a modest pace is too fast.
PERSISTENT = 4
# A pace faster than that is no limit any more.
QUICK = SECOND // 50


@dataclass(slots=True)
class Pace:
    """Time between two calls of one provider; 0 while it takes what it gets."""

    interval: int = 0
    # Refusals in a row.
    refusals: int = 0
    refused_at: int = -MINUTE
    sent_at: int = 0

    def ready_at(self, now: int) -> int:
        """When the next call may go out."""
        if not self.interval:
            return 0
        if now - self.refused_at > MINUTE:
            # What it was like long ago must not keep the first call of a new wave waiting.
            self.interval = min(self.interval, MODEST)
        return max(self.sent_at, self.refused_at) + self.interval

    def refused(self, sent: int, now: int, longest: int) -> None:
        """A call that went out then was refused because there were too many."""
        if sent < self.refused_at:
            return
        self.refusals += 1
        self.refused_at = now
        if not self.interval:
            self.interval = FIRST
            return
        limit = longest if self.refusals >= PERSISTENT else MODEST
        self.interval = max(self.interval, min(2 * self.interval, limit))

    def taken(self, sent: int) -> None:
        """A call that went out then was taken."""
        if not self.interval or sent < self.refused_at:
            return
        self.refusals = 0
        self.interval = self.interval // 2 if self.interval > MODEST else self.interval * 9 // 10
        if self.interval < QUICK:
            self.interval = 0

    def limited(self, now: int) -> bool:
        """Whether a limit is felt at the moment."""
        return self.interval > 0 and now - self.refused_at <= MINUTE
