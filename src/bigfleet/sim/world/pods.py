"""What a cluster counts: pod kinds, the pods of one object, nodes. Values and books, no behaviour of their own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bigfleet.engine.batches import Shape as MachineShape
from bigfleet.model.machine import CapacityType
from bigfleet.model.names import CAPACITY_TYPE_LABEL
from bigfleet.model.penalty import finer_bound
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.sim.scenario.fit import Place, is_open
from bigfleet.sim.scenario.shapes import PodShape, Unsatisfiable, priority_class

Vector = tuple[int, ...]
RISK_LIMIT = 4.0
"""A pod is kept off a node whose risk alone costs so many times what its cheapest place costs."""


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
    # The largest difference between two domains of a strict spread; 0 for none.
    strict_skew: int = 0
    # Required anti-affinity on hostnames: no two pods of one object share a node.
    apart: bool = False
    interruption_dollars: float = 0.0
    # What moving one costs at most, where that is less than the profile's bucket says.
    reclamation_microdollars: int = 0
    # Dollars an hour that the risk of an interruptible node may cost one pod.
    most_risk: float = math.inf
    # What its operator asks for, where the cluster keeps it off every interruptible node: firm machines only.
    kept_off: Profile | None = None


def room(free: Sequence[int], want: Vector) -> int:
    """How many such pods fit."""
    fits = 1 << 30
    for have, need in zip(free, want, strict=True):
        if need and have < fits * need:
            fits = have // need
    return fits


class ForSale(NamedTuple):
    """What one machine of an offer has and costs, in the run's dimensions, and what it is to a pod; no places: any."""

    size: Vector
    price: float
    probability: float
    places: tuple[Place, ...] = ()

    def suits(self, profile: Profile) -> bool:
        """Whether a pod may run there, by labels and taints."""
        return not self.places or any(is_open(profile, place) for place in self.places)


class Kinds:
    """The pod kinds of a run, made once."""

    def __init__(self, shapes: dict[str, PodShape], resources: Iterable[str], offers: Sequence[ForSale] = ()) -> None:
        self.resources = tuple(sorted(set(resources)))
        self._offers = offers
        self.risks = tuple(sorted({offer.probability for offer in offers if offer.probability}))
        self._kinds = {name: self.make(name, shape) for name, shape in shapes.items()}

    def __getitem__(self, name: str) -> PodKind:
        return self._kinds[name]

    def make(self, name: str, shape: PodShape) -> PodKind:
        request = shape.request
        spread = [each for each in shape.spread if each.key != "kubernetes.io/hostname"]
        strict = [each.max_skew for each in spread[:1] if each.when is Unsatisfiable.DO_NOT_SCHEDULE]
        profile = shape.profile()
        dollars = profile.interruption_dollars
        most_risk = RISK_LIMIT * self._value(profile, self.vector(request), dollars)
        return PodKind(
            name,
            profile,
            request,
            self.vector(request),
            shape.topology_key,
            spread[0].key if spread else "",
            shape.priority,
            priority_class(shape.priority),
            strict_skew=strict[0] if strict else 0,
            apart=shape.apart,
            interruption_dollars=dollars,
            reclamation_microdollars=finer_bound(shape.reclamation_penalty),
            most_risk=most_risk,
            kept_off=self._kept_off(profile, dollars, most_risk),
        )

    def _kept_off(self, profile: Profile, dollars: float, most_risk: float) -> Profile | None:
        """As `deploy/admission` changes a pod, and its request with it."""
        named = any(each.key == CAPACITY_TYPE_LABEL for each in profile.requirements)
        if named or not self.risks or any(not risk * dollars > most_risk for risk in self.risks):
            return None
        firm = Requirement(CAPACITY_TYPE_LABEL, Operator.NOT_IN, (CapacityType.SPOT.label,))
        return profile.with_(requirements=(*profile.requirements, firm))

    def _value(self, profile: Profile, vector: Vector, dollars: float) -> float:
        """What an hour of one such pod costs where it is cheapest of all places it may use, risk included; infinite
        where nothing is known."""
        found = math.inf
        for offer in self._offers:
            risk = offer.probability * dollars if offer.probability else 0.0
            if offer.price <= 0 or room(offer.size, vector) == 0 or math.isinf(risk) or not offer.suits(profile):
                continue
            share = max((want / have for want, have in zip(vector, offer.size, strict=True) if want), default=0.0)
            found = min(found, share * offer.price + risk)
        return found

    def vector(self, amounts: Resources) -> Vector:
        return tuple(amounts.get(name) for name in self.resources)


class PodSet:
    """The pods of one object: `waiting` as (since, count) in order of age, `bound` as node to count, oldest first, and
    `since` when the first of those on a node came there."""

    __slots__ = (
        "anchor",
        "bound",
        "bound_count",
        "ended",
        "group",
        "kind",
        "managed",
        "name",
        "row_key",
        "sequence",
        "service",
        "since",
        "waiting",
        "waiting_count",
        "workload",
    )

    def __init__(
        self, name: str, workload: str, kind: PodKind, group: str, managed: bool, sequence: int, service: bool = True
    ) -> None:
        """`service`: its pods serve until they are stopped, unlike those of a job."""
        self.name = name
        self.service = service
        self.workload = workload
        self.kind = kind
        self.group = group
        self.managed = managed
        self.sequence = sequence
        self.waiting: deque[tuple[int, int]] = deque()
        self.waiting_count = 0
        self.bound: dict[Node, int] = {}
        self.since: dict[Node, int] = {}
        self.bound_count = 0
        # Who left a node (by id) since somebody who tells pods apart looked: each by its place among those that stood
        # there when it left, in the order in which they had come.
        self.ended: dict[str, list[int]] = {}
        self.anchor: str | None = None
        self.row_key = (kind.profile.fingerprint, group, row_size(kind.request))

    @property
    def live(self) -> int:
        return self.waiting_count + self.bound_count


class Node:
    """A machine that has joined."""

    __slots__ = (
        "attributes",
        "closing_since",
        "cordoned",
        "free",
        "id",
        "kept_for",
        "level",
        "pods",
        "reserved",
        "shape",
        "total",
    )

    def __init__(self, id: str, shape: MachineShape, attributes: Mapping[str, str], total: Vector) -> None:
        self.id = id
        self.shape = shape
        self.attributes = attributes
        self.total = total
        self.free = list(total)
        self.pods: dict[PodSet, int] = {}
        self.cordoned = False
        # Soft taints: one for each level of fill it lies below, and those of a node that is to empty (0: it is open).
        self.level = 0
        self.closing_since = 0
        # A hard taint on a node that has just come: until its operator takes it away only those may come that it gave
        # a toleration to, so many pods of each object.
        self.kept_for = ""
        self.reserved: dict[str, int] = {}


def row_size(size: Resources) -> str:
    """The part of a roll-up row's identity that comes from a pod's size: cpu and memory by powers of two."""
    parts = []
    for name, amount in size.items():
        shown = 1 << (amount - 1).bit_length() if name in ("cpu", "memory") else amount
        parts.append(f"{name}={shown}")
    return ",".join(parts)
