"""The scenario document: everything a run depends on, in one typed value read from YAML.

A scenario is normalised when it is made: everything with a name is sorted by it, so that the order in which a file
lists things can never change a run. References by name are checked here, once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from bigfleet.sim import steps as do
from bigfleet.sim.document import Amounts, DocumentError, Nanoseconds, compose, item, overlay, read, take
from bigfleet.sim.expectations import Expectation
from bigfleet.sim.kernel import MILLISECOND, MINUTE, SECOND, Duration
from bigfleet.sim.shapes import PodShape
from bigfleet.sim.steps import Step
from bigfleet.sim.supply import Fleet, size_of
from bigfleet.sim.workloads import Archetypes, Jobs, Levels, Trace, Workload

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
    reclaim_cap: float | None = item("share of a cluster's machines reclaimed per 10 s; 0 for no cap", default=None)
    reclaim_grace: Nanoseconds | None = item("time pods get when their machine is reclaimed", default=None)
    guard: bool | None = item("whether suspiciously empty roll-ups are held", default=None)
    idle_hold_on_demand: Nanoseconds | None = item("how long idle on-demand machines are kept", default=None)
    idle_hold_spot: Nanoseconds | None = item("how long idle spot machines are kept", default=None)
    max_actions: int | None = item("most actions per cycle; 0 for no limit", default=None, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """How the shard process is set up."""

    cycle: Nanoseconds = item("time between two decisions when nothing happens", default=Nanoseconds(10 * SECOND))
    drain_after_grace: bool = item("drain at the provider although pods remain", default=False)
    full_list_every: Nanoseconds = item("how often everything is listed anew", default=Nanoseconds(10 * MINUTE))


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
    rollup_interval: Nanoseconds = item("how often demand is reported", default=Nanoseconds(10 * SECOND))
    controller_managed: bool = item("evicted pods are created again", default=True)
    request_per_pod: bool = item("demand is all pods; false: only those that wait", default=True)
    overhead: Amounts = item("what DaemonSets take on every node", default={})
    eviction: Duration = item("how long pods take to leave a drained node", default=Duration.fixed(2 * SECOND))
    drain_reports: bool = item("whether its operator announces drain reports", default=True)
    reconnect: Duration = item("how long its operator waits before it dials again", default=Duration.fixed(5 * SECOND))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulated history."""

    name: str = item("the scenario's name", pattern=_NAME, accepted="lower-case letters, digits, '.' and '-'")
    description: str = item("one sentence: what it shows")
    duration: Nanoseconds = item("how long it lasts in simulated time")
    fleets: tuple[Fleet, ...] = item("the providers")
    clusters: tuple[ClusterSpec, ...] = item("the clusters")
    shapes: dict[str, PodShape] = item("pod shapes by name", default={})
    workloads: tuple[Workload, ...] = item("what runs in the clusters", default=())
    steps: tuple[Step, ...] = item("what happens, and when", default=())
    expect: tuple[Expectation, ...] = item("what must hold at the end", default=())
    tags: tuple[str, ...] = item("words to find it by", default=())
    seed: int = item("the seed of all randomness", default=1, low=0)
    mode: Mode = item("protocol: sessions, links and delays; inline: everything at once", default=Mode.PROTOCOL)
    sharding: Sharding = item("one shard for all clusters, or one each with its share", default=Sharding.SHARED)
    baseline: Sharding | None = item("run the same demand this way too and compare", default=None)
    policy: PolicySettings = item("the engine's policy", default=PolicySettings())
    shard: ShardSettings = item("the shard's settings", default=ShardSettings())
    network: Network = item("message delays", default=Network())
    trace: Detail = item("what the trace tells about actions", default=Detail.MACHINES)

    def __post_init__(self) -> None:
        if not self.fleets:
            raise ValueError("fleets is empty; give at least one provider")
        if not self.clusters:
            raise ValueError("clusters is empty; give at least one cluster")
        for field in ("fleets", "clusters", "workloads"):
            key = "provider" if field == "fleets" else "name"
            ordered = sorted(getattr(self, field), key=lambda each: str(getattr(each, key)))
            names = [getattr(each, key) for each in ordered]
            for one, other in pairwise(names):
                if one == other:
                    raise ValueError(f"{field} names {one!r} twice; every {key} must differ")
            object.__setattr__(self, field, tuple(ordered))
        object.__setattr__(self, "steps", tuple(sorted(self.steps, key=lambda step: (step.at, repr(step)))))
        object.__setattr__(self, "shapes", dict(sorted(self.shapes.items())))
        _check_references(self)

    def cluster_names(self) -> list[str]:
        return sorted(name for spec in self.clusters for name in names_of(spec))

    def spec_of(self, cluster: str) -> ClusterSpec:
        return next(spec for spec in self.clusters if cluster in names_of(spec))

    def with_(self, **changes: Any) -> Scenario:
        return replace(self, **changes)


