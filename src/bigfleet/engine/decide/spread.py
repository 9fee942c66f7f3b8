"""Strict spread: credit round robin over domains, then one machine at a time within the skew (`docs/engine.md` §3).

The domains' counters live in `World.dom` and are valid for the entry being served; `domain_mark` tells them from stale.
"""

from __future__ import annotations

from bigfleet.engine.decide.credit import attribution, creating_cells, fits, note, take, useful
from bigfleet.engine.decide.free import buy, idle_list, speculative_list
from bigfleet.engine.decide.world import Log, World
from bigfleet.engine.demand.rows import FOLDED
from bigfleet.engine.fleet.cells import CONFIGURED, CONFIGURING, OWNER_CREATING
from bigfleet.engine.kernels.jit import I8M, inner

_DOMAINS, _MARK = 1, 0


@inner
def begin_domains(w: World) -> None:
    """Starts counting domains for another entry."""
    w.dom.meta[_MARK] += 1
    w.dom.meta[_DOMAINS] = 0


@inner
def touch_domain(w: World, dom: int) -> None:
    """Makes a domain known to the entry being served, with nothing in it."""
    if w.dom.mark[dom] != w.dom.meta[_MARK]:
        w.dom.mark[dom] = w.dom.meta[_MARK]
        w.dom.machines[dom] = 0
        w.dom.credit_machines[dom] = 0
        w.dom.head[dom] = -1
        w.dom.list[w.dom.meta[_DOMAINS]] = dom
        w.dom.meta[_DOMAINS] += 1
        for d in range(w.dom.total.shape[1]):
            w.dom.credit[dom, d] = 0
            w.dom.own[dom, d] = 0
            w.dom.total[dom, d] = 0


@inner
def must_wait(w: World, entry: int) -> bool:
    """Whether the row's Creating machines are shared with other clusters."""
    if w.owners.used[OWNER_CREATING] == 0:
        return False
    if w.e.flags[entry] & FOLDED:
        return True
    pair = attribution(w, entry)
    cell = w.pairs.head[pair] if pair >= 0 else -1
    while cell >= 0:
        if w.cells.cluster[cell] < 0 and w.cells.count[cell] > 0:
            return True
        cell = w.cells.next[cell]
    return False


@inner
def credit_spread(w: World, log: Log, left: I8M, entry: int, nameless: bool) -> None:
    """Credits a strict spread row: in each state in turn, always the domain with the fewest machines."""
    cluster = w.e.cluster[entry]
    part = w.e.part[entry]
    prof = w.e.prof[entry]
    key = w.p.spread[prof]
    con = w.p.con[prof]
    begin_domains(w)
    for phase in range(3):
        state = CONFIGURED if phase == 0 else CONFIGURING
        found = 0
        if phase == 2:
            found = creating_cells(w, entry, nameless)
        else:
            at = w.lists.head[w.e.list[entry]]
            while at >= 0:
                cell = w.lists.cell[at]
                if w.cells.state[cell] == state:
                    w.tmp.cell[found] = cell
                    found += 1
                at = w.lists.next[at]
        # Candidates in order, chained by domain.
        kept = 0
        for i in range(found):
            cell = w.tmp.cell[i]
            cls = w.cells.cls[cell]
            dom = w.k.dom[cls, key]
            if (
                dom >= 0
                and w.cells.count[cell] > w.cells.taken[cell]
                and (phase < 2 or w.match[con, cls] != 0)
                and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
            ):
                touch_domain(w, dom)
                w.tmp.cell[kept] = cell
                w.tmp.dom[kept] = dom
                w.tmp.n[kept] = 0
                kept += 1
        for i in range(w.dom.meta[_DOMAINS]):
            w.dom.head[w.dom.list[i]] = -1
        for i in range(kept - 1, -1, -1):
            dom = w.tmp.dom[i]
            w.tmp.next[i] = w.dom.head[dom]
            w.dom.head[dom] = i
        while True:
            best = -1
            for i in range(w.dom.meta[_DOMAINS]):
                dom = w.dom.list[i]
                at = w.dom.head[dom]
                while at >= 0:
                    cell = w.tmp.cell[at]
                    if w.cells.count[cell] > w.cells.taken[cell] and useful(
                        w.k.alloc, w.cells.cls[cell], w.c.overhead, cluster, left, part
                    ):
                        break
                    at = w.tmp.next[at]
                w.dom.head[dom] = at
                if at < 0:
                    continue
                if best < 0:
                    best = dom
                elif w.dom.machines[dom] != w.dom.machines[best]:
                    if w.dom.machines[dom] < w.dom.machines[best]:
                        best = dom
                elif at < w.dom.head[best]:
                    best = dom
            if best < 0:
                break
            at = w.dom.head[best]
            cell = w.tmp.cell[at]
            take(w.k.alloc, w.cells.cls[cell], w.c.overhead, cluster, w.parts.unit, left, part, 1)
            w.cells.taken[cell] += 1
            w.tmp.n[at] += 1
            w.dom.machines[best] += 1
            w.e.claimed[entry] += 1
        for i in range(kept):
            if w.tmp.n[i] > 0:
                note(log, entry, w.tmp.cell[i], w.tmp.n[i])


