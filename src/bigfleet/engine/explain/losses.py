"""What serves a need, what it lost, to whom and why: read from the columns a step left behind.

Machines of one class, state and holder are one line. Lines come cheapest class first, machines that match before those
that nearly do; whoever wants more than the first few asks about them by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bigfleet.engine.counted.book import PAID_DRAINING, PAID_EMPTY, REOPEN
from bigfleet.engine.demand.rows import GANG, PARKED, PLAIN, SATISFIABLE
from bigfleet.engine.explain.explanation import Granted, Lost, Source, Why
from bigfleet.engine.explain.misses import near_misses
from bigfleet.engine.fleet.cells import CONFIGURED, DELETING, DRAINING, FAILED, IDLE, SPECULATIVE
from bigfleet.engine.nodes.reports import EMPTY, READY, USED
from bigfleet.engine.outcome.verdict import FreeSupply
from bigfleet.model.penalty import bucket_dollars

if TYPE_CHECKING:
    from bigfleet.engine.engine import Engine, Latest
    from bigfleet.engine.explain.claims import Claims
    from bigfleet.engine.outcome.units import UnitOutcome

SHOWN = 10
# Cells of one class that are looked at: more of them say nothing new.
CELLS_PER_CLASS = 2000
_SOURCES = {IDLE: Source.IDLE, SPECULATIVE: Source.SPECULATIVE}
_TIERS = {REOPEN: Source.REOPENED, PAID_DRAINING: Source.DRAINING, PAID_EMPTY: Source.EMPTY}

# (why, detail, winning entry or -1, winning cluster or -1, winning priority)
_Cause = tuple[Why, str, int, int, int | None]


@dataclass
class Holdings:
    """The claims of a step, asked about one entry at a time."""

    engine: Engine
    latest: Latest
    claims: Claims

    def __post_init__(self) -> None:
        order = np.argsort(self.claims.cell, kind="stable")
        self._by_cell = order
        self._cells = self.claims.cell[order]
        verdicts = self.latest.result.verdicts
        self._victim_cell = self.engine.fleet.v.cell[verdicts.victim_slot]
        self._victim_entry = verdicts.victim_entry
        self.w = verdicts.needs.current
        self.units = verdicts.units
        self.supply = FreeSupply(verdicts.needs, self.latest.policy, self.units.freed if self.units else None)

    def granted(self, entry: int) -> tuple[Granted, ...]:
        """What serves the entry, and what is preempted for it."""
        w = self.w
        mine = np.nonzero(self.claims.entry == entry)[0]
        counts: Counter[tuple[int, int, Source]] = Counter()
        for i in mine.tolist():
            cell = int(self.claims.cell[i])
            state = int(w.cells.state[cell])
            source = _TIERS.get(int(self.claims.tier[i]), _SOURCES.get(state, Source.CREDITED))
            source = source if self.claims.acquired[i] else Source.CREDITED
            counts[int(w.cells.cls[cell]), state, source] += int(self.claims.n[i])
        for cell in self._victim_cell[self._victim_entry == entry].tolist():
            counts[int(w.cells.cls[cell]), CONFIGURED, Source.PREEMPTED] += 1
        rows = [
            Granted(*self.kind(cls), self.domain(entry, cls), state, source, count, *self.cost(entry, cls))
            for (cls, state, source), count in counts.items()
        ]
        return tuple(sorted(rows, key=lambda r: (list(Source).index(r.source), r.price, repr(r))))

    def claimants(self, cell: int) -> list[tuple[int, int]]:
        """Who claims how many machines of a cell, in the order in which they took them."""
        first, last = np.searchsorted(self._cells, (cell, cell + 1))
        found: dict[int, int] = {}
        for i in self._by_cell[first:last].tolist():
            entry = int(self.claims.entry[i])
            found[entry] = found.get(entry, 0) + int(self.claims.n[i])
        return list(found.items())

    def victims(self, cell: int) -> list[tuple[int, int]]:
        return list(Counter(self._victim_entry[self._victim_cell == cell].tolist()).items())

    def kind(self, cls: int) -> tuple[str, str, str, int]:
        shape = self.engine.catalog.class_shape(cls)
        return shape.provider, shape.instance_type, shape.zone, shape.capacity_type

    def cost(self, entry: int, cls: int) -> tuple[float, float]:
        w = self.w
        price, risk = float(w.k.price[cls]), float(w.k.risk[cls])
        dollars = bucket_dollars(int(w.p.interruption[w.e.prof[entry]]))
        return price, price + (risk * dollars if risk > 0 and dollars > 0 else 0.0)

    def domain(self, entry: int, cls: int) -> str | None:
        number = self.domain_number(entry, cls)
        return self.engine.catalog.domain_texts[number] if number >= 0 else None

    def domain_number(self, entry: int, cls: int) -> int:
        w = self.w
        prof, kind = int(w.e.prof[entry]), int(w.e.kind[entry])
        key = int(w.p.same[prof]) if kind == GANG else int(w.p.spread[prof])
        return int(w.k.dom[cls, key]) if kind != PLAIN and key >= 0 else -1


def lost_by(holdings: Holdings, entry: int, shown: int = SHOWN) -> tuple[Lost, ...]:
    """The best candidates the entry did not get."""
    w, n = holdings.w, holdings.engine.catalog.class_count
    usable = np.nonzero(holdings.supply.usable(entry))[0]
    classes = sorted(usable.tolist(), key=lambda cls: (holdings.cost(entry, cls)[::-1], holdings.kind(cls), cls))
    alive = np.nonzero(w.cells.count > 0)[0]
    alive = alive[np.argsort(w.cells.cls[alive], kind="stable")]
    by_class = w.cells.cls[alive]
    found: dict[tuple[object, ...], Lost] = {}
    for cls in classes:
        if len(found) >= shown:
            break
        first, last = np.searchsorted(by_class, (cls, cls + 1))
        counts: Counter[tuple[int, _Cause]] = Counter()
        for cell in alive[first:last][:CELLS_PER_CLASS].tolist():
            for cause, count in _causes(holdings, entry, cell):
                counts[int(w.cells.state[cell]), cause] += count
        for state in (DELETING, FAILED):
            if count := int(w.k.count[cls, state]):
                counts[state, (Why.FAILED, "", -1, -1, None)] += count
        for (state, cause), count in counts.items():
            _add(found, _lost(holdings, entry, cls, state, cause, count))
    rows = sorted(found.values(), key=lambda r: (r.effective_cost, r.price, repr(r)))
    if len(rows) < shown:
        rows += near_misses(holdings, entry, n, shown - len(rows))
    return tuple(rows[:shown])


def _add(found: dict[tuple[object, ...], Lost], row: Lost) -> None:
    """Classes that differ only in what nobody asks about here are one line."""
    key = (row.provider, row.instance_type, row.zone, row.capacity_type, row.domain, row.state, row.price)
    key += (row.effective_cost, row.why, row.detail, row.winner, row.winner_cluster, row.winner_priority)  # type: ignore[assignment]
    known = found.get(key)
    found[key] = row if known is None else _more(known, row.count)


def _more(row: Lost, count: int) -> Lost:
    values = {name: getattr(row, name) for name in Lost.__dataclass_fields__}
    return Lost(**{**values, "count": row.count + count})


def _lost(holdings: Holdings, entry: int, cls: int, state: int, cause: _Cause, count: int) -> Lost:
    why, detail, winner, cluster, priority = cause
    needs = holdings.latest.result.verdicts.needs
    return Lost(
        *holdings.kind(cls),
        holdings.domain(entry, cls),
        state,
        count,
        *holdings.cost(entry, cls),
        why,
        detail,
        needs.entry_key(winner) if winner >= 0 else None,
        needs.clusters[cluster] if cluster >= 0 else "",
        priority,
    )


def _causes(holdings: Holdings, entry: int, cell: int) -> Iterator[tuple[_Cause, int]]:
    """Why the machines of a matching cell do not serve the entry, with counts; the entry's own are left out."""
    w = holdings.w
    state, cluster = int(w.cells.state[cell]), int(w.cells.cluster[cell])
    claimants = holdings.claimants(cell)
    free = int(w.cells.count[cell]) - sum(n for _, n in claimants)
    taken = dict(holdings.victims(cell)) if state == CONFIGURED else {}
    for other, n in taken.items():
        if other != entry:
            yield (Why.PREEMPTED_FOR_ANOTHER, "", other, int(w.e.cluster[other]), _priority(holdings, other)), n
    # Victims are the excess and the lowest first.
    gone = sum(taken.values())
    free, gone = max(0, free - gone), max(0, gone - free)
    for other, n in sorted(claimants, key=lambda each: _priority(holdings, each[0])):
        left, gone = max(0, n - gone), max(0, gone - n)
        if other != entry and left:
            yield _claimed(holdings, entry, other, cell), left
    if free > 0 and state == CONFIGURED and cluster == int(w.e.cluster[entry]):
        stamped = int(w.bind.priority[int(w.cells.stamp[cell])])
        for why, count in _own_nodes(holdings, entry, cell).items() if w.c.counted[cluster] else ():
            standing = min(free, count)
            free -= standing
            if standing:
                yield (why, "", -1, cluster, stamped), standing
    elif free > 0 and state == CONFIGURED and w.c.counted[cluster]:
        for why, count in _empty_there(holdings, cell).items():
            standing = min(free, count)
            free -= standing
            yield (why, "", -1, cluster, None), standing
    if free > 0:
        yield _unclaimed(holdings, entry, cell, state, cluster), free


