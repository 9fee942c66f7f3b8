"""Transitions under way: which work is open on which machine, and until when.

Owns deadlines, and that a report about anything else comes too late. What follows from either is the core's.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from bigfleet.provider.kit.core.records import Kind, MachineRecord


@dataclass(slots=True)
class Work:
    """A transition under way; `backend_done` while only the node's readiness is waited for."""

    kind: Kind
    operation_id: str
    deadline: float
    backend_done: bool = field(default=False)


class OpenWork:
    """At most one transition per machine."""

    def __init__(self) -> None:
        self._work: dict[str, Work] = {}
        self._deadlines: list[tuple[float, str, str]] = []

    def begin(self, record: MachineRecord, kind: Kind, deadline: float) -> Work:
        work = self._work[record.id] = Work(kind, record.operation_id, deadline)
        heapq.heappush(self._deadlines, (deadline, record.id, record.operation_id))
        return work

    def end(self, machine_id: str) -> Work | None:
        """Whatever is open on a machine is not any more."""
        return self._work.pop(machine_id, None)

    def on(self, machine_id: str, operation_id: str) -> Work | None:
        """The work of this operation, None if it is over or another one is under way."""
        work = self._work.get(machine_id)
        return work if work is not None and work.operation_id == operation_id else None

    def next_deadline(self) -> float | None:
        while self._deadlines and self.on(*self._deadlines[0][1:]) is None:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def take_overdue(self, now: float) -> tuple[str, Work] | None:
        """The machine and the work whose time was over first; it stays open until it is ended."""
        due = self.next_deadline()
        if due is None or due > now:
            return None
        _, machine_id, _ = heapq.heappop(self._deadlines)
        return machine_id, self._work[machine_id]

    def problems(self, machines: Mapping[str, MachineRecord]) -> list[str]:
        """Where open work and records disagree."""
        found = []
        for machine_id, record in machines.items():
            work = self._work.get(machine_id)
            if (record.transition is None) != (work is None):
                found.append(f"{machine_id}: {record.state.name} with open work {work}")
            if work and (work.kind != record.transition or work.operation_id != record.operation_id):
                found.append(f"{machine_id}: open work {work} does not fit {record}")
        return found + [f"{i}: open work on no machine" for i in self._work if i not in machines]