@inner
def recount_spread(w: World, log: Log, entry: int) -> None:
    """Counts a row's credited machines by domain again, from the log."""
    key = w.p.spread[w.e.prof[entry]]
    begin_domains(w)
    first = w.e.log[entry]
    for i in range(first, first + w.e.logged[entry]):
        dom = w.k.dom[w.cells.cls[log.cell[i]], key]
        touch_domain(w, dom)
        w.dom.machines[dom] += log.n[i]


@inner
def open_universe(w: World, entry: int) -> None:
    """Adds the domains of unclaimed free machines to those with credited ones."""
    cluster = w.e.cluster[entry]
    part = w.e.part[entry]
    prof = w.e.prof[entry]
    key = w.p.spread[prof]
    for phase in range(2):
        chain = idle_list(w, prof) if phase == 0 else speculative_list(w, prof)
        at = w.lists.head[chain]
        while at >= 0:
            cell = w.lists.cell[at]
            cls = w.cells.cls[cell]
            dom = w.k.dom[cls, key]
            if (
                dom >= 0
                and w.cells.count[cell] > w.cells.taken[cell]
                and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
            ):
                touch_domain(w, dom)
            at = w.lists.next[at]


@inner
def fewest(w: World) -> int:
    """The smallest count over the universe; 0 when it is empty."""
    least = -1
    for i in range(w.dom.meta[_DOMAINS]):
        n = w.dom.machines[w.dom.list[i]]
        if least < 0 or n < least:
            least = n
    return max(0, least)


@inner
def acquire_spread(w: World, left: I8M, entry: int) -> bool:
    """Buys one machine at a time where the skew allows it; the domains' counts must be those of the credit.

    False when the log of acquisitions is full: call again, and it goes on.
    """
    cluster = w.e.cluster[entry]
    part = w.e.part[entry]
    prof = w.e.prof[entry]
    key = w.p.spread[prof]
    skew = w.p.skew[prof]
    while w.got.meta[0] < len(w.got.cell):
        limit = fewest(w) + skew - 1
        chosen = -1
        for phase in range(2):
            chain = idle_list(w, prof) if phase == 0 else speculative_list(w, prof)
            dollars = w.p.interruption_dollars[prof]
            at = w.lists.head[chain]
            best_rank = 0
            price = 0.0
            cost = 0.0
            while at >= 0:
                cell = w.lists.cell[at]
                cls = w.cells.cls[cell]
                this_cost = 0.0
                if phase == 1:
                    this_cost = w.k.price[cls]
                    if w.k.risk[cls] > 0.0 and dollars > 0.0:
                        this_cost += w.k.risk[cls] * dollars
                if chosen >= 0 and (this_cost != cost or w.cells.price[cell] != price):
                    break
                dom = w.k.dom[cls, key]
                if (
                    dom >= 0
                    and w.cells.count[cell] > w.cells.taken[cell]
                    and w.dom.machines[dom] <= limit
                    and (chosen < 0 or w.dom.rank[dom] < best_rank)
                    and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
                    and useful(w.k.alloc, cls, w.c.overhead, cluster, left, part)
                ):
                    chosen = cell
                    best_rank = w.dom.rank[dom]
                    price = w.cells.price[cell]
                    cost = this_cost
                at = w.lists.next[at]
            if chosen >= 0:
                break
        if chosen < 0:
            return True
        cls = w.cells.cls[chosen]
        take(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, left, part, 1)
        buy(w, entry, chosen, 1)
        w.dom.machines[w.k.dom[cls, key]] += 1
    return False


@inner
def save_universe(w: World, pending: int) -> None:
    """Keeps the domains and counts of the entry being served for later."""
    at = w.uni.meta[0]
    w.uni.first[pending] = at
    w.uni.n[pending] = w.dom.meta[_DOMAINS]
    for i in range(w.dom.meta[_DOMAINS]):
        w.uni.dom[at] = w.dom.list[i]
        w.uni.machines[at] = w.dom.machines[w.dom.list[i]]
        at += 1
    w.uni.meta[0] = at


@inner
def load_universe(w: World, pending: int) -> None:
    begin_domains(w)
    for i in range(w.uni.first[pending], w.uni.first[pending] + w.uni.n[pending]):
        touch_domain(w, w.uni.dom[i])
        w.dom.machines[w.uni.dom[i]] = w.uni.machines[i]
