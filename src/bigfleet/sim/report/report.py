"""The report of a run: one HTML file that opens anywhere, with answers in sentences, plots and tables. No script."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from bigfleet.model.amounts import spoken_amounts
from bigfleet.sim.document.text import plain
from bigfleet.sim.report.answers import SHARDINGS, Answer, answers
from bigfleet.sim.report.axes import clock
from bigfleet.sim.report.charts import Charts, marks_of, step_name
from bigfleet.sim.scenario.expectations import promise
from bigfleet.sim.scenario.scenario import Scenario
from bigfleet.sim.scenario.shapes import class_words
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import SECOND

# Tables of more columns are unreadable when a phone squeezes them.
NARROW_COLUMNS = 4
_PLOTS = re.compile(r'(?:<svg class="plot".*?</svg>)+', re.S)


def render(run: Simulation, summary: dict[str, Any], baseline: Simulation | None = None) -> str:
    """The whole page."""
    scenario, samples = run.scenario, run.meter.samples
    charts = Charts(samples, marks_of(scenario), class_words(summary["priorities"]))
    other = SHARDINGS[baseline.scenario.sharding.value] if baseline else ""
    parts = [
        f"<h1>{text(scenario.name)}</h1><p>{text(scenario.description)}</p>",
        answered(answers(summary, samples)),
        "<p>Numbers beside a name are its lowest and highest value. Point at a plot for the values at that time.</p>",
        section(
            "Demand and supply by class",
            "Pods wanted per priority class: blue ones run, red ones wait for a machine.",
            charts.demand() + charts.waiting() + _classes(summary),
        ),
        section(
            "Dollars per hour",
            "What the machines cost at each moment, by how they are paid for. Reserved ones cost the same when idle."
            + (f" The dashed line is BigFleet with {other}, and the same demand." if other else ""),
            charts.dollars(baseline.meter.samples if baseline else (), other),
        ),
        section(
            "Machines by state",
            "Every machine there is. Blue ones serve, red ones are Failed, the others are on their way or idle. "
            + charts.slots(),
            charts.states(),
        ),
        section(
            "Actions",
            "What the shard decided to do. Steady demand should show nothing here.",
            charts.actions(),
        ),
        section(
            "Interruptions",
            "Running pods that were thrown out, by cause.",
            charts.interruptions(),
        ),
        section(
            "Oldest shortfall",
            "How long the oldest demand that no machine and no offer can answer has been waiting.",
            charts.shortfalls() + _unmet(summary),
        ),
        section("What was done to it", "The steps of the scenario, as marked in the plots.", _steps(scenario)),
        section("Expectations", "", _expectations(run)),
        f"<footer>Seed {scenario.seed}, {summary['cycles']:,} decisions."
        " Play it again: <code>fauxctl run scenario.yaml</code> with the file beside this one.</footer>",
    ]
    return page(scenario.name, parts)


def page(title: str, parts: Iterable[str]) -> str:
    """A self-contained page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        'initial-scale=1">'
        f"<title>{text(title)} · BigFleet simulation</title>"
        f"<style>{style('report.css')}{style('plots.css')}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def style(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def text(value: object) -> str:
    return html.escape(str(value))


def section(title: str, meaning: str, body: str) -> str:
    told = f"<p>{text(meaning)}</p>" if meaning else ""
    plots = _PLOTS.sub(lambda found: wide(found.group(), "needs-room", f"Plots: {title}"), body)
    return f"<section><h2>{text(title)}</h2>{told}{plots}</section>"


def wide(body: str, kind: str, label: str) -> str:
    """A box that scrolls sideways on a small screen and shows that it does; what `needs-room` keeps its width there."""
    return f'<div class="wide {kind}" role="region" tabindex="0" aria-label="{text(label)}">{body}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0) -> str:
    """Cells are text; the last `numbers` columns are aligned right."""
    start = len(heads) - numbers

    def line(tag: str, cells: Sequence[object]) -> str:
        made = (
            f"<{tag}{' class=n' if place >= start else ''}>{text(cell)}</{tag}>" for place, cell in enumerate(cells)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return wide(
        f"<table>{line('th', heads)}{body}</table>", "needs-room" if len(heads) > NARROW_COLUMNS else "", "Table"
    )


def answered(found: Iterable[Answer], heads: Sequence[str] = ()) -> str:
    """Cards, one after the other; under heads when there is one column per run."""
    names = "".join(f"<h2>{text(head)}</h2>" for head in heads)
    return f'<div class="answers{" pairs" if heads else ""}">{names}{"".join(map(_answer, found))}</div>'


def _answer(each: Answer) -> str:
    sentences = "".join(f"<li>{text(sentence)}</li>" for sentence in each.sentences)
    kind = "answer bad" if each.bad else "answer"
    return f'<div class="{kind}"><h3>{text(each.question)}</h3><b>{text(each.glance)}</b><ul>{sentences}</ul></div>'


def _classes(summary: dict[str, Any]) -> str:
    waits, interrupted = summary["time_to_capacity_seconds"], summary["interruptions"]["by_class"]
    words = class_words(summary["priorities"])
    rows = [
        (
            words[name],
            f"{row['pods']:,}",
            *(clock(row[each]) for each in ("p50", "p90", "p99", "max")),
            f"{row['still_waiting']:,}",
            f"{interrupted.get(name, 0):,}",
        )
        for name, row in waits.items()
    ]
    if not rows:
        return ""
    heads = ("class", "pods started", "half within", "90% within", "99% within", "slowest", "still waiting")
    note = (
        "How long pods waited until they ran, or have waited so far. Priorities from 1,000,000 up are critical, from"
        " 1,000 service, from 100 batch."
    )
    return f"<p>{note}</p>{table((*heads, 'interrupted'), rows, numbers=7)}"


def _unmet(summary: dict[str, Any]) -> str:
    """What is short at the end, and why."""
    rows = [
        (
            row["cluster"],
            f"{row['priority']:,}",
            spoken_amounts({name: str(n) for name, n in row["lacks"].items()}),
            row["why"],
        )
        for row in summary["unmet"]
    ]
    if not rows:
        return ""
    shown = f"the first {len(rows)} of {summary['shortfalls']:,}" if len(rows) < summary["shortfalls"] else "all"
    return f"<p>Short at the end, {shown}:</p>{table(('cluster', 'priority', 'lacks', 'why'), rows)}"


def _steps(scenario: Scenario) -> str:
    rows = []
    for step in scenario.steps:
        facts = {name: value for name, value in plain(step).items() if name not in ("do", "at")}
        rows.append((clock(step.at / SECOND), step_name(step), _settings(facts)))
    return table(("at", "step", "settings"), rows) if rows else '<p class="nothing">Nothing: only demand.</p>'


def _expectations(run: Simulation) -> str:
    rows = []
    for clause in run.scenario.expect:
        facts = promise(clause)
        problem = clause.judge(run)
        meaning = (type(clause).__doc__ or "").strip().splitlines()[0].replace("`", "")
        verdict = f"failed: {problem}" if problem else "held"
        rows.append((clause.TAG[1], meaning, _settings(facts), verdict))
    heads = ("expectation", "meaning", "settings", "verdict")
    return table(heads, rows) if rows else '<p class="nothing">The scenario has none.</p>'


def _settings(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in facts.items())


def _value(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {_value(each)}" for name, each in value.items())
    if isinstance(value, list):
        return " ".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
