"""New nodes kept for those they came for: no pod may stand there until these can, for a short time.

A node that becomes ready takes whatever waits at the head of the scheduler's queue. Two kinds of work lose by that: a
gang, which comes only when its last node is ready and finds the first ones taken; and pods with devices, when pods that
need none take the cores that go with the devices. Both are bought for again, one boot later. So a node that came for a
gang is kept until all of the gang has room, or, if that has gone elsewhere, another gang that lacks some. One with
devices is kept while a pod without lacks room that a machine would hold which has none either and was under way when
the first such node was ready. Never longer than one boot after it is ready, and never a node that has been open before.
Owns whom a node is kept for and until when; the taint is the shell's to write.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING

from bigfleet.model.resources import Resources, is_device
from bigfleet.operator.core.events import SECOND

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.nodes import Node

KEPT_FOR = 120 * SECOND
DEVICES = "devices"
_GANG = "gang "


class Keeping:
    """Nodes that are kept, since when each of them has been ready, and machines that are still to become nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._since: dict[str, int] = {}
        self._under_way: dict[str, Resources] = {}
        # Those that were under way when the first of the kept nodes became ready, and are so still.
        self._beside: dict[str, Resources] = {}
        # Requests of pods that had no room at the last look, gangs apart.
        self._lacking: set[Resources] = set()

    def keep_for(self, group: str, has: Resources) -> str:
        """For whom a node is kept that has just come, bought for this gang or none; empty when for nobody."""
        if group:
            return _GANG + group
        return DEVICES if _has_devices(has) and _awaited(self._lacking, self._under_way) else ""

    def told(self, machine: str, under_way: Resources | None) -> None:
        """The shard says that a machine with so much is on its way to us, or that it is not."""
        if under_way is not None:
            self._under_way[machine] = under_way
        else:
            self._arrived(machine)

    def _arrived(self, machine: str) -> None:
        self._under_way.pop(machine, None)
        self._beside.pop(machine, None)

    def note(self, node: Node) -> None:
        """The node as it is now."""
        if node.facts.ready:
            self._arrived(node.facts.machine)
        if node.facts.kept_for:
            self._nodes[node.name] = node
        else:
            self.forget(node.name)

    def forget(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._since.pop(name, None)

    def for_gang(self, group: str, waiting: Container[str]) -> list[Node]:
        """Nodes kept for it, or for a gang that waits for nothing any more: that one may have taken this one's."""
        found = []
        for node in self._nodes.values():
            whom = _gang_of(node)
            if whom is not None and node.could_open and (whom == group or whom not in waiting):
                found.append(node)
        return sorted(found, key=lambda node: (_gang_of(node) != group, node.name))

    def let_go(
        self, waiting: Collection[str], seated: set[str], used: set[Node], lacking: set[Resources], now: int
    ) -> list[Node]:
        """Nodes that are open to all from now on. `waiting` are gangs of which something waits, `seated` those of them
        that have room for all of it, on `used` too; `lacking` are requests of other pods without room."""
        found = []
        ready = {name: node for name, node in self._nodes.items() if node.could_open}
        if ready and not self._since:
            self._beside = dict(self._under_way)
        self._lacking = lacking
        awaited = bool(ready) and _awaited(lacking, self._beside)
        for name, node in ready.items():
            since, group = self._since.setdefault(name, now), _gang_of(node)
            if group is None:
                wanted = awaited
            elif group in waiting:
                wanted = group not in seated
            else:
                wanted = node not in used and len(seated) < len(waiting)
            if not wanted or now - since >= KEPT_FOR:
                found.append(node)
        return sorted(found, key=lambda node: node.name)

    def next_timer(self) -> int | None:
        return min((since + KEPT_FOR for since in self._since.values()), default=None)


def _gang_of(node: Node) -> str | None:
    """The gang it is kept for; None when it is not kept for one."""
    kept = node.facts.kept_for
    return kept.removeprefix(_GANG) if kept.startswith(_GANG) else None


def _awaited(lacking: set[Resources], under_way: dict[str, Resources]) -> bool:
    """Whether something without room will find it on a machine without devices."""
    plain = {has for has in under_way.values() if not _has_devices(has)}
    return any(all(has.get(name) >= amount for name, amount in wants.items()) for wants in lacking for has in plain)


def _has_devices(has: Resources) -> bool:
    return any(is_device(name) for name in has.names())
