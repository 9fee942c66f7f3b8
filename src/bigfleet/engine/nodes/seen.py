"""Seen: what the nodes that a cluster's last roll-up counts on cost and use in all, kept as reports and machines change
(P5, P19).

A report is counted once it is seen and uncounted before anything about it changes; whoever changes it notes it, to be
looked at again. So a step pays for what changed, not for every node. Nothing here decides.
"""

from __future__ import annotations

from bigfleet.engine.fleet.cells import CONFIGURED, Cells
from bigfleet.engine.fleet.placing import Slots
from bigfleet.engine.kernels.columns import made, room, widened
from bigfleet.engine.kernels.jit import I4, I8, I8M, inner, kernel
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.nodes.reports import AGAIN, AGAINS, COUNTED, EMPTY, USED, Reports, is_seen, note_again
from bigfleet.engine.nodes.sessions import NEVER, Sessions

# Sums of so many nodes as there may be are exact below this.
LARGE = 1099511627776


@view
class Seen(View):
    """By cluster, in millionths of dollars: what seen nodes cost, those of them that carry nothing and are not empty;
    how many of them say they use more than LARGE of something, and what the others use."""

    every: I8
    idle: I8
    large: I4
    used: I8M


@inner
def uncount(r: Reports, s: Sessions, seen: Seen, row: int) -> None:
    """Before something about a report changes."""
    if not r.flags[row] & COUNTED:
        return
    r.flags[row] &= ~COUNTED & 0xFF
    if s.recount[r.cluster[row]] == 0:
        _add(r, seen, row, -1)


@inner
def _add(r: Reports, seen: Seen, row: int, sign: int) -> None:
    cluster = r.cluster[row]
    seen.every[cluster] += sign * r.price[row]
    if not r.flags[row] & EMPTY and not r.flags[row] & USED:
        seen.idle[cluster] += sign * r.price[row]
    large = 0
    for d in range(r.used.shape[1]):
        if r.used[row, d] > LARGE:
            large = 1
        else:
            seen.used[cluster, d] += sign * r.used[row, d]
    seen.large[cluster] += sign * large


@kernel
def recount(r: Reports, s: Sessions, slots: Slots, cells: Cells, price: I8, seen: Seen) -> None:
    """Counts what became seen since the last time; in clusters of which nothing is certain any more, everything."""
    for cluster in range(len(s.recount)):
        if s.recount[cluster] != 0:
            s.recount[cluster] = 0
            s.suspect[cluster] = -1
            seen.every[cluster] = 0
            seen.idle[cluster] = 0
            seen.large[cluster] = 0
            for d in range(seen.used.shape[1]):
                seen.used[cluster, d] = 0
            row = s.head[cluster]
            while row >= 0:
                r.flags[row] &= ~COUNTED & 0xFF
                note_again(r, row)
                row = r.next[row]
    kept = 0
    for i in range(r.meta[AGAINS]):
        row = r.again[i]
        if r.slot[row] >= 0 and slots.state[r.slot[row]] == CONFIGURED and r.open_version[row] != NEVER:
            if not is_seen(r, s, slots, row):
                r.again[kept] = row
                kept += 1
                continue
            r.price[row] = price[cells.cls[slots.cell[r.slot[row]]]]
            r.flags[row] |= COUNTED
            _add(r, seen, row, 1)
            s.suspect[r.cluster[row]] = -1
        r.flags[row] &= ~AGAIN & 0xFF
    r.meta[AGAINS] = kept


class SeenStore:
    """Owns the sums."""

    def __init__(self) -> None:
        self.v: Seen = made(Seen, 16)

    def fit(self, clusters: int, width: int) -> None:
        """Rows for so many clusters, of so many resources."""
        v = self.v
        size = room(len(v.every), clusters)
        if size > len(v.every):
            new: Seen = made(Seen, size, used=v.used.shape[1])
            for name, column in v._asdict().items():
                getattr(new, name)[: len(column)] = column
            v = new
        self.v = v._replace(used=widened(v.used, width))

    def restart(self, clusters: int, width: int) -> None:
        """Everything is to be counted anew."""
        self.v = made(Seen, room(16, clusters), used=max(1, width))
