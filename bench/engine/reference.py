"""The reference's own benchmark shapes, rebuilt with populated fleets.

The reference timed single phases, several on an empty inventory by accident; ours time whole steps. Each timed step
decides anew: an untimed step with everything closed comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.engine.columns import machine_batch, rollup
from bench.engine.large import BUCKET_8192, GIB, INSTANCE_TYPE, pinned
from bench.engine.loop import CONFIGURED, IDLE, SPECULATIVE
from bench.engine.workload import OPEN, Feed, ShapeSpec, Workload
from bigfleet.engine.batches import NONE, DemandBatch, MachineBatch, Rollup, Shape, Stamp
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources

RACK = "topology.bigfleet/rack"
SAME_RACK = Requirement(RACK, Operator.SAME, ())
GPU = "nvidia.com/gpu"
DIMENSIONS = ("cpu", "memory", GPU)
ZONES = ("zone-a", "zone-b", "zone-c")

# weight, types, sizes (cpu milli, memory KiB, GPUs), priorities, rack gang
ARCHETYPES = (
    ("gpu-training", 5, ("a3-highgpu-8g",), ((0, 0, 8), (0, 0, 16)), (1000,), True),
    ("gpu-inference", 15, ("a3-highgpu-1g", "a2-highgpu-1g"), ((0, 0, 1), (0, 0, 2)), (100, 1000), False),
    (
        "cpu-batch",
        35,
        ("c6i.4xlarge", "c6i.8xlarge", "n2-standard-32"),
        ((4000, 8 * GIB, 0), (8000, 16 * GIB, 0), (16000, 32 * GIB, 0), (32000, 64 * GIB, 0)),
        (100,),
        False,
    ),
    (
        "cpu-service",
        30,
        ("m6i.large", "m6i.xlarge", "m6i.2xlarge"),
        ((2000, 8 * GIB, 0), (4000, 16 * GIB, 0), (8000, 32 * GIB, 0), (16000, 64 * GIB, 0)),
        (1000,),
        False,
    ),
    (
        "memory-db",
        10,
        ("r6i.xlarge", "r6i.2xlarge"),
        ((4000, 32 * GIB, 0), (4000, 64 * GIB, 0), (8000, 128 * GIB, 0)),
        (1000,),
        True,
    ),
    (
        "critical-realtime",
        5,
        ("c6i.4xlarge", "m6i.2xlarge"),
        ((8000, 16 * GIB, 0), (16000, 32 * GIB, 0)),
        (1_000_000,),
        False,
    ),
)


class Machines:
    """Grows a machine batch group by group."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self.clusters: list[str] = []
        self.stamps: list[Stamp] = []
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []

    def shape(
        self,
        instance_type: str,
        size: tuple[int, int, int],
        zone: str = "zone-a",
        rack: str = "",
        price: float = 0.0,
        capacity: int = 1,
    ) -> int:
        allocatable = Resources({name: amount for name, amount in zip(DIMENSIONS, size, strict=True) if amount})
        labels = ((RACK, rack),) if rack else ()
        self.shapes.append(Shape("bench", instance_type, zone, capacity, price, 0.0, allocatable, labels))
        return len(self.shapes) - 1

    def add(self, state: int, shape: np.ndarray, cluster: np.ndarray | int = NONE, stamp: int = NONE) -> None:
        count = len(shape)
        self._parts.append(
            (
                np.full(count, state, np.uint8),
                shape,
                np.broadcast_to(np.int32(cluster), count) if np.isscalar(cluster) else np.asarray(cluster),
                np.full(count, stamp),
            )
        )

    def batch(self) -> MachineBatch:
        state, shape, cluster, stamp = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        return machine_batch(
            np.arange(len(state), dtype=np.int64), state, shape, self.shapes, cluster, self.clusters, stamp, self.stamps
        )


