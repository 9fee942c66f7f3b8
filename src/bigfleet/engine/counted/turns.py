"""Turns: counted entries of which something lacks room, in the order of service, with their units (P16, P17, P29).

Entries without anything stranded are nobody's turn and cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.classes import HOSTNAME
from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.counted.book import HOST, Portions, Turns, Universes, made_with
from bigfleet.engine.counted.kinds import device_columns
from bigfleet.engine.decide.order import in_order
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, PLAIN, SPREAD
from bigfleet.engine.kernels.jit import I4, I8, inner, kernel
from bigfleet.model.resources import is_device

if TYPE_CHECKING:
    from bigfleet.engine.catalog.catalog import Catalog
    from bigfleet.engine.demand.demand import Demand


class Lacking(NamedTuple):
    """Who takes turns: entries in order, and their clusters."""

    entries: NDArray[np.int32]
    clusters: NDArray[np.int32]
    portions: int


@kernel
def list_lacking(w: World, clusters: I4, entries: I4, out: I8) -> None:
    """Entries of these reporting clusters that lack room; `out` = how many of them, and how many parts."""
    for cluster in clusters:
        for row in range(w.c.start[cluster], w.c.start[cluster] + w.c.rows[cluster]):
            if w.rows.lacking[row] == 0:
                continue
            out[1] += 1
            part = w.rows.part[row]
            entry = _entry_of(w, cluster, part)
            # An entry is listed with the first of its parts that lack room.
            first = w.e.part[entry]
            while w.rows.lacking[w.parts.row[first]] == 0:
                first += 1
            if first == part:
                entries[out[0]] = entry
                out[0] += 1


@inner
def _entry_of(w: World, cluster: int, part: int) -> int:
    """Entries of a cluster have their parts one behind the other."""
    low = w.c.start[cluster]
    high = low + w.c.entries[cluster] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if w.e.part[middle] <= part:
            low = middle
        else:
            high = middle - 1
    return low


def find_lacking(w: World, clusters: int) -> Lacking | None:
    some = np.nonzero((w.c.counted[:clusters] != 0) & (w.c.lacking[:clusters] > 0))[0]
    if not len(some):
        return None
    out = np.zeros(2, np.int64)
    # As many as there are rows, or units without room: no entry lacks less than one.
    found, which = np.empty(np.minimum(w.c.rows, w.c.lacking)[some].sum(), np.int32), some.astype(np.int32)
    list_lacking(w, which, found, out)
    entries, portions = out.tolist()
    found = found[:entries]
    return Lacking(found[in_order(w, found)], which, portions)


@kernel
def fill_turns(w: World, t: Turns, q: Portions, count: int, last_plain: I4) -> int:
    """Turns and portions of the entries there are, in order; returns how many portions."""
    at = 0
    width = q.unit.shape[1]
    for i in range(count):
        entry = t.entry[i]
        prof = w.e.prof[entry]
        kind = w.e.kind[entry]
        cluster = w.e.cluster[entry]
        t.cluster[i] = cluster
        t.prof[i] = prof
        t.con[i] = w.p.con[prof]
        t.kind[i] = kind
        t.dollars[i] = w.p.told_dollars[prof]
        t.domain[i] = -1
        t.key[i] = -1
        t.skew[i] = 1
        t.next[i] = -1
        t.first[i] = at
        if kind == GANG:
            t.key[i] = w.p.same[prof]
            if w.p.same[prof] == HOSTNAME:
                t.kind[i] = HOST
        elif kind == SPREAD:
            t.key[i] = w.p.spread[prof]
            t.skew[i] = w.p.skew[prof]
        else:
            if last_plain[cluster] >= 0:
                t.next[last_plain[cluster]] = i
            last_plain[cluster] = i
        for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
            lacking = w.rows.lacking[w.parts.row[part]]
            if lacking > 0:
                q.turn[at] = i
                q.part[at] = part
                q.stranded[at] = lacking
                q.token[at] = -1
                for d in range(width):
                    q.unit[at, d] = w.parts.unit[part, d]
                at += 1
        t.n[i] = at - t.first[i]
    return at


def take_turns(
    w: World, lacking: Lacking, demand: Demand, catalog: Catalog
) -> tuple[Turns, Portions, Universes, dict[int, frozenset[str]]]:
    """Turns with their portions, the units spreads have in each domain, and tokens by portion."""
    count, width = len(lacking.entries), w.rows.unit.shape[1]
    t: Turns = made_with(Turns, count)
    q: Portions = made_with(Portions, lacking.portions, unit=width)
    t.entry[:count] = lacking.entries
    last_plain = np.full(len(w.c.start), -1, np.int32)
    fill_turns(w, t, q, count, last_plain)
    _mark_devices(q, lacking.portions, catalog)
    tokens: dict[int, frozenset[str]] = {}
    domains: list[int] = []
    units: list[int] = []
    for cluster in lacking.clusters.tolist():
        said = demand.sparse(demand.fleet.clusters[cluster])
        if said.tokens:
            start = int(w.c.start[cluster])
            mine = np.nonzero(t.cluster[q.turn[: lacking.portions]] == cluster)[0]
            for portion in mine.tolist():
                row = int(w.parts.row[q.part[portion]]) - start
                if row in said.tokens:
                    tokens[portion] = said.tokens[row]
    # Only what is said of domains is to be looked up, and what has to be on one host.
    said_domains = np.zeros(len(w.c.start), bool)
    for cluster in lacking.clusters.tolist():
        said_domains[cluster] = bool(demand.sparse(demand.fleet.clusters[cluster]).domains)
    kinds = t.kind[:count]
    for turn in np.nonzero((kinds == HOST) | ((kinds != PLAIN) & said_domains[t.cluster[:count]]))[0].tolist():
        entry, cluster = int(t.entry[turn]), int(t.cluster[turn])
        said = demand.sparse(demand.fleet.clusters[cluster])
        first = int(w.e.part[entry])
        rows = [
            int(w.parts.row[part]) - int(w.c.start[cluster]) for part in range(first, first + int(w.e.parts[entry]))
        ]
        there: dict[str, int] = {}
        for row in rows:
            for domain, amount in said.domains.get(row, {}).items():
                there[domain] = there.get(domain, 0) + amount
        kind = int(t.kind[turn])
        if kind == HOST:
            start = int(w.c.start[cluster])
            runs = any(there.values()) or any(int(w.rows.running[start + row]) for row in rows)
            _on_one_host(t, q, turn, runs, tokens)
        elif kind == SPREAD:
            key = catalog.keys[int(t.key[turn])]
            t.uni[turn], t.unis[turn] = len(domains), len(there)
            domains += [catalog.intern_domain(key, domain) for domain in there]
            units += there.values()
        elif any(there.values()):
            best = min((domain for domain in there if there[domain] > 0), key=lambda d: (-there[d], d.encode()))
            t.domain[turn] = catalog.intern_domain(catalog.keys[int(t.key[turn])], best)
    size = len(domains)
    uni: Universes = made_with(Universes, 2 * size + 4 * len(catalog.domain_texts) + 64)
    uni.dom[:size], uni.units[:size] = domains, units
    t.on_coming[:count] = _particular_first(w, t, q, tokens, count, lacking.portions)
    return t, q, uni, tokens


def _mark_devices(q: Portions, count: int, catalog: Catalog) -> None:
    """Which portions ask for devices, those that no machine has included."""
    units = q.unit[:count]
    columns = device_columns(catalog)
    odd = catalog.resource(ODD)
    if odd >= 0:
        columns[odd] = False
    q.device[:count] = (units[:, columns] > 0).any(axis=1) if columns.any() else 0
    if odd >= 0:
        for portion in np.nonzero(units[:, odd])[0].tolist():
            q.device[portion] |= any(is_device(name) for name, _ in catalog.odd.pairs(int(units[portion, odd])))


def _particular_first(
    w: World, t: Turns, q: Portions, tokens: dict[int, frozenset[str]], count: int, portions: int
) -> NDArray[np.int64] | NDArray[np.int32]:
    """Turns as they place on what is coming: among equals by precedence those that ask for devices first, then those
    with tokens (P16)."""
    devices = q.turn[:portions][q.device[:portions] != 0]
    if not tokens and not len(devices):
        return np.arange(count)
    plain, shares = np.ones(count, bool), np.ones(count, bool)
    plain[devices] = False
    shares[q.turn[list(tokens)]] = False
    return np.lexsort((np.arange(count), shares, plain, w.p.precedence[t.prof[:count]]))


def _on_one_host(t: Turns, q: Portions, turn: int, runs: bool, tokens: dict[int, frozenset[str]]) -> None:
    """All stranded units of a gang are one unit; none where members run already, or where two exclude each other."""
    first, last = int(t.first[turn]), int(t.first[turn]) + int(t.n[turn])
    together: frozenset[str] = frozenset()
    apart = runs
    for portion in range(first, last):
        mine = tokens.pop(portion, frozenset())
        apart = apart or bool(mine and (int(q.stranded[portion]) > 1 or mine & together))
        together |= mine
    if apart:
        t.n[turn] = 0
        return
    q.unit[first] = (q.unit[first:last] * q.stranded[first:last, None]).sum(axis=0)
    q.stranded[first] = 1
    t.n[turn] = 1
    if together:
        tokens[first] = together
