"""The shapes of the engine's promise, small changes on five million machines, and the curve up to them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.engine.columns import machine_batch, rollup
from bench.engine.loop import CONFIGURED, CONFIGURING, FAILED, IDLE, SPECULATIVE, Mirror
from bench.engine.workload import Feed, ShapeSpec, Workload
from bigfleet.engine.batches import NONE, DemandBatch, Rollup, Shape, Stamp
from bigfleet.engine.results import ActionKind
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
GIB = 1024 * 1024
BUCKET_8192 = 16
CPU_MEMORY = ("cpu", "memory")


def pinned(instance_types: list[str], priority: int, *more: Requirement) -> Profile:
    reqs = (Requirement(INSTANCE_TYPE, Operator.IN, tuple(instance_types)), *more)
    return Profile(reqs, (), priority, BUCKET_8192, BUCKET_8192)


def shape(instance_type: str, zone: str, cpu: int, memory: int, price: float = 0.0, capacity_type: int = 1) -> Shape:
    return Shape("bench", instance_type, zone, capacity_type, price, 0.0, Resources({"cpu": cpu, "memory": memory}))


def bound_fleet(
    clusters: int, per_cluster: int, idle: int, speculative: int, types: int, zones: int, profiles: int, rows: int
) -> tuple[Mirror, list[Rollup], dict[str, object]]:
    """Clusters whose rows are covered by bound machines of their types, plus free supply: the fleet at rest."""
    unit = (16_000, 64 * GIB)
    shapes = [
        shape(f"type-{t:03d}", f"zone-{z:03d}", *unit, price=0.5 + t * 0.01, capacity_type=3)
        for t in range(types)
        for z in range(zones)
    ]
    names = [f"cluster-{c:04d}" for c in range(clusters)]
    bound = clusters * per_cluster
    total = bound + idle + speculative
    number = np.arange(total, dtype=np.int64)
    state = np.full(total, CONFIGURED, np.uint8)
    state[bound : bound + idle] = IDLE
    state[bound + idle :] = SPECULATIVE
    cluster = np.where(number < bound, number // per_cluster, NONE).astype(np.int32)
    # Every cluster holds all types in equal parts, zones round robin within a type.
    within = np.where(number < bound, number % per_cluster, number)
    shape_of = (within % types * zones + within // types % zones).astype(np.int32)

    pool = [pinned([f"type-{p % types:03d}"], 1000 + p // types * 1000) for p in range(profiles)]
    stamps = [Stamp(profile.priority, 8192.0, 8192.0, profile.fingerprint, "") for profile in pool]
    stamp = np.where(number < bound, shape_of // zones, NONE).astype(np.int32)
    mirror = Mirror(state, shape_of, shapes, cluster, names, stamp, stamps)

    per_row = per_cluster // rows
    unit_row = np.arange(rows, dtype=np.int64)
    # Rows of one profile differ in their smallest unit (ruling 2), so each is a need of its own.
    min_unit = np.stack([1000 + unit_row // profiles * 10, np.full(rows, GIB, np.int64)], axis=1)
    aggregate = np.tile(np.array([[unit[0] * per_row - 2000, unit[1] * per_row - 2 * GIB]], np.int64), (rows, 1))
    profile_of = unit_row % profiles
    rollups = [rollup(name, pool, profile_of, CPU_MEMORY, aggregate, min_unit) for name in names]
    facts: dict[str, object] = {
        "machines": total,
        "configured": bound,
        "idle": idle,
        "speculative": speculative,
        "clusters": clusters,
        "needs": clusters * rows,
        "profiles": profiles,
        "classes": types * zones,
    }
    return mirror, rollups, facts


def nudged(base: Rollup, cycle: int, share: float) -> Rollup:
    """The same roll-up with a share of its rows a little smaller or larger, still within what is bound."""
    aggregate = base.aggregate.copy()
    count = max(1, int(len(base) * share))
    chosen = (np.arange(count) * 97 + cycle * 13) % len(base)
    aggregate[chosen, 0] -= 1 + cycle % 1000
    return rollup(base.cluster, base.profiles, base.profile, base.resources, aggregate, base.min_unit)


def steady(
    clusters: int = 50,
    per_cluster: int = 10_000,
    rows: int = 1000,
    profiles: int = 50,
    types: int = 5,
    zones: int = 3,
    idle: int = 0,
    speculative: int = 0,
    changing: int = 500,
) -> Workload:
    mirror, rollups, facts = bound_fleet(clusters, per_cluster, idle, speculative, types, zones, profiles, rows)
    bound = clusters * per_cluster

    def feeds() -> Iterator[Feed]:
        cycle = 0
        while True:
            # Machines alternate between Configured and Configuring: bound all the time, moving between cells.
            numbers = (np.arange(changing, dtype=np.int64) * 7919 + cycle // 2 * 104_729) % bound
            mirror.set(np.unique(numbers), CONFIGURING if cycle % 2 == 0 else CONFIGURED)
            one = nudged(rollups[cycle % clusters], cycle, 0.01)
            yield Feed(mirror.take(), DemandBatch(rollups=(one,)))
            cycle += 1

    facts |= {"per_cycle": f"one roll-up of {rows} rows (1 % different), {changing} machines change state"}
    return Workload(mirror.load, DemandBatch(rollups=tuple(rollups)), feeds, facts)


def reprovision(machines: int = 500_000, clusters: int = 50) -> Workload:
    """Everything idle, every need its own row: the cycle binds the whole fleet."""
    shapes = [shape(f"type-{t}", f"zone-{z}", 16_000, 64 * GIB, price=1.0) for t in range(5) for z in range(3)]
    number = np.arange(machines, dtype=np.int64)
    load = machine_batch(
        number, np.full(machines, IDLE, np.uint8), (number % 5 * 3 + number // 5 % 3).astype(np.int32), shapes
    )
    rows = machines // clusters
    row = np.arange(rows, dtype=np.int64)
    pool = [pinned([f"type-{p % 5}"], 1000 + p // 5 * 100) for p in range(100)]
    # 100 profiles times 100 smallest units: 10,000 distinct rows a cluster, one machine each.
    min_unit = np.stack([1000 + row // 100 % 100 * 10, np.full(rows, GIB, np.int64)], axis=1)
    aggregate = np.tile(np.array([[16_000, 64 * GIB]], np.int64), (rows, 1))
    demand = DemandBatch(
        rollups=tuple(
            rollup(f"cluster-{c:03d}", pool, row % 100, CPU_MEMORY, aggregate, min_unit) for c in range(clusters)
        )
    )

    def feeds() -> Iterator[Feed]:
        while True:
            yield Feed()

    facts: dict[str, object] = {"machines": machines, "idle": machines, "clusters": clusters, "needs": machines}
    facts["per_cycle"] = f"after an untimed reset, {machines} bindings emitted"
    return Workload(
        lambda: load,
        demand,
        feeds,
        facts,
        reset=True,
        check=lambda result: (
            None if int((result.actions.kind == ActionKind.BOOTSTRAP).sum()) == machines else "bindings missing"
        ),
    )


def fleet_5m(traffic: str = "churn", scale: int = 1) -> Workload:
    """500 clusters (divided by `scale`), 9,000 bound machines each, a tenth as much again free."""
    clusters = 500 // scale
    mirror, rollups, facts = bound_fleet(
        clusters,
        9_000,
        idle=100_000 // scale,
        speculative=400_000 // scale,
        types=50,
        zones=40,
        profiles=100,
        rows=1000,
    )
    bound = clusters * 9_000
    total = len(mirror.state)
    rng = np.random.default_rng(5)

    def churn(count: int) -> Iterator[Feed]:
        moved = np.empty(0, np.int64)
        lost = np.empty(0, np.int64)
        while True:
            mirror.set(moved[mirror.state[moved] == CONFIGURING], CONFIGURED)
            mirror.set(lost[mirror.state[lost] == FAILED], IDLE)
            fresh = np.unique(rng.integers(0, bound, count // 2))
            fresh = fresh[mirror.state[fresh] == CONFIGURED]
            cut = len(fresh) // 10
            lost, moved = fresh[:cut], fresh[cut:]
            mirror.set(lost, FAILED)
            mirror.set(moved, CONFIGURING)
            yield Feed(mirror.take())

    def nothing() -> Iterator[Feed]:
        while True:
            yield Feed()

    def one_rollup() -> Iterator[Feed]:
        cycle = 0
        while True:
            yield Feed(mirror.take(), DemandBatch(rollups=(nudged(rollups[cycle % clusters], cycle, 0.01),)))
            cycle += 1

    kinds = {
        "churn": (
            partial(churn, max(1, total // 1000)),
            "0.1 % of machines change: bound ones move to Configuring and back, a tenth is lost and replaced",
        ),
        "delta": (partial(churn, 10_000), "10,000 machines change"),
        "none": (nothing, "nothing changed"),
        "rollup": (one_rollup, "one roll-up of 1,000 rows, 1 % different"),
    }
    feeds, words = kinds[traffic]
    closed = traffic != "none"
    return Workload(
        mirror.load,
        DemandBatch(rollups=tuple(rollups)),
        feeds,
        facts | {"per_cycle": words},
        tell=mirror.answer if closed else lambda _result: None,
    )


SHAPES = [
    ShapeSpec(
        "steady-500k",
        steady,
        "500,000 bound machines, 50 clusters, 50,000 needs; a roll-up and 500 machines change",
        "48 ms best, bar 100 ms",
        10.0,
    ),
    ShapeSpec(
        "reprovision-500k",
        reprovision,
        "500,000 idle machines, 500,000 single-unit needs bound in one cycle",
        "817–967 ms",
        100.0,
    ),
    ShapeSpec(
        "fleet-5m",
        fleet_5m,
        "5,000,000 machines, 500 clusters, 500,000 needs, 2,000 classes; 0.1 % change",
        "never run",
        200.0,
    ),
    ShapeSpec("fleet-5m-unchanged", partial(fleet_5m, "none"), "fleet-5m, nothing changed", "never run", 5.0),
    ShapeSpec(
        "fleet-5m-delta-10k", partial(fleet_5m, "delta"), "fleet-5m, a delta of 10,000 machines", "never run", 20.0
    ),
    ShapeSpec(
        "fleet-5m-rollup-1k",
        partial(fleet_5m, "rollup"),
        "fleet-5m, one roll-up of 1,000 rows",
        "never run",
        5.0,
        # Past the idle hold: the 100,000 idle machines were released, and a cycle is its roll-up and nothing else.
        settle=35,
    ),
    *(
        ShapeSpec(
            f"curve-{5000 // scale}k", partial(fleet_5m, "churn", scale), f"fleet-5m divided by {scale}", "never run"
        )
        for scale in (100, 50, 20, 10, 5, 2)
    ),
]
