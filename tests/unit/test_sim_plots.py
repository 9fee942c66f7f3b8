"""Plots are well-formed pictures with axes, whatever the data."""

import xml.etree.ElementTree as ET

import pytest

from bigfleet.sim.plots import POINTS, Series, areas, bars, lines

DATA = {
    "empty": ([0.0], [Series("none", [0.0])]),
    "one": ([0.0, 10.0], [Series("a & b", [1.0, 2.0]), Series("c", [0.0, 5.0], dashed=True)]),
    "long": ([float(n) for n in range(20_000)], [Series("x", [float(n % 7) for n in range(20_000)])]),
}


@pytest.mark.parametrize("draw", [areas, lines, bars])
@pytest.mark.parametrize("name", DATA)
def test_every_plot_is_well_formed(draw, name: str) -> None:  # type: ignore[no-untyped-def]
    times, series = DATA[name]
    picture = draw(times, series, "things")
    root = ET.fromstring(f"<div>{picture}</div>")
    assert root.find("svg") is not None
    assert len(root.findall(".//span")) == len(series)
    assert len(root.findall(".//text")) >= 2


def test_long_series_are_thinned_without_losing_peaks() -> None:
    values = [0.0] * 20_000
    values[12_345] = 9.0
    picture = lines([float(n) for n in range(20_000)], [Series("x", values)])
    points = ET.fromstring(f"<div>{picture}</div>").find(".//polyline")
    assert points is not None
    heights = {pair.split(",")[1] for pair in points.attrib["points"].split()}
    assert len(points.attrib["points"].split()) <= 2 * POINTS
    assert len(heights) == 2


@pytest.mark.parametrize("draw", [areas, lines, bars])
def test_everything_is_drawn_inside_the_frame(draw) -> None:  # type: ignore[no-untyped-def]
    times, series = DATA["one"]
    root = ET.fromstring(f"<div>{draw(times, series)}</div>")
    for shape in [*root.iter("polygon"), *root.iter("polyline")]:
        for pair in shape.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 64 <= x <= 844
            assert 14 <= y <= 226
    for box in root.iter("rect"):
        assert float(box.attrib["y"]) >= 14
        assert float(box.attrib["y"]) + float(box.attrib["height"]) <= 226.1
