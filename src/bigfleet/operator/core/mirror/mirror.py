"""The mirror's front: deltas in; rows, node reports, refusals and levels out, each with the version it was read from.

`apply` keeps the books, `settle` looks at them once, and everything asked afterwards answers from that look. The same
deltas give the same answers in whatever batches they come.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bigfleet.operator.core.mirror.away import is_away, next_grace
from bigfleet.operator.core.mirror.books import Books
from bigfleet.operator.core.mirror.facts import Delta, NodeSeen
from bigfleet.operator.core.mirror.levels import INTERVAL, Levels
from bigfleet.operator.core.mirror.nodes import Node
from bigfleet.operator.core.mirror.order import Order
from bigfleet.operator.core.mirror.placing import Guest, Placing
from bigfleet.operator.core.mirror.pods import OLD_AFTER
from bigfleet.operator.core.mirror.removable import removable_nodes
from bigfleet.operator.core.mirror.reports import NodeReport, Reports
from bigfleet.operator.core.mirror.waiting import STUCK_AFTER, Outcome, home_of, place_waiting
from bigfleet.operator.core.rows import Row, RowBook


class Findings(Struct, frozen=True):
    """What one look found. `grew`: more units wanted or without room than at the look before."""

    version: int
    grew: bool
    stranded: int
    # Machines of closing nodes that something waiting fits on and on nothing else, or has come to.
    reopen: tuple[str, ...] = ()
    # Machines of nodes that have just become empty: they take nobody until the shard says so.
    close: tuple[str, ...] = ()
    # Machines of nodes that were kept for somebody and are for all now.
    let_go: tuple[str, ...] = ()
    # Machines of new nodes, each with the pods that may come before it is for all.
    reserved: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Pods the scheduler has left unbound for too long although there is room: the shell writes an Event.
    stuck: tuple[str, ...] = ()


class Mirror:
    """One cluster; levels of fill change at most every `levels_every` nanoseconds. `firm_last`: pods that interruptions
    cost much are kept off interruptible nodes, so others should take those first. `reserves`: new nodes are reserved
    for pods by tolerations. `patience`: closing nodes take nobody until the shard reopens them or a pod has waited for
    so long, and nodes close when they become empty; with 0 pods only go elsewhere while there is an elsewhere."""

    def __init__(
        self,
        *,
        levels_every: int = INTERVAL,
        firm_last: bool = False,
        old_after: int = OLD_AFTER,
        reserves: bool = True,
        patience: int = 0,
    ) -> None:
        self._patience = patience
        self._patient_until: int | None = None
        self._books = Books(old_after, reserves=reserves)
        self._order = Order(self._books.nodes, self._books.dimensions)
        self._placing = Placing(self._order)
        self._reports = Reports(self._books.nodes, self._books.dimensions)
        self._levels = Levels(self._books.dimensions, levels_every, firm_last=firm_last)
        self.version = 0
        self._stranded: dict[RowBook, int] = {}
        # Nodes with pods that wait and have no room, as of the last look.
        self._lacking: frozenset[str] = frozenset()
        self._told_stuck: set[str] = set()
        self._stuck_at: int | None = None
        self._now = 0
        self._settled = True
        # Whether pods or nodes changed since the last look, and who the guests of that one were.
        self._changed = True
        self._guests: tuple[Guest, ...] = ()

    # ------------------------------------------------------------------------------------------------------------- in

    def apply(self, deltas: Iterable[Delta]) -> None:
        told = list(deltas)
        self._books.apply(told)
        self._settled = False
        self._changed = self._changed or bool(told)

    def lost(self, machine: str) -> None:
        """The provider lost it: its pods need another node, whatever Kubernetes believes."""
        node = self._node(machine)
        if node is not None and not node.lost:
            node.lost = True
            self._books.set_away(node, True)
            self._settled, self._changed = False, True

    def told(self, machine: str, under_way: NodeSeen | None, group: str = "") -> None:
        """The shard says that a machine is on its way to this cluster, or that it is not."""
        self._books.comes(machine, under_way, group)
        self._settled = False

    def keep_for(self, group: str) -> str:
        """For whom a node of ours is kept that has just come, bought for this gang or none; empty when for nobody."""
        return self._books.keeping.keep_for(group)

    def reserve(self, on: bool) -> None:
        """Whether pods may be given tolerations. Where they may not, what was reserved is let go at the next look."""
        self._books.keeping.reserves = on
        self._settled = False

    def settle(self, now: int) -> Findings:
        """Look once at everything."""
        books = self._books
        self._now, self._settled = now, True
        self._reckon_away(now)
        books.count_old(now)
        books.requests.regrid(now)
        self._begin()
        outcome = place_waiting(books, self._placing, now, self._patience)
        hosts = self._placing.hosts()
        guests = self._placing.guests()
        removable = self._reports.removable
        if self._changed or guests != self._guests:
            removable = removable_nodes(books, self._placing, self._order)
        self._changed, self._guests = False, guests
        self._placing.undo()
        self.version += 1
        self._reports.touched |= books.touched
        books.touched = set()
        self._reports.found(hosts, removable)
        self._note_room(outcome, now)
        self._lacking = frozenset(pod.node for pods in (outcome.stranded, outcome.stuck) for pod in pods)
        stranded = _stranded(outcome)
        grew = books.rows.grew or any(count > self._stranded.get(row, 0) for row, count in stranded.items())
        books.rows.grew = False
        for row in self._stranded:
            row.stranded = 0
        for row, count in stranded.items():
            row.stranded = count
        self._stranded = stranded
        stuck = {pod.uid for pod in outcome.stuck}
        fresh = tuple(sorted(stuck - self._told_stuck))
        self._told_stuck = stuck
        shut, entered = self._shut() if self._patience else ([], [])
        reopen = tuple(sorted(node.facts.machine for node in {*outcome.reopened, *entered} if node.ours))
        close = tuple(sorted(node.facts.machine for node in shut))
        let_go = tuple(node.facts.machine for node in outcome.let_go)
        reserved = tuple(
            (node.facts.machine, tuple(pod.uid for pod in pods))
            for node, pods in outcome.reserved.items()
            if node not in outcome.let_go
        )
        return Findings(self.version, grew, sum(stranded.values()), reopen, close, let_go, reserved, fresh)

    # ------------------------------------------------------------------------------------------------------------ out

    def rows(self) -> list[Row]:
        """The roll-up as of the last look."""
        self._check_settled()
        homes = {}
        for group, domains in self._books.gangs.items():
            home = home_of(self._books, group)
            if home is not None:
                homes[group] = (home, domains[home])
        return self._books.rows.rows(homes)

    def reports(self, *, anew: bool = False) -> list[NodeReport]:
        """Reports of nodes that changed as of the last look, or of all."""
        self._check_settled()
        if anew:
            self._reports.anew()
        return self._reports.take(self._now, self.version)

    def levels(self) -> list[tuple[str, int]]:
        """Nodes whose number of soft taints changes now."""
        return self._levels.take(self._books.nodes.values(), self._now)

    def next_timer(self) -> int | None:
        """When to look again although nothing was told."""
        due = (
            next_grace(self._books.not_ready.values(), self._now),
            self._stuck_at,
            self._reports.next_timer(),
            self._books.rows.next_timer(),
            self._books.keeping.next_timer(),
            self._books.maturing.next_timer(),
            self._patient_until,
        )
        return min((at for at in due if at is not None), default=None)

    # --------------------------------------------------------------------------------------------------------- drains

    def refusal(self, machine: str) -> str:
        """Why a voluntary drain must not begin now; empty when all its pods have room beside all other drains."""
        node = self._node(machine)
        if node is None or node.draining:
            return ""
        pinned = sorted({kind.shape.namespace for kind in node.kinds if kind.must_stay})
        if pinned:
            return f"node {node.name} has pods that must not be moved, in namespace {pinned[0]}"
        settled, before = self._settled, self._without_room()
        self._set_draining(node, True)
        after = self._without_room()
        self._set_draining(node, False)
        self._settled = settled
        if after > before:
            pods = "1 pod" if after - before == 1 else f"{after - before} pods"
            return f"{pods} of node {node.name} or others would have no room"
        return ""

    def is_occupied(self, machine: str) -> bool:
        """Whether pods run there, daemons aside."""
        node = self._node(machine)
        return node is not None and not node.is_empty

    def has_room(self, machine: str) -> bool:
        """Whether the last look found room elsewhere for all pods of a machine that is being drained; not before one
        has looked at all that is known."""
        return self._settled and self._books.machines.get(machine, "") not in self._lacking

    def begin(self, machine: str) -> None:
        """It is being drained: its pods need room elsewhere from now on."""
        node = self._node(machine)
        if node is not None and not node.draining:
            self._set_draining(node, True)

    def release(self, machine: str) -> None:
        """It is not being drained any more."""
        node = self._node(machine)
        if node is not None and node.draining:
            self._set_draining(node, False)

    def validate(self) -> None:
        self._books.validate()
        assert not self._placing.mark(), "guests between looks"

    # -------------------------------------------------------------------------------------------------------- details

    def _check_settled(self) -> None:
        if not self._settled:
            raise RuntimeError("the mirror was told something since the last settle(); look again before asking")

    def _node(self, machine: str) -> Node | None:
        return self._books.nodes.get(self._books.machines.get(machine, ""))

    def _set_draining(self, node: Node, on: bool) -> None:
        node.draining = on
        self._books.set_away(node, self._is_away(node, self._lost()))
        self._settled, self._changed = False, True

    def _lost(self) -> int:
        return sum(1 for each in self._books.nodes.values() if each.lost)

    def _is_away(self, node: Node, lost: int) -> bool:
        books = self._books
        return is_away(node, books.not_ready.values(), len(books.nodes), lost, self._now)

    def _reckon_away(self, now: int) -> None:
        books = self._books
        for node in books.not_ready.values():
            if node.not_ready_since is None:
                node.not_ready_since = now
        candidates = [node for node in books.nodes.values() if node.away or node.not_ready_since is not None]
        lost = self._lost() if candidates else 0
        for node in candidates:
            away = self._is_away(node, lost)
            if away != node.away:
                books.set_away(node, away)
                self._changed = True

    def _begin(self) -> None:
        self._order.begin(self._books.touched, self._books.gained.values())
        self._books.gained = {}

    def _without_room(self) -> int:
        """How many units have no room as things stand."""
        self._begin()
        outcome = place_waiting(self._books, self._placing, self._now, self._patience)
        self._placing.undo()
        return len(outcome.stranded) + len(outcome.reopened) + sum(count for _, count in outcome.placeholders)

    def _note_room(self, outcome: Outcome, now: int) -> None:
        """Since when each waiting pod has had room without a break."""
        oldest = None
        for pod in outcome.roomy:
            if pod.room_since is None:
                pod.room_since = now
            if oldest is None or pod.room_since < oldest:
                oldest = pod.room_since
        for pod in outcome.stranded:
            pod.room_since = None
        self._stuck_at = None if oldest is None else oldest + STUCK_AFTER
        over = [at for pod in outcome.stranded if (at := pod.since + self._patience) > now] if outcome.hopeful else []
        self._patient_until = min(over, default=None)

    def _shut(self) -> tuple[list[Node], list[Node]]:
        """Nodes that have just become empty and close; and those that did and have a pod all the same, because it was
        bound before the scheduler knew."""
        shut, entered = [], []
        for name in self._reports.touched:
            node = self._books.nodes.get(name)
            if node is None or not node.ours:
                continue
            if node.occupants:
                if node.shut and node.facts.closing_since:
                    entered.append(node)
                node.worked, node.shut = True, False
            elif node.worked and node.open and node.is_empty and name not in self._reports.hosts:
                node.worked, node.shut = False, True
                shut.append(node)
        return shut, entered


def _stranded(outcome: Outcome) -> dict[RowBook, int]:
    found: dict[RowBook, int] = {}
    for pods in (outcome.stranded, outcome.stuck):
        for pod in pods:
            if pod.row is not None:
                found[pod.row] = found.get(pod.row, 0) + 1
    for request, count in outcome.placeholders:
        if request.row is not None:
            found[request.row] = found.get(request.row, 0) + count
    return found
