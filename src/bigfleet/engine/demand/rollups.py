"""Roll-ups as kernels: rows merged and judged, taken over by key, dropped; and which constraint sets a cluster has.

A row that stays keeps its arrival. Nothing here looks at machines.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.catalog import Profiles
from bigfleet.engine.demand.rows import SETTLED, Clusters, Entries, Parts, Rows
from bigfleet.engine.fleet.cells import CHANGED, Owners, mark_dirty
from bigfleet.engine.kernels.jit import I4, I4M, I8, I8M, U1, inner, kernel
from bigfleet.engine.kernels.pool import Pool, chunk_size, give_chunk, take_chunk
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting
from bigfleet.engine.kernels.view import View, view
from bigfleet.model.resources import MAX_NEED_UNITS

LIMIT = MAX_NEED_UNITS
# What a roll-up changed: nothing, amounts of the rows there were, or which rows there are.
SAME, AMOUNTS, ROWS = 0, 1, 2
# Why a row is refused, in the order in which it is looked for (P1); `refused.py` has the words.
OUT_OF_RANGE, BAD_COUNT, BAD_RUNNING, BAD_STRANDED, TOO_MANY, NO_UNIT, UNEVEN, BAD_DOMAIN = range(1, 9)


@view
class Incoming(View):
    """A roll-up's rows, merged and in row order, before anything is taken over. `origin` is the merged row of each row
    that came, minus the code of what is wrong with bad ones; it is told for counted rows only."""

    prof: I4
    group: I4
    agg: I8M
    unit: I8M
    order: I4
    volume: I8
    meta: I8
    count: I8
    running: I8
    stranded: I8
    origin: I4


@inner
def unit_order(units: I8M, a: int, others: I8M, b: int, descending: I8) -> int:
    """-1 when unit a comes before unit b (the larger first), 1 when after, 0 when equal."""
    for k in range(len(descending)):
        d = descending[k]
        x = units[a, d]
        y = others[b, d]
        if x != y:
            return -1 if x > y else 1
    return 0


@inner
def _row_order(prof: I4, group: I4, unit: I8M, a: int, b: int, descending: I8) -> int:
    if prof[a] != prof[b]:
        return -1 if prof[a] < prof[b] else 1
    if group[a] != group[b]:
        return -1 if group[a] < group[b] else 1
    return unit_order(unit, a, unit, b, descending)


@inner
def sort_rows(order: I4, count: int, prof: I4, group: I4, unit: I8M, descending: I8) -> None:
    """Rows into row order: by profile, group and unit."""
    sort = sorting(0, count)
    while asks(sort, order):
        sort[ANSWER] = _row_order(prof, group, unit, sort[LATER], sort[EARLIER], descending) < 0


@kernel
def constraint_sets(c: Clusters, rows: Rows, p: Profiles, cluster: int, mark: I8, epoch: int, found: I4) -> int:
    """The constraint sets of a cluster's rows; a gang may fold at any time, so what it folds into counts as well."""
    count = 0
    for row in range(c.start[cluster], c.start[cluster] + c.rows[cluster]):
        prof = rows.prof[row]
        for which in range(2):
            con = p.con[prof] if which == 0 else p.con[p.folded[prof]]
            if mark[con] != epoch:
                mark[con] = epoch
                found[count] = con
                count += 1
    return count


@kernel
def merge_rows(
    into: Incoming, profiles: I4, profile: I4, groups: I4, group_of: I4, aggregate: I8M, min_unit: I8M, columns: I8,
    descending: I8, units: I4M, unsound: U1,
) -> None:  # fmt: skip
    """Merges rows of equal key and leaves out those out of range, or whose `units` (count, running, stranded; no rows
    for sums) do not add up, or that are `unsound` (a code) already; `meta` = rows, bad rows, rows whose units are
    bad."""
    count = len(profile)
    counted = len(units) > 0
    uneven = 0
    width = into.agg.shape[1]
    prof = np.empty(count, np.int32)
    group = np.empty(count, np.int32)
    for i in range(count):
        prof[i] = profiles[profile[i]]
        group[i] = groups[group_of[i]] if group_of[i] >= 0 else 0
    unit = np.zeros((count, width), np.int64)
    order = into.order
    good = 0
    bad = 0
    for i in range(count):
        fine = True
        for k in range(len(columns)):
            if not (0 <= aggregate[i, k] <= LIMIT and 0 <= min_unit[i, k] <= LIMIT):
                fine = False
            unit[i, columns[k]] = min_unit[i, k]
        into.origin[i] = -OUT_OF_RANGE
        wrong = 0
        if fine and counted:
            wrong = _wrong(units, aggregate, min_unit, i)
            if wrong == 0:
                wrong = int(unsound[i])
        if not fine:
            bad += 1
        elif wrong != 0:
            into.origin[i] = -wrong
            uneven += 1
        else:
            order[good] = i
            good += 1
    sort_rows(order, good, prof, group, unit, descending)
    made_rows = 0
    i = 0
    for d in range(len(into.volume)):
        into.volume[d] = 0
    while i < good:
        row = order[i]
        for d in range(width):
            into.agg[made_rows, d] = 0
            into.unit[made_rows, d] = unit[row, d]
        into.prof[made_rows] = prof[row]
        into.group[made_rows] = group[row]
        into.count[made_rows] = 0
        into.running[made_rows] = 0
        into.stranded[made_rows] = 0
        fine = True
        first = i
        while i < good and _row_order(prof, group, unit, row, order[i], descending) == 0:
            other = order[i]
            if counted:
                into.count[made_rows] += units[other, 0]
                into.running[made_rows] += units[other, 1]
                into.stranded[made_rows] += units[other, 2]
                into.origin[other] = made_rows
            for k in range(len(columns)):
                d = columns[k]
                into.agg[made_rows, d] = min(LIMIT + 1, into.agg[made_rows, d] + aggregate[other, k])
                if into.agg[made_rows, d] > LIMIT:
                    fine = False
            i += 1
        if fine:
            for d in range(width):
                into.volume[d] = min(into.volume[d] + into.agg[made_rows, d], 4611686018427387904)
            made_rows += 1
        else:
            bad += 1
            for k in range(first, i):
                into.origin[order[k]] = -OUT_OF_RANGE
    into.meta[0] = made_rows
    into.meta[1] = bad
    into.meta[2] = uneven


