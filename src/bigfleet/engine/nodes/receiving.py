"""Receiving: how node reports come in and go, and what follows from the run of them (P5), as kernels. Nothing here
decides.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.fleet.cells import CONFIGURED, CONFIGURING, CREATING, DRAINING
from bigfleet.engine.fleet.placing import Slots
from bigfleet.engine.kernels.ids import Ids, find_id
from bigfleet.engine.kernels.jit import I4, U1, inner, kernel, put
from bigfleet.engine.nodes.reports import (
    AGAIN,
    EMPTY,
    FREE,
    LOOSE,
    READY,
    REMOVABLE,
    ROWS,
    STAYS,
    USED,
    YOUNG,
    Reports,
    Told,
    is_coming,
    note_again,
    note_young,
)
from bigfleet.engine.nodes.said import Said, say, unsay
from bigfleet.engine.nodes.seen import Seen, uncount
from bigfleet.engine.nodes.sessions import NEVER, Sessions
from bigfleet.model.resources import MAX_NEED_UNITS

_LIMIT = MAX_NEED_UNITS


@inner
def _loosen(r: Reports, row: int, loose: bool) -> None:
    """Lists the row as loose, or not."""
    at = r.place[row]
    if loose and at < 0:
        r.place[row] = r.meta[LOOSE]
        r.loose[r.meta[LOOSE]] = row
        r.meta[LOOSE] += 1
    elif not loose and at >= 0:
        r.meta[LOOSE] -= 1
        last = r.loose[r.meta[LOOSE]]
        r.loose[at] = last
        r.place[last] = at
        r.place[row] = -1
        r.empty_since[row] = NEVER


@inner
def _add(r: Reports, s: Sessions, slot: int, cluster: int) -> int:
    if r.meta[FREE] > 0:
        r.meta[FREE] -= 1
        row = r.free[r.meta[FREE]]
    else:
        row = r.meta[ROWS]
        r.meta[ROWS] += 1
    r.row_of[slot] = row + 1
    r.flags[row] &= AGAIN
    r.slot[row] = slot
    r.cluster[row] = cluster
    first = s.head[cluster]
    r.next[row] = first
    r.prev[row] = -1
    if first >= 0:
        r.prev[first] = row
    s.head[cluster] = row
    s.reports[cluster] += 1
    r.said[row] = -1
    r.load[row] = 0
    r.ready_since[row] = NEVER
    r.open_version[row] = NEVER
    r.empty_since[row] = NEVER
    r.place[row] = -1
    r.marks[row] = 0
    return row


@inner
def _drop(r: Reports, s: Sessions, seen: Seen, said: Said, refs: I4, row: int) -> None:
    """Forgets a report."""
    uncount(r, s, seen, row)
    s.suspect[r.cluster[row]] = -1
    _loosen(r, row, False)
    if r.said[row] >= 0:
        unsay(said, r.said[row])
    refs[r.load[row]] -= 1
    before = r.prev[row]
    after = r.next[row]
    if before >= 0:
        r.next[before] = after
    else:
        s.head[r.cluster[row]] = after
    if after >= 0:
        r.prev[after] = before
    s.reports[r.cluster[row]] -= 1
    r.row_of[r.slot[row]] = 0
    r.slot[row] = -1
    r.free[r.meta[FREE]] = row
    r.meta[FREE] += 1


@kernel
def forget_reports(r: Reports, s: Sessions, seen: Seen, said: Said, refs: I4, cluster: int) -> None:
    """All reports of a cluster; its machines are as if never reported, so they are on their way again."""
    row = s.head[cluster]
    while row >= 0:
        after = r.next[row]
        note_young(r, r.slot[row])
        _drop(r, s, seen, said, refs, row)
        row = after


@kernel
def follow(
    r: Reports, s: Sessions, seen: Seen, said: Said, refs: I4, slots: Slots, offers: I4, changed: I4, count: int
) -> None:  # fmt: skip
    """After machines changed: reports of those that left their cluster or its states are forgotten, and what is under
    way is young."""
    every = np.arange(said.amount.shape[1])
    for i in range(count):
        slot = changed[i]
        state = slots.state[slot]
        bound = state == CONFIGURED or state == CONFIGURING or state == DRAINING
        row = r.row_of[slot] - 1
        if row >= 0:
            s.suspect[r.cluster[row]] = -1
            uncount(r, s, seen, row)
            note_again(r, row)
            if not bound or slots.cluster[slot] != r.cluster[row]:
                _drop(r, s, seen, said, refs, row)
            else:
                before = r.said[row]
                if before >= 0 and said.offer[before] != offers[slots.shape[slot]]:
                    # A machine may become one of another kind under its node.
                    r.said[row] = say(said, r.cluster[row], offers[slots.shape[slot]], every, said.amount, before)
                    unsay(said, before)
                if state == DRAINING:
                    r.open_version[row] = NEVER
        if state == CREATING or state == CONFIGURING or state == CONFIGURED:
            note_young(r, slot)


@kernel
def receive(
    r: Reports, s: Sessions, seen: Seen, said: Said, refs: I4, slots: Slots, offers: I4, ids: Ids, told: Told,
    cluster: int, now: int,
) -> int:  # fmt: skip
    """Takes over a batch; room must have been reserved. Returns how many reports were rejected."""
    rejects = 0
    s.suspect[cluster] = -1
    for i in range(len(told.ready)):
        start = told.offsets[i]
        slot = find_id(ids, told.arena, start, told.offsets[i + 1] - start)
        if slot < 0 or not _acceptable(slots, told, slot, cluster, i):
            rejects += 1
            continue
        row = r.row_of[slot] - 1
        if row < 0:
            row = _add(r, s, slot, cluster)
            refs[0] += 1
        uncount(r, s, seen, row)
        note_again(r, row)
        _write(r, said, refs, offers[slots.shape[slot]], told, row, cluster, i)
        _derive(r, slots.state[slot], told.version[i], row, now)
        if is_coming(r, s, slots, slot):
            note_young(r, slot)
    return rejects


@inner
def _acceptable(slots: Slots, told: Told, slot: int, cluster: int, i: int) -> bool:
    state = slots.state[slot]
    if slots.cluster[slot] != cluster or not (state == CONFIGURED or state == CONFIGURING or state == DRAINING):
        return False
    for d in range(len(told.columns)):
        if told.used[i, d] < 0 or told.used[i, d] > _LIMIT:
            return False
        if told.allocatable[i, d] < 0 or told.allocatable[i, d] > _LIMIT:
            return False
    return True


@inner
def _write(r: Reports, said: Said, refs: I4, offer: int, told: Told, row: int, cluster: int, i: int) -> None:
    reclamation = told.reclamation[i] if told.reclamation[i] > 0.0 else 0.0
    interruption = told.interruption[i] if told.interruption[i] > 0.0 else 0.0
    flags = 0
    if told.ready[i] != 0:
        flags |= READY
    if told.empty[i] != 0:
        flags |= EMPTY
    if told.removable[i] != 0:
        flags |= REMOVABLE
    if told.pinned[i] != 0 or reclamation == float("inf") or interruption == float("inf"):
        flags |= STAYS
    r.used[row, :] = 0
    says = False
    for d in range(len(told.columns)):
        r.used[row, told.columns[d]] = told.used[i, d]
        if told.used[i, d] > 0:
            flags |= USED
        if told.allocatable[i, d] > 0:
            says = True
    r.flags[row] = flags | (r.flags[row] & AGAIN)
    r.priority[row] = told.priority[i]
    if r.reclamation[row] != reclamation:
        r.reclamation[row] = reclamation
    if r.interruption[row] != interruption:
        r.interruption[row] = interruption
    put(r.closing, row, told.closing[i])
    refs[r.load[row]] -= 1
    r.load[row] = told.loads[told.load[i]]
    refs[r.load[row]] += 1
    before = r.said[row]
    r.said[row] = say(said, cluster, offer, told.columns, told.allocatable, i) if says else -1
    if before >= 0:
        unsay(said, before)
    _loosen(r, row, bool(flags & READY) and (bool(flags & EMPTY) or told.closing[i] != 0))


@inner
def _derive(r: Reports, state: int, version: int, row: int, now: int) -> None:
    """Since when it has been ready, and the smallest version of the run of ready, open reports."""
    ready = r.flags[row] & READY
    if ready and r.ready_since[row] == NEVER:
        r.ready_since[row] = now
    if not ready or r.closing[row] != 0:
        r.open_version[row] = NEVER
    elif state == CONFIGURING or state == CONFIGURED:
        if r.open_version[row] == NEVER or version < r.open_version[row]:
            r.open_version[row] = version


@kernel
def look_again(r: Reports, slots: Slots, used: int, turned: U1) -> None:
    """Every machine under way, or bound in clusters that turned, is young until somebody has looked at it."""
    for slot in range(used):
        cluster = slots.cluster[slot]
        state = slots.state[slot]
        if state == CREATING:
            note_young(r, slot)
        elif cluster >= 0 and turned[cluster] != 0 and (state == CONFIGURING or state == CONFIGURED):
            note_young(r, slot)


@kernel
def settle_young(r: Reports, s: Sessions, slots: Slots) -> int:
    """Drops from the list of young machines those that are not on their way; returns how many are."""
    kept = 0
    for i in range(r.meta[YOUNG]):
        slot = r.young[i]
        if is_coming(r, s, slots, slot):
            r.young[kept] = slot
            kept += 1
        else:
            r.is_young[slot] = 0
    r.meta[YOUNG] = kept
    return kept
