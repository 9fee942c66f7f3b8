"""The scenario document: everything a run depends on, in one typed value read from YAML.

A scenario is normalised when it is made: everything with a name is sorted by it, so that the order in which a file
lists things can never change a run. References by name are checked here, once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from bigfleet.sim.document.document import (
    Amounts,
    DocumentError,
    Nanoseconds,
    compose,
    item,
    overlay,
    read,
    take,
    text_of,
)
from bigfleet.sim.scenario import references
from bigfleet.sim.scenario import steps as do
from bigfleet.sim.scenario.expectations import Expectation
from bigfleet.sim.scenario.shapes import PodShape
from bigfleet.sim.scenario.steps import Step
from bigfleet.sim.scenario.supply import Fleet
from bigfleet.sim.scenario.workloads import Workload
from bigfleet.virtual.kernel import MILLISECOND, MINUTE, SECOND, Duration

_NAME = r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"


class Preset(StrEnum):
    """Where the policy starts from."""

    PRODUCTION = "production"
    LIBRARY = "library"


class Mode(StrEnum):
    """How much of the real path a run takes."""

    PROTOCOL = "protocol"
    INLINE = "inline"


class Sharding(StrEnum):
    """Who decides for whom."""

    SHARED = "shared"
    PER_CLUSTER = "per-cluster"


class OperatorKind(StrEnum):
    """What a cluster's operator says of its pods."""

    REFERENCE = "reference"
    PLACEMENT = "placement"


class Scoring(StrEnum):
    """Which nodes a cluster's scheduler likes: the default of Kubernetes, or what packs."""

    LEAST_ALLOCATED = "least-allocated"
    MOST_ALLOCATED = "most-allocated"


