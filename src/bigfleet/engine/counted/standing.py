"""What verdicts ask about the end of a step: what a cluster's nodes have left (P42)."""

from __future__ import annotations

from bigfleet.engine.counted.book import Book
from bigfleet.engine.counted.supply import left_into
from bigfleet.engine.counted.worth import excluded, fits
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import SPREAD
from bigfleet.engine.kernels.jit import I4, I8, kernel
from bigfleet.engine.nodes.reports import Reports, is_seen
from bigfleet.engine.nodes.sessions import Sessions


@kernel
def seen_left(
    w: World, b: Book, r: Reports, s: Sessions, tokens_of: I4, chains: I4, entry: int, q: int, left: I8
) -> bool:
    """Sums what the seen nodes of an entry's cluster that match it have left. Of a portion with tokens (`q`, else -1)
    only those count that carry none of them; whether some that does would hold a unit."""
    prof = w.e.prof[entry]
    con = w.p.con[prof]
    cluster = w.e.cluster[entry]
    row = s.head[cluster]
    barred = False
    while row >= 0:
        slot = r.slot[row]
        if is_seen(r, s, b.slots, row):
            cls = w.cells.cls[b.slots.cell[slot]]
            if w.match[con, cls] != 0 and (w.e.kind[entry] != SPREAD or w.k.dom[cls, w.p.spread[prof]] >= 0):
                left_into(w, b, r, slot, cluster, b.s.left, 0)
                if q >= 0 and excluded(b, chains[tokens_of[r.load[row]]], q):
                    barred = barred or fits(b, b.s.left, 0, -1, q, cls) > 0
                else:
                    for d in range(len(left)):
                        left[d] += b.s.left[0, d]
        row = r.next[row]
    return barred
