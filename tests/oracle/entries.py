"""Entries: plain rows, strict-spread rows and gangs in processing order, after folding the gangs one machine can hold.

Written from docs/engine.md §2, second half.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from bigfleet.engine.results import NeedKey
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from tests.oracle.demand import Amounts, Demand, Row, added, covers, vector
from tests.oracle.judging import bucket_dollars, same_key
from tests.oracle.supply import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    HOSTNAME,
    IDLE,
    SAME,
    SPECULATIVE,
    Unit,
)

if TYPE_CHECKING:
    from bigfleet.model.spread import Spread


@dataclass(eq=False)
class Part:
    """What is still missing of one row."""

    row: Row
    remaining: Amounts

    @property
    def done(self) -> bool:
        return not any(self.remaining.values())


@dataclass(eq=False)
class Entry:
    """One thing to serve, and everything that happened to it in this step."""

    cluster: str
    profile: Profile
    group: str
    gang: bool
    parts: list[Part]
    arrival: int
    creating_stamps: set[tuple[str, str]]
    overhead: Amounts
    parked: bool = False

    credited: list[Unit] = field(default_factory=list)
    bootstraps: list[Unit] = field(default_factory=list)
    provisions: list[Unit] = field(default_factory=list)
    drains: list[Unit] = field(default_factory=list)
    victims: list[Unit] = field(default_factory=list)
    domain: str | None = None
    satisfiable: bool = False
    candidates: tuple[object, ...] = ()
    universe: set[str] = field(default_factory=set)
    deficit: Amounts = field(default_factory=dict)
    satisfied: bool = False

    @property
    def key(self) -> NeedKey:
        unit = "" if self.gang else vector(self.parts[0].row.min_unit).canonical
        return NeedKey(self.cluster, self.profile.fingerprint, self.group, unit)

    @property
    def aggregate(self) -> Amounts:
        return total([part.row.aggregate for part in self.parts])

    @property
    def remaining(self) -> Amounts:
        return total([part.remaining for part in self.parts])

    @property
    def done(self) -> bool:
        return all(part.done for part in self.parts)

    @property
    def interruption(self) -> float:
        return bucket_dollars(self.profile.interruption_bucket)

    @property
    def reclamation(self) -> float:
        return bucket_dollars(self.profile.reclamation_bucket)

    @property
    def spread(self) -> Spread | None:
        """The strict spread in force, if any."""
        if self.gang:
            return None
        strict = [s for s in self.profile.spread if s.when == 1 and s.topology_key != HOSTNAME]
        return strict[0] if strict else None

    def effective(self, unit: Unit) -> Amounts:
        return effective(unit, self.overhead)

    def eligible(self, unit: Unit) -> bool:
        """Matches the entry and fits one of its parts."""
        if not unit.matches(self.profile):
            return False
        if self.spread and unit.lookup(self.spread.topology_key) is None:
            return False
        have = self.effective(unit)
        return any(covers(have, part.row.min_unit) for part in self.parts)

    def domain_of(self, unit: Unit) -> str:
        key = self.profile.same.key if self.gang else self.spread.topology_key  # type: ignore[union-attr]
        value = unit.lookup(key)
        assert value is not None
        return value


def total(vectors: list[Amounts]) -> Amounts:
    result: Amounts = {}
    for amounts in vectors:
        result = added(result, amounts)
    return result


def effective(unit: Unit, overhead: Amounts) -> Amounts:
    return {name: max(0, amount - overhead.get(name, 0)) for name, amount in unit.shape.allocatable.items()}


def entries_of(demand: Demand, machines: list[Unit]) -> list[Entry]:
    """Sums in force as entries; `in_order` gives the order they are served in."""
    plain: dict[NeedKey, Entry] = {}
    gangs: dict[tuple[str, str, str], Entry] = {}
    for name, cluster in demand.clusters.items():
        if cluster.reporting:
            continue
        for row in cluster.rows.values():
            if same_key(row.profile) is None:
                entry = _entry(name, row.profile, row.group, False, [row], cluster.overhead)
                plain[entry.key] = entry
                continue
            gang_key = (name, row.profile.fingerprint, row.group)
            if gang_key not in gangs:
                gangs[gang_key] = _entry(name, row.profile, row.group, True, [], cluster.overhead)
            gangs[gang_key].parts.append(Part(row, dict(row.aggregate)))
    whole = []
    for gang in gangs.values():
        gang.parts.sort(key=cmp_to_key(lambda a, b: compare_units(a.row.min_unit, b.row.min_unit)))
        gang.arrival = min(part.row.arrival for part in gang.parts)
        if _folds(gang, machines):
            _fold(gang, plain)
        else:
            whole.append(gang)
    return [*plain.values(), *whole]


def folded_profile(profile: Profile) -> Profile:
    """What Same asks of a single machine: to have the key, with one of the values if any are listed."""
    return Profile(
        [
            Requirement(r.key, Operator.IN if r.values else Operator.EXISTS, r.values) if r.operator == SAME else r
            for r in profile.requirements
        ],
        profile.spread,
        profile.priority,
        profile.interruption_bucket,
        profile.reclamation_bucket,
        profile.tolerations,
        profile.interruption_microdollars,
    )


def compare_units(left: Amounts, right: Amounts) -> int:
    """Larger first, looking at resource names from the last to the first."""
    for name in sorted({*left, *right}, reverse=True):
        if left.get(name, 0) != right.get(name, 0):
            return -1 if left.get(name, 0) > right.get(name, 0) else 1
    return 0


def _entry(cluster: str, profile: Profile, group: str, gang: bool, rows: list[Row], overhead: Amounts) -> Entry:
    return Entry(
        cluster=cluster,
        profile=profile,
        group=group,
        gang=gang,
        parts=[Part(row, dict(row.aggregate)) for row in rows],
        arrival=rows[0].arrival if rows else 0,
        creating_stamps={(profile.fingerprint, group)},
        overhead=overhead,
    )


def in_order(entries: list[Any]) -> list[Any]:
    return sorted(entries, key=cmp_to_key(_order))


def _order(left: Any, right: Any) -> int:
    def sortable(entry: Any) -> tuple[object, ...]:
        profile = entry.profile
        return (
            -profile.priority,
            -profile.interruption_bucket,
            -profile.reclamation_bucket,
            entry.arrival,
            entry.cluster.encode(),
            profile.fingerprint.encode(),
            entry.group.encode(),
        )

    if sortable(left) != sortable(right):
        return -1 if sortable(left) < sortable(right) else 1
    return compare_units(left.parts[0].row.min_unit, right.parts[0].row.min_unit)


def _folds(gang: Entry, machines: list[Unit]) -> bool:
    stripped = folded_profile(gang.profile).fingerprint
    own_stamps = {(gang.profile.fingerprint, gang.group), (stripped, "")}
    whole = gang.aggregate
    holders = [u for u in machines if u.matches(gang.profile) and covers(gang.effective(u), whole)]
    for unit in holders:
        if unit.state in (CONFIGURED, CONFIGURING) and unit.cluster == gang.cluster:
            return True
        if (
            unit.state == CREATING
            and unit.cluster in (gang.cluster, "")
            and (unit.fingerprint, unit.group) in own_stamps
        ):
            return True
    return any(unit.state in (IDLE, SPECULATIVE) for unit in holders) and not _already_owned(gang, machines)


def _already_owned(gang: Entry, machines: list[Unit]) -> bool:
    assert gang.profile.same is not None
    if gang.profile.same.key == HOSTNAME:
        return False
    owned: dict[str, Amounts] = {}
    for unit in machines:
        if owns(gang, unit) and gang.eligible(unit):
            domain = gang.domain_of(unit)
            owned[domain] = added(owned.get(domain, {}), gang.effective(unit))
    return any(covers(have, gang.aggregate) for have in owned.values())


def owns(gang: Entry, unit: Unit) -> bool:
    """Whether the machine is marked as this gang's own."""
    if unit.state in (CONFIGURED, CONFIGURING):
        return unit.cluster == gang.cluster and gang.group != "" and unit.group == gang.group
    return (
        unit.state == CREATING
        and unit.cluster in (gang.cluster, "")
        and (unit.fingerprint, unit.group) == (gang.profile.fingerprint, gang.group)
    )


def _fold(gang: Entry, plain: dict[NeedKey, Entry]) -> None:
    row = Row(folded_profile(gang.profile), "", gang.aggregate, gang.aggregate, gang.arrival)
    folded = _entry(gang.cluster, row.profile, "", False, [row], gang.overhead)
    entry = plain.setdefault(folded.key, folded)
    if entry is not folded:
        # The rows of the demand table stay as they are: a step must not write into what the next one reads.
        merged = Row(
            row.profile,
            "",
            row.min_unit,
            added(entry.parts[0].row.aggregate, row.aggregate),
            min(entry.arrival, row.arrival),
        )
        entry.parts = [Part(merged, dict(merged.aggregate))]
        entry.arrival = merged.arrival
    entry.creating_stamps.add((gang.profile.fingerprint, gang.group))
