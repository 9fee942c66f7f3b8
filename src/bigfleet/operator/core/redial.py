"""When the next stream is opened, and where: pauses that double and start over, referrals that cannot go in circles.

Owns no randomness: jitter comes from outside, so a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.operator.core.events import SECOND, StreamEnd

FIRST_PAUSE = SECOND // 2
LONGEST_PAUSE = 30 * SECOND
REPLACED_PAUSE = 30 * SECOND
# So often is a referral followed without a pause, and a referred address tried before the configured one is again.
REFERRALS_IN_A_ROW = 3

# The pause before attempt n (0, 1, …) after the last stream that was greeted.
Pauses = Callable[[int], int]


def doubling(jitter: Callable[[], float]) -> Pauses:
    """From half a second to half a minute, each shortened by up to half; `jitter` draws from 0 to 1."""

    def pause(attempt: int) -> int:
        whole = min(FIRST_PAUSE << min(attempt, 16), LONGEST_PAUSE)
        return whole - int(whole * 0.5 * jitter())

    return pause


class Redial:
    """Where and when to dial next; `due` is None while a stream is open or being opened."""

    def __init__(self, address: str, pauses: Pauses) -> None:
        self.address = address
        self.due: int | None = None
        self._configured = address
        self._pauses = pauses
        self._attempts = 0
        self._referrals = 0

    def at_once(self, now: int) -> None:
        self.due = now

    def dialled(self) -> None:
        self.due = None

    def greeted(self) -> None:
        """The shard took us: whatever went wrong before is over."""
        self._attempts = self._referrals = 0

    def ended(self, end: StreamEnd, redirect: str, now: int) -> None:
        if redirect and redirect != self.address and self._referrals < REFERRALS_IN_A_ROW:
            self.address, self.due = redirect, now
            self._referrals += 1
            return
        pause = self._pauses(self._attempts)
        if end is StreamEnd.REPLACED:
            pause += REPLACED_PAUSE
        self._attempts += 1
        self.due = now + pause
        if redirect or self._attempts % REFERRALS_IN_A_ROW == 0:
            # Whoever referred us may know better by now.
            self.address = self._configured
            self._referrals = 0
