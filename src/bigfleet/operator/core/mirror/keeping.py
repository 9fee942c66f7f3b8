"""PROTOTYPE"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING

from bigfleet.operator.core.events import SECOND

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.nodes import Node

KEPT_FOR = 30 * SECOND
KEPT_FOR_GANG = 480 * SECOND
ITSELF = "itself"
_GANG = "gang "


class Keeping:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._since: dict[str, int] = {}
        self._coming: dict[str, tuple[str, Node]] = {}
        self._looked_at = 0
        self.lacking = False

    def keep_for(self, group: str) -> str:
        if group:
            return _GANG + group
        return ITSELF if self.lacking else ""

    def told(self, machine: str, node: Node | None, group: str) -> None:
        if node is None:
            self._coming.pop(machine, None)
        elif machine not in self._coming:
            self._coming[machine] = (group, node)

    def note(self, node: Node) -> None:
        if node.facts.kept_for:
            self._nodes[node.name] = node
        else:
            self.forget(node.name)
        if node.facts.ready:
            self._coming.pop(node.facts.machine, None)

    def forget(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._since.pop(name, None)

    def for_gang(self, group: str, waiting: Container[str]) -> list[Node]:
        found = []
        for node in self._nodes.values():
            whom = _gang_of(node)
            if whom is not None and node.could_open and (whom == group or whom not in waiting):
                found.append(node)
        return sorted(found, key=lambda node: (_gang_of(node) != group, node.name))

    def plain(self) -> list[Node]:
        return sorted(
            (node for node in self._nodes.values() if _gang_of(node) is None and node.could_open),
            key=lambda node: node.name,
        )

    def all_coming(self) -> list[Node]:
        return [node for _, node in self._coming.values()]

    def coming(self) -> list[Node]:
        return [node for _, (group, node) in sorted(self._coming.items()) if not group]

    def let_go(
        self, waiting: Collection[str], seated: set[str], reserved: Container[Node], lacking: bool, now: int
    ) -> list[Node]:
        found = []
        self.lacking = lacking
        self._looked_at = now
        for name, node in self._nodes.items():
            if not node.could_open:
                continue
            since, group = self._since.setdefault(name, now), _gang_of(node)
            if node in reserved:
                wanted = True
            elif group is None:
                wanted = False
            elif group in waiting:
                wanted = group not in seated
            else:
                wanted = len(seated) < len(waiting)
            if not wanted or now >= since + _longest(node):
                found.append(node)
        return sorted(found, key=lambda node: node.name)

    def next_timer(self) -> int | None:
        due = [since + _longest(self._nodes[name]) for name, since in self._since.items()]
        return min((at for at in due if at > self._looked_at), default=None)


def _gang_of(node: Node) -> str | None:
    kept = node.facts.kept_for
    return kept.removeprefix(_GANG) if kept.startswith(_GANG) else None


def _longest(node: Node) -> int:
    return KEPT_FOR if _gang_of(node) is None else KEPT_FOR_GANG
