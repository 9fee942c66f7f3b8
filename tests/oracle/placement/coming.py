"""Coming: what is under way to a cluster, and the units it will carry.

Written from docs/engine.md P12, P16 and P27.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.oracle.placement.lots import NAMED, UNNAMED, Book, Lot
from tests.oracle.placement.needs import COMING
from tests.oracle.placement.reports import is_counted_on, is_seen
from tests.oracle.placement.worth import fits
from tests.oracle.supply import CONFIGURED, CONFIGURING, CREATING, IDLE, SPECULATIVE, Unit

if TYPE_CHECKING:
    from tests.oracle.demand import Demand
    from tests.oracle.placement.needs import Need
    from tests.oracle.placement.worth import Worth


def coming_lots(machines: list[Unit], needs: list[Need], demand: Demand, worth: Worth, now: int) -> Book:
    book = Book(worth, worth.placement.open_remainders)
    sums = {
        row.profile.fingerprint
        for cluster in demand.clusters.values()
        if not cluster.reporting
        for row in cluster.rows.values()
    }
    gangs = {
        (need.cluster, need.profile.fingerprint, need.group)
        for need in needs
        if need.gang and need.group and not need.satisfied
    }
    groups: dict[tuple[object, ...], Lot] = {}
    for unit in machines:
        if unit.moving or (unit.deadline and now >= unit.deadline):
            continue
        if unit.state == CREATING and not unit.cluster:
            if unit.fingerprint not in sums:
                lot = groups.setdefault(unit.klass, Lot([], {}, {}, frozenset(), COMING, rank=UNNAMED))
                _join(lot, unit)
        elif _is_coming(unit, demand):
            left = worth.left_of(unit)
            tokens = unit.report.tokens if unit.report else frozenset()
            bought_for = (unit.cluster, unit.fingerprint, unit.group)
            owner = bought_for if bought_for in gangs else None
            key = (unit.klass, unit.cluster, tuple(sorted(left.items())), tokens, owner)
            room = worth.room(unit.cluster, unit)
            lot = groups.setdefault(key, Lot([], left, room, tokens, COMING, rank=NAMED, owner=owner))
            _join(lot, unit)
    for lot in groups.values():
        if lot.rank == UNNAMED:
            book.unnamed.append(lot)
        else:
            book.whole.setdefault(lot.head.cluster, []).append(lot)
    return book


def _join(lot: Lot, unit: Unit) -> None:
    lot.members.append(unit)
    lot.until = max(lot.until, unit.deadline)


def _is_coming(unit: Unit, demand: Demand) -> bool:
    cluster = demand.clusters.get(unit.cluster)
    if cluster is None or not cluster.reporting:
        return False
    if unit.state == CREATING:
        return True
    if unit.state == CONFIGURING:
        return not is_counted_on(unit, demand)
    if unit.state != CONFIGURED:
        return False
    return unit.ready_since is None or (unit.open_version is not None and not is_seen(unit, demand))


def particular_first(needs: list[Need]) -> list[Need]:
    """P16's order: among needs of equal weight those with devices, then those that share no machine with their like."""

    def weight(need: Need) -> tuple[int, int, int]:
        profile = need.profile
        return profile.priority, profile.interruption_bucket, profile.reclamation_bucket

    ordered: list[Need] = []
    for _, equals in itertools.groupby(needs, weight):
        ordered += sorted(equals, key=lambda need: (not need.has_devices, not need.has_tokens))
    return ordered


def place_on_coming(need: Need, book: Book, machines: list[Unit]) -> None:
    """P16 for one entry."""
    if need.spread:
        _widen(need, book, machines)
        while need.parts[0].deficit > 0 and place_one(need, book):
            pass
    elif need.gang and not need.host:
        need.domain = _running_domain(need) or _roomiest_domain(need, book)
        if need.domain is not None:
            _place_parts(need, book, need.domain)
    else:
        for portion in need.portions:
            book.place(need, portion, book.lots(need.cluster))
        need.settle()


def place_one(need: Need, book: Book) -> bool:
    """One unit of a spread on the lot whose domain has fewest units."""
    portion = need.parts[0]
    lots = book.usable(need, portion, book.lots(need.cluster), lambda unit: need.may_take(need.domain_of(unit)) > 0)
    if not lots:
        return False
    order = {id(lot): place for place, lot in enumerate(lots)}
    best = min(lots, key=lambda lot: (need.counts.get(need.domain_of(lot.head), 0), order[id(lot)]))
    book.put(need, portion, best, 1)
    return True


def _widen(need: Need, book: Book, machines: list[Unit]) -> None:
    """The universe: reported domains, and those of lots and free machines that match and fit."""
    portion = need.parts[0]
    for lot in book.usable(need, portion, book.lots(need.cluster)):
        need.universe.add(need.domain_of(lot.head))
    for unit in machines:
        free = unit.state in (IDLE, SPECULATIVE) and not unit.held and need.matches(unit)
        if free and fits(book.worth.room(need.cluster, unit), frozenset(), portion, unit) > 0:
            need.universe.add(need.domain_of(unit))


def _running_domain(need: Need) -> str | None:
    there: dict[str, int] = {}
    for part in need.parts:
        for domain, units in part.domains.items():
            there[domain] = there.get(domain, 0) + units
    return min((d for d in there if there[d] > 0), key=lambda d: (-there[d], d.encode()), default=None)


def _roomiest_domain(need: Need, book: Book) -> str | None:
    domains = {
        need.domain_of(lot.head) for part in need.parts for lot in book.usable(need, part, book.lots(need.cluster))
    }
    placed: dict[str, int] = {}
    for domain in domains:
        saved, before = book.save(), [(part.coming, part.coming_until) for part in need.parts]
        claims = [(unit, unit.claimant) for lot in book.unnamed for unit in lot.members]
        _place_parts(need, book, domain)
        placed[domain] = sum(part.coming for part in need.parts)
        book.restore(saved)
        for part, (coming, until) in zip(need.parts, before, strict=True):
            part.coming, part.coming_until = coming, until
        for unit, claimant in claims:
            unit.claimant = claimant
    return min((d for d in placed if placed[d]), key=lambda d: (-placed[d], d.encode()), default=None)


def _place_parts(need: Need, book: Book, domain: str) -> None:
    for part in need.parts:
        book.place(need, part, book.lots(need.cluster), lambda unit: need.domain_of(unit) == domain)
