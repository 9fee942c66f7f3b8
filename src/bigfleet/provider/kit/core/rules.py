"""What a provider can do and how patient it is: the numbers the lifecycle core decides by."""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.provider.kit.core.records import Kind

LONGEST_GRACE = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds a transition may take. A drain gets its grace period on top."""

    create: float = 300.0
    configure: float = 300.0
    drain: float = 600.0
    delete: float = 300.0

    def of(self, kind: Kind) -> float:
        return float(getattr(self, kind))


@dataclass(frozen=True, slots=True)
class Rules:
    """What this provider can do and how patient it is."""

    timeouts: Timeouts = Timeouts()
    can_delete: bool = True
    readiness_gate: bool = False
    require_zone: bool = False
    operation_prefix: str = "op"
    relist_after: float = 60.0
    """Seconds a lost host's slot stays out of the list: long enough for two absences on a shard's 10 s cycle."""
