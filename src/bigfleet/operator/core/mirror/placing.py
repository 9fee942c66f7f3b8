"""Where waiting pods would go: the first node, in the order of `order`, that the scheduler's filters let them on.

Everything placed here is a guest: the books count it like a pod until `undo` takes it back. Which node a real scheduler
prefers does not matter, only whether there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bigfleet.model.requirement import Requirement
from bigfleet.operator.core.mirror.kinds import Fit, Kind
from bigfleet.operator.core.mirror.nodes import Node
from bigfleet.operator.core.mirror.order import Order


def tally(kind: Kind, node: Node, change: int, *, terminating: bool = False) -> None:
    """Count pods of this kind on this node in whatever selects them."""
    for each in kind.tallied:
        each.count(node, change)
    for each in kind.holds:
        each.count(node, change)
    if not terminating:
        for each in kind.spread_by:
            each.count(node, change)


def allows(kind: Kind, node: Node) -> bool:
    """Whether ports, (anti-)affinity and strict spreads let one more pod of this kind on the node."""
    if kind.shape.ports and node.port_is_taken(kind.shape.ports):
        return False
    for each in kind.anti_affinity:
        if each.at(node):
            return False
    for each in kind.repelled_by:
        if each.at(node):
            return False
    for each, skew, itself in kind.spreads:
        if each.key not in node.labels or each.at(node) + itself - each.least() > skew:
            return False
    return not kind.affinity or _attracts(kind, node)


def _attracts(kind: Kind, node: Node) -> bool:
    if any(each.key not in node.labels for each, _ in kind.affinity):
        return False
    if all(each.at(node) for each, _ in kind.affinity):
        return True
    # The first of pods that want to be together may go anywhere.
    return all(itself and not each.by_domain for each, itself in kind.affinity)


# Pods of one kind that the mirror has put on a node.
Guest = tuple[Kind, Node, int]


class Placing:
    """Guests of one pass."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._put: list[Guest] = []
        # While something is tried out, room that seems gone may come back.
        self._trying = False

    def mark(self) -> int:
        return len(self._put)

    def guests(self) -> tuple[Guest, ...]:
        return tuple(self._put)

    def hosts(self) -> dict[str, int]:
        """Nodes with guests, and the highest priority among those."""
        found: dict[str, int] = {}
        for kind, node, _ in self._put:
            priority = kind.shape.profile.priority
            if priority > found.get(node.name, priority - 1):
                found[node.name] = priority
        return found

    def used(self, mark: int) -> set[Node]:
        """Nodes that got guests since then."""
        return {node for _, node, _ in self._put[mark:]}

    def put(self, kind: Kind, node: Node, count: int) -> None:
        free = node.free
        for place, amount in kind.need:
            free[place] -= amount * count
        node.guests += count
        if kind.shape.ports:
            node.hold_ports(kind.shape.ports, count)
        if kind.counted:
            tally(kind, node, count)
        self._put.append((kind, node, count))

    def undo(self, mark: int = 0) -> None:
        put = self._put
        while len(put) > mark:
            kind, node, count = put.pop()
            free = node.free
            for place, amount in kind.need:
                free[place] += amount * count
            node.guests -= count
            if kind.shape.ports:
                node.hold_ports(kind.shape.ports, -count)
            if kind.counted:
                tally(kind, node, -count)

    def try_out(self, movers: Iterable[tuple[Kind, int]]) -> int:
        """What is placed from now on will be undone; these are going to be placed. Returns the mark."""
        for kind, _ in movers:
            self._advance(kind.fit)
        self._trying = True
        return len(self._put)

    def tried(self, mark: int) -> None:
        self.undo(mark)
        self._trying = False

    def most(self, kind: Kind, apart_from: Node) -> int:
        """No more pods of this kind than that find room elsewhere; ask before anything is tried out."""
        fit = kind.fit
        if fit.most_stamp != self._order.stamp:
            need, walk = fit.need, fit.filter.walk
            fit.most_stamp = self._order.stamp
            fit.most = sum([node.room(need) for node in walk[fit.cursor :] if node.open])
        if apart_from.open and apart_from in fit.filter.nodes:
            return fit.most - apart_from.room(fit.need)
        return fit.most

    def place(self, kind: Kind, count: int, *, apart_from: Node | None = None) -> int:
        """Put up to so many pods somewhere; how many found room. Those that leave a node `apart_from` which has no
        devices, and ask for none, are not put beside devices: a dear node would be kept for them."""
        if kind.settles:
            return self._sweep(kind, count, apart_from)
        placed = 0
        # A spread or an affinity may open nodes that did not suit a moment ago: begin anew for every pod.
        while placed < count and self._sweep(kind, 1, apart_from):
            placed += 1
        return placed

    def place_gang(
        self,
        members: Sequence[tuple[Kind, int]],
        same: Requirement,
        home: str | None,
        *,
        apart_from: Node | None = None,
        kept: Sequence[Node] = (),
    ) -> bool:
        """Put all of them into one domain, the one that is their home if they have one; or none. `kept` are nodes that
        are kept for them."""
        rooms = [self._with_kept(kind, self._by_domain(kind, same.key), same.key, kept) for kind, _ in members]
        mark = len(self._put)
        for domain in sorted(rooms[0]) if home is None else [home]:
            if same.values and domain not in same.values:
                continue
            if all(
                self._among(kind, count, nodes.get(domain, []), apart_from) == count
                for (kind, count), nodes in zip(members, rooms, strict=True)
            ):
                return True
            self.undo(mark)
        return False

    # --------------------------------------------------------------------------------------------------------- details

    def _with_kept(
        self, kind: Kind, rooms: dict[str, list[Node]], key: str, kept: Sequence[Node]
    ) -> dict[str, list[Node]]:
        """Nodes kept for a gang come first: what else has room may be gone by then."""
        if not kept:
            return rooms
        found: dict[str, list[Node]] = {}
        for node in kept:
            if kind.fit.filter.suits(node) and (domain := node.labels.get(key)) is not None:
                found.setdefault(domain, []).append(node)
        return {domain: found.get(domain, []) + rooms.get(domain, []) for domain in rooms.keys() | found.keys()}

    def _advance(self, fit: Fit) -> list[Node]:
        """The nodes that suit the fit; its cursor moves to the first with room: inside a pass room only shrinks."""
        walk = self._order.walk(fit.filter)
        if fit.stamp != self._order.stamp:
            fit.stamp, fit.by_domain = self._order.stamp, {}
            fit.cursor = len(walk) if self._order.still_none(fit) else 0
        need, place, end = fit.need, fit.cursor, len(walk)
        if place < end:
            guests = False
            while place < end:
                node = walk[place]
                if node.open and node.room(need):
                    break
                guests = guests or node.guests > 0
                place += 1
            if place == end and not fit.cursor and not guests:
                self._order.found_none(fit)
            fit.cursor = place
        return walk

    def _sweep(self, kind: Kind, count: int, apart_from: Node | None) -> int:
        fit = kind.fit
        walk = fit.filter.walk if self._trying and fit.stamp == self._order.stamp else self._advance(fit)
        need, left = fit.need, count
        plain = apart_from is not None and not apart_from.cls.devices and not fit.filter.devices
        for place in range(fit.cursor, len(walk)):
            node = walk[place]
            if not node.open or node is apart_from or (plain and node.cls.devices):
                continue
            room = node.room(need)
            if room:
                left -= self.fill(kind, node, min(room, left))
                if not left:
                    break
        return count - left

    def _by_domain(self, kind: Kind, key: str) -> dict[str, list[Node]]:
        """Nodes that had room for one when this was first asked in this pass, by domain."""
        fit = kind.fit
        if fit.stamp != self._order.stamp:
            self._advance(fit)
        found = fit.by_domain.get(key)
        if found is None:
            found = fit.by_domain[key] = {}
            walk = fit.filter.walk
            for place in range(fit.cursor, len(walk)):
                node = walk[place]
                if node.open and node.room(fit.need) and (domain := node.labels.get(key)) is not None:
                    found.setdefault(domain, []).append(node)
        return found

    def _among(self, kind: Kind, count: int, nodes: Sequence[Node], apart_from: Node | None) -> int:
        placed = 0
        while placed < count:
            before = placed
            for node in nodes:
                if node is not apart_from:
                    wanted = count - placed if kind.settles else 1
                    placed += self.fill(kind, node, min(node.room(kind.need), wanted))
                    if placed == count or (placed > before and not kind.settles):
                        break
            if placed == before or kind.settles:
                break
        return placed

    def fill(self, kind: Kind, node: Node, count: int) -> int:
        """Put up to so many pods, for which there is room, on this node; how many it takes."""
        if not kind.hard:
            if count:
                self.put(kind, node, count)
            return count
        placed = 0
        while placed < count and allows(kind, node):
            self.put(kind, node, 1)
            placed += 1
        return placed
