"""Times, dollars and ticks as a reader would write them."""

import pytest

from bigfleet.sim.report.axes import COUNT, DOLLARS, SECONDS, clock, dollars, time_step


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (0.4, "0.4s"),
        (9.04, "9s"),
        (59.6, "1m"),
        (86, "1m 26s"),
        (5400, "1h 30m"),
        (7205, "2h"),
        (194400, "2d 6h"),
    ],
)
def test_times_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "$0"), (0.2, "$0.20"), (0.0125, "$0.013"), (2.5, "$2.50"), (12, "$12"), (1234.5, "$1,234"), (-3.5, "-$3.50")],
)
def test_dollars_have_cents_where_they_matter(value: float, text: str) -> None:
    assert dollars(value) == text


@pytest.mark.parametrize("top", [0.001, 0.3, 1, 2, 7, 85, 100, 99_999, 3.6e6])
@pytest.mark.parametrize("unit", [COUNT, DOLLARS, SECONDS])
def test_an_axis_has_a_handful_of_ticks(unit, top: float) -> None:  # type: ignore[no-untyped-def]
    assert top / unit.step(top) <= 5


def test_things_are_counted_in_whole_numbers() -> None:
    assert [COUNT.step(top) for top in (1, 3, 8, 9, 85, 800)] == [1, 1, 2, 5, 25, 200]


@pytest.mark.parametrize(
    ("span", "step"),
    [(300, 30), (3600, 600), (4 * 3600, 1800), (86400, 3 * 3600), (7 * 86400, 86400), (90 * 86400, 10 * 86400)],
)
def test_time_ticks_are_round(span: float, step: float) -> None:
    assert time_step(span, 10) == step
