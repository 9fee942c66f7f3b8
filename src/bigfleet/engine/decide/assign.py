"""Assign, the shard-wide pass: what is left of all clusters, in the order of service, acquires what it lacks (§3).

`credit_units` comes before it, and together they have the outcome of one pass over all entries. Kernels stop when a
scratch column is full and go on after it has grown.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.decide.credit import (
    SHORT,
    anything,
    begin_entry,
    creating_cells,
    credit_plain,
    log_room,
    note,
    take,
)
from bigfleet.engine.decide.free import SHORTS, SPREADING, acquire_from, free_room, idle_list, speculative_list
from bigfleet.engine.decide.gang import acquire_gang, serve_gang
from bigfleet.engine.decide.spread import acquire_spread, credit_spread, open_universe, recount_spread, save_universe
from bigfleet.engine.decide.world import LOG_USED, Rules, World
from bigfleet.engine.demand.rows import GANG, NO_TIME, PARKED, PLAIN, SATISFIABLE
from bigfleet.engine.fleet.cells import OWNER_CREATING, OWNER_IDLE, OWNER_SPECULATIVE
from bigfleet.engine.kernels.jit import I4, inner, kernel
from bigfleet.engine.kernels.sort import sort_by_key


@kernel
def count_pending(w: World, clusters: int) -> int:
    total = 0
    for cluster in range(clusters):
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            total += w.owners.pending[owner]
    return total


@inner
def _is_pending(w: World, entry: int, stall: int) -> bool:
    if stall >= 0 and entry >= stall:
        return True
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        if anything(w.parts.credit, part):
            return True
    return False


@kernel
def order_pending(w: World, by_name: I4, clusters: int, order: I4) -> None:
    """Entries the shard-wide pass must serve: by precedence, arrival, cluster and place within the cluster."""
    total = 0
    for i in range(clusters):
        cluster = by_name[i]
        before = total
        ascending = True
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            if w.owners.pending[owner] == 0:
                continue
            start = w.owners.entry[owner]
            stall = w.owners.stall[owner]
            for entry in range(start, start + w.owners.entries[owner]):
                if _is_pending(w, entry, stall):
                    if total > before and w.e.seq[order[total - 1]] > w.e.seq[entry]:
                        ascending = False
                    order[total] = entry
                    total += 1
        if not ascending:
            # `seq` counts the cluster's entries from 0, so each has its own place.
            places = np.full(w.c.entries[cluster], -1, np.int32)
            for k in range(before, total):
                places[w.e.seq[order[k]]] = order[k]
            at = before
            for k in range(len(places)):
                if places[k] >= 0:
                    order[at] = places[k]
                    at += 1
    keys = np.empty(total, np.int64)
    for i in range(total):
        keys[i] = w.e.arrival[order[i]]
    sort_by_key(order, keys, total)
    for i in range(total):
        keys[i] = w.p.precedence[w.e.prof[order[i]]]
    sort_by_key(order, keys, total)


@kernel
def serve_pending(w: World, rules: Rules, order: I4, first: int, last: int, short: I4) -> int:
    """Serves the entries `order[first:last]`; returns how far it came before a column was full.

    Places in the order of entries that stay short go to `short`, `free.meta[SHORTS]` of them in all.
    """
    free_cells = w.owners.used[OWNER_IDLE] + w.owners.used[OWNER_SPECULATIVE]
    nameless = w.owners.used[OWNER_CREATING] > 0
    got_most = len(w.got.cell) - 1 - free_cells
    for at in range(first, last):
        entry = order[at]
        kind = w.e.kind[entry]
        stall = w.owners.stall[w.e.unit[entry]]
        stalled = stall >= 0 and entry >= stall
        if kind == PLAIN and not nameless and not stalled:
            # What nearly all entries are when much is to be acquired.
            if not free_room(w) or w.got.meta[0] > got_most:
                return at
            lacking = not _serve_plain(w, rules, entry)
        else:
            if not _service_room(w, entry, free_cells):
                return at
            if w.free.meta[SPREADING] == 0:
                _begin_service(w, entry, stalled)
            if kind == GANG:
                _serve_gang(w, rules, entry, stalled)
            elif kind == PLAIN:
                _serve_credited(w, rules, entry, stalled, nameless)
            elif not _serve_spread(w, rules, entry, at, stalled):
                return at
            lacking = _end_service(w, entry, stalled)
        if lacking:
            short[w.free.meta[SHORTS]] = at
            w.free.meta[SHORTS] += 1
    return last


@inner
def _service_room(w: World, entry: int, free_cells: int) -> bool:
    """Whether columns have room for whatever serving the entry may note."""
    return (
        free_room(w)
        and log_room(w, w.late, entry)
        and w.uni.meta[0] + len(w.dom.list) <= len(w.uni.dom)
        and w.got.meta[0] + 1 + free_cells * w.e.parts[entry] <= len(w.got.cell)
    )


@inner
def _begin_service(w: World, entry: int, stalled: bool) -> None:
    """An entry starts with what its credit left; one beyond a stall was not credited and starts with everything."""
    if stalled:
        begin_entry(w, w.late, w.parts.left, entry)
        return
    w.e.late[entry] = 0
    w.e.boots[entry] = 0
    w.e.provisions[entry] = 0
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        for d in range(w.parts.left.shape[1]):
            w.parts.left[part, d] = w.parts.credit[part, d]


@inner
def _end_service(w: World, entry: int, stalled: bool) -> bool:
    """Closes the entry's stretch of the log and the ages of parts that got everything; True when something lacks."""
    if stalled:
        w.e.logged[entry] = w.late.meta[LOG_USED] - w.e.log[entry]
    lacking = False
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        if anything(w.parts.left, part):
            lacking = True
        else:
            w.parts.since[part] = NO_TIME
    if not lacking and w.e.kind[entry] == GANG:
        w.e.parked_since[entry] = NO_TIME
    return lacking


