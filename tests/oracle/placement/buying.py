"""Buying: what every counted entry takes of closing, idle, draining, empty and purchasable machines.

Written from docs/engine.md P17 to P29. A purchase is judged by what it carries; riders share what one row leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TYPE_CHECKING

from tests.oracle.entries import compare_units
from tests.oracle.judging import times
from tests.oracle.placement.coming import place_one
from tests.oracle.placement.lots import REMAINDER, Book, Lot, everywhere, is_for_devices
from tests.oracle.placement.needs import ACQUIRED, AWAITING, Need, Portion
from tests.oracle.placement.worth import fits, has_devices, minus, owned, published, share_of, wanted
from tests.oracle.supply import CONFIGURED, DRAINING, IDLE, SPECULATIVE, Block, Unit

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions
    from tests.oracle.demand import Amounts, Demand
    from tests.oracle.placement.lots import Where
    from tests.oracle.placement.worth import Worth

REOPEN, PAID_IDLE, PAID_DRAINING, PAID_EMPTY, BUY = range(5)


@dataclass(eq=False)
class Offer:
    """Machines of one class that may be taken; `first`, the smallest id, is that of the beginning."""

    tier: int
    members: list[Unit]
    first: bytes

    @property
    def head(self) -> Unit:
        return self.members[0]

    @property
    def free(self) -> list[Unit]:
        if self.tier == REOPEN:
            return [unit for unit in self.members if not unit.reopened]
        if self.tier == PAID_DRAINING:
            return [unit for unit in self.members if unit.promised is None]
        if self.tier == PAID_EMPTY:
            return [unit for unit in self.members if unit.taker is None]
        return [unit for unit in self.members if unit.claimant is None]


@dataclass(eq=False)
class Fill:
    """One machine of an offer with what it would carry."""

    offer: Offer
    carried: list[tuple[Need, Portion, int]]
    left: Amounts
    tokens: frozenset[str]
    value: float
    risk: float

    @property
    def price(self) -> float:
        return self.offer.head.shape.price

    @property
    def cost(self) -> float:
        return self.price + self.risk

    @property
    def per_dollar(self) -> float:
        return math.inf if self.cost == 0 else self.value / self.cost

    @property
    def score(self) -> float:
        return self.value if self.offer.tier == REOPEN else self.per_dollar


@dataclass(eq=False)
class Purchase:
    """What one decision took, for the second pass."""

    need: Need
    fill: Fill
    lot: Lot


class Buying:
    def __init__(
        self,
        blocks: list[Block],
        machines: list[Unit],
        needs: list[Need],
        demand: Demand,
        worth: Worth,
        book: Book,
        conditions: Conditions,
        now: int,
    ) -> None:
        self.worth, self.book, self.policy = worth, book, worth.placement
        self.needs, self.demand = needs, demand
        self.idle = [_offer(PAID_IDLE, b.members) for b in blocks if b.head.state == IDLE and not b.head.held]
        self.slots = [_offer(BUY, b.members) for b in blocks if b.head.state == SPECULATIVE and not b.head.held]
        self.closing = [_offer(REOPEN, [u]) for u in machines if _may_reopen(u, demand, conditions)]
        drained = [u for u in machines if u.state == DRAINING]
        self.draining = _grouped(PAID_DRAINING, [u for u in drained if _drains_empty(u, demand, now)], False)
        # What only gangs look at that find no other way, while nobody before them lacks anything.
        self.emptying = _grouped(PAID_DRAINING, [u for u in drained if not _drains_empty(u, demand, now)], False)
        self.patient = self.lacking = False
        empty = [u for u in machines if self._may_be_taken(u, conditions, now)]
        self.empty = _grouped(PAID_EMPTY, empty, True)
        self.purchases: list[Purchase] = []
        self.spent = 0.0
        self.refilled = 0
        self.scarce: set[Offer] = set()

    def begin(self) -> None:
        """Finds the classes that rows would exhaust by themselves: riders count for nothing there."""
        asked: dict[Offer, int] = {}
        for need in self.needs:
            portion = need.parts[0]
            if need.plain and need.may_acquire and portion.deficit > 0:
                fill = self._buy_alone(need, portion)
                if fill:
                    most = fits(self._room(need, fill.offer), frozenset(), portion, fill.offer.head)
                    asked[fill.offer] = asked.get(fill.offer, 0) + -(-portion.deficit // most)
        self.scarce = {offer for offer, count in asked.items() if count >= len(offer.free)}

    def serve(self, need: Need) -> None:
        if need.may_acquire:
            if need.spread:
                self._serve_spread(need)
            elif need.gang and not need.host:
                self._serve_gang(need)
            else:
                for portion in need.portions:
                    self._serve_portion(need, portion, riders=need.plain)
        need.settle()
        if need.host or (need.gang and not need.may_acquire):
            need.satisfiable = need.done
        self.lacking = self.lacking or (need.able and not need.done)

    # Plain rows

    def _serve_portion(self, need: Need, portion: Portion, *, riders: bool, where: Where = everywhere) -> None:
        self.book.place(need, portion, self.book.lots(need.cluster), where)
        while portion.deficit > 0:
            fill = self._best(need, portion, riders, where)
            if fill is None:
                return
            if riders and self._may_be_filled_anew(portion, fill.offer):
                self.refilled += 1
                fill = self._filled_anew(need, portion, fill)
            self._buy(need, fill, once=False)

    def _may_be_filled_anew(self, portion: Portion, offer: Offer) -> bool:
        bought = offer.tier == BUY and offer not in self.scarce and is_for_devices(portion, offer.head)
        return bought and self.refilled < self.policy.refilled

    def _filled_anew(self, need: Need, portion: Portion, chosen: Fill) -> Fill:
        """The best fill, whoever of those that fit comes first and second."""
        head, most = chosen.offer.head, chosen.carried[0][2]
        first = self.policy.refills
        listed = [
            (rider, rider.parts[0])
            for rider in self._riders(need, 2)
            if has_devices(rider.parts[0].unit) and self._may_ride(rider, rider.parts[0], head)
        ]
        best = chosen
        for count in (most, most - 1) if most > 1 else (most,):
            alone = self._carry(need, portion, chosen.offer, count, [])
            able = [pair for pair in listed if fits(alone.left, alone.tokens, pair[1], head) > 0]
            for lead in able[:first]:
                led = self._carry(need, portion, chosen.offer, count, [lead])
                others = [pair for pair in able if pair is not lead]
                behind = [pair for pair in others if fits(led.left, led.tokens, pair[1], head) > 0]
                for second in ([], *([pair] for pair in behind[:first])):
                    rest = [pair for pair in others if pair not in second]
                    fill = self._carry(need, portion, chosen.offer, count, [lead, *second, *rest])
                    best = fill if fill.score > best.score else best
        return best

    def _carry(
        self, need: Need, portion: Portion, offer: Offer, count: int, riders: list[tuple[Need, Portion]]
    ) -> Fill:
        """One machine of an offer with so many units of the row, then as many as fit of each of the others."""
        head = offer.head
        carried = [(need, portion, count)]
        left = minus(self._room(need, offer), wanted(portion, head), count)
        tokens = portion.tokens
        for rider, ride in riders:
            more = min(ride.deficit, fits(left, tokens, ride, head))
            if more > 0:
                carried.append((rider, ride, more))
                left, tokens = minus(left, wanted(ride, head), more), tokens | ride.tokens
        return self._judged(offer, carried, left, tokens)

    def _best(self, need: Need, portion: Portion, riders: bool, where: Where, most: int | None = None) -> Fill | None:
        def fills(offers: list[Offer], device: bool | None) -> list[Fill]:
            found = [
                self._fill(need, portion, offer, riders, most)
                for offer in offers
                if offer.free and where(offer.head)
                if device is None or has_devices(published(offer.head)) == device
            ]
            return [fill for fill in found if fill is not None]

        first = fills(self.slots, None if has_devices(portion.unit) else False)
        offered = max((fill.score for fill in first), default=0.0)
        closing = fills(self._own(need, self.closing), None)
        reopened = [fill for fill in closing if self._worth_reopening(fill, offered)]
        if reopened:
            return self._choose(reopened)
        for device in (None,) if has_devices(portion.unit) else (False, True):
            bought = fills(self.slots, device)
            best = max((fill.score for fill in bought), default=0.0)
            own = [offer for offer in self.idle if owned(offer.head)]
            rented = [offer for offer in self.idle if not owned(offer.head)]
            for tier in (own, rented, self._draining(), self._others(need, self.empty)):
                paid = [fill for fill in fills(tier, device) if self._accepted(fill, best)]
                if paid:
                    return self._choose(paid)
            if bought:
                return self._choose(bought)
        return None

    def _worth_reopening(self, fill: Fill, offered: float) -> bool:
        if fill.value <= fill.risk or owned(fill.offer.head):
            return fill.value > fill.risk
        needed = times(times(self.policy.reopen_ratio, offered), fill.cost)
        return fill.value + self._carried(fill.offer.head) >= needed

    def _carried(self, node: Unit) -> float:
        """What its pods would cost by the share of a machine, on what is interrupted no more often."""
        assert node.report is not None
        used = {name: amount for name, amount in node.report.used.items() if name != "pods" and amount > 0}
        costs = [
            share_of(used, kind) * kind.shape.price
            for kind in self.worth.classes.values()
            if kind.shape.price > 0 and kind.shape.probability <= node.shape.probability
            if all(published(kind).get(name, 0) > 0 for name in used)
        ]
        return min(costs, default=0.0)

    def _accepted(self, fill: Fill, best: float) -> bool:
        if owned(fill.offer.head):
            return fill.value > fill.risk
        return fill.per_dollar >= times(self.policy.paid_ratio, best)

    def _draining(self) -> list[Offer]:
        return [*self.draining, *self.emptying] if self.patient else self.draining

    def _own(self, need: Need, offers: list[Offer]) -> list[Offer]:
        return [offer for offer in offers if offer.head.cluster == need.cluster]

    def _others(self, need: Need, offers: list[Offer]) -> list[Offer]:
        return [offer for offer in offers if offer.head.cluster != need.cluster]

    def _buy_alone(self, need: Need, portion: Portion) -> Fill | None:
        for device in (None,) if has_devices(portion.unit) else (False, True):
            fills = [
                fill
                for offer in self.slots
                if offer.free and (device is None or has_devices(published(offer.head)) == device)
                if (fill := self._fill(need, portion, offer, False, None)) is not None
            ]
            if fills:
                return self._choose(fills)
        return None

    def _room(self, need: Need, offer: Offer) -> Amounts:
        return self.worth.left_of(offer.head) if offer.tier == REOPEN else self.worth.room(need.cluster, offer.head)

    def _fill(self, need: Need, portion: Portion, offer: Offer, riders: bool, most: int | None) -> Fill | None:
        head = offer.head
        left = self._room(need, offer)
        tokens = head.report.tokens if offer.tier == REOPEN and head.report else frozenset()
        count = min(portion.deficit, fits(left, tokens, portion, head))
        count = count if most is None else min(count, most)
        if count <= 0 or not self.worth.open_to(need, portion, head):
            return None
        carried = [(need, portion, count)]
        left, tokens = minus(left, wanted(portion, head), count), tokens | portion.tokens
        if riders and not (offer.tier == BUY and offer in self.scarce):
            for rider in self._riders(need):
                ride = rider.parts[0]
                if is_for_devices(portion, head) and not has_devices(ride.unit):
                    continue
                more = min(ride.deficit, fits(left, tokens, ride, head))
                if more > 0 and self._may_ride(rider, ride, head):
                    carried.append((rider, ride, more))
                    left, tokens = minus(left, wanted(ride, head), more), tokens | ride.tokens
        return self._judged(offer, carried, left, tokens)

    def _judged(
        self, offer: Offer, carried: list[tuple[Need, Portion, int]], left: Amounts, tokens: frozenset[str]
    ) -> Fill:
        value = dollars = 0.0
        for row, part, units in carried:
            value += units * self.worth.value(row, part)
            dollars += times(units, row.dollars)
        return Fill(offer, carried, left, tokens, value, times(offer.head.shape.probability, dollars))

    def _riders(self, need: Need, reach: int = 1) -> list[Need]:
        later = self.needs[self.needs.index(need) + 1 :]
        waiting = [n for n in later if n.cluster == need.cluster and n.plain and n.parts[0].deficit > 0]
        waiting = [n for n in waiting if self.worth.value(n, n.parts[0]) > 0]
        return waiting[: reach * self.policy.riders]

    def _may_ride(self, rider: Need, ride: Portion, head: Unit) -> bool:
        return self.worth.open_to(rider, ride, head) and (
            times(head.shape.probability, rider.dollars) < self.worth.value(rider, ride)
        )

    def _choose(self, fills: list[Fill]) -> Fill:
        best = max(fill.score for fill in fills)
        near = [fill for fill in fills if fill.score >= (1 - self.policy.within) * best]
        return sorted(near, key=cmp_to_key(_cheaper))[0]

    def _buy(self, need: Need, fill: Fill, *, once: bool) -> None:
        repeats = min(len(fill.offer.free), *(part.deficit // units for _, part, units in fill.carried))
        members = fill.offer.free[: 1 if once else repeats]
        source = AWAITING if fill.offer.tier in (PAID_DRAINING, PAID_EMPTY) else ACQUIRED
        for _, part, units in fill.carried:
            part.got(source, units * len(members), 0)
        if need.spread:
            domain = need.domain_of(members[0])
            need.counts[domain] = need.counts.get(domain, 0) + fill.carried[0][2] * len(members)
        for unit in members:
            self._claim(need, unit, fill.offer.tier)
        if fill.offer.tier in (PAID_IDLE, BUY):
            free = fill.offer.tier == PAID_IDLE and owned(fill.offer.head)
            self.spent += len(members) * (fill.risk if free else fill.cost)
        room = self.worth.room(need.cluster, fill.offer.head)
        devices = is_for_devices(fill.carried[0][1], fill.offer.head)
        lot = Lot(members, fill.left, room, fill.tokens, source, rank=REMAINDER, for_devices=devices)
        self.book.open(need.cluster, lot)
        if need.plain and fill.offer.tier in (PAID_IDLE, BUY):
            self.purchases.append(Purchase(need, fill, lot))

    def _claim(self, need: Need, unit: Unit, tier: int) -> None:
        if tier == REOPEN:
            unit.reopened = True
            need.reopens.append(unit)
        elif tier == PAID_DRAINING:
            unit.promised = need
            need.drains.append(unit)
        elif tier == PAID_EMPTY:
            unit.taker = need
            need.taken.append(unit)
        else:
            unit.claimant = need
            (need.bootstraps if tier == PAID_IDLE else need.provisions).append(unit)

    # Strict spreads

    def _serve_spread(self, need: Need) -> None:
        portion = need.parts[0]
        ceiling: float | None = None
        while portion.deficit > 0:
            if place_one(need, self.book):
                continue
            if ceiling is None:
                ceiling = self._ceiling(need, portion)
            if not self._buy_in_a_domain(need, portion, ceiling):
                return

    def _ceiling(self, need: Need, portion: Portion) -> float:
        """Domains where nothing is to be had hold all others back."""
        assert need.spread is not None
        dead = [d for d in need.universe if self._best(need, portion, False, _inside(need, d), 1) is None]
        return min((need.counts.get(d, 0) + need.spread[1] for d in dead), default=math.inf)

    def _aim(self, need: Need, portion: Portion, ceiling: float) -> float:
        """Units of a domain once the whole deficit has been dealt to the emptiest ones."""
        have = [need.counts.get(d, 0) for d in need.universe]
        aim = min(have)
        while sum(max(0, aim - units) for units in have) < portion.deficit:
            aim += 1
        return min(aim, ceiling)

    def _buy_in_a_domain(self, need: Need, portion: Portion, ceiling: float) -> bool:
        open_domains = [d for d in need.universe if need.may_take(d) > 0]
        for domain in sorted(open_domains, key=lambda d: (need.counts.get(d, 0), d.encode())):
            here, now = _inside(need, domain), need.may_take(domain)
            hoped = max(now, int(self._aim(need, portion, ceiling)) - need.counts.get(domain, 0))
            chosen = self._best(need, portion, False, here, hoped)
            if chosen:
                fill = self._fill(need, portion, chosen.offer, False, now)
                assert fill is not None, "what holds more holds less"
                self._buy(need, fill, once=True)
                return True
        return False

    # Gangs

    def _serve_gang(self, need: Need) -> None:
        if need.done:
            need.satisfiable = True
            return
        costs = self._costs(need)
        if not costs and not self.lacking:
            self.patient = True
            costs = self._costs(need)
        need.satisfiable = bool(costs)
        if costs:
            need.domain = min(costs, key=lambda d: (costs[d], d.encode()))
            self._assemble(need, need.domain)
        self.patient = False

    def _costs(self, need: Need) -> dict[str, float]:
        """What all of a gang would cost in each domain that can hold it."""
        costs: dict[str, float] = {}
        for domain in self._domains(need) if need.domain is None else [need.domain]:
            undo = self.save(need)
            self._assemble(need, domain)
            if need.done:
                costs[domain] = self.spent
            undo()
        return costs

    def _assemble(self, need: Need, domain: str) -> None:
        self.spent = 0.0
        for part in need.parts:
            self._serve_portion(need, part, riders=False, where=_inside(need, domain))

    def _domains(self, need: Need) -> set[str]:
        domains = set()
        offers = [*self._own(need, self.closing), *self.idle, *self._draining(), *self._others(need, self.empty)]
        for part in need.parts:
            for lot in self.book.usable(need, part, self.book.lots(need.cluster)):
                domains.add(need.domain_of(lot.head))
            for offer in [*offers, *self.slots]:
                if offer.free and self._fill(need, part, offer, False, None):
                    domains.add(need.domain_of(offer.head))
        return domains

    def save(self, need: Need):  # type: ignore[no-untyped-def]
        """A way back to this moment, for trying out a gang's domains."""
        book = self.book.save()
        lists = ("reopens", "taken", "bootstraps", "provisions", "drains", "victims")
        kept = {name: list(getattr(need, name)) for name in lists}
        parts = [(p, p.coming, p.coming_until, p.acquired, p.awaiting) for p in need.parts]
        units = {u for offer in self._offers() for u in offer.members} | {
            u for lots in (self.book.unnamed, *self.book.whole.values()) for lot in lots for u in lot.members
        }
        marks = [(u, u.claimant, u.promised, u.taker, u.reopened, u.preemptor) for u in units]

        def undo() -> None:
            self.book.restore(book)
            for name, units in kept.items():
                setattr(need, name, list(units))
            for part, *found in parts:
                part.coming, part.coming_until, part.acquired, part.awaiting = found
            for unit, *mark in marks:
                unit.claimant, unit.promised, unit.taker, unit.reopened, unit.preemptor = mark

        return undo

    def _offers(self) -> list[Offer]:
        return [*self.closing, *self.idle, *self.draining, *self.emptying, *self.empty, *self.slots]

    # After the pass

    def place_leftovers(self) -> None:
        for need in self.needs:
            if need.plain:
                self.book.place(need, need.parts[0], self.book.open_remainders(need.cluster))

    def drop_superfluous(self) -> None:
        for cluster in dict.fromkeys(purchase.need.cluster for purchase in self.purchases):
            mine = [purchase for purchase in self.purchases if purchase.need.cluster == cluster]
            bought = sum(len(purchase.need.bootstraps) + len(purchase.need.provisions) for purchase in _per_need(mine))
            if bought >= self.policy.second_pass_from:
                for purchase in reversed(mine):
                    while purchase.lot.members and self._drop_one(purchase):
                        pass

    def _drop_one(self, purchase: Purchase) -> bool:
        carried, cluster = purchase.fill.carried, purchase.need.cluster
        saved = self.book.save()
        before = [(p, p.coming, p.coming_until, p.acquired, p.awaiting) for _, p, _ in carried]
        for need, part, units in carried:
            part.acquired -= units
            goal = part.deficit - units
            others = [lot for lot in self.book.open_remainders(cluster) if lot is not purchase.lot]
            self._place_exactly(need, part, units, others)
            if part.deficit > goal:
                self.book.restore(saved)
                for part, coming, until, acquired, awaiting in before:
                    part.coming, part.coming_until, part.acquired, part.awaiting = coming, until, acquired, awaiting
                return False
        gone = max(purchase.lot.members, key=lambda unit: unit.id.encode())
        purchase.lot.members.remove(gone)
        gone.claimant = None
        for taken in (purchase.need.bootstraps, purchase.need.provisions):
            if gone in taken:
                taken.remove(gone)
        return True

    def _place_exactly(self, need: Need, part: Portion, units: int, lots: list[Lot]) -> None:
        """Places just these units: the row may lack others that found no room before."""
        for lot in self.book.usable(need, part, lots):
            if units > 0 and lot.members and not lot.closed:
                before = part.deficit
                self.book.put(need, part, lot, units)
                units -= before - part.deficit

    def _lacks_units(self, name: str) -> bool:
        cluster = self.demand.clusters[name]
        return any(cluster.stranded(row) for row in cluster.rows.values())

    def _may_be_taken(self, unit: Unit, conditions: Conditions, now: int) -> bool:
        """A reclaimable machine that has been there long enough to have got its own cluster's pods."""
        if not conditions.reclaim or unit.empty_since is None or unit.report is None:
            return False
        if unit.report.closing and self._lacks_units(unit.cluster):
            return False
        if resting(unit, conditions, 1, now):
            return False
        return unit.ready_since is not None and unit.ready_since + self.worth.boot_ns(unit) <= now


