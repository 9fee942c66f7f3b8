"""Two runs side by side as one HTML page: the same answers in two columns, both in each plot, and every number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.report.answers import answers
from bigfleet.sim.report.axes import COUNT, DOLLARS, SECONDS, Unit
from bigfleet.sim.report.plot_frame import Axes
from bigfleet.sim.report.plots import Series, lines
from bigfleet.sim.report.report import answered, page, section, table, text
from bigfleet.sim.world.meter import Sample
from bigfleet.sim.world.summary import compare
from bigfleet.virtual.kernel import SECOND

_PLOTS: tuple[tuple[str, str, Unit, Callable[[Sample], float]], ...] = (
    ("Pods running", "pods", COUNT, lambda each: sum(each.running.values())),
    ("Pods waiting", "pods", COUNT, lambda each: each.waiting),
    ("Dollars per hour", "dollars per hour", DOLLARS, lambda each: sum(each.rates.values())),
    ("Machines", "machines", COUNT, lambda each: sum(each.states.values()) - each.states.get("Speculative", 0)),
    ("Oldest shortfall", "age", SECONDS, lambda each: each.oldest_shortfall),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: what to call it, its summary, and its samples where they are known."""

    name: str
    summary: dict[str, Any]
    samples: Sequence[Sample] = ()


def names(first: Side, second: Side) -> tuple[str, str]:
    """What to call both; those of one name are told apart by their place."""
    if first.name != second.name:
        return first.name, second.name
    return f"{first.name} (first)", f"{second.name} (second)"


def render_comparison(first: Side, second: Side) -> str:
    """The whole page."""
    one, other = names(first, second)
    try:
        pairs = zip(answers(first.summary, first.samples), answers(second.summary, second.samples), strict=True)
    except KeyError as error:
        raise DocumentError(f"a summary lacks {error}; give the summaries of two runs") from error
    parts = [
        f"<h1>{text(one)} against {text(other)}</h1>",
        answered([each for pair in pairs for each in pair], heads=(one, other)),
    ]
    if first.samples and second.samples:
        parts += [section(plot[0], "", _plot(plot, (one, first.samples), (other, second.samples))) for plot in _PLOTS]
    rows = [
        (
            row["what"].replace(".", " · ").replace("_", " "),
            _number(row["first"]),
            _number(row["second"]),
            row["change"],
        )
        for row in compare(first.summary, second.summary)
    ]
    parts.append(section("Every number", "", table(("", one, other, "change"), rows, numbers=3)))
    return page(f"{one} against {other}", parts)


def _plot(plot: tuple[str, str, Unit, Callable[[Sample], float]], *sides: tuple[str, Sequence[Sample]]) -> str:
    _, label, unit, value = plot
    times = sorted({sample.at for _, samples in sides for sample in samples})
    series = [
        Series(name, _over(times, samples, value), colour, dashed)
        for (name, samples), colour, dashed in zip(sides, ("blue", "orange"), (False, True), strict=True)
    ]
    if not any(any(each.values) for each in series):
        return '<p class="nothing">None in both.</p>'
    axes = Axes([at / SECOND for at in times], label, unit)
    return lines(axes, series, ramps=unit is SECONDS)


def _over(times: Sequence[int], samples: Sequence[Sample], value: Callable[[Sample], float]) -> list[float]:
    """A run's values at given times, as long as it lasted."""
    taken = [sample.at for sample in samples]
    values = [value(sample) for sample in samples]
    return [values[bisect_right(taken, at) - 1] for at in times if at <= taken[-1]]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.10g}"
