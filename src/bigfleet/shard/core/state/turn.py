"""One call of `handle`: the instructions gathered so far in the order they must be performed.

Journal rows of a turn are merged and put first, so nothing that follows from a decision happens before it is durable;
a turn that only erases rows leaves them to be written at leisure.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.shard.contract.events import Count, Instruction, Journal, Log, Observe, Table


class Turn:
    """Collects what one event leads to."""

    __slots__ = ("_lazy", "_out", "_rows", "emit")

    def __init__(self) -> None:
        self._out: list[Instruction] = []
        # The list's own method: nothing is called as often.
        self.emit: Callable[[Instruction], None] = self._out.append
        self._rows: dict[tuple[Table, str], tuple[Table, str, str | None]] = {}
        self._lazy = True

    def end(self) -> list[Instruction]:
        """Everything of this turn; the next one starts empty."""
        out = self._out.copy()
        self._out.clear()
        if self._rows:
            journal = Journal(tuple(self._rows.values()), self._lazy)
            out.insert(len(out) if self._lazy else 0, journal)
            self._rows = {}
            self._lazy = True
        return out

    def write(self, table: Table, key: str, value: str, *, lazy: bool = False) -> None:
        """Journal a row; what this turn emits waits for it unless `lazy`."""
        self._rows[table, key] = (table, key, value)
        self._lazy = self._lazy and lazy

    def erase(self, table: Table, key: str) -> None:
        self._rows[table, key] = (table, key, None)

    def log(self, level: str, message: str, **attrs: object) -> None:
        self._out.append(Log(level, message, tuple(attrs.items())))

    def count(self, metric: str, *labels: str, amount: float = 1.0) -> None:
        self._out.append(Count(metric, labels, amount))

    def observe(self, metric: str, nanoseconds: int, *labels: str) -> None:
        self._out.append(Observe(metric, max(0, nanoseconds) / 1e9, labels))
