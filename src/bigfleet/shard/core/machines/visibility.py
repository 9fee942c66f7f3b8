"""Purchases that were acknowledged and that nobody has seen yet.

A cloud may answer Create and then not know the machine for a while: its reads lag behind its writes. Until the first
sighting, or until the window is over, not being found says nothing about such a machine; calling it lost would buy it
again, and again. From the first sighting on absence is loss. Judges nothing else.
"""

from __future__ import annotations

from bigfleet.engine.policy import SECOND
from bigfleet.shard.core.state.state import ShardState

TIMER = "visibility"


class Visibility:
    """Machines whose Create was acknowledged lately, until they are seen."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._until: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._until)

    @property
    def window(self) -> int:
        return self._state.config.visibility_window

    def acknowledged(self, machine: str, at: int) -> None:
        """The provider took the purchase at this instant; what it does not show from now on may still come."""
        until = at + self.window
        if self._state.now < until:
            self._until[machine] = until
            self._state.timers.arm(TIMER, machine, until)

    def hidden(self, machine: str) -> bool:
        """Whether not finding the machine says nothing."""
        return bool(self._until) and self._state.now < self._until.get(machine, 0)

    def ends(self, machine: str) -> None:
        """It was seen, or it is gone: from now on absence is loss."""
        if self._until and self._until.pop(machine, None) is not None:
            self._state.timers.cancel(TIMER, machine)

    def overdue(self, machine: str) -> str:
        """The window is over and nobody saw the machine; what to say of it. Empty when it was seen meanwhile."""
        if self._until.pop(machine, None) is None:
            return ""
        return f"acknowledged, but not seen within {self.window // SECOND}s"
