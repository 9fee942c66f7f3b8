"""Placing: how records, holds and class changes move machines between cells, as kernels over the fleet's columns.

A placement has two halves: cells are found or made and announced how many machines they get, then they get room and the
machines. Nothing here decides what a machine is used for.
"""

from __future__ import annotations

from bigfleet.engine.catalog.catalog import BAD_DUPLICATE, BAD_ID, BAD_PROBABILITY, BAD_STATE, BAD_STRUCTURE
from bigfleet.engine.fleet.cells import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    FREE,
    IDLE,
    OWNER_CREATING,
    OWNER_DRAINING,
    OWNER_HELD_IDLE,
    OWNER_IDLE,
    OWNER_SPECULATIVE,
    SPECULATIVE,
    Cells,
    cell_hash,
    find_cell,
    join,
    leave,
    likely_cell,
    link,
    make_cell,
    make_room,
    touch,
)
from bigfleet.engine.fleet.partitions import Units, unit_of_class
from bigfleet.engine.kernels.ids import (
    SKIP,
    Ids,
    align_ids,
    forget_id,
    hash_bytes,
    id_size,
    id_start,
    intern_id,
    is_keyed,
    likely_slot,
    prefix_key,
)
from bigfleet.engine.kernels.jit import F8, I4, I4R, I8, I8M, U1, U1R, inner, kernel, prefetch, put
from bigfleet.engine.kernels.pool import Pool
from bigfleet.engine.kernels.view import View, view

# Bits of `flags`: live demand names this id; on the list of those waiting for `not_before`; kept for a move (P18); one
# of `not_before`, `deadline`, `excess_since` and `excess_mark` may be other than zero (of most machines none is read).
NAMED, TIMED, KEPT, RARE = 1, 2, 4, 8
# Records whose memory is asked for together, before the first of them is placed.
AHEAD = 128
# So many members of a cell are asked for when its holes may be closed: most cells have fewer.
_NEAR = 16
# Instead of the slot of a record: it has no id, or one that the batch named before.
_NO_ID, _REPEATED = -1, -2


@view
class Slots(View):
    """One row per machine. `cell` is -1 without one (a row without a state may have any); `seen` is the last batch that
    named the id; `excess_mark` the last step that found it excess, 0 without."""

    state: U1R
    shape: I4R
    cluster: I4R
    stamp: I4R
    not_before: I8
    deadline: I8
    idle_since: I8
    excess_since: I8
    excess_mark: I4
    cell: I4R
    place: I4R
    seen: I4R
    flags: U1R


@view
class Keys(View):
    """What a placement looks up: shapes, classes' prices and counts, stamps, bindings and pairs."""

    shape_class: I4
    shape_bad: U1
    price: F8
    count: I8M
    stamp_binding: I4
    stamp_pair: I4
    binding_worth: F8
    binding_group: I4
    pair_head: I4
    pair_group: I4
    units: Units


@view
class Work(View):
    """Lists a placement fills: machines to add to a `cell`, machines Python must class by name, waiting machines,
    ids that may name no machine, machines that a batch changed. `guess` is where records looked ahead at may be, `home`
    the hash of their ids, `key` what orders these and `goal` the hash of the cell they go to, `bad` counts bad ones by
    reason."""

    slot: I4
    cell: I4
    special: I4
    timed: I4
    gone: I4
    changed: I4
    guess: I4
    home: I4
    key: I8
    goal: I4
    bad: I8
    meta: I8


@view
class Records(View):
    """A batch as it came, and the fleet's numbers for the rows of its tables. `nameless` are clusters without a name.

    Shape, cluster and stamp of a record are rows of those tables; -1 is none. `deadline` may be empty: none has one.
    """

    arena: U1
    offsets: I8
    state: U1
    shape: I4
    cluster: I4
    stamp: I4
    not_before: I8
    deadline: I8
    shapes: I4
    clusters: I4
    stamps: I4
    nameless: U1


