"""Which nodes of a cluster may still have room for a kind of pod: the scheduler need not look at all of them."""

from __future__ import annotations

from collections.abc import Mapping

from bigfleet.engine.batches import Shape as MachineShape
from bigfleet.model.taint import tolerates
from bigfleet.sim.world.pods import Node, PodKind, PodSet

_KINDS_KEPT = 64


class RoomyNodes:
    """Matching nodes per kind. The scheduler takes out those that are full; `offer` brings one back."""

    def __init__(self, nodes: Mapping[str, Node], podsets: Mapping[str, PodSet]) -> None:
        """Reads the cluster's own books, which must stay the same objects."""
        self._all = nodes
        self._podsets = podsets
        self._nodes: dict[PodKind, dict[str, Node]] = {}
        self._fits: dict[tuple[PodKind, MachineShape], bool] = {}
        self._labels: dict[MachineShape, dict[str, str]] = {}

    def of(self, kind: PodKind) -> dict[str, Node]:
        nodes = self._nodes.get(kind)
        if nodes is None:
            if len(self._nodes) >= _KINDS_KEPT:
                self._forget_unused()
            nodes = {id: node for id, node in sorted(self._all.items()) if self._fit(kind, node.shape)}
            self._nodes[kind] = nodes
        return nodes

    def offer(self, node: Node) -> None:
        """The node has room again for whatever matches it."""
        for kind, nodes in self._nodes.items():
            if node.id not in nodes and self._fit(kind, node.shape):
                nodes[node.id] = node

    def matches(self, kind: PodKind, node: Node) -> bool:
        """Whether the pod may be on the node at all, whatever room it has."""
        return self._fit(kind, node.shape)

    def forget(self, machine: str) -> None:
        for nodes in self._nodes.values():
            nodes.pop(machine, None)

    def attributes(self, shape: MachineShape) -> Mapping[str, str]:
        """What requirements are judged by, made once per shape."""
        known = self._labels.get(shape)
        if known is None:
            known = self._labels[shape] = shape.node_labels()
        return known

    def _forget_unused(self) -> None:
        live = {podset.kind for podset in self._podsets.values()}
        self._nodes = {kind: found for kind, found in self._nodes.items() if kind in live}
        self._fits = {name: fits for name, fits in self._fits.items() if name[0] in live}

    def _fit(self, kind: PodKind, shape: MachineShape) -> bool:
        known = self._fits.get((kind, shape))
        if known is None:
            known = tolerates(kind.profile.tolerations, shape.taints) and kind.profile.matches(
                self.attributes(shape).get
            )
            self._fits[kind, shape] = known
        return known