def _empty_there(holdings: Holdings, cell: int) -> Counter[Why]:
    """Nodes of a cluster that its reports call empty, by whether it refused to drain them."""
    nodes, units = holdings.engine.nodes, holdings.units
    rests = units.standing.drain_rests if units is not None else set()
    empty = [slot for slot in _slots(holdings, cell) if nodes.row(slot) >= 0]
    empty = [slot for slot in empty if int(nodes.r.flags[nodes.row(slot)]) & EMPTY]
    return +Counter(Why.REFUSED if slot in rests else Why.EMPTY for slot in empty)


def _own_nodes(holdings: Holdings, entry: int, cell: int) -> Counter[Why]:
    """Nodes of its own cluster, but for those that have no room for a unit of the entry by what they report."""
    nodes, units = holdings.engine.nodes, holdings.units
    mine = units.tokens(entry) if units is not None and units.is_counted(entry) else frozenset()
    found: Counter[Why] = Counter()
    for slot in _slots(holdings, cell):
        row = nodes.row(slot)
        flags = int(nodes.r.flags[row]) if row >= 0 else 0
        room = _has_room(holdings, entry, cell, row)
        if room and mine and (row < 0 or not nodes.tokens(row).isdisjoint(mine)):
            # Or gets one: nothing is told of a new node yet, and what its units find there is one unit each.
            found[Why.ONE_PER_NODE] += 1
        elif not flags & READY:
            found[Why.NOT_READY] += 1
        elif room and int(nodes.r.closing[row]):
            found[Why.CLOSED] += 1
        elif room:
            used = Why.SAID_NOT_TO_FIT if flags & (EMPTY | USED) else Why.USED_BY_NOTHING
            found[_placement(holdings, entry, cell) or used] += 1
    return found


