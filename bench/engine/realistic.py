"""`uber-50k`: the realistic catalogue with its rack gangs, on the inventory the reference published its 4.08 s for.

Machines are pod shape × pods per node of their archetype; gangs that fit one machine fold, GPU training does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.engine.columns import rollup
from bench.engine.loop import CONFIGURED, IDLE, SPECULATIVE, Mirror
from bench.engine.workload import Feed, ShapeSpec, Workload
from bigfleet.engine.batches import NONE, DemandBatch, Rollup, Shape, Stamp
from bigfleet.model.penalty import bucket_for
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
RACK = "topology.bigfleet/rack"
ZONES = ("zone-a", "zone-b", "zone-c")
GPU = "nvidia.com/gpu"
DIMENSIONS = ("cpu", "memory", GPU)
MIB = 1024
RACKS = 12


@dataclass(frozen=True, slots=True)
class Archetype:
    """One row of the catalogue; sizes are (cpu milli, memory KiB, GPUs) of one pod."""

    name: str
    machine_share: float
    pods_per_node: int
    types: tuple[str, ...]
    sizes: tuple[tuple[int, int, int], ...]
    priority: int
    interruption: float
    reclamation: float
    gang: tuple[int, int] | None = None
    hard_spread: bool = False
    price: float = 0.4


CATALOGUE = (
    Archetype(
        "tiny-stateless",
        66.4,
        100,
        ("m6i.large", "m6i.xlarge"),
        ((400, 500 * MIB, 0), (300, 384 * MIB, 0)),
        100,
        32,
        64,
        price=0.1,
    ),
    Archetype(
        "cpu-service",
        11.4,
        100,
        ("m6i.xlarge", "m6i.2xlarge"),
        ((2200, 8500 * MIB, 0), (4200, 16500 * MIB, 0)),
        1000,
        1024,
        8192,
        hard_spread=True,
        price=0.2,
    ),
    Archetype(
        "cpu-batch",
        5.7,
        100,
        ("c6i.4xlarge", "c6i.8xlarge", "n2-standard-32"),
        ((4000, 8192 * MIB, 0), (8000, 16384 * MIB, 0)),
        100,
        64,
        256,
        price=0.7,
    ),
    Archetype(
        "critical-realtime",
        0.95,
        100,
        ("c6i.4xlarge", "m6i.2xlarge"),
        ((4000, 8192 * MIB, 0),),
        1_000_000,
        65536,
        65536,
        hard_spread=True,
        price=0.7,
    ),
    Archetype(
        "memory-cache",
        1.5,
        100,
        ("r6i.xlarge", "r6i.2xlarge"),
        ((2000, 16384 * MIB, 0),),
        1000,
        4096,
        16384,
        gang=(3, 5),
        price=0.25,
    ),
    Archetype(
        "stateful-db",
        1.5,
        100,
        ("r6i.2xlarge", "r6i.4xlarge"),
        ((8000, 32768 * MIB, 0),),
        1000,
        8192,
        32768,
        gang=(3, 5),
        price=0.5,
    ),
    Archetype(
        "gpu-inference",
        5.2,
        8,
        ("a3-highgpu-8g", "a2-highgpu-8g"),
        ((8000, 32768 * MIB, 1),),
        1000,
        4096,
        8192,
        price=20.0,
    ),
    Archetype(
        "gpu-training-small",
        3.1,
        1,
        ("a3-highgpu-8g",),
        ((64_000, 262_144 * MIB, 8),),
        1000,
        16384,
        32768,
        gang=(2, 8),
        price=22.0,
    ),
    Archetype(
        "gpu-training-medium",
        4.2,
        1,
        ("a3-highgpu-8g",),
        ((64_000, 262_144 * MIB, 8),),
        1000,
        32768,
        65536,
        gang=(8, 16),
        price=22.0,
    ),
)


def uber(machines: int = 225_206, clusters: int = 200, needs: int = 42_680) -> Workload:
    rng = np.random.default_rng(50)
    configured = round(machines / 4.2)
    idle = round(machines / 4.2 * 0.2)
    counts = (configured, idle, machines - configured - idle)
    shapes, shape_of, owner, place = fleet_of(counts)
    total = len(shape_of)
    state = np.repeat(np.array([CONFIGURED, IDLE, SPECULATIVE], np.uint8), counts)[:total]
    names = [f"cluster-{c:03d}" for c in range(clusters)]
    # A cluster's machines of an archetype are neighbours, so its gangs find whole racks.
    cluster = np.where(state == CONFIGURED, (place * clusters).astype(np.int32), NONE).astype(np.int32)
    stamps = [Stamp(a.priority, float(a.interruption), float(a.reclamation)) for a in CATALOGUE]
    stamp = np.where(state == CONFIGURED, owner, NONE).astype(np.int32)
    mirror = Mirror(state, shape_of, shapes, cluster, names, stamp, stamps)

    held = np.zeros((clusters, len(CATALOGUE)), np.int64)
    np.add.at(held, (cluster[:configured], owner[:configured]), 1)
    rows = np.full(clusters, needs // clusters)
    rows[: needs - rows.sum()] += 1
    demand = [_Cluster(name, int(rows[c]), held[c], rng) for c, name in enumerate(names)]

    def feeds() -> Iterator[Feed]:
        cycle = 0
        touched = max(1, clusters // 10)
        while True:
            chosen = [(cycle * touched + i) % clusters for i in range(touched)]
            share = needs * 0.01 / touched
            changed = []
            for c in chosen:
                demand[c].change(round(share), rng)
                changed.append(demand[c].rollup())
            yield Feed(mirror.take(), DemandBatch(rollups=tuple(changed)))
            cycle += 1

    facts: dict[str, object] = {
        "machines": total,
        "configured": counts[0],
        "idle": counts[1],
        "speculative": total - counts[0] - counts[1],
        "clusters": clusters,
        "needs": int(rows.sum()),
        "gangs": sum(len(one.gangs) for one in demand),
        "per_cycle": f"1 % of the rows change, in roll-ups of {max(1, clusters // 10)} clusters; closed loop, instant",
    }
    return Workload(
        mirror.load, DemandBatch(rollups=tuple(one.rollup() for one in demand)), feeds, facts, tell=mirror.answer
    )


def fleet_of(counts: tuple[int, int, int]) -> tuple[list[Shape], np.ndarray, np.ndarray, np.ndarray]:
    """Machines of every state by machine share; types, sizes and racks round robin within an archetype.

    Returns shapes and, per machine, shape, archetype and its place within the archetype as a share of 1.
    """
    shapes: list[Shape] = []
    index: dict[tuple[int, int, int, int, int], int] = {}
    shape_of, owner, place = [], [], []
    share = np.array([a.machine_share for a in CATALOGUE])
    for count in counts:
        edges = np.round(np.cumsum(share) / share.sum() * count).astype(int)
        for a, archetype in enumerate(CATALOGUE):
            amount = edges[a] - (edges[a - 1] if a else 0)
            for k in range(amount):
                key = (a, k % len(archetype.types), k // 8 % 3, k % len(archetype.sizes), k // 8 % RACKS)
                if key not in index:
                    index[key] = len(shapes)
                    shapes.append(_shape(archetype, *key[1:]))
                shape_of.append(index[key])
                owner.append(a)
                place.append(k / amount)
    return shapes, np.array(shape_of, np.int32), np.array(owner, np.int32), np.array(place)


def _shape(archetype: Archetype, type_index: int, zone: int, size: int, rack: int) -> Shape:
    cpu, memory, gpu = (amount * archetype.pods_per_node for amount in archetype.sizes[size])
    allocatable = {"cpu": cpu, "memory": memory} | ({GPU: gpu} if gpu else {})
    name = f"{ZONES[zone]}-{archetype.name}-rack-{rack}"
    return Shape(
        "bench",
        archetype.types[type_index],
        ZONES[zone],
        3,
        archetype.price,
        0.0,
        Resources(allocatable),
        ((RACK, name),),
    )


class _Cluster:
    """One cluster's rows: a few plain ones sized to what it holds, the rest gangs."""

    def __init__(self, name: str, rows: int, held: np.ndarray, rng: np.random.Generator) -> None:
        self.name = name
        self.plain: list[tuple[Profile, np.ndarray, np.ndarray]] = []
        self.gangs: list[tuple[Profile, str, np.ndarray, np.ndarray]] = []
        self.serial = 0
        gpu = [a for a in CATALOGUE if a.gang and a.pods_per_node == 1]
        small = [a for a in CATALOGUE if a.gang and a.pods_per_node > 1]
        for index, archetype in enumerate(CATALOGUE):
            if archetype.gang is None:
                for size in archetype.sizes:
                    pods = int(held[index]) * archetype.pods_per_node // len(archetype.sizes)
                    unit = np.array(size, np.int64)
                    self.plain.append((profile_of(archetype), unit * max(1, pods * 98 // 100), unit))
        for archetype in gpu:
            machines = int(held[CATALOGUE.index(archetype)])
            while machines >= archetype.gang[0]:  # type: ignore[index]
                machines -= self._gang(archetype, rng)
        while len(self.plain) + len(self.gangs) < rows:
            self._gang(small[len(self.gangs) % len(small)], rng)
        self.gangs = self.gangs[: rows - len(self.plain)]

    def change(self, count: int, rng: np.random.Generator) -> None:
        """Some gangs end and others of the same archetype begin; one plain row grows or shrinks a little."""
        for _ in range(min(count, len(self.gangs)) - 1):
            place = int(rng.integers(len(self.gangs)))
            profile, _, aggregate, unit = self.gangs[place]
            self.serial += 1
            self.gangs[place] = (profile, f"{RACK}\0job={self.name}-{self.serial},;", aggregate, unit)
        place = int(rng.integers(len(self.plain)))
        profile, aggregate, unit = self.plain[place]
        self.plain[place] = (profile, np.maximum(unit, aggregate + unit * int(rng.integers(-20, 21))), unit)

    def rollup(self) -> Rollup:
        profiles: dict[Profile, int] = {}
        rows = [(p, NONE, a, u) for p, a, u in self.plain] + [(p, g, a, u) for g, (p, _, a, u) in enumerate(self.gangs)]
        column = [profiles.setdefault(row[0], len(profiles)) for row in rows]
        return rollup(
            self.name,
            list(profiles),
            column,
            DIMENSIONS,
            np.stack([row[2] for row in rows]),
            np.stack([row[3] for row in rows]),
            [gang[1] for gang in self.gangs],
            [row[1] for row in rows],
        )

    def _gang(self, archetype: Archetype, rng: np.random.Generator) -> int:
        low, high = archetype.gang  # type: ignore[misc]
        size = int(rng.integers(low, high + 1))
        unit = np.array(archetype.sizes[0], np.int64)
        self.serial += 1
        self.gangs.append((profile_of(archetype), f"{RACK}\0job={self.name}-{self.serial},;", unit * size, unit))
        return size


def profile_of(archetype: Archetype) -> Profile:
    found = _PROFILES.get(archetype.name)
    if found is None:
        reqs = [Requirement(INSTANCE_TYPE, Operator.IN, archetype.types), Requirement(ZONE, Operator.IN, ZONES)]
        if archetype.gang:
            reqs.append(Requirement(RACK, Operator.SAME, ()))
        spread = (Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE),) if archetype.hard_spread else ()
        found = Profile(
            tuple(reqs),
            spread,
            archetype.priority,
            bucket_for(archetype.interruption),
            bucket_for(archetype.reclamation),
        )
        _PROFILES[archetype.name] = found
    return found


_PROFILES: dict[str, Profile] = {}

SHAPES = [
    ShapeSpec(
        "uber-50k",
        uber,
        "225,206 machines, 200 clusters, 42,680 needs of the realistic catalogue, rack gangs; 1 % of demand changes",
        "4.08 s",
        60.0,
        settle=8,
    ),
    ShapeSpec(
        "uber-5k",
        partial(uber, 22_529, 20, 2_580),
        "the same catalogue at a tenth of the fleet: 22,529 machines, 20 clusters, 2,580 needs",
        "0.255 s",
        settle=8,
    ),
]
