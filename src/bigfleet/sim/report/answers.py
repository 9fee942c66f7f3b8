"""The four things everybody asks of a run, answered in sentences: did it pass, what did it cost, who waited, what was
interrupted. Reads the summary and the samples; judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bigfleet.sim.report.axes import clock, count, dollars
from bigfleet.sim.scenario.shapes import class_words
from bigfleet.sim.world.meter import Sample
from bigfleet.virtual.kernel import SECOND

# What a baseline is: the same product on the same demand, so nothing here is called another autoscaler.
SHARDINGS = {"shared": "all clusters on the same machines", "per-cluster": "each cluster on machines of its own"}
CLUSTERS_TOLD = 5
ALONE = "A single cluster shares with nobody: the baseline is the same run, and no comparison with another autoscaler."
CAUSES = {
    "loss": "lost with their host",
    "notice": "moved before their host was taken",
    "preemption": "put out for more important ones",
    "reclaim": "moved to give machines back",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, the answer at a glance, and the sentences behind it."""

    question: str
    glance: str
    sentences: Sequence[str]
    bad: bool = False


def answers(summary: dict[str, Any], samples: Sequence[Sample]) -> list[Answer]:
    return [_passed(summary), _cost(summary), _waited(summary, samples), _interrupted(summary)]


