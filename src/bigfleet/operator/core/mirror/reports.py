"""What a shard hears about each of our nodes: what is there, what it would cost to take, whether it could go.

A report goes when something changed that decisions hang on; what only moves with every pod (used, dollars) goes at most
every 30 s. Owns what was told last; who is removable or hosts guests is found elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from bigfleet.model.penalty import MICRO
from bigfleet.operator.core.events import SECOND
from bigfleet.operator.core.mirror.kinds import Face
from bigfleet.operator.core.mirror.nodes import UNLIMITED, Dimensions, Node

# Names with what there is of them, in order of name; plain, because a pass makes hundreds.
Amounts = tuple[tuple[str, int], ...]

USED_INTERVAL = 30 * SECOND
MOST_PROFILES = 16
# Reports that only tell other amounts; when more are due, the rest goes with the next ones.
AMOUNTS_AT_ONCE = 150


class NodeReport(Struct, frozen=True):
    """One node of ours. More than 16 profiles are not named: then `profiles` is empty on a node that is not."""

    machine: str
    node_name: str
    ready: bool
    empty: bool
    removable: bool = False
    pinned: bool = False
    max_pod_priority: int = 0
    groups: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    exclusive: tuple[str, ...] = ()
    closing_since: int = 0
    allocatable: Amounts = ()
    used: Amounts = ()
    reclamation_dollars: float = 0.0
    interruption_dollars: float = 0.0
    matured: int = 0
    version: int = 0


# Highest priority of the pods that stand there, groups, profiles and exclusive tokens.
_Looks = tuple[int | None, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


class _Told:
    __slots__ = ("at", "faces", "looks", "report")

    def __init__(self, report: NodeReport, at: int, faces: set[Face | None], looks: _Looks) -> None:
        self.report = report
        self.at = at
        self.faces = faces
        self.looks = looks


class Reports:
    """Reports of all our nodes, as far as they were told."""

    def __init__(self, nodes: Mapping[str, Node], dimensions: Dimensions) -> None:
        self._nodes = nodes
        self._dimensions = dimensions
        self._told: dict[str, _Told] = {}
        self._lagging: dict[str, int] = {}
        self._places: list[tuple[str, int]] = []
        self.touched: set[str] = set()
        # Nodes with guests, and the highest priority among those.
        self.hosts: dict[str, int] = {}
        self.removable: frozenset[str] = frozenset()

    def found(self, hosts: dict[str, int], removable: frozenset[str]) -> None:
        """Which nodes have guests of what priority and which could go, as of this pass."""
        self.touched.update(name for name, _ in self.hosts.items() ^ hosts.items())
        self.touched |= self.removable ^ removable
        self.hosts, self.removable = hosts, removable

    def anew(self) -> None:
        """Whoever hears the next reports knows nothing."""
        self._told.clear()
        self._lagging.clear()
        self.touched.update(self._nodes)

    def take(self, now: int, version: int) -> list[NodeReport]:
        """Everything that has to be told now, in order of node name."""
        self._places = sorted(self._dimensions.places.items())
        out: list[NodeReport] = []
        touched, self.touched = self.touched, set()
        for name in touched:
            node, told = self._nodes.get(name), self._told.get(name)
            if node is None or not node.ours:
                self._told.pop(name, None)
                self._lagging.pop(name, None)
            elif told is not None and self._only_amounts(node, told):
                self._lagging.setdefault(name, told.at + USED_INTERVAL)
            else:
                self._tell(node, told, now, version, out)
        due = sorted((at, name) for name, at in self._lagging.items() if at <= now)
        for _, name in due[:AMOUNTS_AT_ONCE]:
            self._tell(self._nodes[name], self._told.get(name), now, version, out)
        out.sort(key=lambda report: report.node_name)
        return out

    def _tell(self, node: Node, told: _Told | None, now: int, version: int, out: list[NodeReport]) -> None:
        self._lagging.pop(node.name, None)
        looks = told.looks if told is not None and node.faces.keys() == told.faces else _look(node)
        report = self._report(node, looks, version)
        if told is None or _differ(told.report, report):
            self._told[node.name] = _Told(report, now, set(node.faces), looks)
            out.append(report)

    def next_timer(self) -> int | None:
        return min(self._lagging.values(), default=None)

    def _report(self, node: Node, looks: _Looks, version: int) -> NodeReport:
        """The node as it is now."""
        total, free, daemons = node.total, node.free, node.daemons
        return NodeReport(
            node.facts.machine,
            node.name,
            node.has_come,
            self._empty(node),
            node.name in self.removable,
            node.held > 0,
            self._priority(node, looks),
            *looks[1:],
            node.facts.closing_since,
            # A node that does not say how many pods it takes says nothing about it here either.
            tuple([(n, total[p] - daemons[p]) for n, p in self._places if daemons[p] < total[p] < UNLIMITED]),
            tuple([(n, u) for n, p in self._places if (u := total[p] - free[p] - daemons[p]) > 0]),
            node.reclamation / MICRO,
            node.interruption / MICRO,
            node.matured,
            version,
        )

    def _priority(self, node: Node, looks: _Looks) -> int:
        """Of who stands there and of who is about to: a node that came for somebody is that one's from the start."""
        known = [each for each in (looks[0], self.hosts.get(node.name)) if each is not None]
        return max(known, default=0)

    def _empty(self, node: Node) -> bool:
        return node.is_empty and node.name not in self.hosts

    def _only_amounts(self, node: Node, told: _Told) -> bool:
        last = told.report
        return (
            node.has_come == last.ready
            and self._empty(node) == last.empty
            and (node.name in self.removable) == last.removable
            and node.facts.closing_since == last.closing_since
            and node.faces.keys() == told.faces
            and bool(node.held) == last.pinned
            and self._priority(node, told.looks) == last.max_pod_priority
        )


def _differ(before: NodeReport, after: NodeReport) -> bool:
    """In anything but the version."""
    if before.used != after.used or before.empty != after.empty or before.removable != after.removable:
        return True
    return replace(after, version=before.version) != before


def _look(node: Node) -> _Looks:
    faces = [face for face in node.faces if face is not None]
    profiles = {face[1] for face in faces}
    return (
        max((face[0] for face in faces), default=None),
        tuple(sorted({face[2] for face in faces if face[2]})),
        tuple(sorted(profiles)) if len(profiles) <= MOST_PROFILES else (),
        tuple(sorted({token for face in faces for token in face[3]})),
    )
