"""A demand history as people have it: a CSV of jobs or pods under whatever column names, read strictly.

Complaints name file, line and column. A column the mapping names must exist: a missing one would make every job small.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from bigfleet.model.quantity import QuantityError, from_units, to_units
from bigfleet.sim.document.document import Amounts, DocumentError, Dollars, item, text_of
from bigfleet.sim.document.text import label
from bigfleet.sim.replay.column_units import SIZES, SUFFIXES, CpuUnit, MemoryUnit, TimeUnit, Unit, unit_of
from bigfleet.sim.scenario.shapes import PodShape
from bigfleet.virtual.kernel import HOUR, MINUTE, SECOND

DELIMITERS = ",;\t|"
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2}):(\d{2}(?:\.\d+)?)")
"""A duration as batch systems print it: days-hours:minutes:seconds."""
_UNITS: dict[str, tuple[str, StrEnum]] = {
    "arrival": ("time_unit", TimeUnit.SECONDS),
    "duration": ("time_unit", TimeUnit.SECONDS),
    "cpu": ("cpu_unit", CpuUnit.CORES),
    "memory": ("memory_unit", MemoryUnit.GIB),
}
"""Per column: the key of the map that says its unit, and the unit where nothing says one."""
_LARGEST = {"cpu": "4k", "memory": "64Ti"}
"""More than any one machine has. A larger number whose unit nobody said was meant in another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the CSV holds what; what has no column is left out."""

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

    priority: int = item("the priority", low=-(2**31), high=2**31 - 1)
    interruption_penalty: Dollars = item("dollars an interruption costs", default=Dollars(0.0))
    reclamation_penalty: Dollars = item("dollars a planned move costs", default=Dollars(0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable:
    """How to read a CSV of jobs."""

    columns: Columns = item("which column holds what", default=Columns())
    time_unit: TimeUnit | None = item(
        "unit of bare numbers in time columns; left out, by the column's name (run_minutes), else seconds", default=None
    )
    cpu_unit: CpuUnit | None = item(
        "unit of bare numbers in the cpu column; left out, by the column's name (cpu_milli), else cores", default=None
    )
    memory_unit: MemoryUnit | None = item(
        "unit of bare numbers in the memory column; left out, by the column's name (mem_mib), else GiB", default=None
    )
    priorities: dict[str, PriorityLevel] = item("meaning of the priority column's values", default={})
    cluster: str = item("the cluster of rows that name none", default="cluster")
    gpu_resource: str = item("the resource a GPU is", default="nvidia.com/gpu")


@dataclass(frozen=True, slots=True)
class Job:
    """One row. Times in nanoseconds; arrivals by a clock of the history's own."""

    arrival: int
    duration: int | None
    cluster: str
    pods: int
    shape: PodShape


def read_jobs(path: Path, table: JobTable) -> Iterator[Job]:
    """The jobs of a file, in its order."""
    text = text_of(path)
    head = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=head.count)
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    _check_header(path.name, list(lines.fieldnames or ()), table.columns)
    units = _Units(table)
    try:
        for row in lines:
            yield _job(_Cells(path.name, lines.line_num, row, units), table)
    except csv.Error as error:
        raise DocumentError(f"{path.name}:{lines.line_num}: not CSV: {error}") from error


def _check_header(where: str, header: list[str], columns: Columns) -> None:
    for each in fields(columns):
        name = getattr(columns, each.name)
        if name not in header and (name != each.default or each.name == "arrival"):
            found = ", ".join(header) or "none: it is empty"
            raise DocumentError(f"{where}:1: has no column {name!r} for {each.name}; name one of its own: {found}")


def _job(cells: _Cells, table: JobTable) -> Job:
    columns = table.columns
    return Job(
        arrival=cells.instant(columns.arrival),
        duration=cells.duration(columns.duration) if cells.has(columns.duration) else None,
        cluster=label(cells.text(columns.cluster, table.cluster)),
        pods=cells.whole(columns.pods, 1, low=1),
        shape=_shape(cells, table),
    )


