"""The cells of one row of a job history: text, numbers, quantities, moments and durations, or a complaint that names
file, line and column. Knows which unit a bare number is in (`column_units`) and nothing of what a job is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from bigfleet.model.quantity import QuantityError, from_units, to_units
from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.replay.column_units import SIZES, SUFFIXES, CpuUnit, MemoryUnit, TimeUnit, Unit, unit_of
from bigfleet.virtual.kernel import HOUR, MICROSECOND, MINUTE, SECOND

_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2}):(\d{2}(?:\.\d+)?)")
"""A duration as batch systems print it: days-hours:minutes:seconds."""
_BETWEEN = re.compile(r"[\s,;|]+")
"""What separates several values of one cell; none of it may be part of a label's value."""
_UNITS: dict[str, tuple[str, StrEnum]] = {
    "arrival": ("moment_unit", TimeUnit.SECONDS),
    "duration": ("time_unit", TimeUnit.SECONDS),
    "start": ("moment_unit", TimeUnit.SECONDS),
    "end": ("moment_unit", TimeUnit.SECONDS),
    "cpu": ("cpu_unit", CpuUnit.CORES),
    "memory": ("memory_unit", MemoryUnit.GIB),
}
"""Per column: the key of the map that says its unit, and the unit where nothing says one."""
_LARGEST = {"cpu": "4k", "memory": "64Ti"}
"""More than any one machine has. A larger number whose unit nobody said was meant in another one."""

_LATEST = 5 * 10**9 * SECOND
"""In the year 2128. Where nobody said the unit of moments themselves, later ones were meant in another: milliseconds
since 1970 taken for seconds, or seconds since 1970 beside durations in minutes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Units:
    """The units of a table's columns, looked up when the first bare number is met: dates and quantities need none."""

    def __init__(self, columns: Mapping[str, str], given: Mapping[str, StrEnum | None]) -> None:
        """The column of each field, and what the map says of units under each of its keys."""
        self._columns, self._given = columns, given
        self._found: dict[str, Unit] = {}

    def of(self, field: str) -> Unit:
        if field not in self._found:
            option, default = _UNITS[field]
            given, times = self._given[option], self._given["time_unit"]
            if option == "moment_unit" and given is None and times is not None:
                # A map with one unit of time means moments too, as far as that makes sense of them.
                found = unit_of(field, self._columns[field], "time_unit", times, default)
                self._found[field] = Unit(found.of, said=False)
            else:
                self._found[field] = unit_of(field, self._columns[field], option, given, default)
        return self._found[field]


class Cells:
    """One row."""

    def __init__(self, where: str, line: int, row: Mapping[str, str], units: Units) -> None:
        self._where, self._line, self._row, self._units = where, line, row, units

    def has(self, column: str) -> bool:
        return bool((self._row.get(column) or "").strip())

    def text(self, column: str, default: str) -> str:
        return (self._row.get(column) or "").strip() or default

    def whole(
        self, column: str, default: int, *, low: int, high: int | None = None, accepted: str = "", exact: bool = False
    ) -> int:
        """`exact`: half of one is a mistake, and not one that is shared."""
        value = self._number(self.text(column, str(default)))
        broken = exact and value is not None and value != math.floor(value)
        if value is None or value < low or (high is not None and value > high) or broken:
            limit = "" if high is None else f" and at most {high:,}"
            raise self.refuse(column, accepted or f"a whole number of at least {low}{limit}")
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

    def several(self, column: str) -> tuple[str, ...]:
        """The values of a cell with one or more of them."""
        return tuple(sorted({value for value in _BETWEEN.split(self.text(column, "")) if value}))

    def instant(self, column: str, field: str) -> int:
        """A moment. Dates without a zone are taken as UTC, so that the same file means the same everywhere."""
        text = self.text(column, "")
        if (number := self._number(text)) is not None:
            unit = self._unit(field)
            moment = round(number * SIZES[TimeUnit(unit.of)])
            if moment >= _LATEST and not unit.said:
                accepted = ", ".join(TimeUnit)
                raise self.refuse(column, f"moment_unit, one of {accepted}: in {unit.of} it is after the year 2128")
            return moment
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            raise self.refuse(column, "a number or a date such as 2026-01-31T08:00:00+00:00") from None
        since = (date if date.tzinfo else date.replace(tzinfo=UTC)) - _EPOCH
        return since // timedelta(microseconds=1) * MICROSECOND

    def duration(self, column: str) -> int:
        text = self.text(column, "")
        number, clock = self._number(text), _CLOCK.fullmatch(text)
        if number is not None and number >= 0:
            return round(number * SIZES[TimeUnit(self._unit("duration").of)])
        if clock is not None:
            days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
            return round((days * 24 * HOUR) + hours * HOUR + minutes * MINUTE + seconds * SECOND)
        raise self.refuse(column, "a number of at least 0, or a duration such as 01:30:00 or 2-00:00:00")

    def _unit(self, field: str) -> Unit:
        try:
            return self._units.of(field)
        except ValueError as error:
            raise DocumentError(f"{self._where}:{self._line}: {error}") from error

    def refuse(self, column: str, accepted: str) -> DocumentError:
        given = self._row.get(column) or ""
        return DocumentError(f"{self._where}:{self._line}: {column} is {given!r}; give {accepted}")

    @staticmethod
    def _number(text: str) -> Decimal | None:
        """Exactly the number that was written: a float of nanoseconds since 1970 is off by a hundred."""
        try:
            return Decimal(text) if math.isfinite(float(text)) else None
        except ValueError:
            return None
