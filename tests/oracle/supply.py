"""The oracle's machines: plain objects, judged record by record and grouped into blocks anew in every step.

Written from docs/engine.md §1 alone; it must never import the engine's own modules beyond batches, results and policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.oracle.judging import matches, matters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.engine.batches import Breaker, MachineBatch, Shape
    from bigfleet.model.profile import Profile
    from tests.oracle.demand import Demand
    from tests.oracle.placement.reports import Report

HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
SPECULATIVE, CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED = range(1, 9)
BOUND = (CONFIGURING, CONFIGURED, DRAINING)
IN, NOT_IN, SAME = 1, 2, 5


@dataclass(eq=False)
class Unit:
    """One machine. The lower half is scratch of the current step."""

    id: str
    shape: Shape
    state: int
    cluster: str
    priority: int
    interruption: float
    reclamation: float
    fingerprint: str
    group: str
    not_before: int
    deadline: int = 0
    idle_since: int | None = None
    excess_since: int | None = None
    report: Report | None = None
    ready_since: int | None = None
    open_version: int | None = None
    empty_since: int | None = None

    klass: tuple[object, ...] = ()
    held: bool = False
    moving: bool = False
    reopened: bool = False
    judged: int = 0
    lies_empty: bool = False
    claimant: Any = None
    promised: Any = None
    preemptor: Any = None
    taker: Any = None

    def lookup(self, key: str) -> str | None:
        if key == HOSTNAME:
            return self.id
        if key == INSTANCE_TYPE and self.shape.instance_type:
            return self.shape.instance_type
        if key == ZONE and self.shape.zone:
            return self.shape.zone
        return dict(self.shape.labels).get(key)

    def matches(self, profile: Profile) -> bool:
        return matches(profile, self.lookup, self.shape.taints)


@dataclass(eq=False)
class Block:
    """The machines of one cell in id order; every order places them together, by the smallest id."""

    members: list[Unit] = field(default_factory=list)

    @property
    def head(self) -> Unit:
        return self.members[0]

    @property
    def first(self) -> str:
        return self.members[0].id


def ingest(machines: dict[str, Unit], batch: MachineBatch, now: int, rejected: dict[str, int]) -> None:
    """Applies a batch; a bad record is counted and leaves the machine as it was."""
    seen: set[str] = set()
    for index in range(len(batch)):
        fault = _fault(batch, index, seen)
        seen.add(batch.ids[index])
        if fault:
            rejected[fault] = rejected.get(fault, 0) + 1
        elif batch.state[index] == 0:
            machines.pop(batch.ids[index], None)
        else:
            unit = _unit(batch, index)
            _carry_over(machines.get(unit.id), unit, now)
            machines[unit.id] = unit


def _fault(batch: MachineBatch, index: int, seen: set[str]) -> str | None:
    machine, state = batch.ids[index], int(batch.state[index])
    shape = batch.shapes[batch.shape[index]] if state else None
    bound = bool(_cluster(batch, index))
    if shape and not (math.isfinite(shape.price) and shape.price >= 0):
        return "price"
    if shape and not 0 <= shape.probability <= 1:
        return "interruption_probability"
    if not machine:
        return "id"
    if machine in seen:
        return "duplicate"
    if state > FAILED:
        return "state"
    if (state in (CONFIGURED, DRAINING) and not bound) or (state in (SPECULATIVE, IDLE, DELETING) and bound):
        return "structural"
    if shape and len(shape.labels) > 256:
        return "labels"
    if shape and any(not 0 <= amount <= 2**40 for _, amount in shape.allocatable.items()):
        return "range"
    stamp = batch.stamps[batch.stamp[index]] if state and batch.stamp[index] >= 0 else None
    if stamp and not (
        -(2**31) <= stamp.priority < 2**31 and stamp.interruption_dollars >= 0 and stamp.reclamation_dollars >= 0
    ):
        return "range"
    return None


def _cluster(batch: MachineBatch, index: int) -> str:
    return batch.clusters[batch.cluster[index]] if batch.cluster[index] >= 0 else ""


def _unit(batch: MachineBatch, index: int) -> Unit:
    stamp = batch.stamps[batch.stamp[index]] if batch.stamp[index] >= 0 else None
    return Unit(
        id=batch.ids[index],
        shape=batch.shapes[batch.shape[index]],
        state=int(batch.state[index]),
        cluster=_cluster(batch, index),
        priority=stamp.priority if stamp else 0,
        interruption=_dollars(stamp.interruption_dollars) if stamp else 0.0,
        reclamation=_dollars(stamp.reclamation_dollars) if stamp else 0.0,
        fingerprint=stamp.fingerprint if stamp else "",
        group=stamp.group if stamp else "",
        not_before=int(batch.not_before[index]),
        deadline=int(batch.deadline[index]) if batch.deadline is not None else 0,
    )


def _dollars(amount: float) -> float:
    return amount if amount > 0 else 0.0


def _carry_over(before: Unit | None, unit: Unit, now: int) -> None:
    if unit.state == IDLE:
        unit.idle_since = before.idle_since if before and before.state == IDLE else now
    if before and before.state == unit.state == CONFIGURED and before.cluster == unit.cluster:
        unit.excess_since = before.excess_since
    if before and before.state in BOUND and unit.state in BOUND and before.cluster == unit.cluster:
        unit.report, unit.ready_since, unit.empty_since = before.report, before.ready_since, before.empty_since
        unit.open_version = None if unit.state == DRAINING else before.open_version


def begin_step(machines: dict[str, Unit], breakers: Iterable[Breaker], moving: set[str], now: int) -> None:
    """Clears the scratch of the last step and decides which machines may not be acquired now."""
    tripped = {(b.provider, b.instance_type, b.zone, b.capacity_type) for b in breakers if now < b.until}
    for unit in machines.values():
        shape = unit.shape
        offer = (shape.provider, shape.instance_type, shape.zone, shape.capacity_type)
        unit.moving = unit.id in moving
        unit.held = unit.moving or now < unit.not_before or (unit.state == SPECULATIVE and offer in tripped)
        unit.claimant = unit.promised = unit.preemptor = unit.taker = None
        unit.reopened = False


def blocks_of(machines: dict[str, Unit], demand: Demand) -> list[Block]:
    """All cells, members in id order."""
    keys, hosts = _live_keys(demand), _named_hosts(demand)
    cells: dict[tuple[object, ...], Block] = {}
    for _, unit in sorted(machines.items()):
        unit.klass = _class(unit, keys, hosts)
        cells.setdefault((unit.klass, *_cell(unit)), Block()).members.append(unit)
    return list(cells.values())


def classes_with_more(machines: dict[str, Unit], before: dict[str, Unit], demand: Demand) -> list[Unit]:
    """One machine of every class that has more Idle, more Speculative or more Draining machines than before, both by
    the classes of today."""
    keys, hosts = _live_keys(demand), _named_hosts(demand)
    counts: list[dict[tuple[object, ...], int]] = []
    heads: dict[tuple[object, ...], Unit] = {}
    for each in (before, machines):
        found: dict[tuple[object, ...], int] = {}
        for unit in each.values():
            if unit.state in (IDLE, SPECULATIVE, DRAINING):
                klass = _class(unit, keys, hosts)
                found[(klass, unit.state)] = found.get((klass, unit.state), 0) + 1
                heads[(klass, unit.state)] = unit
        counts.append(found)
    return [heads[key] for key, count in counts[1].items() if count > counts[0].get(key, 0)]


def _live_keys(demand: Demand) -> list[str]:
    keys: set[str] = set()
    for profile in demand.profiles():
        keys.update(requirement.key for requirement in profile.requirements)
        keys.update(spread.topology_key for spread in profile.spread)
    return sorted(keys - {HOSTNAME})


def _named_hosts(demand: Demand) -> set[str]:
    return {
        value
        for profile in demand.profiles()
        for requirement in profile.requirements
        if requirement.key == HOSTNAME and requirement.operator in (IN, NOT_IN, SAME)
        for value in requirement.values
    }


def _class(unit: Unit, keys: list[str], hosts: set[str]) -> tuple[object, ...]:
    shape = unit.shape
    return (
        shape.provider,
        shape.instance_type,
        shape.zone,
        shape.capacity_type,
        shape.price,
        shape.probability,
        shape.allocatable,
        frozenset(taint for taint in shape.taints if matters(taint)),
        tuple(unit.lookup(key) for key in keys),
        unit.id if unit.id in hosts else None,
    )


def _cell(unit: Unit) -> tuple[object, ...]:
    if unit.state in (CONFIGURED, CONFIGURING):
        return (unit.state, unit.cluster, unit.priority, unit.interruption, unit.reclamation, unit.group)
    if unit.state == CREATING:
        return (unit.state, unit.cluster, unit.fingerprint, unit.group)
    if unit.state == DRAINING:
        return (unit.state, unit.cluster)
    return (unit.state, unit.held)
