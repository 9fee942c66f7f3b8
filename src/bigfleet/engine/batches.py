"""What goes into a step: machine deltas, demand deltas and outside conditions, as columns.

Producers (shard, simulator, benchmarks) intern what repeats: a batch carries each distinct shape, stamp, cluster and
profile once and the columns point at them. Column lengths must agree; the values inside are judged record by record
when the step applies them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from bigfleet.model.names import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from bigfleet.engine.placement import Backoff, Counted, Move, NodeBatch, Rest
    from bigfleet.model.profile import Profile
    from bigfleet.model.taint import Taint

REMOVED = 0
NONE = -1
# Up to so many numbers Python looks through them faster.
_FEW = 64
_NOTHING = Resources()


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

    def label(self, key: str) -> str | None:
        """The value a requirement on this key is judged by; the host name is the machine's own, never its shape's."""
        if key == INSTANCE_TYPE_LABEL and self.instance_type:
            return self.instance_type
        if key == ZONE_LABEL and self.zone:
            return self.zone
        return dict(self.labels).get(key) if key != HOSTNAME_LABEL else None

    def node_labels(self) -> dict[str, str]:
        """The labels a node of this shape carries; what the shape has fields for wins over its labels."""
        labels = dict(self.labels)
        if self.instance_type:
            labels[INSTANCE_TYPE_LABEL] = self.instance_type
        if self.zone:
            labels[ZONE_LABEL] = self.zone
        return labels


class Stamp(Struct, frozen=True):
    """For whom a machine was acquired; dollars are bucket upper bounds, pinned is infinity."""

    priority: int = 0
    interruption_dollars: float = 0.0
    reclamation_dollars: float = 0.0
    fingerprint: str = ""
    group: str = ""


class Ids(Struct, frozen=True):
    """Machine ids as one byte arena: id i is `arena[offsets[i]:offsets[i + 1]]`, UTF-8."""

    arena: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Iterable[str]) -> Ids:
        parts = [text.encode() for text in ids]
        # Joined in a bytearray, because kernels take writable columns only.
        return cls(
            np.frombuffer(bytearray().join(parts), np.uint8),
            np.array([0, *accumulate(map(len, parts))], np.int64),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:
        return self.arena[self.offsets[index] : self.offsets[index + 1]].tobytes().decode()


class MachineBatch(Struct, frozen=True):
    """Machines that changed since the last step, each at most once; state `REMOVED` forgets the machine. Until its
    `deadline` (0 or no column: none) a machine under way counts for a cluster that reports placement."""

    ids: Ids
    state: NDArray[np.uint8]
    shape: NDArray[np.int32]
    cluster: NDArray[np.int32]
    stamp: NDArray[np.int32]
    not_before: NDArray[np.int64]
    shapes: Sequence[Shape]
    clusters: Sequence[str] = ()
    stamps: Sequence[Stamp] = ()
    deadline: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        count = len(self.ids)
        for name in ("state", "shape", "cluster", "stamp", "not_before"):
            if len(getattr(self, name)) != count:
                raise ValueError(f"machine batch column {name} has {len(getattr(self, name))} values for {count} ids")
        if self.deadline is not None and len(self.deadline) != count:
            raise ValueError(f"machine batch column deadline has {len(self.deadline)} values for {count} ids")
        _within("shape", self.shape[self.state != REMOVED], 0, len(self.shapes))
        _within("cluster", self.cluster, NONE, len(self.clusters))
        _within("stamp", self.stamp, NONE, len(self.stamps))

    def __len__(self) -> int:
        return len(self.ids)


class Rollup(Struct, frozen=True):
    """One cluster's whole demand: row r wants `aggregate[r]` in machines that each hold `min_unit[r]`. With `counted`
    the cluster reports placement and its rows are units, without they are sums."""

    cluster: str
    profiles: Sequence[Profile]
    groups: Sequence[str]
    resources: tuple[str, ...]
    profile: NDArray[np.int32]
    group: NDArray[np.int32]
    aggregate: NDArray[np.int64]
    min_unit: NDArray[np.int64]
    overhead: Resources = _NOTHING
    counted: Counted | None = None

    def __post_init__(self) -> None:
        count = len(self.profile)
        for name in ("count", "running", "stranded") if self.counted is not None else ():
            values = len(getattr(self.counted, name))
            if values != count:
                raise ValueError(f"roll-up column {name} has {values} values for {count} rows")
        if len(self.group) != count:
            raise ValueError(f"roll-up column group has {len(self.group)} values for {count} rows")
        for name in ("aggregate", "min_unit"):
            if getattr(self, name).shape != (count, len(self.resources)):
                shape = getattr(self, name).shape
                raise ValueError(f"roll-up {name} has shape {shape}, not {(count, len(self.resources))}")
        _within("profile", self.profile, 0, len(self.profiles))
        _within("group", self.group, NONE, len(self.groups))

    def __len__(self) -> int:
        return len(self.profile)


class DemandBatch(Struct, frozen=True):
    """Demand that changed: roll-ups, links (cluster, connected), clusters to forget, clusters whose session began anew,
    (cluster, mirror version) of roll-ups sent again unchanged, node reports; a cluster once in each at most."""

    rollups: Sequence[Rollup] = ()
    links: Sequence[tuple[str, bool]] = ()
    forgotten: Sequence[str] = ()
    streams: Sequence[str] = ()
    confirmed: Sequence[tuple[str, int]] = ()
    reports: Sequence[NodeBatch] = ()


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
    """What the outside allows in this step; breakers, backoffs, rests, moves and evictions (cluster, pods that may be
    evicted now) are the full sets in force."""

    acquire: bool = True
    preempt: bool = True
    reclaim: bool = True
    release: bool = True
    paused: bool = False
    dry_run: bool = False
    breakers: tuple[Breaker, ...] = ()
    backoffs: tuple[Backoff, ...] = ()
    rests: tuple[Rest, ...] = ()
    moves: tuple[Move, ...] = ()
    evictions: tuple[tuple[str, int], ...] = ()


def _within(name: str, column: NDArray[np.int32], least: int, size: int) -> None:
    if not len(column):
        return
    if len(column) <= _FEW:
        numbers = column.tolist()
        fits = least <= min(numbers) and max(numbers) < size
    else:
        fits = least <= int(column.min()) and int(column.max()) < size
    if not fits:
        raise ValueError(f"batch column {name} points outside its table of {size}")
