"""What a provider must not forget, and where it is kept.

A store takes the rows the lifecycle core emits and gives them back as one snapshot. `write` is atomic and durable
when it returns: the kit sends no answer and starts no work before that. The memory store survives a restart of the
kit inside one process, which is what tests and the fake need; it survives no crash.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol

from bigfleet.provider.kit.core.events import (
    ForgetFence,
    ForgetRemovals,
    Row,
    SaveFence,
    SaveMachine,
    SaveOperation,
    SaveRemoval,
)
from bigfleet.provider.kit.core.fleet import Snapshot
from bigfleet.provider.kit.core.records import Kind, MachineRecord


class StoreError(Exception):
    """The store cannot be used; the message names it and says what to do."""


class Store(Protocol):
    """Where rows go. One thread at a time calls it."""

    durable: bool

    def load(self) -> Snapshot:
        """Everything kept, with the generation this store was born with."""

    def write(self, rows: Sequence[Row]) -> None:
        """Keep all rows or none; durable on return."""

    def close(self) -> None: ...


class MemoryStore:
    """Keeps rows as long as the object lives."""

    durable = False

    def __init__(self, generation: str = "") -> None:
        self._generation = generation or new_generation()
        self._machines: dict[str, MachineRecord] = {}
        self._removals: dict[str, SaveRemoval] = {}
        self._fences: dict[tuple[str, str], SaveFence] = {}
        self._operations: dict[tuple[str, Kind], SaveOperation] = {}
        self._floor = 0

    def load(self) -> Snapshot:
        return Snapshot(
            self._generation,
            tuple(self._machines.values()),
            tuple(self._fences.values()),
            tuple(self._operations.values()),
            tuple(self._removals.values()),
            self._floor,
        )

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            match row:
                case SaveMachine(machine):
                    self._machines[machine.id] = machine
                    self._removals.pop(machine.id, None)
                case SaveRemoval(machine):
                    self._machines.pop(machine.id, None)
                    self._removals[machine.id] = row
                case ForgetRemovals(machine_ids, floor):
                    self._floor = floor
                    for machine_id in machine_ids:
                        self._removals.pop(machine_id, None)
                case SaveFence(shard_id, machine_id):
                    self._fences[shard_id, machine_id] = row
                case ForgetFence(shard_id, machine_id):
                    self._fences.pop((shard_id, machine_id), None)
                case SaveOperation(machine_id, kind):
                    self._operations[machine_id, kind] = row

    def close(self) -> None:
        """Nothing to release."""


def new_generation() -> str:
    """A name no other store of this provider has: cursors and operation ids carry it."""
    return secrets.token_hex(4)
