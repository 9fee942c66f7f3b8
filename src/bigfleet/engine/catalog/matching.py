"""Matching: constraint sets (requirements with tolerations), taints, and which set matches which class.

Computed once per set and class, and only what is new. Numbers of label keys are the catalog's; when it derives classes
anew, everything here about classes is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bigfleet.engine.catalog.classes import ABSENT, HOSTNAME, Classes
from bigfleet.engine.kernels.columns import appended, grown, made, room, widened
from bigfleet.engine.kernels.jit import I4, U1M, kernel
from bigfleet.engine.kernels.texts import TextTable
from bigfleet.engine.kernels.view import View, view
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Requirement
from bigfleet.model.taint import Taint, Toleration, tolerates

Constraints = tuple[tuple[Requirement, ...], tuple[Toleration, ...]]
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

    def intern_cons(self, profiles: Iterable[Profile]) -> list[int]:
        """Constraint sets of many profiles; a set is hashed once."""
        cons, number_of = self._cons, self._con_index.setdefault
        before, found = len(cons), []
        for profile in profiles:
            key = (profile.requirements, profile.tolerations)
            number = number_of(key, len(cons))
            if number == len(cons):
                cons.append(key)
            found.append(number)
        for tolerations in dict.fromkeys(tolerated for _, tolerated in cons[before:]):
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
        first: list[int] = []
        key: list[int] = []
        operator: list[int] = []
        value_first: list[int] = []
        values: list[int] = []
        tolerations: list[int] = []
        new = self._cons[sets:]
        self.texts.intern_all([value for each, _ in new for one in each for value in one.values])
        text = self.texts.index
        column = {name: self._key_column(name) for name in {one.key for each, _ in new for one in each}}
        for requirements, tolerated in new:
            for name, operation, wanted in requirements:
                key.append(column[name])
                operator.append(operation)
                values += [text[wanted[0]]] if len(wanted) == 1 else sorted([text[value] for value in wanted])
                value_first.append(listed + len(values))
            first.append(rules + len(key))
            tolerations.append(self._toleration_index[tolerated])
        r = self._rules
        self._rules = _Rules(
            appended(r.first, sets + 1, first),
            appended(r.key, rules, key),
            appended(r.operator, rules, operator),
            appended(r.value_first, rules + 1, value_first),
            appended(r.values, listed, values),
            appended(r.tolerations, sets, tolerations),
        )
        self._ruled = (len(self._cons), rules + len(key), listed + len(values))


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
