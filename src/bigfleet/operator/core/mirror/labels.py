"""Label checks as Kubernetes makes them, for nodes and for pods.

Differs from `model.requirement` on purpose: what a pod may ask of a node in its cluster (Gt, Lt) is more than what can
be asked of a fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from bigfleet.model.requirement import Operator, Requirement


class LabelCheck(NamedTuple):
    """One expression: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def _compares(self, value: str | None) -> bool:
        try:
            have, bound = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return have > bound if self.operator == "Gt" else have < bound


def equal_to(labels: Mapping[str, str]) -> tuple[LabelCheck, ...]:
    """The checks of a node selector or of matchLabels."""
    return tuple(LabelCheck(key, "In", (value,)) for key, value in sorted(labels.items()))


def checks_of(requirements: tuple[Requirement, ...]) -> tuple[LabelCheck, ...]:
    """What a need's requirements ask of a single node; Same asks it to be in some domain."""
    found = []
    for key, operator, values in requirements:
        if operator is Operator.SAME:
            found.append(LabelCheck(key, "In", values) if values else LabelCheck(key, "Exists"))
        elif operator is not Operator.UNSPECIFIED:
            found.append(LabelCheck(key, operator.text, values))
    return tuple(found)


class Selector(Struct, frozen=True):
    """All checks must hold: without any, every pod is selected."""

    checks: tuple[LabelCheck, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(check.holds(labels) for check in self.checks)

    def anchor(self) -> tuple[str, str] | None:
        """A label every selected pod has; None when there is no such label."""
        for check in self.checks:
            if check.operator == "In" and len(check.values) == 1:
                return check.key, check.values[0]
        return None
