"""What a fresh `describe` changes: new machines, refreshed prices and labels, and what is no longer there.

A record the kit keeps always wins over the description for state, host and binding. Absence counts only when the
author says the description is complete, only for machines that did not change while it was made, and only the
second time: one short answer of a backend must not cost a fleet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bigfleet.model.machine import MachineState
from bigfleet.provider.kit.core.events import (
    Described,
    HostLost,
    InstanceSkipped,
    Instruction,
    SlotsWithdrawn,
    Surveyed,
)
from bigfleet.provider.kit.core.records import Instance, MachineRecord, Shape

if TYPE_CHECKING:
    from bigfleet.provider.kit.core.core import Lifecycle

ABSENCES_BELIEVED = 2
_RESTING_WITH_HOST = frozenset({MachineState.IDLE, MachineState.CONFIGURED})


def reconcile(core: Lifecycle, event: Described, now: float) -> list[Instruction]:
    """Apply one description; unfit instances are skipped and named."""
    told: dict[str, Instance] = {}
    out: list[Instruction] = []
    for instance in event.instances:
        if instance.id in told:
            out.append(InstanceSkipped(f"{instance.id}: id is described twice; every machine needs its own"))
        told.setdefault(instance.id, instance)
    if event.complete:
        out += missing(core, survey(event.instances, event.as_of), now)
    for instance in told.values():
        out += _one(core, instance, now)
    return out


def survey(instances: Iterable[Instance], as_of: int) -> Surveyed:
    """What a complete description says about presence alone."""
    hosted: dict[str, bool] = {}
    for instance in instances:
        hosted.setdefault(instance.id, instance.host is not None)
    return Surveyed(hosted, as_of)


def missing(core: Lifecycle, event: Surveyed, now: float) -> list[Instruction]:
    """Count absences, and let go of what was absent often enough."""
    out: list[Instruction] = []
    for record in list(core.machines.values()):
        if not _is_absent(record, event.hosted.get(record.id)) or record.revision > event.as_of:
            core.absences.pop(record.id, None)
            continue
        core.absences[record.id] = core.absences.get(record.id, 0) + 1
        if core.absences[record.id] < ABSENCES_BELIEVED:
            continue
        if record.state == MachineState.SPECULATIVE:
            out += core.handle(SlotsWithdrawn((record.id,)), now)
        else:
            out += core.handle(HostLost(record.id, "no longer described by the backend"), now)
    return out


def _one(core: Lifecycle, instance: Instance, now: float) -> list[Instruction]:
    problem = instance.problem(require_zone=core.rules.require_zone)
    record = core.get(instance.id)
    if problem is None and record is not None and record.capacity_type != instance.capacity_type:
        was, told = record.capacity_type.name, instance.capacity_type.name
        problem = f"{instance.id}: capacity_type changed from {was} to {told}; publish it under a new id"
    if problem is not None:
        return [InstanceSkipped(problem)]
    if record is None:
        return [] if core.held(instance.id) else [core.add(instance, now)]
    shape = _refreshed(record, instance)
    return [] if shape == record.shape else [core.reshape(record, shape, now)]


def _refreshed(record: MachineRecord, instance: Instance) -> Shape:
    told, known = instance.shape(), record.shape
    shape = replace(told, instance_type=known.instance_type, zone=known.zone)
    if (record.host is None) != (instance.host is None):
        # The description speaks of the slot, the record of its host: what Create measured stays.
        shape = replace(shape, resources=known.resources, allocatable=known.allocatable)
    return shape


def _is_absent(record: MachineRecord, hosted: bool | None) -> bool:
    if record.state in _RESTING_WITH_HOST:
        return not hosted
    return record.state == MachineState.SPECULATIVE and hosted is None
