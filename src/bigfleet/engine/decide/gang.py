"""Gangs: the domain one lives in, what it is credited and acquires there, and parking (`docs/engine.md` §3)."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.catalog import Domains
from bigfleet.engine.decide.credit import anything, attribution, fits, note, pair_cells, take
from bigfleet.engine.decide.free import acquire_from, idle_list, speculative_list
from bigfleet.engine.decide.spread import begin_domains, touch_domain
from bigfleet.engine.decide.world import Log, Rules, World
from bigfleet.engine.demand.rows import CANDIDATES, NO_TIME, PARKED, SATISFIABLE
from bigfleet.engine.kernels.jit import I8, I8M, inner

_DOMAINS = 1
DONE, STALLED = 0, 1


@inner
def parked_at(since: int, now: int, cycle: int, park_after: int, reprobe_every: int) -> bool:
    """Whether a gang that has been hopeless since then rests in this step."""
    if since == NO_TIME:
        return False
    age = (now - since) // cycle
    return age >= park_after and age % reprobe_every != 0


@inner
def score(have: I8M, dom: int, want: I8, capped: bool) -> float:
    """Sum over wanted resources of the millionths that are there."""
    total = 0.0
    for d in range(len(want)):
        if want[d] > 0:
            ratio = float(have[dom, d]) / float(want[d])
            if capped and ratio > 1.0:
                ratio = 1.0
            total += np.floor(ratio * 1_000_000.0)
    return float(total)


@inner
def enough(have: I8M, dom: int, want: I8) -> bool:
    for d in range(len(want)):
        if have[dom, d] < want[d]:
            return False
    return True


@inner
def per_mille(have: I8M, dom: int, want: I8) -> int:
    worst = 1000
    for d in range(len(want)):
        if want[d] > 0:
            here = min(int(have[dom, d]), int(want[d]))
            # Amounts may be too large to multiply; the whole part first.
            part = here * 1000 // int(want[d]) if here < 4611686018427387 else here // (int(want[d]) // 1000)
            worst = min(worst, part)
    return worst


@inner
def better(dom: Domains, want: I8, credit_only: bool, a: int, b: int) -> bool:
    """Whether domain a is chosen over domain b.

    With credit only, what a covering domain has beyond the gang decides nothing: excess is given back, and a choice
    that depends on it would never come to rest.
    """
    sat_a = enough(dom.total, a, want)
    sat_b = enough(dom.total, b, want)
    if sat_a != sat_b:
        return sat_a
    credit_a = score(dom.credit, a, want, True)
    credit_b = score(dom.credit, b, want, True)
    if sat_a:
        if credit_a != credit_b:
            return credit_a > credit_b
        x = score(dom.own, a, want, True)
        y = score(dom.own, b, want, True)
        if x != y:
            return x > y
        if credit_only:
            return bool(dom.rank[a] < dom.rank[b])
        x = score(dom.total, a, want, False)
        y = score(dom.total, b, want, False)
        if x != y:
            return x < y
    else:
        x = score(dom.total, a, want, True)
        y = score(dom.total, b, want, True)
        if x != y:
            return x > y
        if credit_a != credit_b:
            return credit_a > credit_b
    if dom.credit_machines[a] != dom.credit_machines[b]:
        return bool(dom.credit_machines[a] > dom.credit_machines[b])
    if dom.machines[a] != dom.machines[b]:
        return bool(dom.machines[a] > dom.machines[b])
    return bool(dom.rank[a] < dom.rank[b])


@inner
def fits_some(w: World, cls: int, cluster: int, first: int, count: int) -> bool:
    for part in range(first, first + count):
        if fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part):
            return True
    return False


@inner
def gang_creating(w: World, entry: int) -> int:
    """The gang's Creating cells, named or not, in Creating order into `tmp.cell`."""
    pair = attribution(w, entry)
    if pair < 0:
        return 0
    return pair_cells(w, pair, w.e.cluster[entry], True, 0)


