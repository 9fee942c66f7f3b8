"""The rebalancer: which machines should change shards now. Pure: tables and reports in, moves out.

Demand pulls, nothing is pushed: (1) idle machines, (2) speculative slots, (3) drains on other shards, each only for
what the one before left over. A machine is asked for only if units fit on it, never more machines than the missing
units need, and never for demand that is bound to one domain. Which machines exactly is the donor's choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.records import Phase, Selector, Shape, Transfer
from bigfleet.coordinator.core.reports import Deficit, Kind, Standing
from bigfleet.coordinator.core.supply import (
    Offer,
    Supply,
    allows,
    carries,
    judged_whole,
    key_of_shape,
    machines_for,
    shape_key,
    shape_of,
)
from bigfleet.coordinator.core.tables import Tables
from bigfleet.model.names import INSTANCE_TYPE_LABEL
from bigfleet.model.resources import Resources

MOST_MACHINES = 50
MOST_DRAINS = 16
LOOKED_AT_ONCE = 50


class Drain(Struct, frozen=True):
    """Ask a donor to drain machines of lower priority; they are transferred once they are idle."""

    id: str
    donor: int
    recipient: int
    shape: Shape
    selector: Selector
    priority: int
    bucket: int
    # Units that are missing, or of demand without units the sum; the donor takes no more machines than they need.
    units: int
    missing: Resources = Resources.ZERO
    provider: str = ""


class Rest(NamedTuple):
    """A donor that is not asked for a while, because it had nothing for this demand or failed."""

    donor: int
    recipient: int
    shape: tuple[str, str]
    tier: int


class Plan(NamedTuple):
    transfers: list[Transfer]
    drains: list[Drain]


class Wanted(NamedTuple):
    """One folded deficit of one shard and what of it nothing covers yet."""

    recipient: int
    deficit: Deficit
    units: int


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


class Planning:
    """One look, in steps: a fleet of thousands of shards takes longer than callers can be kept waiting.

    Between two steps the tables may change; what was planned on an older view is refused when it is proposed.
    """

    def __init__(
        self,
        tables: Tables,
        standings: Mapping[int, Standing],
        policy: Policy,
        now: int,
        *,
        resting: Collection[Rest] = (),
        draining: Collection[tuple[int, tuple[str, str]]] = (),
    ) -> None:
        self._standings = {shard: standings[shard] for shard in standings if shard in tables.generations}
        self._names = {shard: tables.generations[shard].id for shard in self._standings}
        self._regions = {name: provider.region for name, provider in tables.providers.items()}
        self._policy = policy
        self._resting = resting
        self._draining = draining
        self._folded: dict[int, list[Deficit]] = {}
        self._wanted: list[Wanted] = []
        self._supply = Supply(tables, policy, now)
        self._sizes: dict[str, Resources] = {}
        self._coming = _coming(tables, self._standings, policy, now)
        self._unused = _unused(tables, self._standings, policy, now)
        self._victims: dict[str, list[tuple[int, str, int]]] | None = None
        self._preemptible: dict[tuple[str, str], list[tuple[str, int]]] = {}
        self._answered = _drains_answered(tables)
        self.plan = Plan([], [])

    def steps(self) -> Iterator[None]:
        """Run it; each step is short."""
        for shard in sorted(self._standings):
            self._look_at(shard)
            yield
        self._supply.close()
        hopeful = []
        for number, wanted in enumerate(self._wanted):
            if self._may_be_helped(wanted):
                hopeful.append(wanted)
            if number % LOOKED_AT_ONCE == 0:
                yield
        self._wanted = sorted(hopeful, key=self._precedence)
        for wanted in self._wanted:
            if len(self.plan.transfers) + len(self.plan.drains) >= self._policy.max_moves:
                return
            self._serve(wanted)
            yield

    def _look_at(self, shard: int) -> None:
        standing = self._standings[shard]
        self._supply.add(shard, standing)
        for cell in standing.cells:
            self._sizes[cell.kind.instance_type] = cell.kind.allocatable
        self._folded[shard] = fold(standing.deficits)
        for each in self._folded[shard]:
            units = (each.units or 1) - self._coming.get((shard, shape_key(each)), 0)
            if units > 0 and each.age >= self._policy.after and not each.stays:
                self._wanted.append(Wanted(shard, each, units))

    def _may_be_helped(self, wanted: Wanted) -> bool:
        """Most of a fleet's shortfalls fit on nobody's machines; sorting them would be work for nothing."""
        if self._policy.preempt and wanted.deficit.age >= self._policy.preempt_after:
            return True
        return self._supply.serves(wanted.deficit)

    def _precedence(self, wanted: Wanted) -> tuple[int, int, str, str, str]:
        deficit = wanted.deficit
        return -deficit.priority, -deficit.age, self._names[wanted.recipient], *shape_key(deficit)

    def _serve(self, wanted: Wanted) -> None:
        left = self._draw(wanted, wanted.units, speculative=False)
        if left > 0 and self._policy.slots:
            left = self._draw(wanted, left, speculative=True)
        old_enough = wanted.deficit.age >= self._policy.preempt_after
        if left == wanted.units and old_enough and self._policy.preempt:
            self._preempt(wanted)

    def _draw(self, wanted: Wanted, units: int, *, speculative: bool) -> int:
        """Ask donors for free machines; what is still missing afterwards."""
        shape, tier = shape_key(wanted.deficit), 2 if speculative else 1
        for kind, carried in self._supply.fitting(wanted.deficit, units, speculative=speculative):
            if not self._reaches(wanted.recipient, kind):
                continue
            units -= self._has_itself(wanted, kind, carried, units)
            for offer in self._supply.kinds[kind]:
                if units < self._policy.min_units or units <= 0:
                    return units
                if not offer.count or Rest(offer.donor, wanted.recipient, shape, tier) in self._resting:
                    continue
                if offer.donor == wanted.recipient or self._needs_itself(offer.donor, kind, wanted.deficit.priority):
                    continue
                units -= self._ask(wanted, kind, carried, offer, units)
        return units

    def _has_itself(self, wanted: Wanted, kind: Kind, carried: int, units: int) -> int:
        """Units that free machines of the very kind at the recipient would hold: one that does not use its own, because
        it is paused or the cluster is away, would not use others' either, and would be given all there are."""
        unused = self._unused.get((wanted.recipient, kind), 0)
        if not unused or not judged_whole(wanted.deficit):
            return 0
        needed = machines_for(wanted.deficit, units, carried, kind.allocatable)
        counted = bool(wanted.deficit.units)
        # Demand without units is one claim, answered whole or not at all.
        used = min(unused, needed) if counted or unused >= needed else 0
        self._unused[wanted.recipient, kind] = unused - used
        return min(units, used * carried) if counted else units * bool(used)

    def _ask(self, wanted: Wanted, kind: Kind, carried: int, offer: Offer, units: int) -> int:
        needed = machines_for(wanted.deficit, units, carried, kind.allocatable)
        count = min(needed, offer.count, MOST_MACHINES)
        if count <= 0:
            return 0
        offer.count -= count
        # Demand without units is one claim: whoever answers it first answers all of it.
        covered = count * carried if wanted.deficit.units else 1
        self.plan.transfers.append(
            Transfer(
                id="",
                phase=Phase.PROPOSED,
                donor=offer.donor,
                recipient=wanted.recipient,
                provider=kind.provider,
                region=self._regions.get(kind.provider, ""),
                speculative=kind.speculative,
                selector=Selector(kind.instance_type, kind.zone, count),
                shape=shape_of(wanted.deficit),
                priority=wanted.deficit.priority,
                units=min(covered, units),
            )
        )
        return covered

    def _preempt(self, wanted: Wanted) -> None:
        """Ask one donor to drain, the one with most machines that could serve."""
        shape = shape_key(wanted.deficit)
        if (wanted.recipient, shape) in self._draining:
            return
        candidates = []
        for instance_type, carried in self._types_for(wanted.deficit):
            for bound, name, donor in self._bound_of(instance_type):
                rests = Rest(donor, wanted.recipient, shape, 3) in self._resting
                if donor != wanted.recipient and not rests and not self._supply.cools(donor, instance_type):
                    candidates.append((bound, name, instance_type, donor, carried))
                    break
        if not candidates:
            return
        _, _, instance_type, donor, carried = min(candidates)
        counted = bool(wanted.deficit.units)
        # Nobody but the donor may know how large its machines are, so it has the last word on how many.
        count = min(-(-wanted.units // carried), MOST_DRAINS) if counted else MOST_DRAINS
        self.plan.drains.append(
            Drain(
                id=self._drain_id(donor, wanted.recipient, shape),
                donor=donor,
                recipient=wanted.recipient,
                shape=shape_of(wanted.deficit),
                selector=Selector(instance_type, "", count),
                priority=wanted.deficit.priority,
                bucket=wanted.deficit.bucket,
                units=self._drained_units(wanted, instance_type, count * carried),
                missing=Resources.ZERO if counted else wanted.deficit.resources,
                provider=_only(self._standings[donor].providers),
            )
        )

    def _drained_units(self, wanted: Wanted, instance_type: str, held: int) -> int:
        """What the machines that are asked for hold; all of it where nobody told their size, until they are there."""
        if not wanted.deficit.units:
            return 0
        return min(held, wanted.units) if instance_type in self._sizes else wanted.units

    def _types_for(self, deficit: Deficit) -> list[tuple[str, int]]:
        """(instance type, units one machine carries) of everything bound anywhere that could serve."""
        self._bound_of("")
        shape = shape_key(deficit)
        if shape not in self._preemptible:
            sized = ((each, self._carried(deficit, each)) for each in self._victims or ())
            self._preemptible[shape] = [
                (each, carried) for each, carried in sized if carried and allows(deficit, INSTANCE_TYPE_LABEL, each)
            ]
        return self._preemptible[shape]

    def _bound_of(self, instance_type: str) -> list[tuple[int, str, int]]:
        """(machines in use, negative; name; donor) of those who have any of a type, most first. Counted once."""
        if self._victims is None:
            self._victims = {}
            for donor, standing in self._standings.items():
                for each, bound in self._bound(standing):
                    if bound > 0:
                        self._victims.setdefault(each, []).append((-bound, self._names[donor], donor))
            for donors in self._victims.values():
                donors.sort()
        return self._victims.get(instance_type, [])

    def _bound(self, standing: Standing) -> list[tuple[str, int]]:
        free: dict[str, int] = {}
        for cell in standing.cells:
            free[cell.kind.instance_type] = free.get(cell.kind.instance_type, 0) + cell.count
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

    def _drain_id(self, donor: int, recipient: int, shape: tuple[str, str]) -> str:
        """The same for the same question: a new leader that asks again gets the same machines, not more."""
        digest = sha256(repr(shape).encode()).hexdigest()[:16]
        return f"drain/{donor}/{recipient}/{digest}/{self._answered.get((donor, recipient, shape), 0)}"


def _drains_answered(tables: Tables) -> dict[tuple[int, int, tuple[str, str]], int]:
    """The last revision at which a drain for this demand led to a transfer."""
    answered: dict[tuple[int, int, tuple[str, str]], int] = {}
    for each in tables.transfers.values():
        if each.drained:
            place = (each.donor, each.recipient, key_of_shape(each.shape))
            answered[place] = max(answered.get(place, 0), each.revision)
    return answered


def _unused(tables: Tables, standings: Mapping[int, Standing], policy: Policy, now: int) -> dict[tuple[int, Kind], int]:
    """Free machines of every shard by kind, without those that have just come: their demand is still being told."""
    came: dict[tuple[int, str, str, bool], int] = {}
    for each in tables.transfers.values():
        if each.phase is Phase.ADOPTED and not _counted(each, standings.get(each.recipient), policy, now):
            place = (each.recipient, each.selector.instance_type, each.selector.zone, each.speculative)
            came[place] = came.get(place, 0) + len(each.machines)
    unused: dict[tuple[int, Kind], int] = {}
    for shard, standing in standings.items():
        for cell in standing.cells if standing.deficits else ():
            kind = cell.kind
            count = cell.count - came.get((shard, kind.instance_type, kind.zone, kind.speculative), 0)
            if count > 0:
                unused[shard, kind] = unused.get((shard, kind), 0) + count
    return unused


def _coming(
    tables: Tables, standings: Mapping[int, Standing], policy: Policy, now: int
) -> dict[tuple[int, tuple[str, str]], int]:
    """Units that transfers already bring and deficits do not count yet, per recipient and shape."""
    coming: dict[tuple[int, tuple[str, str]], int] = {}
    for each in tables.transfers.values():
        if each.phase is Phase.ADOPTED and _counted(each, standings.get(each.recipient), policy, now):
            continue
        asked = each.selector.count or len(each.machines) or 1
        units = each.units if each.phase is Phase.PROPOSED else -(-each.units * len(each.machines) // asked)
        place = (each.recipient, key_of_shape(each.shape))
        coming[place] = coming.get(place, 0) + units
    return coming


def _counted(transfer: Transfer, standing: Standing | None, policy: Policy, now: int) -> bool:
    """Whether the recipient's deficits know of adopted machines: as it says, or after a while."""
    if standing is None or standing.arriving is None:
        return transfer.adopted_at <= now - policy.settle
    return transfer.id not in standing.arriving


def _only(providers: frozenset[str]) -> str:
    return next(iter(providers)) if len(providers) == 1 else ""
