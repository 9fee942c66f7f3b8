"""What clusters that report placement add to a step's inputs (`docs/engine.md` §10): counted rows, node reports, and
the backoffs, rests and moves the shard keeps. Owns the columns and their shapes; nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bigfleet.engine.batches import Ids
    from bigfleet.engine.results import NeedKey

_NO_DOMAINS: Mapping[int, tuple[tuple[str, int], ...]] = MappingProxyType({})
_NO_TOKENS: Mapping[int, tuple[str, ...]] = MappingProxyType({})


class Counted(Struct, frozen=True):
    """A roll-up's rows as units: row r wants `count[r]` of its min_unit. The maps are sparse, by row."""

    count: NDArray[np.int32]
    running: NDArray[np.int32]
    stranded: NDArray[np.int32]
    mirror_version: int = 0
    domain_units: Mapping[int, tuple[tuple[str, int], ...]] = _NO_DOMAINS
    exclusive: Mapping[int, tuple[str, ...]] = _NO_TOKENS


class Load(Struct, frozen=True):
    """What a node carries, in names: fingerprints (none and not empty: too many), gangs and exclusive tokens."""

    profiles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    exclusive: tuple[str, ...] = ()


class NodeBatch(Struct, frozen=True):
    """Node reports of one cluster, each machine at most once; `load` points at `loads`, closing_since 0 means open."""

    cluster: str
    ids: Ids
    resources: tuple[str, ...]
    ready: NDArray[np.bool_]
    empty: NDArray[np.bool_]
    removable: NDArray[np.bool_]
    pinned: NDArray[np.bool_]
    max_pod_priority: NDArray[np.int32]
    used: NDArray[np.int64]
    allocatable: NDArray[np.int64]
    reclamation_dollars: NDArray[np.float64]
    interruption_dollars: NDArray[np.float64]
    closing_since: NDArray[np.int64]
    mirror_version: NDArray[np.int64]
    load: NDArray[np.int32]
    loads: Sequence[Load]

    def __post_init__(self) -> None:
        count = len(self.ids)
        for name in (
            "ready",
            "empty",
            "removable",
            "pinned",
            "max_pod_priority",
            "reclamation_dollars",
            "interruption_dollars",
            "closing_since",
            "mirror_version",
            "load",
        ):
            if len(getattr(self, name)) != count:
                raise ValueError(f"node batch column {name} has {len(getattr(self, name))} values for {count} ids")
        for name in ("used", "allocatable"):
            if getattr(self, name).shape != (count, len(self.resources)):
                shape = getattr(self, name).shape
                raise ValueError(f"node batch {name} has shape {shape}, not {(count, len(self.resources))}")
        if count and not (0 <= int(self.load.min()) and int(self.load.max()) < len(self.loads)):
            raise ValueError(f"node batch column load points outside its table of {len(self.loads)}")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Backoff:
    """No machine of this kind for one row of the cluster, or for any (`row` None), before `until`."""

    cluster: str
    provider: str
    instance_type: str
    zone: str
    capacity_type: int
    until: int
    row: NeedKey | None = None


class RestKind(IntEnum):
    """What a resting machine is spared."""

    DRAIN = 1
    CLOSE = 2


@dataclass(frozen=True, slots=True)
class Rest:
    """A machine that is not drained voluntarily (DRAIN), or neither closed nor moved (CLOSE), before `until`."""

    machine: str
    kind: RestKind
    until: int


@dataclass(frozen=True, slots=True)
class Move:
    """A journalled intent: `old` machines give way once `new` ("": nothing replaces them) is seen by the cluster."""

    cluster: str
    old: tuple[str, ...]
    new: str
    started: int
    deadline: int
    ended: bool = False