def again(machines: Machines, rollups: list[Rollup], **facts: object) -> Workload:
    """A workload whose timed steps all decide the same thing anew."""
    batch = machines.batch()

    def feeds() -> Iterator[Feed]:
        while True:
            yield Feed(conditions=OPEN)

    facts = {"machines": len(batch), "clusters": len(rollups), "needs": sum(len(one) for one in rollups), **facts}
    facts["per_cycle"] = "everything decided anew after an untimed step with acquisition, preemption and reclaim closed"
    return Workload(lambda: batch, DemandBatch(rollups=tuple(rollups)), feeds, facts, reset=True)


def shard_cycle_steady(machines: int) -> Workload:
    fleet = Machines()
    shapes = [fleet.shape(name, size, zone) for name, size in _FIVE for zone in ZONES]
    fleet.add(IDLE, np.array(shapes, np.int32)[np.arange(machines) % 15])
    pool = [pinned([_FIVE[t][0]], 1000 + p * 1000) for t in range(5) for p in range(10)]
    unit = np.array([size for _, size in _FIVE], np.int64)
    rollups = []
    for c in range(50):
        i = np.arange(1000)
        kind = (c + i) % 5
        low = unit[kind] // 2 + (i[:, None] // 50 * np.array([1, 1, 0]))
        rollups.append(rollup(f"cluster-{c:02d}", pool, kind * 10 + i % 10, DIMENSIONS, unit[kind], low))
    return again(fleet, rollups)


