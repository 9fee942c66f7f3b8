"""What shards tell: the light half of every report as values, and the heavy half as the planner reads it.

None of them can be part of a cycle, and thousands come every second, so the garbage collector is spared them.
Nothing here is stored: after a failover the new leader knows what it has been told since, and waits for the rest.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources

# What a shard may announce.
TABLES = "ownership-table"
TRANSFERS = "transfers"
RAILS = "rails"
PROVIDERS = "provider-registry"
ARRIVALS = "arrivals"
LOOKS = "looks"


class Outcome(IntEnum):
    """Numbers are those of `InstructAck.Outcome`."""

    UNSPECIFIED = 0
    ACCEPTED = 1
    REJECTED_STALE = 2
    REJECTED_INVALID = 3
    FAILED = 4


class Ack(Struct, frozen=True, gc=False):
    """A shard's answer to one instruction."""

    instruction: str
    outcome: Outcome
    reason: str = ""
    machines: tuple[str, ...] = ()
    provider: str = ""


class ReportedCluster(Struct, frozen=True, gc=False):
    """A cluster with a session on the shard, or with machines bound there."""

    cluster: str
    connected: bool = False
    machines: int = 0
    claimed: str = ""
    referable: bool = False
    # Of one that reports placement: pods that consolidation may move now, and nodes closed to new ones.
    placed: bool = False
    evictions: int = 0
    closing: int = 0


class Report(Struct, frozen=True, gc=False):
    """The half of a report that is read at once."""

    shard: str
    cycle: int = 0
    epoch: int = 0
    address: str = ""
    version: int = 0
    highest_term: int = 0
    capabilities: frozenset[str] = frozenset()
    acks: tuple[Ack, ...] = ()
    clusters: tuple[ReportedCluster, ...] = ()
    # (provider, id, owner's id) of machines that stand elsewhere than where they were first seen.
    relabelled: tuple[tuple[str, str, str], ...] = ()
    looked: int = 0
    unsure: int = 0

    @property
    def tables(self) -> bool:
        return TABLES in self.capabilities


class Heard(Struct):
    """What a shard last told, and when."""

    report: Report
    at: int


class Kind(Struct, frozen=True, cache_hash=True, gc=False):
    """What a free machine is to somebody who looks for one."""

    instance_type: str
    zone: str
    speculative: bool
    allocatable: Resources
    price: float = 0.0
    probability: float = 0.0
    provider: str = ""


class Cell(Struct, frozen=True, gc=False):
    """How many free machines of a kind a shard has."""

    kind: Kind
    count: int


class Deficit(Struct, frozen=True, gc=False):
    """Units of one size that a shard cannot place, less what is coming for them.

    `units` 0 means demand of an operator that counts no pods: then `resources` is the sum that is missing.
    """

    fingerprint: str
    requirements: tuple[Requirement, ...]
    min_unit: Resources
    units: int
    resources: Resources = Resources.ZERO
    priority: int = 0
    bucket: int = 0
    age: int = 0
    constrained: bool = False

    @property
    def stays(self) -> bool:
        """Whether it is resolved on its own shard or not at all."""
        if self.constrained:
            return True
        for each in self.requirements:  # noqa: SIM110 - asked for every shortfall of the fleet
            if each.operator is Operator.SAME:
                return True
        return False


class Standing(Struct, frozen=True, gc=False):
    """The half of a report that is read when planning."""

    deficits: tuple[Deficit, ...] = ()
    cells: tuple[Cell, ...] = ()
    totals: tuple[tuple[str, int], ...] = ()
    zones: tuple[tuple[str, int], ...] = ()
    providers: frozenset[str] = frozenset()
    machines: int = 0
    # Transfers to the shard that its deficits do not count yet; None when it does not tell.
    arriving: frozenset[str] | None = None
