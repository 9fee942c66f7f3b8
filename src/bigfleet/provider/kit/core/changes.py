"""The order in which machines changed: revisions, tombstones, and the cursor that lets a List continue.

Every change takes the next revision, so each live machine has a unique place in one order and a capped page can
name where the rest begins. Removals keep a tombstone in the same order. A cursor names the store's generation and
a revision; anything else, or a revision this store never reached, means a full list and never an error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

_CURSOR = re.compile(rb"([0-9a-z]{1,32})\.(0|[1-9][0-9]{0,18})")
TOMBSTONES_KEPT = 50_000


class ChangeLog:
    """An append-only log of (revision, machine id); entries a later change replaced are skipped and compacted."""

    def __init__(self, generation: str) -> None:
        if not re.fullmatch("[0-9a-z]{1,32}", generation):
            raise ValueError(f"generation {generation!r} must be 1 to 32 lower-case letters and digits")
        self.generation = generation
        self.head = 0
        self.floor = 0
        self._revisions: list[int] = []
        self._ids: list[str] = []
        self._current: dict[str, int] = {}
        self._tombstones: dict[str, int] = {}

    @property
    def tombstones(self) -> dict[str, int]:
        return self._tombstones

    def touch(self, machine_id: str) -> int:
        """The machine changed: its new revision."""
        self._tombstones.pop(machine_id, None)
        return self._append(machine_id)

    def bury(self, machine_id: str) -> int:
        """The machine is gone: the tombstone's revision."""
        self._tombstones.pop(machine_id, None)
        revision = self._append(machine_id)
        self._tombstones[machine_id] = revision
        return revision

    def trim(self) -> tuple[str, ...]:
        """Drop the older half of the tombstones once there are too many; cursors before `floor` restart."""
        if len(self._tombstones) <= TOMBSTONES_KEPT:
            return ()
        dropped = tuple(self._tombstones)[: TOMBSTONES_KEPT // 2]
        for machine_id in dropped:
            self.floor = max(self.floor, self._tombstones.pop(machine_id))
            self._current.pop(machine_id, None)
        return dropped

    def restore(self, live: list[tuple[int, str]], tombstones: list[tuple[int, str]], floor: int) -> None:
        """Take over the order a store kept."""
        entries = sorted(live + tombstones)
        self._revisions = [revision for revision, _ in entries]
        self._ids = [machine_id for _, machine_id in entries]
        self._current = {machine_id: revision for revision, machine_id in entries}
        self._tombstones = {machine_id: revision for revision, machine_id in sorted(tombstones)}
        self.floor = floor
        self.head = max(floor, self._revisions[-1] if self._revisions else 0)

    def cursor(self, revision: int) -> bytes:
        return f"{self.generation}.{revision}".encode()

    def parse(self, cursor: bytes) -> int | None:
        """The revision a cursor stands for, or None when the caller needs everything."""
        match = _CURSOR.fullmatch(cursor) if len(cursor) <= 64 else None
        if match is None or match[1].decode() != self.generation:
            return None
        revision = int(match[2])
        return revision if self.floor <= revision <= self.head else None

    def after(self, revision: int) -> Iterator[tuple[int, str]]:
        """Current entries strictly after a revision, oldest first."""
        current = self._current
        for index in range(bisect_right(self._revisions, revision), len(self._revisions)):
            at, machine_id = self._revisions[index], self._ids[index]
            if current.get(machine_id) == at:
                yield at, machine_id

    def check(self, revision_of: Callable[[str], int | None]) -> list[str]:
        """What is inconsistent between this log and the live records."""
        found = [f"log order broken at {i}" for i in range(1, len(self._revisions)) if not self._in_order(i)]
        for revision, machine_id in self.after(-1):
            if self._tombstones.get(machine_id, revision_of(machine_id)) != revision:
                found.append(f"{machine_id}: log says revision {revision}, record {revision_of(machine_id)}")
        return found

    def _in_order(self, index: int) -> bool:
        return self._revisions[index - 1] < self._revisions[index]

    def _append(self, machine_id: str) -> int:
        self.head += 1
        self._revisions.append(self.head)
        self._ids.append(machine_id)
        self._current[machine_id] = self.head
        if len(self._revisions) > 2 * len(self._current) + 1024:
            self._compact()
        return self.head

    def _compact(self) -> None:
        entries = list(self.after(-1))
        self._revisions = [revision for revision, _ in entries]
        self._ids = [machine_id for _, machine_id in entries]