@inner
def _add(w: World, have: I8M, dom: int, cls: int, cluster: int, n: int) -> None:
    for d in range(have.shape[1]):
        amount = w.k.alloc[cls, d] - w.c.overhead[cluster, d]
        if amount > 0:
            have[dom, d] += n * amount


@inner
def _count_credit(w: World, entry: int, cell: int, key: int, own: bool) -> None:
    """Counts a creditable block into its domain."""
    cls = w.cells.cls[cell]
    cluster = w.e.cluster[entry]
    dom = w.k.dom[cls, key]
    n = w.cells.count[cell] - w.cells.taken[cell]
    if dom < 0 or n <= 0 or not fits_some(w, cls, cluster, w.e.part[entry], w.e.parts[entry]):
        return
    touch_domain(w, dom)
    w.dom.machines[dom] += n
    w.dom.credit_machines[dom] += n
    _add(w, w.dom.credit, dom, cls, cluster, n)
    _add(w, w.dom.total, dom, cls, cluster, n)
    if own:
        _add(w, w.dom.own, dom, cls, cluster, n)


@inner
def _count_free(w: World, entry: int, chain: int, key: int) -> None:
    cluster = w.e.cluster[entry]
    at = w.lists.head[chain]
    while at >= 0:
        cell = w.lists.cell[at]
        cls = w.cells.cls[cell]
        dom = w.k.dom[cls, key]
        n = w.cells.count[cell] - w.cells.taken[cell]
        if dom >= 0 and n > 0 and fits_some(w, cls, cluster, w.e.part[entry], w.e.parts[entry]):
            touch_domain(w, dom)
            w.dom.machines[dom] += n
            _add(w, w.dom.total, dom, cls, cluster, n)
        at = w.lists.next[at]


@inner
def _take_credit(w: World, log: Log, left: I8M, entry: int, part: int, cell: int, key: int, dom: int) -> None:
    cls = w.cells.cls[cell]
    available = w.cells.count[cell] - w.cells.taken[cell]
    if available <= 0 or w.k.dom[cls, key] != dom:
        return
    n = take(w.k.alloc, cls, w.c.overhead, w.e.cluster[entry], w.parts.unit, left, part, available)
    if n > 0:
        w.cells.taken[cell] += n
        w.e.claimed[entry] += n
        note(log, entry, cell, n)


@inner
def serve_gang(w: World, rules: Rules, log: Log, left: I8M, entry: int, local: bool) -> int:
    """Chooses the gang's domain and takes what it gets there. STALLED: it must look at free supply and may not yet."""
    cluster = w.e.cluster[entry]
    prof = w.e.prof[entry]
    key = w.p.same[prof]
    first = w.e.part[entry]
    count = w.e.parts[entry]
    group = w.e.group[entry]
    con = w.p.con[prof]
    width = left.shape[1]
    parked = parked_at(w.e.parked_since[entry], rules.now, rules.cycle, rules.park_after, rules.reprobe_every)
    may_acquire = rules.acquire and w.c.connected[cluster] != 0 and not parked
    for d in range(width):
        w.tmp.want[d] = 0
        for part in range(first, first + count):
            w.tmp.want[d] += w.parts.agg[part, d]
    begin_domains(w)
    chosen = -1
    creating = 0
    w.e.flags[entry] &= ~(SATISFIABLE | PARKED) & 0xFF
    w.e.domain[entry] = -1
    for i in range(CANDIDATES):
        w.e.candidate[entry, i] = -1
    if parked:
        w.e.flags[entry] |= PARKED
    chain = w.e.list[entry]
    if key >= 0:
        creating = gang_creating(w, entry)
        if local:
            for i in range(creating):
                if w.cells.cluster[w.tmp.cell[i]] < 0:
                    return STALLED
        at = w.lists.head[chain]
        while at >= 0:
            cell = w.lists.cell[at]
            _count_credit(w, entry, cell, key, group != 0 and w.cells.group[cell] == group)
            at = w.lists.next[at]
        for i in range(creating):
            cell = w.tmp.cell[i]
            if w.match[con, w.cells.cls[cell]] != 0:
                _count_credit(w, entry, cell, key, True)
        covered = False
        for i in range(w.dom.meta[_DOMAINS]):
            if enough(w.dom.credit, w.dom.list[i], w.tmp.want):
                covered = True
        if may_acquire and not covered:
            if local:
                return STALLED
            _count_free(w, entry, idle_list(w, prof), key)
            _count_free(w, entry, speculative_list(w, prof), key)
        for i in range(w.dom.meta[_DOMAINS]):
            dom = w.dom.list[i]
            if chosen < 0 or better(w.dom, w.tmp.want, covered or not may_acquire, dom, chosen):
                chosen = dom
        _best_candidates(w, entry, rules.candidates)
        if chosen >= 0:
            w.e.domain[entry] = chosen
            if enough(w.dom.total, chosen, w.tmp.want):
                w.e.flags[entry] |= SATISFIABLE
            for part in range(first, first + count):
                for own in range(2):
                    at = w.lists.head[chain]
                    while at >= 0:
                        cell = w.lists.cell[at]
                        mine = group != 0 and w.cells.group[cell] == group
                        if mine == (own == 0):
                            _take_credit(w, log, left, entry, part, cell, key, chosen)
                        at = w.lists.next[at]
                    if own == 0:
                        for i in range(creating):
                            cell = w.tmp.cell[i]
                            if w.match[con, w.cells.cls[cell]] != 0:
                                _take_credit(w, log, left, entry, part, cell, key, chosen)
            if may_acquire and not local:
                acquire_gang(w, left, entry)
    if not local:
        note_parking(w, rules, left, entry)
    return DONE


