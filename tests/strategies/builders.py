"""A fleet in a line per machine and demand in a line per need, turned into the batches a step takes.

Sizes are in human units: `cpu` in cores, `mem` in GiB, `gpu` in devices. Everything not said has a dull default.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bigfleet.engine.batches import NONE, REMOVED, DemandBatch, Ids, MachineBatch, Rollup, Shape, Stamp
from bigfleet.model.penalty import bucket_dollars, bucket_for
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bigfleet.model.taint import Taint, Toleration

SPECULATIVE, CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED = range(1, 9)
BARE_METAL, RESERVED, ON_DEMAND, SPOT = range(1, 5)
GPU = "nvidia.com/gpu"
RACK = "topology.bigfleet/rack"
ZONE = "topology.kubernetes.io/zone"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
HOSTNAME = "kubernetes.io/hostname"
A3 = "a3-highgpu-8g"
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def amounts(cpu: float = 0, mem: float = 0, gpu: int = 0, **other: int) -> dict[str, int]:
    """Engine units of a size in human units."""
    units = {"cpu": round(cpu * 1000), "memory": round(mem * 2**20), GPU: gpu, **other}
    return {name: amount for name, amount in units.items() if amount}


@dataclass(frozen=True)
class MachineLine:
    """One machine as a test writes it; `state` 0 removes it."""

    id: str
    state: int
    shape: Shape | None = None
    cluster: str = ""
    stamp: Stamp | None = None
    not_before: int = 0

    def to(self, state: int, cluster: str = "", stamp: Stamp | None = None) -> MachineLine:
        return replace(self, state=state, cluster=cluster, stamp=stamp)


def machine(
    id: str,
    state: int,
    cluster: str = "",
    *,
    type: str = A3,
    zone: str = "a",
    rack: str | None = None,
    price: float = 0.0,
    risk: float = 0.0,
    capacity: int = BARE_METAL,
    provider: str = "p",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    stamp: Stamp | None = None,
    not_before: int = 0,
    **size: float,
) -> MachineLine:
    tags = dict(labels or {})
    if rack is not None:
        tags[RACK] = rack
    have = Resources(amounts(**(size or {"gpu": 8})))  # type: ignore[arg-type]
    shape = Shape(provider, type, zone, capacity, price, risk, have, tuple(sorted(tags.items())), tuple(taints))
    return MachineLine(id, state, shape, cluster, stamp, not_before)


def idle(id: str, **facts: Any) -> MachineLine:
    return machine(id, IDLE, **facts)


def slot(id: str, **facts: Any) -> MachineLine:
    """A Speculative machine: quota that could be bought."""
    return machine(id, SPECULATIVE, **facts)


def bound(id: str, cluster: str, **facts: Any) -> MachineLine:
    """A Configured machine."""
    return machine(id, CONFIGURED, cluster, **facts)


def several(count: int, make: Any, prefix: str, *args: Any, **facts: Any) -> list[MachineLine]:
    """`several(3, idle, "i")` is i0, i1, i2."""
    return [make(f"{prefix}{index}", *args, **facts) for index in range(count)]


def stamp_of(need: NeedLine) -> Stamp:
    """What a machine carries once it is Configured for that need."""
    return stamp_for(need.profile, need.group)


def stamp_for(profile: Profile, group: str = "") -> Stamp:
    return Stamp(
        profile.priority,
        bucket_dollars(profile.interruption_bucket),
        bucket_dollars(profile.reclamation_bucket),
        profile.fingerprint,
        group,
    )


@dataclass(frozen=True)
class NeedLine:
    """One row of demand as a test writes it."""

    cluster: str
    profile: Profile
    aggregate: Mapping[str, int]
    min_unit: Mapping[str, int] = field(default_factory=dict)
    group: str = ""

    def times(self, count: int) -> NeedLine:
        """The same row for so many units of its min_unit."""
        return replace(self, aggregate={name: amount * count for name, amount in self.min_unit.items()})


def need(
    cluster: str,
    units: int = 1,
    *,
    priority: int = 1000,
    types: Sequence[str] = (),
    same: str | None = None,
    group: str = "",
    spread: tuple[str, int] | None = None,
    anyway: str | None = None,
    interruption: float = 0.0,
    microdollars: int = 0,
    reclamation: float = 0.0,
    where: Iterable[Requirement] = (),
    tolerations: Sequence[Toleration] = (),
    floor: Mapping[str, int] | None = None,
    **size: float,
) -> NeedLine:
    """`units` pods of one size (default a whole a3 node's eight gpus) under one set of constraints."""
    requirements = list(where)
    if types:
        requirements.append(Requirement(INSTANCE_TYPE, Operator.IN, tuple(types)))
    if same:
        requirements.append(Requirement(same, Operator.SAME))
    spreads = []
    if spread:
        spreads.append(Spread(spread[0], spread[1], WhenUnsatisfiable.DO_NOT_SCHEDULE))
    if anyway:
        spreads.append(Spread(anyway, 1, WhenUnsatisfiable.SCHEDULE_ANYWAY))
    profile = Profile(
        requirements,
        spreads,
        priority,
        bucket_for(interruption),
        bucket_for(reclamation),
        tuple(tolerations),
        microdollars,
    )
    one = amounts(**(size or {"gpu": 8}))  # type: ignore[arg-type]
    whole = {name: amount * units for name, amount in one.items()}
    return NeedLine(cluster, profile, whole, one if floor is None else floor, group)


def batch(*lines: MachineLine | Iterable[MachineLine]) -> MachineBatch:
    """Machine lines, or lists of them, as one batch with every distinct shape, cluster and stamp interned."""
    flat = [line for item in lines for line in ([item] if isinstance(item, MachineLine) else item)]
    shapes: dict[Shape, int] = {}
    clusters: dict[str, int] = {}
    stamps: dict[Stamp, int] = {}
    columns: list[tuple[int, int, int, int]] = []
    for line in flat:
        shape = 0 if line.shape is None else shapes.setdefault(line.shape, len(shapes))
        cluster = clusters.setdefault(line.cluster, len(clusters)) if line.cluster else NONE
        stamp = stamps.setdefault(line.stamp, len(stamps)) if line.stamp is not None else NONE
        columns.append((line.state, shape, cluster, stamp))
    state, shape_column, cluster_column, stamp_column = zip(*columns, strict=True) if columns else ((), (), (), ())
    return MachineBatch(
        ids=Ids.of([line.id for line in flat]),
        state=np.array(state, np.uint8),
        shape=np.array(shape_column, np.int32),
        cluster=np.array(cluster_column, np.int32),
        stamp=np.array(stamp_column, np.int32),
        not_before=np.array([line.not_before for line in flat], np.int64),
        shapes=tuple(shapes),
        clusters=tuple(clusters),
        stamps=tuple(stamps),
    )


def removed(*ids: str) -> list[MachineLine]:
    return [MachineLine(id, REMOVED) for id in ids]


def rollup(cluster: str, *needs: NeedLine, overhead: Mapping[str, int] | None = None) -> Rollup:
    """One cluster's whole demand; no needs is an empty roll-up."""
    profiles: dict[Profile, int] = {}
    groups: dict[str, int] = {}
    names = tuple(sorted({name for n in needs for name in (*n.aggregate, *n.min_unit)}))
    for n in needs:
        profiles.setdefault(n.profile, len(profiles))
        if n.group:
            groups.setdefault(n.group, len(groups))
    return Rollup(
        cluster=cluster,
        profiles=tuple(profiles),
        groups=tuple(groups),
        resources=names,
        profile=np.array([profiles[n.profile] for n in needs], np.int32),
        group=np.array([groups[n.group] if n.group else NONE for n in needs], np.int32),
        aggregate=_table([n.aggregate for n in needs], names),
        min_unit=_table([n.min_unit for n in needs], names),
        overhead=Resources(overhead or {}),
    )


def demand(*needs: NeedLine, empty: Sequence[str] = ()) -> DemandBatch:
    """The needs grouped into one roll-up per cluster; clusters in `empty` send an empty one."""
    clusters = dict.fromkeys([*(n.cluster for n in needs), *empty])
    return DemandBatch(rollups=[rollup(name, *(n for n in needs if n.cluster == name)) for name in clusters])


def _table(rows: Sequence[Mapping[str, int]], names: tuple[str, ...]) -> Any:
    return np.array([[row.get(name, 0) for name in names] for row in rows], np.int64).reshape(len(rows), len(names))