def _shape(cells: _Cells, table: JobTable) -> PodShape:
    columns = table.columns
    amounts: dict[str, str] = {}
    if cells.has(columns.cpu):
        amounts["cpu"] = cells.quantity(columns.cpu, "cpu")
    if cells.has(columns.memory):
        amounts["memory"] = cells.quantity(columns.memory, "memory")
    if cells.has(columns.gpus) and cells.whole(columns.gpus, 0, low=0):
        amounts[table.gpu_resource] = str(cells.whole(columns.gpus, 0, low=0))
    amounts = {name: amount for name, amount in amounts.items() if to_units(name, amount, round_up=True)}
    if not amounts:
        raise cells.refuse(columns.cpu, "a job that asks for cpu, memory or gpus")
    level = table.priorities.get(cells.text(columns.priority, "0"))
    if level is None:
        known = ", ".join(table.priorities) or "none yet"
        accepted = f"a whole number, or a name under `priorities` ({known})"
        level = PriorityLevel(priority=cells.whole(columns.priority, 0, low=-(2**31), accepted=accepted))
    return PodShape(
        resources=Amounts(amounts),
        priority=level.priority,
        interruption_penalty=level.interruption_penalty,
        reclamation_penalty=level.reclamation_penalty,
    )


class _Units:
    """The units of a table's columns, looked up when the first bare number is met: dates and quantities need none."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._found: dict[str, Unit] = {}

    def of(self, field: str) -> Unit:
        if field not in self._found:
            option, default = _UNITS[field]
            column, given = getattr(self._table.columns, field), getattr(self._table, option)
            self._found[field] = unit_of(field, column, option, given, default)
        return self._found[field]


class _Cells:
    """One row."""

    def __init__(self, where: str, line: int, row: Mapping[str, str | None], units: _Units) -> None:
        self._where, self._line, self._row, self._units = where, line, row, units

    def has(self, column: str) -> bool:
        return bool((self._row.get(column) or "").strip())

    def text(self, column: str, default: str) -> str:
        return (self._row.get(column) or "").strip() or default

    def whole(self, column: str, default: int, *, low: int, accepted: str = "") -> int:
        value = self._number(self.text(column, str(default)))
        if value is None or value < low:
            raise self.refuse(column, accepted or f"a whole number of at least {low}")
        return math.ceil(value)

    def quantity(self, column: str, resource: str) -> str:
        text, guessed = self.text(column, "0"), False
        if text.replace(".", "", 1).isdigit():
            unit = self._unit(resource)
            text, guessed = text + SUFFIXES[unit.of], not unit.said
        try:
            units = to_units(resource, text, round_up=True)
        except QuantityError:
            raise self.refuse(column, "a number or a quantity such as 500m or 4Gi") from None
        if units < 0:
            raise self.refuse(column, "an amount of at least 0")
        if guessed and units > to_units(resource, _LARGEST[resource], round_up=True):
            option, default = _UNITS[resource]
            raise self.refuse(
                column,
                f"{option}, one of {', '.join(type(default))}: no machine has so many {default}, and nothing else says"
                " what the number is in",
            )
        return from_units(resource, units)

    def instant(self, column: str) -> int:
        """A moment. Dates without a zone are taken as UTC, so that the same file means the same everywhere."""
        text = self.text(column, "")
        if (number := self._number(text)) is not None:
            return round(number * self._size("arrival"))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self.refuse(column, "a number or a date such as 2026-01-31T08:00:00+00:00") from None
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND)

    def duration(self, column: str) -> int:
        text = self.text(column, "")
        number, clock = self._number(text), _CLOCK.fullmatch(text)
        if number is not None and number >= 0:
            return round(number * self._size("duration"))
        if clock is not None:
            days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
            return round((days * 24 * HOUR) + hours * HOUR + minutes * MINUTE + seconds * SECOND)
        raise self.refuse(column, "a number of at least 0, or a duration such as 01:30:00 or 2-00:00:00")

    def _size(self, field: str) -> int:
        return SIZES[TimeUnit(self._unit(field).of)]

    def _unit(self, field: str) -> Unit:
        try:
            return self._units.of(field)
        except ValueError as error:
            raise DocumentError(f"{self._where}:{self._line}: {error}") from error

    def refuse(self, column: str, accepted: str) -> DocumentError:
        given = self._row.get(column) or ""
        return DocumentError(f"{self._where}:{self._line}: {column} is {given!r}; give {accepted}")

    @staticmethod
    def _number(text: str) -> float | None:
        try:
            value = float(text)
        except ValueError:
            return None
        return value if math.isfinite(value) else None
