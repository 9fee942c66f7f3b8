"""The machines a provider knows: records by id, the order they changed in, those that were lost, and the pages of List.

It keeps what it is told and decides nothing: which change is legal is the business of `core`. Every change returns
the rows a store must keep.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from bigfleet.model.machine import MachineState
from bigfleet.provider.kit.core.changes import ChangeLog
from bigfleet.provider.kit.core.events import ForgetRemovals, Row, SaveFence, SaveMachine, SaveOperation, SaveRemoval
from bigfleet.provider.kit.core.records import MachineRecord, Shape

STORY_LENGTH = 10_000
_NAMES = {state: state.name for state in MachineState}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a store kept."""

    generation: str = ""
    machines: Sequence[MachineRecord] = ()
    fences: Sequence[SaveFence] = ()
    operations: Sequence[SaveOperation] = ()
    removals: Sequence[SaveRemoval] = ()
    floor: int = 0

    @property
    def empty(self) -> bool:
        return not (self.machines or self.fences or self.operations or self.removals)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to List. `cursor` continues after this page while `more`, and is the head otherwise."""

    machines: Sequence[MachineRecord]
    cursor: bytes
    more: bool = False
    removed_ids: Sequence[str] = ()
    full: bool = True


class StoryLine(NamedTuple):
    """One step in a machine's life."""

    at: float
    machine_id: str
    before: str
    after: str
    cause: str


class Fleet:
    """All machines, listed and lost."""

    def __init__(self, generation: str, kept: Snapshot) -> None:
        self.changes = ChangeLog(generation)
        self.machines: dict[str, MachineRecord] = {}
        self.counts: Counter[MachineState] = Counter()
        self._shapes: dict[Shape, Shape] = {}
        self._lost: dict[str, MachineRecord] = {}
        self._relists: list[tuple[float, str]] = []
        self._story: deque[StoryLine] = deque(maxlen=STORY_LENGTH)
        self._restore(kept)

    def put(self, record: MachineRecord, now: float, cause: str) -> SaveMachine:
        """The machine is now as the record says; the saved one carries its revision."""
        before = self.machines.get(record.id)
        shape = record.shape
        if before is None or before.shape is not shape:
            shape = self._shapes.setdefault(shape, shape)
        saved = record.revised(shape, self.changes.touch(record.id))
        self.machines[record.id] = saved
        self.counts[saved.state] += 1
        if before is not None:
            self.counts[before.state] -= 1
        if before is None or before.state != saved.state:
            self._tell(now, saved.id, _NAMES[before.state] if before else "", _NAMES[saved.state], cause)
        return SaveMachine(saved)

    def remove(self, record: MachineRecord, now: float, cause: str, relist_at: float | None) -> list[Row]:
        """The machine is gone; with `relist_at` it is lost and may return then."""
        del self.machines[record.id]
        self.counts[record.state] -= 1
        revision = self.changes.bury(record.id)
        if relist_at is not None:
            self._hold(record, relist_at)
        self._tell(now, record.id, record.state.name, "", cause)
        rows: list[Row] = [SaveRemoval(record, revision, relist_at)]
        if dropped := self.changes.trim():
            rows.append(ForgetRemovals(dropped, self.changes.floor))
        return rows

    def lost(self, machine_id: str) -> bool:
        """Whether a lost machine is still kept out of the list."""
        return machine_id in self._lost

    def next_return(self) -> float | None:
        """When the next lost machine may return."""
        return self._relists[0][0] if self._relists else None

    def take_returning(self, now: float) -> list[MachineRecord]:
        """Lost machines whose time has come, no longer held."""
        due = []
        while self._relists and self._relists[0][0] <= now:
            _, machine_id = heapq.heappop(self._relists)
            due.append(self._lost.pop(machine_id))
        return due

    def knows(self, machine_id: str) -> bool:
        """Whether the id names a machine, listed or removed."""
        return machine_id in self.machines or machine_id in self.changes.tombstones

    def story(self, machine_id: str) -> list[StoryLine]:
        return [line for line in self._story if line.machine_id == machine_id]

    def page(self, states: Iterable[int], max_results: int, since: bytes) -> Page:
        """Machines in the given states (all without), changed after the cursor, at most `max_results` of them."""
        wanted = frozenset(states)
        start = self.changes.parse(since)
        head = self.changes.cursor(self.changes.head)
        if start is None and max_results == 0:
            found = list(self.machines.values())
            return Page([m for m in found if m.state in wanted] if wanted else found, head)
        machines: list[MachineRecord] = []
        removed: list[str] = []
        last = 0
        for revision, machine_id in self.changes.after(-1 if start is None else start):
            record = self.machines.get(machine_id)
            if record is None:
                if start is not None:
                    removed.append(machine_id)
            elif not wanted or record.state in wanted:
                if max_results and len(machines) == max_results:
                    return Page(machines, self.changes.cursor(last), True, removed, start is None)
                machines.append(record)
            last = revision
        return Page(machines, head, False, removed, start is None)

    def problems(self) -> list[str]:
        """Every broken invariant, in words."""
        found = [text for record in self.machines.values() for text in record.violations()]
        found += self.changes.check(lambda i: self.machines[i].revision if i in self.machines else None)
        if +self.counts != Counter(record.state for record in self.machines.values()):
            found.append(f"counts {self.counts} do not fit the machines")
        return found + [f"{machine_id}: lost and listed" for machine_id in self._lost if machine_id in self.machines]

    def _hold(self, record: MachineRecord, relist_at: float) -> None:
        self._lost[record.id] = record
        heapq.heappush(self._relists, (relist_at, record.id))

    def _tell(self, now: float, machine_id: str, before: str, after: str, cause: str) -> None:
        self._story.append(StoryLine(now, machine_id, before, after, cause))

    def _restore(self, kept: Snapshot) -> None:
        for record in kept.machines:
            shape = self._shapes.setdefault(record.shape, record.shape)
            self.machines[record.id] = record if shape is record.shape else replace(record, shape=shape)
            self.counts[record.state] += 1
        for removal in kept.removals:
            if removal.relist_at is not None:
                self._hold(removal.machine, removal.relist_at)
        live = [(record.revision, record.id) for record in kept.machines]
        gone = [(removal.revision, removal.machine.id) for removal in kept.removals]
        self.changes.restore(live, gone, kept.floor)
