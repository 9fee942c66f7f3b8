"""Which nodes a pod may use by labels and taints alone: judged once per class of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.taint import BLOCKING_EFFECTS, Taint, Toleration
from bigfleet.operator.core.mirror.labels import LabelCheck

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.nodes import Node, NodeClass

# What the scheduler calls a node's own name; the shell writes matchFields on metadata.name as a check of it.
NODE_NAME = "metadata.name"
_OWN = (HOSTNAME_LABEL, NODE_NAME)
# The scheduler's own mark of a cordoned node; being cordoned is a fact of its own here.
_CORDONED = "node.kubernetes.io/unschedulable"


# Resources that every node has.
COMMON = ("cpu", "memory", "pods", "ephemeral-storage")


class NodeFilter:
    """Node terms, tolerations and devices. Remembers its verdict per class, unless it names single nodes."""

    __slots__ = ("_labels", "_singles", "_suits", "devices", "nodes", "stamp", "terms", "tolerations", "walk")

    def __init__(
        self,
        terms: tuple[tuple[LabelCheck, ...], ...],
        tolerations: tuple[Toleration, ...],
        devices: tuple[str, ...] = (),
    ) -> None:
        self.terms = terms
        self.tolerations = tolerations
        self.devices = devices
        self._singles = any(check.key in _OWN for term in terms for check in term)
        self._labels: dict[NodeClass, bool] = {}
        self._suits: dict[NodeClass, bool] = {}
        # All nodes that suit, and those in the order of one pass.
        self.nodes: set[Node] = set()
        self.walk: list[Node] = []
        self.stamp = -1

    def suits(self, node: Node) -> bool:
        """Labels and taints let the pod on this node, and it has such devices at all."""
        known = None if self._singles else self._suits.get(node.cls)
        if known is None:
            has = node.facts.allocatable.names()
            known = all(name in has for name in self.devices) and self.suits_labels(node)
            known = known and all(self._tolerated(taint) for taint in node.facts.taints)
            self._suits[node.cls] = known
        return known

    def suits_labels(self, node: Node) -> bool:
        known = None if self._singles else self._labels.get(node.cls)
        if known is None:
            labels = {**node.labels, NODE_NAME: node.name} if self._singles else node.labels
            known = not self.terms or any(all(check.holds(labels) for check in term) for term in self.terms)
            self._labels[node.cls] = known
        return known

    def forget(self) -> None:
        """Classes were made anew."""
        self._labels.clear()
        self._suits.clear()

    def _tolerated(self, taint: Taint) -> bool:
        if taint.effect not in BLOCKING_EFFECTS or taint.key == _CORDONED:
            return True
        return any(toleration.tolerates(taint) for toleration in self.tolerations)
