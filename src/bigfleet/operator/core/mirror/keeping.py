"""New nodes kept for those they came for: nobody else may stand there until these do, for a short time.

A node that becomes ready takes whatever waits at the head of the scheduler's queue. Three kinds of work lose by that,
because few other nodes would do: a gang, which comes only when its last node is ready; pods with devices; pods that
want a node each. They are bought for again, one boot later. So a node that came for a gang, or while such pods lack
room, carries a hard taint from its registration on, and those it is for get a toleration of it: a gang when all of it
has room, of what its nodes and open ones offer (or another gang that lacks some, if that one waits no more); other pods
as `reserving` plans them. What is reserved for nobody is open to all at once, and so is a node on which a gang stands;
one that is reserved opens when whom it is for stands there or is gone, and 30 s after it is ready and reserved at the
latest: somebody may refuse us the toleration. Before a node is ready not all of it is known, and devices are shown some
time after that: until then it is kept while such pods lack room, two minutes after it is ready at the latest. One that
waits for the rest of its gang is kept for eight minutes: let go while the last of its siblings boots, it was bought for
a second time, and others took it. (The shard gives up a node that is not ready ten minutes after it was bound; two are
for becoming one.)
Owns whom a node is kept for and until when; taint and tolerations are the shell's to write.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING

from bigfleet.model.resources import is_device
from bigfleet.operator.core.events import SECOND

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.nodes import Node

RESERVED_FOR = 30 * SECOND
KEPT_FOR_DEVICES = 120 * SECOND
KEPT_FOR_GANG = 480 * SECOND
RESERVED = "reserved"
_GANG = "gang "


class Keeping:
    """Nodes that are kept, since when each of them has been ready, and machines that are still to become nodes."""

    def __init__(self, reserves: bool) -> None:
        """`reserves`: pods may be given tolerations; else only nodes of gangs are kept, until all of it has room."""
        self.reserves = reserves
        self._nodes: dict[str, Node] = {}
        self._since: dict[str, int] = {}
        # Since when each of them is ready and reserved for somebody.
        self._reserved: dict[str, int] = {}
        # Devices that the machine of a kept node was said to have.
        self._promised: dict[str, set[str]] = {}
        # Machines under way as the nodes they will be, each with the gang it was bound for.
        self._coming: dict[str, tuple[str, Node]] = {}
        self._looked_at = 0
        # Whether something that few nodes would do for had no room at the last look, gangs apart.
        self._choosy = False

    def keep_for(self, group: str) -> str:
        """For whom a node is kept that has just come, bought for this gang or none; empty when for nobody."""
        if group:
            return _GANG + group
        return RESERVED if self._choosy and self.reserves else ""

    def told(self, machine: str, node: Node | None, group: str) -> None:
        """The shard says that a machine is on its way to us, or that it is not."""
        if node is None:
            self._coming.pop(machine, None)
        elif machine not in self._coming:
            self._coming[machine] = (group, node)

    def note(self, node: Node) -> None:
        """The node as it is now."""
        coming = self._coming.get(node.facts.machine)
        if node.facts.kept_for:
            self._nodes[node.name] = node
            if coming is not None:
                self._promised[node.name] = set(filter(is_device, coming[1].facts.allocatable.names()))
        else:
            self.forget(node.name)
        if node.facts.ready or node.facts.kept_for:
            self._coming.pop(node.facts.machine, None)

    def forget(self, name: str) -> None:
        for known in (self._nodes, self._since, self._reserved, self._promised):
            known.pop(name, None)

    def for_gang(self, group: str, waiting: Container[str]) -> list[Node]:
        """Nodes kept for it, or for a gang that waits for nothing any more: that one may have taken this one's."""
        found = []
        for node in self._nodes.values():
            whom = _gang_of(node)
            if whom is not None and node.could_open and (whom == group or whom not in waiting):
                found.append(node)
        return sorted(found, key=lambda node: (_gang_of(node) != group, node.name))

    def here(self) -> list[Node]:
        """Nodes to reserve for others than gangs, whether they are ready yet or not, that show what they were said to
        have."""
        kept = (
            node for node in self._nodes.values() if _gang_of(node) is None and node.may_open and self._is_whole(node)
        )
        return sorted(kept, key=lambda node: node.name)

    def coming(self) -> list[Node]:
        """Machines under way that were not bound for a gang."""
        return [node for _, (group, node) in sorted(self._coming.items()) if not group]

    def under_way(self) -> list[Node]:
        return [node for _, node in self._coming.values()]

    def let_go(
        self, waiting: Collection[str], seated: set[str], reserved: Container[Node], choosy: bool, now: int
    ) -> list[Node]:
        """Nodes that are open to all from now on. `waiting` are gangs of which something waits, `seated` those of them
        that have room for all of it; `reserved` are nodes that somebody may come to meanwhile; `choosy`: something that
        few nodes would do for has no room."""
        found = []
        self._choosy = choosy
        self._looked_at = now
        for name, node in self._nodes.items():
            if not node.may_open:
                continue
            group, wanted = _gang_of(node), node in reserved
            if node.facts.ready:
                self._since.setdefault(name, now)
                if wanted:
                    self._reserved.setdefault(name, now)
            if group is None and not (node.facts.ready and self._is_whole(node)):
                wanted = wanted or (choosy and self.reserves)
            if group is not None and not wanted and not node.occupants:
                short = len(seated) < len(waiting)
                wanted = not node.facts.ready or (group not in seated if group in waiting else short)
            if not wanted or now >= self._until(name, now + 1):
                found.append(node)
        return sorted(found, key=lambda node: node.name)

    def next_timer(self) -> int | None:
        """When one of them may be let go although nothing was told."""
        due = [self._until(name, 0) for name in self._since]
        return min((at for at in due if at > self._looked_at), default=None)

    def _until(self, name: str, else_: int) -> int:
        if name in self._reserved:
            return self._reserved[name] + RESERVED_FOR
        if name not in self._since:
            return else_
        return self._since[name] + (KEPT_FOR_DEVICES if _gang_of(self._nodes[name]) is None else KEPT_FOR_GANG)

    def _is_whole(self, node: Node) -> bool:
        return self._promised.get(node.name, set()) <= set(node.facts.allocatable.names())


def _gang_of(node: Node) -> str | None:
    """The gang it is kept for; None when it is not kept for one."""
    kept = node.facts.kept_for
    return kept.removeprefix(_GANG) if kept.startswith(_GANG) else None