@inner
def _wrong(units: I4M, aggregate: I8M, min_unit: I8M, row: int) -> int:
    """0 if a row's units are possible and its aggregate is so many of its smallest unit, which is something; else the
    code of what is wrong."""
    if units[row, 0] < 1:
        return BAD_COUNT
    if units[row, 1] < 0:
        return BAD_RUNNING
    if units[row, 2] < 0:
        return BAD_STRANDED
    # In 64 bits: two counts of 32 may pass them.
    if np.int64(units[row, 1]) + np.int64(units[row, 2]) > np.int64(units[row, 0]):
        return TOO_MANY
    anything = False
    for k in range(aggregate.shape[1]):
        one = min_unit[row, k]
        if one == 0:
            if aggregate[row, k] != 0:
                return UNEVEN
            continue
        anything = True
        if aggregate[row, k] % one != 0 or aggregate[row, k] // one != units[row, 0]:
            return UNEVEN
    return 0 if anything else NO_UNIT


@kernel
def withhold(c: Clusters, rows: Rows, held: Incoming, descending: I8, cluster: int) -> None:
    """A roll-up is held: of each row in force no more is believed to lack room than both say."""
    at = 0
    order = 1
    count = held.meta[0]
    c.lacking[cluster] = 0
    for row in range(c.start[cluster], c.start[cluster] + c.rows[cluster]):
        while at < count:
            if held.prof[at] != rows.prof[row]:
                order = -1 if held.prof[at] < rows.prof[row] else 1
            elif held.group[at] != rows.group[row]:
                order = -1 if held.group[at] < rows.group[row] else 1
            else:
                order = unit_order(held.unit, at, rows.unit, row, descending)
            if order >= 0:
                break
            at += 1
        rows.lacking[row] = 0
        if at < count and order == 0:
            rows.lacking[row] = min(rows.stranded[row], held.stranded[at])
        c.lacking[cluster] += rows.lacking[row]


