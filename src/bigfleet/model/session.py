"""How roll-ups and drains end, in the words that operator and shard have for it. Both sides read this one list."""

from __future__ import annotations

from enum import StrEnum


class AckOutcome(StrEnum):
    """What became of a roll-up; a shard that keeps to the base contract does not say."""

    UNSAID = ""
    APPLIED = "applied"
    HELD = "held"
    REJECTED = "rejected"


class DrainOutcome(StrEnum):
    """How an operator ended its part of a drain."""

    DRAINED = "drained"
    GRACE_EXPIRED = "grace_expired"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"
