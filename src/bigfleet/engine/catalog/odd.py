"""Odd names: resources that rows ask for and no machine has. They share one column, which says which they are.

No machine holds anything in that column, so whoever asks for something in it fits nowhere, as in a column of its own;
and names that one cluster makes up cost the others nothing (`docs/adr/0017-odd-names-share-a-column.md`). A number of
the column stands for a vector of names and amounts: in smallest units always, in amounts of sums too. Amounts of
counted rows are so many of their smallest unit, and so is what they say in this column. Numbers decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

# The name of the column, which no resource has.
ODD = ""

Pairs = tuple[tuple[str, int], ...]


class OddVectors:
    """Vectors of names without a column, by number; 0 is the empty one. Numbers are given again once given back."""

    def __init__(self) -> None:
        self._pairs: dict[int, Pairs] = {}
        self._numbers: dict[Pairs, int] = {}
        self._free: list[int] = []
        # Names in any of them, and maybe some that were.
        self.names: set[str] = set()

    def __len__(self) -> int:
        return len(self._pairs)

    def number(self, pairs: Pairs) -> int:
        """The number of a vector, given as names and amounts in the order of names."""
        if not pairs:
            return 0
        number = self._numbers.get(pairs)
        if number is None:
            number = self._free.pop() if self._free else len(self._pairs) + 1  # all below are taken
            self._pairs[number], self._numbers[pairs] = pairs, number
            self.names.update(name for name, _ in pairs)
        return number

    def pairs(self, number: int) -> Pairs:
        return self._pairs[number] if number else ()

    def kept(self, used: Iterable[int]) -> OddVectors:
        """The same with the vectors of these numbers only."""
        fresh = OddVectors()
        for number in used:
            if number:
                pairs = self._pairs[number]
                fresh._pairs[number], fresh._numbers[pairs] = pairs, number
                fresh.names.update(name for name, _ in pairs)
        most = max(fresh._pairs, default=0)
        fresh._free = [number for number in range(most, 0, -1) if number not in fresh._pairs]
        return fresh

    def without(self, number: int, names: Iterable[str]) -> int:
        """The number of a vector less some of its names."""
        gone = frozenset(names)
        return self.number(tuple(pair for pair in self.pairs(number) if pair[0] not in gone))
