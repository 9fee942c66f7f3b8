"""What rows of a roll-up say in units, from the wire to the engine's columns: count, running, stranded, domains.

A cluster reports placement when its Hello said so and every row has a count; a roll-up that counts in some rows only is
refused as a whole, because neither reading of it would be what its sender meant. Whether the counts of a row can be
true is the engine's to judge (`docs/engine.md`, P1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bigfleet.engine.placement import Counted
from bigfleet.wire import capacity_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

# Count, running, stranded, (domain, units) in text order, exclusive tokens.
Units = tuple[int, int, int, tuple[tuple[str, int], ...], tuple[str, ...]]
NO_UNITS: Final[Units] = (0, 0, 0, (), ())

# Fields 1001 to 1005 of CapacityNeed have tags of two bytes: one of these, then EXTENSION.
COUNT_TAGS: Final = frozenset(
    number << 3 & 0x7F | 0x80 | kind for number, kind in ((1001, 0), (1002, 0), (1003, 0), (1004, 2), (1005, 2))
)
EXTENSION: Final = 1001 << 3 >> 7
_MIRROR_VERSION: Final = bytes((1001 << 3 & 0x7F | 0x80, EXTENSION))
_LONGEST_VARINT = 10


class MixedRowsError(ValueError):
    """A roll-up with a count in some rows only."""


def units_told(fields: bytes) -> Units:
    """What the serialised fields of one row say."""
    return units_of(capacity_pb2.CapacityNeed.FromString(fields))


def units_of(need: capacity_pb2.CapacityNeed) -> Units:
    if not (need.count or need.running or need.stranded or need.domain_units or need.exclusive):
        return NO_UNITS
    return (
        need.count,
        need.running,
        need.stranded,
        tuple(sorted(need.domain_units.items())),
        tuple(dict.fromkeys(need.exclusive)),
    )


def counted_of(rows: Sequence[Units], mirror_version: int) -> Counted | None:
    """All rows as columns; None when no row has a count, so that they are sums."""
    without = next((number for number, row in enumerate(rows) if not row[0]), None)
    if without is not None:
        if any(row[0] for row in rows):
            raise MixedRowsError(
                f"needs[{without}].count is 0 while other rows have one; a count in every row or in none is accepted"
            )
        return None
    return Counted(
        count=np.array([row[0] for row in rows], np.int32),
        running=np.array([row[1] for row in rows], np.int32),
        stranded=np.array([row[2] for row in rows], np.int32),
        mirror_version=mirror_version,
        domain_units={number: row[3] for number, row in enumerate(rows) if row[3]},
        exclusive={number: row[4] for number, row in enumerate(rows) if row[4]},
    )


def mirror_version_at(body: bytes, after: int) -> tuple[int, int]:
    """Where a roll-up's mirror version begins, and the version; (its end, 0) where serialisers put none.

    It is the last field. A row may end in the same bytes (its own field 1001), so the fields from `after` on, which
    all have a length, are stepped over to be sure.
    """
    end = len(body)
    if not end or body[-1] > 0x7F:
        return end, 0
    first = end - 1
    while first > 0 and body[first - 1] > 0x7F and end - first < _LONGEST_VARINT:
        first -= 1
    begin = first - len(_MIRROR_VERSION)
    if begin < after or body[begin:first] != _MIRROR_VERSION:
        return end, 0
    at = after
    while at < begin:
        at = _after_sized(body, at)
    if at != begin:
        return end, 0
    return begin, _number(body, first)[0]


def _after_sized(body: bytes, at: int) -> int:
    """The offset after a field with a length; beyond the end for any other."""
    if body[at] & 7 != 2:
        return len(body)
    while body[at] > 0x7F:
        at += 1
        if at >= len(body):
            return at
    size, start = _number(body, at + 1)
    return start + size


def _number(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(body) and shift < 70:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            number &= 2**64 - 1
            return (number - 2**64 if number >= 2**63 else number), at
        shift += 7
    return 0, len(body) + 1
