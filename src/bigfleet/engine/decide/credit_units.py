"""Assign, the pass over units: each unit's entries are credited with what the cluster has, where most of a settled
fleet ends (§3).

Owns which units are looked at again and what stays pending for the shard-wide pass in `assign`; what an entry may be
credited with is `credit`'s. Kernels stop when a scratch column is full and go on after it has grown.
"""

from __future__ import annotations

from bigfleet.engine.decide.alike import credit_alike
from bigfleet.engine.decide.credit import DONE, SHORT, anything, begin_entry, credit_plain, log_room, make_list, replay
from bigfleet.engine.decide.free import reset_free
from bigfleet.engine.decide.gang import STALLED, note_parking, serve_gang
from bigfleet.engine.decide.logbook import keep_log
from bigfleet.engine.decide.spread import credit_spread, must_wait
from bigfleet.engine.decide.world import CELLS_USED, EPOCH, LISTS_USED, LOG_USED, Rules, World
from bigfleet.engine.demand.rows import GANG, NO_TIME, PLAIN, SETTLED, SPREAD
from bigfleet.engine.fleet.cells import CONFIGURED, CREATING, DIRTY, EMPTY, NEW, OWNER_CREATING
from bigfleet.engine.fleet.settling import put_in_order
from bigfleet.engine.kernels.jit import I4, inner, kernel, prefetch
from bigfleet.engine.kernels.pool import Pool


@kernel
def begin_assign(
    w: World, members: Pool, clusters: int, all_of_them: bool, doors_changed: bool, which: I4
) -> int:  # fmt: skip
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
                    _credit_nothing(w, members, owner)
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
    w.late.meta[LOG_USED] = 0
    w.got.meta[0] = 0
    w.uni.meta[0] = 0
    reset_free(w)
    return found


@inner
def _credit_nothing(w: World, members: Pool, owner: int) -> None:
    """A unit of a cluster that reports placement: nothing it has is claimed, and nothing of it is excess by sums."""
    owners = w.owners
    put_in_order(w.cells, members, owners, w.held, w.ids, owner)
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


@kernel
def credit_units(w: World, members: Pool, rules: Rules, which: I4, first: int, last: int) -> int:
    """Credits the units `which[first:last]`; returns how far it came before a column was full."""
    owners = w.owners
    for at in range(first, last):
        owner = which[at]
        if at + 16 < last:
            prefetch(owners.used, which[at + 16])
        if at + 8 < last:
            _fetch_list(w, which[at + 8])
        if at + 4 < last:
            _fetch_unit(w, which[at + 4])
        if credit_alike(w, members, owner):
            continue
        put_in_order(w.cells, members, owners, w.held, w.ids, owner)
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
        at = w.owners.stirred[owner]
        while at >= 0:
            if not w.cells.how[at] & EMPTY:
                prefetch(w.cells.count, w.cells.touched[at])
            at = w.cells.before[at]
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


@inner
def _list_rest(w: World, first: int, last: int, mark: int, held: int, count: int) -> bool:
    """Gives the entries beyond a stall their chains, for the shard-wide pass; False when there is no room."""
    for entry in range(first, last):
        con = w.p.con[w.e.prof[entry]]
        if w.lists.con_mark[con] != mark and not make_list(w, con, mark, held, count):
            return False
        w.e.list[entry] = w.lists.con_list[con]
    return True
