"""Rows that ask for odd names: how a roll-up's names become columns, and rows whose names got columns of their own.

Names are judged here alone; kernels see one column more, in which no machine has anything.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.odd import ODD, OddVectors, Pairs
from bigfleet.engine.demand.rollups import LIMIT, UNEVEN, Incoming
from bigfleet.engine.kernels.columns import INT32, INT64, owned

if TYPE_CHECKING:
    from bigfleet.engine.batches import Rollup
    from bigfleet.engine.catalog.catalog import Catalog
    from bigfleet.engine.demand.rows import DemandStore

_SOUND = np.zeros(0, np.uint8)


class Asked(NamedTuple):
    """A roll-up's rows by columns. `unsound`: the code of counted rows whose odd amounts do not add up; empty: none."""

    profile: NDArray[np.int32]
    group: NDArray[np.int32]
    aggregate: NDArray[np.int64]
    min_unit: NDArray[np.int64]
    columns: NDArray[np.int64]
    unsound: NDArray[np.uint8]


def plain(rollup: Rollup, columns: NDArray[np.int64]) -> Asked:
    """Where every name that is asked for has a column."""
    aggregate, min_unit = rollup.aggregate, rollup.min_unit
    if (columns < 0).any():
        known = columns >= 0
        aggregate, min_unit, columns = aggregate[:, known], min_unit[:, known], columns[known]
    return Asked(
        owned(rollup.profile, INT32), owned(rollup.group, INT32), owned(aggregate, INT64), owned(min_unit, INT64),
        columns, _SOUND,
    )  # fmt: skip


def asks_odd(rollup: Rollup, columns: NDArray[np.int64]) -> bool:
    """Whether any row asks for something of a name without a column (-1)."""
    odd = columns < 0
    return bool(odd.any() and (rollup.aggregate[:, odd].any() or rollup.min_unit[:, odd].any()))


