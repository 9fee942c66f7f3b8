"""Preempt in units: draining machines, then victims, hold what nothing else could.

Written from docs/engine.md P30 and P32. Both become empty, so they offer their whole room to the one who takes them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.oracle.placement.coming import place_one
from tests.oracle.placement.lots import NAMED, Lot, everywhere
from tests.oracle.placement.needs import ACQUIRED, AWAITING, Need, Portion
from tests.oracle.placement.worth import fits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle.placement.buying import Buying
    from tests.oracle.placement.lots import Where
    from tests.oracle.preempt import Preempt
    from tests.oracle.supply import Unit

    Take = Callable[[list[Unit]], None]


def await_draining(need: Need, preempt: Preempt) -> None:
    """P30: what is on its way out already."""
    if need.spread:
        _widen(need, preempt)
        _one_by_one(need, preempt, _draining(need, preempt))
    elif need.plain or need.host:
        for portion in need.portions:
            _place(need, portion, preempt, _draining(need, preempt))
    need.settle()


def choose_victims(need: Need, preempt: Preempt) -> None:
    """P32."""
    if need.spread:
        _one_by_one(need, preempt, _victims(need, preempt))
    elif need.plain or need.host:
        for portion in need.portions:
            _place(need, portion, preempt, _victims(need, preempt))
    else:
        _assemble_somewhere(need, preempt)
    need.settle()


def _draining(need: Need, preempt: Preempt) -> list[tuple[Lot, Take]]:
    def promise(units: list[Unit]) -> None:
        for unit in units:
            unit.promised = need
        need.drains += units

    return [(lot, promise) for lot in _lots(need, preempt.buying, preempt.draining_blocks(), AWAITING)]


def _victims(need: Need, preempt: Preempt) -> list[tuple[Lot, Take]]:
    def condemn(units: list[Unit]) -> None:
        for unit in units:
            unit.preemptor = need
        need.victims += units

    return [(lot, condemn) for lot in _lots(need, preempt.buying, preempt.victim_blocks(need), AWAITING)]


def _free(need: Need, preempt: Preempt) -> list[tuple[Lot, Take]]:
    """Idle in Idle order, then Speculative in buying order."""
    if not need.may_acquire:
        return []

    def take(into: list[Unit]) -> Take:
        def claim(units: list[Unit]) -> None:
            for unit in units:
                unit.claimant = need
            into.extend(units)

        return claim

    buying = preempt.buying
    idle = sorted(buying.idle, key=lambda o: (o.head.shape.price, o.first))
    slots = sorted(buying.slots, key=lambda o: (_effective_cost(need, o.head), o.head.shape.price, o.first))
    found: list[tuple[Lot, Take]] = []
    for offers, into in ((idle, need.bootstraps), (slots, need.provisions)):
        blocks = [offer.free for offer in offers]
        found += [(lot, take(into)) for lot in _lots(need, buying, blocks, ACQUIRED)]
    return found


def _effective_cost(need: Need, unit: Unit) -> float:
    risk = unit.shape.probability
    return unit.shape.price + (risk * need.dollars if risk > 0 and need.dollars > 0 else 0.0)


def _lots(need: Need, buying: Buying, blocks: list[list[Unit]], source: str) -> list[Lot]:
    lots = []
    for members in blocks:
        if members and need.matches(members[0]):
            room = buying.worth.room(need.cluster, members[0])
            lots.append(Lot(list(members), room, room, frozenset(), source, rank=NAMED))
    return lots


def _place(
    need: Need, portion: Portion, preempt: Preempt, lots: list[tuple[Lot, Take]], where: Where = everywhere
) -> int:
    """Remainders, then the lots in the order given; how many units the given lots took."""
    book = preempt.buying.book
    book.place(need, portion, book.open_remainders(need.cluster), where)
    before = portion.deficit
    for lot, take in lots:
        if portion.deficit > 0 and lot.members and where(lot.head) and _fits(need, portion, lot, preempt):
            take(book.put(need, portion, lot, portion.deficit))
    return before - portion.deficit


def _fits(need: Need, portion: Portion, lot: Lot, preempt: Preempt) -> bool:
    holds = fits(lot.left, lot.tokens, portion, lot.head) > 0
    return holds and preempt.buying.worth.open_to(need, portion, lot.head)


def _one_by_one(need: Need, preempt: Preempt, lots: list[tuple[Lot, Take]]) -> None:
    portion, book = need.parts[0], preempt.buying.book
    while portion.deficit > 0:
        if place_one(need, book):
            continue
        for lot, take in lots:
            if lot.members and _fits(need, portion, lot, preempt) and need.may_take(need.domain_of(lot.head)) > 0:
                take(book.put(need, portion, lot, 1))
                break
        else:
            return


def _widen(need: Need, preempt: Preempt) -> None:
    portion = need.parts[0]
    for block in [*_all_draining(preempt), *preempt.victim_blocks(need)]:
        for unit in block[:1]:
            if need.matches(unit):
                room = preempt.buying.worth.room(need.cluster, unit)
                if fits(room, frozenset(), portion, unit) > 0:
                    need.universe.add(need.domain_of(unit))


def _all_draining(preempt: Preempt) -> list[list[Unit]]:
    return [[unit] for unit in preempt.draining]


def _assemble_somewhere(need: Need, preempt: Preempt) -> None:
    """A gang takes all it lacks in one domain, or nothing."""
    domains = {need.domain} if need.domain is not None else _domains(need, preempt)
    worth: dict[str, tuple[int, float, int, bytes]] = {}
    for domain in domains:
        undo = preempt.buying.save(need)
        marks = [(unit, unit.preemptor, unit.promised) for block in preempt.blocks for unit in block.members]
        drained = _assemble(need, preempt, domain)
        if need.done:
            worth[domain] = _worth(drained, need.victims, domain)
        undo()
        for unit, preemptor, promised in marks:
            unit.preemptor, unit.promised = preemptor, promised
    if worth:
        _assemble(need, preempt, min(worth, key=worth.__getitem__))


def _worth(drained: int, victims: list[Unit], domain: str) -> tuple[int, float, int, bytes]:
    """The smallest is taken: most on what drains, the least priority lost, the fewest machines, the text."""
    highest = max((unit.judged for unit in victims), default=-math.inf)
    return (-drained, highest, len(victims), domain.encode())


def _domains(need: Need, preempt: Preempt) -> set[str]:
    return {
        need.domain_of(lot.head)
        for part in need.parts
        for lot, _ in [*_draining(need, preempt), *_free(need, preempt), *_victims(need, preempt)]
        if _fits(need, part, lot, preempt)
    }


def _assemble(need: Need, preempt: Preempt, domain: str) -> int:
    """Part by part through all sources; how many units draining machines took."""
    drained = 0

    def inside(unit: Unit) -> bool:
        return need.matches(unit) and need.domain_of(unit) == domain

    for part in need.parts:
        drained += _place(need, part, preempt, _draining(need, preempt), inside)
        _place(need, part, preempt, _free(need, preempt), inside)
        _place(need, part, preempt, _victims(need, preempt), inside)
    return drained
