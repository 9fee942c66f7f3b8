"""Purchases under way that nobody here remembers making: an earlier process lost its data directory.

They are paid for. Whoever is about to buy an equal machine takes one of them instead. Finds; the emission decides.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.shard.core.state.enum_aliases import CREATING
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.state import ShardState


class Foundlings:
    """Machines that were Creating when they were seen first, and belong to no operation."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._keys: dict[str, None] = {}

    def appeared(self, record: Record) -> None:
        """A machine was seen for the first time, and what the journal knows of it has been picked up."""
        if record.state == CREATING and self._forgotten(record):
            self._keys[record.key] = None

    def first(self, would_do: Callable[[Record], bool]) -> Record | None:
        """One that would do, in the order they were found; what has arrived or gone meanwhile is dropped."""
        for key in list(self._keys):
            record = self._state.fleet.machines.get(key)
            if record is None or record.state != CREATING or not self._forgotten(record):
                del self._keys[key]
            elif would_do(record):
                del self._keys[key]
                return record
        return None

    def _forgotten(self, record: Record) -> bool:
        return record.owned and not record.cluster and self._state.operations.on(record.key) is None
