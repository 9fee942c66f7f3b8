"""Assign: every entry in order is credited with what its cluster has and acquires what it lacks (`docs/engine.md` §3).

Two passes with the outcome of one: credit cluster by cluster, where most entries of a settled fleet end, then what is
left of all clusters in the documented order. Kernels stop when a scratch column is full and go on after it has grown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.cells import CONFIGURED, FIRST_UNIT, OWNER_CREATING, OWNER_IDLE, OWNER_SPECULATIVE
from bigfleet.engine.credit import anything, creating_cells, credit_plain, log_room, make_lists, note, take
from bigfleet.engine.free import acquire_from, free_room, idle_list, speculative_list
from bigfleet.engine.gang import STALLED, acquire_gang, note_parking, serve_gang
from bigfleet.engine.jit import I4, I8, I8M, inner, kernel
from bigfleet.engine.rows import FOLDED, GANG, NO_TIME, PARKED, PLAIN, SATISFIABLE, SPREAD
from bigfleet.engine.spread import (
    acquire_spread,
    credit_spread,
    must_wait,
    open_universe,
    recount_spread,
    save_universe,
)
from bigfleet.engine.world import CELLS_USED, LISTS_USED, LOG_USED, Log, Rules, World

_SPREADING = 1


@inner
def begin_entry(w: World, log: Log, left: I8M, entry: int) -> None:
    """An entry starts with nothing claimed and everything left."""
    w.e.claimed[entry] = 0
    w.e.late[entry] = 0
    w.e.boots[entry] = 0
    w.e.provisions[entry] = 0
    w.e.domain[entry] = -1
    w.e.flags[entry] &= FOLDED
    w.e.log[entry] = log.meta[LOG_USED]
    w.e.logged[entry] = 0
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        for d in range(w.parts.agg.shape[1]):
            left[part, d] = w.parts.agg[part, d]


@kernel
def dirty_units(w: World, clusters: int, all_of_them: bool, which: I4) -> int:
    """Units to credit anew: their cells, entries or circumstances changed, or time may have changed them."""
    found = 0
    # Gangs and spread rows look at Creating machines without a cluster too.
    nameless = w.owners.dirty[OWNER_CREATING] != 0
    for cluster in range(clusters):
        whole = all_of_them or w.c.dirty[cluster] != 0
        w.c.dirty[cluster] = 0
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            if (
                whole
                or w.owners.dirty[owner] != 0
                or w.owners.stall[owner] >= 0
                or w.owners.timed[owner] != 0
                or (nameless and w.owners.choosy[owner] != 0)
            ):
                which[found] = owner
                found += 1
    return found


@kernel
def credit_units(w: World, rules: Rules, which: I4, first: int, last: int) -> int:
    """Credits the units `which[first:last]`; returns how far it came before a column was full."""
    owners = w.owners
    for at in range(first, last):
        owner = which[at]
        lists_before = w.lists.meta[LISTS_USED]
        cells_before = w.lists.meta[CELLS_USED]
        log_before = w.log.meta[LOG_USED]
        if not make_lists(w, owner):
            w.lists.meta[LISTS_USED] = lists_before
            w.lists.meta[CELLS_USED] = cells_before
            return at
        cells_start = owners.start[owner]
        cells_end = cells_start + owners.used[owner]
        for k in range(cells_start, cells_end):
            w.cells.taken[w.held.data[k]] = 0
        end = owners.entry[owner] + owners.entries[owner]
        owners.stall[owner] = -1
        owners.pending[owner] = 0
        owners.timed[owner] = 0
        owners.log[owner] = log_before
        full = False
        for entry in range(owners.entry[owner], end):
            if not log_room(w, w.log, entry):
                full = True
                break
            begin_entry(w, w.log, w.parts.credit, entry)
            kind = w.e.kind[entry]
            stalled = False
            if kind == PLAIN:
                done = credit_plain(w, w.log, w.parts.credit, entry, False)
            elif kind == SPREAD:
                done = False
                if must_wait(w, entry):
                    stalled = True
                else:
                    credit_spread(w, w.log, w.parts.credit, entry, False)
                    done = not anything(w.parts.credit, w.e.part[entry])
            else:
                stalled = serve_gang(w, rules, w.log, w.parts.credit, entry, True) == STALLED
                done = True
                for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
                    if anything(w.parts.credit, part):
                        done = False
            w.e.logged[entry] = w.log.meta[LOG_USED] - w.e.log[entry]
            if stalled:
                owners.stall[owner] = entry
                owners.pending[owner] += end - entry
                break
            if not done:
                owners.pending[owner] += 1
            else:
                for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
                    w.parts.since[part] = NO_TIME
        if full:
            w.log.meta[LOG_USED] = log_before
            w.lists.meta[LISTS_USED] = lists_before
            w.lists.meta[CELLS_USED] = cells_before
            return at
        for entry in range(owners.entry[owner], end if owners.stall[owner] < 0 else owners.stall[owner]):
            if w.e.kind[entry] == GANG:
                note_parking(w, rules, w.parts.credit, entry)
        owners.logged[owner] = w.log.meta[LOG_USED] - log_before
        excess = 0
        configured = 0
        for k in range(cells_start, cells_end):
            cell = w.held.data[k]
            if w.cells.state[cell] == CONFIGURED:
                configured += w.cells.count[cell]
                excess += w.cells.count[cell] - w.cells.taken[cell]
        owners.excess[owner] = excess
        owners.configured[owner] = configured
        if owners.stall[owner] < 0:
            # Only units that go on later need their chains any longer.
            w.lists.meta[LISTS_USED] = lists_before
            w.lists.meta[CELLS_USED] = cells_before
    return last


@kernel
def count_pending(w: World, clusters: int) -> int:
    total = 0
    for cluster in range(clusters):
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            total += w.owners.pending[owner]
    return total


@kernel
def collect_pending(w: World, clusters: int, entries: I4, precedence: I4, arrival: I8, rank: I4, seq: I4) -> None:
    """Entries that the shard-wide pass must serve, with their keys."""
    at = 0
    for cluster in range(clusters):
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            if w.owners.pending[owner] == 0:
                continue
            start = w.owners.entry[owner]
            stall = w.owners.stall[owner]
            for entry in range(start, start + w.owners.entries[owner]):
                wanted = stall >= 0 and entry >= stall
                if not wanted:
                    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
                        if anything(w.parts.credit, part):
                            wanted = True
                if wanted:
                    entries[at] = entry
                    precedence[at] = w.p.precedence[w.e.prof[entry]]
                    arrival[at] = w.e.arrival[entry]
                    rank[at] = w.c.rank[cluster]
                    seq[at] = w.e.seq[entry]
                    at += 1


@kernel
def reset_free(w: World) -> None:
    """Nothing free is claimed and no list of free cells exists at the beginning of a pass."""
    for owner in range(FIRST_UNIT):
        for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
            w.cells.taken[w.held.data[k]] = 0
    for i in range(w.free.meta[0]):
        con = w.free.cons[i]
        w.free.idle[con] = -1
        for bucket in range(w.free.speculative.shape[1]):
            w.free.speculative[con, bucket] = -1
    for bucket in range(len(w.free.ready)):
        w.free.ready[bucket] = 0
    w.free.meta[0] = 0
    w.free.meta[_SPREADING] = 0
    w.late.meta[LOG_USED] = 0
    w.got.meta[0] = 0
    w.uni.meta[0] = 0


@kernel
def serve_pending(w: World, rules: Rules, order: I4, first: int, last: int) -> int:
    """Serves the entries `order[first:last]`; returns how far it came before a column was full."""
    for at in range(first, last):
        entry = order[at]
        cluster = w.e.cluster[entry]
        prof = w.e.prof[entry]
        part = w.e.part[entry]
        kind = w.e.kind[entry]
        free_cells = w.owners.used[OWNER_IDLE] + w.owners.used[OWNER_SPECULATIVE]
        going_on = w.free.meta[_SPREADING] != 0
        if (
            not free_room(w)
            or not log_room(w, w.late, entry)
            or w.uni.meta[0] + len(w.dom.list) > len(w.uni.dom)
            or w.got.meta[0] + 1 + free_cells * w.e.parts[entry] > len(w.got.cell)
        ):
            return at
        stall = w.owners.stall[w.e.unit[entry]]
        stalled = stall >= 0 and entry >= stall
        may_acquire = rules.acquire and w.c.connected[cluster] != 0
        left = w.parts.left
        if not going_on:
            if stalled:
                begin_entry(w, w.late, left, entry)
            else:
                w.e.late[entry] = 0
                w.e.boots[entry] = 0
                w.e.provisions[entry] = 0
                for i in range(part, part + w.e.parts[entry]):
                    for d in range(left.shape[1]):
                        left[i, d] = w.parts.credit[i, d]
        if kind == GANG:
            if stalled:
                serve_gang(w, rules, w.late, left, entry, False)
            elif may_acquire and w.e.flags[entry] & SATISFIABLE and not w.e.flags[entry] & PARKED:
                acquire_gang(w, left, entry)
        elif kind == PLAIN:
            if stalled:
                done = credit_plain(w, w.late, left, entry, True)
            else:
                done = _credit_nameless(w, entry)
            if may_acquire and not done:
                done = acquire_from(w, left, entry, part, idle_list(w, prof), -1, -1)
                if not done:
                    acquire_from(w, left, entry, part, speculative_list(w, prof), -1, -1)
        else:
            if not going_on:
                # Counted from the log: domains of machines that were looked at and not taken do not count.
                if stalled:
                    credit_spread(w, w.late, left, entry, True)
                    w.e.logged[entry] = w.late.meta[LOG_USED] - w.e.log[entry]
                    recount_spread(w, w.late, entry)
                else:
                    recount_spread(w, w.log, entry)
                open_universe(w, entry)
            if may_acquire:
                w.free.meta[_SPREADING] = 1
                if not acquire_spread(w, left, entry):
                    return at
                w.free.meta[_SPREADING] = 0
            if anything(left, part):
                save_universe(w, at)
        if stalled:
            w.e.logged[entry] = w.late.meta[LOG_USED] - w.e.log[entry]
    return last


@inner
def _credit_nameless(w: World, entry: int) -> bool:
    """Credits a plain row with Creating machines that name no cluster; True when nothing is left."""
    if w.owners.used[OWNER_CREATING] == 0:
        return False
    part = w.e.part[entry]
    con = w.p.con[w.e.prof[entry]]
    found = creating_cells(w, entry, True)
    for i in range(found):
        cell = w.tmp.cell[i]
        available = w.cells.count[cell] - w.cells.taken[cell]
        if w.cells.cluster[cell] >= 0 or available == 0 or w.match[con, w.cells.cls[cell]] == 0:
            continue
        n = take(
            w.k.alloc, w.cells.cls[cell], w.c.overhead, w.e.cluster[entry], w.parts.unit, w.parts.left, part,
            available,
        )  # fmt: skip
        if n > 0:
            w.cells.taken[cell] += n
            w.e.late[entry] += n
            note(w.late, entry, cell, n)
            if not anything(w.parts.left, part):
                return True
    return False


def pending_order(
    precedence: NDArray[np.int32], arrival: NDArray[np.int64], rank: NDArray[np.int32], seq: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Places in the order of service; within a cluster `seq` has decided the rest."""
    return np.lexsort((seq, rank, arrival, precedence))
