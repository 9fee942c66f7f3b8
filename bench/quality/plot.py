"""One picture for `docs/quality.md`: dollars over evictions, a line per family, as plain SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "quality-evictions.svg"
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _NAMES = 760, 320, 50, 20, 40, 200
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")

Curve = Sequence[tuple[float, float]]


def evictions(curves: Mapping[str, Curve]) -> str:
    """Points are (share of old pods evicted, dollars ÷ bound); every drawn point is a replay."""
    right, low = _WIDTH - _NAMES, _HEIGHT - _BOTTOM
    most_x = max(0.01, *(x for curve in curves.values() for x, _ in curve))
    most_y = max(y for curve in curves.values() for _, y in curve)

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + (right - _LEFT) * x / most_x, low - (low - _TOP) * (y - 1) / (most_y - 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_LEFT},{_TOP}V{low}H{right}" fill="none" stroke="#57606a"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">evicted, % of old pods</text>',
    ]
    for step in range(5):
        value = 1 + (most_y - 1) * step / 4
        parts.append(f'<text x="{_LEFT - 6}" y="{place(0, value)[1] + 4:.0f}" text-anchor="end">{value:.2f}</text>')
        share = most_x * step / 4
        parts.append(f'<text x="{place(share, 1)[0]:.0f}" y="{low + 16}" text-anchor="middle">{100 * share:.0f}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [place(x, y) for x, y in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{right + 12}" y="{_TOP + 12 + 18 * number}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