def started(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Without the start, when everything waits: from the first moment on at which nothing did."""
    return samples[next((place for place, sample in enumerate(samples) if not sample.waiting), 0) :]


def _passed(summary: dict[str, Any]) -> Answer:
    failures, all_ = summary["failures"], summary["expectations"]
    question = "Did it pass?"
    if failures:
        few = f"{len(failures)} of {_of(all_, 'expectation')} did not hold"
        return Answer(question, "Failed", [f"{few}:", *map(plain_failure, failures)], bad=True)
    if not all_:
        return Answer(question, "Passed", ["Nothing was expected of it; it ran to its end."])
    return Answer(question, "Passed", [f"All {all_} expectations held." if all_ > 1 else "Its one expectation held."])


def plain_failure(failure: str) -> str:
    """`demand-met: 3 of 5 pods run` as a sentence, with the name of the expectation behind it."""
    name, _, problem = failure.partition(": ")
    return f"{problem[:1].upper()}{problem[1:]} ({name})."


def _cost(summary: dict[str, Any]) -> Answer:
    spent = summary["dollars"]
    parts = ", ".join(f"{_cents(value)} {market}" for market, value in spent["by_market"].items())
    parts = parts or "no machine that was used has a price"
    sentences = [f"In {clock(summary['simulated_seconds'])}, {_cents(spent['per_hour'])} an hour: {parts}."]
    if cut := unfinished(summary):
        sentences.append(f"Not in it: {cut}.")
    if used := ", ".join(f"{name} {share:.0%}" for name, share in summary["utilisation"].items()):
        sentences.append(f"Capacity used while serving: {used}.")
    if serving := summary["serving_machines"]:
        most = f"99% of it at most {count(serving['p99'])}, never more than {count(serving['max'])}"
        sentences.append(f"Half of the time at most {_of(serving['p50'], 'machine')} served, {most}.")
    sentences += evictions(summary)
    base = summary.get("baseline")
    if base and base.get("clusters") == 1:
        sentences.append(ALONE)
    elif base:
        less = "less" if base["saved"] >= 0 else "more"
        sentences.append(
            f"{_cents(abs(base['saved']))} ({abs(base['saved_share']):.0%}) {less} than"
            f" BigFleet with {SHARDINGS[base['sharding']]}, which costs {_cents(base['dollars'])}."
        )
    return Answer("What did it cost?", _cents(spent["total"]), sentences)


def evictions(summary: dict[str, Any]) -> list[str]:
    """What became of the budget for moving pods to save money, where there is one."""
    told = summary.get("evictions")
    if not told:
        return []
    left = told["left"]
    earned, spent, total = (count(each) for each in (told["earned"], told["spent"], sum(left.values())))
    said = [f"Moves of pods to save money: {earned} earned, {spent} spent, {total} left."]
    empty = [name for name, pods in left.items() if pods <= 0]
    if empty:
        few = ", ".join(empty[:CLUSTERS_TOLD])
        more = f" and {count(len(empty) - CLUSTERS_TOLD)} more" if len(empty) > CLUSTERS_TOLD else ""
        said.append(f"None left in {few}{more}: nodes in use there are closed at most, and not emptied.")
    return said


def unfinished(summary: dict[str, Any]) -> str:
    """What the dollars are not the whole of; empty when every job ended."""
    left = summary.get("unfinished", {})
    if not left.get("jobs"):
        return ""
    return (
        f"{_of(left['jobs'], 'job')} had not ended when the run did, with up to"
        f" {clock(left['longest_left_seconds'])} left, {left['pod_hours_left']:,.1f} hours of their pods in all"
    )


def _waited(summary: dict[str, Any], samples: Sequence[Sample]) -> Answer:
    waits, pods = summary["time_to_capacity_seconds"], summary["pods"]
    words = class_words(summary.get("priorities", {}))
    sentences = [
        f"{words[name].capitalize()} pods: half ran {_wait(row['p50'])}, 99% {_wait(row['p99'])}."
        for name, row in waits.items()
    ]
    worst = max(started(samples), key=lambda sample: sample.waiting, default=None)
    if worst is not None and worst.waiting:
        when = "After the start at" if len(started(samples)) < len(samples) else "At"
        at = clock(worst.at / SECOND)
        sentences.append(f"{when} most {_of(worst.waiting, 'pod')} waited at a time (at {at}).")
    left = pods["live"] - pods["running"]
    still = f"{count(left)} of {_of(pods['live'], 'pod')} still wait" if left else f"All {_of(pods['live'], 'pod')} run"
    rows = f", {_of(summary['shortfalls'], 'row')} of demand short" if summary["shortfalls"] else ""
    sentences.append(f"{still} at the end{rows}.")
    base = summary.get("baseline")
    if base and base.get("clusters") != 1:
        others = ", ".join(f"{words[name]} {_wait(wait)}" for name, wait in base["time_to_capacity_p99"].items())
        sentences.append(f"With {SHARDINGS[base['sharding']]} 99% run: {others}.")
    slowest = _wait(max((row["max"] for row in waits.values()), default=0.0))
    glance = f"{_of(left, 'pod')} to the end" if left else f"All ran {slowest}" if waits else "Nobody"
    return Answer("Who waited, and how long?", glance, sentences, bad=left > 0)


def _interrupted(summary: dict[str, Any]) -> Answer:
    found = summary["interruptions"]
    total = sum(found["pods"].values())
    lost, preemptions = found["machines_lost"], summary["preemptions"]
    sentences = []
    if total:
        sentences.append(
            ", ".join(f"{count(n)} {CAUSES.get(cause, cause)}" for cause, n in found["pods"].items()) + "."
        )
        words = class_words(summary.get("priorities", {}))
        by_class = ", ".join(f"{count(n)} {words[name]}" for name, n in found["by_class"].items())
        sentences.append(f"By class: {by_class}.")
    else:
        sentences.append("No running pod was thrown out.")
    if anew := found.get("jobs_begun_anew"):
        hours = found["pod_hours_run_again"]
        sentences.append(
            f"{_of(anew, 'time')} a job lost a pod and began anew: {hours:,.1f} hours of their pods were run again."
        )
    if lost:
        sentences.append(f"{_of(lost, 'serving machine')} failed or vanished.")
    if preemptions:
        sentences.append(f"The shard preempted {_of(preemptions, 'machine')}.")
    return Answer("What was interrupted?", _of(total, "pod") if total else "Nothing", sentences)


def _of(number: int, thing: str) -> str:
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def _cents(value: float) -> str:
    """Sums of money, unlike ticks, always have cents."""
    return f"${value:,.2f}" if value >= 0.01 or not value else dollars(value)


def _wait(seconds: float) -> str:
    return f"within {clock(seconds)}" if seconds >= 0.05 else "at once"
