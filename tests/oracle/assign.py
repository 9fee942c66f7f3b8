"""Assign: every entry in turn is credited with what its cluster has and then acquires from the free pool.

Written from docs/engine.md §3. Machines are looked at one at a time; blocks only decide the order they come in.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from bigfleet.engine.results import DomainCoverage
from tests.oracle.demand import Amounts, added, covers
from tests.oracle.entries import Entry, owns
from tests.oracle.supply import CONFIGURED, CONFIGURING, CREATING, HOSTNAME, IDLE, SPECULATIVE, Block, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigfleet.engine.policy import Policy


def ordered(blocks: list[Block], state: int, key: Callable[[Unit], tuple[object, ...]]) -> list[Unit]:
    """All machines of a state, block by block in an order given by a block's head; the smallest id ends every tie."""
    chosen = [block for block in blocks if block.head.state == state]
    chosen.sort(key=lambda block: (*key(block.head), block.first.encode()))
    return [unit for block in chosen for unit in block.members]


def keep_order(unit: Unit) -> tuple[object, ...]:
    return (unit.shape.price, -unit.reclamation)


def price_order(unit: Unit) -> tuple[object, ...]:
    return (unit.shape.price,)


def effective_cost(unit: Unit, dollars: float) -> float:
    risk = unit.shape.probability
    return unit.shape.price + (risk * dollars if risk > 0 and dollars > 0 else 0.0)


def useful(have: Amounts, remaining: Amounts) -> bool:
    return any(amount > 0 and have.get(name, 0) > 0 for name, amount in remaining.items())


def subtract(remaining: Amounts, have: Amounts) -> None:
    for name in remaining:
        remaining[name] = max(0, remaining[name] - have.get(name, 0))


def plan(entry: Entry, units: list[Unit], left: list[Amounts]) -> list[Unit]:
    """Which of the units the parts would take, one after the other; `left`, what each part misses, is lowered."""
    picked: list[Unit] = []
    for part, remaining in zip(entry.parts, left, strict=True):
        for unit in units:
            have = entry.effective(unit)
            if unit not in picked and covers(have, part.row.min_unit) and useful(have, remaining):
                picked.append(unit)
                subtract(remaining, have)
    return picked


def take(entry: Entry, units: list[Unit]) -> list[Unit]:
    return plan(entry, units, [part.remaining for part in entry.parts])


