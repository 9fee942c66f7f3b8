"""What an explanation says: plain values, no columns. Amounts of money are dollars per hour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape
    from bigfleet.engine.results import NeedKey, Verdict


class Source(StrEnum):
    """How a machine came to serve a need."""

    CREDITED = "credited"
    IDLE = "idle"
    SPECULATIVE = "speculative"
    PREEMPTED = "preempted"
    REOPENED = "reopened"
    EMPTY = "empty elsewhere"
    DRAINING = "draining"


class Why(StrEnum):
    """Why a candidate does not serve a need."""

    PRIORITY = "serves a need of higher priority"
    PENALTY = "serves a need of equal priority with a higher penalty"
    ARRIVAL = "serves a need of equal precedence that was there before"
    EQUAL_PRIORITY = "serves a need of equal priority, and only lower ones are preempted"
    PREEMPTED_FOR_ANOTHER = "drains for another need"
    EXCESS_ELSEWHERE = "bound to another cluster and claimed by no need there"
    TOPOLOGY = "lies outside the domain the group is kept together in"
    DOMAIN_TOO_SMALL = "its domain cannot hold the whole group"
    SPREAD = "its domain already has as many machines as the spread allows"
    IN_FLIGHT = "is on its way for another need"
    DRAINING = "drains and is promised to another need"
    FAILED = "has failed or is being deleted"
    NOT_BEFORE = "rests after a failure"
    BREAKER = "its offer rests: purchases failed or it was sold out"
    CLUSTER_DISCONNECTED = "free, but the cluster is not connected and acquires nothing"
    ACQUISITION_HELD = "free, but acquisition is held by the rails"
    PREEMPTION_HELD = "serves a need of lower priority, but preemption is held by the rails"
    PARKED = "free, but too few in one domain for the whole group when it was last tried; it is tried now and then"
    NOT_USEFUL = "has none of what is missing"
    NO_ROOM = "runs what the cluster has there, without room for one unit more"
    SAID_NOT_TO_FIT = "has room for a unit by what its node reports, but the cluster says its units do not fit there"
    USED_BY_NOTHING = "is reported as in use with nothing used; the cluster says its units do not fit there"
    CLOSED = "is closed to new pods"
    NOT_READY = "its node has not been reported as ready"
    ONE_PER_NODE = "has room, but has one already, or gets one, that it must not share a node with"
    REFUSED = "stands empty, but its cluster refused to let go of it; it is asked again later"
    EMPTY = "stands empty at its cluster, and is not taken from it at the moment"
    RUNS_AS_MUCH = "runs units of at least that priority"
    NOT_FRESH = "free, but the cluster has not said lately what has no room"
    NOT_BELIEVED = "free, but what the cluster says about its nodes does not add up"
    RISK = "its interruptions would cost more than the units are worth"
    PINNED = "may be interrupted, and the units must not be"
    BACKED_OFF = "machines of its kind came and were no use to it; it is not tried again yet"
    TAINT = "its taints are not tolerated"
    REQUIREMENT = "does not meet a requirement"
    OVERHEAD = "holds a unit, but not beside what the cluster runs on every node"
    TOO_SMALL = "is smaller than the smallest unit"


@dataclass(frozen=True, slots=True)
class Some:
    """Machines of one kind and state; `domain` is their Same or spread value for the need."""

    provider: str
    instance_type: str
    zone: str
    capacity_type: int
    domain: str | None
    state: int


@dataclass(frozen=True, slots=True)
class Granted(Some):
    """Machines that serve the need."""

    source: Source
    count: int
    price: float
    effective_cost: float


@dataclass(frozen=True, slots=True)
class Lost(Some):
    """Machines that do not serve the need. `winner` is the need that has them, if one has; `winner_priority` is that of
    the winner, or of the stamp where no need claims them."""

    count: int
    price: float
    effective_cost: float
    why: Why
    detail: str
    winner: NeedKey | None
    winner_cluster: str
    winner_priority: int | None


class RemedyKind(StrEnum):
    SUPPLY = "supply"
    PRIORITY = "priority"
    CONSTRAINT = "constraint"


# The order in which changes are looked for.
REMEDIES = (RemedyKind.SUPPLY, RemedyKind.PRIORITY, RemedyKind.CONSTRAINT)


@dataclass(frozen=True, slots=True)
class MoreSupply:
    """So many more Idle machines of this shape; `domain_key` and `domain` say where when that matters."""

    shape: Shape
    count: int
    domain_key: str
    domain: str


@dataclass(frozen=True, slots=True)
class HigherPriority:
    """A priority above this one."""

    above: int


@dataclass(frozen=True, slots=True)
class WithoutConstraint:
    """The need without this requirement or spread, in the text form of fingerprints."""

    constraint: str


Remedy = MoreSupply | HigherPriority | WithoutConstraint


@dataclass(frozen=True, slots=True)
class Explanation:
    """One need's story after a step. `awaits_drain`: draining machines will answer all that is missing, nothing has to
    change. `remedy` was tried at the instant `remedy_at`: the last step's, or the next probe
    of a parked group of sums. Without a remedy, `exhausted` says whether everything was tried or the trials ran out."""

    key: NeedKey
    verdict: Verdict
    granted: tuple[Granted, ...]
    price_per_hour: float
    effective_cost_per_hour: float
    awaits_drain: bool
    lost: tuple[Lost, ...]
    remedy: Remedy | None
    remedy_at: int
    trials: int
    exhausted: bool