def folded(
    rollup: Rollup, profiles: NDArray[np.int32], columns: NDArray[np.int64], odd_column: int, vectors: OddVectors
) -> Asked:
    """Names without a column (-1) told in the odd one. Sums of one key are added up here, by name."""
    aggregate, min_unit = rollup.aggregate, rollup.min_unit
    profile, group = rollup.profile, rollup.group
    odd = np.nonzero(columns < 0)[0]
    known = np.nonzero(columns >= 0)[0]
    out_of_range = _out_of_range(aggregate, min_unit)
    asking = (aggregate[:, odd] != 0).any(axis=1) | (min_unit[:, odd] != 0).any(axis=1)
    if rollup.counted is None:
        kept, aggregate = _added_up(rollup, profiles, asking & ~out_of_range)
        profile, group, min_unit, asking = profile[kept], group[kept], min_unit[kept], asking[kept]
        out_of_range = _out_of_range(aggregate, min_unit)
    names = [rollup.resources[at] for at in odd.tolist()]
    unit_number = _numbers(min_unit[:, odd], names, asking & ~out_of_range, vectors)
    unsound = _SOUND
    if rollup.counted is None:
        amount = _numbers(aggregate[:, odd], names, asking & ~out_of_range, vectors)
    else:
        count = np.maximum(rollup.counted.count.astype(np.int64), 0)
        one, whole = min_unit[:, odd], aggregate[:, odd]
        by = np.maximum(one, 1)
        sound = np.where(one > 0, (whole % by == 0) & (whole // by == count[:, None]), whole == 0)
        unsound = np.where(sound.all(axis=1), 0, UNEVEN).astype(np.uint8)
        amount = count * unit_number
    # Out of the range of every column, so that the row is rejected for it.
    unit_number[asking & out_of_range] = -1
    return Asked(
        owned(profile, INT32),
        owned(group, INT32),
        np.ascontiguousarray(np.column_stack((aggregate[:, known], amount)), np.int64),
        np.ascontiguousarray(np.column_stack((min_unit[:, known], unit_number)), np.int64),
        np.append(columns[known], odd_column),
        unsound,
    )


def _out_of_range(aggregate: NDArray[np.int64], min_unit: NDArray[np.int64]) -> NDArray[np.bool_]:
    wrong = (aggregate < 0) | (aggregate > LIMIT) | (min_unit < 0) | (min_unit > LIMIT)
    return np.any(wrong, axis=1)


def _numbers(
    amounts: NDArray[np.int64], names: list[str], which: NDArray[np.bool_], vectors: OddVectors
) -> NDArray[np.int64]:
    found = np.zeros(len(amounts), np.int64)
    # Roll-ups name resources in any order, vectors in that of the names.
    order = sorted(range(len(names)), key=names.__getitem__)
    for row in np.nonzero(which & (amounts != 0).any(axis=1))[0].tolist():
        mine = amounts[row].tolist()
        found[row] = vectors.number(tuple((names[at], mine[at]) for at in order if mine[at]))
    return found


def _added_up(
    rollup: Rollup, profiles: NDArray[np.int32], which: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to keep, and their aggregates: of rows of one key the first, with what all of them ask for."""
    first: dict[tuple[int, str, bytes], int] = {}
    aggregate = rollup.aggregate
    dropped: list[int] = []
    for row in np.nonzero(which)[0].tolist():
        at = int(rollup.group[row])
        group = rollup.groups[at] if at >= 0 else ""
        key = (int(profiles[int(rollup.profile[row])]), group, rollup.min_unit[row].tobytes())
        before = first.setdefault(key, row)
        if before != row:
            if not dropped:
                aggregate = aggregate.copy()
            dropped.append(row)
            # Both are within the limit, or one above it.
            aggregate[before] = np.minimum(aggregate[before] + aggregate[row], LIMIT + 1)
    kept = np.delete(np.arange(len(aggregate)), dropped) if dropped else np.arange(len(aggregate))
    return kept, aggregate[kept] if dropped else aggregate


def volume_of(into: Incoming, catalog: Catalog, counted: bool) -> dict[str, int]:
    """What a roll-up's merged rows ask for by name."""
    found = {name: amount for name, amount in zip(catalog.resources, into.volume.tolist(), strict=False) if amount}
    if found.pop(ODD, 0):
        odd, count = catalog.resource(ODD), int(into.meta[0])
        agg, unit = into.agg[:count, odd], into.unit[:count, odd]
        for row in np.nonzero(agg)[0].tolist():
            times, pairs = odd_amounts(int(agg[row]), int(unit[row]) if counted else 0, catalog.odd)
            for name, amount in pairs:
                found[name] = found.get(name, 0) + times * amount
    return found


def odd_amounts(said: int, unit: int, vectors: OddVectors) -> tuple[int, Pairs]:
    """How often which vector an amount in the odd column is; `unit` is the number of the smallest unit, 0 for sums."""
    return (said // unit, vectors.pairs(unit)) if unit else (1, vectors.pairs(said))


def unfold(
    store: DemandStore, catalog: Catalog, odd_column: int, names: Collection[str], covered: int
) -> dict[int, NDArray[np.int64]]:
    """Names that got columns leave the odd one, in rows and in the parts derived from them. Rows are put in order anew:
    returns by cluster the old places of its rows."""
    c, vectors = store.c, catalog.odd
    columns = {name: catalog.resource(name) for name in names}
    moved: dict[int, NDArray[np.int64]] = {}
    for cluster in range(covered):
        start, count = int(c.start[cluster]), int(c.rows[cluster])
        rows = store.rows
        span = slice(start, start + count)
        asking = np.nonzero((rows.unit[span, odd_column] != 0) | (rows.agg[span, odd_column] != 0))[0]
        counted = bool(c.counted[cluster])
        changed = False
        for row in (asking + start).tolist():
            unit = int(rows.unit[row, odd_column])
            times, pairs = odd_amounts(int(rows.agg[row, odd_column]), unit if counted else 0, vectors)
            changed |= _take_out(rows.unit[row], odd_column, unit, columns, vectors)
            for name, amount in pairs:
                if name in columns:
                    rows.agg[row, columns[name]] = times * amount
                    changed = True
            left = vectors.number(tuple(pair for pair in pairs if pair[0] not in columns))
            rows.agg[row, odd_column] = times * left
        if not changed:
            continue
        at = int(c.old_start[cluster]) if c.old_size[cluster] else start
        for part in range(at, at + int(c.parts[cluster])):
            _take_out(store.parts.unit[part], odd_column, int(store.parts.unit[part, odd_column]), columns, vectors)
        moved[cluster] = _in_order(store, catalog.descending(), span)
        c.fresh[cluster] = c.dirty[cluster] = 1
    return moved


def _take_out(
    unit: NDArray[np.int64], odd_column: int, number: int, columns: dict[str, int], vectors: OddVectors
) -> bool:
    pairs = vectors.pairs(number)
    found = [pair for pair in pairs if pair[0] in columns]
    for name, amount in found:
        unit[columns[name]] = amount
    if found:
        unit[odd_column] = vectors.without(number, columns)
    return bool(found)


def _in_order(store: DemandStore, descending: NDArray[np.int64], span: slice) -> NDArray[np.int64]:
    rows = store.rows
    units = rows.unit[span]
    keys = [-units[:, column] for column in descending[::-1].tolist()]
    order = np.lexsort((*keys, rows.group[span], rows.prof[span]))
    for column in rows:
        column[span] = column[span][order]
    return order
