"""Every number the engine decides by, in one typed value.

The library default keeps the documented engine behaviour and leaves the rails off; binaries start from
`Policy.production()`. Durations are integer nanoseconds, like every instant the engine sees. Nothing else in the
engine may hold a constant of policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from bigfleet.model.quantity import to_units

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def _refuse(part: object, name: str) -> None:
    """A number that is negative, infinite or none at all would decide things nobody meant."""
    for entry in fields(part):  # type: ignore[arg-type]
        value = getattr(part, entry.name)
        if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}.{entry.name} is {value}; a finite number of 0 or more is accepted")


@dataclass(frozen=True, slots=True)
class VictimWeights:
    """Weights of the victim score; the drain estimate is one constant for all victims."""

    priority: float = 1.0
    drain: float = 0.1
    interruption: float = 0.1
    reclamation: float = 0.1
    drain_estimate_seconds: float = 30.0
    penalty_floor_dollars: float = 0.01

    def __post_init__(self) -> None:
        _refuse(self, "policy victim")


@dataclass(frozen=True, slots=True)
class IdleHold:
    """How long an unclaimed Idle machine is kept before release; 0 never releases that capacity type."""

    on_demand_ns: int = 5 * MINUTE
    spot_ns: int = MINUTE

    def __post_init__(self) -> None:
        _refuse(self, "policy idle_hold")


@dataclass(frozen=True, slots=True)
class RollupGuard:
    """Holds a roll-up that suddenly loses most of a cluster's demand (`docs/engine.md` §2)."""

    enabled: bool = False
    min_rows: int = 10
    retain_fraction: float = 0.1
    consecutive: int = 3
    min_duration_ns: int = 30 * SECOND
    # From so many cores, so many times 4 GiB, or so many of anything else on, one resource that collapses is enough.
    min_amount: int = 10

    def __post_init__(self) -> None:
        _refuse(self, "policy guard")
        if not 0.0 <= self.retain_fraction <= 1.0:
            raise ValueError(f"policy guard.retain_fraction is {self.retain_fraction}; it must be within 0 and 1")

    def suspects(self, before: RollupSize, after: RollupSize) -> bool:
        """Whether a roll-up of size `after` would withdraw nearly all that one of size `before` asked for."""
        if before.rows >= self.min_rows and after.rows < self.retain_fraction * before.rows:
            return True
        return any(
            after.volume.get(name, 0) < self.retain_fraction * amount
            for name, amount in before.volume.items()
            if amount >= self.min_amount * _one(name)
        )

    def confirmed(self, suspected: int, lasted_ns: int) -> bool:
        """Whether so many suspicious roll-ups in a row, over so long, are to be believed."""
        return suspected >= self.consecutive and lasted_ns >= self.min_duration_ns


