"""How fast a provider that limits calls is asked: found out by its own answers.

A refusal for rate makes calls fewer; calls taken one after the other make them more, until nothing is left of the
limit. What was under way when a refusal came belongs to the same wave and says nothing new. Beyond a modest pace one
refusal is not enough to slow down, because some clouds refuse by chance and not by rate: it takes many in a row, or
that of many calls taken none ever followed another without a refusal between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.engine.policy import MINUTE, SECOND

FIRST = SECOND // 4
MODEST = SECOND // 2
# Refusals in a row after which even a modest pace is too fast, and those after which the next one is too.
PERSISTENT = 12
AGAIN = 6
# The same of calls taken each after a refusal.
ALONE = 8
# A pace faster than that is no limit any more.
QUICK = SECOND // 50


@dataclass(slots=True)
class Pace:
    """Time between two calls of one provider; 0 while it takes what it gets."""

    interval: int = 0
    # Calls refused, and calls taken, one after the other; of those taken after a refusal how many since two in a row.
    refusals: int = 0
    row: int = 0
    alone: int = 0
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
        self.row = 0
        self.refused_at = now
        if not self.interval:
            self.interval = FIRST
            return
        if self.interval < MODEST:
            self.interval = min(2 * self.interval, MODEST)
        elif self.refusals >= PERSISTENT and self.refusals % AGAIN == 0:
            self.interval = min(2 * self.interval, longest)

    def taken(self, sent: int, longest: int) -> None:
        """A call that went out then was taken."""
        if not self.interval or sent < self.refused_at:
            return
        if self.refusals:
            self.refusals = 0
            self.alone += 1
            if self.alone >= ALONE:
                self.alone = 0
                self.interval = min(2 * self.interval, longest)
            return
        self.alone = 0
        self.row = min(self.row + 1, 5)
        if self.interval > MODEST:
            self.interval = max(MODEST, self.interval // 2)
        else:
            self.interval = self.interval * (10 - self.row) // 10
        if self.interval < QUICK:
            self.interval = 0

    def limited(self, now: int) -> bool:
        """Whether a limit is felt at the moment."""
        return self.interval > 0 and now - self.refused_at <= MINUTE
