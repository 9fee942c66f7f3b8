"""Taints of machines, tolerations of demand, and whether one puts up with the other.

Owns the Kubernetes matching rule. Keys under `node.kubernetes.io/` describe a node's momentary condition, not a kind
of machine, so they neither block nor become part of a profile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

CONDITION_PREFIX = "node.kubernetes.io/"
BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Equal", "Exists")


class Taint(NamedTuple):
    """A mark on a machine that repels demand which does not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    @property
    def blocks(self) -> bool:
        return self.effect in BLOCKING_EFFECTS and not self.key.startswith(CONDITION_PREFIX)


class Toleration(NamedTuple):
    """Permission to use machines with a taint; an empty key or effect stands for any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.operator in ("Equal", "") and self.value == taint.value)


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether demand with these tolerations may be served by a machine with these taints."""
    blocking = [taint for taint in taints if taint.blocks]
    if not blocking:
        return True
    tolerations = tuple(tolerations)
    return all(any(toleration.tolerates(taint) for toleration in tolerations) for taint in blocking)
