"""Rows that are refused, in words: the kernel that judges them (`rollups.py`) says what is wrong, here is the sentence.

Of very many the first are told and all are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.demand.rollups import (
    BAD_COUNT,
    BAD_DOMAIN,
    BAD_RUNNING,
    BAD_STRANDED,
    LIMIT,
    NO_UNIT,
    TOO_MANY,
    UNEVEN,
)
from bigfleet.engine.results import RefusedRow, RefusedRows
from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from bigfleet.engine.batches import Rollup
    from bigfleet.engine.placement import Counted

TOLD = 20


def refused_rows(rollup: Rollup, origin: NDArray[np.int32]) -> RefusedRows | None:
    """What was left out of a counted roll-up that has just been merged; None where every row was taken."""
    codes = origin[: len(rollup)]
    rows = np.flatnonzero(codes < 0)
    if not len(rows):
        return None
    return RefusedRows(
        len(rows), tuple(RefusedRow(row, _why(rollup, row, -int(codes[row]))) for row in rows[:TOLD].tolist())
    )


def _why(rollup: Rollup, row: int, code: int) -> str:
    said = rollup.counted
    assert said is not None
    count, running, stranded = int(said.count[row]), int(said.running[row]), int(said.stranded[row])
    where = f"needs[{row}]"
    if code == BAD_COUNT:
        return f"{where}.count is {count}; at least 1 is accepted"
    if code == BAD_RUNNING:
        return f"{where}.running is {running}; at least 0 is accepted"
    if code == BAD_STRANDED:
        return f"{where}.stranded is {stranded}; at least 0 is accepted"
    if code == TOO_MANY:
        return f"{where}: running {running} and stranded {stranded} are more than its count {count}"
    if code == NO_UNIT:
        return f"{where}.min_unit is empty; a row with a count needs one"
    if code == UNEVEN:
        return _uneven(rollup, row, count)
    if code == BAD_DOMAIN:
        return _domain(said, row)
    return f"{where}: rows of its profile, group and min_unit ask for more than {LIMIT} units of a resource"


def _uneven(rollup: Rollup, row: int, count: int) -> str:
    """Names the first resource of which there is not the count's worth."""
    amounts = zip(rollup.resources, rollup.aggregate[row].tolist(), rollup.min_unit[row].tolist(), strict=True)
    name, whole, one = next(each for each in amounts if each[1] != count * each[2])
    has, asks = (Resources({name: amount}).to_wire().get(name, "0") if amount else "0" for amount in (whole, one))
    return f"needs[{row}].aggregate_resources has {has} of {name}; its count {count} times min_unit {asks} is accepted"


def _domain(said: Counted, row: int) -> str:
    domain, units = next(each for each in said.domain_units[row] if each[1] < 0)
    return f"needs[{row}].domain_units of {domain!r} is {units}; at least 0 is accepted"
