"""Verdicts: what each entry got, and why not more (§7). Computed when somebody asks, from what the step left behind."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.decide.need_names import Needs
from bigfleet.engine.decide.order import in_order
from bigfleet.engine.demand.rows import GANG, NO_TIME, PARKED, SATISFIABLE, SPREAD
from bigfleet.engine.fleet.cells import (
    CONFIGURED,
    FAILED,
    IDLE,
    OWNER_IDLE,
    OWNER_SPECULATIVE,
    SPECULATIVE,
)
from bigfleet.engine.outcome.units import UnitOutcome
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import DomainCoverage, Supply, UnmetReason, Verdict
from bigfleet.model.resources import Resources


class VerdictBatch(Struct, frozen=True, eq=False):
    """One verdict per entry, in the order of service; valid until the engine's next step."""

    needs: Needs
    pending: NDArray[np.int32]
    victim_entry: NDArray[np.int32]
    victim_slot: NDArray[np.int32]
    slot_class: NDArray[np.int32]
    now: int
    acquire: bool
    policy: Policy
    units: UnitOutcome | None = None

    def __len__(self) -> int:
        return int(self.needs.current.c.entries[: len(self.needs.clusters)].sum())

    def rows(self) -> list[Verdict]:
        entries = service_order(self.needs)
        return self._render(entries)

    def of(self, entries: NDArray[np.int64]) -> list[Verdict]:
        """Verdicts of some entries only."""
        return self._render(entries)

    def unmet(self) -> list[Verdict]:
        """Verdicts of the entries Assign did not satisfy, in the order of service."""
        return [verdict for verdict in self._render(self.pending.astype(np.int64)) if not verdict.satisfied]

    def _render(self, entries: NDArray[np.int64]) -> list[Verdict]:
        w = self.needs.current
        pending = set(self.pending.tolist())
        supply = FreeSupply(self.needs, self.policy, self.units.freed if self.units is not None else None)
        victims: dict[int, list[int]] = {}
        for entry, cls in zip(self.victim_entry.tolist(), self.slot_class.tolist(), strict=True):
            victims.setdefault(entry, []).append(cls)
        nothing = Resources()
        found = []
        for entry in entries.tolist():
            if self.units is not None and self.units.is_counted(entry):
                found.append(self._counted(self.units, entry, supply, victims.get(entry, [])))
                continue
            first, count = int(w.e.part[entry]), int(w.e.parts[entry])
            span = slice(first, first + count)
            left = w.parts.left[span].sum(axis=0) if entry in pending else np.zeros(w.parts.left.shape[1], np.int64)
            satisfied = not left.any()
            gang = int(w.e.kind[entry]) == GANG
            flags = int(w.e.flags[entry])
            since = int(w.e.parked_since[entry])
            boots, provisions = int(w.e.boots[entry]), int(w.e.provisions[entry])
            claimed = int(w.e.claimed[entry]) + int(w.e.late[entry]) + boots + provisions
            counts = None if satisfied else supply.counts(entry)
            mine = victims.get(entry, [])
            ages = [
                (self.now - int(at)) // self.policy.cycle_ns + 1 for at in w.parts.since[span] if int(at) != NO_TIME
            ]
            domain = int(w.e.domain[entry])
            found.append(
                Verdict(
                    key=self.needs.entry_key(entry),
                    priority=self.needs.priority(entry),
                    arrival=int(w.e.arrival[entry]),
                    satisfied=satisfied,
                    deficit=nothing if satisfied else self.needs.total(w.parts.left, entry),
                    claimed=claimed,
                    bootstraps=boots,
                    provisions=provisions,
                    domain=self.needs.catalog.domain_texts[domain] if gang and domain >= 0 else None,
                    satisfiable=bool(flags & SATISFIABLE),
                    parked=bool(flags & PARKED),
                    parked_age=(self.now - since) // self.policy.cycle_ns if gang and since != NO_TIME else 0,
                    unmet_age=max(ages, default=0),
                    reason=UnmetReason.NONE
                    if satisfied or counts is None
                    else self._reason(entry, counts, supply, claimed, len(mine)),
                    supply=counts,
                    victims=len(mine),
                    freed=self._freed(int(w.e.cluster[entry]), mine),
                    candidates=self._candidates(entry) if gang else (),
                )
            )
        return found

    def _freed(self, cluster: int, classes: list[int]) -> Resources:
        """What victims of these classes hold for the cluster, in all resources they publish."""
        overhead = self.needs.amounts(self.needs.current.c.overhead[cluster])
        freed: dict[str, int] = {}
        for cls in classes:
            for name, amount in self.needs.catalog.class_shape(cls).allocatable.minus(overhead).items():
                freed[name] = freed.get(name, 0) + amount
        return Resources(freed, limit=2**63)

    def _counted(self, units: UnitOutcome, entry: int, supply: FreeSupply, mine: list[int]) -> Verdict:
        """The verdict of an entry of a cluster that reports placement (P41)."""
        w = self.needs.current
        span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
        parts = units.units(entry)
        satisfied = parts.stranded == 0
        counts = None if satisfied else supply.counts(entry)
        claimed, boots, provisions = units.claimed(entry)
        gang, since = int(w.e.kind[entry]) == GANG, int(w.e.parked_since[entry])
        ages = [(self.now - int(at)) // self.policy.cycle_ns + 1 for at in w.parts.since[span] if int(at) != NO_TIME]
        return Verdict(
            key=self.needs.entry_key(entry),
            priority=self.needs.priority(entry),
            arrival=int(w.e.arrival[entry]),
            satisfied=satisfied,
            deficit=Resources() if satisfied else self.needs.total(w.parts.left, entry),
            claimed=claimed,
            bootstraps=boots,
            provisions=provisions,
            domain=units.domain(entry),
            satisfiable=units.satisfiable(entry),
            parked=gang and bool(int(w.e.flags[entry]) & PARKED),
            parked_age=(self.now - since) // self.policy.cycle_ns if gang and since != NO_TIME else 0,
            unmet_age=max(ages, default=0),
            reason=UnmetReason.NONE if counts is None else units.reason(entry, counts, supply, len(mine)),
            supply=counts,
            victims=len(mine),
            freed=self._freed(int(w.e.cluster[entry]), mine),
            candidates=(),
            units=parts,
        )

    def cause(self, entry: int, supply: FreeSupply) -> UnmetReason:
        """Why something of a counted entry is missing."""
        assert self.units is not None
        victims = int((self.victim_entry == entry).sum()) if len(self.victim_entry) else 0
        return self.units.reason(entry, supply.counts(entry), supply, victims)

    def _candidates(self, entry: int) -> tuple[DomainCoverage, ...]:
        w = self.needs.current
        texts = self.needs.catalog.texts.texts
        return tuple(
            DomainCoverage(texts[text], int(coverage) // 2, bool(int(coverage) & 1))
            for text, coverage in zip(w.e.candidate[entry].tolist(), w.e.coverage[entry].tolist(), strict=True)
            if text >= 0
        )

    def _reason(self, entry: int, counts: Supply, supply: FreeSupply, claimed: int, victims: int) -> UnmetReason:
        w = self.needs.current
        span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
        flags = int(w.e.flags[entry])
        gang = int(w.e.kind[entry]) == GANG
        if supply.lacks_some and (w.parts.agg[span].sum(axis=0)[~supply.published] > 0).any():
            return UnmetReason.RESOURCE_NOT_PUBLISHED
        if not w.c.connected[w.e.cluster[entry]]:
            return UnmetReason.CLUSTER_DISCONNECTED
        if not self.acquire:
            return UnmetReason.ACQUISITION_HELD
        if not w.parts.rest[span].any():
            return UnmetReason.AWAITING_DRAIN
        if gang and (int(w.e.domain[entry]) < 0 or not flags & SATISFIABLE or flags & PARKED):
            return UnmetReason.TOPOLOGY_UNSATISFIABLE
        if claimed == 0 and counts.idle + counts.speculative + counts.configured == 0:
            return supply.none(entry)
        if victims:
            return UnmetReason.PREEMPTION_EXHAUSTED
        usable = supply.usable(entry)
        if (supply.held[usable] > 0).any():
            return UnmetReason.SUPPLY_BACKED_OFF
        if int(w.e.kind[entry]) == SPREAD and (supply.unclaimed[usable] > 0).any():
            return UnmetReason.SPREAD_UNSATISFIABLE
        return UnmetReason.PRIORITY_STARVED


class FreeSupply:
    """Counts of machines by class, seen by demand: all, held, unclaimed; and which resources exist at all."""

    def __init__(self, needs: Needs, policy: Policy, freed: NDArray[np.int64] | None = None) -> None:
        """`freed`: unclaimed machines by class beyond what cells say."""
        w = needs.current
        self._needs = needs
        self._cap = policy.supply_count_cap
        self._classes = needs.catalog.class_count
        self._memo: dict[tuple[int, int, bytes, bytes], NDArray[np.bool_]] = {}
        n = self._classes
        self.count = w.k.count[:n]
        present = self.count.sum(axis=1) > 0
        self.published = (
            (w.k.alloc[:n][present] > 0).any(axis=0) if present.any() else np.zeros(w.k.alloc.shape[1], bool)
        )
        # Whether there are machines, and a resource that none of them has.
        self.lacks_some = bool(present.any()) and not self.published.all()
        self._counts: dict[int, Supply] = {}
        self.unclaimed = np.zeros(n, np.int64)
        self.held = self.count[:, IDLE] + self.count[:, SPECULATIVE]
        for owner in (OWNER_IDLE, OWNER_SPECULATIVE):
            start = int(w.owners.start[owner])
            cells = w.held.data[start : start + int(w.owners.used[owner])]
            if owner == OWNER_SPECULATIVE:
                cells = cells[w.k.broken[w.cells.cls[cells]] == 0]
            np.add.at(self.unclaimed, w.cells.cls[cells], w.cells.count[cells] - w.cells.taken[cells])
            np.subtract.at(self.held, w.cells.cls[cells], w.cells.count[cells])
        if freed is not None:
            self.unclaimed[: len(freed)] += freed

    def usable(self, entry: int) -> NDArray[np.bool_]:
        """Classes that match the entry and hold one of its smallest units."""
        w = self._needs.current
        con = int(w.p.con[w.e.prof[entry]])
        units = w.parts.unit[int(w.e.part[entry]) : int(w.e.part[entry]) + int(w.e.parts[entry])]
        overhead = w.c.overhead[int(w.e.cluster[entry])]
        spread = int(w.p.spread[w.e.prof[entry]]) if int(w.e.kind[entry]) == SPREAD else -1
        key = (con, spread, units.tobytes(), overhead.tobytes())
        found = self._memo.get(key)
        if found is None:
            have = np.maximum(w.k.alloc[: self._classes] - overhead, 0)
            fits = (have[:, None, :] >= units[None, :, :]).all(axis=2).any(axis=1)
            found = fits & (w.match[con, : self._classes] != 0)
            if spread >= 0:
                found &= w.k.dom[: self._classes, spread] >= 0
            self._memo[key] = found
        return found

    def none(self, entry: int) -> UnmetReason:
        """Why there is nothing for the entry: what would serve it has failed, or nothing would."""
        failed = self.count[self.usable(entry), FAILED].sum() > 0
        return UnmetReason.SUPPLY_BACKED_OFF if failed else UnmetReason.NO_MATCHING_SUPPLY

    def counts(self, entry: int) -> Supply:
        usable = self.usable(entry)
        # What is usable is remembered, so that its identity stays its own.
        found = self._counts.get(id(usable))
        if found is None:
            totals = [int(self.count[usable, state].sum()) for state in (IDLE, SPECULATIVE, CONFIGURED)]
            idle, speculative, configured = (min(total, self._cap) for total in totals)
            found = Supply(idle, speculative, configured, any(total > self._cap for total in totals))
            self._counts[id(usable)] = found
        return found


def service_order(needs: Needs) -> NDArray[np.int64]:
    """All entries in the order in which they are served."""
    w = needs.current
    count = len(needs.clusters)
    spans = [
        np.arange(int(w.c.start[c]), int(w.c.start[c]) + int(w.c.entries[c])) for c in range(count) if w.c.entries[c]
    ]
    if not spans:
        return np.zeros(0, np.int64)
    entries = np.concatenate(spans)
    ordered = entries[in_order(w, entries)]
    odd = needs.catalog.resource(ODD)
    if odd >= 0 and w.parts.unit[w.e.part[ordered], odd].any():
        _order_odd(needs, ordered, odd)
    return ordered


def _order_odd(needs: Needs, ordered: NDArray[np.int64], odd: int) -> None:
    """Rows that differ in odd names by those names: kernels compare them by numbers, since they get nothing."""
    w = needs.current
    same = np.ones(len(ordered), bool)
    for column in (w.e.cluster, w.e.arrival, w.e.prof, w.e.group):
        same[1:] &= column[ordered[1:]] == column[ordered[:-1]]
    firsts = np.append(np.nonzero(~same[1:])[0] + 1, len(ordered)).tolist()
    asks = w.parts.unit[w.e.part[ordered], odd] != 0
    begun = 0
    for end in firsts:
        if end - begun > 1 and asks[begun:end].any():
            units = {e: needs.amounts(w.parts.unit[int(w.e.part[e])]) for e in ordered[begun:end].tolist()}
            # The last name in text order decides first, and who names more of it comes first.
            last_first = {
                e: sorted(((n.encode(), a) for n, a in unit.items()), reverse=True) for e, unit in units.items()
            }
            ordered[begun:end] = sorted(last_first, key=last_first.__getitem__, reverse=True)
        begun = end