@inner
def note_parking(w: World, rules: Rules, left: I8M, entry: int) -> None:
    """Starts, keeps or ends a gang's run of hopeless steps. Once per step: crediting a unit may have to start over."""
    short = False
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        if anything(left, part):
            short = True
    may_hope = rules.acquire and w.c.connected[w.e.cluster[entry]] != 0
    if may_hope and short and w.e.boots[entry] + w.e.provisions[entry] == 0 and not w.e.flags[entry] & SATISFIABLE:
        if w.e.parked_since[entry] == NO_TIME:
            w.e.parked_since[entry] = rules.now
    else:
        w.e.parked_since[entry] = NO_TIME
    if w.e.flags[entry] & PARKED or w.e.parked_since[entry] != NO_TIME:
        w.owners.timed[w.e.unit[entry]] = 1


@inner
def acquire_gang(w: World, left: I8M, entry: int) -> None:
    """Acquires within the chosen domain: all parts from Idle, then all parts from Speculative."""
    prof = w.e.prof[entry]
    key = w.p.same[prof]
    dom = w.e.domain[entry]
    first = w.e.part[entry]
    for phase in range(2):
        chain = idle_list(w, prof) if phase == 0 else speculative_list(w, prof)
        for part in range(first, first + w.e.parts[entry]):
            if anything(left, part):
                acquire_from(w, left, entry, part, chain, key, dom)


@inner
def _best_candidates(w: World, entry: int, most: int) -> None:
    """The domains to show: best coverage first, then by name."""
    kept = 0
    for i in range(w.dom.meta[_DOMAINS]):
        dom = w.dom.list[i]
        mille = per_mille(w.dom.total, dom, w.tmp.want)
        at = kept
        while at > 0:
            other = w.e.candidate[entry, at - 1]
            others = w.e.coverage[entry, at - 1] // 2
            if others > mille or (others == mille and w.dom.rank[other] < w.dom.rank[dom]):
                break
            if at < min(most, CANDIDATES):
                w.e.candidate[entry, at] = other
                w.e.coverage[entry, at] = w.e.coverage[entry, at - 1]
            at -= 1
        if at < min(most, CANDIDATES):
            w.e.candidate[entry, at] = dom
            w.e.coverage[entry, at] = mille * 2 + (1 if enough(w.dom.total, dom, w.tmp.want) else 0)
            kept = min(kept + 1, most, CANDIDATES)
    for i in range(kept):
        w.e.candidate[entry, i] = w.dom.text[w.e.candidate[entry, i]]
