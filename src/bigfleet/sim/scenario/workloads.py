"""How demand comes and goes: the workload kinds a scenario can name. Values only; `generators` plays them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bigfleet.sim.document.document import Nanoseconds, item
from bigfleet.virtual.kernel import HOUR, MINUTE, Duration

_CHECKPOINTS = "whether a job that lost a pod goes on where it was; otherwise it begins anew"
_CLUSTERS = "clusters it runs in; empty for every one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Objects of so many pods that are simply there. With a co-located shape each object is one gang."""

    TAG: ClassVar = ("kind", "deployment")

    name: str = item("the workload's name")
    shape: str = item("the name of a shape")
    replicas: int = item("pods per object", low=0)
    objects: int = item("how many such objects per cluster", default=1, low=1)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())
    start: Nanoseconds = item("when it is created", default=Nanoseconds(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """A service that follows the day: a cosine between its trough and its peak."""

    TAG: ClassVar = ("kind", "diurnal")

    name: str = item("the workload's name")
    shape: str = item("the name of a shape")
    trough: int = item("pods at the quietest time", low=0)
    peak: int = item("pods at the busiest time", low=0)
    peak_at: Nanoseconds = item("when the peak is, after the start of a period", default=Nanoseconds(14 * HOUR))
    shift_per_cluster: Nanoseconds = item("how much later the next cluster's peak is", default=Nanoseconds(0))
    period: Nanoseconds = item("the length of a day", default=Nanoseconds(24 * HOUR), low=1)
    step: Nanoseconds = item("how often the number is adjusted", default=Nanoseconds(5 * MINUTE), low=1)
    noise: float = item("random share added or taken at each adjustment", default=0.0, low=0, high=1)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of job in a mix."""

    shape: str = item("the name of a shape")
    weight: float = item("how often it comes, relative to the others", default=1.0, low=0)
    pods: tuple[int, int] = item("fewest and most pods of one job", default=(1, 1))
    duration: Duration | None = item("how long it runs; the workload's when left out", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Jobs that arrive at random, run and end: batch with long tails, training gangs, mixed queues."""

    TAG: ClassVar = ("kind", "jobs")

    name: str = item("the workload's name")
    mix: tuple[Part, ...] = item("what arrives")
    per_hour: float = item("mean number of arrivals per hour and cluster (Poisson)", low=0)
    duration: Duration = item("how long a job runs once all its pods do", default=Duration.exponential(10 * MINUTE))
    checkpoints: bool = item(_CHECKPOINTS, default=False)
    start: Nanoseconds = item("first possible arrival", default=Nanoseconds(0))
    until: Nanoseconds | None = item("last possible arrival; the end of the run when left out", default=None)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())

    def __post_init__(self) -> None:
        if not self.mix or sum(part.weight for part in self.mix) <= 0:
            raise ValueError("mix is empty or weighs nothing; give at least one part with a weight above 0")
        for part in self.mix:
            if not 1 <= part.pods[0] <= part.pods[1]:
                raise ValueError(f"pods is {list(part.pods)}; give the fewest, at least 1, then the most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archetypes:
    """Objects drawn from the archetype catalogue until the cluster has so many pods."""

    TAG: ClassVar = ("kind", "archetypes")

    name: str = item("the workload's name")
    pods: int = item("pods per cluster", low=1)
    catalogue: str = item("the catalogue", default="realistic", pattern="realistic", accepted="realistic")
    only: tuple[str, ...] = item("archetypes to draw from; empty for all that are no bursts", default=())
    exclude: tuple[str, ...] = item("archetypes to leave out", default=())
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())
    start: Nanoseconds = item("when they are created", default=Nanoseconds(0))
    until: Nanoseconds | None = item("when they are gone again; never when left out", default=None)

    def __post_init__(self) -> None:
        if self.only and set(self.only) <= set(self.exclude):
            raise ValueError("leaves out everything it draws from; give archetypes that are not under exclude")
        if self.until is not None and self.until <= self.start:
            raise ValueError("is gone before it is there; give until a moment after start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """The soak's demand: now and then a random cluster asks for a random amount, or withdraws."""

    TAG: ClassVar = ("kind", "churn")

    name: str = item("the workload's name")
    shape: str = item("the name of a shape")
    every: Nanoseconds = item("time between two changes", low=1)
    most: int = item("most pods a change asks for", default=50, low=1)
    withdraw_every: int = item("every so many changes a cluster withdraws instead", default=7, low=1)
    priorities: tuple[int, int] = item("priority is drawn uniformly from here up to, not including, there")
    until: Nanoseconds | None = item("no change after this instant; to the end when left out", default=None)
    clusters: tuple[str, ...] = item(_CLUSTERS, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One row of a demand history."""

    name: str = item("a name")
    cluster: str = item("the cluster it ran in")
    shape: str = item("the name of a shape")
    arrival: Nanoseconds = item("when it arrived")
    duration: Nanoseconds | None = item("how long it runs; for ever when left out", default=None)
    pods: int = item("how many pods", default=1, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Jobs with known arrivals and durations: a demand history."""

    TAG: ClassVar = ("kind", "trace")

    name: str = item("the workload's name")
    jobs: tuple[TraceJob, ...] = item("the jobs")
    checkpoints: bool = item(_CHECKPOINTS, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """From a moment on an object has so many pods."""

    at: Nanoseconds = item("the moment")
    cluster: str = item("the cluster")
    object: str = item("the object's name")
    shape: str = item("the name of a shape")
    pods: int = item("how many pods", low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Demand that changes at given moments, as a recording shows it."""

    TAG: ClassVar = ("kind", "levels")

    name: str = item("the workload's name")
    levels: tuple[Level, ...] = item("the changes, in any order")


Workload = Deployment | Diurnal | Jobs | Archetypes | Churn | Trace | Levels
