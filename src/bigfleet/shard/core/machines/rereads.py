"""Machines that must be looked at again with Get: sightings that were skipped, refused, missing or not believed.

One instant per machine; a bounded number of Gets per provider in flight. What a Get says is reconcile's to judge.
"""

from __future__ import annotations

from collections import Counter, deque

from bigfleet.engine.policy import SECOND
from bigfleet.shard.contract.events import StartRead
from bigfleet.shard.core.state.state import ShardState

TIMER = "reread"
Identity = tuple[str, str]


class Rereads:
    """Which machines to Get, and when."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._waiting: dict[str, Identity] = {}
        self._due: dict[str, deque[str]] = {}
        # Due, and waiting for a Get.
        self.queued: set[Identity] = set()
        self._inflight: set[Identity] = set()
        self._running: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting) + len(self.queued) + len(self._inflight)

    def ask(self, provider: str, id: str, at: int) -> None:
        """Get the machine at that instant, or earlier if that was agreed already."""
        name = f"{provider}/{id}"
        known = self._state.timers.due_at(TIMER, name)
        if (provider, id) in self.queued or (known is not None and known <= at):
            return
        self._waiting[name] = (provider, id)
        self._state.timers.arm(TIMER, name, at)

    def due(self, name: str) -> None:
        """The instant agreed for this machine has come."""
        identity = self._waiting.pop(name, None)
        if identity is None:
            return
        if identity in self._inflight:
            self.ask(*identity, self._state.now + SECOND)
            return
        self.queued.add(identity)
        self._due.setdefault(identity[0], deque()).append(identity[1])

    def answered(self, provider: str, id: str) -> None:
        if (provider, id) in self._inflight:
            self._inflight.remove((provider, id))
            self._running[provider] -= 1

    def dispatch(self) -> None:
        """Start the Gets that are due, as many as may run."""
        for provider, queue in self._due.items():
            while queue and self._running[provider] < self._state.config.read_concurrency:
                identity = (provider, queue.popleft())
                self.queued.discard(identity)
                self._inflight.add(identity)
                self._running[provider] += 1
                self._state.turn.emit(StartRead(*identity))
