"""Where machines stood when this shard first saw them: the labels that decide who owns them, also after a
relabelling.

A shard that forgets them with its process would judge a relabelled machine anew, and two shards would act on it. So
they are journalled, in a fixed number of rows: half a million machines cost some megabytes of text, and a machine
that appears rewrites one row of about a hundred names. Where no coordinator vouches for first sightings, machines that
are gone are remembered too, as far as there is room: their id may be sold again under other labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from zlib import crc32

from bigfleet.shard.contract.events import Table
from bigfleet.shard.core.state.turn import Turn

# Label values by key, as they were.
Home = tuple[tuple[str, str], ...]

VALUES_ROW = "homes"
NAMES_ROW = "home/"
ROWS = 4096
ROOM = 256


class Homes:
    """First sightings by machine (`provider/id`)."""

    def __init__(self, turn: Turn, rows: Mapping[tuple[Table, str], str]) -> None:
        self._turn = turn
        self._homes = [_home(pairs) for pairs in json.loads(rows.get((Table.OWNERSHIP, VALUES_ROW), "[]"))]
        self._numbers = {home: number for number, home in enumerate(self._homes)}
        self._texts = {
            key.removeprefix(NAMES_ROW): text
            for (table, key), text in rows.items()
            if table == Table.OWNERSHIP and key.startswith(NAMES_ROW)
        }
        # Rows that are being looked at, read; those of them that changed.
        self._open: dict[str, dict[str, int]] = {}
        self._changed: dict[str, None] = {}
        self._new_values = False

    def find(self, machine: str) -> Home | None:
        """Where the machine belongs; None if it was never seen."""
        _, names = self._row(machine)
        number = names.get(machine)
        return self._homes[number] if number is not None and number < len(self._homes) else None

    def forget(self, machine: str) -> None:
        row, names = self._row(machine)
        if names.pop(machine, None) is not None:
            self._changed[row] = None

    def note(self, machine: str, home: Home) -> Home:
        """From now on the machine belongs there."""
        row, names = self._row(machine)
        names[machine] = self._number(home)
        self._changed[row] = None
        return self._homes[names[machine]]

    def keep(self, alive: Callable[[str], bool]) -> None:
        """Journal what is new; called when everything a List brought has been seen."""
        for row in self._changed:
            names = self._open[row]
            if len(names) > ROOM and len(names) > 3 * (living := sum(map(alive, names))):
                gone = [name for name in names if not alive(name)]
                for name in gone[: len(names) - max(ROOM, 3 * living)]:
                    del names[name]
            self._texts[row] = json.dumps(names, separators=(",", ":"))
            self._turn.write(Table.OWNERSHIP, NAMES_ROW + row, self._texts[row])
        if self._new_values:
            self._turn.write(Table.OWNERSHIP, VALUES_ROW, json.dumps(self._homes, separators=(",", ":")))
        self._changed, self._open, self._new_values = {}, {}, False

    @property
    def changed(self) -> bool:
        return bool(self._changed)

    def _row(self, machine: str) -> tuple[str, dict[str, int]]:
        row = f"{crc32(machine.encode()) % ROWS:03x}"
        names = self._open.get(row)
        if names is None:
            names = self._open[row] = json.loads(self._texts.get(row, "{}"))
        return row, names

    def _number(self, home: Home) -> int:
        number = self._numbers.get(home)
        if number is None:
            number = self._numbers[home] = len(self._homes)
            self._homes.append(home)
            self._new_values = True
        return number


def _home(pairs: list[list[str]]) -> Home:
    return tuple((str(key), str(value)) for key, value in pairs)
