"""What happened to a machine, in plain words: a bounded history that feeds `explain` and people debugging.

Bounded twice: lines per machine, and machines (the ones least recently heard of go first).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from bigfleet.model.machine import MachineState

LINES_PER_MACHINE = 32
MACHINES = 20_000


class StoryLine(NamedTuple):
    """One thing that happened; `text` is a sentence without the machine's name."""

    at: int
    text: str


# A line as it is kept; a move is put into words when somebody reads it.
_Kept = tuple[int, str, MachineState | None, MachineState | None]


class Stories:
    """Machine → its last lines, oldest first."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[_Kept]] = OrderedDict()

    def tell(
        self, machine: str, at: int, text: str, before: MachineState | None = None, after: MachineState | None = None
    ) -> None:
        """Something happened, or `before` became `after` because of it."""
        lines = self._lines.get(machine)
        if lines is None:
            lines = self._lines[machine] = deque(maxlen=LINES_PER_MACHINE)
            if len(self._lines) > MACHINES:
                self._lines.popitem(last=False)
        else:
            self._lines.move_to_end(machine)
        lines.append((at, text, before, after))

    def __contains__(self, machine: str) -> bool:
        return machine in self._lines

    def of(self, machine: str) -> tuple[StoryLine, ...]:
        return tuple(
            StoryLine(at, _worded(text, before, after)) for at, text, before, after in self._lines.get(machine, ())
        )


def _worded(text: str, before: MachineState | None, after: MachineState | None) -> str:
    return text if before is None or after is None or before == after else f"{before.label} → {after.label}: {text}"