# Places in `Work.meta`.
TO_JOIN, TO_CLASS, WAITING, NEXT_DUE, ANY_CHANGE, GONE, CHANGED, JOINED = 0, 1, 2, 3, 4, 5, 6, 7


@inner
def _owner(keys: Keys, state: int, held: int, cluster: int, cls: int) -> int:
    """The ordered list a new cell belongs to, or -1."""
    if state == DRAINING:
        return OWNER_DRAINING
    if cluster >= 0:
        return unit_of_class(keys.units, cluster, cls)
    if state == CREATING:
        return OWNER_CREATING
    if state == CONFIGURING or state == CONFIGURED:
        return -1
    if held != 0:
        return OWNER_HELD_IDLE if state == IDLE else -1
    return OWNER_IDLE if state == IDLE else OWNER_SPECULATIVE


@inner
def _target(slots: Slots, cells: Cells, keys: Keys, slot: int, cls: int, home: int, now: int) -> int:
    """The cell a machine belongs to, made if it is new; -1 for states without one. `home` is the hash of the one it
    belongs to unless it is held, if known."""
    state = slots.state[slot]
    keys.count[cls, state] += 1
    if state == DELETING or state == FAILED or state == 0:
        return -1
    cluster = slots.cluster[slot]
    held = 0
    stamp = -1
    if state == CONFIGURED or state == CONFIGURING:
        stamp = keys.stamp_binding[slots.stamp[slot]]
    elif state == CREATING:
        stamp = keys.stamp_pair[slots.stamp[slot]]
    elif state != DRAINING:
        held = 1 if slots.flags[slot] & KEPT or now < _not_before(slots, slot) else 0
        cluster = -1
    if home < 0 or held != 0:
        home = cell_hash(cls, state, held, cluster, stamp)
    cell = find_cell(cells, home, cls, state, held, cluster, stamp)
    if cell >= 0:
        return cell
    cell = make_cell(cells, home, cls, state, held, cluster, stamp)
    cells.owner[cell] = _owner(keys, state, held, cluster, cls)
    cells.price[cell] = keys.price[cls]
    cells.worth[cell] = 0.0
    cells.group[cell] = 0
    # The next ones to be made are probably those that went last.
    ahead = cells.free[max(0, cells.meta[FREE] - 4)]
    prefetch(cells.cls, ahead)
    prefetch(cells.worth, ahead)
    prefetch(cells.group, ahead)
    if state == IDLE:
        cells.idle_floor[cell] = 9223372036854775807
    if state == CONFIGURED or state == CONFIGURING:
        cells.worth[cell] = keys.binding_worth[stamp]
        cells.group[cell] = keys.binding_group[stamp]
    elif state == CREATING:
        cells.price[cell] = 0.0
        cells.group[cell] = keys.pair_group[stamp]
        link(cells, keys.pair_head, cell)
    return cell


@inner
def _not_before(slots: Slots, slot: int) -> int:
    return slots.not_before[slot] if slots.flags[slot] & RARE else 0


@inner
def _settle_in(slots: Slots, cells: Cells, work: Work, slot: int, cell: int, now: int) -> None:
    """Announces a machine to its cell; `join_all` carries it out."""
    slots.cell[slot] = cell
    if cell < 0:
        return
    touch(cells, cell)
    cells.adds[cell] += 1
    work.slot[work.meta[TO_JOIN]] = slot
    work.cell[work.meta[TO_JOIN]] = cell
    work.meta[TO_JOIN] += 1
    if cells.state[cell] == IDLE and slots.idle_since[slot] < cells.idle_floor[cell]:
        cells.idle_floor[cell] = slots.idle_since[slot]
    if cells.held[cell] != 0 and now < _not_before(slots, slot):
        if slots.not_before[slot] < work.meta[NEXT_DUE]:
            work.meta[NEXT_DUE] = slots.not_before[slot]
        if not slots.flags[slot] & TIMED:
            slots.flags[slot] |= TIMED
            work.timed[work.meta[WAITING]] = slot
            work.meta[WAITING] += 1


