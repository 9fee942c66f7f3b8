"""What the demonstration's four clusters run, after the archetypes of real fleets: sizes, priorities, penalties.

Numbers of pods only; which machines they get is the shard's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bigfleet.model.names import ZONE_LABEL
from bigfleet.model.penalty import bucket_for
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.provider.fake.offerings import RACK_LABEL
from bigfleet.shard.rehearsal.synthetic import Row
from bigfleet.wire import capacity_pb2

BATCH, WEB, SERVICE, CRITICAL = 100, 500, 1000, 1_000_000
OWN_HALLS = Requirement(ZONE_LABEL, Operator.IN, ("hall-a", "hall-b"))
ONE_RACK = Requirement(RACK_LABEL, Operator.SAME, ())
GPU_TOLERATION = capacity_pb2.Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods of one size. `pods` are there at rest, `burst` more come with every burst of the cluster."""

    name: str
    pods: int
    burst: int
    unit: dict[str, str]
    priority: int
    interruption: float
    reclamation: float
    requirements: tuple[Requirement, ...] = ()
    group: str = ""
    on_gpus: bool = False

    def need(self, pods: int) -> capacity_pb2.CapacityNeed:
        row = Row(
            pods=pods,
            unit=self.unit,
            priority=self.priority,
            requirements=self.requirements,
            group=self.group,
            interruption_bucket=bucket_for(self.interruption),
            reclamation_bucket=bucket_for(self.reclamation),
        )
        made = row.need()
        if self.on_gpus:
            made.tolerations.append(GPU_TOLERATION)
        return made


CHECKOUT = Workload("checkout", 24, 24, {"cpu": "2200m", "memory": "8500Mi"}, SERVICE, 1024, 8192)
STOREFRONT = Workload("storefront", 160, 160, {"cpu": "400m", "memory": "500Mi"}, WEB, 32, 64)
NIGHTLY = Workload("nightly", 36, 60, {"cpu": "3500m", "memory": "8Gi"}, BATCH, 0, 0)
TRAINING = Workload(
    "training",
    4,
    0,
    {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8"},
    SERVICE,
    16384,
    32768,
    requirements=(ONE_RACK,),
    group="training-run-7",
    on_gpus=True,
)
# Runs in our own halls only, so it must take machines from others there, however much the cloud has left.
SETTLEMENT = Workload(
    "settlement", 0, 0, {"cpu": "3500m", "memory": "8Gi"}, CRITICAL, 65536, 65536, requirements=(OWN_HALLS,)
)
# On a shard of its own that has machines for an ordinary day only.
TILLS = Workload("tills", 4, 6, {"cpu": "3", "memory": "10Gi"}, SERVICE, 1024, 8192)
CRITICAL_PODS = 28
WORKLOADS = (CHECKOUT, STOREFRONT, NIGHTLY, TRAINING, SETTLEMENT, TILLS)


@dataclass(slots=True)
class ClusterDemand:
    """What one cluster wants at the moment."""

    name: str
    workloads: tuple[Workload, ...]
    shard: str = "main"
    pods: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rest()

    def rest(self) -> None:
        """As on an ordinary day."""
        self.pods = {each.name: each.pods for each in self.workloads}

    def burst(self) -> int:
        """A wave of work; returns how many pods it adds."""
        added = sum(each.burst for each in self.workloads)
        self.pods = {each.name: self.pods[each.name] + each.burst for each in self.workloads}
        return added

    def more(self, workload: Workload, pods: int) -> None:
        self.pods[workload.name] += pods

    def nothing(self) -> None:
        self.pods = dict.fromkeys(self.pods, 0)

    @property
    def wanted(self) -> Resources:
        """All its pods together."""
        total = Resources.ZERO
        for each in self.workloads:
            total = total + Resources.parse(each.unit, round_up=True).scale(self.pods[each.name])
        return total

    @property
    def resting(self) -> bool:
        return all(self.pods[each.name] <= each.pods for each in self.workloads)

    @property
    def total(self) -> int:
        return sum(self.pods.values())

    def needs(self) -> list[capacity_pb2.CapacityNeed]:
        return [each.need(self.pods[each.name]) for each in self.workloads if self.pods[each.name]]


def four_clusters() -> tuple[ClusterDemand, ...]:
    return (
        ClusterDemand("payments", (CHECKOUT, SETTLEMENT)),
        ClusterDemand("web", (STOREFRONT,)),
        ClusterDemand("research", (NIGHTLY, TRAINING)),
        ClusterDemand("stores", (TILLS,), "edge"),
    )


def workload_of(need: capacity_pb2.CapacityNeed) -> str:
    """The workload a need came from, by its gang or by its size; empty when it is none of ours."""
    unit = Resources.parse(need.min_unit, round_up=True)
    for each in WORKLOADS:
        alike = need.group == each.group if each.group else Resources.parse(each.unit, round_up=True) == unit
        if alike and each.priority == need.priority:
            return each.name
    return ""
