"""When a failed provider call is tried again, and how long to wait first. Pure: the caller brings clock and dice.

Every call of the contract is idempotent on (machine, target), so a call of unknown fate may be repeated; a fenced,
malformed or refused one may not, because repeating it cannot change the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.provider.client.errors import ProviderError, RateLimited, Refused, Unavailable

# A provider that says "slow down" is given this many times the pause of one that is merely unreachable.
_RATE_LIMIT_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts and pauses, in seconds. The deadline of the call is a budget for all attempts together."""

    attempts: int = 4
    first_pause: float = 0.2
    growth: float = 2.0
    longest_pause: float = 10.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}; give 1 (no retry) or more")
        if self.first_pause < 0 or self.longest_pause < self.first_pause:
            raise ValueError(
                f"pauses run from {self.first_pause} to {self.longest_pause} s; give 0 or more, then no less"
            )
        if self.growth < 1.0:
            raise ValueError(f"growth is {self.growth}; give 1 or more, pauses must not shrink")
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"jitter is {self.jitter}; give a fraction from 0 to 1")


NO_RETRY = RetryPolicy(attempts=1)


def may_retry(error: ProviderError) -> bool:
    """Whether the same call, freshly fenced, could be answered differently."""
    if isinstance(error, Refused):
        return error.code == "ABORTED"
    return isinstance(error, Unavailable | RateLimited)


def pause_before_retry(
    policy: RetryPolicy, error: ProviderError, *, attempt: int, elapsed: float, budget: float, draw: float
) -> float | None:
    """Seconds to wait after failed attempt number `attempt` (from 1), or None to give up.

    `draw` is a random number from [0, 1): it takes up to `jitter` of the pause away, so that a thousand callers that
    failed together do not come back together.
    """
    if attempt >= policy.attempts or not may_retry(error):
        return None
    pause = min(policy.first_pause * policy.growth ** (attempt - 1), policy.longest_pause)
    if isinstance(error, RateLimited):
        pause = min(pause * _RATE_LIMIT_FACTOR, policy.longest_pause)
    pause *= 1.0 - policy.jitter * draw
    return pause if elapsed + pause < budget else None