@inner
def _take_out(slots: Slots, cells: Cells, members: Pool, keys: Keys, slot: int) -> None:
    """Removes a machine from its cell and from the counts of its class."""
    cell = slots.cell[slot]
    if cell >= 0:
        keys.count[cells.cls[cell], slots.state[slot]] -= 1
        leave(cells, members, cell, slots.place[slot], slot)
    elif slots.state[slot] != 0:
        # Deleting and Failed machines have no cell; their class is remembered in `place`.
        keys.count[slots.place[slot], slots.state[slot]] -= 1
    slots.cell[slot] = -1


@inner
def _put(slots: Slots, cells: Cells, keys: Keys, work: Work, slot: int, home: int, now: int) -> None:
    """Announces a machine to the cell it belongs to; `home` is its `_goal`, -1 if unknown."""
    if slots.flags[slot] & NAMED:
        work.special[work.meta[TO_CLASS]] = slot
        work.meta[TO_CLASS] += 1
        return
    cls = keys.shape_class[slots.shape[slot]]
    cell = _target(slots, cells, keys, slot, cls, home, now)
    if cell < 0:
        slots.place[slot] = cls
    _settle_in(slots, cells, work, slot, cell, now)


@kernel
def place_special(slots: Slots, cells: Cells, keys: Keys, work: Work, slot: int, cls: int, now: int) -> None:
    """Places a machine whose class Python had to name."""
    cell = _target(slots, cells, keys, slot, cls, -1, now)
    if cell < 0:
        slots.place[slot] = cls
    _settle_in(slots, cells, work, slot, cell, now)


@kernel
def mark_used(column: I4, state: U1, seen: U1) -> None:
    """Which table rows a column names; of removals (state 0) none, if the states are given."""
    judged = len(state) == len(column)
    for i in range(len(column)):
        if column[i] >= 0 and (not judged or state[i] != 0):
            seen[column[i]] = 1


@inner
def _look_ahead(
    slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, records: Records, first: int, last: int
) -> None:
    """Asks for the memory some records need, step by step: one record after the other would wait for each line."""
    mask = len(ids.table) - 1
    guess = work.guess
    home = work.home
    goal = work.goal
    for i in range(first, last):
        start = records.offsets[i]
        size = records.offsets[i + 1] - start
        home[i - first] = hash_bytes(records.arena, start, size)
        prefetch(ids.table, home[i - first] & mask)
        work.key[i - first] = prefix_key(records.arena, start, size, ids.meta[SKIP])
    for i in range(first, last):
        slot = likely_slot(ids, home[i - first])
        guess[i - first] = slot
        if slot >= 0:
            prefetch(ids.key, slot)
            prefetch(slots.state, slot)
            if records.state[i] == IDLE:
                prefetch(slots.idle_since, slot)
    table = len(cells.table) - 1
    for i in range(first, last):
        slot = guess[i - first]
        if slot >= 0:
            if not is_keyed(ids, id_size(ids, slot)):
                prefetch(ids.arena, id_start(ids, slot))
            _fetch_cell(cells, slots.cell[slot])
        goal[i - first] = _goal(keys, records, i)
        if goal[i - first] >= 0:
            prefetch(cells.table, goal[i - first] & table)
    for i in range(first, last):
        slot = guess[i - first]
        if slot >= 0 and slots.cell[slot] >= 0:
            prefetch(members.data, cells.start[slots.cell[slot]] + slots.place[slot])
            prefetch(keys.count, cells.cls[slots.cell[slot]] * keys.count.shape[1])
        if goal[i - first] >= 0:
            _fetch_cell(cells, likely_cell(cells, goal[i - first]))