def _has_room(holdings: Holdings, entry: int, cell: int, row: int) -> bool:
    """Whether a node of its own cluster has room for a unit, by its report, or as new where there is none (-1)."""
    w, nodes = holdings.w, holdings.engine.nodes
    left = room = np.maximum(w.k.alloc[int(w.cells.cls[cell])] - w.c.overhead[int(w.e.cluster[entry])], 0)
    if row >= 0:
        real = int(nodes.r.said[row])
        left = np.maximum((nodes.said.amount[real] if real >= 0 else room) - nodes.r.used[row], 0)
    return bool((left >= w.parts.unit[int(w.e.part[entry])]).all())


def _slots(holdings: Holdings, cell: int) -> list[int]:
    """The machines of a cell, as far as they are looked at."""
    w, members = holdings.w, holdings.engine.fleet.cells.members.v.data
    start = int(w.cells.start[cell])
    slots = [int(slot) for slot in members[start : start + int(w.cells.used[cell])] if slot >= 0]
    return slots[:CELLS_PER_CLASS]


def _claimed(holdings: Holdings, entry: int, other: int, cell: int) -> _Cause:
    w = holdings.w
    theirs, mine = _priority(holdings, other), _priority(holdings, entry)
    winner = (other, int(w.e.cluster[other]), theirs)
    if int(w.cells.state[cell]) not in (IDLE, SPECULATIVE, CONFIGURED):
        return (Why.IN_FLIGHT, "", *winner)
    if theirs > mine:
        return (Why.PRIORITY, "", *winner)
    placed = _placement(holdings, entry, cell)
    elsewhere = int(w.cells.state[cell]) == CONFIGURED and int(w.e.cluster[other]) != int(w.e.cluster[entry])
    if theirs == mine and elsewhere:
        return (Why.EQUAL_PRIORITY, "", *winner)
    if theirs == mine:
        higher = int(w.p.precedence[w.e.prof[other]]) < int(w.p.precedence[w.e.prof[entry]])
        return (Why.PENALTY if higher else placed or Why.ARRIVAL, "", *winner)
    held = _held_back(holdings, entry) if elsewhere else None
    return (held or placed or Why.NOT_USEFUL, "", *winner)


def _held_back(holdings: Holdings, entry: int) -> Why | None:
    """What keeps the entry from preempting at all."""
    w = holdings.w
    if not holdings.latest.conditions.preempt:
        return Why.PREEMPTION_HELD
    if not w.c.connected[int(w.e.cluster[entry])]:
        return Why.CLUSTER_DISCONNECTED
    return Why.PARKED if int(w.e.flags[entry]) & PARKED else None


