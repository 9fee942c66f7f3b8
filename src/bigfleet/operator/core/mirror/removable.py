"""Which nodes could go: their pods would all find room elsewhere, together, beside everything that waits.

Only the least used of our nodes are tried, so that a pass stays short. Judged on the books with guests in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from heapq import nlargest

from bigfleet.operator.core.mirror.books import Books
from bigfleet.operator.core.mirror.facts import Origin
from bigfleet.operator.core.mirror.kinds import Kind, Need
from bigfleet.operator.core.mirror.nodes import Node, NodeClass
from bigfleet.operator.core.mirror.order import Order
from bigfleet.operator.core.mirror.placing import Placing
from bigfleet.operator.core.mirror.waiting import home_of

TRIED = 100
# So many nodes of each class are tried first as the one place for everything.
_ROOMIEST = 4
_LOOKED_AT = 500


def removable_nodes(books: Books, placing: Placing, order: Order) -> frozenset[str]:
    """Those of the first hundred eligible candidates, from the least used on, that could go."""
    roomiest = _roomiest(order, books.dimensions.place("cpu"), books.dimensions.place("memory"))
    tried, found = 0, []
    for node in order.busy:
        if not _eligible(node):
            continue
        tried += 1
        if could_go(books, placing, node, roomiest):
            found.append(node.name)
        if tried == TRIED:
            break
    return frozenset(found)


def _roomiest(order: Order, cpu: int, memory: int) -> dict[NodeClass, list[Node]]:
    """Of each class of nodes some with much room."""
    found: dict[NodeClass, list[Node]] = {}
    for node in itertools.chain(order.busy[:_LOOKED_AT], order.empty[:_LOOKED_AT]):
        if node.open and not node.guests:
            found.setdefault(node.cls, []).append(node)
    return {
        cls: nlargest(_ROOMIEST, nodes, key=lambda node: node.free[cpu] * node.free[memory])
        for cls, nodes in found.items()
    }


def could_go(books: Books, placing: Placing, node: Node, roomiest: Mapping[NodeClass, list[Node]]) -> bool:
    """Whether all its pods that would come back have room on other nodes; guests of the trial are taken away again."""
    plan = _plan(node, books.kinds.epoch)
    if not plan.hard:
        return _on_one(node, plan, roomiest) or _all_move(books, placing, node, plan.movers)
    for tally, count in plan.tallied:
        tally.count(node, -count)
    mark = placing.try_out(plan.picky)
    moved = all(_moves(books, placing, node, *each) for each in plan.picky)
    quickly = moved and _on_one(node, plan, roomiest)
    placing.tried(mark)
    moved = moved and (quickly or _all_move(books, placing, node, plan.movers))
    for tally, count in plan.tallied:
        tally.count(node, count)
    return moved


class Plan:
    """What has to find room elsewhere when a node goes; worked out again only when its pods change."""

    __slots__ = ("epoch", "filters", "hard", "movers", "needs", "picky", "tallied")

    def __init__(self, node: Node, epoch: int) -> None:
        self.epoch = epoch
        # Picky ones first, then largest; those that are leaving anyway need no place.
        self.movers: list[tuple[Kind, int]] = []
        for kind, count in node.kinds.items():
            count -= node.leaving.get(kind, 0)
            if count and kind.shape.origin is Origin.REPLICATED:
                self.movers.append((kind, count))
        self.movers.sort(key=lambda each: each[0].turn)
        self.picky = [each for each in self.movers if each[0].shape.picky]
        plain = self.movers[len(self.picky) :]
        self.hard = any(kind.hard or kind.same is not None for kind, _ in self.movers)
        # Where the movers count, as far as one of them asks there.
        asked = {tally for kind, _ in self.movers if kind.hard for tally in kind.asks()}
        self.tallied = [
            (tally, count)
            for kind, count in self.movers
            if kind.counted
            for tally in (*kind.tallied, *kind.holds, *kind.spread_by)
            if tally in asked
        ]
        # All plain ones as if they were one; none when some of them care for their neighbours after all.
        self.needs: Need | None = None
        if not any(kind.hard for kind, _ in plain):
            total: dict[int, int] = {}
            for kind, count in plain:
                for place, amount in kind.need:
                    total[place] = total.get(place, 0) + amount * count
            self.needs = tuple(total.items())
        self.filters = list({kind.fit.filter for kind, _ in plain})


def _plan(node: Node, epoch: int) -> Plan:
    plan = node.plan
    if plan is None or plan.epoch != epoch:
        plan = node.plan = Plan(node, epoch)
    return plan


def _all_move(books: Books, placing: Placing, node: Node, movers: list[tuple[Kind, int]]) -> bool:
    mark = placing.try_out(movers)
    moved = False
    if all(placing.most(kind, node) >= count for kind, count in movers):
        moved = all(_moves(books, placing, node, *each) for each in movers)
    placing.tried(mark)
    return moved


def _on_one(node: Node, plan: Plan, roomiest: Mapping[NodeClass, list[Node]]) -> bool:
    """Whether the plain ones all fit one other node of its class: then each also finds the first that has room."""
    if plan.needs is None:
        return False
    for other in roomiest.get(node.cls, ()):
        if other is not node and other.room(plan.needs) and all(filter.suits(other) for filter in plan.filters):
            return True
    return False


def _eligible(node: Node) -> bool:
    if not node.ours or node.guests or node.away or not node.facts.ready:
        return False
    return not node.held


def _moves(books: Books, placing: Placing, node: Node, kind: Kind, count: int) -> bool:
    if kind.same is None:
        return placing.place(kind, count, apart_from=node) == count
    domains = dict(books.gangs.get(kind.shape.group, {}))
    here = node.labels.get(kind.same.key)
    whole = sum(domains.values()) == count
    home = None if whole or here is None else home_of(books, kind.shape.group)
    return placing.place_gang([(kind, count)], kind.same, home, apart_from=node)
