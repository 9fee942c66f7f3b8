"""The oracle's demand: what every cluster asked for last, whether it may be believed, and who is connected.

Written from docs/engine.md §2, first half. Amounts are plain dicts so that nothing here depends on vector code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bigfleet.engine.results import RollupOutcome
from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigfleet.engine.batches import DemandBatch, Rollup
    from bigfleet.engine.placement import Counted
    from bigfleet.engine.policy import Policy, RollupGuard
    from bigfleet.model.profile import Profile

Amounts = dict[str, int]
LIMIT = 2**52


def vector(amounts: Amounts) -> Resources:
    """A value for results; sums of rows may pass what one row may ask for."""
    return Resources({name: amount for name, amount in amounts.items() if amount > 0}, limit=2**62)


def added(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in sorted({*left, *right})}


def covers(have: Amounts, want: Amounts) -> bool:
    return all(have.get(name, 0) >= amount for name, amount in want.items())


@dataclass(eq=False)
class Units:
    """A counted row's units and where they are."""

    count: int
    running: int
    stranded: int
    domains: Amounts
    tokens: frozenset[str]


@dataclass(eq=False)
class Row:
    """One row of demand, or one part of a gang; without `units` it is a sum."""

    profile: Profile
    group: str
    min_unit: Amounts
    aggregate: Amounts
    arrival: int
    units: Units | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.profile.fingerprint, self.group, vector(self.min_unit).canonical)


@dataclass(eq=False)
class Cluster:
    """Everything known about one cluster."""

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    overhead: Amounts = field(default_factory=dict)
    ready: bool = False
    connected: bool = False
    applied_once: bool = False
    baseline_rows: int = 0
    baseline_volume: Amounts = field(default_factory=dict)
    suspicious: int = 0
    suspicious_since: int = 0
    tokens: int | None = None
    tokens_at: int = 0
    reporting: bool = False
    mode_changed_at: int | None = None
    of_stream: bool = False
    seen_version: int | None = None
    seen_at: int = 0
    held_stranded: dict[tuple[str, str, str], int] | None = None
    passed_at: int | None = None

    def fresh(self, policy: Policy, now: int) -> bool:
        """Whether a roll-up of this session, young enough, says what the cluster lacks."""
        usable = self.reporting and self.connected and self.of_stream
        return usable and now - self.seen_at <= policy.placement.fresh_ns

    def mode_hold(self, policy: Policy, now: int) -> bool:
        return self.mode_changed_at is not None and now - self.mode_changed_at < policy.placement.mode_hold_ns

    def stranded(self, row: Row) -> int:
        """While a roll-up is held the smaller of both counts."""
        assert row.units is not None
        if self.held_stranded is None:
            return row.units.stranded
        return min(row.units.stranded, self.held_stranded.get(row.key, 0))


@dataclass(eq=False)
class Demand:
    clusters: dict[str, Cluster] = field(default_factory=dict)
    shortfall_since: dict[tuple[str, str, str, str], int] = field(default_factory=dict)
    parked_since: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def profiles(self) -> Iterator[Profile]:
        for cluster in self.clusters.values():
            for row in cluster.rows.values():
                yield row.profile

    def apply(self, batch: DemandBatch, policy: Policy, now: int, rejected: dict[str, int]) -> dict[str, RollupOutcome]:
        outcomes: dict[str, RollupOutcome] = {}
        for name in batch.forgotten:
            self._forget(name)
        for name in batch.streams:
            begun = self.clusters.setdefault(name, Cluster())
            begun.of_stream, begun.seen_version = False, None
        for rollup in batch.rollups:
            cluster = self.clusters.setdefault(rollup.cluster, Cluster())
            outcomes[rollup.cluster] = _receive(cluster, rollup, policy.guard, now, rejected)
        for name, version in batch.confirmed:
            known = self.clusters.get(name)
            if known and known.of_stream and not known.suspicious:
                known.seen_version, known.seen_at = version, now
        for name, connected in batch.links:
            self.clusters.setdefault(name, Cluster()).connected = connected
        return outcomes

    def _forget(self, name: str) -> None:
        self.clusters.pop(name, None)
        self.shortfall_since = {key: since for key, since in self.shortfall_since.items() if key[0] != name}
        self.parked_since = {key: since for key, since in self.parked_since.items() if key[0] != name}


