"""What readers see: counts, rails, providers, sessions and the last decision, as one value nobody changes.

Made when somebody asks, between two events, and kept until the next one. Two things look at what lives on: tables of a
step render their rows lazily, and a view of a machine holds its record; both are read before the next event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bigfleet.engine.batches import Breaker, Shape
from bigfleet.engine.results import NeedKey
from bigfleet.shard.contract.events import NodeReported
from bigfleet.shard.contract.shortfalls import Short
from bigfleet.shard.contract.step_result import StepResult
from bigfleet.shard.core.actions.emission import ActionTaken
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.story import StoryLine


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    name: str
    machines: int
    listed: bool
    failures: int
    error: str
    last_complete: int
    doubted: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster: its stream, machines by state, and what they cost per hour."""

    name: str
    connected: bool
    may_acquire: bool
    capabilities: frozenset[str]
    rows: int
    machines: Mapping[int, int]
    dollars_per_hour: float
    waiting_frames: int
    held_rollups: int


@dataclass(frozen=True, slots=True)
class MachineView:
    """One machine with everything the shard knows of it; `record` is the living one."""

    key: str
    provider: str
    id: str
    record: Record
    owned: bool
    not_before: int
    operation: str
    node: NodeReported | None
    story: tuple[StoryLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """A moment of the shard.

    Keys of `states`: (state, capacity type, interruption bucket); of `cells`: (type, zone, capacity type, state).
    """

    cycle: int = 0
    computed_at: int = 0
    started: int = 0
    now: int = 0
    ready: bool = False
    waiting_for: str = ""
    paused: bool = False
    dry_run: bool = False
    epoch: int = 0
    term: int = 0
    ownership_version: int = 0
    machines: int = 0
    states: Mapping[tuple[int, int, int], int] = field(default_factory=dict)
    cells: Mapping[tuple[str, str, int, int], int] = field(default_factory=dict)
    dollars_per_hour: float = 0.0
    demand_rows: Mapping[int, int] = field(default_factory=dict)
    shortfalls: tuple[Short, ...] = ()
    short_total: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)
    # Clusters whose reports contradict each other: nothing more is acquired for them.
    doubted: frozenset[str] = frozenset()
    sessions: int = 0
    queue_depth: int = 0
    inflight: int = 0
    operations: int = 0
    rereads: int = 0
    failed_here: int = 0
    providers: tuple[ProviderHealth, ...] = ()
    breakers: tuple[Breaker, ...] = ()
    # Provider → why nothing is asked of it until somebody resolves it.
    stood_off: Mapping[str, str] = field(default_factory=dict)
    # Provider → why nothing is bought from it until it answers again.
    away: Mapping[str, str] = field(default_factory=dict)
    # Provider → how it limits calls at the moment.
    limiting: Mapping[str, str] = field(default_factory=dict)
    # Needs whose decided machines are at such a provider → provider → how many.
    barred: Mapping[NeedKey, Mapping[str, int]] = field(default_factory=dict)
    # Kinds of machines that are sold out: a shape of each, and when it is tried again.
    sold_out: tuple[tuple[Shape, int], ...] = ()
    # (cluster, fingerprint) → why machines cannot be bootstrapped for it at the moment.
    blocked: Mapping[tuple[str, str], str] = field(default_factory=dict)
    actions: tuple[ActionTaken, ...] = ()
    open_moves: int = 0
    # Of clusters that report placement: nodes closed to new pods, pods that may be evicted, dollars for unused room.
    closing: Mapping[str, int] = field(default_factory=dict)
    evictions: Mapping[str, int] = field(default_factory=dict)
    fragmented: Mapping[str, float] = field(default_factory=dict)
    result: StepResult | None = None