def names_of(spec: ClusterSpec) -> list[str]:
    return [f"{spec.name}-{number:03}" for number in range(spec.count)] if spec.count else [spec.name]


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file; `extends: NAME` names another one beside it."""
    return read(Scenario, _resolved(path, ()))


def parse_scenario(text: str, where: str) -> Scenario:
    return read(Scenario, compose(text, where))


def _resolved(path: Path, seen: tuple[Path, ...]) -> yaml.Node:
    if path in seen:
        raise DocumentError(f"{path}:1: extends itself through {' → '.join(each.name for each in seen)}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from error
    base, node = take(compose(text, path.name), "extends")
    if base is None:
        return node
    return overlay(_resolved(path.parent / f"{base}.yaml", (*seen, path)), node)


def _check_references(scenario: Scenario) -> None:
    clusters = set(scenario.cluster_names())
    named = [offer.name for fleet in scenario.fleets for offer in fleet.offers]
    for name in named:
        if named.count(name) > 1:
            raise ValueError(f"two fleets offer {name!r}; machine ids are made of these names")
    offers = set(named)
    workloads = {workload.name for workload in scenario.workloads}

    def check(what: str, name: str, known: set[str]) -> None:
        if name and name not in known:
            raise ValueError(f"{what} {name!r} does not exist; known are {', '.join(sorted(known)) or 'none'}")

    for fleet in scenario.fleets:
        for offer in fleet.offers:
            if offer.holds is not None:
                check("shape", offer.holds.shape, set(scenario.shapes))
            size_of(offer, scenario.shapes)  # which complains when nothing says how large it is
    for workload in scenario.workloads:
        for shape in _shapes_named(workload):
            check(f"workload {workload.name!r}: shape", shape, set(scenario.shapes))
        for cluster in getattr(workload, "clusters", ()):
            check(f"workload {workload.name!r}: cluster", cluster, clusters)
    for each in (*scenario.steps, *scenario.expect):
        check("offer", getattr(each, "offer", ""), offers)
        check("workload", getattr(each, "workload", ""), workloads)
        check("cluster", getattr(each, "cluster", ""), clusters)
        for cluster in getattr(each, "clusters", ()):
            check("cluster", cluster, clusters)
    for step in scenario.steps:
        if step.at > scenario.duration:
            raise ValueError(f"step {step.TAG[1]!r} is after the end of the run; give an earlier time")


def _shapes_named(workload: Workload) -> list[str]:
    if isinstance(workload, Jobs):
        return [part.shape for part in workload.mix]
    if isinstance(workload, Archetypes):
        return []
    if isinstance(workload, Trace):
        return sorted({job.shape for job in workload.jobs})
    if isinstance(workload, Levels):
        return sorted({level.shape for level in workload.levels})
    return [workload.shape]


__all__ = ["ClusterSpec", "Scenario", "do", "load_scenario", "names_of", "parse_scenario"]
