"""Which plots a report has and what is in them: from the samples of a run to pictures.

A plot without anything to show is one sentence instead. Colours mean the same in every plot: red is what somebody has
to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bigfleet.sim.report.answers import CAUSES, started
from bigfleet.sim.report.axes import COUNT, DOLLARS, SECONDS, Unit, clock, count, time_step
from bigfleet.sim.report.plot_frame import Axes, Mark
from bigfleet.sim.report.plots import Series, areas, bars, lines
from bigfleet.sim.scenario.scenario import Scenario
from bigfleet.sim.scenario.shapes import PRIORITY_CLASSES, class_words
from bigfleet.sim.scenario.steps import Step
from bigfleet.sim.world.meter import ACTIONS, MARKETS, Sample
from bigfleet.virtual.kernel import SECOND

STATE_COLOURS = {
    "Configured": "blue",
    "Configuring": "orange",
    "Creating": "yellow",
    "Idle": "sky",
    "Draining": "purple",
    "Deleting": "grey",
    "Failed": "red",
}
"""From the bottom of the stack up. Speculative slots are no machines yet and would dwarf those that are."""
MARKET_COLOURS = {"bare-metal": "grey", "reserved": "blue", "on-demand": "orange", "spot": "sky", "other": "purple"}
ACTION_COLOURS = {
    "Bootstrap": "blue",
    "Provision": "sky",
    "Preempt": "red",
    "Reclaim": "orange",
    "Delete": "grey",
    "Close": "purple",
    "Reopen": "yellow",
}
CAUSE_COLOURS = {"loss": "red", "notice": "yellow", "preemption": "purple", "reclaim": "orange"}
CLASS_COLOURS = {"critical": "red", "service": "blue", "batch": "sky", "other": "grey"}
_SUBJECTS = ("workload", "offer", "zone", "provider", "transition", "cluster")
_ENDS = ("for_", "down", "repaired_after")


class Charts:
    """The plots of one run."""

    def __init__(
        self, samples: Sequence[Sample], marks: Sequence[Mark] = (), words: Mapping[str, str] | None = None
    ) -> None:
        """`words` are the classes as this run must call them; else by their own names."""
        self._words = class_words({}) if words is None else words
        self._samples = samples
        self._marks = marks
        self._times = [sample.at / SECOND for sample in samples]

    def demand(self) -> str:
        """Per class: pods that run and pods that wait; together what is wanted."""
        pictures = []
        for name in PRIORITY_CLASSES:
            wanted = self._row(lambda sample, name=name: sample.live.get(name, 0))  # type: ignore[misc]
            running = self._row(lambda sample, name=name: sample.running.get(name, 0))  # type: ignore[misc]
            if not any(wanted):
                continue
            rest = [max(0.0, all_ - some) for all_, some in zip(wanted, running, strict=True)]
            parts = [Series("running", running, "blue"), Series("waiting", rest, "red")]
            pictures.append(areas(self._axes(f"{self._words[name]} pods wanted", height=110), parts))
        return "".join(pictures) or _nothing("Nobody ever wanted a pod.")

    def waiting(self) -> str:
        """The red of `demand` alone, on a scale of its own: who waits for a minute in a day is seen here."""
        parts = self._parts(
            PRIORITY_CLASSES, lambda sample, name: sample.live.get(name, 0) - sample.running.get(name, 0), CLASS_COLOURS
        )
        parts = [replace(each, name=self._words[each.name]) for each in parts]
        if not parts:
            return _nothing("No pod was seen waiting.")
        most = max(sample.waiting for sample in started(self._samples))
        # At the start everything waits; that must not flatten what happens afterwards.
        if most and max(sample.waiting for sample in self._samples) > 3 * most:
            return areas(replace(self._axes("pods waiting, start cut off", height=110), ceiling=most), parts)
        return areas(self._axes("pods waiting", height=110), parts)

    def dollars(self, baseline: Sequence[Sample] = (), name: str = "") -> str:
        """What the machines cost at each moment, and what they would have cost otherwise."""
        parts = self._parts(MARKETS.values(), lambda sample, market: sample.rates.get(market, 0.0), MARKET_COLOURS)
        other = [sum(sample.rates.values()) for sample in baseline[: len(self._samples)]]
        over = [Series(name, other, "ink", dashed=True)] if any(other) else []
        if not parts and not over:
            return _nothing("No machine had a price: all that were used are owned.")
        return areas(self._axes("dollars per hour", DOLLARS), parts, over)

    def states(self) -> str:
        """Machines that exist, by state."""
        parts = self._parts(STATE_COLOURS, lambda sample, state: sample.states.get(state, 0), STATE_COLOURS)
        if not parts:
            return _nothing("No machine ever existed.")
        return areas(self._axes("machines"), parts)

    def slots(self) -> str:
        """One sentence about what is not drawn: slots somebody could buy."""
        slots = self._row(lambda sample: sample.states.get("Speculative", 0))
        if not any(slots):
            return ""
        low, high = count(min(slots)), count(max(slots))
        return f"Not drawn: {low if low == high else f'{low} to {high}'} Speculative slots, which could be bought."

    def actions(self) -> str:
        parts = self._parts(ACTIONS, lambda sample, kind: sample.actions.get(kind, 0), ACTION_COLOURS)
        return self._events("actions", parts) if parts else _nothing("The shard took no action.")

    def interruptions(self) -> str:
        found = self._parts(CAUSE_COLOURS, lambda sample, cause: sample.interrupted.get(cause, 0), CAUSE_COLOURS)
        parts = [replace(each, name=CAUSES[each.name]) for each in found]
        return self._events("pods interrupted", parts) if parts else _nothing("No running pod was thrown out.")

    def shortfalls(self) -> str:
        """How old the oldest unanswered demand is, and how many rows of demand are short."""
        ages = self._row(lambda sample: sample.oldest_shortfall)
        rows = self._row(lambda sample: sample.shortfalls)
        if not any(rows) and not any(ages):
            return _nothing("The shard had an answer to all demand, all the time.")
        oldest = lines(self._axes("oldest shortfall", SECONDS), [Series("age", ages, "red")], ramps=True)
        return oldest + areas(self._axes("rows of demand short", height=80), [Series("rows", rows, "red")])

    def _events(self, what: str, parts: Sequence[Series]) -> str:
        # No bar is narrower than the time between two samples.
        span = self._times[-1] - self._times[0]
        width = max(time_step(span, 80), self._times[1] - self._times[0]) if span else 1.0
        return bars(self._axes(f"{what} per {clock(width)}"), parts, width)

    def _row(self, value: Callable[[Sample], float]) -> list[float]:
        return [value(sample) for sample in self._samples]

    def _parts(
        self, names: Iterable[str], value: Callable[[Sample, str], float], colours: dict[str, str]
    ) -> list[Series]:
        """Those names that ever have a value."""
        found = [Series(name, [value(sample, name) for sample in self._samples], colours[name]) for name in names]
        return [series for series in found if any(series.values)]

    def _axes(self, label: str, unit: Unit = COUNT, height: int = 180) -> Axes:
        return Axes(self._times, label, unit, self._marks, height)


def marks_of(scenario: Scenario) -> list[Mark]:
    """What the scenario does to the run, with names a reader can look up in it."""
    return [
        Mark(step_name(step), step.at / SECOND, _end(step)) for step in scenario.steps if step.at <= scenario.duration
    ]


def step_name(step: Step) -> str:
    """`stockout spot`, `zone-loss zone-b`: the kind and what it is done to."""
    subjects = [str(value) for each in _SUBJECTS if (value := getattr(step, each, ""))]
    return " ".join([step.TAG[1], *subjects[:1]])


def _end(step: Step) -> float | None:
    lasts = next((value for each in _ENDS if (value := getattr(step, each, None))), None)
    return None if lasts is None else float(step.at + lasts) / SECOND


def _nothing(sentence: str) -> str:
    return f'<p class="nothing">{sentence}</p>'
