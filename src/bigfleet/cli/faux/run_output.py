"""What a finished simulation looks like on a terminal: one line per fact, one line per expectation."""

from typing import Any

import typer

from bigfleet.cli.output import Output, print_record
from bigfleet.sim.library import Finished
from bigfleet.sim.scenario.expectations import promise
from bigfleet.sim.scenario.shapes import class_words


def print_summary(summary: dict[str, Any], output: Output) -> None:
    """The record itself, or one line per fact."""
    if output is Output.JSON:
        print_record(summary, output)
        return
    dollars, pods = summary["dollars"], summary["pods"]
    facts: dict[str, Any] = {
        "scenario": f"{summary['scenario']}, seed {summary['seed']}",
        "simulated": f"{summary['simulated']}, {summary['cycles']:,} cycles",
        "pods": f"{pods['running']:,} of {pods['live']:,} running",
        "machines": ", ".join(f"{count:,} {state}" for state, count in summary["machines"].items()),
        "serving": ", ".join(f"{name} {count:,}" for name, count in summary["serving_machines"].items()) + " machines",
        "dollars": f"{dollars['total']:,.2f} ({dollars['per_hour']:,.2f} per hour)",
        "used": ", ".join(f"{name} {share:.0%}" for name, share in summary["utilisation"].items()) or "nothing",
        "actions": ", ".join(f"{count:,} {kind}" for kind, count in summary["actions"].items() if count) or "none",
        "interrupted": ", ".join(f"{n:,} by {cause}" for cause, n in summary["interruptions"]["pods"].items())
        or "none",
        "shortfalls": summary["shortfalls"],
    }
    for row in summary["unmet"]:
        lacks = ", ".join(f"{amount} {name}" for name, amount in row["lacks"].items())
        name, lacking = f"{row['cluster']} lacks", f"{lacks} at priority {row['priority']}. {row['why']}"
        facts[name] = f"{facts[name]} {lacking}" if name in facts else lacking
    words = class_words(summary["priorities"])
    for name, row in summary["time_to_capacity_seconds"].items():
        still = f"; {row['still_waiting']:,} pods still wait" if row["still_waiting"] else ""
        facts[f"{words[name]} waits"] = (
            f"p50 {row['p50']:g} s, p90 {row['p90']:g} s, p99 {row['p99']:g} s, max {row['max']:g} s{still}"
        )
    if "baseline" in summary:
        base = summary["baseline"]
        facts["baseline"] = f"{base['sharding']}: {base['dollars']:,.2f} dollars, {base['saved_share']:.1%} saved"
    print_record(facts, output)


def tell_verdicts(finished: Finished) -> None:
    """One line per expectation on standard error."""
    for clause in finished.run.scenario.expect:
        problem = clause.judge(finished.run)
        said = ", ".join(f"{key}: {value}" for key, value in promise(clause).items())
        verdict = f"FAIL  {clause.TAG[1]}: {problem}" if problem else f"PASS  {clause.TAG[1]} {said}".rstrip()
        typer.echo(verdict, err=True)