def _receive(cluster: Cluster, rollup: Rollup, guard: RollupGuard, now: int, rejected: dict[str, int]) -> RollupOutcome:
    cluster.ready = cluster.connected = True
    rows = _read_rows(rollup, now, rejected)
    volume: Amounts = {}
    for row in rows.values():
        volume = added(volume, row.aggregate)
    if guard.enabled and cluster.applied_once and _suspicious(cluster, len(rows), volume, guard):
        if cluster.suspicious == 0:
            cluster.suspicious_since = now
        cluster.suspicious += 1
        long_enough = now - cluster.suspicious_since >= guard.min_duration_ns
        if cluster.suspicious < guard.consecutive or not long_enough:
            cluster.held_stranded = {key: row.units.stranded if row.units else 0 for key, row in rows.items()}
            return RollupOutcome.HELD
    for key, row in rows.items():
        before = [old for old in cluster.rows.values() if old.key == key or (row.units and old.key[:2] == key[:2])]
        row.arrival = min((old.arrival for old in before), default=now)
    _note_mode(cluster, rollup, now)
    cluster.rows = rows
    cluster.overhead = dict(rollup.overhead.items())
    cluster.applied_once = True
    cluster.baseline_rows, cluster.baseline_volume = len(rows), volume
    cluster.suspicious = 0
    return RollupOutcome.APPLIED


def _note_mode(cluster: Cluster, rollup: Rollup, now: int) -> None:
    reporting = rollup.counted is not None
    if cluster.applied_once and reporting != cluster.reporting:
        cluster.mode_changed_at = now
    cluster.reporting = reporting
    cluster.of_stream, cluster.seen_at, cluster.held_stranded = True, now, None
    cluster.seen_version = rollup.counted.mirror_version if rollup.counted is not None else None


def _suspicious(cluster: Cluster, rows: int, volume: Amounts, guard: RollupGuard) -> bool:
    if cluster.baseline_rows >= guard.min_rows and rows < guard.retain_fraction * cluster.baseline_rows:
        return True
    for name, amount in cluster.baseline_volume.items():
        bytewise = name in ("memory", "storage", "ephemeral-storage") or name.startswith("hugepages-")
        one = 4 * 2**20 if bytewise else 1000 if name == "cpu" else 1
        if amount >= guard.min_amount * one and volume.get(name, 0) < guard.retain_fraction * amount:
            return True
    return False


def _read_rows(rollup: Rollup, now: int, rejected: dict[str, int]) -> dict[tuple[str, str, str], Row]:
    merged: dict[tuple[str, str, str], Row] = {}
    for index in range(len(rollup)):
        aggregate = {name: int(rollup.aggregate[index, d]) for d, name in enumerate(rollup.resources)}
        min_unit = {name: int(rollup.min_unit[index, d]) for d, name in enumerate(rollup.resources)}
        if any(not 0 <= amount <= LIMIT for amount in (*aggregate.values(), *min_unit.values())):
            rejected["range"] = rejected.get("range", 0) + 1
            continue
        group = rollup.groups[rollup.group[index]] if rollup.group[index] >= 0 else ""
        row = Row(rollup.profiles[rollup.profile[index]], group, _positive(min_unit), _positive(aggregate), now)
        if rollup.counted is not None:
            row.units = _units(rollup.counted, index)
            if not _sound(row):
                rejected["count"] = rejected.get("count", 0) + 1
                continue
        if row.key in merged:
            row.aggregate = added(merged[row.key].aggregate, row.aggregate)
            row.units = _joined(merged[row.key].units, row.units)
        merged[row.key] = row
    for key, row in list(merged.items()):
        if any(amount > LIMIT for amount in row.aggregate.values()):
            rejected["range"] = rejected.get("range", 0) + 1
            del merged[key]
    return merged


def _units(counted: Counted, index: int) -> Units:
    return Units(
        count=int(counted.count[index]),
        running=int(counted.running[index]),
        stranded=int(counted.stranded[index]),
        domains=dict(counted.domain_units.get(index, ())),
        tokens=frozenset(counted.exclusive.get(index, ())),
    )


def _sound(row: Row) -> bool:
    units = row.units
    assert units is not None
    return (
        units.count >= 1
        and units.running >= 0
        and units.stranded >= 0
        and units.running + units.stranded <= units.count
        and bool(row.min_unit)
        and row.aggregate == {name: amount * units.count for name, amount in row.min_unit.items()}
        and all(there >= 0 for there in units.domains.values())
    )


def _joined(left: Units | None, right: Units | None) -> Units | None:
    if left is None or right is None:
        return None
    return Units(
        left.count + right.count,
        left.running + right.running,
        left.stranded + right.stranded,
        added(left.domains, right.domains),
        left.tokens | right.tokens,
    )


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}
