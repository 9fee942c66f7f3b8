"""Machines that are spared for a while: not drained after their cluster refused it, not closed again so soon.

Journalled, because a shard that forgot them with every start would ask the same cluster for the same node again
(`docs/engine.md`, P46). Which drains and closings a rest forbids is the engine's to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.engine.placement import Rest, RestKind
from bigfleet.shard.contract.events import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.shard.core.state.state import ShardState


class Spared:
    """(Machine, what it is spared) → until when."""

    def __init__(self, state: ShardState, rows: Mapping[tuple[Table, str], str]) -> None:
        self._state = state
        self._until: dict[tuple[str, RestKind], int] = {}
        for (table, key), text in rows.items():
            if table == Table.REST:
                self._restore(key, text)

    def __len__(self) -> int:
        return len(self._until)

    def spare(self, machine: str, kind: RestKind, duration: int) -> None:
        """Leave the machine alone for so long; a longer rest stands."""
        until = self._state.now + duration
        if until > self._until.get((machine, kind), 0):
            self._until[machine, kind] = until
            self._state.turn.write(Table.REST, _key(machine, kind), str(until), lazy=True)

    def rests(self) -> tuple[Rest, ...]:
        """Those in force, in a fixed order."""
        now = self._state.now
        return tuple(
            Rest(machine, kind, until) for (machine, kind), until in sorted(self._until.items()) if until > now
        )

    def prune(self) -> None:
        """Forget rests that are over."""
        for machine, kind in [name for name, until in self._until.items() if until <= self._state.now]:
            del self._until[machine, kind]
            self._state.turn.erase(Table.REST, _key(machine, kind))

    def _restore(self, key: str, text: str) -> None:
        """A row that cannot be read is as good as none: the cluster refuses once more."""
        kind, _, machine = key.partition("/")
        if machine and kind in RestKind.__members__ and text.isdecimal():
            self._until[machine, RestKind[kind]] = int(text)
        else:
            self._state.turn.erase(Table.REST, key)


def _key(machine: str, kind: RestKind) -> str:
    return f"{kind.name}/{machine}"
