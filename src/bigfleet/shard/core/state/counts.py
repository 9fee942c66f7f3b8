"""How many machines a shard has, by state, kind and cluster, and what they cost.

Machines change several times between two looks at these numbers, and most of a wave change alike: a change is entered
once, from what was counted before to what is so now, and equal ones are entered together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from bigfleet.engine.batches import Shape, Stamp
from bigfleet.model.billing import is_billed
from bigfleet.model.machine import MachineState
from bigfleet.model.penalty import MICRO, bucket_for
from bigfleet.model.resources import Resources

_COMPACT_AT = 4096

# What a machine is counted by: state, cluster, interned shape, interned stamp, host.
Standing = tuple[MachineState, str, Shape, Stamp, str]
Change = tuple[Standing | None, Standing | None]


_FREE = (MachineState.IDLE, MachineState.SPECULATIVE)


class FreeKind(NamedTuple):
    """What a free machine is to somebody who looks for one."""

    provider: str
    instance_type: str
    zone: str
    capacity_type: int
    state: int
    price: float
    probability: float
    allocatable: Resources


def free_kind(shape: Shape, state: int) -> FreeKind:
    what = (shape.provider, shape.instance_type, shape.zone, shape.capacity_type)
    return FreeKind(*what, int(state), shape.price, shape.probability, shape.allocatable)


class Counts:
    """Sums over the machines a shard owns."""

    def __init__(self) -> None:
        # Keys: (state, capacity type, interruption bucket); (type, zone, capacity type, state); (cluster, state);
        # cluster, counting millionths of a dollar per hour; kinds of free machines, as others would ask for them.
        self.states: Counter[tuple[int, int, int]] = Counter()
        self.cells: Counter[tuple[str, str, int, int]] = Counter()
        self.clusters: Counter[tuple[str, int]] = Counter()
        self.dollars: Counter[str] = Counter()
        self.free: Counter[FreeKind] = Counter()
        # (shape, state) of free machines, the shape by its identity: they are interned, and hashing one is dear.
        self._shapes: dict[tuple[int, int], tuple[Shape, int]] = {}
        self._limit = _COMPACT_AT

    def free_shapes(self) -> dict[int, list[Shape]]:
        """The shapes there are free machines of, by state."""
        found: dict[int, list[Shape]] = {}
        for (_, state), (shape, _) in self._shapes.items():
            found.setdefault(state, []).append(shape)
        return found

    def free_of(self, shape: Shape, state: int) -> int:
        """How many free machines there are of an interned shape."""
        return self._shapes.get((id(shape), state), (shape, 0))[1]

    def enter(self, changes: Iterable[Change]) -> None:
        """Machines that were counted as the first are the second now; None is a machine that does not count."""
        sums: dict[tuple[MachineState, str, int, int, bool], int] = {}
        one: dict[tuple[MachineState, str, int, int, bool], Standing] = {}
        for pair in changes:
            sign = -1
            for standing in pair:
                if standing is not None:
                    state, cluster, shape, stamp, host = standing
                    alike = (state, cluster, id(shape), id(stamp), host != "")
                    sums[alike] = sums.get(alike, 0) + sign
                    one[alike] = standing
                sign = 1
        for alike, number in sums.items():
            if number:
                self._add(one[alike], number)

    def _add(self, standing: Standing, number: int) -> None:
        state, cluster, shape, stamp, host = standing
        kind = shape.capacity_type
        self.states[state, kind, bucket_for(stamp.interruption_dollars)] += number
        self.cells[shape.instance_type, shape.zone, kind, state] += number
        if state in _FREE:
            self.free[free_kind(shape, state)] += number
            self._count_shape(shape, int(state), number)
        if cluster:
            self.clusters[cluster, state] += number
        if is_billed(kind, has_host=host != ""):
            self.dollars[cluster] += number * round(shape.price * MICRO)

    def _count_shape(self, shape: Shape, state: int, number: int) -> None:
        key = (id(shape), state)
        count = number + (self._shapes[key][1] if key in self._shapes else 0)
        if count:
            self._shapes[key] = (shape, count)
        else:
            del self._shapes[key]

    def compact(self) -> None:
        """Drop what is no longer there, once it may be much."""
        counts: tuple[Counter[Any], ...] = (self.states, self.cells, self.clusters, self.dollars, self.free)
        if sum(map(len, counts)) > self._limit:
            for count in counts:
                for key in [key for key, number in count.items() if not number]:
                    del count[key]
            self._limit = max(_COMPACT_AT, 2 * sum(map(len, counts)))