class Detail(StrEnum):
    """How much a trace tells about each action."""

    MACHINES = "machines"
    COUNTS = "counts"
    HOURLY = "hourly"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The engine's policy, where it differs from its preset."""

    preset: Preset = item("production has the rails on, library has them off", default=Preset.PRODUCTION)
    reclaim_hold: Nanoseconds | None = item("how long excess must last before it is drained", default=None)
    reclaim_cap: float | None = item(
        "share of a cluster's machines reclaimed per 10 s; 0 for no cap", default=None, low=0, high=1
    )
    reclaim_grace: Nanoseconds | None = item("time pods get when their machine is reclaimed", default=None)
    guard: bool | None = item("whether suspiciously empty roll-ups are held", default=None)
    idle_hold_on_demand: Nanoseconds | None = item("how long idle on-demand machines are kept", default=None)
    idle_hold_spot: Nanoseconds | None = item("how long idle spot machines are kept", default=None)
    consolidate: bool | None = item("whether nodes are closed and replaced where that saves", default=None)
    eviction_rate: float | None = item(
        "pods consolidation may evict for each pod that runs for 15 minutes", default=None, low=0
    )
    max_actions: int | None = item("most actions per cycle; 0 for no limit", default=None, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """How the shard process is set up."""

    cycle: Nanoseconds = item(
        "time between two decisions when nothing happens", default=Nanoseconds(10 * SECOND), low=1
    )
    drain_after_grace: bool = item("drain at the provider although pods remain", default=False)
    full_list_every: Nanoseconds = item("how often everything is listed anew", default=Nanoseconds(10 * MINUTE), low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSpec:
    """The coordinator over several shards. All of them dial every provider; zones are dealt out among them."""

    report_every: Nanoseconds = item("how often shards report", default=Nanoseconds(10 * SECOND), low=1)
    plan_every: Nanoseconds = item("how often it looks for capacity to move", default=Nanoseconds(5 * SECOND), low=1)
    after: Nanoseconds = item("help shortfalls of this age", default=Nanoseconds(60 * SECOND))
    preempt_after: Nanoseconds = item("drain elsewhere for those of this age", default=Nanoseconds(120 * SECOND))
    cooldown: Nanoseconds = item(
        "who got machines of a kind gives none of it for so long", default=Nanoseconds(10 * MINUTE)
    )
    margin: float = item("the share of its free machines a donor keeps", default=0.1, low=0, high=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How long messages take."""

    rpc: Duration = item("one way between shard and provider", default=Duration.fixed(5 * MILLISECOND))
    session: Duration = item("one way between operator and shard", default=Duration.fixed(20 * MILLISECOND))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One Kubernetes cluster, or several equal ones."""

    name: str = item("its name", pattern=_NAME, accepted="lower-case letters, digits, '.' and '-'")
    count: int = item("so many clusters, named NAME-000 and on; 0 for just the one", default=0, low=0)
    rollup_interval: Nanoseconds = item("how often demand is reported", default=Nanoseconds(10 * SECOND), low=1)
    controller_managed: bool = item("evicted pods are created again", default=True)
    request_per_pod: bool = item("demand is all pods; false: only those that wait", default=True)
    overhead: Amounts = item("what DaemonSets take on every node", default={})
    eviction: Duration = item("how long pods take to leave a drained node", default=Duration.fixed(2 * SECOND))
    drain_reports: bool = item("whether its operator announces drain reports", default=True)
    operator: OperatorKind | None = item(
        "reference: sums of what pods request; placement: what has no room; the scenario's when left out", default=None
    )
    scheduler: Scoring = item(
        "least-allocated: emptiest node first, as Kubernetes does by default; most-allocated: fullest first",
        default=Scoring.LEAST_ALLOCATED,
    )
    risk_rule: bool = item("whether pods are kept off nodes whose interruption would cost them too much", default=True)
    levels: bool = item("whether a placement operator marks levels of fill with soft taints", default=True)
    reconnect: Duration = item("how long its operator waits before it dials again", default=Duration.fixed(5 * SECOND))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulated history."""

    name: str = item("the scenario's name", pattern=_NAME, accepted="lower-case letters, digits, '.' and '-'")
    description: str = item("one sentence: what it shows")
    duration: Nanoseconds = item("how long it lasts in simulated time", low=1)
    fleets: tuple[Fleet, ...] = item("the providers")
    clusters: tuple[ClusterSpec, ...] = item("the clusters")
    shapes: dict[str, PodShape] = item("pod shapes by name", default={})
    workloads: tuple[Workload, ...] = item("what runs in the clusters", default=())
    steps: tuple[Step, ...] = item("what happens, and when", default=())
    expect: tuple[Expectation, ...] = item("what must hold at the end", default=())
    tags: tuple[str, ...] = item("words to find it by", default=())
    seed: int = item("the seed of all randomness", default=1, low=0)
    mode: Mode = item("protocol: sessions, links and delays; inline: everything at once", default=Mode.PROTOCOL)
    sharding: Sharding = item("shards for all clusters, or one each with its share", default=Sharding.SHARED)
    shards: int = item("how many, where clusters share them: clusters and offers are dealt out", default=1, low=1)
    coordinator: CoordinatorSpec | None = item("moves machines between shards that share clusters", default=None)
    baseline: Sharding | None = item("run the same demand this way too and compare", default=None)
    operator: OperatorKind = item("what operators say of their clusters' pods", default=OperatorKind.PLACEMENT)
    policy: PolicySettings = item("the engine's policy", default=PolicySettings())
    shard: ShardSettings = item("the shard's settings", default=ShardSettings())
    network: Network = item("message delays", default=Network())
    trace: Detail = item("what the trace tells about actions", default=Detail.MACHINES)

    def __post_init__(self) -> None:
        if not self.fleets:
            raise ValueError("fleets is empty; give at least one provider")
        if not self.clusters:
            raise ValueError("clusters is empty; give at least one cluster")
        references.check(self)
        for field, key in (("fleets", "provider"), ("clusters", "name"), ("workloads", "name")):
            ordered = sorted(getattr(self, field), key=lambda each: str(getattr(each, key)))
            object.__setattr__(self, field, tuple(ordered))
        object.__setattr__(self, "steps", tuple(sorted(self.steps, key=lambda step: (step.at, repr(step)))))
        object.__setattr__(self, "shapes", dict(sorted(self.shapes.items())))

    def cluster_names(self) -> list[str]:
        return sorted(name for spec in self.clusters for name in names_of(spec))

    def shard_names(self) -> dict[str, list[str]]:
        """The shards, and the clusters each of them decides for."""
        names = self.cluster_names()
        if self.sharding is Sharding.PER_CLUSTER:
            return {f"shard-{name}": [name] for name in names}
        return {f"shard-{number}": names[number :: self.shards] for number in range(self.shards)}

    def spec_of(self, cluster: str) -> ClusterSpec:
        return next(spec for spec in self.clusters if cluster in names_of(spec))

    def with_(self, **changes: Any) -> Scenario:
        return replace(self, **changes)


def names_of(spec: ClusterSpec) -> list[str]:
    return [f"{spec.name}-{number:03}" for number in range(spec.count)] if spec.count else [spec.name]


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file; `extends: NAME` names another one beside it, or a shipped one."""
    return read(Scenario, _resolved(path, ()))


def shipped_file(name: str) -> Path:
    """Where a scenario of that name would be among the shipped ones."""
    return Path(str(resources.files("bigfleet.sim").joinpath("scenarios"))) / f"{name}.yaml"


def parse_scenario(text: str, where: str) -> Scenario:
    return read(Scenario, compose(text, where))


def _resolved(path: Path, seen: tuple[Path, ...]) -> yaml.Node:
    if path in seen:
        raise DocumentError(f"{path.name}:1: extends itself through {' → '.join(each.name for each in seen)}")
    if seen and not path.exists():
        where, wanted = seen[-1].name, path.stem
        raise DocumentError(
            f"{where}:1: extends {wanted!r}; give a scenario beside it, or a shipped one (`fauxctl list`)"
        )
    base, node = take(compose(text_of(path), path.name), "extends")
    if base is None:
        return node
    beside = path.parent / f"{base}.yaml"
    return overlay(_resolved(beside if beside.exists() else shipped_file(base), (*seen, path)), node)


__all__ = ["ClusterSpec", "Scenario", "do", "load_scenario", "names_of", "parse_scenario"]
