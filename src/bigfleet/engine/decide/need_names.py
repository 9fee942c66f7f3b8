"""Names of needs: keys, amounts and texts of entries and parts, for whoever looks needs up or renders rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.demand.rows import GANG
from bigfleet.engine.results import NeedKey
from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from bigfleet.engine.catalog.catalog import Catalog
    from bigfleet.engine.decide.world import World

_REMEMBERED = 65_536


class Needs(Struct, frozen=True, eq=False):
    """Reads one step's world; refuses once the engine has gone on, because its columns then mean something else."""

    world: World
    catalog: Catalog
    clusters: list[str]
    generation: int
    clock: NDArray[np.int64]

    @classmethod
    def of_now(cls, w: World, catalog: Catalog, clusters: list[str]) -> Needs:
        """For whoever asks during the step and keeps nothing of it."""
        return cls(w, catalog, clusters, 0, np.zeros(1, np.int64))

    @property
    def current(self) -> World:
        if int(self.clock[0]) != self.generation:
            raise RuntimeError(
                f"rows of step {self.generation} were asked for after step {int(self.clock[0])}; "
                "render what you keep before the engine's next step"
            )
        return self.world

    def entry_key(self, entry: int) -> NeedKey:
        w = self.current
        if int(w.e.kind[entry]) == GANG:
            return self.named_key(entry, "")
        return self.row_key(entry, int(w.e.part[entry]))

    def row_key(self, entry: int, part: int) -> NeedKey:
        return self.named_key(entry, self.amounts(self.current.parts.unit[part]).canonical)

    def named_key(self, entry: int, min_unit: str) -> NeedKey:
        w = self.current
        texts = self.catalog.texts.texts
        return NeedKey(
            self.clusters[int(w.e.cluster[entry])],
            texts[int(w.p.text[w.e.prof[entry]])],
            texts[int(w.e.group[entry])],
            min_unit,
        )

    def priority(self, entry: int) -> int:
        return int(self.current.p.priority[self.current.e.prof[entry]])

    def amounts(self, row: NDArray[np.int64]) -> Resources:
        """A smallest unit, an overhead or an amount of sums as a vector."""
        return self.known_amounts(tuple(row.tolist()))

    def total(self, amounts: NDArray[np.int64], entry: int) -> Resources:
        """A column of `Parts` summed up over the parts of an entry."""
        w, odd = self.current, self.catalog.resource(ODD)
        first = int(w.e.part[entry])
        span = slice(first, first + int(w.e.parts[entry]))
        summed = amounts[span].sum(axis=0)
        if odd < 0 or not summed[odd]:
            return self.amounts(summed)
        found: dict[str, int] = {}
        for part in range(span.start, span.stop):
            for name, amount in self.part_amounts(entry, part, tuple(amounts[part].tolist())).items():
                found[name] = found.get(name, 0) + amount
        return Resources(found, limit=2**63)

    def part_amounts(self, entry: int, part: int, row: tuple[int, ...]) -> Resources:
        """Amounts of one part: what a counted one says in the odd column is so many of its smallest unit."""
        w, odd = self.current, self.catalog.resource(ODD)
        if odd < 0 or not row[odd] or not w.c.counted[w.e.cluster[entry]]:
            return self.known_amounts(row)
        unit = int(w.parts.unit[part, odd])
        plain = self.known_amounts((*row[:odd], 0, *row[odd + 1 :]))
        more = {name: row[odd] // unit * amount for name, amount in self.catalog.odd.pairs(unit)}
        return Resources(dict(plain.items()) | more, limit=2**63)

    def known_amounts(self, row: tuple[int, ...]) -> Resources:
        """Amounts by resource column as a vector; the same few are asked for again and again."""
        memo = self.catalog.amounts
        found = memo.get(row)
        if found is None:
            if len(memo) > _REMEMBERED:
                memo.clear()
            names = self.catalog.resources
            units: dict[str, int] = {}
            for column, amount in enumerate(row):
                if amount and names[column] == ODD:
                    units.update(self.catalog.odd.pairs(amount))
                elif amount:
                    units[names[column]] = amount
            found = memo[row] = Resources(units, limit=2**63)
        return found
