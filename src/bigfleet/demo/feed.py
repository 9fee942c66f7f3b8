"""Which sentences of the story are on the screen now.

A small terminal has room for three of them, and a fleet can decide ten things between two looks. Shown newest first,
most of them would never be seen at all, and of a preemption only its consequences. So those that have not been drawn
yet come first, the oldest of them before the younger, as many at a time as there is room for; what is left of the room
belongs to the newest of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from bigfleet.demo.paper import whole


class Feed:
    """Remembers up to which sentence the story was drawn."""

    def __init__(self, drawn: int = 0) -> None:
        self._drawn = drawn

    def choose(self, sentences: Sequence[tuple[int, list[Text]]], height: int) -> list[Text]:
        """The lines to draw. A sentence is (its number in the order told, its lines), newest first."""
        batch: set[int] = set()
        room = height
        for number, lines in sorted((each for each in sentences if each[0] > self._drawn), key=lambda each: each[0]):
            if batch and len(lines) > room:
                break
            batch.add(number)
            room -= len(lines)
        self._drawn = max(batch, default=self._drawn)
        fresh = [lines for number, lines in sentences if number in batch]
        known = [lines for number, lines in sentences if number not in batch and number <= self._drawn]
        return whole([*fresh, *known], height)
