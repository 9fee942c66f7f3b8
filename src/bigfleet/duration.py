"""How people write durations, everywhere: `250ms`, `40s`, `1m30s`, `2h`, `7d`, `0`.

One grammar for flags, settings, catalogues, scenarios and conformance files, in a leaf of its own because the suite
that judges providers shares nothing with the model. Whether a bare number is taken, and as what, is the caller's
choice: it says so by naming the unit. Refusing in words is the caller's part too.
"""

from __future__ import annotations

import re
from typing import Final

UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
ACCEPTED: Final = "a duration such as 250ms, 40s, 1m30s, 2h or 7d"

_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_PART: Final = re.compile(rf"({_NUMBER})(ns|us|ms|s|m|h|d)")
# The same grammar, bare numbers included, for schemas.
PATTERN: Final = rf"(?:{_NUMBER}|(?:{_NUMBER}(?:ns|us|ms|s|m|h|d))+)"


def nanoseconds(text: str, *, bare: str = "") -> int | None:
    """The duration in nanoseconds, None where the text is none; a bare number other than 0 counts in `bare` units."""
    parts = list(_PART.finditer(text))
    if parts and "".join(part.group() for part in parts) == text:
        return sum(round(float(part[1]) * UNITS[part[2]]) for part in parts)
    if re.fullmatch(_NUMBER, text) and (bare or float(text) == 0):
        return round(float(text) * UNITS[bare or "s"])
    return None


def spelled(ns: int) -> str:
    """The shortest exact spelling with one unit: `90s`, `5m`, `2h`."""
    for unit in ("d", "h", "m", "s", "ms"):
        if ns and ns % UNITS[unit] == 0:
            return f"{ns // UNITS[unit]}{unit}"
    return f"{ns}ns" if ns else "0s"
