"""Node reports as columns: the last one of every node in force, and how they are read (P5).

Rows exist only for machines whose cluster reported them, so a fleet nobody reports on costs nothing here. The rows of a
cluster are chained; *loose* rows (ready, and empty or closing: what may be taken back or reopened) and *young* machines
(under way, or bound and not yet seen) are listed, so that a step looks at those alone. Nothing here decides.
"""

from __future__ import annotations

from bigfleet.engine.fleet.cells import CONFIGURED, CONFIGURING, CREATING
from bigfleet.engine.fleet.placing import Slots
from bigfleet.engine.kernels.jit import F8, I4, I8, I8M, U1, inner, kernel
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.nodes.sessions import NEVER, Sessions

# Bits of `flags`; USED: something is used at all; COUNTED: in the sums of seen nodes; AGAIN: to be looked at for them.
READY, EMPTY, REMOVABLE, STAYS, USED, COUNTED, AGAIN = 1, 2, 4, 8, 16, 32, 64
# Bits of `marks`, which conditions and decisions of the running step set: it rests, it is in an open move, it is a
# victim, taken or reopened.
REST_DRAIN, REST_CLOSE, IN_MOVE, BUSY = 1, 2, 4, 8
# Places in `meta`: rows ever used, rows given back, loose rows, young machines, rows to be looked at again.
ROWS, FREE, LOOSE, YOUNG, AGAINS = 0, 1, 2, 3, 4
# What `judgement` finds.
BY_STAMP, BY_REPORT, AS_EXCESS = 0, 1, 2


@view
class Reports(View):
    """One row per reported node. `closing` is since when (0: open), `said` its real allocatable (-1: not said),
    `ready_since`, `open_version` and `empty_since` are NEVER without, `price` is what it was counted with. By slot,
    where reports came in at all: `row_of` (row + 1, 0 without) and `is_young`."""

    row_of: I4
    is_young: U1
    slot: I4
    cluster: I4
    next: I4
    prev: I4
    flags: U1
    marks: U1
    priority: I4
    load: I4
    said: I4
    reclamation: F8
    interruption: F8
    closing: I8
    ready_since: I8
    open_version: I8
    empty_since: I8
    price: I8
    used: I8M
    place: I4
    loose: I4
    young: I4
    free: I4
    again: I4
    meta: I8


@view
class Told(View):
    """A batch of node reports as it came; `columns` are the catalog's numbers of its resources."""

    arena: U1
    offsets: I8
    ready: U1
    empty: U1
    removable: U1
    pinned: U1
    priority: I4
    used: I8M
    allocatable: I8M
    reclamation: F8
    interruption: F8
    closing: I8
    version: I8
    load: I4
    columns: I8
    loads: I4


# ---- reading ---------------------------------------------------------------------------------------------------------


@inner
def row_of(r: Reports, slot: int) -> int:
    """The row of a machine's report in force, -1 without."""
    return r.row_of[slot] - 1 if slot < len(r.row_of) else -1


@inner
def is_counted_on(r: Reports, s: Sessions, row: int) -> bool:
    """Whether the last roll-up of the node's cluster already counts on it (P5)."""
    cluster = r.cluster[row]
    return bool(
        r.open_version[row] != NEVER
        and s.reporting[cluster] != 0
        and s.seen_version[cluster] != NEVER
        and s.seen_version[cluster] >= r.open_version[row]
    )


@inner
def is_seen(r: Reports, s: Sessions, slots: Slots, row: int) -> bool:
    """Counted on and Configured (P5)."""
    return bool(slots.state[r.slot[row]] == CONFIGURED and is_counted_on(r, s, row))


@kernel
def is_seen_row(r: Reports, s: Sessions, slots: Slots, row: int) -> bool:
    """`is_seen` for Python."""
    return is_seen(r, s, slots, row)


@inner
def is_coming(r: Reports, s: Sessions, slots: Slots, slot: int) -> bool:
    """Whether a machine of a reporting cluster, or Creating for nobody in particular, is on its way (P12), deadline and
    moves apart."""
    state = slots.state[slot]
    cluster = slots.cluster[slot]
    if cluster < 0:
        return bool(state == CREATING)
    if s.reporting[cluster] == 0:
        return False
    if state == CREATING:
        return True
    row = row_of(r, slot)
    if state == CONFIGURING:
        return row < 0 or not is_counted_on(r, s, row)
    if state != CONFIGURED:
        return False
    if row < 0 or r.ready_since[row] == NEVER:
        return True
    return r.open_version[row] != NEVER and not is_seen(r, s, slots, row)


@inner
def judgement(r: Reports, s: Sessions, slots: Slots, slot: int, boot: int, now: int) -> int:
    """How preemption judges a bound machine (P31): by its stamp and never as excess of a reporting cluster; by its
    report's priority and dollars (interruption infinite if pinned); or as excess, with nothing on it."""
    cluster = slots.cluster[slot]
    row = row_of(r, slot)
    if row < 0 or s.reporting[cluster] == 0:
        return BY_STAMP
    if not r.flags[row] & EMPTY:
        return BY_REPORT
    if r.marks[row] & REST_DRAIN or r.ready_since[row] == NEVER or r.ready_since[row] + boot > now:
        return BY_STAMP
    return AS_EXCESS if is_seen(r, s, slots, row) else BY_STAMP


# ---- lists -----------------------------------------------------------------------------------------------------------


@inner
def note_young(r: Reports, slot: int) -> None:
    if r.is_young[slot] == 0:
        r.is_young[slot] = 1
        r.young[r.meta[YOUNG]] = slot
        r.meta[YOUNG] += 1


@inner
def note_again(r: Reports, row: int) -> None:
    if not r.flags[row] & AGAIN:
        r.flags[row] |= AGAIN
        r.again[r.meta[AGAINS]] = row
        r.meta[AGAINS] += 1
