"""What clusters say about their nodes, and what follows from it for a machine: when it was ready, whether it is seen.

Written from docs/engine.md P3 and P5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.supply import BOUND, CONFIGURED, CONFIGURING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.engine.placement import NodeBatch
    from tests.oracle.demand import Amounts, Demand
    from tests.oracle.supply import Unit

LIMIT = 2**52


@dataclass(frozen=True)
class Report:
    """One node as its cluster sees it; an empty `allocatable` says nothing about it."""

    ready: bool
    empty: bool
    removable: bool
    pinned: bool
    max_pod_priority: int
    used: Amounts
    allocatable: Amounts
    reclamation: float
    interruption: float
    closing_since: int
    mirror_version: int
    profiles: tuple[str, ...]
    groups: tuple[str, ...]
    tokens: frozenset[str]

    @property
    def closing(self) -> bool:
        return self.closing_since != 0


def forget_reports(machines: dict[str, Unit], clusters: Iterable[str]) -> None:
    gone = set(clusters)
    for unit in machines.values():
        if unit.cluster in gone:
            unit.report = unit.ready_since = unit.open_version = None


def receive_reports(machines: dict[str, Unit], batch: NodeBatch, now: int, rejected: dict[str, int]) -> None:
    for index in range(len(batch)):
        unit = machines.get(batch.ids[index])
        report = _report(batch, index)
        if unit is None or unit.cluster != batch.cluster or unit.state not in BOUND or not _sound(report):
            rejected["node"] = rejected.get("node", 0) + 1
            continue
        unit.report = report
        if report.ready and unit.ready_since is None:
            unit.ready_since = now
        if not report.ready or report.closing:
            unit.open_version = None
        elif unit.state in (CONFIGURING, CONFIGURED):
            before = report.mirror_version if unit.open_version is None else unit.open_version
            unit.open_version = min(before, report.mirror_version)


def is_counted_on(unit: Unit, demand: Demand) -> bool:
    """Whether the cluster's last roll-up already counts on this node."""
    cluster = demand.clusters.get(unit.cluster)
    if cluster is None or unit.open_version is None or cluster.seen_version is None:
        return False
    return cluster.reporting and cluster.seen_version >= unit.open_version


def is_seen(unit: Unit, demand: Demand) -> bool:
    return unit.state == CONFIGURED and is_counted_on(unit, demand)


def _report(batch: NodeBatch, index: int) -> Report:
    load = batch.loads[batch.load[index]]
    dollars = [_dollars(float(each[index])) for each in (batch.reclamation_dollars, batch.interruption_dollars)]
    return Report(
        ready=bool(batch.ready[index]),
        empty=bool(batch.empty[index]),
        removable=bool(batch.removable[index]),
        pinned=bool(batch.pinned[index]) or any(map(math.isinf, dollars)),
        max_pod_priority=int(batch.max_pod_priority[index]),
        used={name: int(batch.used[index, d]) for d, name in enumerate(batch.resources) if batch.used[index, d]},
        allocatable={
            name: int(batch.allocatable[index, d])
            for d, name in enumerate(batch.resources)
            if batch.allocatable[index, d]
        },
        reclamation=dollars[0],
        interruption=dollars[1],
        closing_since=int(batch.closing_since[index]),
        mirror_version=int(batch.mirror_version[index]),
        profiles=load.profiles,
        groups=load.groups,
        tokens=frozenset(load.exclusive),
    )


def _dollars(amount: float) -> float:
    return amount if amount > 0 else 0.0


def _sound(report: Report) -> bool:
    return all(0 <= amount <= LIMIT for amount in (*report.used.values(), *report.allocatable.values()))