@dataclass(frozen=True, slots=True)
class RollupSize:
    """What the guard compares of a roll-up: its rows, and the sum of what they ask for by resource."""

    rows: int
    volume: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Placement:
    """How clusters that report placement are served (`docs/engine.md` §10 to §16)."""

    fresh_ns: int = 30 * SECOND
    mode_hold_ns: int = 10 * MINUTE
    open_remainders: int = 64
    riders: int = 64
    refills: int = 16
    refilled: int = 256
    within: float = 0.0
    paid_ratio: float = 0.5
    reopen_ratio: float = 0.8
    risk_limit: float = 4.0
    second_pass_from: int = 8
    gangs_awake: int = 32
    doubt: bool = True
    boot_ns: int = 120 * SECOND
    boot_by_provider: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    empty_min_ns: int = 120 * SECOND
    empty_max_ns: int = 60 * MINUTE
    closed_empty_ns: int = 120 * SECOND
    consolidate: bool = False
    pass_ns: int = 30 * SECOND
    settle_ns: int = 10 * MINUTE
    candidate_ratio: float = 0.8
    candidates: int = 64
    min_saving: float = 0.25
    closing_fraction: float = 0.15
    closing_ns: int = 20 * MINUTE
    evictable: float = 1.0
    hostage_ratio: float = 0.05
    lent_least: int = 0
    lent_share: float = 0.0
    payback_ns: int = 60 * MINUTE
    move_size: int = 6
    move_fraction: float = 0.05
    move_window_ns: int = 5 * MINUTE

    def __post_init__(self) -> None:
        _refuse(self, "policy placement")
        for name in ("open_remainders", "second_pass_from", "candidates", "move_size"):
            if getattr(self, name) <= 0:
                raise ValueError(f"policy placement.{name} is {getattr(self, name)}; it must be greater than 0")
        shares = ("within", "paid_ratio", "reopen_ratio", "candidate_ratio", "min_saving", "closing_fraction")
        for name in (*shares, "move_fraction", "evictable", "hostage_ratio", "lent_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"policy placement.{name} is {getattr(self, name)}; it must be within 0 and 1")
        object.__setattr__(self, "boot_by_provider", MappingProxyType(dict(self.boot_by_provider)))


@dataclass(frozen=True, slots=True)
class Policy:
    """All of it; unknown values are refused at construction, so a step never has to doubt its policy."""

    cycle_ns: int = 10 * SECOND
    park_after_cycles: int = 8
    reprobe_every_cycles: int = 32
    escalate_after_ns: int = MINUTE
    reclaim_grace_seconds: int = 600
    reclaim_hold_ns: int = 0
    reclaim_cap_fraction: float = 0.0
    reclaim_cap_window_ns: int = 10 * SECOND
    max_actions_per_step: int = 0
    idle_hold: IdleHold = IdleHold()
    idle_hold_by_provider: Mapping[str, IdleHold] = field(default_factory=lambda: MappingProxyType({}))
    victim: VictimWeights = VictimWeights()
    guard: RollupGuard = RollupGuard()
    placement: Placement = Placement()
    supply_count_cap: int = 256
    same_candidates: int = 6
    shortfalls_reported: int = 100

    def __post_init__(self) -> None:
        _refuse(self, "policy")
        for name in ("cycle_ns", "park_after_cycles", "reprobe_every_cycles", "reclaim_cap_window_ns"):
            if getattr(self, name) <= 0:
                raise ValueError(f"policy {name} is {getattr(self, name)}; it must be greater than 0")
        if not 0.0 <= self.reclaim_cap_fraction <= 1.0:
            raise ValueError(f"policy reclaim_cap_fraction is {self.reclaim_cap_fraction}; it must be within 0 and 1")
        object.__setattr__(self, "idle_hold_by_provider", MappingProxyType(dict(self.idle_hold_by_provider)))

    @classmethod
    def production(cls) -> Policy:
        """The rails binaries start with: reclaim hold and cap, and the empty roll-up guard."""
        return cls(
            reclaim_hold_ns=120 * SECOND,
            reclaim_cap_fraction=0.05,
            guard=RollupGuard(enabled=True),
            placement=Placement(consolidate=True),
        )

    def with_(self, **changes: object) -> Policy:
        """A copy with some values replaced; the same checks apply."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def idle_hold_ns(self, provider: str, capacity_type: int) -> int:
        """Hold for one provider and capacity type; 0 = never release (bare metal, reserved and unspecified always)."""
        hold = self.idle_hold_by_provider.get(provider, self.idle_hold)
        return {3: hold.on_demand_ns, 4: hold.spot_ns}.get(capacity_type, 0)

    def reclaim_cap(self, configured: int) -> int:
        """How many reclaims one window allows a cluster of that many Configured machines."""
        return max(1, int(self.reclaim_cap_fraction * configured))


def drain_grace_seconds(gap: int) -> int:
    """Grace a victim gets, by how far the preemptor's priority is above it."""
    if gap > 900_000:
        return 10
    if gap > 500_000:
        return 30
    if gap > 100_000:
        return 120
    return 600


def _one(resource: str) -> int:
    """What counts as one of a resource, in model units: a core, 4 GiB of what is counted in bytes, else one."""
    bytewise = to_units(resource, "1Ki", round_up=True) == 1
    return to_units(resource, "4Gi" if bytewise else "1", round_up=True)
