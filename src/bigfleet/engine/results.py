"""What comes out of a step, as plain rows: the shape tests, readers and the oracle share.

The engine returns the same content as columns (`StepResult`) and renders these rows only when someone asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from bigfleet.model.resources import Resources


class ActionKind(IntEnum):
    BOOTSTRAP = 1
    PROVISION = 2
    RECLAIM = 3
    PREEMPT = 4
    DELETE = 5
    CLOSE = 6
    REOPEN = 7


class Reason(StrEnum):
    """Reason tag of an action; part of the audit contract."""

    IDLE = "phase1.idle"
    SPECULATIVE = "phase1.speculative"
    INVERSION = "phase2.inversion"
    EXCESS = "phase3.excess"
    RELEASE = "phase3.release"
    REOPEN = "phase1.reopen"
    EMPTY = "phase1.empty"
    NEVER_READY = "phase3.never_ready"
    MOVE = "phase3.move"
    CLOSE = "phase3.close"


class Disposition(IntEnum):
    """What the rails made of an action."""

    EMIT = 0
    SUPPRESSED = 1
    DRYRUN = 2


class UnmetReason(IntEnum):
    """Why a need is not satisfied; numbers are those of the wire enum."""

    NONE = 0
    PRIORITY_STARVED = 1
    NO_MATCHING_SUPPLY = 2
    TOPOLOGY_UNSATISFIABLE = 3
    PREEMPTION_EXHAUSTED = 4
    RESOURCE_NOT_PUBLISHED = 1000
    SPREAD_UNSATISFIABLE = 1001
    CLUSTER_DISCONNECTED = 1002
    ACQUISITION_HELD = 1003
    SUPPLY_BACKED_OFF = 1004
    AWAITING_DRAIN = 1005
    FRAGMENTATION = 1007
    AWAITING_NODE = 1008
    RISK_TOO_HIGH = 1009
    NOT_BELIEVED = 1010
    DID_NOT_HELP = 1011
    EXCLUSIVE = 1012


class RollupOutcome(StrEnum):
    APPLIED = "applied"
    HELD = "held"


class RefusedRow(Struct, frozen=True):
    """A row of a roll-up that is left out, by its place there; `why` names the field, its value, what is accepted."""

    row: int
    why: str


class RefusedRows(Struct, frozen=True):
    """Counted rows of one roll-up that are left out (P1): how many, and the first of them."""

    total: int
    first: tuple[RefusedRow, ...]


class Confidence(StrEnum):
    """How sure available capacity is: machines stand idle, could be bought, or there are none."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    NONE = "NONE"


class NeedKey(Struct, frozen=True):
    """Identity of a row of demand, and of a plain or folded entry. A gang's key has an empty `min_unit`."""

    cluster: str
    fingerprint: str
    group: str
    min_unit: str


class Action(Struct, frozen=True):
    """One thing to do. `cluster`: destination of an acquisition, source of a drain; `need`: whom it serves; `replaces`:
    the old machines of a move; `voluntary`: the operator may refuse."""

    kind: ActionKind
    machine: str
    cluster: str
    need: NeedKey | None
    grace_seconds: int
    preemptor_priority: int
    reason: Reason
    disposition: Disposition
    replaces: tuple[str, ...] = ()
    voluntary: bool = False


@dataclass(frozen=True, slots=True)
class Supply:
    """Machines that match a need, whoever holds them; each count stops at the policy's cap."""

    idle: int
    speculative: int
    configured: int
    capped: bool


@dataclass(frozen=True, slots=True)
class DomainCoverage:
    domain: str
    per_mille: int
    satisfiable: bool


@dataclass(frozen=True, slots=True)
class UnitParts:
    """Where the units of a counted entry are: paper and real told apart. stranded = coming + acquired + awaiting +
    missing, count = running + room + stranded; `coming_until` is 0 where nothing comes or nothing has a deadline."""

    count: int
    running: int
    room: int
    stranded: int
    coming: int
    coming_until: int
    acquired: int
    awaiting: int
    missing: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one entry of demand got in this step, and why not more."""

    key: NeedKey
    priority: int
    arrival: int
    satisfied: bool
    deficit: Resources
    claimed: int
    bootstraps: int
    provisions: int
    domain: str | None
    satisfiable: bool
    parked: bool
    parked_age: int
    unmet_age: int
    reason: UnmetReason
    supply: Supply | None
    victims: int
    freed: Resources
    candidates: tuple[DomainCoverage, ...]
    units: UnitParts | None = None


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Demand nobody can answer yet; age in nominal cycles, starting at 1."""

    key: NeedKey
    priority: int
    deficit: Resources
    since: int
    age: int
    escalated: bool
    topology_constrained: bool
    units: int = 0
    coming: int = 0
    cause: UnmetReason = UnmetReason.NONE


@dataclass(frozen=True, slots=True)
class AvailableCapacity:
    cluster: str
    fingerprint: str
    count: int
    confidence: Confidence
    cost_per_hour: float
