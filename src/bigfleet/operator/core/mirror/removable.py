"""Which nodes could go: their pods would all find room elsewhere, together, beside everything that waits.

Only the least used of our nodes are tried, so that a pass stays short. Judged on the books with guests in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from bigfleet.operator.core.mirror.books import Books
from bigfleet.operator.core.mirror.facts import Origin
from bigfleet.operator.core.mirror.kinds import Kind
from bigfleet.operator.core.mirror.nodes import Node, NodeClass
from bigfleet.operator.core.mirror.placing import Placing, tally
from bigfleet.operator.core.mirror.waiting import home_of

TRIED = 200
# So many of the least used nodes of each class are tried first as the one place for everything.
_ROOMIEST = 3
_LOOKED_AT = 1000
_TURN: Callable[[tuple[Kind, int]], tuple[object, ...]] = lambda each: each[0].turn  # noqa: E731


def removable_nodes(books: Books, placing: Placing, candidates: Iterable[Node]) -> frozenset[str]:
    """Those of the first 200 eligible candidates that could go."""
    candidates = list(candidates)
    roomiest = _roomiest(candidates)
    tried, found = 0, []
    for node in candidates:
        if not _eligible(node):
            continue
        tried += 1
        if could_go(books, placing, node, roomiest):
            found.append(node.name)
        if tried == TRIED:
            break
    return frozenset(found)


def _roomiest(candidates: Iterable[Node]) -> dict[NodeClass, list[Node]]:
    """Of each class of nodes some of the least used."""
    found: dict[NodeClass, list[Node]] = {}
    for node in itertools.islice(candidates, _LOOKED_AT):
        if node.open and not node.guests:
            like = found.setdefault(node.cls, [])
            if len(like) < _ROOMIEST:
                like.append(node)
    return found


def could_go(books: Books, placing: Placing, node: Node, roomiest: Mapping[NodeClass, list[Node]]) -> bool:
    """Whether all its pods that would come back have room on other nodes; guests of the trial are taken away again."""
    movers = _movers(node)
    if not any(kind.hard or kind.same is not None for kind, _ in movers):
        return _on_one(node, movers, roomiest) or _all_move(books, placing, node, movers)
    tallied = [each for each in movers if each[0].counted]
    for kind, count in tallied:
        tally(kind, node, -count)
    try:
        picky = [each for each in movers if each[0].shape.picky]
        mark = placing.try_out(kind for kind, _ in picky)
        moved = all(_moves(books, placing, node, *each) for each in picky)
        quickly = moved and _on_one(node, movers[len(picky) :], roomiest)
        placing.tried(mark)
        return moved and (quickly or _all_move(books, placing, node, movers))
    finally:
        for kind, count in tallied:
            tally(kind, node, count)


def _all_move(books: Books, placing: Placing, node: Node, movers: list[tuple[Kind, int]]) -> bool:
    mark = placing.try_out(kind for kind, _ in movers)
    moved = all(_moves(books, placing, node, *each) for each in movers)
    placing.tried(mark)
    return moved


def _on_one(node: Node, movers: list[tuple[Kind, int]], roomiest: Mapping[NodeClass, list[Node]]) -> bool:
    """Whether they all fit one other node of its class: then they also do when each takes the first that has room."""
    total: dict[int, int] = {}
    for kind, count in movers:
        if kind.hard:
            return False
        for place, amount in kind.need:
            total[place] = total.get(place, 0) + amount * count
    needs = tuple(total.items())
    for other in roomiest.get(node.cls, ()):
        if other is not node and other.room(needs) and all(kind.fit.filter.suits(other) for kind, _ in movers):
            return True
    return False


def _eligible(node: Node) -> bool:
    if not node.ours or node.guests or node.away or not node.facts.ready:
        return False
    return not node.held


def _movers(node: Node) -> list[tuple[Kind, int]]:
    """Pods that need another place, picky ones first, then largest; those that are leaving anyway do not."""
    found = []
    for kind, count in node.kinds.items():
        count -= node.leaving.get(kind, 0)
        if count and kind.shape.origin is Origin.REPLICATED:
            found.append((kind, count))
    found.sort(key=_TURN)
    return found


def _moves(books: Books, placing: Placing, node: Node, kind: Kind, count: int) -> bool:
    if kind.same is None:
        return placing.place(kind, count, apart_from=node) == count
    domains = dict(books.gangs.get(kind.shape.group, {}))
    here = node.labels.get(kind.same.key)
    whole = sum(domains.values()) == count
    home = None if whole or here is None else home_of(books, kind.shape.group)
    return placing.place_gang([(kind, count)], kind.same, home, apart_from=node)
