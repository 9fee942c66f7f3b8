"""Nodes: what they offer, what is left, who stands there. Amounts are lists indexed by the mirror's dimensions.

Owns one node's arithmetic; which pods may stand there is decided by `placing`, and why a node is away by `away`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror.facts import HostPort, NodeSeen, Origin

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.kinds import Face, Kind, Need
    from bigfleet.operator.core.mirror.pods import Pod
    from bigfleet.operator.core.mirror.removable import Plan

PODS = "pods"
# Where a node does not say how many pods it takes, it takes any number.
UNLIMITED = 1 << 40


class Dimensions:
    """Resource names in use, each with its place; pods, cpu and memory come first."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {PODS: 0, "cpu": 1, "memory": 2}

    def place(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places))

    def amounts(self, resources: Resources, *, absent_pods: int = 0) -> list[int]:
        for name in resources.names():
            self.place(name)
        found = [resources.get(name) for name in self.places]
        if PODS not in resources.names():
            found[0] = absent_pods
        return found

    def resources(self, amounts: list[int]) -> Resources:
        """Back to names, without the count of pods."""
        return Resources(
            {name: amounts[place] for name, place in self.places.items() if place and place < len(amounts)}
        )


class NodeClass:
    """Nodes that every filter judges alike: the labels filters name, the taints, and whether there are devices."""

    __slots__ = ("devices", "labels", "taints")

    def __init__(self, labels: dict[str, str], taints: tuple[object, ...], devices: bool) -> None:
        self.labels = labels
        self.taints = taints
        self.devices = devices


class Node:
    """One node. `open` says whether new pods may come; `kinds` counts its pods by kind, DaemonSets too."""

    __slots__ = (
        "away",
        "cls",
        "daemons",
        "draining",
        "faces",
        "facts",
        "free",
        "guests",
        "held",
        "interruption",
        "kinds",
        "labels",
        "leaving",
        "lost",
        "matured",
        "name",
        "not_ready_since",
        "occupants",
        "open",
        "plan",
        "pods",
        "ports",
        "reclamation",
        "shut",
        "total",
        "use",
        "worked",
    )

    def __init__(self, facts: NodeSeen, cls: NodeClass, total: list[int]) -> None:
        self.name = facts.name
        self.facts = facts
        self.labels = dict(facts.labels)
        self.cls = cls
        self.total = total
        self.free = list(total)
        self.daemons = [0] * len(total)
        self.kinds: dict[Kind, int] = {}
        # Of them those that are terminating.
        self.leaving: dict[Kind, int] = {}
        # What reports tell of its pods, and how many each stands for.
        self.faces: dict[Face | None, int] = {}
        self.pods: set[Pod] = set()
        # Pods other than daemons, and units that only the mirror has put here.
        self.occupants = 0
        self.guests = 0
        # Kinds here that nobody may move.
        self.held = 0
        self.ports: dict[HostPort, int] = {}
        self.draining = False
        self.lost = False
        self.not_ready_since: int | None = None
        self.away = False
        self.open = True
        # Whether pods stood here since it was last closed because none did, and whether it is closed for that.
        self.worked = False
        self.shut = False
        # Pods that have become old here, ever.
        self.matured = 0
        # Micro-dollars of reclaiming and of interrupting all its pods.
        self.reclamation = 0
        self.interruption = 0
        # Kept by `removable` until its pods change.
        self.plan: Plan | None = None
        # Kept by `order`.
        self.use: tuple[bool, float, str] | None = None

    @property
    def ours(self) -> bool:
        return bool(self.facts.machine)

    @property
    def is_empty(self) -> bool:
        """Nobody is there but daemons; pods of a node that is away count elsewhere and are there all the same."""
        if self.occupants:
            return False
        return not self.away or all(pod.kind.shape.origin is Origin.DAEMON for pod in self.pods)

    def reckon_open(self) -> None:
        self.open = self.could_open and not self.facts.kept_for

    @property
    def could_open(self) -> bool:
        """Whether new pods may come, apart from those it is kept from."""
        return self.facts.ready and self.may_open

    @property
    def may_open(self) -> bool:
        """Whether new pods may come once it is ready, apart from those it is kept from."""
        facts = self.facts
        return not (facts.cordoned or facts.closing_since or self.draining or self.lost or self.away)

    @property
    def has_come(self) -> bool:
        """Ready, as far as a shard has to know: a node that is kept is still on its way."""
        return self.facts.ready and not self.facts.kept_for

    def room(self, need: Need) -> int:
        """How many such pods fit beside what is there."""
        free = self.free
        fits = UNLIMITED
        for place, amount in need:
            here = free[place] // amount
            if here < fits:
                if here <= 0:
                    return 0
                fits = here
        return fits

    def take(self, need: Need, count: int) -> None:
        """Room for so many is gone; with a negative count it is back."""
        free = self.free
        for place, amount in need:
            free[place] -= amount * count

    def port_is_taken(self, ports: tuple[HostPort, ...]) -> bool:
        return any(wanted.clashes(held) for wanted in ports for held in self.ports)

    def hold_ports(self, ports: tuple[HostPort, ...], count: int) -> None:
        for port in ports:
            left = self.ports.get(port, 0) + count
            if left:
                self.ports[port] = left
            else:
                del self.ports[port]

    def widen(self, dimensions: int) -> None:
        """A resource nobody had asked for before: this node has none of it."""
        more = dimensions - len(self.free)
        if more > 0:
            for amounts in (self.total, self.free, self.daemons):
                amounts.extend([0] * more)
