"""Matching: constraint sets (requirements with tolerations), taints, and which set matches which class.

Computed once per set and class, and only what is new. Numbers of label keys are the catalog's; when it derives classes
anew, everything here about classes is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain, count, islice
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.classes import ABSENT, HOSTNAME, Classes
from bigfleet.engine.kernels.columns import appended, grown, made, room, widened
from bigfleet.engine.kernels.jit import I4, U1M, kernel
from bigfleet.engine.kernels.texts import TextTable
from bigfleet.engine.kernels.view import View, view
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Requirement
from bigfleet.model.taint import Taint, Toleration, tolerates

Constraints = tuple[tuple[Requirement, ...], tuple[Toleration, ...]]
_constraints = attrgetter("requirements", "tolerations")
_key, _operator, _values = itemgetter(0), itemgetter(1), itemgetter(2)
# A table with its name and index.
Numbered = tuple[str, Sequence[Hashable], Mapping[Any, int]]


@view
class _Rules(View):
    """Constraint sets as columns: set c has requirements `first[c] .. first[c + 1]`."""

    first: I4
    key: I4
    operator: I4
    value_first: I4
    values: I4
    tolerations: I4


class Matching:
    """Owns constraint sets, taint sets and the match matrix."""

    def __init__(self, texts: TextTable, key_column: Callable[[str], int]) -> None:
        self.texts = texts
        self._key_column = key_column
        self._taint_sets: list[tuple[Taint, ...]] = []
        self._taint_index: dict[tuple[Taint, ...], int] = {}
        self._toleration_sets: list[tuple[Toleration, ...]] = []
        self._toleration_index: dict[tuple[Toleration, ...], int] = {}
        self._tolerated = np.zeros((4, 4), np.uint8)
        self._con_index: dict[Constraints, int] = {}
        self._cons: list[Constraints] = []
        self._con_done = 0
        self._class_done = 0
        self.match = np.zeros((4, 16), np.uint8)
        self._rules = made(_Rules, 16)
        # Constraint sets, requirements and values that `_rules` has.
        self._ruled = (0, 0, 0)

    @property
    def count(self) -> int:
        """How many constraint sets there are."""
        return len(self._cons)

    def constraints(self, number: int) -> Constraints:
        return self._cons[number]

    def forget_classes(self) -> None:
        """Classes and keys are numbered anew: nothing is computed yet."""
        self._con_done = self._class_done = 0
        self._ruled = (0, 0, 0)

    def numbered(self) -> tuple[Numbered, ...]:
        """Tables with their indexes, for checking."""
        return (
            ("constraint sets", self._cons, self._con_index),
            ("taints", self._taint_sets, self._taint_index),
            ("tolerations", self._toleration_sets, self._toleration_index),
        )

    def intern_taints(self, taints: tuple[Taint, ...]) -> int:
        number = self._taint_index.setdefault(taints, len(self._taint_sets))
        if number == len(self._taint_sets):
            self._taint_sets.append(taints)
            self._tolerated = widened(self._tolerated, room(self._tolerated.shape[1], number + 1))
            for row, tolerations in enumerate(self._toleration_sets):
                self._tolerated[row, number] = tolerates(tolerations, taints)
        return number

    def _intern_tolerations(self, tolerations: tuple[Toleration, ...]) -> int:
        number = self._toleration_index.setdefault(tolerations, len(self._toleration_sets))
        if number == len(self._toleration_sets):
            self._toleration_sets.append(tolerations)
            self._tolerated = grown(self._tolerated, room(len(self._tolerated), number + 1))
            for column, taints in enumerate(self._taint_sets):
                self._tolerated[number, column] = tolerates(tolerations, taints)
        return number

    def intern_cons(self, profiles: Sequence[Profile]) -> list[int]:
        """Constraint sets of many profiles; as a rule all of them are new, and then a set is hashed once."""
        index, sets = self._con_index, list(map(_constraints, profiles))
        before = len(index)
        found = list(map(index.setdefault, sets, count(before)))
        new = sets
        if len(index) < before + len(sets):
            # Some were known, or were met twice: the new ones are numbered without gaps.
            new = list(islice(reversed(index), len(index) - before))[::-1]
            index.update(zip(new, range(before, len(index)), strict=True))
            found = list(map(index.__getitem__, sets))
        self._cons += new
        for tolerations in dict.fromkeys(map(itemgetter(1), new)):
            self._intern_tolerations(tolerations)
        return found

    def complete(self, classes: Classes, count: int) -> bool:
        """Computes what is missing of the match matrix; True if something was."""
        cons = len(self._cons)
        if cons == self._con_done and count == self._class_done:
            return False
        if cons > len(self.match) or count > self.match.shape[1]:
            made = np.zeros((room(len(self.match), cons), room(self.match.shape[1], count)), np.uint8)
            made[: len(self.match), : self.match.shape[1]] = self.match
            self.match = made
        self._extend_rules()
        fill_matches(self.match, self._rules, classes, self._tolerated, self._con_done, cons, 0, count)
        fill_matches(self.match, self._rules, classes, self._tolerated, 0, self._con_done, self._class_done, count)
        self._con_done, self._class_done = cons, count
        return True

    def _extend_rules(self) -> None:
        """Constraint sets that are new, as columns."""
        sets, rules, listed = self._ruled
        new = self._cons[sets:]
        requirements = list(chain.from_iterable(map(itemgetter(0), new)))
        wanted = list(map(_values, requirements))
        values = self.texts.intern_all(list(chain.from_iterable(wanted)))
        names = list(map(_key, requirements))
        column = {name: self._key_column(name) for name in set(names)}
        first = rules + np.cumsum(_lengths(list(map(itemgetter(0), new))))
        value_first = listed + np.cumsum(_lengths(wanted))
        r = self._rules
        self._rules = _Rules(
            appended(r.first, sets + 1, first),
            appended(r.key, rules, list(map(column.__getitem__, names))),
            appended(r.operator, rules, np.fromiter(map(_operator, requirements), np.int64, len(names))),
            appended(r.value_first, rules + 1, value_first),
            appended(r.values, listed, values),
            appended(r.tolerations, sets, list(map(self._toleration_index.__getitem__, map(itemgetter(1), new)))),
        )
        self._ruled = (len(self._cons), rules + len(names), listed + len(values))


def _lengths(sized: Sequence[Sequence[Any]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, sized), np.int64, len(sized))


@kernel
def fill_matches(
    match: U1M, rules: _Rules, classes: Classes, tolerated: U1M, con0: int, con1: int, class0: int, class1: int
) -> None:
    for con in range(con0, con1):
        for cls in range(class0, class1):
            good = tolerated[rules.tolerations[con], classes.taints[cls]] != 0
            for r in range(rules.first[con], rules.first[con + 1]):
                if not good:
                    break
                column = rules.key[r]
                value = classes.named[cls] if column == HOSTNAME else classes.value[cls, column]
                operator = rules.operator[r]
                present = value != ABSENT
                listed = False
                for v in range(rules.value_first[r], rules.value_first[r + 1]):
                    if rules.values[v] == value:
                        listed = True
                if operator == 1:
                    good = present and listed
                elif operator == 2:
                    good = not listed
                elif operator == 3:
                    good = present
                elif operator == 4:
                    good = not present
                elif operator == 5:
                    good = present and (listed or rules.value_first[r] == rules.value_first[r + 1])
                else:
                    good = False
            match[con, cls] = good
