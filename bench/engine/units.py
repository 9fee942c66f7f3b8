"""The promised shapes as counted rows of clusters that report placement. What changes in a cycle is drawn after the
step before; entries after merging stand beside needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from bench.engine.columns import machine_batch, number_ids, rollup
from bench.engine.large import CPU_MEMORY, GIB, ZONE, pinned, shape
from bench.engine.loop import CONFIGURED, CONFIGURING, IDLE, SPECULATIVE, Mirror
from bench.engine.workload import Feed, ShapeSpec, Workload
from bigfleet.engine.batches import NONE, DemandBatch, Rollup, Stamp
from bigfleet.engine.placement import Counted, Load, NodeBatch
from bigfleet.engine.results import ActionKind
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement

NOBODY = (Load(),)


def counted(
    name: str,
    profiles: list[Profile],
    profile: NDArray[np.int64],
    unit: NDArray[np.int64],
    count: NDArray[np.int32],
    stranded: NDArray[np.int32],
    version: int,
) -> Rollup:
    made = rollup(name, profiles, profile, CPU_MEMORY, unit * count[:, None].astype(np.int64), unit)
    return structs.replace(made, counted=Counted(count, count - stranded, stranded, version))


def reports(
    name: str,
    numbers: NDArray[np.int64],
    used: NDArray[np.int64],
    version: int,
    resources: tuple[str, ...] = CPU_MEMORY,
    *,
    empty: bool = False,
) -> NodeBatch:
    count = len(numbers)
    none = np.zeros(count, np.bool_)
    return NodeBatch(
        cluster=name,
        ids=number_ids(numbers),
        resources=resources,
        ready=np.ones(count, np.bool_),
        empty=np.full(count, empty),
        removable=none,
        pinned=none,
        max_pod_priority=np.full(count, 1000, np.int32),
        used=used,
        allocatable=np.zeros((count, len(resources)), np.int64),
        reclamation_dollars=np.zeros(count),
        interruption_dollars=np.zeros(count),
        closing_since=np.zeros(count, np.int64),
        mirror_version=np.full(count, version, np.int64),
        load=np.zeros(count, np.int32),
        loads=NOBODY,
    )


def steady(
    clusters: int = 50,
    per_cluster: int = 10_000,
    rows: int = 1000,
    profiles: int = 500,
    types: int = 5,
    zones: int = 3,
    free: int = 20_000,
    heard: int = 1,
    delta: int = 0,
    lacking: bool = True,
) -> Workload:
    """All machines bound and reported. Of `heard` clusters a cycle: a roll-up, in which ten rows have a few stranded
    units, which are bought for until the next one, and 500 node reports. `delta` machines change under way."""
    dice = np.random.default_rng(14)
    shapes = [
        shape(f"type-{t:03d}", f"zone-{z:03d}", 16_000, 64 * GIB, price=0.5 + t * 0.01, capacity_type=3)
        for t in range(types)
        for z in range(zones)
    ]
    names = [f"cluster-{c:03d}" for c in range(clusters)]
    bound = clusters * per_cluster
    number = np.arange(bound + free, dtype=np.int64)
    state = np.where(number < bound, CONFIGURED, SPECULATIVE).astype(np.uint8)
    cluster = np.where(number < bound, number // per_cluster, NONE).astype(np.int32)
    stamp = np.where(number < bound, 0, NONE).astype(np.int32)
    pool = [pinned([f"type-{p % types:03d}"], 1000 + p) for p in range(profiles)]
    row = np.arange(rows, dtype=np.int64)
    unit = np.stack([1000 + 250 * (row % 29), (1 + row % 13) * GIB], axis=1)
    count = np.full(rows, 10 * per_cluster // rows, np.int32)
    mirror = Mirror(state, (number % len(shapes)).astype(np.int32), shapes, cluster, names, stamp, [Stamp(1000)])

    def asked(c: int, version: int) -> Rollup:
        stranded = np.zeros(rows, np.int32)
        if lacking:
            stranded[dice.choice(rows, 10, replace=False)] = dice.integers(1, 5, 10)
        mine = count.copy()
        mine[dice.choice(rows, rows // 100, replace=False)] += 1
        return counted(names[c], pool, row % profiles, unit, mine, stranded, version)

    def used(size: int) -> NDArray[np.int64]:
        cpu = dice.integers(8_000, 14_000, size)
        return np.stack([cpu, cpu * 4 * GIB // 1000], axis=1)

    def feeds() -> Iterator[Feed]:
        version, moved = 1, np.empty(0, np.int64)
        while True:
            version += 1
            told = [(version * heard + i) % clusters for i in range(heard)]
            changed = [np.sort(dice.choice(per_cluster, 500, replace=False)) + c * per_cluster for c in told]
            if delta:
                mirror.set(moved, CONFIGURED)
                moved = np.setdiff1d(dice.integers(0, bound, delta // 2), moved)
                mirror.set(moved, CONFIGURING)
            yield Feed(
                mirror.take() if delta else None,
                DemandBatch(
                    rollups=tuple(asked(c, version) for c in told),
                    confirmed=tuple((name, version) for c, name in enumerate(names) if c not in told),
                    reports=tuple(
                        reports(names[c], some, used(500), version) for c, some in zip(told, changed, strict=True)
                    )
                    if lacking
                    else (),
                ),
            )

    return Workload(
        mirror.load,
        DemandBatch(
            rollups=tuple(asked(c, 1) for c in range(clusters)),
            reports=tuple(
                reports(name, np.arange(c * per_cluster, (c + 1) * per_cluster), used(per_cluster), 1)
                for c, name in enumerate(names)
            ),
        ),
        feeds,
        {
            "machines": len(number),
            "clusters": clusters,
            "needs": int(count.sum()) * clusters,
            "entries": rows * clusters,
            "profiles": profiles,
            "classes": len(shapes),
            "per_cycle": f"{heard} roll-ups of {rows} rows, 1 % different"
            + (f", ten rows of each stranded in part; {500 * heard} node reports; {delta} machines change; " * lacking)
            + f"; {clusters - heard} roll-ups confirmed; {10 * clusters * lacking} entries lack room",
        },
        check=lambda result: None if not lacking or len(result.actions) else "nothing was bought",
    )


def reprovision(machines: int = 500_000, clusters: int = 50, profiles: int = 500) -> Workload:
    """Everything idle and every unit stranded: roll-ups arrive and the whole fleet is bound in the timed step."""
    shapes = [shape(f"type-{t}", f"zone-{z}", 16_000, 64 * GIB, price=1.0) for t in range(5) for z in range(3)]
    number = np.arange(machines, dtype=np.int64)
    names = [f"cluster-{c:03d}" for c in range(clusters)]
    pool = [pinned([f"type-{p % 5}"], 1000 + p) for p in range(profiles)]
    rows = 2 * profiles
    row = np.arange(rows, dtype=np.int64)
    unit = np.stack([9_000 + 10 * (row // profiles) * 500, np.full(rows, 20 * GIB)], axis=1)
    each = machines // clusters // rows
    stranded = np.full(rows, each, np.int32)

    def asked(version: int, some: NDArray[np.int32]) -> DemandBatch:
        return DemandBatch(
            rollups=tuple(counted(name, pool, row % profiles, unit, stranded, some, version) for name in names)
        )

    def feeds() -> Iterator[Feed]:
        version = 1
        while True:
            version += 1
            yield Feed(demand=asked(version, stranded))

    return Workload(
        lambda: machine_batch(
            number, np.full(machines, IDLE, np.uint8), (number % 5 * 3 + number // 5 % 3).astype(np.int32), shapes
        ),
        asked(1, stranded),
        feeds,
        {
            "machines": machines,
            "clusters": clusters,
            "needs": machines,
            "entries": rows * clusters,
            "profiles": profiles,
            "classes": len(shapes),
            "per_cycle": f"after an untimed reset, {clusters} roll-ups of {rows} rows and {machines} bindings",
        },
        reset=True,
        check=lambda result: (
            None if int((result.actions.kind == ActionKind.BOOTSTRAP).sum()) == machines else "bindings missing"
        ),
    )


def profiles_50k(profiles: int = 50_000, clusters: int = 50, *, first: bool = False) -> Workload:
    """Every row its own profile: a shard that starts, or a fleet that was just taken over, meets them all at once."""
    shapes = [shape(f"type-{t}", f"zone-{z}", 16_000, 64 * GIB, price=1.0) for t in range(5) for z in range(3)]
    number = np.arange(profiles, dtype=np.int64)
    rows = profiles // clusters
    row = np.arange(rows, dtype=np.int64)
    unit = np.tile(np.array([[9_000, 20 * GIB]], np.int64), (rows, 1))
    one = np.ones(rows, np.int32)
    serial = 0

    def asked() -> DemandBatch:
        nonlocal serial
        serial += 1

        def profile(c: int, r: int) -> Profile:
            zone = Requirement(ZONE, Operator.NOT_IN, (f"nowhere-{serial}-{c}-{r}",))
            return pinned([f"type-{r % 5}"], 1000, zone)

        return DemandBatch(
            rollups=tuple(
                counted(f"cluster-{c:03d}", [profile(c, r) for r in range(rows)], row, unit, one, one, serial)
                for c in range(clusters)
            )
        )

    def feeds() -> Iterator[Feed]:
        while True:
            yield Feed(demand=asked())

    return Workload(
        lambda: machine_batch(
            number, np.full(profiles, IDLE, np.uint8), (number % 5 * 3 + number // 5 % 3).astype(np.int32), shapes
        ),
        asked(),
        feeds,
        {
            "machines": profiles,
            "clusters": clusters,
            "needs": profiles,
            "entries": profiles,
            "profiles": profiles,
            "classes": len(shapes),
            "per_cycle": f"after an untimed {'load of a new engine' if first else 'reset'}, {profiles} rows of "
            f"{profiles} profiles never met before",
        },
        reset=not first,
        fresh=first,
        check=lambda result: None if len(result.actions) == profiles else "bindings missing",
    )


_LARGE = {"clusters": 500, "per_cluster": 9_000, "types": 50, "zones": 40, "free": 500_000}

SHAPES = (
    ShapeSpec(
        "units-steady-500k",
        steady,
        "500,000 bound machines of 50 clusters that report placement, 500 entries lack room",
        "none",
        limit_ms=10.0,
    ),
    ShapeSpec(
        "units-reprovision-500k",
        reprovision,
        "500,000 idle machines, 500,000 stranded units in 50,000 counted rows bound in one cycle",
        "none",
        limit_ms=150.0,
    ),
    ShapeSpec(
        "units-fleet-5m",
        partial(steady, **_LARGE, heard=10, delta=5_000),
        "5,000,000 machines, 500 clusters that report placement, 2,000 classes, 500 profiles; 0.1 % change",
        "none",
        limit_ms=150.0,
    ),
    ShapeSpec(
        "units-fleet-5m-delta-10k",
        partial(steady, **_LARGE, heard=1, delta=10_000),
        "units-fleet-5m, a delta of 10,000 machines",
        "none",
        limit_ms=100.0,
    ),
    ShapeSpec(
        "units-fleet-5m-rollup-1k",
        partial(steady, **_LARGE, heard=1, lacking=False),
        "units-fleet-5m at rest, one roll-up of 1,000 counted rows",
        "none",
        limit_ms=5.0,
    ),
    ShapeSpec(
        "units-profiles-50k",
        profiles_50k,
        "50,000 counted rows of 50,000 profiles, none of them met before, in one cycle",
        "none",
        limit_ms=500.0,
    ),
    ShapeSpec(
        "units-profiles-50k-first",
        partial(profiles_50k, first=True),
        "the same as the first step of a new engine, which has nothing to give back",
        "none",
        limit_ms=500.0,
    ),
)
