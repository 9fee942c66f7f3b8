"""What the rebalancer decides by. Every age and rest is in time, because shards cycle when something happens."""

from __future__ import annotations

from msgspec import Struct

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


class Policy(Struct, frozen=True):
    """Durations are nanoseconds."""

    # A shortfall must be so old before other shards help, and so old before they drain for it.
    after: int = 60 * SECOND
    preempt_after: int = 120 * SECOND
    # A shard that got machines of a kind gives none of that kind away for so long.
    cooldown: int = 10 * MINUTE
    # After machines were adopted the recipient's reports may still call them missing for so long, if it does not tell.
    settle: int = 30 * SECOND
    # A donor that had nothing, or failed, is not asked again for so long.
    rest: int = MINUTE
    # Reports older than this say nothing about today.
    fresh: int = 60 * SECOND
    # The share of its free machines of a kind that a donor keeps.
    margin: float = 0.1
    # Fewer units than this are not worth a transfer.
    min_units: int = 1
    # A donor has so long to let go, and so long when it must drain first.
    release_within: int = 2 * MINUTE
    drain_within: int = 20 * MINUTE
    attempts: int = 8
    retry: int = SECOND
    retry_max: int = 30 * SECOND
    max_moves: int = 256
    slots: bool = True
    # New shards get a share of the zones that hold free machines only.
    initial_slices: bool = True
    preempt: bool = True