@inner
def _goal(keys: Keys, records: Records, i: int) -> int:
    """The hash of the cell a machine goes to unless it is held, -1 where it is not worth finding out."""
    state = records.state[i]
    bound = state == CONFIGURED or state == CONFIGURING
    cluster = _cluster_of(records, i) if bound else -1
    if (bound and cluster < 0) or (not bound and state != IDLE and state != SPECULATIVE):
        return -1
    cls = keys.shape_class[records.shapes[records.shape[i]]]
    binding = keys.stamp_binding[_stamp_of(records, i)] if bound else -1
    return cell_hash(cls, state, 0, cluster, binding)


@inner
def _fetch_cell(cells: Cells, cell: int) -> None:
    if cell >= 0:
        prefetch(cells.cls, cell)


@kernel
def place_records(
    slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, records: Records, first: int,
    last: int, now: int, batch: int,
) -> int:  # fmt: skip
    """Takes over the records `first .. last`; counts the bad ones in `work.bad`, returns how many there were."""
    work.meta[TO_JOIN] = 0
    rejects = 0
    align_ids(ids, records.arena, records.offsets, first, last)
    for i in range(first, last):
        if (i - first) % AHEAD == 0:
            _look_ahead(slots, ids, cells, members, keys, work, records, i, min(last, i + AHEAD))
        slot = _slot_of(slots, ids, work, records, i, (i - first) % AHEAD, batch)
        problem = _problem(keys, records, i, slot)
        if problem != 0:
            work.bad[problem] += 1
            rejects += 1
        elif _differs(slots, slot, records, i):
            work.meta[ANY_CHANGE] = 1
            work.changed[work.meta[CHANGED]] = slot
            work.meta[CHANGED] += 1
            if slots.state[slot] != 0:
                _take_out(slots, cells, members, keys, slot)
            _write(slots, slot, records, i, now)
            if records.state[i] != 0:
                _put(slots, cells, keys, work, slot, work.goal[(i - first) % AHEAD], now)
            else:
                _note_gone(work, slot)
        else:
            # A deadline moves its machine nowhere.
            _write_rare(slots, slot, records, i, False)
    return rejects


@inner
def _slot_of(slots: Slots, ids: Ids, work: Work, records: Records, i: int, ahead: int, batch: int) -> int:
    """The slot of the id of a record, or why it has none; `ahead` is its place among those looked ahead at."""
    start = records.offsets[i]
    size = records.offsets[i + 1] - start
    if size == 0:
        return _NO_ID
    slot = intern_id(ids, records.arena, start, size, work.home[ahead], work.key[ahead])
    if slots.seen[slot] == batch:
        return _REPEATED
    slots.seen[slot] = batch
    if slots.state[slot] == 0:
        slots.cell[slot] = -1
        # Perhaps an id that names no machine: judged when the whole batch is in.
        _note_gone(work, slot)
    return slot


@inner
def _note_gone(work: Work, slot: int) -> None:
    work.gone[work.meta[GONE]] = slot
    work.meta[GONE] += 1


@inner
def _problem(keys: Keys, records: Records, i: int, slot: int) -> int:
    """What is wrong with a record; 0 for a good one. A removal has no shape to be judged."""
    state = records.state[i]
    shape = keys.shape_bad[records.shapes[records.shape[i]]] if state != 0 else 0
    if shape == 1 or shape == BAD_PROBABILITY:
        return shape
    if slot == _NO_ID:
        return BAD_ID
    if slot == _REPEATED:
        return BAD_DUPLICATE
    if state > FAILED:
        return BAD_STATE
    if _names_cluster(records, i):
        if state == SPECULATIVE or state == IDLE or state == DELETING:
            return BAD_STRUCTURE
    elif state == CONFIGURED or state == DRAINING:
        return BAD_STRUCTURE
    return shape


@inner
def _names_cluster(records: Records, i: int) -> bool:
    return records.cluster[i] >= 0 and records.nameless[records.cluster[i]] == 0


