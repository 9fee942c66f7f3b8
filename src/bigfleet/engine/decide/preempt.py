"""Preempt: draining supply first, then victims of lower priority in other clusters (`docs/engine.md` §4).

Draining machines are taken virtually, so a victim chosen in an earlier step is not chosen again somewhere else.
Victims come in blocks: the machines of one Configured cell that the same entry claims, or nobody.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.decide.credit import anything, fits, take, useful
from bigfleet.engine.decide.gang import fits_some, score
from bigfleet.engine.decide.spread import begin_domains, fewest, load_universe, save_universe, touch_domain
from bigfleet.engine.decide.victims import (
    BLOCKS,
    TAKES,
    Ranked,
    Victims,
    Weights,
    candidate,
    hopeless,
    note_take,
    ranked_list,
    undo_takes,
    usable,
)
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, PARKED, PLAIN
from bigfleet.engine.fleet.cells import OWNER_DRAINING
from bigfleet.engine.kernels.jit import I4, U1, inner, kernel

_DOMAINS = 1


@kernel
def wanting(w: World, order: I4, short: I4, count: int, mask: U1, chosen: I4) -> int:
    """Short entries that may preempt, by place in the order; marks the classes that any of them matches."""
    found = 0
    for i in range(count):
        entry = order[short[i]]
        first = w.e.part[entry]
        for part in range(first, first + w.e.parts[entry]):
            for d in range(w.parts.left.shape[1]):
                w.parts.rest[part, d] = w.parts.left[part, d]
        if w.c.connected[w.e.cluster[entry]] != 0 and not w.e.flags[entry] & PARKED:
            chosen[found] = short[i]
            found += 1
    last = -1
    for i in range(found):
        con = w.p.con[w.e.prof[order[chosen[i]]]]
        if con != last:
            last = con
            for cls in range(len(mask)):
                mask[cls] |= w.match[con, cls]
    return found


@kernel
def take_draining(
    w: World, v: Victims, r: Ranked, weights: Weights, order: I4, chosen: I4, first: int, last: int, domains: I4
) -> int:
    """Step 1 for the short entries; returns how far it came before the universes were full."""
    start = w.owners.start[OWNER_DRAINING]
    end = start + w.owners.used[OWNER_DRAINING]
    for at in range(first, last):
        pending = chosen[at]
        entry = order[pending]
        cluster = w.e.cluster[entry]
        prof = w.e.prof[entry]
        con = w.p.con[prof]
        part = w.e.part[entry]
        if w.uni.meta[0] + len(w.dom.list) > len(w.uni.dom) or v.meta[TAKES] + v.meta[BLOCKS] * w.e.parts[entry] > len(
            v.take_n
        ):
            return at
        rest = w.parts.rest
        kind = w.e.kind[entry]
        if kind == PLAIN:
            for k in range(start, end):
                cell = w.held.data[k]
                available = w.cells.count[cell] - w.cells.taken[cell]
                if available > 0 and w.match[con, w.cells.cls[cell]] != 0:
                    w.cells.taken[cell] += take(
                        w.k.alloc, w.cells.cls[cell], w.c.overhead, cluster, w.parts.unit, rest, part, available
                    )
        elif kind == GANG:
            domains[at] = _gang_domain(w, v, r, weights, entry)
            if domains[at] >= 0:
                _gang_draining(w, entry, domains[at])
        else:
            key = w.p.spread[prof]
            skew = w.p.skew[prof]
            load_universe(w, pending)
            for k in range(start, end):
                cell = w.held.data[k]
                cls = w.cells.cls[cell]
                if (
                    w.match[con, cls] != 0
                    and w.k.dom[cls, key] >= 0
                    and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
                ):
                    touch_domain(w, w.k.dom[cls, key])
            for b in range(v.meta[BLOCKS]):
                cls = w.cells.cls[v.cell[b]]
                if (
                    v.priority[b] < w.p.priority[prof]
                    and w.match[con, cls] != 0
                    and w.k.dom[cls, key] >= 0
                    and w.cells.cluster[v.cell[b]] != cluster
                    and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
                ):
                    touch_domain(w, w.k.dom[cls, key])
            while anything(rest, part):
                limit = fewest(w) + skew - 1
                found = -1
                for k in range(start, end):
                    cell = w.held.data[k]
                    cls = w.cells.cls[cell]
                    dom = w.k.dom[cls, key]
                    if (
                        w.cells.count[cell] > w.cells.taken[cell]
                        and w.match[con, cls] != 0
                        and dom >= 0
                        and w.dom.machines[dom] <= limit
                        and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
                        and useful(w.k.alloc, cls, w.c.overhead, cluster, rest, part)
                    ):
                        found = cell
                        break
                if found < 0:
                    break
                cls = w.cells.cls[found]
                take(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, rest, part, 1)
                w.cells.taken[found] += 1
                w.dom.machines[w.k.dom[cls, key]] += 1
            save_universe(w, pending)
    return last


@inner
def _gang_draining(w: World, entry: int, dom: int) -> None:
    """All parts of a gang take virtually from the Draining machines of a domain."""
    prof = w.e.prof[entry]
    con = w.p.con[prof]
    key = w.p.same[prof]
    cluster = w.e.cluster[entry]
    start = w.owners.start[OWNER_DRAINING]
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        for k in range(start, start + w.owners.used[OWNER_DRAINING]):
            cell = w.held.data[k]
            cls = w.cells.cls[cell]
            available = w.cells.count[cell] - w.cells.taken[cell]
            if available > 0 and w.match[con, cls] != 0 and w.k.dom[cls, key] == dom:
                w.cells.taken[cell] += take(
                    w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, w.parts.rest, part, available
                )


@inner
def _gang_domain(w: World, v: Victims, r: Ranked, weights: Weights, entry: int) -> int:
    """Where a gang looks: its own domain, or, having none, the best one that could cover all of it."""
    prof = w.e.prof[entry]
    key = w.p.same[prof]
    if w.e.domain[entry] >= 0:
        return w.e.domain[entry]
    if key < 0:
        return -1
    con = w.p.con[prof]
    cluster = w.e.cluster[entry]
    first = w.e.part[entry]
    count = w.e.parts[entry]
    width = w.parts.rest.shape[1]
    start = w.owners.start[OWNER_DRAINING]
    end = start + w.owners.used[OWNER_DRAINING]
    begin_domains(w)
    for d in range(width):
        w.tmp.want[d] = 0
        for part in range(first, first + count):
            w.tmp.want[d] += w.parts.rest[part, d]
    for k in range(start, end):
        cell = w.held.data[k]
        cls = w.cells.cls[cell]
        n = w.cells.count[cell] - w.cells.taken[cell]
        dom = w.k.dom[cls, key]
        if n > 0 and dom >= 0 and w.match[con, cls] != 0 and fits_some(w, cls, cluster, first, count):
            touch_domain(w, dom)
            for d in range(width):
                w.dom.total[dom, d] += n * max(0, w.k.alloc[cls, d] - w.c.overhead[cluster, d])
    for b in range(v.meta[BLOCKS]):
        cls = w.cells.cls[v.cell[b]]
        dom = w.k.dom[cls, key]
        if (
            dom >= 0
            and v.priority[b] < w.p.priority[prof]
            and w.match[con, cls] != 0
            and usable(w, v, entry, b)
            and fits_some(w, cls, cluster, first, count)
        ):
            touch_domain(w, dom)
    best = -1
    best_score = 0.0
    for i in range(w.dom.meta[_DOMAINS]):
        dom = w.dom.list[i]
        here = score(w.dom.total, dom, w.tmp.want, True)
        if best >= 0 and (here < best_score or (here == best_score and w.dom.rank[dom] > w.dom.rank[best])):
            continue
        if _coverable(w, v, r, weights, entry, dom):
            best = dom
            best_score = here
    return best


@inner
def _coverable(w: World, v: Victims, r: Ranked, weights: Weights, entry: int, dom: int) -> bool:
    """Tries whether Draining machines and victims of a domain cover the gang, and undoes the trial."""
    prof = w.e.prof[entry]
    key = w.p.same[prof]
    first = w.e.part[entry]
    count = w.e.parts[entry]
    width = w.parts.rest.shape[1]
    start = w.owners.start[OWNER_DRAINING]
    used = w.owners.used[OWNER_DRAINING]
    saved = np.empty(used, np.int32)
    for k in range(used):
        saved[k] = w.cells.taken[w.held.data[start + k]]
    amounts = np.empty((count, width), np.int64)
    for i in range(count):
        for d in range(width):
            amounts[i, d] = w.parts.rest[first + i, d]
    _gang_draining(w, entry, dom)
    takes = v.meta[TAKES]
    covered = _gang_victims(w, v, r, weights, entry, key, dom)
    undo_takes(v, takes)
    for k in range(used):
        w.cells.taken[w.held.data[start + k]] = saved[k]
    for i in range(count):
        for d in range(width):
            w.parts.rest[first + i, d] = amounts[i, d]
    return covered


@inner
def _gang_victims(w: World, v: Victims, r: Ranked, weights: Weights, entry: int, key: int, dom: int) -> bool:
    """Takes victims of a domain for all parts; True if everything is covered."""
    prof = w.e.prof[entry]
    cluster = w.e.cluster[entry]
    number = ranked_list(w, v, r, weights, prof)
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        if anything(w.parts.rest, part) and hopeless(w, r, number, entry, part):
            return False
    for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
        if not anything(w.parts.rest, part):
            continue
        index = r.spent[number]
        while True:
            block = candidate(w, v, r, weights, number, index)
            index += 1
            if block < 0:
                return False
            cls = w.cells.cls[v.cell[block]]
            if not usable(w, v, entry, block) or w.k.dom[cls, key] != dom:
                continue
            n = take(
                w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, w.parts.rest, part,
                v.n[block] - v.used[block],
            )  # fmt: skip
            if n > 0:
                note_take(v, entry, block, n)
                if not anything(w.parts.rest, part):
                    break
    return True


# What an entry is made of is read as in `take_draining`: a kernel returns scalars, and a tuple of them costs more.
@kernel
def take_victims(
    w: World, v: Victims, r: Ranked, weights: Weights, order: I4, chosen: I4, first: int, last: int, domains: I4
) -> int:
    """Step 2 for the short entries; returns how far it came before the log of takes was full."""
    for at in range(first, last):
        pending = chosen[at]
        entry = order[pending]
        cluster = w.e.cluster[entry]
        prof = w.e.prof[entry]
        part = w.e.part[entry]
        rest = w.parts.rest
        kind = w.e.kind[entry]
        if v.meta[BLOCKS] == 0:
            return last
        if v.meta[TAKES] + v.meta[BLOCKS] * w.e.parts[entry] > len(v.take_n) or w.uni.meta[0] + len(w.dom.list) > len(
            w.uni.dom
        ):
            return at
        if kind == GANG:
            dom = domains[at]
            short = False
            for i in range(part, part + w.e.parts[entry]):
                if anything(rest, i):
                    short = True
            if dom < 0 or not short:
                continue
            count = w.e.parts[entry]
            width = rest.shape[1]
            amounts = np.empty((count, width), np.int64)
            for i in range(count):
                for d in range(width):
                    amounts[i, d] = rest[part + i, d]
            takes = v.meta[TAKES]
            if not _gang_victims(w, v, r, weights, entry, w.p.same[prof], dom):
                undo_takes(v, takes)
                for i in range(count):
                    for d in range(width):
                        rest[part + i, d] = amounts[i, d]
        elif kind == PLAIN:
            if not anything(rest, part):
                continue
            number = ranked_list(w, v, r, weights, prof)
            if hopeless(w, r, number, entry, part):
                continue
            index = r.spent[number]
            while True:
                block = candidate(w, v, r, weights, number, index)
                index += 1
                if block < 0:
                    break
                if not usable(w, v, entry, block):
                    if v.used[block] == v.n[block] and index == r.spent[number] + 1:
                        r.spent[number] = index
                    continue
                n = take(
                    w.k.alloc, w.cells.cls[v.cell[block]], w.c.overhead, cluster, w.parts.unit, rest, part,
                    v.n[block] - v.used[block],
                )  # fmt: skip
                if n > 0:
                    note_take(v, entry, block, n)
                    if not anything(rest, part):
                        break
        else:
            if not anything(rest, part):
                continue
            key = w.p.spread[prof]
            skew = w.p.skew[prof]
            number = ranked_list(w, v, r, weights, prof)
            if hopeless(w, r, number, entry, part):
                continue
            load_universe(w, pending)
            while anything(rest, part):
                if v.meta[TAKES] == len(v.take_n):
                    # It goes on with these counts when there is room again.
                    save_universe(w, pending)
                    return at
                limit = fewest(w) + skew - 1
                index = 0
                found = -1
                while True:
                    block = candidate(w, v, r, weights, number, index)
                    index += 1
                    if block < 0:
                        break
                    cls = w.cells.cls[v.cell[block]]
                    dom = w.k.dom[cls, key]
                    if (
                        usable(w, v, entry, block)
                        and dom >= 0
                        and fits(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, part)
                        and useful(w.k.alloc, cls, w.c.overhead, cluster, rest, part)
                        and w.dom.machines[dom] <= limit
                    ):
                        found = block
                        break
                if found < 0:
                    break
                cls = w.cells.cls[v.cell[found]]
                take(w.k.alloc, cls, w.c.overhead, cluster, w.parts.unit, rest, part, 1)
                if (
                    v.meta[TAKES] > 0
                    and v.take_block[v.meta[TAKES] - 1] == found
                    and v.take_entry[v.meta[TAKES] - 1] == entry
                ):
                    v.take_n[v.meta[TAKES] - 1] += 1
                    v.used[found] += 1
                else:
                    note_take(v, entry, found, 1)
                w.dom.machines[w.k.dom[cls, key]] += 1
    return last
