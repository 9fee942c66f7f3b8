"""Attribution: which need a machine was bound for, and its form in the provider's `shard_metadata`.

Owns the five keys and their text. The provider stores the map unread and echoes it, so a restarted shard rebuilds its
attribution from here alone: every key is read on its own and a malformed one costs only itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bigfleet.model.names import API_GROUP

PRIORITY_KEY = f"{API_GROUP}/assigned-priority"
INTERRUPTION_KEY = f"{API_GROUP}/assigned-interruption-penalty-dollars"
RECLAMATION_KEY = f"{API_GROUP}/assigned-reclamation-penalty-dollars"
FINGERPRINT_KEY = f"{API_GROUP}/assigned-need-fingerprint"
GROUP_KEY = f"{API_GROUP}/assigned-group"

_INTEGER = re.compile(r"[+-]?[0-9]{1,11}")
_DOLLARS = re.compile(r"\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?|(?i:inf(inity)?))")


@dataclass(frozen=True, slots=True)
class Assignment:
    """The stamps of one binding; None where nothing is known."""

    priority: int | None = None
    interruption_dollars: float | None = None
    reclamation_dollars: float | None = None
    fingerprint: str | None = None
    group: str | None = None


NO_ASSIGNMENT = Assignment()


def encode(assignment: Assignment) -> dict[str, str]:
    """The metadata Configure carries; unknown stamps are left out."""
    metadata = {}
    if assignment.priority is not None:
        metadata[PRIORITY_KEY] = str(assignment.priority)
    if assignment.interruption_dollars is not None:
        metadata[INTERRUPTION_KEY] = _dollars_text(assignment.interruption_dollars)
    if assignment.reclamation_dollars is not None:
        metadata[RECLAMATION_KEY] = _dollars_text(assignment.reclamation_dollars)
    if assignment.fingerprint is not None:
        metadata[FINGERPRINT_KEY] = assignment.fingerprint
    if assignment.group is not None:
        metadata[GROUP_KEY] = assignment.group
    return metadata


def decode(metadata: Mapping[str, str]) -> tuple[Assignment, tuple[str, ...]]:
    """What the metadata says, and one sentence for each key that could not be read. Unknown keys are ignored."""
    problems: list[str] = []
    assignment = Assignment(
        priority=_priority(metadata.get(PRIORITY_KEY), problems),
        interruption_dollars=_dollars(INTERRUPTION_KEY, metadata.get(INTERRUPTION_KEY), problems),
        reclamation_dollars=_dollars(RECLAMATION_KEY, metadata.get(RECLAMATION_KEY), problems),
        fingerprint=metadata.get(FINGERPRINT_KEY),
        group=metadata.get(GROUP_KEY),
    )
    return assignment, tuple(problems)


def _priority(text: str | None, problems: list[str]) -> int | None:
    if text is None:
        return None
    if _INTEGER.fullmatch(text) is None or not -(2**31) <= int(text) < 2**31:
        problems.append(f"metadata {PRIORITY_KEY} is {text!r}; a decimal 32-bit integer is accepted")
        return None
    return int(text)


def _dollars(key: str, text: str | None, problems: list[str]) -> float | None:
    if text is None:
        return None
    if _DOLLARS.fullmatch(text) is None:
        problems.append(f"metadata {key} is {text!r}; zero or more dollars or +Inf is accepted")
        return None
    return float(text)


def _dollars_text(dollars: float) -> str:
    if math.isinf(dollars):
        return "+Inf"
    # Penalties are bucket bounds, so a whole number prints as one and the rest as the shortest that reads back.
    return str(int(dollars)) if dollars == int(dollars) else repr(dollars)
