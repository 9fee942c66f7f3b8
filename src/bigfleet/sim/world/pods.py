"""What a cluster counts: pod kinds, the pods of one object, nodes. Values and books, no behaviour of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bigfleet.engine.batches import Shape as MachineShape
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.sim.scenario.shapes import PodShape, priority_class

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodKind:
    """A pod shape, resolved against the run's resource dimensions."""

    name: str
    profile: Profile
    request: Resources
    vector: Vector
    topology_key: str
    spread_key: str
    priority: int
    priority_class: str


class Kinds:
    """The pod kinds of a run, made once."""

    def __init__(self, shapes: dict[str, PodShape], resources: Iterable[str]) -> None:
        self.resources = tuple(sorted(set(resources)))
        self._kinds = {name: self.make(name, shape) for name, shape in shapes.items()}

    def __getitem__(self, name: str) -> PodKind:
        return self._kinds[name]

    def make(self, name: str, shape: PodShape) -> PodKind:
        request = shape.request
        spread = [each.key for each in shape.spread if each.key != "kubernetes.io/hostname"]
        return PodKind(
            name,
            shape.profile(),
            request,
            self.vector(request),
            shape.topology_key,
            spread[0] if spread else "",
            shape.priority,
            priority_class(shape.priority),
        )

    def vector(self, amounts: Resources) -> Vector:
        return tuple(amounts.get(name) for name in self.resources)


class PodSet:
    """The pods of one object: `waiting` as (since, count) in order of age, `bound` as node to count, oldest first."""

    __slots__ = (
        "anchor",
        "bound",
        "bound_count",
        "group",
        "kind",
        "managed",
        "name",
        "row_key",
        "sequence",
        "waiting",
        "waiting_count",
        "workload",
    )

    def __init__(self, name: str, workload: str, kind: PodKind, group: str, managed: bool, sequence: int) -> None:
        self.name = name
        self.workload = workload
        self.kind = kind
        self.group = group
        self.managed = managed
        self.sequence = sequence
        self.waiting: deque[tuple[int, int]] = deque()
        self.waiting_count = 0
        self.bound: dict[Node, int] = {}
        self.bound_count = 0
        self.anchor: str | None = None
        self.row_key = (kind.profile.fingerprint, group, row_size(kind.request))

    @property
    def live(self) -> int:
        return self.waiting_count + self.bound_count


class Node:
    """A machine that has joined."""

    __slots__ = ("attributes", "cordoned", "free", "id", "pods", "shape", "total")

    def __init__(self, id: str, shape: MachineShape, attributes: Mapping[str, str], total: Vector) -> None:
        self.id = id
        self.shape = shape
        self.attributes = attributes
        self.total = total
        self.free = list(total)
        self.pods: dict[PodSet, int] = {}
        self.cordoned = False


def row_size(size: Resources) -> str:
    """The part of a roll-up row's identity that comes from a pod's size: cpu and memory by powers of two."""
    parts = []
    for name, amount in size.items():
        shown = 1 << (amount - 1).bit_length() if name in ("cpu", "memory") else amount
        parts.append(f"{name}={shown}")
    return ",".join(parts)