@inner
def _may_acquire(w: World, rules: Rules, entry: int) -> bool:
    return rules.acquire and w.c.connected[w.e.cluster[entry]] != 0


@inner
def _serve_gang(w: World, rules: Rules, entry: int, stalled: bool) -> None:
    if stalled:
        serve_gang(w, rules, w.late, w.parts.left, entry, False)
    elif _may_acquire(w, rules, entry) and w.e.flags[entry] & SATISFIABLE and not w.e.flags[entry] & PARKED:
        acquire_gang(w, w.parts.left, entry)


@inner
def _serve_credited(w: World, rules: Rules, entry: int, stalled: bool, nameless: bool) -> None:
    """Serves a plain row that is credited here first: beyond a stall, or where Creating machines name no cluster."""
    if stalled:
        done = credit_plain(w, w.late, w.parts.left, entry, True) != SHORT
    else:
        done = nameless and _credit_nameless(w, entry)
    if not done and _may_acquire(w, rules, entry):
        _acquire_plain(w, entry)


@inner
def _serve_spread(w: World, rules: Rules, entry: int, at: int, stalled: bool) -> bool:
    """Serves a spread row, or goes on where it stopped; False when a column was full on the way."""
    if w.free.meta[SPREADING] == 0:
        # Counted from the log: domains of machines that were looked at and not taken do not count.
        if stalled:
            credit_spread(w, w.late, w.parts.left, entry, True)
            w.e.logged[entry] = w.late.meta[LOG_USED] - w.e.log[entry]
            recount_spread(w, w.late, entry)
        else:
            recount_spread(w, w.log, entry)
        open_universe(w, entry)
    if _may_acquire(w, rules, entry):
        w.free.meta[SPREADING] = 1
        if not acquire_spread(w, w.parts.left, entry):
            return False
        w.free.meta[SPREADING] = 0
    if anything(w.parts.left, w.e.part[entry]):
        save_universe(w, at)
    return True


@inner
def _serve_plain(w: World, rules: Rules, entry: int) -> bool:
    """Lets a plain row acquire what its credit left; True when nothing is left."""
    _begin_service(w, entry, False)
    if _may_acquire(w, rules, entry) and _acquire_plain(w, entry):
        w.parts.since[w.e.part[entry]] = NO_TIME
        return True
    return False


@inner
def _acquire_plain(w: World, entry: int) -> bool:
    """Idle machines first, then Speculative ones; True when nothing is left."""
    prof = w.e.prof[entry]
    part = w.e.part[entry]
    return acquire_from(w, w.parts.left, entry, part, idle_list(w, prof), -1, -1) or acquire_from(
        w, w.parts.left, entry, part, speculative_list(w, prof), -1, -1
    )


@inner
def _credit_nameless(w: World, entry: int) -> bool:
    """Credits a plain row with Creating machines that name no cluster; True when nothing is left."""
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