@inner
def _cluster_of(records: Records, i: int) -> int:
    return records.clusters[records.cluster[i]] if _names_cluster(records, i) else -1


@inner
def _stamp_of(records: Records, i: int) -> int:
    return records.stamps[records.stamp[i]] if records.stamp[i] >= 0 else 0


@inner
def _deadline_of(records: Records, i: int) -> int:
    return records.deadline[i] if len(records.deadline) > 0 else 0


@inner
def _differs(slots: Slots, slot: int, records: Records, i: int) -> bool:
    """Whether a record says anything new about its machine."""
    if slots.state[slot] != records.state[i]:
        return True
    return records.state[i] != 0 and (
        slots.shape[slot] != records.shapes[records.shape[i]]
        or slots.cluster[slot] != _cluster_of(records, i)
        or slots.stamp[slot] != _stamp_of(records, i)
        or _not_before(slots, slot) != records.not_before[i]
    )


@inner
def _write(slots: Slots, slot: int, records: Records, i: int, now: int) -> None:
    """The machine becomes what the record says; a removed one keeps its shape until its slot is used again."""
    state = records.state[i]
    cluster = _cluster_of(records, i)
    _write_rare(slots, slot, records, i, slots.state[slot] != state or slots.cluster[slot] != cluster)
    if state == IDLE and slots.state[slot] != IDLE:
        slots.idle_since[slot] = now
    slots.state[slot] = state
    slots.cluster[slot] = cluster
    slots.stamp[slot] = _stamp_of(records, i)
    if state != 0:
        slots.shape[slot] = records.shapes[records.shape[i]]


@inner
def _write_rare(slots: Slots, slot: int, records: Records, i: int, is_new: bool) -> None:
    """What is zero for most machines, of whom nothing is written or read. One that is new where it is has no excess."""
    not_before = records.not_before[i]
    deadline = _deadline_of(records, i)
    if not slots.flags[slot] & RARE:
        if not_before == 0 and deadline == 0:
            return
        slots.flags[slot] |= RARE
    put(slots.not_before, slot, not_before)
    put(slots.deadline, slot, deadline)
    if is_new:
        put(slots.excess_since, slot, 0)
        if slots.excess_mark[slot] != 0:
            slots.excess_mark[slot] = 0
    if not_before == 0 and deadline == 0 and slots.excess_since[slot] == 0 and slots.excess_mark[slot] == 0:
        slots.flags[slot] &= ~RARE & 0xFF


@kernel
def free_slots(slots: Slots, ids: Ids, work: Work) -> None:
    """Ids that name no machine give their slot back."""
    for i in range(work.meta[GONE]):
        slot = work.gone[i]
        if slots.state[slot] == 0 and not slots.flags[slot] & NAMED and ids.span[slot] >= 0:
            forget_id(ids, slot)
    work.meta[GONE] = 0


@kernel
def place_due(slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, now: int) -> None:
    """Moves machines whose hold is over and forgets those that wait no longer."""
    work.meta[TO_JOIN] = 0
    waiting = work.meta[WAITING]
    work.meta[WAITING] = 0
    work.meta[NEXT_DUE] = 9223372036854775807
    for i in range(waiting):
        slot = work.timed[i]
        slots.flags[slot] &= ~TIMED & 0xFF
        cell = slots.cell[slot]
        if cell < 0 or cells.held[cell] == 0:
            continue
        if slots.not_before[slot] <= now:
            if slots.flags[slot] & KEPT:
                continue
            work.meta[ANY_CHANGE] = 1
            _take_out(slots, cells, members, keys, slot)
            _put(slots, cells, keys, work, slot, -1, now)
        else:
            slots.flags[slot] |= TIMED
            work.timed[work.meta[WAITING]] = slot
            work.meta[WAITING] += 1
            if slots.not_before[slot] < work.meta[NEXT_DUE]:
                work.meta[NEXT_DUE] = slots.not_before[slot]


