"""Plots as inline SVG: stacked areas, lines and stacked bars over time, with axes, a legend and a table of last values.

Pure text in, text out: no scripts, no fonts, no network. Series are thinned to what a screen can show; peaks survive
because a bucket shows its largest value.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 860, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 34
POINTS = 360

COLOURS = ("#3366cc", "#2a9d5c", "#e0872b", "#8e5bb5", "#c9405b", "#4fa8b8", "#8a8f98", "#b3a125")


@dataclass(frozen=True, slots=True)
class Series:
    """One named row of values; `dashed` for what is wanted, as opposed to what is."""

    name: str
    values: Sequence[float]
    colour: str = ""
    dashed: bool = False


def areas(times: Sequence[float], series: Sequence[Series], unit: str = "") -> str:
    """Stacked: the parts of a whole over time."""
    times, series = _thin(times, series)
    totals = [sum(column) for column in zip(*(each.values for each in series), strict=True)] if series else []
    frame = _Frame(times, max(totals, default=0.0), unit)
    below = [0.0] * len(times)
    body = []
    for number, each in enumerate(series):
        above = [low + value for low, value in zip(below, each.values, strict=True)]
        upper = frame.steps(above)
        lower = list(reversed(frame.steps(below)))
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in upper + lower)
        body.append(f'<polygon points="{points}" fill="{_colour(each, number)}" fill-opacity="0.85"/>')
        below = above
    return frame.svg("".join(body), series)


def lines(times: Sequence[float], series: Sequence[Series], unit: str = "") -> str:
    """Values side by side over time."""
    times, series = _thin(times, series)
    frame = _Frame(times, max((max(each.values, default=0.0) for each in series), default=0.0), unit)
    body = []
    for number, each in enumerate(series):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in frame.steps(each.values))
        dash = ' stroke-dasharray="5 4"' if each.dashed else ""
        body.append(
            f'<polyline points="{points}" fill="none" stroke="{_colour(each, number)}" stroke-width="1.8"{dash}/>'
        )
    return frame.svg("".join(body), series)


def bars(times: Sequence[float], series: Sequence[Series], unit: str = "", buckets: int = 60) -> str:
    """Events per stretch of time, stacked by kind."""
    end = times[-1] if times else 1.0
    width = max(end / buckets, 1e-9)
    sums = [[0.0] * buckets for _ in series]
    for row, each in zip(sums, series, strict=True):
        for at, value in zip(times, each.values, strict=True):
            row[min(buckets - 1, int(at / width))] += value
    totals = [sum(column) for column in zip(*sums, strict=True)] if sums else []
    frame = _Frame([0.0, end], max(totals, default=0.0), unit)
    body = []
    below = [0.0] * buckets
    for number, (row, each) in enumerate(zip(sums, series, strict=True)):
        for place, value in enumerate(row):
            if value:
                x = frame.x(place * width)
                y, y0 = frame.y(below[place] + value), frame.y(below[place])
                wide = max(1.5, frame.x((place + 1) * width) - x - 1)
                body.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{y0 - y:.1f}" '
                    f'fill="{_colour(each, number)}"/>'
                )
                below[place] += value
    return frame.svg("".join(body), series)


class _Frame:
    """Axes: where a time and a value lie on the picture."""

    def __init__(self, times: Sequence[float], top: float, unit: str) -> None:
        self._times = list(times)
        self._start = times[0] if times else 0.0
        self._end = max(times[-1] if times else 1.0, self._start + 1e-9)
        self._step = _nice(top / 4) if top > 0 else 1.0
        self._top = max(self._step * math.ceil(top / self._step - 1e-9), self._step)
        self._unit = unit

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - self._start) / (self._end - self._start)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self._top

    def steps(self, values: Sequence[float]) -> list[tuple[float, float]]:
        """A value holds until the next one; stretches without a change are two points."""
        points: list[tuple[float, float]] = []
        last = len(values) - 1
        for place, (at, value) in enumerate(zip(self._times, values, strict=True)):
            x, y = self.x(at), self.y(value)
            if points and y != points[-1][1]:
                points += [(x, points[-1][1]), (x, y)]
            elif not points or place == last:
                points.append((x, y))
        return points

    def svg(self, body: str, series: Sequence[Series]) -> str:
        grid = []
        value = 0.0
        while value <= self._top * 1.0001:
            y = self.y(value)
            grid.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            grid.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>')
            value += self._step
        for at in _time_ticks(self._start, self._end):
            x = self.x(at)
            grid.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
            grid.append(
                f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_clock(at)}</text>'
            )
        unit = f'<text class="tick" x="{LEFT}" y="{TOP - 3}">{html.escape(self._unit)}</text>' if self._unit else ""
        legend = "".join(
            f'<span class="key"><i style="background:{_colour(each, number)}'
            f'{";opacity:.55" if each.dashed else ""}"></i>{html.escape(each.name)}</span>'
            for number, each in enumerate(series)
        )
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(grid)}{body}{unit}</svg>'
            f'<div class="legend">{legend}</div>'
        )


def _thin(times: Sequence[float], series: Sequence[Series]) -> tuple[list[float], list[Series]]:
    if len(times) <= POINTS:
        return list(times), list(series)
    size = -(-len(times) // POINTS)
    starts = range(0, len(times), size)
    return (
        [times[start] for start in starts],
        [
            Series(each.name, [max(each.values[start : start + size]) for start in starts], each.colour, each.dashed)
            for each in series
        ],
    )


def _colour(each: Series, number: int) -> str:
    return each.colour or COLOURS[number % len(COLOURS)]


def _nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, not below the given step."""
    power = 10.0 ** math.floor(math.log10(step))
    for factor in (1, 2, 5, 10):
        if factor * power >= step - 1e-12:
            return factor * power
    return 10 * power


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if value >= 10_000:
        return f"{value / 1_000:g}k"
    return f"{value:g}"


def _time_ticks(start: float, end: float) -> list[float]:
    for step in (10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 7 * 86400):
        if (end - start) / step <= 10:
            break
    return [tick * step for tick in range(math.ceil(start / step), int(end // step) + 1)]


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole >= 86400 and whole % 86400 == 0:
        return f"{whole // 86400}d"
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}" if whole % 3600 else f"{whole // 3600}h"
    return f"{whole // 60}m" if whole % 60 == 0 and whole else (f"{whole}s" if whole else "0")
