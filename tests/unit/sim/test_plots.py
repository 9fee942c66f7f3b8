"""Plots are well-formed pictures that show what was sampled and nothing else, whatever the data."""

import re
import xml.etree.ElementTree as ET

import pytest

from bigfleet.sim.report.axes import SECONDS
from bigfleet.sim.report.plot_frame import LEFT, RIGHT, Axes, Mark
from bigfleet.sim.report.plots import STRETCHES, Series, areas, bars, lines

LONG = [float(n) for n in range(20_000)]
DATA = {
    "one sample": ([0.0], [Series("none", [0.0], "blue")]),
    "nothing": ([0.0, 10.0, 20.0], [Series("none", [0.0, 0.0, 0.0], "blue")]),
    "two": ([0.0, 10.0], [Series("a & b", [1.0, 2.0], "blue"), Series("c", [0.0, 5.0], "red", dashed=True)]),
    "tiny": ([0.0, 10.0], [Series("x", [0.0, 0.0003], "blue")]),
    "long": (LONG, [Series("x", [n % 7 for n in LONG], "blue"), Series("y", [n % 11 for n in LONG], "red")]),
}
MARKS = [Mark("outage <cloud>", 5.0, 8.0), Mark("late", 9.9)]


def in_bars(axes: Axes, series: list[Series]) -> str:
    return bars(axes, series, max(10.0, axes.times[-1] / 80))


def tree(picture: str) -> ET.Element:
    return ET.fromstring(picture)


def shapes(picture: str, kind: str) -> list[list[tuple[float, float]]]:
    """The corners of every area or line drawn among the data."""
    found = []
    for path in tree(picture).iter("path"):
        outline = path.attrib["d"]
        if path.attrib["class"].split()[0] != kind or "h" in outline:
            continue
        points: list[tuple[float, float]] = []
        for letter, first, second in re.findall(r"([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?", outline):
            x, y = points[-1] if points else (0.0, 0.0)
            points.append({"H": (float(first), y), "V": (x, float(first))}.get(letter) or (float(first), float(second)))
        found.append(points)
    return found


def texts(picture: str, kind: str) -> list[str]:
    return ["".join(each.itertext()) for each in tree(picture).iter("text") if kind in each.attrib["class"].split()]


@pytest.mark.parametrize("draw", [areas, lines, in_bars])
@pytest.mark.parametrize("name", DATA)
def test_every_plot_is_well_formed_and_inside_its_frame(draw, name: str) -> None:  # type: ignore[no-untyped-def]
    times, series = DATA[name]
    picture = draw(Axes(times, "things", marks=MARKS), series)
    assert len(texts(picture, "key")) == len(series)
    assert len(texts(picture, "tick")) >= 3
    bottom = float(tree(picture).attrib["viewBox"].split()[3])
    for x, y in [point for kind in ("area", "line") for shape in shapes(picture, kind) for point in shape]:
        assert LEFT <= x <= RIGHT
        assert 0 < y < bottom - 20


def test_a_long_series_keeps_its_peaks_and_its_dips() -> None:
    values = [5.0] * len(LONG)
    values[12_345], values[777] = 9.0, 0.0
    [line] = shapes(lines(Axes(LONG, "x"), [Series("x", values, "blue")]), "line")
    assert len(line) <= 4 * STRETCHES
    assert len({y for _, y in line}) == 3


def test_a_thinned_stack_never_shows_a_total_that_never_was() -> None:
    first = [float(n % 2) * 40 for n in range(len(LONG))]
    second = [40 - value for value in first]
    [_, upper] = shapes(areas(Axes(LONG, "x"), [Series("a", first, "blue"), Series("b", second, "red")]), "area")
    assert min(y for _, y in upper) == upper[0][1], "both together are 40 at every moment"


def test_a_value_holds_until_the_next_one() -> None:
    [line] = shapes(lines(Axes([0.0, 50.0, 100.0], "x"), [Series("x", [0.0, 4.0, 4.0], "blue")]), "line")
    middle = (LEFT + RIGHT) / 2
    assert [x for x, _ in line] == [LEFT, middle, middle, RIGHT]
    assert line[0][1] == line[1][1] > line[2][1] == line[3][1]


