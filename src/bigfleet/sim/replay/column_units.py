"""In what unit a bare number of a job history is: what the map says, else what the column's name says, else a default.

A history whose unit is guessed wrongly is wrong by a thousand and still looks like an answer. So a name that says one
thing while the map says another is refused, as is a name whose unit has two meanings or none we know, and an amount
that no machine has ever had while neither name nor map gave a unit. Cells with a unit of their own need none of this.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from bigfleet.virtual.kernel import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND


class CpuUnit(StrEnum):
    """What a bare number in the cpu column means."""

    CORES = "cores"
    MILLI = "milli"


class MemoryUnit(StrEnum):
    """What a bare number in the memory column means."""

    BYTES = "bytes"
    KIB = "KiB"
    MIB = "MiB"
    GIB = "GiB"
    MB = "MB"
    GB = "GB"


class TimeUnit(StrEnum):
    """What a bare number in a time column means."""

    NANOSECONDS = "ns"
    MICROSECONDS = "us"
    MILLISECONDS = "ms"
    SECONDS = "s"
    MINUTES = "m"
    HOURS = "h"


SUFFIXES: dict[StrEnum, str] = {
    CpuUnit.CORES: "",
    CpuUnit.MILLI: "m",
    MemoryUnit.BYTES: "",
    MemoryUnit.KIB: "Ki",
    MemoryUnit.MIB: "Mi",
    MemoryUnit.GIB: "Gi",
    MemoryUnit.MB: "M",
    MemoryUnit.GB: "G",
}
"""What makes a quantity of a bare number."""

SIZES = {
    TimeUnit.NANOSECONDS: 1,
    TimeUnit.MICROSECONDS: MICROSECOND,
    TimeUnit.MILLISECONDS: MILLISECOND,
    TimeUnit.SECONDS: SECOND,
    TimeUnit.MINUTES: MINUTE,
    TimeUnit.HOURS: HOUR,
}

_WORDS: dict[type[StrEnum], dict[str, StrEnum | str]] = {
    CpuUnit: {
        **dict.fromkeys(("cores", "core", "vcpu", "vcpus", "cpus"), CpuUnit.CORES),
        **dict.fromkeys(
            ("milli", "millis", "millicores", "millicore", "millicpu", "mcpu", "mcores", "m"), CpuUnit.MILLI
        ),
        **dict.fromkeys(("percent", "pct", "nano", "nanos", "nanocores", "micro", "seconds", "sec", "mhz", "ghz"), ""),
    },
    MemoryUnit: {
        **dict.fromkeys(("b", "byte", "bytes"), MemoryUnit.BYTES),
        **dict.fromkeys(("kib", "ki"), MemoryUnit.KIB),
        **dict.fromkeys(("mib", "mi", "mebibytes"), MemoryUnit.MIB),
        **dict.fromkeys(("gib", "gi", "gibibytes"), MemoryUnit.GIB),
        **dict.fromkeys(("kb", "mb", "gb", "tb", "k", "m", "g", "percent", "pct", "pages"), ""),
    },
    TimeUnit: {
        **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), TimeUnit.MILLISECONDS),
        **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), TimeUnit.SECONDS),
        **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), TimeUnit.MINUTES),
        **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), TimeUnit.HOURS),
        **dict.fromkeys(("us", "usec", "micros", "microseconds"), TimeUnit.MICROSECONDS),
        **dict.fromkeys(("ns", "nanos", "nanoseconds"), TimeUnit.NANOSECONDS),
        **dict.fromkeys(("days", "d", "ticks"), ""),
    },
}
"""Words of column names that say a unit; an empty one says that there is a unit, but not which."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of one column's bare numbers, and whether anybody said so."""

    of: StrEnum
    said: bool


def unit_of(field: str, column: str, option: str, given: StrEnum | None, default: StrEnum) -> Unit:
    """The unit of the column that a map names for `field`; `given` is what the map's `option` says."""
    kind = type(default)
    named = [_WORDS[kind][word] for word in _words(column) if word in _WORDS[kind]]
    if given is not None:
        other = next((unit for unit in named if unit and unit != given), None)
        if other is not None:
            raise ValueError(
                f"columns.{field} is {column!r}, which says {other}, but {option} is {given}; "
                f"give {option}: {other}, or leave it out"
            )
        return Unit(given, said=True)
    if "" in named or len(set(named)) > 1:
        raise ValueError(
            f"columns.{field} is {column!r}, whose name leaves open what its numbers are in; "
            f"give {option}: one of {', '.join(kind)}"
        )
    return Unit(kind(named[0]), said=True) if named else Unit(default, said=False)


def _words(column: str) -> list[str]:
    """`cpu_milli`, `cpuMilli` and `CPU (milli)` are the words cpu and milli."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", column)
    return re.findall(r"[a-z]+", parted.lower())
