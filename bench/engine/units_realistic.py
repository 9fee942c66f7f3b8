"""`units-uber-50k`: the realistic catalogue with its rack gangs as counted rows of clusters that report placement.

Gangs end and begin with sizes drawn anew. What the engine binds is Ready at its cluster's next roll-up, and nodes of
gangs that ended are reported empty, so that the fleet goes round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from bench.engine.columns import numbers_of, rollup
from bench.engine.loop import CONFIGURED, IDLE, SPECULATIVE, Mirror
from bench.engine.realistic import CATALOGUE, DIMENSIONS, RACK, fleet_of, profile_of
from bench.engine.units import reports
from bench.engine.workload import Feed, ShapeSpec, Workload
from bigfleet.engine.batches import NONE, DemandBatch, Rollup, Stamp
from bigfleet.engine.engine import StepResult
from bigfleet.engine.placement import Counted, NodeBatch
from bigfleet.engine.results import ActionKind

_BINDS = (ActionKind.BOOTSTRAP, ActionKind.PROVISION)


class _Rows:
    """One cluster's rows, each `[archetype, size of a unit, units, of them stranded, group]`."""

    def __init__(self, name: str, rows: int, held: NDArray[np.int64], dice: np.random.Generator) -> None:
        self.name, self.serial = name, 0
        self.rows: list[list[Any]] = []
        for number, archetype in enumerate(CATALOGUE):
            pods = int(held[number]) * archetype.pods_per_node
            for size in archetype.sizes if archetype.gang is None else ():
                self.rows.append([archetype, np.array(size, np.int64), max(1, pods // len(archetype.sizes)), 0, ""])
            while archetype.gang is not None and pods >= archetype.gang[0] and archetype.pods_per_node == 1:
                self.rows.append(self._gang(archetype, dice))
                pods -= self.rows[-1][2]
        small = [each for each in CATALOGUE if each.gang and each.pods_per_node > 1]
        while len(self.rows) < rows:
            self.rows.append(self._gang(small[len(self.rows) % len(small)], dice))
        self.rows = self.rows[:rows]
        for row in self.rows:
            row[3] = 0

    def _gang(self, archetype: Any, dice: np.random.Generator) -> list[Any]:
        self.serial += 1
        size = int(dice.integers(archetype.gang[0], archetype.gang[1] + 1))
        group = f"{RACK}\0job={self.name}-{self.serial},;"
        return [archetype, np.array(archetype.sizes[0], np.int64), size, size, group]

    def change(self, count: int, dice: np.random.Generator) -> list[tuple[Any, int]]:
        """Gangs end and others of another size begin; a plain row has some more or fewer. Returns what ended."""
        ended = []
        for row in self.rows:
            row[3] = 0
        gangs = [place for place, row in enumerate(self.rows) if row[4]]
        for place in dice.choice(gangs, min(count, len(gangs)) - 1, replace=False).tolist():
            ended.append((self.rows[place][0], self.rows[place][2] // self.rows[place][0].pods_per_node))
            self.rows[place] = self._gang(self.rows[place][0], dice)
        plain = next(row for row in self.rows if not row[4])
        more = int(dice.integers(-20, 21))
        plain[2], plain[3] = max(1, plain[2] + more), max(0, more)
        return ended

    def rollup(self, version: int) -> Rollup:
        profiles: dict[Any, int] = {}
        column = [profiles.setdefault(profile_of(row[0]), len(profiles)) for row in self.rows]
        groups = [row[4] for row in self.rows if row[4]]
        at = {group: place for place, group in enumerate(groups)}
        units = np.stack([row[1] for row in self.rows])
        count = np.array([row[2] for row in self.rows], np.int32)
        stranded = np.array([row[3] for row in self.rows], np.int32)
        made = rollup(
            self.name, list(profiles), column, DIMENSIONS, units * count[:, None].astype(np.int64), units, groups,
            [at[row[4]] if row[4] else NONE for row in self.rows],
        )  # fmt: skip
        return structs.replace(made, counted=Counted(count, count - stranded, stranded, version))


def uber(machines: int = 225_206, clusters: int = 200, needs: int = 42_680) -> Workload:
    dice = np.random.default_rng(51)
    configured, idle = round(machines / 4.2), round(machines / 4.2 * 0.2)
    counts = (configured, idle, machines - configured - idle)
    shapes, shape_of, owner, place = fleet_of(counts)
    # Nodes are full, but for those of small gangs, which have a pod or two: what nodes use is what rows say runs.
    room = np.array([[shape.allocatable.get(name) for name in DIMENSIONS] for shape in shapes], np.int64)
    pods = np.array([a.pods_per_node if a.gang and a.pods_per_node > 1 else 1 for a in CATALOGUE], np.int64)
    used_by = room[:, None, :] // pods[None, :, None]
    state = np.repeat(np.array([CONFIGURED, IDLE, SPECULATIVE], np.uint8), counts)[: len(shape_of)]
    names = [f"cluster-{c:03d}" for c in range(clusters)]
    cluster = np.where(state == CONFIGURED, (place * clusters).astype(np.int32), NONE).astype(np.int32)
    stamps = [Stamp(a.priority, float(a.interruption), float(a.reclamation)) for a in CATALOGUE]
    mirror = Mirror(
        state, shape_of, shapes, cluster, names, np.where(state == CONFIGURED, owner, NONE).astype(np.int32), stamps
    )
    held = np.zeros((clusters, len(CATALOGUE)), np.int64)
    np.add.at(held, (cluster[:configured], owner[:configured]), 1)
    rows = np.full(clusters, needs // clusters)
    rows[: needs - rows.sum()] += 1
    demand = [_Rows(name, int(rows[c]), held[c], dice) for c, name in enumerate(names)]
    busy = [set(np.nonzero(cluster == c)[0].tolist()) for c in range(clusters)]
    bound: list[list[int]] = [[] for _ in names]

    def told(c: int, numbers: list[int], full: bool, version: int) -> NodeBatch:
        which = np.array(sorted(numbers), np.int64)
        used = used_by[shape_of[which], owner[which]] if full else np.zeros((len(which), len(DIMENSIONS)), np.int64)
        return reports(names[c], which, used, version, DIMENSIONS, empty=not full)

    def answer(result: StepResult) -> None:
        mirror.answer(result)
        for action in result.actions.rows():
            number = int(numbers_of([action.machine])[0])
            if action.kind in _BINDS:
                bound[names.index(action.cluster)].append(number)
            else:
                for each in busy:
                    each.discard(number)

    def feeds() -> Iterator[Feed]:
        version, touched = 1, max(1, clusters // 10)
        while True:
            version += 1
            chosen = [(version * touched + i) % clusters for i in range(touched)]
            said: list[NodeBatch] = []
            changed = []
            for c in chosen:
                ended = demand[c].change(round(needs * 0.01 / touched), dice)
                if bound[c]:
                    said.append(told(c, bound[c], True, version))
                    busy[c].update(bound[c])
                    bound[c] = []
                freed: list[int] = []
                for archetype, size in ended:
                    mine = [n for n in busy[c] if CATALOGUE[owner[n]] is archetype and n not in freed]
                    freed += mine[:size]
                busy[c].difference_update(freed)
                if freed:
                    said.append(told(c, freed, False, version))
                changed.append(demand[c].rollup(version))
            others = tuple((name, version) for c, name in enumerate(names) if c not in chosen)
            yield Feed(mirror.take(), DemandBatch(rollups=tuple(changed), confirmed=others, reports=tuple(said)))

    return Workload(
        mirror.load,
        DemandBatch(
            rollups=tuple(one.rollup(1) for one in demand),
            reports=tuple(told(c, list(busy[c]), True, 1) for c in range(clusters) if busy[c]),
        ),
        feeds,
        {
            "machines": len(shape_of),
            "clusters": clusters,
            "needs": sum(row[2] for one in demand for row in one.rows),
            "entries": int(rows.sum()),
            "gangs": sum(bool(row[4]) for one in demand for row in one.rows),
            "per_cycle": f"1 % of the rows change, gangs with sizes drawn anew, in roll-ups of "
            f"{max(1, clusters // 10)} clusters with the reports of their nodes; closed loop, instant",
        },
        tell=answer,
        check=lambda result: None if len(result.actions) else "nothing was bound",
    )


SHAPES = (
    ShapeSpec(
        "units-uber-50k",
        uber,
        "225,206 machines, 200 clusters that report placement, 42,680 counted rows with rack gangs; 1 % changes",
        "none",
        limit_ms=40.0,
        settle=8,
    ),
)
