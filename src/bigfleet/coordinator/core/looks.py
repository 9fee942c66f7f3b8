"""Whom a machine belongs to when shards remember it differently: everybody looks, and says so before anybody acts.

A shard that sees a machine for the first time asks (`unsure`). Then every other shard lists its providers anew and
names the machines that stand elsewhere than it first saw them; those are pinned to their owners in the table. Once all
have looked and have nothing left to name, the asking shard gets a table of that moment and is told (`sure`). A shard
that is silent is waited for until it is heard or removed: it may act on what it remembers.

Nothing here is stored: a new leader asks everybody again.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.records import Shard
from bigfleet.coordinator.core.reports import LOOKS, Heard, Report
from bigfleet.coordinator.core.tables import Tables

_TERMS = 24


class Look(Struct):
    """What one shard is waiting for; `revision`: once everybody has looked, that of the state."""

    asked: int
    number: int
    revision: int = 0


class Looks:
    """The looks of one leadership."""

    def __init__(self, tables: Tables, heard: Mapping[int, Heard], term: int) -> None:
        self._tables = tables
        self._heard = heard
        # Later leaders' looks have higher numbers.
        self._last = term << _TERMS
        self._looks: dict[int, Look] = {}
        # Those not over yet, lowest number first; a shard that keeps the first of them from being so.
        self._open: dict[int, None] = {}
        self._blocker = 0

    def reported(self, shard: Shard, report: Report) -> list[do.Command]:
        """What follows from a report that was heard: pins, and tables for shards that waited for this one."""
        found: list[do.Command] = []
        if report.relabelled and report.version >= self._tables.meta.fleet_version:
            found.append(do.Pin(report.relabelled, self._tables.meta.fleet_version))
        if any(self._untold(shard, provider, id) for provider, id, _ in report.relabelled):
            found.append(do.Vouch(shard.id))
        self._ask(shard.generation, report.unsure)
        return [*found, *self._over()] if self._open else found

    @property
    def pending(self) -> int:
        """How many shards wait for the others."""
        return len(self._open)

    def look(self, shard: Shard) -> int:
        """The look this shard has to take; 0 when nobody waits for one."""
        return self._last if self._open.keys() - {shard.generation} else 0

    def sure(self, shard: Shard, report: Report) -> int:
        """What this shard may be sure of, with the table it has or gets."""
        look = self._looks.get(shard.generation)
        if look is None or not look.revision or self._tables.version(shard) <= look.revision:
            return 0
        return look.asked if report.unsure else 0

    def forget(self, generation: int) -> None:
        self._looks.pop(generation, None)
        self._open.pop(generation, None)

    def _ask(self, generation: int, asked: int) -> None:
        look = self._looks.get(generation)
        if not asked:
            self.forget(generation)
        elif look is None or (look.revision and asked > look.asked):
            self._last += 1
            self._looks[generation] = Look(asked, self._last)
            self._open[generation] = None

    def _over(self) -> list[do.Command]:
        """Looks that everybody has taken. Thousands may wait, and thousands report: most times one shard decides."""
        tables = self._tables
        if tables.waiting.keys() & tables.generations.keys():
            # What changes hands is for the moment nobody's to name.
            return []
        first = next(iter(self._open))
        if self._blocker != first and self._looked(self._blocker) < self._looks[first].number:
            return []
        looked = {each: self._looked(each) for each in tables.generations}
        everybody = min(looked.values(), default=self._last)
        found: list[do.Command] = []
        for asking in list(self._open):
            number = self._looks[asking].number
            if number > everybody:
                self._blocker = min((each for each in looked if each != asking), key=looked.__getitem__, default=0)
                if looked.get(self._blocker, self._last) < number:
                    break
            del self._open[asking]
            if asking in tables.generations:
                self._looks[asking].revision = tables.meta.revision
                found.append(do.Vouch(tables.generations[asking].id))
        return found

    def _untold(self, shard: Shard, provider: str, machine: str) -> bool:
        """Whether a transfer between others holds the machine, of which no table for this shard tells.

        It would go on naming the machine, which nobody can pin, and everybody's looks would wait for it.
        """
        held = self._tables.holding(provider, machine)
        return held is not None and held.revision > self._tables.version(shard)

    def _looked(self, generation: int) -> int:
        """The last look of a shard that had nothing to name; of one that is gone or cannot look, whatever is wanted."""
        shard, heard = self._tables.generations.get(generation), self._heard.get(generation)
        if shard is None or not shard.tables:
            return self._last
        if heard is None:
            return 0
        if LOOKS not in heard.report.capabilities:
            return self._last
        unfinished = heard.report.relabelled or heard.report.version < self._tables.meta.fleet_version
        return 0 if unfinished else heard.report.looked