@kernel
def unplace(slots: Slots, used: int) -> None:
    for slot in range(used):
        slots.cell[slot] = -1
        slots.flags[slot] &= ~TIMED & 0xFF


@kernel
def place_range(
    slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, first: int, last: int, now: int
) -> None:
    """Places the machines of a range of slots, none of which has a cell."""
    work.meta[TO_JOIN] = 0
    for slot in range(first, last):
        if slots.state[slot] != 0:
            _put(slots, cells, keys, work, slot, -1, now)


@kernel
def keep(
    slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, slot: int, kept: bool, now: int
) -> None:  # fmt: skip
    """Marks a machine as kept for a move, or as free again, and places it anew."""
    work.meta[TO_JOIN] = 0
    if slots.state[slot] != 0:
        _take_out(slots, cells, members, keys, slot)
    if kept:
        slots.flags[slot] |= KEPT
    else:
        slots.flags[slot] &= ~KEPT & 0xFF
    if slots.state[slot] != 0:
        work.meta[ANY_CHANGE] = 1
        _put(slots, cells, keys, work, slot, -1, now)


@kernel
def rename(slots: Slots, ids: Ids, cells: Cells, members: Pool, keys: Keys, work: Work, text: U1, named: bool) -> int:
    """Marks an id as named or not; returns its slot if a machine must be placed anew, else -1."""
    work.meta[TO_JOIN] = 0
    if len(text) == 0:
        return -1
    home = hash_bytes(text, 0, len(text))
    slot = intern_id(ids, text, 0, len(text), home, prefix_key(text, 0, len(text), ids.meta[SKIP]))
    if slots.state[slot] != 0:
        _take_out(slots, cells, members, keys, slot)
    elif not named:
        slots.flags[slot] &= TIMED | RARE
        forget_id(ids, slot)
        return -1
    else:
        slots.flags[slot] &= TIMED | RARE
        slots.cell[slot] = -1
    if named:
        slots.flags[slot] |= NAMED
    else:
        slots.flags[slot] &= ~NAMED & 0xFF
    return slot if slots.state[slot] != 0 else -1


@inner
def _fetch_members(slots: Slots, cells: Cells, members: Pool, ids: Ids, cell: int) -> None:
    """Asks for those members that change their places, and for the id of the last one, with which a newcomer is
    compared while all are in order."""
    last = cells.used[cell] - 1
    if last + cells.adds[cell] >= cells.size[cell]:
        start = cells.start[cell]
        for k in range(start, start + min(last + 1, _NEAR)):
            prefetch(slots.place, max(0, members.data[k]))
    if last >= 0 and cells.ordered[cell] == last + 1:
        prefetch(ids.key, max(0, members.data[cells.start[cell] + last]))


@kernel
def join_all(slots: Slots, ids: Ids, cells: Cells, members: Pool, work: Work) -> int:
    """Carries out what was announced; if the pool is too small it tells what is missing, and is to be called again."""
    joining = work.meta[TO_JOIN]
    for i in range(work.meta[JOINED], joining):
        if i + 32 < joining:
            prefetch(cells.used, work.cell[i + 32])
            prefetch(slots.place, work.slot[i + 32])
            prefetch(ids.key, work.slot[i + 32])
        if i + 16 < joining:
            cell = work.cell[i + 16]
            prefetch(members.data, cells.start[cell] + max(0, cells.used[cell] - 1))
            prefetch(ids.key, max(0, cells.least[cell]))
        if i + 8 < joining:
            _fetch_members(slots, cells, members, ids, work.cell[i + 8])
        slot = work.slot[i]
        cell = work.cell[i]
        if cells.adds[cell] > 0:
            missing = make_room(cells, members, slots.place, cell)
            if missing > 0:
                work.meta[JOINED] = i
                return missing
        slots.place[slot] = join(cells, members, ids, cell, slot)
    work.meta[TO_JOIN] = 0
    work.meta[JOINED] = 0
    return 0
