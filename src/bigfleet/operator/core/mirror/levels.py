"""Levels of fill: soft taints that make the default scheduler pack, one for each threshold a node's fill lies below.

Where there are services, a node without them counts as emptier than it is, so that jobs end and nodes with them. A node
with devices is spared: it has more soft taints than any other can have, so that what needs no device goes there last,
or it takes the cores that go with devices which nothing else has. Where pods whom an interruption costs much are kept
off interruptible nodes, nodes that are not interrupted are spared too: those pods have no other, and whoever may stand
elsewhere would take their room. Owns the levels and when they change; the taints themselves are the shell's to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bigfleet.model.machine import CapacityType
from bigfleet.model.names import CAPACITY_TYPE_LABEL
from bigfleet.model.resources import is_device
from bigfleet.operator.core.events import SECOND
from bigfleet.operator.core.mirror.facts import Origin
from bigfleet.operator.core.mirror.nodes import Dimensions, Node
from bigfleet.operator.core.mirror.order import fill

THRESHOLDS = (0.90, 0.75, 0.60, 0.45, 0.30, 0.15)
HYSTERESIS = 0.03
_CLEARLY_BELOW = tuple(threshold - HYSTERESIS for threshold in THRESHOLDS)
_CLEARLY_ABOVE = tuple(threshold + HYSTERESIS for threshold in THRESHOLDS)
WITHOUT_SERVICES = 0.5
INTERVAL = 30 * SECOND
# Soft taints of a node that is to be spared, on top of its level: one more than the emptiest of the others has.
SPARED = len(THRESHOLDS) + 1
# No more than this share of the nodes, or this many, change their level at a time.
CHANGED_SHARE = 0.10
CHANGED_AT_LEAST = 10
_SPOT = (CAPACITY_TYPE_LABEL, CapacityType.SPOT.label)


def level_of(fullness: float, before: int | None) -> int:
    """How many thresholds it lies below; a level only changes when the fill is clearly past its threshold."""
    if before is None:
        return _below(fullness, THRESHOLDS)
    return min(max(before, _below(fullness, _CLEARLY_BELOW)), _below(fullness, _CLEARLY_ABOVE))


def _below(fullness: float, thresholds: tuple[float, ...]) -> int:
    """How many of them it lies below; the highest comes first."""
    count = 0
    for threshold in thresholds:
        if fullness >= threshold:
            break
        count += 1
    return count


class Levels:
    """The level of each of our nodes, as far as it was told; what is told is the level, and SPARED for each reason to
    spare the node. `firm_last`: nodes that are not interrupted are spared beside nodes that are."""

    def __init__(self, dimensions: Dimensions, interval: int = INTERVAL, *, firm_last: bool = False) -> None:
        self._dimensions = dimensions
        self._interval = interval
        self._firm_last = firm_last
        self._told: dict[str, int] = {}
        self._due = 0
        # Some node had services when this was last looked at: where none has, all would count as nearly empty.
        self._apart = False

    def due(self) -> int:
        return self._due

    def take(self, nodes: Iterable[Node], now: int) -> list[tuple[str, int]]:
        """Nodes whose level changes now, those furthest from their level first: nodes to be spared when they are first
        seen, the others every so often."""
        ours = [node for node in nodes if node.ours]
        places = [place for name, place in self._dimensions.places.items() if is_device(name)]
        risky = self._firm_last and any(map(_interruptible, ours))
        if now < self._due:
            spared = {node.name: _spared(node, places, risky) for node in ours if node.name not in self._told}
            new = [node for node in ours if spared.get(node.name)]
            found = [(name, level_of(fullness, None) + spared[name]) for name, fullness in self._counted(new)]
            self._told.update(found)
            return found
        self._due = now + self._interval
        self._apart = any(_serves(node) for node in ours)
        spared = {node.name: _spared(node, places, risky) for node in ours}
        wanted = {}
        for name, fullness in self._counted(ours):
            before = self._told.get(name)
            wanted[name] = level_of(fullness, None if before is None else before % SPARED) + spared[name]
        changed = [name for name, told in wanted.items() if self._told.get(name) != told]
        changed.sort(key=lambda name: (-abs(wanted[name] - self._told.get(name, 0)), name))
        changed = changed[: max(CHANGED_AT_LEAST, int(len(ours) * CHANGED_SHARE))]
        known = {name: told for name, told in self._told.items() if name in wanted}
        known.update((name, wanted[name]) for name in changed)
        self._told = known
        return [(name, wanted[name]) for name in changed]

    def _counted(self, nodes: Iterable[Node]) -> Iterator[tuple[str, float]]:
        """Names, and how full each counts as."""
        for node in nodes:
            less = WITHOUT_SERVICES if self._apart and not _serves(node) else 0.0
            yield node.name, fill(node, self._dimensions) - less


def _interruptible(node: Node) -> bool:
    return _SPOT in node.facts.labels


def _spared(node: Node, devices: list[int], risky: bool) -> int:
    """Soft taints of a node that is to be spared; `devices` are the places of those there are."""
    has_devices = any(node.total[place] > 0 for place in devices)
    return SPARED * (has_devices + (risky and not _interruptible(node)))


def _serves(node: Node) -> bool:
    return any(kind.shape.service and kind.shape.origin is not Origin.DAEMON for kind in node.kinds)
