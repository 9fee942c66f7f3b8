"""The end of a step for counted entries: what each part lacks, for how long, and which gangs rest (P41, P43, R3.8)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.book import HOST, Book
from bigfleet.engine.counted.worth import deficit
from bigfleet.engine.decide.gang import parked_at
from bigfleet.engine.decide.world import Rules, World
from bigfleet.engine.demand.rows import GANG, NO_TIME, PARKED, SATISFIABLE
from bigfleet.engine.fleet.cells import DRAINING, IDLE, SPECULATIVE
from bigfleet.engine.kernels.jit import I4, U1, inner, kernel

_FREE = [IDLE, SPECULATIVE, DRAINING]


def classes_with_more(before: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.int32]:
    """Classes that have more Idle, more Speculative or more Draining machines than before (P17)."""
    grew = after[:, _FREE] > 0
    grew[: len(before)] = after[: len(before), _FREE] > before[:, _FREE]
    return np.nonzero(grew.any(axis=1))[0].astype(np.int32)


@kernel
def mark_parked(w: World, rules: Rules, clusters: int, more: I4) -> None:
    """Which gangs of reporting clusters rest in this step; `more` are the classes that have more machines to offer."""
    for cluster in range(clusters):
        if w.c.counted[cluster] == 0 or w.c.gangs[cluster] == 0:
            continue
        for entry in range(w.c.start[cluster], w.c.start[cluster] + w.c.entries[cluster]):
            if w.e.kind[entry] == GANG:
                w.e.flags[entry] &= ~(PARKED | SATISFIABLE) & 0xFF
                w.e.domain[entry] = -1
                if parked_at(w.e.parked_since[entry], rules.now, rules.cycle, rules.park_after, rules.reprobe_every):
                    if not _is_brought_some(w, entry, more):
                        w.e.flags[entry] |= PARKED


@inner
def _is_brought_some(w: World, entry: int, more: I4) -> bool:
    con = w.p.con[w.e.prof[entry]]
    for cls in more:
        if w.match[con, cls] == 0:
            continue
        for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
            holds = True
            for d in range(w.parts.unit.shape[1]):
                holds = holds and w.parts.unit[part, d] <= w.k.alloc[cls, d]
            if holds:
                return True
    return False


@kernel
def clear_parking(w: World, clusters: int) -> None:
    """No gang of a reporting cluster is hopeless until somebody says so again."""
    for cluster in range(clusters):
        if w.c.counted[cluster] != 0 and w.c.gangs[cluster] > 0:
            for entry in range(w.c.start[cluster], w.c.start[cluster] + w.c.entries[cluster]):
                w.e.parked_since[entry] = NO_TIME


@kernel
def close_turns(w: World, b: Book, count: int) -> None:
    """Amounts that Assign and Preempt left of every part of a turn."""
    for t in range(count):
        entry = b.t.entry[t]
        q = b.t.first[t]
        w.e.domain[entry] = b.t.domain[t]
        if b.t.ok[t] != 0:
            w.e.flags[entry] |= SATISFIABLE
        for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
            lacking = w.rows.lacking[w.parts.row[part]]
            assigned = lacking
            found = lacking
            if b.t.kind[t] == HOST:
                # What was found for the one unit was found for all parts.
                if b.t.n[t] > 0:
                    assigned = lacking if b.q.missing[q] > 0 else 0
                    found = lacking if deficit(b, q) > 0 else 0
            elif lacking > 0:
                assigned = b.q.missing[q]
                found = deficit(b, q)
                q += 1
            _write(w, part, assigned, found)


@inner
def _write(w: World, part: int, assigned: int, found: int) -> None:
    for d in range(w.parts.unit.shape[1]):
        w.parts.left[part, d] = assigned * w.parts.unit[part, d]
        w.parts.rest[part, d] = found * w.parts.unit[part, d]


@kernel
def count_short(w: World, clusters: int, short: U1) -> int:
    """Upper bound of the parts that stay short; `short` are clusters with a turn that lacks something."""
    total = 0
    for cluster in range(clusters):
        if w.c.counted[cluster] != 0 and short[cluster] != 0:
            total += w.c.parts[cluster]
    return total


@kernel
def age_units(w: World, clusters: int, short: U1, now: int, part_of: I4, entry_of: I4) -> int:
    """Starts, keeps or ends the runs of shortfalls, which follow profile and group; lists the parts that are short."""
    found = 0
    for cluster in range(clusters):
        if w.c.counted[cluster] == 0 or (short[cluster] == 0 and w.c.short[cluster] == 0):
            continue
        w.c.short[cluster] = 0
        entry = w.c.start[cluster]
        end = entry + w.c.entries[cluster]
        while entry < end:
            # Entries of one profile and group follow each other: they arrived together.
            last = entry
            since = NO_TIME
            while last < end and w.e.prof[last] == w.e.prof[entry] and w.e.group[last] == w.e.group[entry]:
                for part in range(w.e.part[last], w.e.part[last] + w.e.parts[last]):
                    before = w.parts.since[part]
                    if before != NO_TIME and (since == NO_TIME or before < since):
                        since = before
                last += 1
            for each in range(entry, last):
                for part in range(w.e.part[each], w.e.part[each] + w.e.parts[each]):
                    w.parts.since[part] = NO_TIME
                    if w.rows.lacking[w.parts.row[part]] > 0 and _lacks(w, part):
                        w.parts.since[part] = now if since == NO_TIME else since
                        w.c.short[cluster] = 1
                        part_of[found] = part
                        entry_of[found] = each
                        found += 1
            entry = last
    return found


@inner
def _lacks(w: World, part: int) -> bool:
    for d in range(w.parts.rest.shape[1]):
        if w.parts.rest[part, d] > 0:
            return True
    return False


@kernel
def find_short(b: Book, count: int, lacking: U1) -> None:
    """Which turns lack something; a gang that no host may hold has no portion and lacks all of it."""
    for t in range(count):
        lacking[t] = b.t.n[t] == 0
        for q in range(b.t.first[t], b.t.first[t] + b.t.n[t]):
            if deficit(b, q) > 0:
                lacking[t] = 1
