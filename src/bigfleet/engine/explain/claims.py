"""Who claims what after a step, the logs of credit and acquisition as one table, and which rows an entry serves.

The only place of this package that knows how the engine keeps its logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.decide.world import LOG_USED
from bigfleet.engine.demand.rows import FOLDED, GANG

if TYPE_CHECKING:
    from bigfleet.engine.decide.world import World
    from bigfleet.engine.engine import Engine, StepResult
    from bigfleet.engine.results import NeedKey


class Standing(IntEnum):
    """How an entry stands after a step."""

    SATISFIED = 0
    AWAITS_DRAIN = 1
    SHORT = 2


@dataclass(frozen=True, slots=True)
class Claims:
    """`n` machines of `cell` are claimed by `entry`; `acquired` ones were not its before the step, `tier` says which of
    those counted entries took how (-1: sums)."""

    entry: NDArray[np.int32]
    cell: NDArray[np.int32]
    n: NDArray[np.int32]
    acquired: NDArray[np.bool_]
    tier: NDArray[np.int8]


def claims_of(engine: Engine, result: StepResult) -> Claims:
    """Every claim of the step."""
    sums = _claims_of_sums(engine.written(result.verdicts.needs.current), len(engine.fleet.clusters))
    step = result.verdicts.units.step if result.verdicts.units is not None else None
    if step is None:
        return sums
    tier, slot, turn = step.taken()
    one = np.ones(len(slot), np.int32)
    return Claims(
        np.concatenate([sums.entry, step.entries[turn]]),
        np.concatenate([sums.cell, engine.fleet.v.cell[slot]]),
        np.concatenate([sums.n, one]),
        np.concatenate([sums.acquired, one > 0]),
        np.concatenate([sums.tier, tier.astype(np.int8)]),
    )


def _claims_of_sums(w: World, clusters: int) -> Claims:
    first, count = w.units.first[:clusters], w.units.count[:clusters]
    spans = [np.arange(f, f + n) for f, n in zip(first.tolist(), count.tolist(), strict=True)]
    owners = np.concatenate([np.zeros(0, np.int64), *spans])
    logged = w.owners.logged[owners].astype(np.int64)
    # Stretches of the log, one behind the other, as one index.
    ends = np.cumsum(logged)
    which = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(w.owners.log[owners] - (ends - logged), logged)
    late, got = int(w.late.meta[LOG_USED]), int(w.got.meta[0])
    return Claims(
        np.concatenate([w.log.entry[which], w.late.entry[:late], w.got.entry[:got]]),
        np.concatenate([w.log.cell[which], w.late.cell[:late], w.got.cell[:got]]),
        np.concatenate([w.log.n[which], w.late.n[:late], w.got.n[:got]]),
        np.concatenate([np.zeros(len(which) + late, bool), np.ones(got, bool)]),
        np.full(len(which) + late + got, -1, np.int8),
    )


def find_entry(engine: Engine, result: StepResult, key: NeedKey) -> int:
    """The entry that serves a key of demand, or -1. A folded group's own key finds the row it is folded into."""
    needs = result.verdicts.needs
    w, catalog = needs.current, engine.catalog
    cluster = engine.fleet.cluster_index.get(key.cluster, -1)
    if cluster < 0:
        return -1
    for entry in range(int(w.c.start[cluster]), int(w.c.start[cluster]) + int(w.c.entries[cluster])):
        if catalog.profiles[int(w.e.prof[entry])].fingerprint == key.fingerprint and needs.entry_key(entry) == key:
            return entry
    for row in rows_of(w, cluster):
        prof, group = int(w.rows.prof[row]), int(w.rows.group[row])
        if (
            catalog.profiles[prof].fingerprint == key.fingerprint
            and catalog.texts.texts[group] == key.group
            and key.min_unit in ("", needs.amounts(w.rows.unit[row]).canonical)
        ):
            return entry_of_row(w, cluster, row)
    return -1


def rows_of(w: World, cluster: int) -> range:
    start = int(w.c.start[cluster])
    return range(start, start + int(w.c.rows[cluster]))


def entry_of_row(w: World, cluster: int, row: int) -> int:
    """The entry a row of demand is served by, or -1."""
    start, count = int(w.c.start[cluster]), int(w.c.entries[cluster])
    prof, group, unit = int(w.rows.prof[row]), int(w.rows.group[row]), w.rows.unit[row]
    if w.rows.fold[row]:
        unit = _group_amount(w, cluster, prof, group)
        prof, group = int(w.p.folded[prof]), 0
    span = slice(start, start + count)
    for entry in (np.nonzero((w.e.prof[span] == prof) & (w.e.group[span] == group))[0] + start).tolist():
        if w.e.kind[entry] == GANG or (w.parts.unit[int(w.e.part[entry])] == unit).all():
            return int(entry)
    return -1


def rows_of_entry(w: World, entry: int) -> list[int]:
    """The rows of demand an entry serves: one, a group's, or those of the groups folded into it."""
    cluster, prof, group = int(w.e.cluster[entry]), int(w.e.prof[entry]), int(w.e.group[entry])
    unit = w.parts.unit[int(w.e.part[entry])]
    found = []
    for row in rows_of(w, cluster):
        mine = int(w.rows.prof[row])
        if w.rows.fold[row]:
            if (
                int(w.e.flags[entry]) & FOLDED
                and int(w.p.folded[mine]) == prof
                and (_group_amount(w, cluster, mine, int(w.rows.group[row])) == unit).all()
            ):
                found.append(row)
        elif mine == prof and int(w.rows.group[row]) == group:
            if w.e.kind[entry] == GANG or (w.rows.unit[row] == unit).all():
                found.append(row)
    return found


def _group_amount(w: World, cluster: int, prof: int, group: int) -> NDArray[np.int64]:
    span = slice(int(w.c.start[cluster]), int(w.c.start[cluster]) + int(w.c.rows[cluster]))
    mine = (w.rows.prof[span] == prof) & (w.rows.group[span] == group)
    total: NDArray[np.int64] = w.rows.agg[span][mine].sum(axis=0)
    return total


def standing_of(result: StepResult, entry: int) -> Standing:
    w = result.verdicts.needs.current
    span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
    if not (result.verdicts.pending == entry).any() or not w.parts.left[span].any():
        return Standing.SATISFIED
    return Standing.SHORT if w.parts.rest[span].any() else Standing.AWAITS_DRAIN
