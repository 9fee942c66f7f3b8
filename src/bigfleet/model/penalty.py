"""Penalty buckets: dollars rounded up to a power of two, as the wire carries them.

Owns the ordinals 0..27 and both directions of the conversion. Cost arithmetic uses a bucket's upper bound, a deliberate
overestimate; where the lowest bucket is too coarse (a cent is no half dollar, and half a core costs less than the
difference) a finer bound in millionths of a dollar may stand beside it. Nothing here knows what it is used for.
"""

from __future__ import annotations

import math

UNSPECIFIED = 0
ZERO = 1
HALF_DOLLAR = 2
ONE_DOLLAR = 3
LARGEST_FINITE = 26
PINNED = 27
BUCKETS = range(UNSPECIFIED, PINNED + 1)
MICRO = 1_000_000
# Bounds below half a dollar, each half of the one before; what costs less is told as the last.
_FINER = tuple(-(-MICRO // 2 ** (power + 1)) for power in range(1, 7))


def bucket_for(dollars: float) -> int:
    """The smallest bucket whose upper bound holds the amount; above $8,388,608 it is pinned."""
    if math.isnan(dollars):
        raise ValueError("penalty nan is not an amount of dollars; a number or +infinity is accepted")
    if dollars <= 0:
        return ZERO
    if dollars <= 0.5:
        return HALF_DOLLAR
    if dollars > _DOLLARS[LARGEST_FINITE]:
        return PINNED
    fraction, exponent = math.frexp(dollars)
    # dollars = fraction * 2**exponent with fraction in [0.5, 1): an exact power of two belongs one bucket lower.
    power = exponent - 1 if fraction == 0.5 else exponent
    return max(ONE_DOLLAR, ONE_DOLLAR + power)


def bucket_dollars(bucket: int) -> float:
    """The bucket's upper bound in dollars; infinity when pinned."""
    return _DOLLARS[_checked(bucket)]


def bucket_label(bucket: int) -> str:
    """The bucket's name in metrics and messages: `unspecified`, `0`, `0.5`, `1`, …, `8388608`, `pinned`."""
    return _LABELS[_checked(bucket)]


def finer_bound(dollars: float) -> int:
    """In millionths of a dollar, where an amount is held by a tighter bound than its bucket's; 0 where it is not."""
    if dollars <= 0:
        return 0
    return min((bound for bound in _FINER if dollars * MICRO <= bound), default=0)


def told_dollars(bucket: int, microdollars: int) -> float:
    """What a penalty costs at most: its finer bound where one is told, else the bucket's."""
    return microdollars / MICRO if microdollars else bucket_dollars(bucket)


def _checked(bucket: int) -> int:
    if bucket not in BUCKETS:
        raise ValueError(f"penalty bucket {bucket} is unknown; {UNSPECIFIED} to {PINNED} are accepted")
    return bucket


_DOLLARS = (0.0, 0.0, 0.5, *(float(2**power) for power in range(24)), math.inf)
_LABELS = ("unspecified", "0", "0.5", *(str(2**power) for power in range(24)), "pinned")
