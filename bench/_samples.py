"""Raw samples summed up: what every benchmark means by p50, p99 and max."""

from __future__ import annotations

from collections.abc import Sequence

_SHARES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


def percentile(values: Sequence[float], share: float, digits: int = 2) -> float:
    """The sample below which that share lies; 0 without samples."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], digits) if ordered else 0.0


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """p50, p99 and the largest."""
    return {name: percentile(values, share, digits) for name, share in _SHARES}
