"""What goes into a step: machine deltas, demand deltas and outside conditions, as columns.

Producers (shard, simulator, benchmarks) intern what repeats: a batch carries each distinct shape, stamp, cluster and
profile once and the columns point at them. Column lengths must agree; the values inside are judged record by record
when the step applies them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from bigfleet.model.profile import Profile
    from bigfleet.model.taint import Taint

REMOVED = 0
NONE = -1


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about a machine that outlives its state; `labels` as (key, value) pairs, quantities in model units."""

    provider: str
    instance_type: str
    zone: str
    capacity_type: int
    price: float
    probability: float
    allocatable: Resources
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Stamp:
    """For whom a machine was acquired; dollars are bucket upper bounds, pinned is infinity."""

    priority: int = 0
    interruption_dollars: float = 0.0
    reclamation_dollars: float = 0.0
    fingerprint: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Ids:
    """Machine ids as one byte arena: id i is `arena[offsets[i]:offsets[i + 1]]`, UTF-8."""

    arena: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Iterable[str]) -> Ids:
        parts = [text.encode() for text in ids]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(np.frombuffer(b"".join(parts), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:
        return self.arena[self.offsets[index] : self.offsets[index + 1]].tobytes().decode()


@dataclass(frozen=True, slots=True)
class MachineBatch:
    """Machines that changed since the last step, each at most once; state `REMOVED` forgets the machine."""

    ids: Ids
    state: NDArray[np.uint8]
    shape: NDArray[np.int32]
    cluster: NDArray[np.int32]
    stamp: NDArray[np.int32]
    not_before: NDArray[np.int64]
    shapes: Sequence[Shape]
    clusters: Sequence[str] = ()
    stamps: Sequence[Stamp] = ()

    def __post_init__(self) -> None:
        count = len(self.ids)
        for name in ("state", "shape", "cluster", "stamp", "not_before"):
            if len(getattr(self, name)) != count:
                raise ValueError(f"machine batch column {name} has {len(getattr(self, name))} values for {count} ids")
        _within("shape", self.shape, len(self.shapes), self.state != REMOVED)
        _within("cluster", self.cluster, len(self.clusters), self.cluster != NONE)
        _within("stamp", self.stamp, len(self.stamps), self.stamp != NONE)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Rollup:
    """One cluster's whole demand: row r wants `aggregate[r]` in machines that each hold `min_unit[r]`."""

    cluster: str
    profiles: Sequence[Profile]
    groups: Sequence[str]
    resources: tuple[str, ...]
    profile: NDArray[np.int32]
    group: NDArray[np.int32]
    aggregate: NDArray[np.int64]
    min_unit: NDArray[np.int64]
    overhead: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        count = len(self.profile)
        if len(self.group) != count:
            raise ValueError(f"roll-up column group has {len(self.group)} values for {count} rows")
        for name in ("aggregate", "min_unit"):
            if getattr(self, name).shape != (count, len(self.resources)):
                shape = getattr(self, name).shape
                raise ValueError(f"roll-up {name} has shape {shape}, not {(count, len(self.resources))}")
        _within("profile", self.profile, len(self.profiles), np.ones(count, bool))
        _within("group", self.group, len(self.groups), self.group != NONE)

    def __len__(self) -> int:
        return len(self.profile)


@dataclass(frozen=True, slots=True)
class DemandBatch:
    """Demand that changed: roll-ups, links (cluster, connected), clusters to forget; a cluster once in each at most."""

    rollups: Sequence[Rollup] = ()
    links: Sequence[tuple[str, bool]] = ()
    forgotten: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Breaker:
    """No Create of this kind before `until` (a stocked-out or failing offer)."""

    provider: str
    instance_type: str
    zone: str
    capacity_type: int
    until: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the outside allows in this step; `breakers` is the full set in force."""

    acquire: bool = True
    preempt: bool = True
    reclaim: bool = True
    release: bool = True
    paused: bool = False
    dry_run: bool = False
    breakers: tuple[Breaker, ...] = ()


def _within(name: str, column: NDArray[np.int32], size: int, used: NDArray[np.bool_]) -> None:
    chosen = column[used]
    if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= size):
        raise ValueError(f"batch column {name} points outside its table of {size}")
