"""A demand history as people have it: a CSV of jobs or pods under whatever column names, read strictly.

Complaints name file, line and column. A column the mapping names must exist: a missing one would make every job small.
It must exist once, every row must have a cell for every column, and moments more than ten years apart are taken for a
mixture of units: what is misread silently would be answered with a wrong price. More pods than any fleet here has are
a column taken for another, and would fill the memory before they were told.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from bigfleet.model.quantity import to_units
from bigfleet.sim.document.document import Amounts, DocumentError, Dollars, item, text_of
from bigfleet.sim.document.text import label
from bigfleet.sim.replay.cells import Cells, Units
from bigfleet.sim.replay.column_units import CpuUnit, MemoryUnit, TimeUnit
from bigfleet.sim.scenario.shapes import Colocation, PodShape, RequirementSpec
from bigfleet.virtual.kernel import HOUR

DELIMITERS = ",;\t|"
LONGEST = 10 * 365 * 24 * HOUR
"""More than a history lasts: moments further apart are in different units, or one of them is a slip."""
MOST_PODS = 1_000_000
"""Of one row. A larger number was meant for another column."""
MOST_GPUS = 10_000
"""Of one pod, slices of GPUs too: more than any one machine has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the CSV holds what; what has no column is left out."""

    arrival: str = item("when the job came: a number, or a date and time", default="arrival")
    duration: str = item("how long it ran; empty cells run for ever", default="duration")
    start: str = item("when it began to run; where only `end` is known, it ran from here", default="start")
    end: str = item("when it ended, as a moment; instead of a duration", default="end")
    cpu: str = item("cores of one pod, or a quantity such as 500m", default="cpu")
    memory: str = item("memory of one pod, or a quantity such as 4Gi", default="memory")
    gpus: str = item("GPUs of one pod", default="gpus")
    priority: str = item("the priority: a number, or a name from `priorities`", default="priority")
    cluster: str = item("the cluster", default="cluster")
    pods: str = item("how many equal pods the job has", default="pods")
    gang: str = item("the gang: rows of one name, cluster and size run in one domain or not at all", default="gang")

    def __post_init__(self) -> None:
        known = {each.name: each.default for each in fields(self)}
        if self.duration != known["duration"] and self.end != known["end"]:
            raise ValueError(f"names both duration ({self.duration}) and end ({self.end}); give one of them")


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
        "unit of bare numbers in time columns; left out, by the column's name (run_minutes), else seconds",
        default=None,
    )
    moment_unit: TimeUnit | None = item(
        "unit of bare numbers that are moments (arrival, start, end), where durations have another; left out, as "
        "time_unit, or by the column's name (submit_ms), else seconds",
        default=None,
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
    gang_within: Colocation = item("the domain that a gang of the gang column shares", default=Colocation.ZONE)
    affinity: dict[str, str] = item(
        "column to the node label that must have one of the cell's values; empty cells run anywhere", default={}
    )

    def __post_init__(self) -> None:
        if self.gang_within is Colocation.NONE:
            raise ValueError("gang_within is none; give rack or zone, or leave the gang column out")


@dataclass(frozen=True, slots=True)
class Job:
    """One row. Times in nanoseconds; arrivals by a clock of the history's own."""

    arrival: int
    duration: int | None
    cluster: str
    pods: int
    shape: PodShape
    gang: str = ""


def read_jobs(path: Path, table: JobTable) -> Iterator[Job]:
    """The jobs of a file, in its order."""
    text = text_of(path)
    head = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=head.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns = {each.name: getattr(table.columns, each.name) for each in fields(table.columns)}
    given = {key: getattr(table, key) for key in ("time_unit", "moment_unit", "cpu_unit", "memory_unit")}
    units, span = Units(columns, given), _Span(path.name)
    try:
        header = next(lines, [])
        _check_header(path.name, header, table)
        for row in filter(None, lines):
            _check_length(path.name, lines.line_num, row, len(header))
            cells = Cells(path.name, lines.line_num, dict(zip(header, row, strict=False)), units)
            job = _job(cells, table)
            span.widen(job.arrival, lines.line_num)
            yield job
    except csv.Error as error:
        raise DocumentError(f"{path.name}:{lines.line_num}: not CSV: {error}") from error