def _unclaimed(holdings: Holdings, entry: int, cell: int, state: int, cluster: int) -> _Cause:
    w = holdings.w
    nobody = (-1, cluster, None)
    if state in (IDLE, SPECULATIVE):
        return (_free(holdings, entry, cell, state), "", *nobody)
    if state == DRAINING:
        return (Why.DRAINING, "", *nobody)
    if state != CONFIGURED:
        return (Why.IN_FLIGHT, "", *nobody)
    stamped = int(w.bind.priority[int(w.cells.stamp[cell])])
    if w.c.counted[cluster]:
        return _reported(holdings, entry, cell, cluster, stamped)
    if cluster == int(w.e.cluster[entry]):
        return (_placement(holdings, entry, cell) or Why.NOT_USEFUL, "", -1, cluster, stamped)
    if stamped >= _priority(holdings, entry):
        return (Why.EXCESS_ELSEWHERE, "", -1, cluster, stamped)
    held = _held_back(holdings, entry)
    return (held or _placement(holdings, entry, cell) or Why.NOT_USEFUL, "", -1, cluster, stamped)


def _reported(holdings: Holdings, entry: int, cell: int, cluster: int, stamped: int) -> _Cause:
    """Of a cluster that reports placement nobody claims what it has: it runs what its reports say."""
    w, nodes = holdings.w, holdings.engine.nodes
    if cluster == int(w.e.cluster[entry]):
        return (Why.NO_ROOM, "", -1, cluster, stamped)
    rows = [row for slot in _slots(holdings, cell) if (row := nodes.row(slot)) >= 0]
    rows = [row for row in rows if not int(nodes.r.flags[row]) & EMPTY]
    priority = min((int(nodes.r.priority[row]) for row in rows), default=stamped)
    if priority >= _priority(holdings, entry):
        return (Why.RUNS_AS_MUCH, "", -1, cluster, priority)
    held = _held_back(holdings, entry)
    return (held or _placement(holdings, entry, cell) or Why.NOT_USEFUL, "", -1, cluster, priority)


def _free(holdings: Holdings, entry: int, cell: int, state: int) -> Why:
    w = holdings.w
    if w.cells.held[cell]:
        return Why.NOT_BEFORE
    if state == SPECULATIVE and w.k.broken[int(w.cells.cls[cell])]:
        return Why.BREAKER
    if not w.c.connected[int(w.e.cluster[entry])]:
        return Why.CLUSTER_DISCONNECTED
    if not holdings.latest.conditions.acquire:
        return Why.ACQUISITION_HELD
    if holdings.units is not None and holdings.units.is_counted(entry):
        held = _kept_from_units(holdings.units, entry, int(w.cells.cls[cell]))
        if held is not None:
            return held
    if int(w.e.flags[entry]) & PARKED:
        return Why.PARKED
    return _placement(holdings, entry, cell) or Why.NOT_USEFUL


def _kept_from_units(units: UnitOutcome, entry: int, cls: int) -> Why | None:
    """What keeps a counted entry from a free machine that matches it and holds a unit."""
    w = units.needs.current
    cluster = int(w.e.cluster[entry])
    if not units.fresh[cluster]:
        return Why.NOT_FRESH
    if units.step is None or not units.step.believed.get(cluster, True):
        return Why.NOT_BELIEVED
    if units.standing.backed_off(cluster, int(w.k.offer[cls]), units.needs.entry_key(entry)):
        return Why.BACKED_OFF
    only = np.zeros(units.needs.catalog.class_count, bool)
    only[cls] = True
    if not units.too_risky(entry, only):
        return None
    return Why.PINNED if np.isinf(float(w.p.told_dollars[w.e.prof[entry]])) else Why.RISK


def _placement(holdings: Holdings, entry: int, cell: int) -> Why | None:
    """Whether the machine lies where the entry may not use it."""
    w = holdings.w
    kind = int(w.e.kind[entry])
    if kind == GANG:
        if int(w.e.domain[entry]) < 0 or not int(w.e.flags[entry]) & SATISFIABLE:
            return Why.DOMAIN_TOO_SMALL
        if holdings.domain_number(entry, int(w.cells.cls[cell])) != int(w.e.domain[entry]):
            return Why.TOPOLOGY
        return None
    return Why.SPREAD if kind != PLAIN else None


def _priority(holdings: Holdings, entry: int) -> int:
    return holdings.latest.result.verdicts.needs.priority(entry)
