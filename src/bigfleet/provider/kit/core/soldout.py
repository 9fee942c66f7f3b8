"""Kinds of machines the backend has none left of: until when purchases are refused, and which slots come back then.

A kind is (instance type, zone, capacity type). The slot whose purchase found out is FAILED until its time has come,
because a purchase that was acknowledged must not be taken back silently; others of the kind are refused at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.provider.kit.core.records import MachineRecord, Shape

_Kind = tuple[str, str, CapacityType]


class SoldOutKinds:
    """What cannot be bought at the moment."""

    def __init__(self, machines: Iterable[MachineRecord]) -> None:
        self._until: dict[_Kind, float] = {}
        self._returns: list[tuple[float, str]] = []
        for record in machines:
            if _waits(record):
                self.add(record, record.due)

    def add(self, record: MachineRecord, until: float) -> None:
        kind = _kind(record.shape)
        self._until[kind] = max(until, self._until.get(kind, 0.0))
        heapq.heappush(self._returns, (until, record.id))

    def bought(self, shape: Shape) -> None:
        """There is some again."""
        if self._until:
            self._until.pop(_kind(shape), None)

    def left(self, shape: Shape, now: float) -> float:
        """Seconds until a purchase of this kind may be tried; 0 for now."""
        return max(0.0, self._until.get(_kind(shape), 0.0) - now) if self._until else 0.0

    def next_return(self, machines: Mapping[str, MachineRecord]) -> float | None:
        while self._returns and not self._is_waiting(machines, *self._returns[0]):
            heapq.heappop(self._returns)
        return self._returns[0][0] if self._returns else None

    def take_returning(self, machines: Mapping[str, MachineRecord], now: float) -> list[MachineRecord]:
        """Slots whose time has come."""
        due = []
        while (at := self.next_return(machines)) is not None and at <= now:
            due.append(machines[heapq.heappop(self._returns)[1]])
        return due

    def _is_waiting(self, machines: Mapping[str, MachineRecord], at: float, machine_id: str) -> bool:
        record = machines.get(machine_id)
        return record is not None and _waits(record) and record.due == at


def _waits(record: MachineRecord) -> bool:
    return record.state == MachineState.FAILED and record.due > 0


def _kind(shape: Shape) -> _Kind:
    return shape.instance_type, shape.zone, shape.capacity_type
