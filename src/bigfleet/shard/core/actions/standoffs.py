"""Providers that refuse this shard's newest tokens: another process acts for it, or its epoch was lost.

One stale answer may be an accident and only rests its machine. The newest token refused twice for a machine, or on two
machines within a minute, is a stand-off: nothing more is asked of that provider until a person says so or a process
with a higher epoch takes over. Going on would turn healthy nodes into failures and buy them again. A restart would
simply win, so this must never look like a process to restart.
"""

from __future__ import annotations

from bigfleet.engine.policy import MINUTE

WITHIN = MINUTE


class Standoffs:
    """Refused tokens, and the providers with which it is a stand-off."""

    def __init__(self) -> None:
        # Machine → (provider, when its newest token was refused first).
        self._refused: dict[str, tuple[str, int]] = {}
        self.reasons: dict[str, str] = {}

    def refused(self, provider: str, machine: str, now: int) -> bool:
        """The newest token was refused; whether that makes it a stand-off."""
        again = machine in self._refused
        others = any(
            where == provider and now - at <= WITHIN for other, (where, at) in self._refused.items() if other != machine
        )
        if not again:
            self._refused[machine] = (provider, now)
        return again or others

    def accepted(self, machine: str) -> None:
        """A token was accepted: what was refused before was an accident."""
        if self._refused:
            self._refused.pop(machine, None)

    def begin(self, provider: str, why: str) -> None:
        self.reasons[provider] = why

    def stopped(self, provider: str) -> bool:
        return bool(self.reasons) and provider in self.reasons

    def resolve(self) -> tuple[str, ...]:
        """A person says that this process is the one to act; returns the providers it may speak to again."""
        ended = tuple(sorted(self.reasons))
        self.reasons.clear()
        self._refused.clear()
        return ended
