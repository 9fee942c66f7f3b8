"""The rebalancer: which machines should change shards now. Pure: tables and reports in, moves out.

Demand pulls, nothing is pushed: (1) idle machines, (2) speculative slots, (3) drains on other shards, each only for
what the one before left over. A machine is asked for only if units fit on it, never more machines than the missing
units need, and never for demand that is bound to one domain. Which machines exactly is the donor's choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.records import Phase, Selector, Shape, Transfer
from bigfleet.coordinator.core.reports import Deficit, Standing
from bigfleet.coordinator.core.supply import Kind, Offer, Supply, allows, carries, machines_for, shape_of
from bigfleet.coordinator.core.tables import Tables
from bigfleet.model.names import INSTANCE_TYPE_LABEL
from bigfleet.model.resources import Resources

MOST_MACHINES = 50
MOST_DRAINS = 16


class Drain(Struct, frozen=True):
    """Ask a donor to drain machines of lower priority; they are transferred once they are idle."""

    id: str
    donor: int
    recipient: int
    shape: Shape
    selector: Selector
    priority: int
    bucket: int
    units: int
    provider: str = ""


class Rest(NamedTuple):
    """A donor that is not asked for a while, because it had nothing for this demand or failed."""

    donor: int
    recipient: int
    shape: Shape
    tier: int


class Plan(NamedTuple):
    transfers: list[Transfer]
    drains: list[Drain]


class Wanted(NamedTuple):
    """One folded deficit of one shard and what of it nothing covers yet."""

    recipient: int
    deficit: Deficit
    units: int


def plan(
    tables: Tables,
    standings: Mapping[int, Standing],
    policy: Policy,
    now: int,
    *,
    resting: Collection[Rest] = (),
    draining: Collection[tuple[int, Shape]] = (),
) -> Plan:
    """What to do now. `standings` holds only shards that may take part; `draining` what already has a drain asked."""
    return _Planning(tables, standings, policy, now, resting, draining).made()


def fold(deficits: Collection[Deficit]) -> list[Deficit]:
    """One per profile and unit: units and sums added up, the oldest age."""
    folded: dict[tuple[str, str], Deficit] = {}
    for each in deficits:
        key = (each.fingerprint, each.min_unit.canonical)
        known = folded.get(key)
        if known is None:
            folded[key] = each
        else:
            folded[key] = replace(
                known,
                units=known.units + each.units,
                resources=known.resources + each.resources,
                age=max(known.age, each.age),
                constrained=known.constrained or each.constrained,
            )
    return list(folded.values())


class _Planning:
    def __init__(
        self,
        tables: Tables,
        standings: Mapping[int, Standing],
        policy: Policy,
        now: int,
        resting: Collection[Rest],
        draining: Collection[tuple[int, Shape]],
    ) -> None:
        self._tables = tables
        self._standings = standings
        self._policy = policy
        self._resting = resting
        self._draining = draining
        self._folded = {shard: fold(standing.deficits) for shard, standing in standings.items()}
        self._supply = Supply(tables, standings, policy, now)
        self._sizes = _sizes(standings)
        self._coming = _coming(tables, policy, now)
        self._plan = Plan([], [])

    def made(self) -> Plan:
        for wanted in self._wanted():
            if len(self._plan.transfers) + len(self._plan.drains) >= self._policy.max_moves:
                break
            self._serve(wanted)
        return self._plan

    def _wanted(self) -> list[Wanted]:
        found = []
        for shard, deficits in self._folded.items():
            for each in deficits:
                units = (each.units or 1) - self._coming.get((shard, shape_of(each)), 0)
                if units > 0 and each.age >= self._policy.after and not each.stays:
                    found.append(Wanted(shard, each, units))
        found.sort(
            key=lambda each: (
                -each.deficit.priority,
                -each.deficit.age,
                self._tables.generations[each.recipient].id,
                each.deficit.fingerprint,
                each.deficit.min_unit.canonical,
            )
        )
        return found

    def _serve(self, wanted: Wanted) -> None:
        left = self._draw(wanted, wanted.units, speculative=False)
        if left > 0 and self._policy.slots:
            left = self._draw(wanted, left, speculative=True)
        old_enough = wanted.deficit.age >= self._policy.preempt_after
        if left == wanted.units and old_enough and self._policy.preempt:
            self._preempt(wanted)

    def _draw(self, wanted: Wanted, units: int, *, speculative: bool) -> int:
        """Ask donors for free machines; what is still missing afterwards."""
        shape, tier = shape_of(wanted.deficit), 2 if speculative else 1
        for kind, carried in self._supply.fitting(wanted.deficit, units, speculative=speculative):
            if not self._reaches(wanted.recipient, kind):
                continue
            for offer in self._supply.kinds[kind]:
                if units < self._policy.min_units or units <= 0:
                    return units
                if not offer.count or Rest(offer.donor, wanted.recipient, shape, tier) in self._resting:
                    continue
                if offer.donor == wanted.recipient or self._needs_itself(offer.donor, kind, wanted.deficit.priority):
                    continue
                units -= self._ask(wanted, shape, kind, carried, offer, units)
        return units

    def _ask(self, wanted: Wanted, shape: Shape, kind: Kind, carried: int, offer: Offer, units: int) -> int:
        needed = machines_for(wanted.deficit, units, carried, kind.allocatable)
        count = min(needed, offer.count, MOST_MACHINES)
        if count <= 0:
            return 0
        offer.count -= count
        # Demand without units is one claim: whoever answers it first answers all of it.
        covered = count * carried if wanted.deficit.units else 1
        self._plan.transfers.append(
            Transfer(
                id="",
                phase=Phase.PROPOSED,
                donor=offer.donor,
                recipient=wanted.recipient,
                provider=kind.provider,
                region=self._region(kind.provider),
                speculative=kind.speculative,
                selector=Selector(kind.instance_type, kind.zone, count),
                shape=shape,
                priority=wanted.deficit.priority,
                units=min(covered, units),
            )
        )
        return covered

    def _preempt(self, wanted: Wanted) -> None:
        """Ask one donor to drain, the one with most machines that could serve."""
        shape = shape_of(wanted.deficit)
        if (wanted.recipient, shape) in self._draining:
            return
        candidates = []
        for donor, standing in self._standings.items():
            if donor == wanted.recipient or Rest(donor, wanted.recipient, shape, 3) in self._resting:
                continue
            for instance_type, bound in self._bound(standing):
                carried = self._carried(wanted.deficit, instance_type)
                if bound > 0 and carried and allows(wanted.deficit, INSTANCE_TYPE_LABEL, instance_type):
                    candidates.append((-bound, self._tables.generations[donor].id, instance_type, donor, carried))
        if not candidates:
            return
        _, _, instance_type, donor, carried = min(candidates)
        needed = -(-wanted.units // carried) if wanted.deficit.units else 1
        count = min(needed, MOST_DRAINS)
        self._plan.drains.append(
            Drain(
                id=self._drain_id(donor, wanted.recipient, shape),
                donor=donor,
                recipient=wanted.recipient,
                shape=shape,
                selector=Selector(instance_type, "", count),
                priority=wanted.deficit.priority,
                bucket=wanted.deficit.bucket,
                units=min(count * carried, wanted.units),
                provider=_only(self._standings[donor].providers),
            )
        )

    def _bound(self, standing: Standing) -> list[tuple[str, int]]:
        free: dict[str, int] = {}
        for cell in standing.cells:
            free[cell.instance_type] = free.get(cell.instance_type, 0) + cell.count
        return [(name, total - free.get(name, 0)) for name, total in standing.totals]

    def _carried(self, deficit: Deficit, instance_type: str) -> int:
        """Units a machine of this type holds; 1 when nobody has a free one to read its size from: the donor knows."""
        size = self._sizes.get(instance_type)
        return 1 if size is None else carries(deficit, size)

    def _needs_itself(self, donor: int, kind: Kind, priority: int) -> bool:
        """A donor keeps what demand of its own, no less important, waits for."""
        return any(
            each.priority >= priority
            and (each.units > 0 or not each.resources.is_zero)
            and carries(each, kind.allocatable)
            and allows(each, INSTANCE_TYPE_LABEL, kind.instance_type)
            for each in self._folded[donor]
        )

    def _reaches(self, recipient: int, kind: Kind) -> bool:
        """A shard can only run machines of providers it dials."""
        providers = self._standings[recipient].providers
        return not kind.provider or not providers or kind.provider in providers

    def _region(self, provider: str) -> str:
        known = self._tables.providers.get(provider)
        return known.region if known is not None else ""

    def _drain_id(self, donor: int, recipient: int, shape: Shape) -> str:
        """The same for the same question: a new leader that asks again gets the same machines, not more."""
        answered = max(
            (
                each.revision
                for each in self._tables.transfers.values()
                if each.drained and (each.donor, each.recipient, each.shape) == (donor, recipient, shape)
            ),
            default=0,
        )
        digest = sha256(repr(shape).encode()).hexdigest()[:16]
        return f"drain/{donor}/{recipient}/{digest}/{answered}"


def _coming(tables: Tables, policy: Policy, now: int) -> dict[tuple[int, Shape], int]:
    """Units that transfers already bring, per recipient and shape."""
    coming: dict[tuple[int, Shape], int] = {}
    for each in tables.transfers.values():
        if each.phase is Phase.ADOPTED and each.adopted_at <= now - policy.settle:
            continue
        asked = each.selector.count or len(each.machines) or 1
        units = each.units if each.phase is Phase.PROPOSED else -(-each.units * len(each.machines) // asked)
        coming[each.recipient, each.shape] = coming.get((each.recipient, each.shape), 0) + units
    return coming


def _sizes(standings: Mapping[int, Standing]) -> dict[str, Resources]:
    """What a machine of each type offers, as far as anybody has a free one."""
    return {cell.instance_type: cell.allocatable for standing in standings.values() for cell in standing.cells}


def _only(providers: frozenset[str]) -> str:
    return next(iter(providers)) if len(providers) == 1 else ""
