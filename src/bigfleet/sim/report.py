"""The report of a run: one HTML file that opens anywhere, with the numbers, the verdict and plots people can read."""

from __future__ import annotations

import html
from importlib import resources
from typing import Any

from bigfleet.sim.kernel import SECOND
from bigfleet.sim.meter import ACTIONS, MARKETS, STATES
from bigfleet.sim.plots import Series, areas, bars, lines
from bigfleet.sim.shapes import PRIORITY_CLASSES
from bigfleet.sim.simulation import Simulation

_STATE_COLOURS = {
    "Speculative": "#d5d9df",
    "Creating": "#b3a125",
    "Idle": "#4fa8b8",
    "Configuring": "#e0872b",
    "Configured": "#2a9d5c",
    "Draining": "#8e5bb5",
    "Deleting": "#8a8f98",
    "Failed": "#c9405b",
}
_CLASS_COLOURS = {"critical": "#c9405b", "service": "#3366cc", "batch": "#2a9d5c", "other": "#8a8f98"}


def render(run: Simulation, summary: dict[str, Any], baseline: Simulation | None = None) -> str:
    """The whole page."""
    scenario = run.scenario
    parts = [
        f"<h1>{_text(scenario.name)}</h1><p>{_text(scenario.description)}</p>",
        _verdict(summary),
        _cards(summary),
        _section(
            "Machines by state",
            "Every machine the shard knows, including slots it could buy.",
            _states(run),
        ),
        _section(
            "Demand and supply by class",
            "Pods that should run (dashed) and pods that do, per priority class.",
            _demand(run),
        ),
        _section(
            "Dollars per hour",
            "What the machines cost at each moment, by how they are paid for.",
            _dollars(run, baseline),
        ),
        _section("Actions", "What the shard decided to do, per stretch of time.", _actions(run)),
        _section(
            "Oldest shortfall", "How long the oldest unanswered demand has been waiting, in seconds.", _shortfall(run)
        ),
        _section("Time to capacity", "How long pods waited until they ran.", _waits(summary)),
        _section("Expectations", "", _expectations(run)),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(scenario.name)}'
        ' · BigFleet simulation</title><meta name="viewport" content="width=device-width">'
        f"<style>{_style()}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _style() -> str:
    return resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")


def _verdict(summary: dict[str, Any]) -> str:
    passed = summary["passed"]
    word, kind = ("passed", "pass") if passed else ("failed", "fail")
    failures = "".join(f"<li>{_text(each)}</li>" for each in summary["failures"])
    return f'<span class="verdict {kind}">{word}</span>' + (f"<ul>{failures}</ul>" if failures else "")


def _cards(summary: dict[str, Any]) -> str:
    dollars, pods = summary["dollars"], summary["pods"]
    facts = [
        (f"${dollars['total']:,.2f}", f"spent in {summary['simulated']}"),
        (f"${dollars['per_hour']:,.2f}", "per hour on average"),
        (f"{pods['running']:,} / {pods['live']:,}", "pods running at the end"),
        (f"{summary['preemptions']:,}", "preemptions"),
        (f"{sum(summary['interruptions']['pods'].values()):,}", "pods interrupted"),
        (f"{summary['shortfalls']:,}", "shortfalls at the end"),
    ]
    facts += [(f"{share:.0%}", f"{name} used") for name, share in list(summary["utilisation"].items())[:2]]
    if "baseline" in summary:
        base = summary["baseline"]
        facts.append((f"${base['saved']:,.2f}", f"less than {base['sharding']} (${base['dollars']:,.2f})"))
    cards = "".join(f'<div class="card"><b>{_text(value)}</b><span>{_text(what)}</span></div>' for value, what in facts)
    return f'<div class="cards">{cards}</div>'


def _states(run: Simulation) -> str:
    samples = run.meter.samples
    used = [state for state in STATES if any(sample.states.get(state) for sample in samples)]
    used.sort(key=lambda state: (state == "Speculative", state))
    series = [Series(state, [s.states.get(state, 0) for s in samples], _STATE_COLOURS[state]) for state in used]
    return areas(_times(run), series, "machines")


def _demand(run: Simulation) -> str:
    samples = run.meter.samples
    series = []
    for name in PRIORITY_CLASSES:
        if any(sample.live.get(name) for sample in samples):
            colour = _CLASS_COLOURS[name]
            series.append(Series(f"{name} wanted", [s.live.get(name, 0) for s in samples], colour, dashed=True))
            series.append(Series(f"{name} running", [s.running.get(name, 0) for s in samples], colour))
    return lines(_times(run), series, "pods")


def _dollars(run: Simulation, baseline: Simulation | None) -> str:
    samples = run.meter.samples
    used = [market for market in MARKETS.values() if any(sample.rates.get(market) for sample in samples)]
    parts = [Series(market, [s.rates.get(market, 0.0) for s in samples]) for market in used]
    picture = areas(_times(run), parts or [Series("all machines are free", [0.0] * len(samples))], "dollars per hour")
    if baseline is None:
        return picture
    total = [sum(sample.rates.values()) for sample in samples]
    other = [sum(sample.rates.values()) for sample in baseline.meter.samples]
    return picture + lines(
        _times(run),
        [
            Series(run.scenario.sharding.value, total, "#2a9d5c"),
            Series(baseline.scenario.sharding.value, other[: len(total)], "#c9405b", dashed=True),
        ],
        "dollars per hour",
    )


def _actions(run: Simulation) -> str:
    samples = run.meter.samples
    used = [kind for kind in ACTIONS if any(sample.actions.get(kind) for sample in samples)]
    series = [Series(kind, [s.actions.get(kind, 0) for s in samples]) for kind in used]
    return bars(_times(run), series or [Series("no action", [0] * len(samples))], "actions")


def _shortfall(run: Simulation) -> str:
    ages = [sample.oldest_shortfall for sample in run.meter.samples]
    return lines(_times(run), [Series("age of the oldest shortfall", ages, "#c9405b")], "seconds")


def _waits(summary: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{name}</td>" + "".join(f'<td class="n">{value:,}</td>' for value in row.values()) + "</tr>"
        for name, row in summary["time_to_capacity_seconds"].items()
    )
    heads = "".join(f'<th class="n">{name}</th>' for name in ("pods", "p50 s", "p90 s", "p99 s", "max s"))
    return f"<table><tr><th>class</th>{heads}</tr>{rows}</table>"


def _expectations(run: Simulation) -> str:
    rows = []
    for clause in run.scenario.expect:
        problem = clause.judge(run)
        word, kind = ("held", "pass") if not problem else ("failed", "fail")
        rows.append(
            f'<tr><td><span class="verdict {kind}">{word}</span></td><td>{_text(clause.TAG[1])}</td>'
            f"<td>{_text(problem)}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>" if rows else "<p>The scenario has none.</p>"


def _times(run: Simulation) -> list[float]:
    return [sample.at / SECOND for sample in run.meter.samples]


def _section(title: str, meaning: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{f'<p>{meaning}</p>' if meaning else ''}{body}</section>"


def _text(value: object) -> str:
    return html.escape(str(value))