class Assign:
    """The blocks of the step and who may acquire."""

    def __init__(self, blocks: list[Block], policy: Policy) -> None:
        self.policy = policy
        self.blocks = blocks
        self.configured = ordered(blocks, CONFIGURED, keep_order)
        self.configuring = ordered(blocks, CONFIGURING, keep_order)
        self.idle = ordered(blocks, IDLE, price_order)

    def serve(self, entry: Entry, may_acquire: bool) -> None:
        if entry.gang:
            self._serve_gang(entry, may_acquire)
        elif entry.spread:
            self._serve_spread(entry, may_acquire)
        else:
            self._serve_plain(entry, may_acquire)
        entry.deficit = dict(entry.remaining)
        entry.satisfied = entry.done

    # Plain rows

    def _serve_plain(self, entry: Entry, may_acquire: bool) -> None:
        for units in self._creditable(entry):
            entry.credited += claim(entry, take(entry, units))
        if may_acquire:
            entry.bootstraps += claim(entry, take(entry, self._free(entry, self.idle)))
            entry.provisions += claim(entry, take(entry, self._free(entry, self._buying_order(entry))))

    def _creditable(self, entry: Entry) -> list[list[Unit]]:
        """The cluster's eligible machines nobody has claimed: Configured, Configuring, Creating."""

        def open_to(units: list[Unit]) -> list[Unit]:
            return [u for u in units if u.claimant is None and entry.eligible(u)]

        here = [[u for u in units if u.cluster == entry.cluster] for units in (self.configured, self.configuring)]
        creating = [
            unit
            for unit in ordered(self.blocks, CREATING, lambda u: (u.cluster != entry.cluster,))
            if unit.cluster in (entry.cluster, "") and (unit.fingerprint, unit.group) in entry.creating_stamps
        ]
        return [open_to(units) for units in (*here, creating)]

    def _free(self, entry: Entry, units: list[Unit]) -> list[Unit]:
        return [u for u in units if not u.held and u.claimant is None and entry.eligible(u)]

    def _buying_order(self, entry: Entry) -> list[Unit]:
        return ordered(self.blocks, SPECULATIVE, lambda u: (effective_cost(u, entry.interruption), u.shape.price))

    # Strict spread rows

    def _serve_spread(self, entry: Entry, may_acquire: bool) -> None:
        assert entry.spread is not None
        remaining = entry.parts[0].remaining
        counts: dict[str, int] = {}
        idle = self._free(entry, self.idle)
        speculative = self._free(entry, self._buying_order(entry))

        def receive(unit: Unit, into: list[Unit]) -> None:
            into += claim(entry, [unit])
            subtract(remaining, entry.effective(unit))
            domain = entry.domain_of(unit)
            counts[domain] = counts.get(domain, 0) + 1

        for units in self._creditable(entry):
            while heads := _heads(entry, units):
                domain = min(heads, key=lambda d: (counts.get(d, 0), units.index(heads[d])))
                receive(heads[domain], entry.credited)
        entry.universe = {*counts, *(entry.domain_of(unit) for unit in [*idle, *speculative])}
        while may_acquire:
            if heads := open_domains(entry, _heads(entry, idle)):
                domain = min(heads, key=lambda d: (heads[d].shape.price, d.encode()))
                receive(heads[domain], entry.bootstraps)
            elif heads := open_domains(entry, _heads(entry, speculative)):
                domain = min(
                    heads,
                    key=lambda d: (
                        effective_cost(heads[d], entry.interruption),
                        heads[d].shape.price,
                        d.encode(),
                    ),
                )
                receive(heads[domain], entry.provisions)
            else:
                break

    # Gangs

    def _serve_gang(self, gang: Entry, may_acquire: bool) -> None:
        assert gang.profile.same is not None
        if gang.profile.same.key == HOSTNAME:
            return
        creditable = [unit for units in self._creditable(gang) for unit in units]
        idle, speculative = self._free(gang, self.idle), self._free(gang, self._buying_order(gang))
        free = [*idle, *speculative]
        if not may_acquire or any(covers(have, gang.aggregate) for have in _per_domain(gang, creditable).values()):
            free = []
        self._choose_domain(gang, creditable, free)
        if gang.domain is None:
            return
        inside = [unit for unit in creditable if gang.domain_of(unit) == gang.domain]
        own_first = [u for u in inside if owns(gang, u)] + [u for u in inside if not owns(gang, u)]
        gang.credited += claim(gang, take(gang, own_first))
        if may_acquire:
            gang.bootstraps += claim(gang, take(gang, [u for u in idle if gang.domain_of(u) == gang.domain]))
            gang.provisions += claim(gang, take(gang, [u for u in speculative if gang.domain_of(u) == gang.domain]))

    def _choose_domain(self, gang: Entry, creditable: list[Unit], free: list[Unit]) -> None:
        want = gang.aggregate
        totals = _per_domain(gang, [*creditable, *free])
        credit = _per_domain(gang, creditable)
        own = _per_domain(gang, [unit for unit in creditable if owns(gang, unit)])
        bound = Counter(gang.domain_of(unit) for unit in creditable)
        counted = bound + Counter(gang.domain_of(unit) for unit in free)

        def rank(domain: str) -> tuple[object, ...]:
            total = totals[domain]
            credit_score = score(credit.get(domain, {}), want)
            if covers(total, want):
                own_score = score(own.get(domain, {}), want)
                if not free:
                    return (0, -credit_score, -own_score, domain.encode())
                slack = uncapped_score(total, want)
                return (0, -credit_score, -own_score, slack, -bound[domain], -counted[domain], domain.encode())
            return (1, -score(total, want), -credit_score, -bound[domain], -counted[domain], domain.encode())

        if totals:
            gang.domain = min(totals, key=rank)
            gang.satisfiable = covers(totals[gang.domain], want)
        shown = [
            DomainCoverage(domain, coverage_per_mille(have, want), covers(have, want))
            for domain, have in totals.items()
        ]
        shown.sort(key=lambda c: (-c.per_mille, c.domain.encode()))
        gang.candidates = tuple(shown[: self.policy.same_candidates])


def claim(entry: Entry, units: list[Unit]) -> list[Unit]:
    for unit in units:
        assert unit.claimant is None
        unit.claimant = entry
    return units


def _heads(entry: Entry, units: list[Unit]) -> dict[str, Unit]:
    """Per domain the first machine that nobody claimed and that still helps."""
    heads: dict[str, Unit] = {}
    for unit in units:
        if unit.claimant is None and useful(entry.effective(unit), entry.parts[0].remaining):
            heads.setdefault(entry.domain_of(unit), unit)
    return heads


def open_domains(entry: Entry, heads: dict[str, Unit]) -> dict[str, Unit]:
    """Those of the domains that may receive one more machine under the entry's skew."""
    assert entry.spread is not None
    counts = dict.fromkeys(entry.universe, 0)
    for unit in (*entry.credited, *entry.bootstraps, *entry.provisions, *entry.drains, *entry.victims):
        counts[entry.domain_of(unit)] += 1
    limit = min(counts.values(), default=0) + max(1, entry.spread.max_skew) - 1
    return {domain: unit for domain, unit in heads.items() if counts[domain] <= limit}


def _per_domain(gang: Entry, units: list[Unit]) -> dict[str, Amounts]:
    sums: dict[str, Amounts] = {}
    for unit in units:
        domain = gang.domain_of(unit)
        sums[domain] = added(sums.get(domain, {}), gang.effective(unit))
    return sums


def score(have: Amounts, want: Amounts) -> int:
    return sum(math.floor(min(1.0, have.get(n, 0) / w) * 1_000_000.0) for n, w in want.items() if w > 0)


def uncapped_score(have: Amounts, want: Amounts) -> int:
    return sum(math.floor(have.get(n, 0) / w * 1_000_000.0) for n, w in want.items() if w > 0)


def coverage_per_mille(have: Amounts, want: Amounts) -> int:
    return min((min(have.get(n, 0), w) * 1000 // w for n, w in want.items() if w > 0), default=1000)
