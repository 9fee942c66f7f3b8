"""From a demand history to a scenario: a CSV of jobs mapped by a small YAML file, or a shard's recording.

What comes out is an ordinary scenario, so that everything a scenario can do (other prices, other policies, failures,
a baseline) can be asked of one's own past: what if.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from bigfleet.model.quantity import QuantityError, from_units, to_units
from bigfleet.sim.document import Amounts, DocumentError, Dollars, Nanoseconds, compose, item, read
from bigfleet.sim.expectations import Expectation
from bigfleet.sim.kernel import HOUR, MINUTE, SECOND
from bigfleet.sim.scenario import ClusterSpec, Detail, PolicySettings, Scenario, Sharding
from bigfleet.sim.shapes import PodShape
from bigfleet.sim.supply import Fleet
from bigfleet.sim.workloads import Trace, TraceJob


class MemoryUnit(StrEnum):
    """What a bare number in the memory column means."""

    BYTES = "bytes"
    MIB = "MiB"
    GIB = "GiB"


class TimeUnit(StrEnum):
    """What a bare number in a time column means."""

    SECONDS = "s"
    MINUTES = "m"
    HOURS = "h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the CSV holds what; a column that is not named is not read."""

    arrival: str = item("when the job came: a number, or a date and time", default="arrival")
    duration: str = item("how long it ran; empty cells run for ever", default="duration")
    cpu: str = item("cores of one pod, or a quantity such as 500m", default="cpu")
    memory: str = item("memory of one pod, or a quantity such as 4Gi", default="memory")
    gpus: str = item("GPUs of one pod", default="gpus")
    priority: str = item("the priority: a number, or a name from `priorities`", default="priority")
    cluster: str = item("the cluster", default="cluster")
    pods: str = item("how many equal pods the job has", default="pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityLevel:
    """What a priority of the history means to BigFleet."""

    priority: int = item("the priority")
    interruption_penalty: Dollars = item("dollars an interruption costs", default=Dollars(0.0))
    reclamation_penalty: Dollars = item("dollars a planned move costs", default=Dollars(0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMapping:
    """How to read a CSV of jobs, and the fleet it would have run on."""

    fleets: tuple[Fleet, ...] = item("the providers to buy from")
    name: str = item("the scenario's name", default="replay")
    columns: Columns = item("which column holds what", default=Columns())
    time_unit: TimeUnit = item("unit of bare numbers in time columns", default=TimeUnit.SECONDS)
    memory_unit: MemoryUnit = item("unit of bare numbers in the memory column", default=MemoryUnit.GIB)
    priorities: dict[str, PriorityLevel] = item("meaning of the priority column's values", default={})
    cluster: str = item("the cluster of rows that name none", default="cluster")
    gpu_resource: str = item("the resource a GPU is", default="nvidia.com/gpu")
    tail: Nanoseconds = item("how long to go on after the last arrival", default=Nanoseconds(HOUR))
    policy: PolicySettings = item("the engine's policy", default=PolicySettings())
    baseline: Sharding | None = item("run the same demand this way too and compare", default=None)
    expect: tuple[Expectation, ...] = item("what must hold at the end", default=())


def replay_csv(csv_path: Path, mapping_path: Path) -> Scenario:
    """The scenario of a job history."""
    mapping = read(ReplayMapping, compose(_text(mapping_path), mapping_path.name))
    rows = list(_rows(csv_path, mapping))
    if not rows:
        raise DocumentError(f"{csv_path.name}: has no job; give at least one row below the header")
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
    return Scenario(
        name=mapping.name,
        description=f"{len(jobs)} jobs of {csv_path.name}, replayed.",
        duration=Nanoseconds(-(-(last + mapping.tail) // MINUTE) * MINUTE),
        fleets=mapping.fleets,
        clusters=tuple(ClusterSpec(name=name) for name in sorted({job.cluster for job in jobs})),
        shapes=shapes,
        workloads=(Trace(name="history", jobs=tuple(jobs)),),
        expect=mapping.expect,
        policy=mapping.policy,
        baseline=mapping.baseline,
        trace=Detail.HOURLY,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    arrival: int
    duration: int | None
    cluster: str
    pods: int
    shape: PodShape


def _rows(path: Path, mapping: ReplayMapping) -> Iterable[_Job]:
    columns = mapping.columns
    lines = csv.DictReader(_text(path).splitlines())
    if columns.arrival not in (lines.fieldnames or ()):
        raise DocumentError(
            f"{path.name}:1: has no column {columns.arrival!r}; name the arrival column under `columns`"
        )
    for number, row in enumerate(lines, start=2):
        cells = _Cells(path.name, number, row)
        yield _Job(
            arrival=cells.time(columns.arrival, mapping.time_unit),
            duration=cells.time(columns.duration, mapping.time_unit) if cells.has(columns.duration) else None,
            cluster=_label(cells.text(columns.cluster, mapping.cluster)),
            pods=cells.whole(columns.pods, 1),
            shape=_shape(cells, mapping),
        )


def _shape(cells: _Cells, mapping: ReplayMapping) -> PodShape:
    columns = mapping.columns
    amounts: dict[str, str] = {}
    if cells.has(columns.cpu):
        amounts["cpu"] = cells.quantity(columns.cpu, "cpu", "")
    if cells.has(columns.memory):
        suffix = {MemoryUnit.BYTES: "", MemoryUnit.MIB: "Mi", MemoryUnit.GIB: "Gi"}[mapping.memory_unit]
        amounts["memory"] = cells.quantity(columns.memory, "memory", suffix)
    if cells.has(columns.gpus) and cells.whole(columns.gpus, 0):
        amounts[mapping.gpu_resource] = str(cells.whole(columns.gpus, 0))
    amounts = {name: amount for name, amount in amounts.items() if to_units(name, amount, round_up=True)}
    if not amounts:
        raise cells.refuse(columns.cpu, "a job that asks for cpu, memory or gpus")
    named = cells.text(columns.priority, "0")
    level = mapping.priorities.get(named)
    if level is None:
        level = PriorityLevel(priority=cells.whole(columns.priority, 0))
    return PodShape(
        resources=Amounts(amounts),
        priority=level.priority,
        interruption_penalty=level.interruption_penalty,
        reclamation_penalty=level.reclamation_penalty,
    )


class _Cells:
    """One row; complaints name file, line and column."""

    def __init__(self, where: str, line: int, row: Mapping[str, str | None]) -> None:
        self._where, self._line, self._row = where, line, row

    def has(self, column: str) -> bool:
        return bool((self._row.get(column) or "").strip())

    def text(self, column: str, default: str) -> str:
        return (self._row.get(column) or "").strip() or default

    def whole(self, column: str, default: int) -> int:
        text = self.text(column, str(default))
        try:
            value = math.ceil(float(text))
        except ValueError:
            raise self.refuse(column, "a whole number") from None
        if value < 0:
            raise self.refuse(column, "a number of at least 0")
        return value

    def quantity(self, column: str, resource: str, suffix: str) -> str:
        text = self.text(column, "0")
        if text.replace(".", "", 1).isdigit():
            text += suffix
        try:
            units = to_units(resource, text, round_up=True)
        except QuantityError:
            raise self.refuse(column, "a number or a quantity such as 500m or 4Gi") from None
        return from_units(resource, units)

    def time(self, column: str, unit: TimeUnit) -> int:
        text = self.text(column, "")
        size = {TimeUnit.SECONDS: SECOND, TimeUnit.MINUTES: MINUTE, TimeUnit.HOURS: HOUR}[unit]
        try:
            return round(float(text) * size)
        except ValueError:
            pass
        try:
            return round(datetime.fromisoformat(text).timestamp() * SECOND)
        except ValueError:
            raise self.refuse(column, "a number or a date such as 2026-01-31T08:00:00+00:00") from None

    def refuse(self, column: str, accepted: str) -> DocumentError:
        return DocumentError(f"{self._where}:{self._line}: {column} is {self._row.get(column)!r}; give {accepted}")


def what_if(scenario: Scenario, *, prices: Mapping[str, float] = {}, changes: Mapping[str, Any] = {}) -> Scenario:
    """The same demand at other prices (by offer or instance type) or under another policy."""
    unknown = dict(prices)
    fleets = []
    for fleet in scenario.fleets:
        offers = []
        for offer in fleet.offers:
            price = prices.get(offer.name, prices.get(offer.instance_type))
            unknown.pop(offer.name, None)
            unknown.pop(offer.instance_type, None)
            offers.append(offer if price is None else replace(offer, price_per_hour=price))
        fleets.append(replace(fleet, offers=tuple(offers)))
    if unknown:
        names = sorted(offer.name for fleet in scenario.fleets for offer in fleet.offers)
        raise DocumentError(f"--price names {next(iter(unknown))!r}; known offers are {', '.join(names)}")
    return scenario.with_(fleets=tuple(fleets), policy=replace(scenario.policy, **changes))


def _shape_name(shape: PodShape) -> str:
    """A readable name; shapes that differ in anything get different ones."""
    size = "-".join(f"{amount}{name.rpartition('/')[2]}" for name, amount in sorted(shape.resources.items()))
    digest = hashlib.sha256(repr(shape).encode()).hexdigest()[:6]
    return f"p{shape.priority}-{size}-{digest}"


def _label(text: str) -> str:
    """A cluster name Kubernetes would accept."""
    kept = "".join(char if char.isalnum() else "-" for char in text.lower()).strip("-")
    return kept[:60] or "cluster"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from error