def resting(unit: Unit, conditions: Conditions, kind: int, now: int) -> bool:
    return any(r.machine == unit.id and int(r.kind) == kind and now < r.until for r in conditions.rests)


def in_open_move(unit: Unit, conditions: Conditions) -> bool:
    """Of moves that are in force; the step passes only those."""
    return any(unit.id == move.new or unit.id in move.old for move in conditions.moves)


def _offer(tier: int, members: list[Unit]) -> Offer:
    ordered = sorted(members, key=lambda unit: unit.id.encode())
    return Offer(tier, ordered, ordered[0].id.encode())


def _grouped(tier: int, units: list[Unit], by_cluster: bool) -> list[Offer]:
    groups: dict[tuple[object, ...], list[Unit]] = {}
    for unit in units:
        groups.setdefault((unit.klass, unit.cluster if by_cluster else ""), []).append(unit)
    return [_offer(tier, members) for members in groups.values()]


def _may_reopen(unit: Unit, demand: Demand, conditions: Conditions) -> bool:
    cluster = demand.clusters.get(unit.cluster)
    if unit.state != CONFIGURED or unit.report is None or cluster is None or not cluster.reporting:
        return False
    return unit.report.ready and unit.report.closing and not in_open_move(unit, conditions)


def _drains_empty(unit: Unit, demand: Demand, now: int) -> bool:
    cluster = demand.clusters.get(unit.cluster)
    if unit.state != DRAINING or unit.report is None or cluster is None or not cluster.reporting:
        return False
    return unit.report.empty and (not unit.deadline or now < unit.deadline)


def _inside(need: Need, domain: str) -> Where:
    return lambda unit: need.matches(unit) and need.domain_of(unit) == domain


def _per_need(purchases: list[Purchase]) -> list[Purchase]:
    """One purchase of each need."""
    return list({id(purchase.need): purchase for purchase in purchases}.values())


def _cheaper(left: Fill, right: Fill) -> int:
    if left.price != right.price:
        return -1 if left.price < right.price else 1
    size = compare_units(published(right.offer.head), published(left.offer.head))
    if size:
        return size
    return -1 if left.offer.first < right.offer.first else 1
