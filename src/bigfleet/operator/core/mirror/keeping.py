"""New nodes kept for those they came for: no pod may stand there until these can, for a short time.

A node that becomes ready takes whatever waits at the head of the scheduler's queue. Two kinds of work lose by that: a
gang, which comes only when its last node is ready and finds the first ones taken; and pods with devices, when pods that
need none or few take what goes with many. Both are bought for again, one boot later. So a node that came for a
gang is kept until all of the gang has room. One with devices is kept while a pod lacks room that a lesser node would
hold, one that is kept too or was under way when the first was ready: so lesser nodes open first and small work goes
there. Never longer than one boot after it is ready, and never a node that has been open before. Owns whom a node is
kept for and until when; the taint is the shell's to write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bigfleet.model.resources import Resources, is_device
from bigfleet.operator.core.events import SECOND

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.nodes import Node

KEPT_FOR = 120 * SECOND
DEVICES = "devices"
_GANG = "gang "


def keep_for(group: str, resources: Iterable[str]) -> str:
    """For whom a node is kept that has just come, bought for this gang or none; empty when for nobody."""
    if group:
        return _GANG + group
    return DEVICES if any(is_device(name) for name in resources) else ""


class Keeping:
    """Nodes that are kept, since when each of them has been ready, and machines that are still to become nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._since: dict[str, int] = {}
        self._under_way: dict[str, Resources] = {}
        # Those that were under way when the first of the kept nodes became ready, and are so still.
        self._beside: dict[str, Resources] = {}

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

    def for_gang(self, group: str) -> list[Node]:
        """Nodes kept for it, by name."""
        found = [node for node in self._nodes.values() if node.facts.kept_for == _GANG + group and node.could_open]
        return sorted(found, key=lambda node: node.name)

    def let_go(self, waiting: Iterable[str], seated: set[str], lacking: set[Resources], now: int) -> list[Node]:
        """Nodes that are open to all from now on. `waiting` are gangs of which something waits, `seated` those of them
        that have room for all of it; `lacking` are requests of other pods without room."""
        found = []
        ready = {name: node for name, node in self._nodes.items() if node.could_open}
        if ready and not self._since:
            self._beside = dict(self._under_way)
        others = {*self._beside.values(), *(node.facts.allocatable for node in ready.values())}
        judged: dict[Resources, bool] = {}
        for name, node in ready.items():
            since, whom, has = self._since.setdefault(name, now), node.facts.kept_for, node.facts.allocatable
            group = whom.removeprefix(_GANG)
            if group != whom:
                wanted = group in waiting and group not in seated
            else:
                if has not in judged:
                    judged[has] = _lesser_would_do(has, others, lacking)
                wanted = judged[has]
            if not wanted or now - since >= KEPT_FOR:
                found.append(node)
        return sorted(found, key=lambda node: node.name)

    def next_timer(self) -> int | None:
        return min((since + KEPT_FOR for since in self._since.values()), default=None)


def _lesser_would_do(has: Resources, others: set[Resources], lacking: set[Resources]) -> bool:
    """Whether something that lacks room would take room here that a lesser node has for it too."""
    lesser = [other for other in others if _is_less(other, has)]
    return any(_holds(has, wants) and any(_holds(other, wants) for other in lesser) for wants in lacking)


def _holds(has: Resources, wants: Resources) -> bool:
    return all(has.get(name) >= amount for name, amount in wants.items())


def _is_less(one: Resources, other: Resources) -> bool:
    """Fewer devices, or as many and nothing else more."""
    mine, theirs = _devices(one), _devices(other)
    if mine != theirs:
        return mine < theirs
    return one != other and _holds(other, one)


def _devices(has: Resources) -> int:
    return sum(amount for name, amount in has.items() if is_device(name))
