"""Colours of plots can be told apart on white and on dark, by everybody."""

import itertools
import math
import re

import pytest

from bigfleet.sim.report import charts
from bigfleet.sim.report.report import style

LIGHT, DARK = (dict(re.findall(r"\.(\w+) \{ color: (#\w{6})", part)) for part in style("plots.css").split("@media"))
SIGHTS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
"""What reaches the eye, in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)."""
USED = [
    charts.STATE_COLOURS,
    charts.MARKET_COLOURS,
    charts.ACTION_COLOURS,
    charts.CAUSE_COLOURS,
    charts.CLASS_COLOURS,
]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_of_one_plot_differ_for_every_sight(sight: str, palette: dict[str, str]) -> None:
    for colours in USED:
        for one, other in itertools.combinations(colours.values(), 2):
            assert math.dist(seen(palette[one], sight), seen(palette[other], sight)) > 15, (one, other)


@pytest.mark.parametrize(("palette", "paper"), [(LIGHT, "#ffffff"), (DARK, "#14181f")], ids=["light", "dark"])
def test_colours_differ_from_the_paper(palette: dict[str, str], paper: str) -> None:
    for name, colour in palette.items():
        assert math.dist(seen(colour, "usual"), seen(paper, "usual")) > 25, name


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """Lightness and two hues (CIE L*a*b*), in which distance is about difference to the eye."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (max(0.0, sum(a * b for a, b in zip(row, linear, strict=True))) for row in SIGHTS[sight])
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (
            (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
            0.2126 * red + 0.7152 * green + 0.0722 * blue,
            (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