@kernel
def commit(
    c: Clusters, rows: Rows, e: Entries, parts: Parts, owners: Owners, regions: Pool, new: Incoming, p: Profiles,
    overhead: I8, descending: I8, cluster: int, now: int, counted: bool,
) -> int:  # fmt: skip
    """Replaces a cluster's rows; a row that stays keeps its arrival. Tells what is different."""
    count = new.meta[0]
    other_mode = counted != (c.counted[cluster] != 0)
    c.counted[cluster] = counted
    c.lacking[cluster] = 0
    for i in range(count):
        c.lacking[cluster] += new.stranded[i]
    old_start = c.start[cluster]
    old_count = c.rows[cluster]
    width = rows.agg.shape[1]
    refs = p.refs
    same_rows = old_count == count and not other_mode
    same_amounts = True
    for d in range(width):
        if c.overhead[cluster, d] != overhead[d]:
            c.overhead[cluster, d] = overhead[d]
            same_rows = False
    arrival = np.empty(count, np.int64)
    old = old_start
    for i in range(count):
        arrival[i] = now
        known = False
        while old < old_start + old_count:
            order = 0
            if rows.prof[old] != new.prof[i]:
                order = -1 if rows.prof[old] < new.prof[i] else 1
            elif rows.group[old] != new.group[i]:
                order = -1 if rows.group[old] < new.group[i] else 1
            else:
                order = unit_order(rows.unit, old, new.unit, i, descending)
            if order > 0:
                break
            if order == 0:
                known = True
                arrival[i] = rows.arrival[old]
                for d in range(width):
                    if rows.agg[old, d] != new.agg[i, d]:
                        same_amounts = False
                old += 1
                break
            old += 1
        if not known:
            same_rows = False
    if same_rows:
        for i in range(count):
            _count_units(rows, old_start + i, new, i)
    if same_rows and same_amounts:
        return SAME
    if same_rows and counted and c.fresh[cluster] == 0:
        # Nothing is credited to units, so only the amounts change.
        for i in range(count):
            part = rows.part[old_start + i]
            for d in range(width):
                rows.agg[old_start + i, d] = new.agg[i, d]
                parts.agg[part, d] = new.agg[i, d]
        return AMOUNTS
    if counted:
        _arrive_together(c, rows, new, arrival, cluster, now)
    if same_rows and c.gangs[cluster] == 0 and c.fresh[cluster] == 0:
        # The entries there are serve the new amounts: only units with a changed row are credited anew.
        for i in range(count):
            row = old_start + i
            different = False
            for d in range(width):
                if rows.agg[row, d] != new.agg[i, d]:
                    different = True
                    rows.agg[row, d] = new.agg[i, d]
            if different:
                part = rows.part[row]
                for d in range(width):
                    parts.agg[part, d] = new.agg[i, d]
                # Without gangs every entry has one part, in its own place.
                e.flags[part] &= ~SETTLED & 0xFF
                mark_dirty(owners, e.unit[part], CHANGED)
                owners.dealt[e.unit[part]] = -1
        return AMOUNTS
    for i in range(old_start, old_start + old_count):
        refs[rows.prof[i]] -= 1
    if count > c.size[cluster]:
        # The entries in the old region are still to be carried over: `build_entries` frees it.
        c.old_start[cluster] = old_start
        c.old_size[cluster] = c.size[cluster]
        size = chunk_size(count)
        c.start[cluster] = take_chunk(regions, size)
        c.size[cluster] = size
    start = c.start[cluster]
    gangs = 0
    for i in range(count):
        row = start + i
        rows.prof[row] = new.prof[i]
        rows.group[row] = new.group[i]
        rows.arrival[row] = arrival[i]
        rows.fold[row] = 0
        _count_units(rows, row, new, i)
        refs[new.prof[i]] += 1
        if p.same[new.prof[i]] != -1:
            gangs += 1
        for d in range(width):
            rows.agg[row, d] = new.agg[i, d]
            rows.unit[row, d] = new.unit[i, d]
    c.rows[cluster] = count
    c.gangs[cluster] = gangs
    c.fresh[cluster] = 1
    c.dirty[cluster] = 1
    return ROWS


@inner
def _count_units(rows: Rows, row: int, new: Incoming, i: int) -> None:
    rows.count[row] = new.count[i]
    rows.running[row] = new.running[i]
    rows.stranded[row] = new.stranded[i]
    rows.lacking[row] = new.stranded[i]


@inner
def _arrive_together(c: Clusters, rows: Rows, new: Incoming, arrival: I8, cluster: int, now: int) -> None:
    """Counted rows arrived when the first row of their profile and group did, whatever its unit."""
    old = c.start[cluster]
    end = old + c.rows[cluster]
    i = 0
    while i < new.meta[0]:
        earliest = now
        while old < end and (
            rows.prof[old] < new.prof[i] or (rows.prof[old] == new.prof[i] and rows.group[old] < new.group[i])
        ):
            old += 1
        while old < end and rows.prof[old] == new.prof[i] and rows.group[old] == new.group[i]:
            earliest = min(earliest, rows.arrival[old])
            old += 1
        first = i
        while i < new.meta[0] and new.prof[i] == new.prof[first] and new.group[i] == new.group[first]:
            arrival[i] = earliest
            i += 1


@kernel
def turned(refs: I8, live: U1, count: int, found: I4) -> int:
    """Profiles that came into force or left it since `live` was told, which is told now; returns how many."""
    total = 0
    for number in range(count):
        now = refs[number] > 0
        if now != (live[number] != 0):
            live[number] = now
            found[total] = number
            total += 1
    return total


@kernel
def drop(c: Clusters, rows: Rows, regions: Pool, refs: I8, cluster: int) -> None:
    """Forgets a cluster's demand, link and bucket."""
    start = c.start[cluster]
    for i in range(start, start + c.rows[cluster]):
        refs[rows.prof[i]] -= 1
    if c.size[cluster] > 0:
        give_chunk(regions, start, c.size[cluster])
    c.size[cluster] = 0
    c.rows[cluster] = 0
    c.entries[cluster] = 0
    c.parts[cluster] = 0
    c.gangs[cluster] = 0
    c.ready[cluster] = 0
    c.connected[cluster] = 0
    c.fresh[cluster] = 0
    c.dirty[cluster] = 1
    c.tokens[cluster] = 0
    c.refilled[cluster] = 0
    c.sighted[cluster] = 0
    c.counted[cluster] = 0
    c.lacking[cluster] = 0
    for d in range(c.overhead.shape[1]):
        c.overhead[cluster, d] = 0
