"""`consolidate-5k`: one consolidation pass over a cluster of 5,000 nodes that reports placement.

Every timed step has a pass: nothing waits, most nodes carry little for what they cost, one in eight has been closing
for long. 32 instance types in three zones, on demand and on spot, 40 profiles, up to four on a node; one in a
hundred nodes reports anew before each step, drawn after the step before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from bench.engine.columns import machine_batch, number_ids, rollup
from bench.engine.loop import CONFIGURED, IDLE, SPECULATIVE
from bench.engine.measure import CYCLE, START
from bench.engine.workload import Feed, ShapeSpec, Workload
from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch, Shape, Stamp
from bigfleet.engine.engine import StepResult
from bigfleet.engine.placement import Counted, Load, NodeBatch
from bigfleet.engine.policy import Placement, Policy
from bigfleet.engine.results import ActionKind
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources

ZONE = "topology.kubernetes.io/zone"
ZONES = ("zone-a", "zone-b", "zone-c")
RESOURCES = ("cpu", "memory", "pods")
ON_DEMAND, SPOT = 3, 4
CLUSTER = "cluster"
GIB = 2**20
HOUR = 3_600_000_000_000


def consolidate(nodes: int = 5_000, idle: int = 400, speculative: int = 20_000) -> Workload:
    dice = np.random.default_rng(14)
    shapes = _shapes()
    profiles = _profiles()
    state = np.repeat(np.array([CONFIGURED, IDLE, SPECULATIVE], np.uint8), (nodes, idle, speculative))
    shape = dice.integers(0, len(shapes), len(state)).astype(np.int32)
    cluster = np.where(state == CONFIGURED, 0, -1).astype(np.int32)
    room = np.array([[each.allocatable.get(name) for name in RESOURCES] for each in shapes], np.int64)[shape[:nodes]]
    cluster_nodes = _Nodes(room, profiles, dice)

    def load() -> MachineBatch:
        numbers = np.arange(len(state), dtype=np.int64)
        return machine_batch(numbers, state, shape, shapes, cluster, [CLUSTER], cluster, [Stamp()])

    version = [1]

    def feeds() -> Iterator[Feed]:
        while True:
            version[0] += 1
            changed = np.sort(dice.choice(nodes, nodes // 100, replace=False))
            demand = DemandBatch(
                confirmed=((CLUSTER, version[0]),), reports=(cluster_nodes.report(changed, version[0]),)
            )
            yield Feed(demand=demand, conditions=Conditions(evictions=((CLUSTER, 60),)))

    facts: dict[str, object] = {
        "machines": len(state),
        "nodes": nodes,
        "classes": len(shapes),
        "profiles": len(profiles),
        "loads": len(cluster_nodes.loads),
        "per_cycle": f"a pass over {nodes} nodes; {nodes // 100} of them report anew, drawn after the last step",
    }
    everything = cluster_nodes.report(np.arange(nodes), 1)
    return Workload(
        load,
        DemandBatch(rollups=(_rollup(profiles, dice),), reports=(everything,)),
        feeds,
        facts,
        policy=Policy(placement=Placement(consolidate=True, pass_ns=CYCLE, settle_ns=0)),
        check=_check,
    )


def _check(result: StepResult) -> str | None:
    """A pass that closes and moves nothing would be no measure of one."""
    kinds = [action.kind for action in result.actions.rows()]
    if ActionKind.CLOSE not in kinds:
        return "a pass closed nothing"
    return None if len(kinds) > kinds.count(ActionKind.CLOSE) else "a pass moved nothing"


def _shapes() -> list[Shape]:
    """32 types in every zone and both markets; spot costs a third and is interrupted."""
    found = []
    for size in range(8):
        for ratio, dear in ((2, 0.85), (4, 1.0), (8, 1.3), (6, 1.2)):
            cpu = 1 << min(size, 6)
            price = 0.048 * cpu * dear * (1 + 0.01 * size)
            have = {"cpu": 1000 * cpu, "memory": cpu * ratio * GIB, "pods": min(110, 10 + 8 * cpu)}
            for zone in ZONES:
                for market, factor, risk in ((ON_DEMAND, 1.0, 0.0), (SPOT, 0.34, 0.002)):
                    found.append(
                        Shape("bench", f"t{size}-{ratio}", zone, market, price * factor, risk, Resources(have))
                    )
    return found


def _profiles() -> list[Profile]:
    """A quarter of them asks for a zone."""
    return [
        Profile([Requirement(ZONE, Operator.IN, (ZONES[n % 3],))] if n % 4 == 0 else [], [], n, 2 if n % 5 else 0, 0)
        for n in range(40)
    ]


def _rollup(profiles: list[Profile], dice: np.random.Generator):  # type: ignore[no-untyped-def]
    count = np.full(len(profiles), 500, np.int32)
    unit = np.stack(
        [dice.integers(1, 9, len(profiles)) * 250, dice.integers(1, 9, len(profiles)) * GIB // 2], axis=1
    ).astype(np.int64)
    made = rollup(CLUSTER, profiles, np.arange(len(profiles)), RESOURCES[:2], unit * count[:, None], unit)
    return structs.replace(made, counted=Counted(count, count.copy(), np.zeros_like(count), 1))


class _Nodes:
    """What the cluster says of its nodes."""

    def __init__(self, room: NDArray[np.int64], profiles: list[Profile], dice: np.random.Generator) -> None:
        self._room, self._dice = room, dice
        count = len(room)
        self.loads = [
            Load(tuple(sorted(profiles[n].fingerprint for n in dice.choice(len(profiles), size, replace=False))))
            for size in dice.integers(1, 5, count // 2)
        ]
        self._load = dice.integers(0, len(self.loads), count).astype(np.int32)
        self._closing = np.where(dice.random(count) < 0.125, START - HOUR, 0).astype(np.int64)
        self._removable = dice.random(count) < 0.01

    def report(self, numbers: NDArray[np.int64], version: int) -> NodeBatch:
        dice, count = self._dice, len(numbers)
        room = self._room[numbers]
        share = dice.beta(2, 4, (count, 1)) * dice.uniform(0.7, 1.0, (count, 3))
        used = np.maximum((room * share).astype(np.int64), 1)
        return NodeBatch(
            cluster=CLUSTER,
            ids=number_ids(numbers),
            resources=RESOURCES,
            ready=np.ones(count, np.bool_),
            empty=np.zeros(count, np.bool_),
            removable=self._removable[numbers],
            pinned=np.zeros(count, np.bool_),
            max_pod_priority=np.zeros(count, np.int32),
            used=used,
            allocatable=room - room // 50,
            reclamation_dollars=0.005 * used[:, 2],
            interruption_dollars=np.where(self._load[numbers] % 5 == 0, 0.0, 0.5 * used[:, 2]),
            closing_since=self._closing[numbers],
            mirror_version=np.full(count, version, np.int64),
            load=self._load[numbers],
            loads=self.loads,
        )


SHAPES = (
    ShapeSpec(
        "consolidate-5k",
        consolidate,
        "a consolidation pass over a cluster of 5,000 nodes that reports placement",
        "none",
        limit_ms=50.0,
    ),
)
