"""One node-selector expression and how it judges one machine.

Owns operator numbers (the wire's) and matching of a single value. The group rule of Same, one value for all machines
of a need, is not decided here: a single machine cannot break it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Operator(IntEnum):
    """Numbers are those of `NodeSelectorRequirement.Operator`."""

    UNSPECIFIED = 0
    IN = 1
    NOT_IN = 2
    EXISTS = 3
    DOES_NOT_EXIST = 4
    SAME = 5

    # Enumerations hash by name, in Python; constraint sets are hashed by the thousand.
    __hash__ = int.__hash__

    @property
    def text(self) -> str:
        """The Kubernetes spelling; empty for UNSPECIFIED."""
        return _TEXTS[self]

    @classmethod
    def from_text(cls, text: str) -> Operator:
        """Reads In, NotIn, Exists or DoesNotExist; Same exists on the wire only and users never write it."""
        try:
            return _BY_TEXT[text]
        except KeyError:
            raise ValueError(f"operator {text!r} is unknown; {', '.join(_BY_TEXT)} are accepted") from None


_TEXTS = {
    Operator.UNSPECIFIED: "",
    Operator.IN: "In",
    Operator.NOT_IN: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
    Operator.SAME: "Same",
}
_BY_TEXT = {
    _TEXTS[operator]: operator for operator in Operator if operator not in (Operator.UNSPECIFIED, Operator.SAME)
}


class Requirement(NamedTuple):
    """A constraint on one label key. As a tuple it sorts by (key, operator, values), the canonical order."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, value: str | None) -> bool:
        """Whether a machine whose label has this value (None: no such label) is acceptable."""
        operator = self.operator
        if operator == Operator.IN:
            return value is not None and value in self.values
        if operator == Operator.NOT_IN:
            return value is None or value not in self.values
        if operator == Operator.EXISTS:
            return value is not None
        if operator == Operator.DOES_NOT_EXIST:
            return value is None
        if operator == Operator.SAME:
            return value is not None and (not self.values or value in self.values)
        return False
