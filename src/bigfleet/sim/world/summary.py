"""What a run came to, as one record: the content of `summary.json`, and how two of them differ."""

from __future__ import annotations

from typing import Any

from bigfleet.duration import spelled
from bigfleet.engine.results import Verdict
from bigfleet.sim.scenario.fit import misfits
from bigfleet.sim.scenario.shapes import PRIORITY_CLASSES
from bigfleet.sim.world.meter import ACTIONS
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import HOUR, SECOND

PERCENTILES = (50, 90, 99, 100)
UNMET_SHOWN = 10


def summarise(run: Simulation, baseline: Simulation | None = None) -> dict[str, Any]:
    """Everything worth knowing about a finished run; plain values in a fixed order."""
    meter, scenario = run.meter, run.scenario
    failures = run.failures()
    live, running = run.pods("", "")
    hours = run.end / HOUR
    waits, found = meter.waited_classes(), run.priorities()
    summary: dict[str, Any] = {
        "scenario": scenario.name,
        "seed": scenario.seed,
        "sharding": scenario.sharding.value,
        "simulated": spelled(run.end),
        "simulated_seconds": run.end / SECOND,
        "passed": not failures,
        "failures": failures,
        "expectations": len(scenario.expect),
        "fits_no_offer": misfits(scenario),
        "cycles": run.cycles,
        "machines": {state: count for state, count in run.states().items() if count},
        "serving_machines": _over_time(
            [sample.states.get("Configured", 0) + sample.states.get("Configuring", 0) for sample in meter.samples]
        ),
        "priorities": {name: list(found[name]) for name in PRIORITY_CLASSES if name in found},
        "pods": {"live": live, "running": running, "started": meter.bound_pods},
        "dollars": {
            "total": round(meter.dollars, 4),
            "per_hour": round(meter.dollars / hours, 4),
            "by_market": {market: round(spent, 4) for market, spent in sorted(meter.spent.items()) if spent},
        },
        "unfinished": _unfinished(run),
        "machine_hours": {market: round(count, 4) for market, count in sorted(meter.machine_hours.items()) if count},
        "utilisation": {name: round(run.utilisation(name), 4) for name in meter.resources if run.utilisation(name) > 0},
        "actions": {kind: run.actions(kind, 0, "") for kind in ACTIONS},
        "preemptions": run.actions("Preempt", 0, ""),
        "interruptions": {
            "pods": dict(sorted(meter.interrupted.items())),
            "by_class": {name: n for name in PRIORITY_CLASSES if (n := meter.interrupted_classes[name])},
            "machines_lost": run.lost_machines(),
            "jobs_begun_anew": run.begun_anew()[0],
            "pod_hours_run_again": round(run.begun_anew()[1] / HOUR, 4),
        },
        "evictions": _evictions(run),
        "shortfalls": run.shortfalls(),
        "unmet": [_unmet(*told) for told in run.unmet()[:UNMET_SHOWN]],
        "waiting": [{**row._asdict(), "longest": round(row.longest / SECOND, 3)} for row in run.waiting()],
        "time_to_capacity_seconds": {
            name: {
                "pods": waits[name][0],
                "still_waiting": waits[name][1],
                **{f"p{p}" if p < 100 else "max": _seconds(run, name, p) for p in PERCENTILES},
            }
            for name in PRIORITY_CLASSES
            if name in waits
        },
    }
    if baseline is not None:
        other = baseline.dollars()
        summary["baseline"] = {
            "sharding": baseline.scenario.sharding.value,
            "clusters": len(baseline.clusters),
            "dollars": round(other, 4),
            "saved": round(other - meter.dollars, 4),
            "saved_share": round(1 - meter.dollars / other, 4) if other else 0.0,
            "running": baseline.pods("", "")[1],
            "time_to_capacity_p99": {name: _seconds(baseline, name, 99) for name in PRIORITY_CLASSES if name in waits},
        }
    return summary


def compare(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """Row by row: every number of two summaries, and how the second differs from the first."""
    one, other = dict(_numbers(first)), dict(_numbers(second))
    rows = []
    for name in [*one, *(name for name in other if name not in one)]:
        a, b = one.get(name), other.get(name)
        change = "" if a is None or b is None else _change(a, b)
        rows.append({"what": name, "first": a, "second": b, "change": change})
    return rows


def _over_time(counts: list[int]) -> dict[str, int]:
    """What to size a fleet by: the number that was enough for this share of the time."""
    ordered = sorted(counts)
    shares = {f"p{p}": ordered[-(-len(ordered) * p // 100) - 1] for p in PERCENTILES[:-1] if ordered}
    return {**shares, "max": ordered[-1]} if ordered else {}


def _unfinished(run: Simulation) -> dict[str, Any]:
    """What the cost leaves out: jobs that the end of the run cut off."""
    jobs, longest, pods_together = run.unfinished()
    return {
        "jobs": jobs,
        "longest_left_seconds": round(longest / SECOND, 3),
        "pod_hours_left": round(pods_together / HOUR, 4),
    }


def _evictions(run: Simulation) -> dict[str, Any]:
    """The budget of moves that save money: what clusters earned, what was spent of it, and what each has left."""
    spent, left = run.evictions()
    return {"earned": spent + sum(left.values()), "spent": spent, "left": left} if left else {}


def _unmet(verdict: Verdict, why: str) -> dict[str, Any]:
    """One row of demand that is short at the end, and why."""
    return {
        "cluster": verdict.key.cluster,
        "priority": verdict.priority,
        "lacks": verdict.deficit.to_wire(),
        "reason": verdict.reason.name.lower().replace("_", "-"),
        "why": why,
    }


def _seconds(run: Simulation, priority_class: str, percentile: float) -> float:
    return round(run.waited(priority_class, percentile) or 0.0, 3)


def _numbers(record: Any, path: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    if isinstance(record, bool):
        return [(path, int(record))]
    if isinstance(record, int | float):
        return [(path, record)]
    if isinstance(record, dict):
        for name, value in record.items():
            if name not in ("seed", "expectations"):
                found += _numbers(value, f"{path}.{name}" if path else name)
    return found


def _change(a: float, b: float) -> str:
    if a == b:
        return "="
    return f"{b - a:+g}" if not a else f"{(b - a) / abs(a):+.1%}"
