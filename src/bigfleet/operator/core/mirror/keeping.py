"""New nodes kept for those they came for: no pod may stand there until these can, for a short time.

A node that becomes ready takes whatever waits at the head of the scheduler's queue. Two kinds of work lose by that: a
gang, which comes only when its last node is ready and finds the first ones taken; and pods with devices, when pods that
need none take the cores that go with the devices. Both are bought for again, one boot later. So a node that came for a
gang is kept until all of the gang has room, or, if that has gone elsewhere, another gang that lacks some. One with
devices is kept while a pod without lacks room that a machine would hold which has none either and was bought before it
or at most a quarter of a minute later; until that is over, while any pod without devices lacks room, because its
machine may be bought yet. (Waiting for whatever is under way, it waited for the next boot too, and its own pods with
it; waiting for nothing that came later, it let in whoever arrived seconds after its own.) Never longer than one boot
after it is ready, and never a node that has been open before. One kept for a gang may be so for eight minutes: let go
while the last of its siblings boots, it was bought for a second time, and others took it. (The shard gives up a node
that is not ready ten minutes after it was bound; two are for becoming one.)
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
KEPT_FOR_GANG = 480 * SECOND
# Machines bought so soon after each other are of one purchase to those who wait for them.
TOGETHER = 15 * SECOND
DEVICES = "devices"
_GANG = "gang "


class Keeping:
    """Nodes that are kept, since when each of them has been ready, and machines that are still to become nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._since: dict[str, int] = {}
        # Machines under way, each with the look before which we heard of it first.
        self._under_way: dict[str, tuple[int, Resources]] = {}
        self._looked_at = 0
        # The same instant for the machines of kept nodes.
        self._bought: dict[str, int] = {}
        # Requests of pods that had no room at the last look, gangs apart.
        self._lacking: set[Resources] = set()

    def keep_for(self, group: str, has: Resources) -> str:
        """For whom a node is kept that has just come, bought for this gang or none; empty when for nobody."""
        if group:
            return _GANG + group
        return DEVICES if _has_devices(has) and self._lacks_plainly() else ""

    def told(self, machine: str, under_way: Resources | None) -> None:
        """The shard says that a machine with so much is on its way to us, or that it is not."""
        if under_way is None:
            self._under_way.pop(machine, None)
        elif machine not in self._under_way:
            self._under_way[machine] = (self._looked_at, under_way)

    def note(self, node: Node) -> None:
        """The node as it is now."""
        machine = node.facts.machine
        if node.facts.kept_for:
            self._nodes[node.name] = node
            if node.name not in self._bought:
                self._bought[node.name] = self._under_way[machine][0] if machine in self._under_way else self._looked_at
        else:
            self.forget(node.name)
        if node.facts.ready:
            self._under_way.pop(machine, None)

    def forget(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._since.pop(name, None)
        self._bought.pop(name, None)

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
        self._lacking = lacking
        awaited = {bought: self._awaited(bought) for bought in {self._bought[name] for name in ready}}
        self._looked_at = now
        for name, node in ready.items():
            since, group = self._since.setdefault(name, now), _gang_of(node)
            if group is None:
                bought = self._bought[name]
                wanted = awaited[bought] or (now < bought + TOGETHER and self._lacks_plainly())
            elif group in waiting:
                wanted = group not in seated
            else:
                wanted = node not in used and len(seated) < len(waiting)
            if not wanted or now >= since + _longest(node):
                found.append(node)
        return sorted(found, key=lambda node: node.name)

    def next_timer(self) -> int | None:
        """When one of them may be let go although nothing was told."""
        due = [since + _longest(self._nodes[name]) for name, since in self._since.items()]
        due += [at + TOGETHER for name, at in self._bought.items() if name in self._since]
        return min((at for at in due if at > self._looked_at), default=None)

    def _lacks_plainly(self) -> bool:
        """Whether something without devices has no room."""
        return any(not _has_devices(wants) for wants in self._lacking)

    def _awaited(self, bought: int) -> bool:
        """Whether something without room will find it on a machine without devices that was bought by then."""
        until = bought + TOGETHER
        plain = {has for heard, has in self._under_way.values() if heard <= until and not _has_devices(has)}
        return any(
            all(has.get(name) >= amount for name, amount in wants.items()) for wants in self._lacking for has in plain
        )


def _gang_of(node: Node) -> str | None:
    """The gang it is kept for; None when it is not kept for one."""
    kept = node.facts.kept_for
    return kept.removeprefix(_GANG) if kept.startswith(_GANG) else None


def _longest(node: Node) -> int:
    return KEPT_FOR if _gang_of(node) is None else KEPT_FOR_GANG


def _has_devices(has: Resources) -> bool:
    return any(is_device(name) for name in has.names())
