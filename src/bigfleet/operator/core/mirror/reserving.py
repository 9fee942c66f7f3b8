"""Who of those that wait a new node is reserved for: one plan of all of them on all nodes that are new or on their way.

Owns the plan. It is made anew at every look and leaves no guests behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from bigfleet.model.resources import is_device
from bigfleet.operator.core.mirror.kinds import Kind
from bigfleet.operator.core.mirror.nodes import Node
from bigfleet.operator.core.mirror.placing import Placing, allows
from bigfleet.operator.core.mirror.pods import Pod


def reserve(
    placing: Placing, lacking: Sequence[Pod], ready: Sequence[Node], coming: Sequence[Node]
) -> dict[Node, list[Pod]]:
    """Of new nodes that are ready those on which others would take the room of whom they are for, with these."""
    waiting: dict[Kind, list[Pod]] = {}
    for pod in lacking:
        waiting.setdefault(pod.kind, []).append(pod)
    counts = {kind: len(pods) for kind, pods in waiting.items()}
    bins = [*ready, *coming]
    suits = {kind: [node for node in bins if _suits(kind, node)] for kind in waiting}
    turn = sorted(waiting, key=lambda kind: (*kind.order[:3], len(suits[kind]), *kind.order[3:]))
    before = {node: list(node.free) for node in ready}
    is_ready = set(ready)
    mark = placing.mark()
    planned: dict[Kind, dict[Node, int]] = {}
    left: dict[Kind, int] = {}
    for kind in turn:
        count, here = len(waiting[kind]), planned.setdefault(kind, {})
        for node in sorted(suits[kind], key=lambda node: (node.room(kind.need), node not in is_ready, node.name)):
            placed = _fill(placing, kind, node, count)
            if placed:
                here[node] = placed
                count -= placed
            if not count:
                break
        left[kind] = count
    # What nobody on a ready node needs is for those who would have to wait longer.
    for kind in turn:
        late = left[kind] + sum(count for node, count in planned[kind].items() if node not in is_ready)
        for node in suits[kind]:
            if late and node in is_ready:
                placed = _fill(placing, kind, node, late)
                if placed:
                    planned[kind][node] = planned[kind].get(node, 0) + placed
                    late -= placed
        for node in [node for node in planned[kind] if node not in is_ready]:
            del planned[kind][node]
        left[kind] = late
    found: dict[Node, list[Pod]] = {}
    for node in ready:
        mine = {kind: held[node] for kind, held in planned.items() if held.get(node)}
        if mine and any(
            mine.get(kind, 0) < counts[kind] and mine.keys() - {kind} and _would_rob(kind, node, before[node])
            for kind in turn
        ):
            found[node] = [pod for kind, count in mine.items() for pod in _some(waiting, kind, count)]
    placing.undo(mark)
    return found


def _some(waiting: dict[Kind, list[Pod]], kind: Kind, count: int) -> list[Pod]:
    taken, waiting[kind] = waiting[kind][:count], waiting[kind][count:]
    return taken


def _suits(kind: Kind, node: Node) -> bool:
    if not kind.fit.filter.suits(node) or not node.room(kind.need):
        return False
    return bool(kind.fit.filter.devices) or not any(is_device(name) for name in node.facts.allocatable.names())


def _would_rob(kind: Kind, node: Node, free: Sequence[int]) -> bool:
    """Whether such a pod could stand there if it came first."""
    return kind.fit.filter.suits(node) and all(free[place] >= amount for place, amount in kind.need)


def _fill(placing: Placing, kind: Kind, node: Node, count: int) -> int:
    placed = 0
    count = min(count, node.room(kind.need))
    if not kind.hard:
        if count:
            placing.put(kind, node, count)
        return count
    while placed < count and allows(kind, node):
        placing.put(kind, node, 1)
        placed += 1
    return placed
