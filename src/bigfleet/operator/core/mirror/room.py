"""Which nodes may have room for a size and a filter, in order of name, without looking at all of them each time.

A fit's list holds every node with room, and perhaps some without. Nodes that gained room are logged once per pass; a
fit reads the part of the log it has not seen when somebody asks for it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from bigfleet.operator.core.mirror.kinds import Fit
from bigfleet.operator.core.mirror.nodes import Node

_LOG_KEPT = 20_000


class Room:
    """The log, and the lists that follow it."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._log: list[Node] = []
        self._dropped = 0

    def gained(self, nodes: Iterable[Node]) -> None:
        """These may have room for more than before; nodes that are new or open again, too."""
        self._log.extend(nodes)
        surplus = len(self._log) - _LOG_KEPT
        if surplus > _LOG_KEPT:
            del self._log[:surplus]
            self._dropped += surplus

    def forget(self) -> None:
        """Filters may judge otherwise now: every list is made anew."""
        self._dropped += len(self._log) + 1
        self._log.clear()

    def names(self, fit: Fit) -> list[str]:
        """Names of nodes that may have room; the caller strikes out those that are gone or full."""
        if fit.seen < self._dropped:
            fit.names = sorted(node.name for node in self._nodes.values() if _roomy(node, fit))
            fit.members = set(fit.names)
        else:
            members, nodes = fit.members, self._nodes
            # Most are known already, most of the rest is full: both are told apart before anything is called.
            place, amount = fit.scarce
            unknown = [node for node in self._log[fit.seen - self._dropped :] if node.name not in members]
            for node in unknown:
                if node.free[place] < amount and not node.guests:
                    continue
                name = node.name
                if name not in members and nodes.get(name) is node and _roomy(node, fit):
                    members.add(name)
                    insort(fit.names, name)
        fit.seen = self._dropped + len(self._log)
        return fit.names

    @staticmethod
    def strike(fit: Fit, names: list[str]) -> None:
        """These have no room now; they come back with the log."""
        fit.members.difference_update(names)
        members = fit.members
        fit.names = [name for name in fit.names if name in members]


def _roomy(node: Node, fit: Fit) -> bool:
    # What guests take is given back at the end of the pass: such a node stays in the list, full or not.
    return node.open and (node.guests > 0 or node.room(fit.need) > 0) and fit.filter.suits(node)
