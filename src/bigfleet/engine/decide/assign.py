"""Assign: every entry in order is credited with what its cluster has and acquires what it lacks (`docs/engine.md` §3).

Two passes with the outcome of one: credit cluster by cluster, where most entries of a settled fleet end, then what is
left of all clusters in the documented order. Kernels stop when a scratch column is full and go on after it has grown.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.decide.alike import credit_alike
from bigfleet.engine.decide.credit import (
    DONE,
    SHORT,
    anything,
    begin_entry,
    creating_cells,
    credit_plain,
    log_room,
    make_list,
    note,
    replay,
    take,
)
from bigfleet.engine.decide.free import acquire_from, free_room, idle_list, speculative_list
from bigfleet.engine.decide.gang import STALLED, acquire_gang, note_parking, serve_gang
from bigfleet.engine.decide.logbook import keep_log
from bigfleet.engine.decide.spread import (
    acquire_spread,
    credit_spread,
    must_wait,
    open_universe,
    recount_spread,
    save_universe,
)
from bigfleet.engine.decide.world import CELLS_USED, EPOCH, LISTS_USED, LOG_USED, Rules, World
from bigfleet.engine.demand.rows import GANG, NO_TIME, PARKED, PLAIN, SATISFIABLE, SETTLED, SPREAD
from bigfleet.engine.fleet.cells import (
    CONFIGURED,
    CREATING,
    DIRTY,
    FIRST_UNIT,
    NEW,
    OWNER_CREATING,
    OWNER_IDLE,
    OWNER_SPECULATIVE,
)
from bigfleet.engine.kernels.jit import I4, inner, kernel, prefetch
from bigfleet.engine.kernels.sort import sort_by_key

# Places in `Free.meta`.
_SPREADING, SHORTS = 1, 2


@kernel
def begin_assign(w: World, clusters: int, all_of_them: bool, doors_changed: bool, which: I4) -> int:
    """Units to credit anew: their cells, entries or circumstances changed, or time may have changed them.

    Whether the shard may acquire matters to the credit of gangs and spread rows only. Forgets who was dirty, what free
    supply was claimed, and all lists.
    """
    found = 0
    owners = w.owners
    # Gangs and spread rows look at Creating machines without a cluster too.
    look_out = doors_changed or owners.dirty[OWNER_CREATING] != 0
    for cluster in range(clusters):
        whole = all_of_them or w.c.dirty[cluster] != 0
        w.c.dirty[cluster] = 0
        if w.c.counted[cluster] != 0:
            for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
                if whole or owners.dirty[owner] != 0:
                    _credit_nothing(w, owner)
            continue
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            if (
                whole
                or owners.dirty[owner] != 0
                or owners.stall[owner] >= 0
                or owners.timed[owner] != 0
                or (look_out and owners.choosy[owner] != 0)
            ):
                if whole:
                    owners.alike[owner] = -1
                which[found] = owner
                found += 1
    for i in range(owners.meta[DIRTY]):
        owners.dirty[owners.list[i]] = 0
    owners.meta[DIRTY] = 0
    w.lists.meta[CELLS_USED] = 0
    w.lists.meta[LISTS_USED] = 0
    _reset_free(w)
    return found


@inner
def _credit_nothing(w: World, owner: int) -> None:
    """A unit of a cluster that reports placement: nothing it has is claimed, and nothing of it is excess by sums."""
    owners = w.owners
    owners.stall[owner] = -1
    owners.alike[owner] = -1
    owners.unlogged[owner] = 0
    owners.pending[owner] = 0
    owners.timed[owner] = 0
    owners.logged[owner] = 0
    owners.excess[owner] = 0
    for k in range(owners.start[owner], owners.start[owner] + owners.used[owner]):
        cell = w.held.data[k]
        w.cells.taken[cell] = 0
        w.cells.flags[cell] &= ~NEW & 0xFF


@inner
def _fetch_list(w: World, owner: int) -> None:
    """Asks for the list of a unit that is some units away."""
    if w.owners.alike[owner] < 0:
        for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner], 16):
            prefetch(w.held.data, k)
        prefetch(w.e.part, w.owners.entry[owner])


@inner
def _fetch_unit(w: World, owner: int) -> None:
    """Asks for the cells and entries of a unit that is near: they are short stretches all over memory."""
    if w.owners.alike[owner] < 0:
        for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
            prefetch(w.cells.count, w.held.data[k])
    elif w.owners.pending[owner] == 0:
        # Its entries are probably as they were.
        if w.owners.stirred[owner] >= 0:
            prefetch(w.cells.count, w.cells.touched[w.owners.stirred[owner]])
        return
    first = w.owners.entry[owner]
    count = w.owners.entries[owner]
    prefetch(w.e.flags, first)
    prefetch(w.e.kind, first)
    for entry in range(first, first + count, 16):
        prefetch(w.e.prof, entry)
        prefetch(w.e.logged, entry)
        prefetch(w.e.part, entry)
        prefetch(w.e.claimed, entry)
    for entry in range(first, first + count, 8):
        prefetch(w.e.log, entry)
    for i in range(w.owners.log[owner], w.owners.log[owner] + w.owners.logged[owner], 16):
        prefetch(w.log.cell, i)
        prefetch(w.log.n, i)
        prefetch(w.log.entry, i)
    if count > 0:
        width = w.parts.agg.shape[1]
        part = w.e.part[first] * width
        for i in range(part, part + count * width, 8):
            prefetch(w.parts.agg, i)
            prefetch(w.parts.unit, i)


@kernel
def credit_units(w: World, rules: Rules, which: I4, first: int, last: int) -> int:
    """Credits the units `which[first:last]`; returns how far it came before a column was full."""
    owners = w.owners
    for at in range(first, last):
        owner = which[at]
        if at + 8 < last:
            prefetch(owners.used, which[at + 8])
        if at + 4 < last:
            _fetch_list(w, which[at + 4])
        if at + 2 < last:
            _fetch_unit(w, which[at + 2])
        if credit_alike(w, owner):
            continue
        owners.unlogged[owner] = 0
        lists_before = w.lists.meta[LISTS_USED]
        cells_before = w.lists.meta[CELLS_USED]
        log_before = w.log.meta[LOG_USED]
        cells_start = owners.start[owner]
        cells_end = cells_start + owners.used[owner]
        # Cells being made are not in the chains: they serve by attribution. They are the last ones.
        bound = owners.used[owner]
        for k in range(cells_start, cells_end):
            cell = w.held.data[k]
            w.cells.taken[cell] = 0
            if w.cells.state[cell] == CREATING:
                bound -= 1
        w.lists.meta[EPOCH] += 1
        mark = w.lists.meta[EPOCH]
        start = owners.entry[owner]
        end = start + owners.entries[owner]
        owners.stall[owner] = -1
        owners.pending[owner] = 0
        owners.timed[owner] = 0
        full = False
        credited = end
        for entry in range(start, end):
            con = w.p.con[w.e.prof[entry]]
            if w.lists.con_mark[con] != mark and not make_list(w, con, mark, cells_start, bound):
                full = True
                credited = entry
                break
            chain = w.lists.con_list[con]
            w.e.list[entry] = chain
            if w.e.flags[entry] & SETTLED and replay(w, entry, chain):
                continue
            if not log_room(w, w.log, entry):
                full = True
                credited = entry
                break
            begin_entry(w, w.log, w.parts.credit, entry)
            kind = w.e.kind[entry]
            stalled = False
            if kind == PLAIN:
                how = credit_plain(w, w.log, w.parts.credit, entry, False)
                done = how != SHORT
                if how == DONE:
                    w.e.flags[entry] |= SETTLED
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
                credited = entry
                full = not _list_rest(w, entry + 1, end, mark, cells_start, bound)
                break
            if not done:
                owners.pending[owner] += 1
            else:
                for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
                    w.parts.since[part] = NO_TIME
        if full:
            # What was noted so far is dropped, so nothing may be read from it again.
            for entry in range(start, credited):
                w.e.flags[entry] &= ~SETTLED & 0xFF
            w.log.meta[LOG_USED] = log_before
            w.lists.meta[LISTS_USED] = lists_before
            w.lists.meta[CELLS_USED] = cells_before
            return at
        if owners.choosy[owner] != 0:
            for entry in range(start, credited):
                if w.e.kind[entry] == GANG:
                    note_parking(w, rules, w.parts.credit, entry)
        keep_log(w, owner, log_before, start, credited)
        excess = 0
        for k in range(cells_start, cells_end):
            cell = w.held.data[k]
            w.cells.flags[cell] &= ~NEW & 0xFF
            if w.cells.state[cell] == CONFIGURED:
                excess += w.cells.count[cell] - w.cells.taken[cell]
        owners.excess[owner] = excess
        if owners.stall[owner] < 0:
            # Only units that go on later need their chains any longer.
            w.lists.meta[LISTS_USED] = lists_before
            w.lists.meta[CELLS_USED] = cells_before
    return last


@inner
def _list_rest(w: World, first: int, last: int, mark: int, held: int, count: int) -> bool:
    """Gives the entries beyond a stall their chains, for the shard-wide pass; False when there is no room."""
    for entry in range(first, last):
        con = w.p.con[w.e.prof[entry]]
        if w.lists.con_mark[con] != mark and not make_list(w, con, mark, held, count):
            return False
        w.e.list[entry] = w.lists.con_list[con]
    return True


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


@inner
def _reset_free(w: World) -> None:
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
    w.free.meta[SHORTS] = 0
    w.late.meta[LOG_USED] = 0
    w.got.meta[0] = 0
    w.uni.meta[0] = 0


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
            if w.free.meta[_SPREADING] == 0:
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
    if w.free.meta[_SPREADING] == 0:
        # Counted from the log: domains of machines that were looked at and not taken do not count.
        if stalled:
            credit_spread(w, w.late, w.parts.left, entry, True)
            w.e.logged[entry] = w.late.meta[LOG_USED] - w.e.log[entry]
            recount_spread(w, w.late, entry)
        else:
            recount_spread(w, w.log, entry)
        open_universe(w, entry)
    if _may_acquire(w, rules, entry):
        w.free.meta[_SPREADING] = 1
        if not acquire_spread(w, w.parts.left, entry):
            return False
        w.free.meta[_SPREADING] = 0
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
