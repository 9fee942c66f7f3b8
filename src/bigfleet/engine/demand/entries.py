"""Entries: what is served, in the order in which it is served, derived from rows and from which gangs folded.

A row without Same is an entry; a gang is one entry with its rows as parts; folded gangs of one size are one plain row.
Entries carry over how long their rows have been short and how long a gang has been hopeless.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.catalog import Profiles
from bigfleet.engine.demand.rollups import sort_rows, unit_order
from bigfleet.engine.demand.rows import FOLDED, GANG, NO_TIME, PLAIN, SPREAD, Clusters, Entries, Parts, Rows
from bigfleet.engine.fleet.cells import Owners
from bigfleet.engine.fleet.partitions import Units, unit_of_con
from bigfleet.engine.kernels.jit import I4, I8, I8M, inner, kernel
from bigfleet.engine.kernels.pool import Pool, give_chunk
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting
from bigfleet.engine.kernels.texts import Texts, text_less

_SATURATED = 4611686018427387904


@inner
def _key_order(prof: I4, group: I4, unit: I8M, a: int, prof_b: int, group_b: int, units: I8M, b: int, desc: I8) -> int:
    if prof[a] != prof_b:
        return -1 if prof[a] < prof_b else 1
    if group[a] != group_b:
        return -1 if group[a] < group_b else 1
    return unit_order(unit, a, units, b, desc)


@inner
def _before(
    p: Profiles, texts: Texts, prof: I4, group: I4, arrival: I8, first: I4, unit: I8M, desc: I8, a: int, b: int
) -> bool:
    """Order in which two entries of one cluster are served."""
    pa = prof[a]
    pb = prof[b]
    if p.precedence[pa] != p.precedence[pb]:
        return bool(p.precedence[pa] < p.precedence[pb])
    if arrival[a] != arrival[b]:
        return bool(arrival[a] < arrival[b])
    if pa != pb:
        return text_less(texts, p.text[pa], p.text[pb])
    if group[a] != group[b]:
        return text_less(texts, group[a], group[b])
    return unit_order(unit, first[a], unit, first[b], desc) < 0


@kernel
def build_entries(
    c: Clusters, rows: Rows, e: Entries, parts: Parts, p: Profiles, texts: Texts, regions: Pool, owners: Owners,
    units: Units, desc: I8, which: I4, total: int,
) -> None:  # fmt: skip
    """Derives the entries of the given clusters from their rows and fold flags."""
    width = rows.agg.shape[1]
    for w in range(total):
        cluster = which[w]
        start = c.start[cluster]
        count = c.rows[cluster]
        old_start = c.old_start[cluster] if c.old_size[cluster] > 0 else start
        old_entries = c.entries[cluster]
        old_parts = c.parts[cluster]

        # What must outlive the rebuild.
        kept = 0
        kept_gangs = 0
        for i in range(old_start, old_start + old_parts):
            if parts.since[i] != NO_TIME:
                kept += 1
        for i in range(old_start, old_start + old_entries):
            if e.kind[i] == GANG and e.parked_since[i] != NO_TIME:
                kept_gangs += 1
        kept_prof = np.empty(kept, np.int32)
        kept_group = np.empty(kept, np.int32)
        kept_unit = np.empty((kept, width), np.int64)
        kept_since = np.empty(kept, np.int64)
        gang_prof = np.empty(kept_gangs, np.int32)
        gang_group = np.empty(kept_gangs, np.int32)
        gang_since = np.empty(kept_gangs, np.int64)
        k = 0
        g = 0
        if kept > 0 or kept_gangs > 0:
            for i in range(old_start, old_start + old_entries):
                for part in range(e.part[i], e.part[i] + e.parts[i]):
                    if parts.since[part] != NO_TIME:
                        kept_prof[k] = e.prof[i]
                        kept_group[k] = e.group[i]
                        kept_since[k] = parts.since[part]
                        for d in range(width):
                            kept_unit[k, d] = parts.unit[part, d]
                        k += 1
                if e.kind[i] == GANG and e.parked_since[i] != NO_TIME:
                    gang_prof[g] = e.prof[i]
                    gang_group[g] = e.group[i]
                    gang_since[g] = e.parked_since[i]
                    g += 1
        if c.old_size[cluster] > 0:
            give_chunk(regions, old_start, c.old_size[cluster])
            c.old_size[cluster] = 0

        # Parts by key: plain rows and parts of gangs as they are, folded gangs as what they became.
        part_prof = np.empty(count, np.int32)
        part_group = np.empty(count, np.int32)
        part_unit = np.empty((count, width), np.int64)
        part_agg = np.empty((count, width), np.int64)
        part_arrival = np.empty(count, np.int64)
        part_folded = np.zeros(count, np.uint8)
        n = 0
        folds = 0
        i = 0
        while i < count:
            row = start + i
            prof = rows.prof[row]
            if p.same[prof] != -1 and rows.fold[row] != 0:
                for d in range(width):
                    part_agg[n, d] = 0
                arrival = rows.arrival[row]
                j = i
                while j < count and rows.prof[start + j] == prof and rows.group[start + j] == rows.group[row]:
                    for d in range(width):
                        part_agg[n, d] = min(_SATURATED, part_agg[n, d] + rows.agg[start + j, d])
                    arrival = min(arrival, rows.arrival[start + j])
                    j += 1
                for d in range(width):
                    part_unit[n, d] = part_agg[n, d]
                part_prof[n] = p.folded[prof]
                part_group[n] = 0
                part_arrival[n] = arrival
                part_folded[n] = 1
                folds += 1
                i = j
            else:
                part_prof[n] = prof
                part_group[n] = rows.group[row]
                part_arrival[n] = rows.arrival[row]
                for d in range(width):
                    part_unit[n, d] = rows.unit[row, d]
                    part_agg[n, d] = rows.agg[row, d]
                i += 1
            n += 1
        order = np.empty(n, np.int32)
        for i in range(n):
            order[i] = i
        if folds > 0:
            sort_rows(order, n, part_prof, part_group, part_unit, desc)
        # Equal keys are one part; entries are runs of parts of one gang, or single parts.
        m = 0
        for i in range(n):
            one = order[i]
            if m > 0:
                last = order[m - 1]
                if (
                    _key_order(
                        part_prof, part_group, part_unit, last, part_prof[one], part_group[one], part_unit, one, desc
                    )
                    == 0
                ):
                    for d in range(width):
                        part_agg[last, d] = min(_SATURATED, part_agg[last, d] + part_agg[one, d])
                    part_arrival[last] = min(part_arrival[last], part_arrival[one])
                    part_folded[last] |= part_folded[one]
                    continue
            order[m] = one
            m += 1
        entry_prof = np.empty(m, np.int32)
        entry_group = np.empty(m, np.int32)
        entry_arrival = np.empty(m, np.int64)
        entry_first = np.empty(m, np.int32)  # a part, for its unit
        entry_at = np.empty(m, np.int32)  # its place in `order`
        entry_parts = np.empty(m, np.int32)
        entries = 0
        i = 0
        while i < m:
            one = order[i]
            entry_prof[entries] = part_prof[one]
            entry_group[entries] = part_group[one]
            entry_arrival[entries] = part_arrival[one]
            entry_first[entries] = one
            entry_at[entries] = i
            j = i + 1
            if p.same[part_prof[one]] != -1:
                while j < m and part_prof[order[j]] == part_prof[one] and part_group[order[j]] == part_group[one]:
                    entry_arrival[entries] = min(entry_arrival[entries], part_arrival[order[j]])
                    j += 1
            entry_parts[entries] = j - i
            entries += 1
            i = j
        served = np.empty(entries, np.int32)
        for i in range(entries):
            served[i] = i
        sort = sorting(0, entries)
        while asks(sort, served):
            sort[ANSWER] = _before(
                p, texts, entry_prof, entry_group, entry_arrival, entry_first, part_unit, desc, sort[LATER],
                sort[EARLIER],
            )  # fmt: skip

        # Units one after the other, each in the order of service.
        first_unit = units.first[cluster]
        unit_count = units.count[cluster]
        unit_at = np.zeros(unit_count + 1, np.int32)
        unit_of = np.empty(entries, np.int32)
        for i in range(entries):
            unit_of[i] = unit_of_con(units, cluster, p.con[entry_prof[i]]) - first_unit
            unit_at[unit_of[i] + 1] += 1
        for u in range(unit_count):
            owners.entry[first_unit + u] = start + unit_at[u]
            owners.entries[first_unit + u] = unit_at[u + 1]
            owners.choosy[first_unit + u] = 0
            unit_at[u + 1] += unit_at[u]
        entry_slot = np.empty(entries, np.int32)
        for i in range(entries):
            one = served[i]
            entry_slot[one] = start + unit_at[unit_of[one]]
            unit_at[unit_of[one]] += 1
            e.seq[entry_slot[one]] = i
        by_place = np.empty(entries, np.int32)
        for i in range(entries):
            by_place[entry_slot[i] - start] = i

        place = np.empty(m, np.int32)  # of the part at a place in `order`
        entry_place = np.empty(m, np.int32)  # of the entry of the part at a place in `order`
        at = start
        for i in range(entries):
            one = by_place[i]
            entry = start + i
            prof = entry_prof[one]
            e.prof[entry] = prof
            e.group[entry] = entry_group[one]
            e.cluster[entry] = cluster
            e.unit[entry] = first_unit + unit_of[one]
            e.arrival[entry] = entry_arrival[one]
            e.part[entry] = at
            e.parts[entry] = entry_parts[one]
            e.flags[entry] = 0
            e.parked_since[entry] = NO_TIME
            e.claimed[entry] = 0
            e.late[entry] = 0
            e.boots[entry] = 0
            e.provisions[entry] = 0
            e.domain[entry] = -1
            e.logged[entry] = 0
            if p.same[prof] != -1:
                e.kind[entry] = GANG
            elif p.spread[prof] != -1:
                e.kind[entry] = SPREAD
            else:
                e.kind[entry] = PLAIN
            if e.kind[entry] != PLAIN:
                owners.choosy[e.unit[entry]] = 1
            for j in range(entry_at[one], entry_at[one] + entry_parts[one]):
                part = order[j]
                if part_folded[part] != 0:
                    e.flags[entry] |= FOLDED
                for d in range(width):
                    parts.agg[at, d] = part_agg[part, d]
                    parts.unit[at, d] = part_unit[part, d]
                parts.since[at] = NO_TIME
                parts.row[at] = start + part
                place[j] = at
                entry_place[j] = entry
                at += 1
        c.entries[cluster] = entries
        c.parts[cluster] = at - start
        if c.gangs[cluster] == 0 or c.counted[cluster] != 0:
            # Nothing was folded, so parts are rows, in their order.
            for i in range(count):
                rows.part[start + i] = place[i]

        if c.counted[cluster] != 0:
            # Units may change their size; how long they have been short follows profile and group.
            for k in range(kept):
                c.short[cluster] = 1
                for j in range(m):
                    one = order[j]
                    if part_prof[one] == kept_prof[k] and part_group[one] == kept_group[k]:
                        if parts.since[place[j]] == NO_TIME or kept_since[k] < parts.since[place[j]]:
                            parts.since[place[j]] = kept_since[k]
            kept = 0
        for k in range(kept):
            low = 0
            high = m
            while low < high:
                middle = (low + high) // 2
                one = order[middle]
                if (
                    _key_order(part_prof, part_group, part_unit, one, kept_prof[k], kept_group[k], kept_unit, k, desc)
                    < 0
                ):
                    low = middle + 1
                else:
                    high = middle
            if low < m:
                one = order[low]
                if (
                    _key_order(part_prof, part_group, part_unit, one, kept_prof[k], kept_group[k], kept_unit, k, desc)
                    == 0
                ):
                    parts.since[place[low]] = kept_since[k]
        for g in range(kept_gangs):
            low = 0
            high = m
            while low < high:
                middle = (low + high) // 2
                one = order[middle]
                if part_prof[one] < gang_prof[g] or (
                    part_prof[one] == gang_prof[g] and part_group[one] < gang_group[g]
                ):
                    low = middle + 1
                else:
                    high = middle
            if low < m:
                one = order[low]
                if part_prof[one] == gang_prof[g] and part_group[one] == gang_group[g]:
                    e.parked_since[entry_place[low]] = gang_since[g]
        c.fresh[cluster] = 0
        c.dirty[cluster] = 1