def _check_header(where: str, header: list[str], table: JobTable) -> None:
    columns = table.columns
    wanted = [
        (name, each.name)
        for each in fields(columns)
        if (name := getattr(columns, each.name)) != each.default or each.name == "arrival"
    ]
    for name, meaning in [*wanted, *((column, f"affinity to {key}") for column, key in table.affinity.items())]:
        if name not in header:
            found = ", ".join(header) or "none: it is empty"
            raise DocumentError(f"{where}:1: has no column {name!r} for {meaning}; name one of its own: {found}")
    read = {*(getattr(columns, each.name) for each in fields(columns)), *table.affinity}
    for name, times in Counter(header).items():
        if times > 1 and name in read:
            raise DocumentError(
                f"{where}:1: has {times} columns {name!r}, and the map reads one; rename all but the one it means"
            )


def _check_length(where: str, line: int, row: Sequence[str], columns: int) -> None:
    """A row has a cell for every column. Empty cells beyond them, as spreadsheets write, hold nothing to lose."""
    if len(row) < columns or any(cell.strip() for cell in row[columns:]):
        raise DocumentError(
            f"{where}:{line}: has {len(row)} cells, but the header has {columns} columns; give one for each, empty "
            "where nothing is known, and quote a cell that holds the separator"
        )


class _Span:
    """The first and the last arrival so far, and the lines they are on."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def widen(self, arrival: int, line: int) -> None:
        self._first = min(self._first or (arrival, line), (arrival, line))
        self._last = max(self._last or (arrival, line), (arrival, line))
        if self._last[0] - self._first[0] > LONGEST:
            years = (self._last[0] - self._first[0]) // (LONGEST // 10)
            raise DocumentError(
                f"{self._where}:{line}: the arrivals of lines {self._first[1]} and {self._last[1]} are {years:,} years "
                "apart; give moments of one unit (`moment_unit` says which), or split the history"
            )


def _job(cells: Cells, table: JobTable) -> Job:
    columns = table.columns
    arrival = cells.instant(columns.arrival, "arrival")
    return Job(
        arrival=arrival,
        duration=_duration(cells, columns, arrival),
        cluster=label(cells.text(columns.cluster, table.cluster)),
        pods=cells.whole(columns.pods, 1, low=1, high=MOST_PODS, exact=True),
        shape=_shape(cells, table),
        gang=cells.text(columns.gang, ""),
    )


def _duration(cells: Cells, columns: Columns, arrival: int) -> int | None:
    """What the row says of its run time, or the time from its start (its arrival, where no start is known) to its end.

    Time in somebody else's queue is not run time: where a history has both moments, `start` keeps it out.
    """
    if cells.has(columns.duration):
        return cells.duration(columns.duration)
    if not cells.has(columns.end):
        return None
    began = cells.instant(columns.start, "start") if cells.has(columns.start) else arrival
    ended = cells.instant(columns.end, "end")
    if ended < began:
        raise cells.refuse(columns.end, "a moment that is not before the row's start")
    if ended - began > LONGEST:
        raise cells.refuse(columns.end, "a moment within ten years of the row's start, and in its unit (`moment_unit`)")
    return ended - began


def _shape(cells: Cells, table: JobTable) -> PodShape:
    columns = table.columns
    amounts: dict[str, str] = {}
    if cells.has(columns.cpu):
        amounts["cpu"] = cells.quantity(columns.cpu, "cpu")
    if cells.has(columns.memory):
        amounts["memory"] = cells.quantity(columns.memory, "memory")
    if cells.has(columns.gpus) and (gpus := cells.whole(columns.gpus, 0, low=0, high=MOST_GPUS)):
        amounts[table.gpu_resource] = str(gpus)
    amounts = {name: amount for name, amount in amounts.items() if to_units(name, amount, round_up=True)}
    if not amounts:
        raise cells.refuse(columns.cpu, "a job that asks for cpu, memory or gpus")
    level = table.priorities.get(cells.text(columns.priority, "0"))
    if level is None:
        known = ", ".join(table.priorities) or "none yet"
        accepted = f"a whole number of 32 bits, or a name under `priorities` ({known})"
        priority = cells.whole(columns.priority, 0, low=-(2**31), high=2**31 - 1, accepted=accepted)
        level = PriorityLevel(priority=priority)
    return PodShape(
        resources=Amounts(amounts),
        priority=level.priority,
        interruption_penalty=level.interruption_penalty,
        reclamation_penalty=level.reclamation_penalty,
        same=table.gang_within if cells.has(columns.gang) else Colocation.NONE,
        requirements=tuple(
            RequirementSpec(key=key, values=cells.several(column))
            for column, key in sorted(table.affinity.items())
            if cells.has(column)
        ),
    )
