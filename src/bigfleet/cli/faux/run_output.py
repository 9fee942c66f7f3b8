"""What a finished simulation looks like on a terminal: one line per fact, one line per expectation."""

from typing import Any

import typer

from bigfleet.cli.output import Output, print_data, print_record
from bigfleet.model.amounts import spoken_amounts, spoken_name
from bigfleet.sim.library import Finished
from bigfleet.sim.report.answers import ALONE, SHARDINGS, evictions, unfinished
from bigfleet.sim.report.axes import clock
from bigfleet.sim.scenario.expectations import promise
from bigfleet.sim.scenario.fit import misfits
from bigfleet.sim.scenario.scenario import Scenario
from bigfleet.sim.scenario.shapes import class_words

MISFITS_TOLD = 10
WAITING_TOLD = 10


def print_summary(summary: dict[str, Any], output: Output) -> None:
    """The record itself, or one line per fact."""
    if not output.for_people:
        print_data(summary, output)
        return
    dollars, pods = summary["dollars"], summary["pods"]
    facts: dict[str, Any] = {
        "scenario": f"{summary['scenario']}, seed {summary['seed']}",
        "simulated": f"{summary['simulated']}, {summary['cycles']:,} cycles",
        "pods": f"{pods['running']:,} of {pods['live']:,} running",
        "machines": ", ".join(f"{count:,} {state}" for state, count in summary["machines"].items()),
        "serving": _serving(summary["serving_machines"]),
        "cost": f"${dollars['total']:,.2f} (${dollars['per_hour']:,.2f} per hour)",
        "not in it": unfinished(summary),
        "used": ", ".join(f"{spoken_name(name)} {share:.0%}" for name, share in summary["utilisation"].items())
        or "nothing",
        "actions": ", ".join(f"{count:,} {kind}" for kind, count in summary["actions"].items() if count) or "none",
        "interrupted": ", ".join(f"{n:,} by {cause}" for cause, n in summary["interruptions"]["pods"].items())
        or "none",
        "begun anew": _anew(summary["interruptions"]),
        "shortfalls": summary["shortfalls"],
    }
    for name in ("not in it", "begun anew"):
        if not facts[name]:
            del facts[name]
    if moved := evictions(summary):
        facts["moves"] = " ".join(moved)
    for row in summary["unmet"]:
        lacks = spoken_amounts({name: str(amount) for name, amount in row["lacks"].items()})
        name, lacking = f"{row['cluster']} lacks", f"{lacks} at priority {row['priority']}. {row['why']}"
        facts[name] = f"{facts[name]} {lacking}" if name in facts else lacking
    for row in summary["waiting"][:WAITING_TOLD]:
        name = f"{row['cluster']} waits"
        told = f"{row['pods']:,} of {row['workload']} for up to {clock(row['longest'])}. {row['why']} {row['shard']}"
        facts[name] = f"{facts[name]} {told}" if name in facts else told
    words = class_words(summary["priorities"])
    for name, row in summary["time_to_capacity_seconds"].items():
        still = f"; {row['still_waiting']:,} pods still wait" if row["still_waiting"] else ""
        facts[f"{words[name]} waits"] = (
            f"half within {clock(row['p50'])}, 90% within {clock(row['p90'])}, 99% within {clock(row['p99'])}, "
            f"slowest {clock(row['max'])}{still}"
        )
    if "baseline" in summary:
        facts["baseline"] = _baseline(summary["baseline"])
    print_record(facts, output)


def _baseline(base: dict[str, Any]) -> str:
    """What the same demand costs the other way."""
    if base["clusters"] == 1:
        return ALONE
    share = f"{abs(base['saved_share']):.1%}"
    worth = "as much" if share == "0.0%" else f"{share} {'less' if base['saved'] > 0 else 'more'}"
    return f"BigFleet with {SHARDINGS[base['sharding']]}: ${base['dollars']:,.2f}, this run costs {worth}"


def _anew(found: dict[str, Any]) -> str:
    """Jobs that were interrupted and had no checkpoint."""
    if not (jobs := found["jobs_begun_anew"]):
        return ""
    return f"{jobs:,} times a job that lost a pod; {found['pod_hours_run_again']:,.1f} hours of pods were run again"


def _serving(machines: dict[str, int]) -> str:
    """How many machines served, over time."""
    half, nearly, most = (f"{machines[share]:,}" for share in ("p50", "p99", "max"))
    return f"{half} machines half of the time, {nearly} or fewer 99% of it, at most {most}"


def tell_misfits(scenario: Scenario) -> None:
    """One line on standard error for each kind of pod that will wait through the whole run."""
    found = misfits(scenario)
    for sentence in found[:MISFITS_TOLD]:
        typer.echo(f"WARN  {sentence}", err=True)
    if len(found) > MISFITS_TOLD:
        typer.echo(f"WARN  {len(found) - MISFITS_TOLD} more kinds of pods fit no offer", err=True)


def tell_verdicts(finished: Finished) -> None:
    """One line per expectation on standard error."""
    for clause in finished.run.scenario.expect:
        problem = clause.judge(finished.run)
        said = ", ".join(f"{key}: {value}" for key, value in promise(clause).items())
        verdict = f"FAIL  {clause.TAG[1]}: {problem}" if problem else f"PASS  {clause.TAG[1]} {said}".rstrip()
        typer.echo(verdict, err=True)
