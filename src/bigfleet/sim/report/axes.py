"""How plots and reports count: ticks a reader would choose, and times, dollars and counts as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIME_STEPS = (
    1,
    2,
    5,
    10,
    15,
    30,
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
)


@dataclass(frozen=True, slots=True)
class Unit:
    """How far apart ticks are so that about four reach a value, and how a value is written."""

    step: Callable[[float], float]
    text: Callable[[float], str]


def time_step(span: float, ticks: int) -> float:
    """The shortest round stretch of time of which no more than so many fit into a span of seconds."""
    for step in _TIME_STEPS:
        if span / step <= ticks:
            return step
    return _DAY * math.ceil(_nice(span / ticks / _DAY))


def clock(seconds: float) -> str:
    """`0`, `2.5s`, `1m 26s`, `1h 30m`, `2d 6h`: the two largest units."""
    if 0 < seconds < 10 and round(seconds, 1) % 1:
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts = []
    for size, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m"), (1, "s")):
        parts.append((left // size, letter))
        left %= size
    first = next((place for place, (number, _) in enumerate(parts) if number), None)
    if first is None:
        return "0"
    return " ".join(f"{number}{letter}" for number, letter in parts[first : first + 2] if number)


def dollars(value: float) -> str:
    """`$0`, `$0.20`, `$12.50`, `$1,234`; cents only where they matter."""
    if value < 0:
        return f"-{dollars(-value)}"
    if value == round(value) or value >= 1000:
        return f"${value:,.0f}"
    return "$" + max(f"{value:.2f}", f"{value:.2g}" if value < 1 else "", key=len)


def count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _nice(step: float, finest: float = 0.0) -> float:
    """1, 2, 2.5 or 5 times a power of ten, not below the given step, and a multiple of the finest."""
    power = 10.0 ** math.floor(math.log10(step))
    rounds = [factor * power for factor in (1, 2, 2.5, 5, 10)]
    return next(each for each in rounds if each >= step - 1e-12 and not (finest and each % finest))


COUNT = Unit(lambda top: _nice(max(1.0, top / 4), finest=1.0), count)
DOLLARS = Unit(lambda top: _nice(top / 4), dollars)
SECONDS = Unit(lambda top: time_step(top, 5), clock)
