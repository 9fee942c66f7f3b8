"""Plots over time as inline SVG: stacked areas, lines and stacked bars.

Every drawn point is a sample that was taken: long series are thinned by leaving samples out, never by mixing them, and
the largest and smallest value of each series in each stretch of time stay. Steps are drawn as steps.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bigfleet.sim.report.plot_frame import Axes, Frame, Key, Readout, short

STRETCHES = 240
"""About three pixels each; what happens within one is drawn as its extremes."""
COLUMNS = 78
"""Places where the pointer finds values."""


@dataclass(frozen=True, slots=True)
class Series:
    """One named row of values; `dashed` for what might have been, as opposed to what is."""

    name: str
    values: Sequence[float]
    colour: str
    dashed: bool = False


def areas(axes: Axes, parts: Sequence[Series], over: Sequence[Series] = ()) -> str:
    """The parts of a whole over time, stacked from the bottom; `over` are lines in front of them."""
    levels = _stack([each.values for each in parts], len(axes.times))
    rows = [levels[-1], *(each.values for each in (*parts, *over))]
    frame = Frame(axes, max(map(max, rows)), [*_keys(axes, parts), *_keys(axes, over, lines=True)])
    kept = _kept(rows)
    body = []
    for each, lower, upper in zip(parts, levels, levels[1:], strict=False):
        outline = _forth(frame, axes.times, upper, kept) + _back(frame, axes.times, lower, kept)
        body.append(f'<path class="area {each.colour}" d="M{outline}Z"/>')
    body += [_line(each, _forth(frame, axes.times, each.values, kept)) for each in over]
    return frame.svg(body, _readouts(frame, axes, [*parts, *over]))


def lines(axes: Axes, series: Sequence[Series], ramps: bool = False) -> str:
    """Values side by side over time; one with fewer values than times ends early.

    `ramps` are for what grows steadily from sample to sample.
    """
    frame = Frame(axes, max(max(each.values) for each in series), _keys(axes, series, lines=True))
    kept = _kept([each.values for each in series])
    draw = _slope if ramps else _forth
    body = []
    for each in series:
        known = kept[: bisect_left(kept, len(each.values))]
        body.append(_line(each, draw(frame, axes.times, each.values, known)))
    return frame.svg(body, _readouts(frame, axes, series))


def bars(axes: Axes, kinds: Sequence[Series], width: float) -> str:
    """Events per stretch of `width` seconds, stacked by kind.

    A sample counts what happened since the one before it; it is drawn at its own time, so never before its cause.
    """
    places = max(1, math.ceil(axes.times[-1] / width))
    sums = [[0.0] * places for _ in kinds]
    for row, each in zip(sums, kinds, strict=True):
        for at, value in zip(axes.times, each.values, strict=True):
            row[min(places - 1, int(at / width))] += value
    levels = _stack(sums, places)
    text = axes.unit.text
    keys = [Key(each.name, f"{text(sum(row))} in all", each.colour) for each, row in zip(kinds, sums, strict=True)]
    frame = Frame(axes, max(levels[-1]), keys)
    body, readouts = [], []
    for place in range(places):
        start, end = place * width, min((place + 1) * width, frame.end)
        left, right = short(frame.x(start)), short(max(frame.x(start) + 1, frame.x(end) - 1))
        for each, lower, upper in zip(kinds, levels, levels[1:], strict=False):
            if upper[place] > lower[place]:
                low, high = short(frame.y(lower[place])), short(frame.y(upper[place]))
                body.append(f'<path class="area {each.colour}" d="M{left} {low}V{high}H{right}V{low}Z"/>')
        if said := [f"{each.name} {text(row[place])}" for each, row in zip(kinds, sums, strict=True) if row[place]]:
            readouts.append(Readout(start, end, " · ".join(said)))
    return frame.svg(body, readouts)


def _keys(axes: Axes, series: Sequence[Series], lines: bool = False) -> list[Key]:
    return [
        Key(each.name, _range(each.values, axes.unit.text), each.colour, _kind(each) if lines else "")
        for each in series
    ]


def _stack(rows: Sequence[Sequence[float]], length: int) -> list[list[float]]:
    """Running sums, from a row of zeros up."""
    levels = [[0.0] * length]
    for row in rows:
        levels.append([below + value for below, value in zip(levels[-1], row, strict=True)])
    return levels


def _kept(rows: Sequence[Sequence[float]]) -> list[int]:
    """Which samples are drawn: all, or the first and the extremes of each stretch, and the last."""
    length = max(map(len, rows))
    if length <= 2 * STRETCHES:
        return list(range(length))
    size = -(-length // STRETCHES)
    kept = set()
    for start in range(0, length, size):
        kept.add(start)
        for row in rows:
            if stretch := range(start, min(start + size, len(row))):
                kept |= {max(stretch, key=row.__getitem__), min(stretch, key=row.__getitem__)}
    return sorted(kept | {len(row) - 1 for row in rows})


def _forth(frame: Frame, times: Sequence[float], values: Sequence[float], kept: Sequence[int]) -> str:
    """From left to right: a value holds until the next one, and only changes are drawn."""
    y = short(frame.y(values[kept[0]]))
    path = [f"{short(frame.x(times[kept[0]]))} {y}"]
    for place in kept[1:]:
        if (level := short(frame.y(values[place]))) != y:
            path.append(f"H{short(frame.x(times[place]))}V{level}")
            y = level
    return "".join([*path, f"H{short(frame.x(times[kept[-1]]))}"])


def _back(frame: Frame, times: Sequence[float], values: Sequence[float], kept: Sequence[int]) -> str:
    """The same line from right to left."""
    y = short(frame.y(values[kept[-1]]))
    path = [f"V{y}"]
    for place, after in zip(kept[-2::-1], kept[:0:-1], strict=True):
        if (level := short(frame.y(values[place]))) != y:
            path.append(f"H{short(frame.x(times[after]))}V{level}")
            y = level
    return "".join([*path, f"H{short(frame.x(times[kept[0]]))}"])


def _slope(frame: Frame, times: Sequence[float], values: Sequence[float], kept: Sequence[int]) -> str:
    """Straight from sample to sample; what lies on the way along a level line is left out."""
    points = [(short(frame.x(times[place])), short(frame.y(values[place]))) for place in kept]
    inner = [
        point
        for before, point, after in zip(points, points[1:], points[2:], strict=False)
        if not before[1] == point[1] == after[1]
    ]
    return "L".join(f"{x} {y}" for x, y in [points[0], *inner, points[-1]])


def _line(each: Series, path: str) -> str:
    return f'<path class="{_kind(each)} {each.colour}" d="M{path}"/>'


def _kind(each: Series) -> str:
    return "line dashed" if each.dashed else "line"


def _readouts(frame: Frame, axes: Axes, series: Sequence[Series]) -> list[Readout]:
    """Stretches of time with what each series was in them; equal neighbours are one."""
    times = axes.times
    columns = max(1, min(COLUMNS, len(times) - 1))
    width = (frame.end - frame.start) / columns
    found: list[Readout] = []
    for column in range(columns):
        start, end = frame.start + column * width, frame.start + (column + 1) * width
        first = max(0, bisect_right(times, start + 1e-6) - 1)
        last = max(first + 1, bisect_left(times, end - 1e-6))
        text = " · ".join(f"{each.name} {_range(each.values[first:last], axes.unit.text)}" for each in series)
        if found and found[-1].text == text:
            found[-1] = Readout(found[-1].start, end, text)
        else:
            found.append(Readout(start, end, text))
    return found


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    if not values:
        return "over"
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low}–{high}"
