"""Loads: what nodes carry in names, each distinct load once. Reports point here, so that comparing nodes by profiles,
groups or exclusive tokens is comparing numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.columns import grown, room
from bigfleet.engine.kernels.jit import I4
from bigfleet.engine.placement import Load

_NOTHING = Load()
_ROOM = 1024


class LoadTable:
    """Owns the loads; `refs[n]` counts the reports that carry load n, `tokens_of[n]` numbers its tokens (0: none)."""

    def __init__(self) -> None:
        self.table: list[Load] = [_NOTHING]
        self._index: dict[Load, int] = {_NOTHING: 0}
        self._free: list[int] = []
        self._limit = _ROOM
        self.refs: I4 = np.zeros(16, np.int32)
        self.tokens_of: I4 = np.zeros(16, np.int32)
        self.token_sets: list[frozenset[str]] = [frozenset()]
        self._token_index: dict[frozenset[str], int] = {frozenset(): 0}

    def number(self, loads: Sequence[Load]) -> NDArray[np.int32]:
        """Numbers of a batch's loads."""
        if len(self._index) > self._limit:
            self._sweep()
        return np.array([self._intern(load) for load in loads], np.int32)

    def _intern(self, load: Load) -> int:
        number = self._index.get(load)
        if number is not None:
            return number
        if self._free:
            number = self._free.pop()
            self.table[number] = load
        else:
            number = len(self.table)
            self.table.append(load)
            size = room(len(self.refs), number + 1)
            self.refs, self.tokens_of = grown(self.refs, size), grown(self.tokens_of, size)
        self._index[load] = number
        self.tokens_of[number] = self._intern_tokens(frozenset(load.exclusive))
        return number

    def _intern_tokens(self, tokens: frozenset[str]) -> int:
        number = self._token_index.setdefault(tokens, len(self.token_sets))
        if number == len(self.token_sets):
            self.token_sets.append(tokens)
        return number

    def _sweep(self) -> None:
        """Gives back the numbers of loads that no report carries any more."""
        for number in np.nonzero(self.refs[: len(self.table)] == 0)[0].tolist():
            if self.table[number] is not _NOTHING:
                del self._index[self.table[number]]
                self.table[number] = _NOTHING
                self._free.append(number)
        self._limit = 2 * len(self._index) + _ROOM
        if len(self.token_sets) > self._limit:
            self.token_sets, self._token_index = [frozenset()], {frozenset(): 0}
            for load, number in self._index.items():
                self.tokens_of[number] = self._intern_tokens(frozenset(load.exclusive))
