"""From a demand history to a scenario: a CSV of jobs mapped by a small YAML file, or a shard's recording.

What comes out is an ordinary scenario, so that everything a scenario can do (other prices, other policies, failures,
a baseline) can be asked of one's own past: what if.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from bigfleet.sim.document.document import Amounts, DocumentError, Nanoseconds, compose, item, placed, read, text_of
from bigfleet.sim.replay.job_table import Job, JobTable, read_jobs
from bigfleet.sim.scenario.expectations import Expectation
from bigfleet.sim.scenario.scenario import ClusterSpec, Detail, OperatorKind, PolicySettings, Scenario, Sharding
from bigfleet.sim.scenario.shapes import PodShape
from bigfleet.sim.scenario.supply import Fleet, priced_as
from bigfleet.sim.scenario.workloads import Trace, TraceJob
from bigfleet.virtual.kernel import HOUR, MINUTE

TOLD_IN_FULL = 48 * HOUR
"""Histories up to this long get an event log of every decision; longer ones an hourly one."""
MOST_ALIVE = 5_000_000
"""Pods of the largest fleet that is simulated: some 260 bytes each while they wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMapping(JobTable):
    """How to read a CSV of jobs, and the fleet it would have run on."""

    fleets: tuple[Fleet, ...] = item("the providers to buy from")
    name: str = item("the scenario's name", default="replay")
    tail: Nanoseconds = item(
        "how long to go on after the last arrival; jobs that take longer are cut off", default=Nanoseconds(HOUR)
    )
    checkpoints: bool = item(
        "whether a job that lost a pod goes on where it was, and does not begin anew", default=False
    )
    overhead: Amounts = item(
        "what every node has less than its type lists: DaemonSets, and what the system reserves", default={}
    )
    policy: PolicySettings = item("the engine's policy", default=PolicySettings())
    operator: OperatorKind = item("what operators say of their clusters' pods", default=OperatorKind.PLACEMENT)
    baseline: Sharding | None = item("run the same demand this way too and compare", default=None)
    expect: tuple[Expectation, ...] = item("what must hold at the end", default=())


def replay_csv(csv_path: Path, mapping_path: Path) -> Scenario:
    """The scenario of a job history."""
    node = compose(text_of(mapping_path), mapping_path.name)
    mapping = read(ReplayMapping, node)
    rows = _gathered(read_jobs(csv_path, mapping))
    if not rows:
        raise DocumentError(f"{csv_path.name}: has no job; give at least one row below the header")
    if (alive := _most_alive(rows)) > MOST_ALIVE:
        raise DocumentError(
            f"{csv_path.name}: {alive:,} pods would be alive at once; give a history of at most {MOST_ALIVE:,}, such "
            "as that of some of its clusters"
        )
    first = min(row.arrival for row in rows)
    shapes: dict[str, PodShape] = {}
    jobs = []
    for number, row in enumerate(rows):
        name = _shape_name(row.shape)
        shapes[name] = row.shape
        jobs.append(
            TraceJob(
                name=f"row-{number + 1}",
                cluster=row.cluster,
                shape=name,
                arrival=Nanoseconds(row.arrival - first),
                duration=None if row.duration is None else Nanoseconds(row.duration),
                pods=row.pods,
            )
        )
    last = max(job.arrival for job in jobs)
    duration = Nanoseconds(-(-(last + mapping.tail) // MINUTE) * MINUTE)
    try:
        return Scenario(
            name=mapping.name,
            description=f"{len(jobs)} jobs of {csv_path.name}, replayed.",
            duration=duration,
            fleets=mapping.fleets,
            clusters=tuple(
                ClusterSpec(name=name, overhead=mapping.overhead) for name in sorted({job.cluster for job in jobs})
            ),
            shapes=shapes,
            workloads=(Trace(name="history", jobs=tuple(jobs), checkpoints=mapping.checkpoints),),
            expect=mapping.expect,
            policy=mapping.policy,
            operator=mapping.operator,
            baseline=mapping.baseline,
            trace=Detail.MACHINES if duration <= TOLD_IN_FULL else Detail.HOURLY,
        )
    except ValueError as error:
        raise placed(error, node) from error


def _gathered(rows: Iterable[Job]) -> list[Job]:
    """The jobs, with the rows of one gang as one: it comes with its first member and ends with its last.

    The simulator's gangs are of equal pods; members of another size are a gang of their own beside it. A name that is
    used again after all of them have ended, as that of a nightly run, is another gang.
    """
    found: list[tuple[int, Job]] = []
    gangs: dict[tuple[str, str, str], list[tuple[int, Job]]] = {}
    for place, row in enumerate(rows):
        if row.gang:
            gangs.setdefault((row.cluster, row.gang, _shape_name(row.shape)), []).append((place, row))
        else:
            found.append((place, row))
    for members in gangs.values():
        found += _runs(sorted(members, key=lambda each: each[1].arrival))
    return [row for _, row in sorted(found, key=lambda each: each[0])]


def _runs(members: Iterable[tuple[int, Job]]) -> Iterator[tuple[int, Job]]:
    """Rows of one gang in order of arrival as the jobs they are: one for as long as some member runs."""
    place, run = -1, None
    for at, row in members:
        if run is None or (run.duration is not None and row.arrival >= run.arrival + run.duration):
            if run is not None:
                yield place, run
            place, run = at, row
            continue
        ends = [None if each.duration is None else each.arrival + each.duration for each in (run, row)]
        last = None if None in ends else max(end for end in ends if end is not None)
        place, run = (
            min(place, at),
            replace(run, duration=None if last is None else last - run.arrival, pods=run.pods + row.pods),
        )
    if run is not None:
        yield place, run


def _most_alive(rows: Sequence[Job]) -> int:
    """How many pods live at the same moment, if each starts when it arrives; what ends makes room for what comes."""
    changes = [(row.arrival, row.pods) for row in rows]
    changes += [(row.arrival + row.duration, -row.pods) for row in rows if row.duration is not None]
    return max(accumulate(pods for _, pods in sorted(changes)))


def what_if(scenario: Scenario, *, prices: Mapping[str, float] = {}, changes: Mapping[str, Any] = {}) -> Scenario:
    """The same demand at other prices (by offer, TYPE/MARKET or instance type) or under another policy."""
    unknown = dict(prices)
    fleets = []
    for fleet in scenario.fleets:
        offers = []
        for offer in fleet.offers:
            name = priced_as(prices, offer.instance_type, offer.capacity_type, offer.name)
            unknown.pop(name, None)
            offers.append(replace(offer, price_per_hour=prices[name]) if name else offer)
        fleets.append(replace(fleet, offers=tuple(offers)))
    if unknown:
        offers = [offer for fleet in scenario.fleets for offer in fleet.offers]
        names = sorted({offer.name for offer in offers} | {f"{o.instance_type}/{o.capacity_type}" for o in offers})
        raise DocumentError(f"--price names {next(iter(unknown))!r}; give one of {', '.join(names)}")
    return scenario.with_(fleets=tuple(fleets), policy=replace(scenario.policy, **changes))


def _shape_name(shape: PodShape) -> str:
    """A readable name; shapes that differ in anything get different ones."""
    size = "-".join(f"{amount}{name.rpartition('/')[2]}" for name, amount in sorted(shape.resources.items()))
    digest = hashlib.sha256(repr(shape).encode()).hexdigest()[:6]
    return f"p{shape.priority}-{size}-{digest}"
