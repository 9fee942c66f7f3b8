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
class Row:
    """One row of demand, or one part of a gang."""

    profile: Profile
    group: str
    min_unit: Amounts
    aggregate: Amounts
    arrival: int

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
        for rollup in batch.rollups:
            cluster = self.clusters.setdefault(rollup.cluster, Cluster())
            outcomes[rollup.cluster] = _receive(cluster, rollup, policy.guard, now, rejected)
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
            return RollupOutcome.HELD
    for key, row in rows.items():
        if key in cluster.rows:
            row.arrival = cluster.rows[key].arrival
    cluster.rows = rows
    cluster.overhead = dict(rollup.overhead.items())
    cluster.applied_once = True
    cluster.baseline_rows, cluster.baseline_volume = len(rows), volume
    cluster.suspicious = 0
    return RollupOutcome.APPLIED


def _suspicious(cluster: Cluster, rows: int, volume: Amounts, guard: RollupGuard) -> bool:
    if cluster.baseline_rows < guard.min_rows:
        return False
    if rows < guard.retain_fraction * cluster.baseline_rows:
        return True
    wanted = {name: amount for name, amount in cluster.baseline_volume.items() if amount > 0}
    return bool(wanted) and all(volume.get(name, 0) < guard.retain_fraction * amount for name, amount in wanted.items())


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
        if row.key in merged:
            row.aggregate = added(merged[row.key].aggregate, row.aggregate)
        merged[row.key] = row
    for key, row in list(merged.items()):
        if any(amount > LIMIT for amount in row.aggregate.values()):
            rejected["range"] = rejected.get("range", 0) + 1
            del merged[key]
    return merged


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}
