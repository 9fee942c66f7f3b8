"""What happens to the simulated world at given times: scripted changes of demand, failures, prices. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bigfleet.sim.document.document import Amounts, Nanoseconds, item

_AT = "when it happens"
_CLUSTERS = "clusters it concerns; empty for every one"
_FOR = "how long it lasts"
_TRANSITION = "create|configure|drain|delete"
_TRANSITIONS = "one of create, configure, drain, delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A workload gets another size: every object so many pods, or its present number times a factor."""

    TAG: ClassVar = ("do", "scale")

    at: Nanoseconds = item(_AT)
    workload: str = item("the workload")
    replicas: int | None = item("pods per object", default=None, low=0)
    factor: float | None = item("multiplies the present number of pods", default=None, low=0)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())

    def __post_init__(self) -> None:
        if (self.replicas is None) == (self.factor is None):
            raise ValueError("give either replicas or factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Clusters give up all the demand they have; what arrives afterwards is new."""

    TAG: ClassVar = ("do", "withdraw")

    at: Nanoseconds = item(_AT)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRestart:
    """A workload replaces its pods batch by batch: new pods first, then the old ones go."""

    TAG: ClassVar = ("do", "rolling-restart")

    at: Nanoseconds = item(_AT)
    workload: str = item("the workload")
    surge: float = item("share of the pods replaced at a time", default=0.25, low=0.001, high=1)
    pause: Nanoseconds = item("time between two batches", default=Nanoseconds(30_000_000_000))
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotWave:
    """Spot hosts get their notice, and vanish when it is over."""

    TAG: ClassVar = ("do", "spot-wave")

    at: Nanoseconds = item(_AT)
    fraction: float = item("share of the spot hosts", default=1.0, low=0, high=1)
    offer: str = item("only this offer", default="")
    zone: str = item("only this zone", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLoss:
    """A zone is gone: its hosts vanish and nothing can be bought there until it is over."""

    TAG: ClassVar = ("do", "zone-loss")

    at: Nanoseconds = item(_AT)
    zone: str = item("the zone")
    for_: Nanoseconds = item(_FOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseHosts:
    """Hosts vanish without a word."""

    TAG: ClassVar = ("do", "lose-hosts")

    at: Nanoseconds = item(_AT)
    count: int = item("how many, lowest ids first", default=1, low=1)
    cluster: str = item("only hosts that serve this cluster", default="")
    offer: str = item("only this offer", default="")
    zone: str = item("only this zone", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakMachines:
    """Machines stay listed but are Failed."""

    TAG: ClassVar = ("do", "break")

    at: Nanoseconds = item(_AT)
    count: int = item("how many, lowest ids first", default=1, low=1)
    cluster: str = item("only machines that serve this cluster", default="")
    offer: str = item("only this offer", default="")
    repaired_after: Nanoseconds | None = item("when somebody repairs them; never when left out", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailNext:
    """The next transitions of a kind fail."""

    TAG: ClassVar = ("do", "fail-next")

    at: Nanoseconds = item(_AT)
    transition: str = item("create, configure, drain or delete", pattern=_TRANSITION, accepted=_TRANSITIONS)
    count: int = item("how many", default=1, low=1)
    machine: str = item("only this machine", default="")
    error: str = item("what the provider says", default="injected fault")
    hang: bool = item("the provider never answers instead", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """From now on a share of the transitions of a kind fails."""

    TAG: ClassVar = ("do", "failure-rate")

    at: Nanoseconds = item(_AT)
    transition: str = item("create, configure, drain or delete", pattern=_TRANSITION, accepted=_TRANSITIONS)
    rate: float = item("the share", low=0, high=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStorm:
    """The provider's API refuses all calls beyond a rate."""

    TAG: ClassVar = ("do", "rate-limit")

    at: Nanoseconds = item(_AT)
    for_: Nanoseconds = item(_FOR)
    per_second: float = item("calls it takes per second", low=0.001)
    bare: bool = item("refuses with RESOURCE_EXHAUSTED and no reason, as other providers do", default=False)
    provider: str = item("which provider; every one when left out", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stockout:
    """Creates of an offer fail for lack of capacity."""

    TAG: ClassVar = ("do", "stockout")

    at: Nanoseconds = item(_AT)
    for_: Nanoseconds = item(_FOR)
    offer: str = item("the offer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerHosts:
    """What is bought of an offer comes up smaller than it is offered."""

    TAG: ClassVar = ("do", "smaller-hosts")

    at: Nanoseconds = item(_AT)
    for_: Nanoseconds = item(_FOR)
    offer: str = item("the offer")
    allocatable: Amounts = item("what its hosts have")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOutage:
    """The provider answers nothing at all; machines run on."""

    TAG: ClassVar = ("do", "provider-outage")

    at: Nanoseconds = item(_AT)
    for_: Nanoseconds = item(_FOR)
    provider: str = item("which provider; every one when left out", default="")


class Amid(StrEnum):
    """The middle of what a process may die in."""

    MOVE_BEGUN = "move-begun"
    MOVE_DRAINING = "move-draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRestart:
    """A shard process dies and comes back with its data directory, or without it."""

    TAG: ClassVar = ("do", "shard-restart")

    at: Nanoseconds = item(_AT)
    down: Nanoseconds = item("how long it is away", default=Nanoseconds(10_000_000_000))
    lose_journal: bool = item("the data directory is lost too: journal and epoch", default=False)
    shard: str = item("which one, such as shard-0; every one when left out", default="")
    amid: Amid | None = item(
        "not at once but in the middle of the next move: while its new machine is on the way, or its old one drains",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDisconnect:
    """Clusters lose their connection to the shard."""

    TAG: ClassVar = ("do", "operator-disconnect")

    at: Nanoseconds = item(_AT)
    for_: Nanoseconds = item(_FOR)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())


class Untruth(StrEnum):
    """What an operator that reports placement may get wrong."""

    EVERYTHING_STRANDED = "everything-stranded"
    NOTHING_REMOVABLE = "nothing-removable"
    EVERYTHING_EMPTY = "everything-empty"
    NO_DEMAND = "no-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonsense:
    """Operators that report placement say what is not so."""

    TAG: ClassVar = ("do", "nonsense")

    at: Nanoseconds = item(_AT)
    says: Untruth = item("what they say")
    for_: Nanoseconds = item(_FOR)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyRollup:
    """Operators report no demand at all although there is some: the classic bug the guard exists for."""

    TAG: ClassVar = ("do", "empty-roll-up")

    at: Nanoseconds = item(_AT)
    for_: Nanoseconds = item(_FOR)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """An offer gets another price or risk."""

    TAG: ClassVar = ("do", "price")

    at: Nanoseconds = item(_AT)
    offer: str = item("the offer")
    price_per_hour: float | None = item("the new price", default=None, low=0)
    interruption_probability: float | None = item("the new risk", default=None, low=0, high=1)

    def __post_init__(self) -> None:
        if self.price_per_hour is None and self.interruption_probability is None:
            raise ValueError("changes nothing; give price_per_hour or interruption_probability")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Slots nobody has bought yet are withdrawn, or offered again."""

    TAG: ClassVar = ("do", "quota")

    at: Nanoseconds = item(_AT)
    offer: str = item("the offer")
    withdraw: int = item("how many slots to withdraw; 0 offers all withdrawn ones again", low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rails:
    """Somebody flips the kill switch or the dry-run switch."""

    TAG: ClassVar = ("do", "rails")

    at: Nanoseconds = item(_AT)
    paused: bool | None = item("the kill switch", default=None)
    dry_run: bool | None = item("the dry-run switch", default=None)

    def __post_init__(self) -> None:
        if self.paused is None and self.dry_run is None:
            raise ValueError("changes nothing; give paused or dry_run")


Step = (
    Scale
    | Withdraw
    | RollingRestart
    | SpotWave
    | ZoneLoss
    | LoseHosts
    | BreakMachines
    | FailNext
    | FailureRate
    | RateLimitStorm
    | Stockout
    | SmallerHosts
    | ProviderOutage
    | ShardRestart
    | OperatorDisconnect
    | EmptyRollup
    | Nonsense
    | Price
    | Quota
    | Rails
)
