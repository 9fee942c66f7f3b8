"""Machines that are spared for a while: not drained after their cluster refused it, not closed again so soon.

What a move brought, or could not empty, is spared for as long as nothing changes in its cluster: it would be moved for
the sake of other moves only. (It was, after every payback: steady demand had its pods evicted for hours.)

Journalled, because a shard that forgot them with every start would ask the same cluster for the same node again
(`docs/engine.md`, P46). Which drains and closings a rest forbids is the engine's to know.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import encode

from bigfleet.engine.placement import Rest, RestKind
from bigfleet.shard.contract.events import Table
from bigfleet.shard.core.state.enum_aliases import CONFIGURED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.shard.core.clusters.steady import Steady
    from bigfleet.shard.core.state.state import ShardState

# Nobody knows when something will change.
_OPEN_END = 1 << 62


class SparedRow(Struct, omit_defaults=True):
    """Until when, as the journal has it; without `tries` longer, while nothing has changed in the `cluster` since `at`;
    with them so often in a row it was refused meanwhile."""

    until: int
    cluster: str = ""
    at: int = 0
    tries: int = 0


class Spared:
    """(Machine, what it is spared) → until when."""

    def __init__(self, state: ShardState, steady: Steady, rows: Mapping[tuple[Table, str], str]) -> None:
        self._state = state
        self._steady = steady
        self._rows: dict[tuple[str, RestKind], SparedRow] = {}
        for (table, key), text in rows.items():
            if table == Table.REST:
                self._restore(key, text)

    def __len__(self) -> int:
        return len(self._rows)

    def spare(self, machine: str, kind: RestKind, duration: int, *, unless_changed: str = "") -> None:
        """Leave the machine alone for so long, a longer rest stands; `unless_changed` names a cluster in which
        something has to change before that is over."""
        now = self._state.now
        before = self._rows.get((machine, kind))
        until = max(now + duration, 0 if before is None else before.until)
        if unless_changed or before is None:
            self._keep(machine, kind, SparedRow(until, unless_changed, now if unless_changed else 0))
        else:
            self._keep(machine, kind, SparedRow(until, before.cluster, before.at, before.tries))

    def refused(self, machine: str, cluster: str, first: int, most: int) -> None:
        """Its deletion was refused, and nobody evicted: it may be asked for again soon, then ever later, then only once
        something has changed."""
        before = self._rows.get((machine, RestKind.CLOSE))
        tries = 0 if before is None or not self._unchanged(machine, before) else before.tries
        if first << tries < most:
            now = self._state.now
            self._keep(machine, RestKind.CLOSE, SparedRow(now + (first << tries), cluster, now, tries + 1))
        else:
            self.spare(machine, RestKind.CLOSE, most, unless_changed=cluster)

    def rests(self) -> tuple[Rest, ...]:
        """Those in force, in a fixed order."""
        now = self._state.now
        found = []
        for (machine, kind), row in sorted(self._rows.items(), key=lambda item: item[0]):
            if not row.tries and self._unchanged(machine, row):
                found.append(Rest(machine, kind, _OPEN_END))
            elif row.until > now:
                found.append(Rest(machine, kind, row.until))
        return tuple(found)

    def prune(self) -> None:
        """Forget rests that are over."""
        now = self._state.now
        over = [name for name, row in self._rows.items() if row.until <= now and not self._unchanged(name[0], row)]
        for machine, kind in over:
            del self._rows[machine, kind]
            self._state.turn.erase(Table.REST, _key(machine, kind))

    def _keep(self, machine: str, kind: RestKind, row: SparedRow) -> None:
        if row != self._rows.get((machine, kind)):
            self._rows[machine, kind] = row
            self._state.turn.write(Table.REST, _key(machine, kind), encode(row).decode(), lazy=True)

    def _unchanged(self, machine: str, row: SparedRow) -> bool:
        """Whether it is a node of its cluster still, and all is as it was when its move was over."""
        if not row.cluster or not self._steady.is_since(row.cluster, row.at):
            return False
        record = self._state.fleet.machines.get(machine)
        return record is not None and record.state == CONFIGURED and record.cluster == row.cluster

    def _restore(self, key: str, text: str) -> None:
        """A row that cannot be read is as good as none: the cluster refuses once more."""
        kind, _, machine = key.partition("/")
        row = _read(text)
        if machine and kind in RestKind.__members__ and row is not None:
            self._rows[machine, RestKind[kind]] = row
        else:
            self._state.turn.erase(Table.REST, key)


def _read(text: str) -> SparedRow | None:
    if text.isdecimal():
        # As earlier versions wrote it.
        return SparedRow(int(text))
    try:
        row = json.loads(text)
        cluster, at, tries = str(row.get("cluster", "")), int(row.get("at", 0)), int(row.get("tries", 0))
        return SparedRow(int(row["until"]), cluster, at, tries)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _key(machine: str, kind: RestKind) -> str:
    return f"{kind.name}/{machine}"
