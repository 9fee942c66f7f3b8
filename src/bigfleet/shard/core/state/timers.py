"""When the core wants to be woken: one instant per (kind, key), earliest first.

Arming again moves the instant. Owns no clock; whoever asks says what time it is.
"""

from __future__ import annotations

import heapq

TimerId = tuple[str, str]

_SWEEP_AT = 1024


class Timers:
    """A heap whose outdated entries are skipped, and swept once they outnumber the live ones."""

    __slots__ = ("_armed", "_heap")

    def __init__(self) -> None:
        self._armed: dict[TimerId, int] = {}
        self._heap: list[tuple[int, TimerId]] = []

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, kind: str, key: str, due: int) -> None:
        name = (kind, key)
        if self._armed.get(name) == due:
            return
        self._armed[name] = due
        heapq.heappush(self._heap, (due, name))
        if len(self._heap) > 2 * len(self._armed) + _SWEEP_AT:
            self._heap = [(at, armed) for armed, at in self._armed.items()]
            heapq.heapify(self._heap)

    def cancel(self, kind: str, key: str) -> None:
        self._armed.pop((kind, key), None)

    def due_at(self, kind: str, key: str) -> int | None:
        return self._armed.get((kind, key))

    def next(self) -> int | None:
        """The earliest instant anybody waits for."""
        while self._heap:
            due, name = self._heap[0]
            if self._armed.get(name) == due:
                return due
            heapq.heappop(self._heap)
        return None

    def take(self, now: int) -> TimerId | None:
        """The next timer that is due, disarmed; None when there is none."""
        due = self.next()
        if due is None or due > now:
            return None
        _, name = heapq.heappop(self._heap)
        del self._armed[name]
        return name
