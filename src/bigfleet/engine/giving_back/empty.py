"""Empty nodes and those that never came up: since when, how long they are kept, who may take or reopen them (P33, P34).

Looks at loose reports and young machines only, so a fleet whose nodes are busy costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.catalog.classes import Classes
from bigfleet.engine.catalog.published import Published
from bigfleet.engine.fleet.cells import CONFIGURED, Cells
from bigfleet.engine.fleet.members import sort_slots
from bigfleet.engine.fleet.placing import Slots
from bigfleet.engine.kernels.ids import Ids, id_less
from bigfleet.engine.kernels.jit import I4, I8, U1, inner, kernel
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sorting
from bigfleet.engine.nodes.reports import (
    BUSY,
    EMPTY,
    IN_MOVE,
    LOOSE,
    READY,
    REST_DRAIN,
    YOUNG,
    Reports,
    is_seen,
    row_of,
)
from bigfleet.engine.nodes.sessions import NEVER, Sessions, gives

# Places in `out`.
CLOSING, TAKABLE, COUNT, NEXT = 0, 1, 0, 2
_NO_TIMER = 9223372036854775807


class EmptyRules(NamedTuple):
    """The instant, how long a roll-up is fresh and a change of mode holds, and the bounds of an empty node's hold."""

    now: int
    fresh: int
    mode_hold: int
    empty_min: int
    empty_max: int
    closed_empty: int


@kernel
def note_empty(r: Reports, s: Sessions, connected: U1, slots: Slots, rules: EmptyRules) -> None:
    """Begins and ends the runs an empty node's hold is measured by."""
    for i in range(r.meta[LOOSE]):
        row = r.loose[i]
        if _lies_empty(r, s, connected, slots, row, rules):
            if r.empty_since[row] == NEVER:
                r.empty_since[row] = rules.now
        else:
            r.empty_since[row] = NEVER


@inner
def _lies_empty(r: Reports, s: Sessions, connected: U1, slots: Slots, row: int, rules: EmptyRules) -> bool:
    if slots.state[r.slot[row]] != CONFIGURED or not r.flags[row] & READY or not r.flags[row] & EMPTY:
        return False
    if r.marks[row] & IN_MOVE or not gives(s, connected, r.cluster[row], rules.now, rules.fresh, rules.mode_hold):
        return False
    return r.closing[row] != 0 or is_seen(r, s, slots, row)


@kernel
def list_loose(
    r: Reports, s: Sessions, lacking: I8, slots: Slots, cells: Cells, pub: Published, now: int, closing: I4,
    takable: I4, out: I8,
) -> None:  # fmt: skip
    """Machines their own cluster may reopen (tier a), and empty ones others may take instead of buying (tier d): not
    closing ones of a cluster that lacks units itself."""
    out[CLOSING] = 0
    out[TAKABLE] = 0
    for i in range(r.meta[LOOSE]):
        row = r.loose[i]
        slot = r.slot[row]
        if slots.state[slot] != CONFIGURED or s.reporting[r.cluster[row]] == 0:
            continue
        if r.closing[row] != 0 and lacking[r.cluster[row]] > 0:
            if not r.marks[row] & IN_MOVE:
                closing[out[CLOSING]] = slot
                out[CLOSING] += 1
        elif r.empty_since[row] != NEVER and not r.marks[row] & REST_DRAIN:
            if r.ready_since[row] + pub.boot[cells.cls[slots.cell[slot]]] <= now:
                takable[out[TAKABLE]] = slot
                out[TAKABLE] += 1


@inner
def _hold(owned: bool, boot: int, closing: bool, rules: EmptyRules) -> int:
    """How long an empty node is kept, never longer closed than open. Penalties of pods it had are no reason: none of
    them loses it."""
    open_hold = rules.empty_min if owned else min(max(boot, rules.empty_min), rules.empty_max)
    return min(rules.closed_empty, open_hold) if closing else open_hold


@kernel
def overdue(
    r: Reports, slots: Slots, cells: Cells, pub: Published, rules: EmptyRules, row_of_place: I4, out: I8
) -> None:  # fmt: skip
    """Rows of empty nodes whose hold is over, and when the next will be."""
    out[COUNT] = 0
    out[NEXT] = _NO_TIMER
    for i in range(r.meta[LOOSE]):
        row = r.loose[i]
        if r.empty_since[row] == NEVER:
            continue
        cls = cells.cls[slots.cell[r.slot[row]]]
        hold = _hold(pub.owned[cls] != 0, pub.boot[cls], r.closing[row] != 0, rules)
        if rules.now - r.empty_since[row] < hold:
            out[NEXT] = min(out[NEXT], r.empty_since[row] + hold)
        elif not r.marks[row] & (REST_DRAIN | BUSY):
            row_of_place[out[COUNT]] = row
            out[COUNT] += 1


@kernel
def never_ready(
    r: Reports, s: Sessions, connected: U1, slots: Slots, rules: EmptyRules, found: I4, out: I8
) -> None:  # fmt: skip
    """Machines that are bound and without a ready report at their deadline, and when the next deadline passes."""
    out[COUNT] = 0
    out[NEXT] = _NO_TIMER
    for i in range(r.meta[YOUNG]):
        slot = r.young[i]
        deadline = slots.deadline[slot]
        if deadline == 0:
            continue
        if rules.now < deadline:
            out[NEXT] = min(out[NEXT], deadline)
            continue
        if slots.state[slot] != CONFIGURED:
            continue
        row = row_of(r, slot)
        if row >= 0 and r.ready_since[row] != NEVER:
            continue
        if gives(s, connected, slots.cluster[slot], rules.now, rules.fresh, rules.mode_hold):
            found[out[COUNT]] = slot
            out[COUNT] += 1


@kernel
def order_by_id(ids: Ids, machines: I4, count: int) -> None:
    """Machines in text order of their ids."""
    sort_slots(ids, machines, count)


@kernel
def order_by_price(ids: Ids, slots: Slots, cells: Cells, k: Classes, machines: I4, count: int) -> None:
    """Dearest first, then by id."""
    sort = sorting(0, count)
    while asks(sort, machines):
        later = k.price[cells.cls[slots.cell[sort[LATER]]]]
        earlier = k.price[cells.cls[slots.cell[sort[EARLIER]]]]
        if later != earlier:
            sort[ANSWER] = later > earlier
        else:
            sort[ANSWER] = id_less(ids, sort[LATER], sort[EARLIER])
