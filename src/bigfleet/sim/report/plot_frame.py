"""The frame of a plot: axes with round ticks, a legend, named marks, and the values the pointer finds.

Owns where a time and a value lie on the picture. Text only: no scripts, no fonts, no network; colours are classes of
`plots.css`. What is drawn inside comes from `plots`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bigfleet.sim.report.axes import COUNT, Unit, clock, time_step

WIDTH, LEFT, RIGHT = 860, 62, 842
_LETTER, _KEY_ROW, _MARK_ROW, _MARK_ROWS = 6.7, 18, 14, 4


@dataclass(frozen=True, slots=True)
class Mark:
    """Something done to the run at a time, for a while if it has an end."""

    name: str
    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Axes:
    """What a plot is drawn on: sample times in seconds, what is counted, and what was done when."""

    times: Sequence[float]
    label: str
    unit: Unit = COUNT
    marks: Sequence[Mark] = ()
    height: int = 180
    ceiling: float | None = None
    """Where higher values are cut off, so that the others can be read."""


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the legend: a name and the values it took."""

    name: str
    values: str
    colour: str
    line: str = ""
    """Empty for an area, else the classes of the line."""


@dataclass(frozen=True, slots=True)
class Readout:
    """What the pointer finds in a stretch of time."""

    start: float
    end: float
    text: str


class Frame:
    """The picture around the data. `x` and `y` say where to draw."""

    def __init__(self, axes: Axes, top: float, keys: Sequence[Key]) -> None:
        self._axes = axes
        top = top if axes.ceiling is None else min(top, axes.ceiling)
        self.start = axes.times[0]
        self.end = max(axes.times[-1], self.start + 1)
        self._step = axes.unit.step(top) if top > 0 else 1.0
        # A little air above the data, so that a line along the top is seen as one.
        self._ticks = max(1, math.ceil(top * 1.03 / self._step))
        self._marks = [mark for mark in axes.marks if mark.start <= self.end]
        self._legend, used = _legend(keys, 4 + _wide(axes.label) + 24)
        self._labels, rows = _labels(self._marks, self.x, used + 19)
        self._above = used + 14 + _MARK_ROW * rows
        self._below = self._above + axes.height

    def x(self, at: float) -> float:
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return LEFT + (RIGHT - LEFT) * share

    def y(self, value: float) -> float:
        return self._below - self._axes.height * min(1.0, value / (self._step * self._ticks))

    def svg(self, body: Iterable[str], readouts: Iterable[Readout]) -> str:
        """The picture: what is behind the data, the data, and what is in front of them."""
        label = html.escape(self._axes.label)
        return (
            f'<svg class="plot" viewBox="0 0 {WIDTH} {self._below + 42}" role="img" '
            f'aria-label="{label} over time"><text class="unit" x="4" y="14">{label}</text>{self._legend}'
            f"{''.join(self._behind())}{''.join(body)}{''.join(self._in_front())}"
            f"{''.join(map(self._readout, readouts))}</svg>"
        )

    def _behind(self) -> Iterable[str]:
        for number in range(self._ticks + 1):
            value = number * self._step
            y = self.y(value)
            yield f'<path class="grid" d="M{LEFT} {short(y)}H{RIGHT}"/>'
            yield f'<text class="tick end" x="{LEFT - 8}" y="{short(y + 4)}">{self._axes.unit.text(value)}</text>'
        step = time_step(self.end - self.start, 10)
        for number in range(math.ceil(self.start / step), int(self.end // step) + 1):
            x, name = self.x(number * step), clock(number * step)
            middle = min(x, WIDTH - 2 - _wide(name) / 2)
            yield f'<path class="grid" d="M{short(x)} {self._below}v5"/>'
            yield f'<text class="tick mid" x="{short(middle)}" y="{self._below + 18}">{name}</text>'
        yield f'<text class="tick" x="4" y="{self._below + 18}">time</text>'

    def _in_front(self) -> Iterable[str]:
        for mark in self._marks:
            if mark.end is not None:
                yield self._box("while", mark.start, mark.end)
                yield f'<path class="lasts" d="M{short(self.x(mark.start))} {self._above}H{short(self.x(mark.end))}"/>'
            yield f'<path class="mark" d="M{short(self.x(mark.start))} {self._above}V{self._below}"/>'
        yield self._labels

    def _readout(self, each: Readout) -> str:
        when = html.escape(f"{clock(each.start)} – {clock(each.end)}: {each.text}")
        box = self._box("", each.start, each.end)
        return f'<g class="at">{box}<text class="said" x="{LEFT}" y="{self._below + 36}">{when}</text></g>'

    def _box(self, kind: str, start: float, end: float) -> str:
        x = self.x(start)
        named = f' class="{kind}"' if kind else ""
        wide, high = short(self.x(end) - x), self._axes.height
        return f'<rect{named} x="{short(x)}" y="{self._above}" width="{wide}" height="{high}"/>'


def short(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


def _legend(keys: Sequence[Key], left: float) -> tuple[str, int]:
    """Signs with names and values, in rows; and how far down they reach."""
    x, y, parts = left, 14, []
    for key in keys:
        wide = 17 + _wide(f"{key.name} {key.values}") + 14
        if x + wide > RIGHT and x > left:
            x, y = left, y + _KEY_ROW
        sign = f"{y - 4}h12" if key.line else f"{y - 9}h11v10h-11Z"
        parts.append(
            f'<path class="{key.line or "area"} {key.colour}" d="M{short(x)} {sign}"/>'
            f'<text class="key" x="{short(x + 16)}" y="{y}">{html.escape(key.name)} '
            f'<tspan class="tick">{html.escape(key.values)}</tspan></text>'
        )
        x += wide
    return "".join(parts), y


def _labels(marks: Sequence[Mark], x_of: Callable[[float], float], top: int) -> tuple[str, int]:
    """Names above the marks, in as few rows as keep them apart; neighbours of one name are written once."""
    groups: list[tuple[str, float, int]] = []
    for mark in sorted(marks, key=lambda each: (each.start, each.name)):
        x = x_of(mark.start)
        same = [n for n, (name, at, _) in enumerate(groups) if name == mark.name and x - at < _wide(name) + 24]
        if same:
            groups[same[-1]] = (mark.name, groups[same[-1]][1], groups[same[-1]][2] + 1)
        else:
            groups.append((mark.name, x, 1))
    ends: list[float] = []
    parts = []
    for name, x, times in groups:
        text = f"▾ {name}" if times == 1 else f"▾ {name} ×{times}"
        start = max(0.0, min(x - 4, RIGHT - _wide(text)))
        row = next((n for n, end in enumerate(ends) if end <= start), len(ends))
        if row < _MARK_ROWS:
            ends[row : row + 1] = [start + _wide(text) + 6]
            y = top + _MARK_ROW * row
            parts.append(f'<text class="named" x="{short(start)}" y="{y}">{html.escape(text)}</text>')
    return "".join(parts), len(ends)


def _wide(text: str) -> float:
    """About how many pixels a text takes; generous, because fonts differ."""
    return _LETTER * len(text)
