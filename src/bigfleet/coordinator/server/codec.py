"""Between the wire and the core: reports read, standings read when planning, instructions and tables written."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bigfleet.coordinator.core.planner import Drain
from bigfleet.coordinator.core.policy import SECOND
from bigfleet.coordinator.core.records import Domain, Selector, Shape, Transfer, Withdrawn
from bigfleet.coordinator.core.reports import (
    ARRIVALS,
    Ack,
    Cell,
    Deficit,
    Kind,
    Outcome,
    Report,
    ReportedCluster,
    Standing,
)
from bigfleet.model.quantity import QuantityError
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import ResourceError, Resources
from bigfleet.wire import capacity_pb2, coordinator_pb2, provider_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.coordinator.core.instructions import Instruction
    from bigfleet.coordinator.core.tables import Tables

# Ages of shards that report cycles only.
NOMINAL_CYCLE = 10 * SECOND
CACHED = 65_536
_OUTCOMES = {int(each): each for each in Outcome}
_OPERATORS = {int(each): each for each in Operator}


def report_of(message: coordinator_pb2.ShardReport) -> Report:
    """The light half."""
    return Report(
        shard=message.shard_id,
        cycle=message.cycle,
        epoch=message.shard_epoch,
        address=message.shard_address,
        version=message.ownership_version,
        highest_term=message.highest_term,
        capabilities=frozenset(message.capabilities),
        acks=tuple(
            Ack(
                ack.instruction_id,
                _OUTCOMES.get(ack.outcome, Outcome.UNSPECIFIED),
                ack.reason,
                tuple(ack.machine_ids),
                ack.provider,
            )
            for ack in message.instruction_acks
        ),
        clusters=tuple(
            ReportedCluster(
                each.cluster_id,
                each.connected,
                each.bound_machines,
                each.claimed_shard_id,
                each.follows_referrals,
                each.reports_placement,
                each.evictions_left,
                each.closing_nodes,
            )
            for each in message.clusters
        ),
        relabelled=tuple((each.provider, each.machine_id, each.shard_id) for each in message.relabelled),
        looked=message.looked,
        unsure=message.unsure,
    )


def standing_of(message: coordinator_pb2.ShardReport) -> Standing:
    """The heavy half, of a message nobody else needs. What cannot be read is left out: it moves nothing."""
    summary = message.summary
    deficits = [deficit for each in message.shortfalls if (deficit := _deficit(each)) is not None]
    cells = [cell for each in summary.free_cells if (cell := _cell(each)) is not None]
    return Standing(
        deficits=tuple(deficits),
        cells=tuple(cells),
        totals=tuple(sorted(summary.per_instance_type_counts.items())),
        zones=tuple(sorted(summary.per_zone_counts.items())),
        providers=frozenset(message.providers),
        machines=summary.total_machines,
        arriving=frozenset(message.arriving) if ARRIVALS in message.capabilities else None,
    )


def instruction_to_wire(
    tables: Tables, term: int, sequence: int, instruction: Instruction
) -> coordinator_pb2.CoordinatorInstruction:
    made = coordinator_pb2.CoordinatorInstruction(
        coordinator_term=term, sequence_number=sequence, instruction_id=instruction.id
    )
    subject = instruction.subject
    payload = getattr(made, instruction.payload.value)
    if isinstance(subject, Domain | Withdrawn):
        payload.topology_key, payload.topology_value = subject.topology_key, subject.value
        return made
    payload.machine_ids.extend(subject.machines if isinstance(subject, Transfer) else ())
    payload.transfer_id = subject.id
    if not payload.machine_ids:
        payload.selector.CopyFrom(_selector(subject.selector, subject.shape, subject.provider))
    elif subject.provider:
        # Two providers may have machines of one id.
        payload.selector.provider = subject.provider
    if isinstance(subject, Drain):
        payload.preemptor_priority = subject.priority
        payload.preemptor_bucket = capacity_pb2.PenaltyBucket.ValueType(subject.bucket)
        payload.units = subject.units
        payload.missing.update(subject.missing.to_wire())
    elif not subject.speculative:
        payload.from_shard_id = tables.generations[subject.donor].id
        payload.to_shard_id = tables.generations[subject.recipient].id
    return made


def transfer_to_wire(tables: Tables, transfer: Transfer) -> coordinator_pb2.OwnershipTransfer:
    donor = tables.generations.get(transfer.donor)
    made = coordinator_pb2.OwnershipTransfer(
        transfer_id=transfer.id,
        phase=coordinator_pb2.OwnershipTransfer.Phase.ValueType(int(transfer.phase)),
        from_shard_id=donor.id if donor is not None else "",
        to_shard_id=tables.generations[transfer.recipient].id,
        provider=transfer.provider,
        machine_ids=transfer.machines,
    )
    if not transfer.machines:
        made.selector.CopyFrom(_selector(transfer.selector, transfer.shape, transfer.provider))
    return made


def _selector(selector: Selector, shape: Shape, provider: str) -> coordinator_pb2.MachineSelector:
    made = coordinator_pb2.MachineSelector(
        instance_type=selector.instance_type, zone=selector.zone, count=selector.count, provider=provider
    )
    made.min_unit.update(Resources(dict(shape.min_unit)).to_wire())
    for key, operator, values in shape.requirements:
        made.requirements.add(
            key=key, operator=capacity_pb2.NodeSelectorRequirement.Operator.ValueType(operator), values=values
        )
    return made


def _deficit(message: coordinator_pb2.Shortfall) -> Deficit | None:
    """All but its age is the same from report to report, so it is read once per text of bytes."""
    age = message.age_seconds * SECOND if message.fingerprint else message.age_cycles * NOMINAL_CYCLE
    message.age_seconds = message.age_cycles = 0
    known = _ageless(message.SerializeToString())
    return None if known is None else replace(known, age=age)


@lru_cache(maxsize=CACHED)
def _ageless(raw: bytes) -> Deficit | None:
    message = coordinator_pb2.Shortfall.FromString(raw)
    units = message.units - message.coming if message.units else 0
    unit, resources = _resources(message.min_unit, True), _resources(message.deficit.resources, True)
    if unit is None or resources is None or (message.units and units <= 0):
        return None
    return Deficit(
        fingerprint=message.fingerprint,
        requirements=tuple(
            Requirement(each.key, _OPERATORS.get(each.operator, Operator.UNSPECIFIED), tuple(each.values))
            for each in message.requirements
        ),
        min_unit=unit,
        units=units,
        resources=resources,
        priority=message.priority,
        bucket=message.interruption_penalty_bucket,
        constrained=message.topology_constrained,
    )


def _cell(message: coordinator_pb2.FreeCell) -> Cell | None:
    count = message.count
    message.count = 0
    kind = _kind(message.SerializeToString())
    return None if kind is None or count <= 0 else Cell(kind, count)


@lru_cache(maxsize=CACHED)
def _kind(raw: bytes) -> Kind | None:
    """Thousands of reports name the same kinds."""
    message = coordinator_pb2.FreeCell.FromString(raw)
    allocatable = _resources(message.allocatable, False)
    if allocatable is None:
        return None
    return Kind(
        instance_type=message.instance_type,
        zone=message.zone,
        speculative=message.state == provider_pb2.MACHINE_STATE_SPECULATIVE,
        allocatable=allocatable,
        price=message.price_per_hour,
        probability=message.interruption_probability,
        provider=message.provider,
    )


def _resources(quantities: Mapping[str, str], round_up: bool) -> Resources | None:
    try:
        return Resources.parse(dict(quantities), round_up=round_up)
    except (QuantityError, ResourceError):
        return None
