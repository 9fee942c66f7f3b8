"""The order in which nodes are looked at for room: nodes with pods from the least used on, then empty ones by name.

The first node usually has room, so that nobody walks far; and empty nodes stay empty if they can. The order stands for
one pass: guests do not change it. Nodes that gained room are logged, so that what found none anywhere asks only those.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import attrgetter

from bigfleet.operator.core.mirror.filters import NodeFilter
from bigfleet.operator.core.mirror.kinds import Fit
from bigfleet.operator.core.mirror.nodes import Dimensions, Node

GPU = "nvidia.com/gpu"
_LOG_KEPT = 20_000
# Less than one in so many nodes are sorted by themselves; more are picked from the order of all.
_FEW = 16
_USE = attrgetter("use")


def fill(node: Node, dimensions: Dimensions) -> float:
    """How full: of devices where there are some, else the mean of cpu and memory."""
    places = dimensions.places
    total, free = node.total, node.free
    gpu = places.get(GPU)
    if gpu is not None and total[gpu] > 0:
        return 1 - free[gpu] / total[gpu]
    cpu, memory = places["cpu"], places["memory"]
    if total[cpu] > 0 and total[memory] > 0:
        return ((1 - free[cpu] / total[cpu]) + (1 - free[memory] / total[memory])) / 2
    for place in (cpu, memory):
        if total[place] > 0:
            return 1 - free[place] / total[place]
    return 0.0


class Order:
    """All nodes in order, and what happened to their room."""

    def __init__(self, nodes: Mapping[str, Node], dimensions: Dimensions) -> None:
        self._nodes = nodes
        self._dimensions = dimensions
        self._log: list[Node] = []
        self._dropped = 0
        self.busy: list[Node] = []
        self.empty: list[Node] = []
        self._all: list[Node] = []
        self.stamp = 0

    def begin(self, touched: Iterable[str], gained: Iterable[Node]) -> None:
        """A new pass: put what changed into its place."""
        nodes, dimensions = self._nodes, self._dimensions
        known = len(self._all) == len(nodes)
        for name in touched:
            node = nodes.get(name)
            if node is None:
                known = False
            else:
                known = known and node.use is not None
                node.use = (False, fill(node, dimensions), name) if node.occupants else (True, 0.0, name)
        # A list of its own for every pass: filters keep the one they were given.
        self._all = sorted(self._all if known else nodes.values(), key=_USE)
        first_empty = bisect_left(self._all, (True,), key=_USE)
        self.busy, self.empty = self._all[:first_empty], self._all[first_empty:]
        self._log.extend(gained)
        surplus = len(self._log) - _LOG_KEPT
        if surplus > _LOG_KEPT:
            del self._log[:surplus]
            self._dropped += surplus
        self.stamp += 1

    def walk(self, filter: NodeFilter) -> list[Node]:
        """Nodes that suit the filter, in order."""
        if filter.stamp != self.stamp:
            filter.stamp = self.stamp
            suitable = filter.nodes
            if len(suitable) == len(self._all):
                filter.walk = self._all
            elif len(suitable) * _FEW > len(self._all):
                filter.walk = [node for node in self._all if node in suitable]
            else:
                filter.walk = sorted(suitable, key=_USE)
        return filter.walk

    def found_none(self, fit: Fit) -> None:
        """No node has room for it, guests or not."""
        fit.none_since = self._dropped + len(self._log)

    def still_none(self, fit: Fit) -> bool:
        """Whether no node can have gained room for it since none had any."""
        since = fit.none_since - self._dropped
        if fit.none_since < 0 or since < 0:
            return False
        need, suitable = fit.need, fit.filter.nodes
        for node in self._log[since:]:
            # What guests take comes back: whether such a node has room cannot be told now.
            if node.open and node in suitable and (node.guests or node.room(need)):
                return False
        fit.none_since = self._dropped + len(self._log)
        return True
