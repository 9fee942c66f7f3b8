"""Levels of fill: soft taints that make the default scheduler pack, one for each threshold a node's fill lies below.

A node without services counts as emptier than it is, so that jobs end and nodes with them. Owns the levels and when
they change; the taints themselves are the shell's to write.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.operator.core.events import SECOND
from bigfleet.operator.core.mirror.facts import Origin
from bigfleet.operator.core.mirror.nodes import Dimensions, Node
from bigfleet.operator.core.mirror.order import fill

THRESHOLDS = (0.90, 0.75, 0.60, 0.45, 0.30, 0.15)
HYSTERESIS = 0.03
WITHOUT_SERVICES = 0.5
INTERVAL = 30 * SECOND
# No more than this share of the nodes, or this many, change their level at a time.
CHANGED_SHARE = 0.10
CHANGED_AT_LEAST = 10


def level_of(fullness: float, before: int | None) -> int:
    """How many thresholds it lies below; a level only changes when the fill is clearly past its threshold."""
    if before is None:
        return sum(fullness < threshold for threshold in THRESHOLDS)
    least = sum(fullness < threshold - HYSTERESIS for threshold in THRESHOLDS)
    most = sum(fullness < threshold + HYSTERESIS for threshold in THRESHOLDS)
    return min(max(before, least), most)


class Levels:
    """The level of each of our nodes, as far as it was told."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._levels: dict[str, int] = {}
        self._due = 0

    def due(self) -> int:
        return self._due

    def take(self, nodes: Iterable[Node], now: int) -> list[tuple[str, int]]:
        """Nodes whose level changes now, those furthest from their level first; nothing before the interval is over."""
        if now < self._due:
            return []
        self._due = now + INTERVAL
        ours = [node for node in nodes if node.ours]
        wanted = {node.name: level_of(self._counted(node), self._levels.get(node.name)) for node in ours}
        changed = [name for name, level in wanted.items() if self._levels.get(name) != level]
        changed.sort(key=lambda name: (-abs(wanted[name] - self._levels.get(name, 0)), name))
        changed = changed[: max(CHANGED_AT_LEAST, int(len(ours) * CHANGED_SHARE))]
        known = {name: level for name, level in self._levels.items() if name in wanted}
        known.update((name, wanted[name]) for name in changed)
        self._levels = known
        return [(name, wanted[name]) for name in changed]

    def _counted(self, node: Node) -> float:
        serves = any(kind.shape.service and kind.shape.origin is not Origin.DAEMON for kind in node.kinds)
        fullness = fill(node, self._dimensions)
        return fullness if serves else fullness - WITHOUT_SERVICES
