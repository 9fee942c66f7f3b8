"""Today's arithmetic as a rival: the engine, fed rows without counts through its public interface.

Owns the translation only: live pods become one row per class (a gang: one row with Same on its rack), machines become
records, actions become purchases and returns. A machine that is reclaimed is given back at once: the hold comes before.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from bench.quality.demand import NOBODY
from bench.quality.kinds import UNLIMITED
from bench.quality.world import World
from bigfleet.engine.batches import NONE, DemandBatch, Ids, MachineBatch, Rollup, Shape, Stamp
from bigfleet.engine.engine import Engine
from bigfleet.engine.policy import SECOND, Policy
from bigfleet.engine.results import Action, ActionKind
from bigfleet.model.penalty import bucket_dollars, bucket_for
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources

_SPECULATIVE, _CREATING, _IDLE, _CONFIGURED = 1, 2, 3, 5
_RESERVED, _ON_DEMAND, _SPOT = 2, 3, 4
_NAMES = ("cpu", "memory", "nvidia.com/gpu")
_RACK = "topology.bigfleet/rack"
_START = 1_700_000_000 * SECOND
_SLOTS, _RACKS = 300, 12


class Sums:
    """One shard's engine for every cluster of the world, deciding by sums."""

    def __init__(self, world: World, hold_s: float, name: str = "sums") -> None:
        self.name = name
        self.engine = Engine()
        self.policy = Policy(reclaim_hold_ns=int(hold_s * SECOND))
        self._kind_of: list[int] = []
        self._rack_of: list[int] = []
        self._row_of: dict[int, int] = {}
        self._machine_of: dict[int, int] = {}
        self._creating: set[int] = set()
        self._stamps: dict[int, tuple[int, Stamp]] = {}
        self._profiles: dict[tuple[int, bool], Profile] = {}
        self._shapes = self._slots(world)
        self._last: dict[int, Counter[tuple[int, int]]] = {}
        self._timer = 0
        self._changes: dict[int, int] = dict.fromkeys(range(len(self._kind_of)), _SPECULATIVE)
        for machine, kind in enumerate(self._kind_of):
            if world.kinds.limit[kind] < UNLIMITED:
                self._changes[machine] = _IDLE

    def _slots(self, world: World) -> list[Shape]:
        kinds, shapes = world.kinds, []
        self._shape_of: list[int] = []
        racks = range(_RACKS) if world.racks else [NOBODY]
        for kind in range(len(kinds)):
            limited = kinds.limit[kind] < UNLIMITED
            market = _RESERVED if limited else _SPOT if kinds.spot[kind] else _ON_DEMAND
            have = Resources(_amounts(kinds.capacity[kind]))
            for rack in racks:
                labels = ((_RACK, f"r{rack:03}"),) if rack != NOBODY else ()
                price = float(kinds.price[kind])
                type_ = kinds.names[kind].split("/")[0]
                shapes.append(Shape("p", type_, "a", market, price, float(kinds.probability[kind]), have, labels))
                count = int(kinds.limit[kind]) if limited else world.racks if world.racks else _SLOTS
                for _slot in range(count):
                    self._kind_of.append(kind)
                    self._rack_of.append(rack)
                    self._shape_of.append(len(shapes) - 1)
        return shapes

    def decide(self, world: World) -> None:
        for machine in sorted(self._creating):
            if world.nodes.ready[self._row_of[machine]]:
                self._creating.discard(machine)
                self._changes[machine] = _CONFIGURED
        rollups = self._rollups(world)
        now = _START + int(world.now * SECOND)
        if not rollups and not self._changes and now < self._timer:
            return
        machines = self._batch() if self._changes else None
        self._changes = {}
        result = self.engine.step(machines, DemandBatch(rollups=rollups), self.policy, now)
        self._timer = result.next_timer
        for action in result.actions.rows():
            self._carry_out(world, action)

    def _rollups(self, world: World) -> list[Rollup]:
        trace = world.trace
        live = np.flatnonzero((world.left > 0) & (trace.arrive <= world.now))
        rollups = []
        for cluster in range(trace.clusters):
            mine = live[trace.cluster[live] == cluster]
            rows = Counter(zip(trace.cls[mine].tolist(), trace.gang[mine].tolist(), strict=True))
            if self._last.get(cluster) == rows:
                continue
            self._last[cluster] = rows
            keys = sorted(rows)
            profiles = [self._profile(world, cls, gang != NOBODY) for cls, gang in keys]
            units = np.array([_units(trace.classes.request[cls]) for cls, _ in keys], np.int64).reshape(-1, 3)
            counts = np.array([rows[key] for key in keys], np.int64)
            groups = sorted({f"g{gang}" for _, gang in keys if gang != NOBODY})
            group = [groups.index(f"g{gang}") if gang != NOBODY else NONE for _, gang in keys]
            rollups.append(
                Rollup(
                    f"c{cluster}",
                    profiles,
                    groups,
                    _NAMES,
                    np.arange(len(keys), dtype=np.int32),
                    np.array(group, np.int32),
                    units * counts[:, None],
                    units,
                )
            )
        return rollups

    def _profile(self, world: World, cls: int, gang: bool) -> Profile:
        found = self._profiles.get((cls, gang))
        if found is None:
            classes = world.trace.classes
            same = [Requirement(_RACK, Operator.SAME, ())] if gang else []
            interruption = bucket_for(float(classes.interruption[cls]))
            found = Profile(same, [], 0, interruption, bucket_for(float(classes.reclamation[cls])))
            self._profiles[cls, gang] = found
        return found

    def _batch(self) -> MachineBatch:
        numbers = sorted(self._changes)
        clusters: dict[str, int] = {}
        stamps: dict[Stamp, int] = {}
        cluster, stamp = [], []
        for machine in numbers:
            held = self._stamps.get(machine) if self._changes[machine] in (_CREATING, _CONFIGURED) else None
            cluster.append(NONE if held is None else clusters.setdefault(f"c{held[0]}", len(clusters)))
            stamp.append(NONE if held is None else stamps.setdefault(held[1], len(stamps)))
        return MachineBatch(
            Ids.of(f"m{machine:06}" for machine in numbers),
            np.array([self._changes[machine] for machine in numbers], np.uint8),
            np.array([self._shape_of[machine] for machine in numbers], np.int32),
            np.array(cluster, np.int32),
            np.array(stamp, np.int32),
            np.zeros(len(numbers), np.int64),
            self._shapes,
            list(clusters),
            list(stamps),
        )

    def _carry_out(self, world: World, action: Action) -> None:
        machine = int(action.machine[1:])
        if action.kind in (ActionKind.PROVISION, ActionKind.BOOTSTRAP) and action.need is not None:
            cluster = int(action.cluster[1:])
            row = world.buy(cluster, self._kind_of[machine], None, self._rack_of[machine])
            self._row_of[machine] = row
            self._creating.add(machine)
            self._stamps[machine] = (cluster, _stamp(action))
            self._changes[machine] = _CREATING
        elif action.kind in (ActionKind.RECLAIM, ActionKind.PREEMPT):
            world.give_back(self._row_of.pop(machine))
            self._stamps.pop(machine)
            limited = world.kinds.limit[self._kind_of[machine]] < UNLIMITED
            self._changes[machine] = _IDLE if limited else _SPECULATIVE


def _stamp(action: Action) -> Stamp:
    """The buckets stand in the fingerprint: `p=0|ipb=3|rpb=2|...`."""
    assert action.need is not None
    fields = dict(part.split("=", 1) for part in action.need.fingerprint.split("|")[:3])
    return Stamp(
        int(fields["p"]),
        bucket_dollars(int(fields["ipb"])),
        bucket_dollars(int(fields["rpb"])),
        action.need.fingerprint,
        action.need.group,
    )


def _amounts(units: np.ndarray) -> dict[str, int]:
    return {name: amount for name, amount in zip(_NAMES, _units(units), strict=True) if amount}


def _units(request: np.ndarray) -> list[int]:
    """Milli cores, KiB and devices."""
    return [int(request[0]), int(request[1]) * 1024, int(request[2])]
