"""A memory of what was parsed once, bounded by what it holds and not by how many: an entry may be as large as a frame.

What is kept of a text in Python is many times the text, so entries are charged for that. When the bound is reached
everything goes, which costs one more parse each and keeps no record of use.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

# Objects that a byte of serialised text becomes, and those an entry costs whatever its size.
_PER_BYTE = 8
_PER_ENTRY = 400


class Remembered(Generic[T]):
    """What was made of these bytes before."""

    __slots__ = ("_held", "_limit", "get", "held_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held: dict[bytes, T] = {}
        self.held_bytes = 0
        # The dictionary's own method: nothing is called as often.
        self.get = self._held.get

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, key: bytes, value: T) -> None:
        cost = _PER_ENTRY + _PER_BYTE * len(key)
        if cost > self._limit // 8:
            # One that would push out everything else is not worth it.
            return
        if self.held_bytes + cost > self._limit:
            self._held.clear()
            self.held_bytes = 0
        self._held[key] = value
        self.held_bytes += cost
