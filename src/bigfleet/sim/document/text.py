"""Documents as text: the YAML that would read back as the same value, and the shortest spelling of a duration."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import yaml

from bigfleet.duration import spelled
from bigfleet.sim.document.document import DISTRIBUTIONS, Dollars, Nanoseconds, default_of, hints, required, spelt
from bigfleet.virtual.kernel import SECOND, Duration

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def plain(value: Any) -> Any:
    """A document as the mappings, lists and texts that would read back as it; fields at their default are left out."""
    if isinstance(value, Duration):
        if value.kind == "fixed":
            return spelled(value.low)
        ends = zip(DISTRIBUTIONS[value.kind], (value.low, value.high), strict=False)
        return {"distribution": value.kind, **{name: spelled(end) for name, end in ends}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        found: dict[str, Any] = {kind.TAG[0]: kind.TAG[1]} if hasattr(kind, "TAG") else {}
        for each in dataclasses.fields(value):
            inner = getattr(value, each.name)
            if required(each) or inner != default_of(each):
                found[spelt(each.name)] = field_as_text(hints(kind)[each.name], inner)
        return found
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return value


def field_as_text(kind: Any, value: Any) -> Any:
    """The value of a field of this kind, as a document spells it."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    if value is not None and Nanoseconds in kinds:
        return spelled(value)
    if value is not None and Dollars in kinds:
        return "pinned" if math.isinf(value) else value
    return plain(value)


def to_yaml(value: Any) -> str:
    return str(yaml.dump(plain(value), Dumper=_DUMPER, sort_keys=False, width=120))


def label(text: str, longest: int = 60) -> str:
    """The nearest name Kubernetes would accept."""
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in text.lower())
    return kept[:longest].strip("-") or "unnamed"


def instant(at: int) -> str:
    """`1h02m03.500s`, without parts that are zero in front."""
    seconds, rest = divmod(at, SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    tail = f"{seconds:02}" if hours or minutes else str(seconds)
    fraction = f".{rest // 1_000_000:03}" if rest else ""
    head = f"{hours}h{minutes:02}m" if hours else (f"{minutes}m" if minutes else "")
    return f"{head}{tail}{fraction}s"
