"""Loads: what nodes carry in names, each distinct load once. Reports point here, so that comparing nodes by profiles,
groups or exclusive tokens is comparing numbers. Numbers of fingerprints and tokens are this table's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.columns import appended, grown, room
from bigfleet.engine.kernels.jit import I4, U1
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.placement import Load

_NOTHING = Load()
_ROOM = 1024


@view
class Loads(View):
    """Load n has the fingerprints `print[first[n] : first[n] + count[n]]`, gangs if `grouped`, and tokens of set t =
    `tokens_of[n]` (0: none), `token[token_first[t] : token_first[t + 1]]`."""

    first: I4
    count: I4
    grouped: U1
    print: I4
    tokens_of: I4
    token_first: I4
    token: I4


class LoadTable:
    """Owns the loads; `refs[n]` counts the reports that carry load n."""

    def __init__(self) -> None:
        self.table: list[Load] = []
        self._index: dict[Load, int] = {}
        self._free: list[int] = []
        self._limit = _ROOM
        self.refs: I4 = np.zeros(16, np.int32)
        self.tokens_of: I4 = np.zeros(16, np.int32)
        self.token_sets: list[frozenset[str]] = []
        self._first: I4 = np.zeros(16, np.int32)
        self._count: I4 = np.zeros(16, np.int32)
        self._grouped: U1 = np.zeros(16, np.uint8)
        self._clear_names()
        self._intern(_NOTHING)

    @property
    def v(self) -> Loads:
        return Loads(
            self._first, self._count, self._grouped, self._print, self.tokens_of, self._token_first, self._token
        )

    def print_numbers(self, fingerprints: Iterable[str]) -> list[int]:
        """The table's numbers of fingerprints, -1 for those no load names."""
        return [self.prints.get(text, -1) for text in fingerprints]

    def number(self, loads: Sequence[Load]) -> NDArray[np.int32]:
        """Numbers of a batch's loads."""
        if len(self._index) > self._limit:
            self._sweep()
        return np.array([self._intern(load) for load in loads], np.int32)

    def _clear_names(self) -> None:
        self.prints: dict[str, int] = {}
        self._print: I4 = np.zeros(16, np.int32)
        self._printed = 0
        self.token_sets = []
        self._token_index: dict[frozenset[str], int] = {}
        self._tokens: dict[str, int] = {}
        self._token_first: I4 = np.zeros(16, np.int32)
        self._token: I4 = np.zeros(16, np.int32)

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
            self._first, self._count = grown(self._first, size), grown(self._count, size)
            self._grouped = grown(self._grouped, size)
        self._index[load] = number
        self._name(load, number)
        return number

    def _name(self, load: Load, number: int) -> None:
        """Its names as numbers."""
        known = self.prints
        prints = [known.setdefault(text, len(known)) for text in load.profiles]
        self._print = appended(self._print, self._printed, prints)
        self._first[number], self._count[number] = self._printed, len(prints)
        self._printed += len(prints)
        self._grouped[number] = bool(load.groups)
        self.tokens_of[number] = self._intern_tokens(frozenset(load.exclusive))

    def _intern_tokens(self, tokens: frozenset[str]) -> int:
        number = self._token_index.setdefault(tokens, len(self.token_sets))
        if number == len(self.token_sets):
            self.token_sets.append(tokens)
            known, used = self._tokens, int(self._token_first[number])
            self._token = appended(self._token, used, [known.setdefault(each, len(known)) for each in sorted(tokens)])
            self._token_first = appended(self._token_first, number + 1, [used + len(tokens)])
        return number

    def _sweep(self) -> None:
        """Gives back loads that no report carries any more, and all names, which the others then get anew."""
        for number in np.nonzero(self.refs[: len(self.table)] == 0)[0].tolist():
            if self.table[number] is not _NOTHING:
                del self._index[self.table[number]]
                self.table[number] = _NOTHING
                self._free.append(number)
        self._limit = 2 * len(self._index) + _ROOM
        self._clear_names()
        for load, number in self._index.items():
            self._name(load, number)