def realistic_50k(*, all_same: bool) -> Workload:
    fleet = Machines()
    for name, weight, types, sizes, _priorities, _gang in ARCHETYPES:
        k = np.arange(60_000 * weight // 100)
        variants = np.array(
            [
                [
                    [
                        fleet.shape(types[v % len(types)], sizes[v % len(sizes)], ZONES[v % 3], f"rack-{name}-{rack}")
                        for rack in range(8)
                    ]
                ]
                for v in range(12)
            ],
            np.int32,
        ).reshape(12, 8)
        fleet.add(IDLE, variants[k % 12, k % 8])
    bands = np.cumsum([a[1] for a in ARCHETYPES])
    rollups = []
    for c in range(50):
        profiles: dict[Profile, int] = {}
        column, units, groups = [], [], []
        for i in range(1000):
            name, _w, types, sizes, priorities, gang = ARCHETYPES[
                int(np.searchsorted(bands, (c * 1000 + i) % 100, side="right"))
            ]
            same = (SAME_RACK,) if gang or all_same else ()
            profile = pinned([types[i % len(types)]], priorities[i % len(priorities)], *same)
            column.append(profiles.setdefault(profile, len(profiles)))
            units.append(sizes[i % len(sizes)])
            groups.append(f"{RACK}\0row={name}-{i},;" if same else "")
        unit = np.array(units, np.int64)
        group = [g if text else NONE for g, text in enumerate(groups)]
        rollups.append(rollup(f"cluster-{c:02d}", list(profiles), column, DIMENSIONS, unit, unit, groups, group))
    return again(fleet, rollups)


def uber5k(*, aggregated: bool) -> Workload:
    fleet = Machines()
    sizes = tuple((2000 * (1 + s), 8 * GIB * (1 + s), 0) for s in range(8))
    shapes = np.array([fleet.shape(f"type-{s}", size, price=1.0) for s, size in enumerate(sizes)], np.int32)
    fleet.clusters = [f"cluster-{c:02d}" for c in range(20)]
    k = np.arange(5000)
    fleet.add(CONFIGURED, shapes[k % 8], k // 250)
    fleet.add(IDLE, shapes[np.arange(1000) % 8])
    fleet.add(SPECULATIVE, shapes[np.arange(12_000) % 8])
    pool = [pinned([f"type-{s}"], 1000) for s in range(8)]
    unit = np.array(sizes, np.int64) // 100
    rollups = []
    for name in fleet.clusters:
        if aggregated:
            rollups.append(rollup(name, pool, np.arange(8), DIMENSIONS, unit * 3125, unit))
        else:
            row = np.arange(12_500)
            low = unit[row % 8] - np.stack([row // 8 % 20, row // 160, np.zeros_like(row)], axis=1)
            rollups.append(rollup(name, pool, row % 8, DIMENSIONS, low, low))
    return again(fleet, rollups)


def bucket_sized(machines: int, needs: int, size: tuple[int, int, int], instance_type: str) -> Workload:
    """One-machine rack gangs of one profile, a cluster each."""
    fleet = Machines()
    shapes = np.array([fleet.shape(instance_type, size, rack=f"rack-{r}") for r in range(8)], np.int32)
    fleet.add(IDLE, shapes[np.arange(machines) % 8])
    profile = pinned([instance_type], 1000, SAME_RACK)
    unit = np.array([size], np.int64)
    rollups = [
        rollup(f"cluster-{c:05d}", [profile], [0], DIMENSIONS, unit, unit, [f"{RACK}\0job={c},;"], [0])
        for c in range(needs)
    ]
    return again(fleet, rollups)


def co_located() -> Workload:
    """Per cluster: tiny and service pods, 95 memcache gangs of 4 and 32 GPU gangs of 5."""
    fleet = Machines()
    tiny, service, memcache, gpu = (400, 500 * 1024, 0), (2200, 8500 * 1024, 0), (4000, 32 * GIB, 0), (64_000, 0, 8)
    kinds = (
        ("tiny", "m6i.large", tiny, 100, 175),
        ("svc", "m6i.xlarge", service, 10, 30),
        ("mc", "r6i.2xlarge", memcache, 10, 30),
        ("gpu", "a3-highgpu-8g", gpu, 1, 15),
    )
    shapes = {
        name: np.array(
            [fleet.shape(kind, tuple(x * times for x in size), rack=f"zone-a-{name}-rack-{r}") for r in range(12)],
            np.int32,
        )  # type: ignore[arg-type]
        for name, kind, size, times, _ in kinds
    }
    fleet.clusters = [f"cluster-{c:02d}" for c in range(20)]
    for c in range(20):
        for name, *_rest, count in kinds:
            fleet.add(CONFIGURED, shapes[name][(c * count + np.arange(count)) // 8 % 12], c)
    three = (shapes["tiny"], shapes["mc"], shapes["gpu"])
    for state, count in ((IDLE, 1000), (SPECULATIVE, 12_000)):
        i = np.arange(count)
        fleet.add(state, np.stack(three)[i % 3, i // 8 % 12])
    tiny_profile, service_profile = pinned(["m6i.large", "m6i.xlarge"], 100), pinned(["m6i.xlarge"], 1000)
    mc_profile, gpu_profile = pinned(["r6i.2xlarge"], 1000, SAME_RACK), pinned(["a3-highgpu-8g"], 1000, SAME_RACK)
    unit = np.array([tiny, service] + [memcache] * 95 + [gpu] * 32, np.int64)
    times = np.array([17_500, 3000] + [4] * 95 + [5] * 32)[:, None]
    groups = [f"{RACK}\0job={g},;" for g in range(127)]
    column = [0, 1] + [2] * 95 + [3] * 32
    rollups = [
        rollup(
            name,
            [tiny_profile, service_profile, mc_profile, gpu_profile],
            column,
            DIMENSIONS,
            unit * times,
            unit,
            groups,
            [NONE, NONE, *range(127)],
        )
        for name in fleet.clusters
    ]
    return again(fleet, rollups, gangs=127 * 20)


def acquirable_totals() -> Workload:
    fleet = Machines()
    shapes = np.array(
        [fleet.shape("r6i.2xlarge", (8000, 64 * GIB, 0), rack=f"rack-{r:02d}") for r in range(30)], np.int32
    )
    fleet.add(SPECULATIVE, shapes[np.arange(12_000) % 30])
    unit = np.array([(8000, 64 * GIB, 0)], np.int64)
    one = rollup(
        "cluster-0",
        [pinned(["r6i.2xlarge"], 1000, SAME_RACK)],
        [0],
        DIMENSIONS,
        unit * 50,
        unit,
        [f"{RACK}\0job=0,;"],
        [0],
    )
    return again(fleet, [one])


def scale_inversions() -> Workload:
    """500,000 machines claimed at priority 100; 100 needs at 1,000,000, five units short each."""
    fleet = Machines()
    types = [f"type-{t}" for t in range(5)]
    shapes = np.array([fleet.shape(name, (16_000, 64 * GIB, 0)) for name in types], np.int32)
    fleet.clusters = [f"cluster-{c:02d}" for c in range(10)]
    fleet.stamps = [Stamp(100, 1.0, 1.0)]
    k = np.arange(500_000)
    fleet.add(CONFIGURED, shapes[k % 5], k // 50_000, 0)
    unit = np.array((16_000, 64 * GIB, 0), np.int64)
    holders = [pinned([name], 100) for name in types]
    rollups = [
        rollup(name, holders, np.arange(5), DIMENSIONS, np.tile(unit * 10_000, (5, 1)), np.tile(unit // 16, (5, 1)))
        for name in fleet.clusters
    ]
    rollups.append(_inverters(types, 1_000_000, unit))
    return again(fleet, rollups)


def no_victims() -> Workload:
    """450,000 machines claimed at 1,000,000; 100 needs at 1,000 must give up at once."""
    fleet = Machines()
    shapes = np.array([fleet.shape("a3-highgpu-8g", (16_000, 64 * GIB, 0))], np.int32)
    fleet.clusters = [f"cluster-{c:02d}" for c in range(50)]
    fleet.stamps = [Stamp(1_000_000, 1.0, 1.0)]
    fleet.add(CONFIGURED, shapes[np.zeros(450_000, int)], np.arange(450_000) // 9000, 0)
    unit = np.array((16_000, 64 * GIB, 0), np.int64)
    holder = pinned(["a3-highgpu-8g"], 1_000_000)
    rollups = [
        rollup(name, [holder], [0], DIMENSIONS, np.array([unit * 9000]), np.array([unit // 16]))
        for name in fleet.clusters
    ]
    rollups.append(_inverters(["a3-highgpu-8g"], 1000, unit))
    return again(fleet, rollups)


def high_demand() -> Workload:
    fleet = Machines()
    shapes = np.array([fleet.shape(f"type-{t}", (1000, 0, 0), capacity=3) for t in range(5)], np.int32)
    fleet.clusters = [f"cluster-{c:02d}" for c in range(50)]
    fleet.stamps = [Stamp(100, 1.0, 1.0)]
    i = np.arange(500_000)
    fleet.add(CONFIGURED, shapes[i % 5], i % 50, 0)
    unit = np.array([(1000, 0, 0)] * 3, np.int64)
    rollups = []
    for c, name in enumerate(fleet.clusters):
        pool = [
            Profile(
                (Requirement(INSTANCE_TYPE, Operator.IN, (f"type-{(c + k) % 5}",)),), (), 1_000_000, BUCKET_8192, 27
            )
            for k in range(3)
        ]
        rollups.append(rollup(name, pool, np.arange(3), DIMENSIONS, unit * 3333, unit))
    return again(fleet, rollups)


def m29() -> Workload:
    fleet = Machines()
    shapes = np.array([fleet.shape("a3-highgpu-8g", (1000, 0, 0))], np.int32)
    fleet.clusters = [f"cluster-{c:02d}" for c in range(50)]
    fleet.stamps = [Stamp(1_000_000, 0.0, 0.0)]
    fleet.add(CONFIGURED, shapes[np.zeros(450_000, int)], np.arange(450_000) // 9000, 0)
    unit = np.array([(1000, 0, 0)], np.int64)
    rollups = [
        rollup(name, [pinned(["a3-highgpu-8g"], 1000)], [0], DIMENSIONS, unit * 10_000, unit) for name in fleet.clusters
    ]
    return again(fleet, rollups)


def _inverters(types: list[str], priority: int, unit: np.ndarray) -> Rollup:
    """100 rows of five units in a cluster that owns nothing; they differ in their smallest unit."""
    row = np.arange(100)
    low = np.tile(unit // 2, (100, 1)) + row[:, None] // len(types) * np.array([1, 0, 0])
    pool = [pinned([name], priority) for name in types]
    return rollup("cluster-new", pool, row % len(types), DIMENSIONS, np.tile(unit * 5, (100, 1)), low)


_FIVE = (
    ("a3-highgpu-8g", (0, 0, 8)),
    ("m6i.large", (2000, 8 * GIB, 0)),
    ("c6i.4xlarge", (16_000, 32 * GIB, 0)),
    ("n2-standard-32", (32_000, 128 * GIB, 0)),
    ("r6i.xlarge", (4000, 32 * GIB, 0)),
)

SHAPES = [
    *(
        ShapeSpec(
            f"ShardCycle_Steady_{label}",
            partial(shard_cycle_steady, count),
            f"{label} idle machines, 50 clusters × 1,000 needs",
            "no figure given",
            settle=1,
        )
        for label, count in (("1K", 1000), ("10K", 10_000), ("50K", 50_000), ("100K", 100_000), ("500K", 500_000))
    ),
    ShapeSpec(
        "Phase1_Realistic_50K",
        partial(realistic_50k, all_same=False),
        "60,000 idle of six archetypes, 50,000 single-unit needs",
        "22 ms on an empty inventory; 8.2 s p99 in the cloud",
        settle=1,
    ),
    ShapeSpec(
        "Phase1_Realistic_50K_AllSame",
        partial(realistic_50k, all_same=True),
        "the same, every need a rack gang",
        "no figure given",
        settle=1,
    ),
    ShapeSpec(
        "Phase1_Uber5K_LateRun",
        partial(uber5k, aggregated=True),
        "18,000 machines, 160 needs of 3,125 units",
        "121 µs on an empty inventory; 1.01 s in the cloud",
        settle=1,
    ),
    ShapeSpec(
        "Phase1_Uber5K_Unaggregated",
        partial(uber5k, aggregated=False),
        "18,000 machines, 250,000 single-unit needs",
        "no figure given",
        settle=1,
    ),
    ShapeSpec(
        "Phase1_Uber50K_BucketSizedBuckets",
        partial(bucket_sized, 100_000, 20_000, (4000, 32 * GIB, 0), "r6i.2xlarge"),
        "100,000 idle in 8 racks, 20,000 one-machine rack gangs",
        "9.41 ms per need",
        settle=1,
    ),
    ShapeSpec(
        "Uber5K_CoLocated",
        co_located,
        "18,000 machines, 2,580 needs of which 2,540 are rack gangs (Phase 1 and 3)",
        "about 100 s cycles once",
        settle=1,
    ),
    ShapeSpec(
        "TakeCoLocated_Repeated_50K",
        partial(bucket_sized, 10_000, 50_000, (4000, 0, 0), "c6i.4xlarge"),
        "10,000 idle, 50,000 one-machine rack gangs, 40,000 fall short",
        "about 50 s before caching, aim 50 ms",
        settle=1,
    ),
    ShapeSpec(
        "AcquirableTotals_Uber5KShape",
        acquirable_totals,
        "12,000 speculative in 30 racks, one gang",
        "no figure given",
        settle=1,
    ),
    ShapeSpec(
        "Phase2_ScaleInversions",
        scale_inversions,
        "500,000 Configured at 100, 100 needs at 1,000,000 short of 5",
        "471 ms (Phase 2 of the 1M run)",
        settle=1,
    ),
    ShapeSpec(
        "Phase2_NoPreemptableVictims",
        no_victims,
        "450,000 Configured at 1,000,000, 100 needs at 1,000",
        "no figure given",
        settle=1,
    ),
    ShapeSpec(
        "Phase3_HighDemand",
        high_demand,
        "500,000 Configured, 50 clusters, two thirds excess",
        "416 ms; target 100 ms",
        settle=1,
    ),
    ShapeSpec("Phase3_M29Shape", m29, "450,000 Configured, all kept", "255 ms; target 30 ms", settle=1),
]
