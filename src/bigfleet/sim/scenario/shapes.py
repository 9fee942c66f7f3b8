"""What one pod asks for: the demand half of a scenario, and the profile the production code would derive from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.penalty import bucket_for, finer_bound
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Toleration
from bigfleet.provider.fake.offerings import RACK_LABEL
from bigfleet.sim.document.document import Amounts, Dollars, item


class Colocation(StrEnum):
    """Where all pods of one object have to be together."""

    NONE = "none"
    RACK = "rack"
    ZONE = "zone"


class Match(StrEnum):
    """Operators of a requirement, as Kubernetes spells them."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Unsatisfiable(StrEnum):
    """What an unsatisfiable spread does."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementSpec:
    """One node-selector expression."""

    key: str = item("the label key", pattern=r"\S+", accepted="a label key")
    operator: Match = item("how the value is judged", default=Match.IN)
    values: tuple[str, ...] = item("the values of In and NotIn", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadSpec:
    """One topology spread."""

    key: str = item("the topology key", default=ZONE_LABEL)
    max_skew: int = item("the largest difference between two domains", default=1, low=1)
    when: Unsatisfiable = item("what happens when it cannot be met", default=Unsatisfiable.DO_NOT_SCHEDULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TolerationSpec:
    """One toleration."""

    key: str = item("the taint's key", default="")
    operator: str = item("Equal or Exists", default="Equal", pattern="Equal|Exists", accepted="Equal or Exists")
    value: str = item("the taint's value", default="")
    effect: str = item("the taint's effect, empty for any", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What every pod of a workload is: its size, where it may run, how much it matters."""

    resources: Amounts = item("the resources one pod requests")
    priority: int = item("the pod's priority", default=0, low=-(2**31), high=2**31 - 1)
    interruption_penalty: Dollars = item("dollars an interruption costs, or pinned", default=Dollars(0.0))
    reclamation_penalty: Dollars = item("dollars a planned move costs, or pinned", default=Dollars(0.0))
    instance_types: tuple[str, ...] = item("instance types it may run on; empty for any", default=())
    zones: tuple[str, ...] = item("zones it may run in; empty for any", default=())
    requirements: tuple[RequirementSpec, ...] = item("further node-selector expressions", default=())
    same: Colocation = item("all pods of one object on one rack or in one zone", default=Colocation.NONE)
    spread: tuple[SpreadSpec, ...] = item("topology spreads", default=())
    tolerations: tuple[TolerationSpec, ...] = item("taints it puts up with", default=())
    apart: bool = item("no two pods of one object on one node (required anti-affinity on hostnames)", default=False)

    @property
    def request(self) -> Resources:
        return Resources.parse(self.resources, round_up=True)

    @property
    def topology_key(self) -> str:
        """The label key all pods of one object must agree on; empty for none."""
        return {Colocation.RACK: RACK_LABEL, Colocation.ZONE: ZONE_LABEL}.get(self.same, "")

    def profile(self) -> Profile:
        """What the operator would aggregate these pods under."""
        wanted = [Requirement(r.key, Operator.from_text(r.operator.value), r.values) for r in self.requirements]
        if self.instance_types:
            wanted.append(Requirement(INSTANCE_TYPE_LABEL, Operator.IN, self.instance_types))
        if self.zones:
            wanted.append(Requirement(ZONE_LABEL, Operator.IN, self.zones))
        if self.topology_key:
            wanted.append(Requirement(self.topology_key, Operator.SAME))
        return Profile(
            wanted,
            [Spread(s.key, s.max_skew, _WHEN[s.when]) for s in self.spread],
            self.priority,
            bucket_for(self.interruption_penalty),
            bucket_for(self.reclamation_penalty),
            [Toleration(t.key, t.operator, t.value, t.effect) for t in self.tolerations],
            finer_bound(self.interruption_penalty),
        )


def priority_class(priority: int) -> str:
    """The class a priority is reported under."""
    if priority >= 1_000_000:
        return "critical"
    if priority >= 1_000:
        return "service"
    return "batch" if priority >= 100 else "other"


PRIORITY_CLASSES = ("critical", "service", "batch", "other")
_NAMED_FOR = {"critical": 1_000_000, "service": 1_000, "batch": 100, "other": 0}


def class_words(priorities: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """What to call the pods of each class, by the lowest and highest priority they have.

    A class is a band of priorities; its name is only true of pods at the priority it is named for. Batch work at
    priority 100,000 falls into the band of services and must not be called one.
    """
    words = {name: name for name in PRIORITY_CLASSES}
    for name, (low, high) in priorities.items():
        if low == high != _NAMED_FOR[name]:
            words[name] = f"priority {low:,}"
        elif low != high:
            words[name] = f"priority {low:,} to {high:,}"
    return words


_WHEN = {
    Unsatisfiable.DO_NOT_SCHEDULE: WhenUnsatisfiable.DO_NOT_SCHEDULE,
    Unsatisfiable.SCHEDULE_ANYWAY: WhenUnsatisfiable.SCHEDULE_ANYWAY,
}