def test_a_series_may_end_before_the_others() -> None:
    times = [float(n) for n in range(1000)]
    picture = lines(Axes(times, "x"), [Series("long", times, "blue"), Series("short", times[:500], "red")])
    long, short = shapes(picture, "line")
    assert long[-1][0] == RIGHT
    assert short[-1][0] == pytest.approx((LEFT + RIGHT) / 2, abs=1)
    assert texts(picture, "said")[-1].endswith("short over")


def test_values_above_the_ceiling_are_cut_off_and_still_named() -> None:
    picture = areas(Axes([0.0, 1.0, 2.0], "x", ceiling=4), [Series("x", [900.0, 4.0, 0.0], "blue")])
    assert max(float(text) for text in texts(picture, "end")) < 10
    assert texts(picture, "key") == ["x 0–900"]


def test_marks_are_named_and_neighbours_of_one_name_are_named_once() -> None:
    times = [0.0, 3600.0]
    marks = [Mark("lose-hosts", 600.0), Mark("lose-hosts", 660.0), Mark("stockout", 660.0, 1800.0), Mark("never", 9e9)]
    picture = lines(Axes(times, "x", marks=marks), [Series("x", [1.0, 1.0], "blue")])
    assert texts(picture, "named") == ["▾ lose-hosts ×2", "▾ stockout"]
    assert len([path for path in tree(picture).iter("path") if path.attrib["class"] == "mark"]) == 3
    [band] = [box for box in tree(picture).iter("rect") if box.attrib.get("class") == "while"]
    assert float(band.attrib["width"]) == pytest.approx((RIGHT - LEFT) * 1140 / 3600, abs=0.1)


def test_marks_too_many_for_their_rows_do_not_cover_each_other() -> None:
    marks = [Mark(f"step number {n}", float(n)) for n in range(40)]
    picture = lines(Axes([0.0, 3600.0], "x", marks=marks), [Series("x", [1.0, 1.0], "blue")])
    places = [(t.attrib["x"], t.attrib["y"]) for t in tree(picture).iter("text") if t.attrib["class"] == "named"]
    assert 0 < len(places) == len({y for _, y in places}) < 40


def test_the_pointer_finds_every_moment_once() -> None:
    times = [float(n * 10) for n in range(781)]
    picture = lines(Axes(times, "x"), [Series("x", [0.0] * 395 + [1.0] * 386, "blue")])
    assert texts(picture, "said") == ["0 – 1h 5m: x 0", "1h 5m – 1h 6m: x 0–1", "1h 6m – 2h 10m: x 1"]
    boxes = [float(box.attrib["width"]) for box in tree(picture).iter("rect")]
    assert sum(boxes) == pytest.approx(RIGHT - LEFT, abs=0.2)


def test_bars_hold_all_events_and_show_none_before_its_cause() -> None:
    times = [float(n * 10) for n in range(361)]
    events = [0.0] * 361
    events[120] = 3.0
    events[360] = 2.0
    picture = bars(Axes(times, "x", marks=[Mark("cause", 1200.0)]), [Series("loss", events, "red")], 60.0)
    assert texts(picture, "key") == ["loss 5 in all"]
    first, _ = shapes(picture, "area")
    assert min(x for x, _ in first) == pytest.approx(LEFT + (RIGHT - LEFT) / 3, abs=0.1)
    assert texts(picture, "said") == ["20m – 21m: loss 3", "59m – 1h: loss 2"]


def test_ages_are_written_as_times() -> None:
    picture = lines(Axes([0.0, 600.0], "age", SECONDS), [Series("age", [0.0, 600.0], "red")], ramps=True)
    assert texts(picture, "end") == ["0", "2m", "4m", "6m", "8m", "10m", "12m"]
    assert len(shapes(picture, "line")[0]) == 2
