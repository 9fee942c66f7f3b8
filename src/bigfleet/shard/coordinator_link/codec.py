"""Between the wire and the core's contract: the coordinator's answers read, this shard's acknowledgements written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.model.quantity import QuantityError
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import ResourceError, Resources
from bigfleet.shard.contract import coordination as say
from bigfleet.wire import coordinator_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

_PHASES = {int(phase): phase for phase in say.Phase}
_OPERATORS = {int(each): each for each in Operator}


def answer_of(message: coordinator_pb2.ReportAck, told: Sequence[str]) -> say.CoordinatorAnswered:
    """The whole answer to a report that told of these instructions."""
    switches = None
    if message.HasField("rails"):
        rails = message.rails
        switches = say.Switches(rails.actuation_paused, rails.dry_run, rails.set_by, rails.reason)
    return say.CoordinatorAnswered(
        term=message.coordinator_term,
        told=tuple(told),
        table=_table(message) if message.HasField("ownership") else None,
        bindings=tuple(
            say.ClusterBinding(each.cluster_id, each.shard_id, each.shard_address) for each in message.bindings
        ),
        switches=switches,
        instructions=tuple(
            say.CoordinatorInstruction(each.instruction_id, each.coordinator_term, _known(each))
            for each in message.instructions
        ),
        look=message.look,
        sure=message.sure,
    )


def ack_to_wire(ack: say.Ack) -> coordinator_pb2.InstructAck:
    return coordinator_pb2.InstructAck(
        instruction_id=ack.instruction,
        outcome=coordinator_pb2.InstructAck.Outcome.ValueType(int(ack.outcome)),
        reason=ack.reason,
        machine_ids=ack.machines,
        provider=ack.provider,
    )


def _table(message: coordinator_pb2.ReportAck) -> say.OwnershipTable:
    table = message.ownership
    return say.OwnershipTable(
        term=table.coordinator_term or message.coordinator_term,
        version=table.version,
        default=table.default_shard_id,
        keys=tuple(table.keys),
        domains=tuple((each.topology_key, each.topology_value, each.shard_id) for each in table.domains),
        transfers=tuple(
            say.TableTransfer(
                each.transfer_id,
                _PHASES.get(each.phase, say.Phase.UNSPECIFIED),
                each.from_shard_id,
                each.to_shard_id,
                each.provider,
                tuple(each.machine_ids),
            )
            for each in table.transfers
        ),
        vouches=table.vouches,
        generation=table.generation,
    )


def _known(message: coordinator_pb2.CoordinatorInstruction) -> say.Payload | None:
    """None for a kind this version does not know or cannot judge: better no machine than a wrong one."""
    try:
        return _payload(message)
    except (QuantityError, ResourceError, KeyError):
        return None


def _payload(message: coordinator_pb2.CoordinatorInstruction) -> say.Payload | None:
    match message.WhichOneof("payload"):
        case "assign_domain":
            return say.AssignDomain(message.assign_domain.topology_key, message.assign_domain.topology_value)
        case "unassign_domain":
            return say.UnassignDomain(message.unassign_domain.topology_key, message.unassign_domain.topology_value)
        case "reassign_speculative":
            slots = message.reassign_speculative
            selector = _selector(slots.selector)
            return say.LetGo(slots.transfer_id, tuple(slots.machine_ids), selector, speculative=True)
        case "transfer_ownership":
            moved = message.transfer_ownership
            selector = _selector(moved.selector)
            machines = tuple(moved.machine_ids)
            return say.LetGo(moved.transfer_id, machines, selector, donor=moved.from_shard_id)
        case "cross_shard_drain":
            drained = message.cross_shard_drain
            selector = _selector(drained.selector)
            return say.DrainFor(
                drained.transfer_id or message.instruction_id,
                drained.preemptor_priority,
                drained.preemptor_bucket,
                tuple(drained.machine_ids),
                selector,
                drained.units,
                Resources.parse(dict(drained.missing), round_up=True),
            )
        case _:
            return None


def _selector(message: coordinator_pb2.MachineSelector) -> say.Selector:
    return say.Selector(
        message.count,
        message.instance_type,
        message.zone,
        message.provider,
        tuple(Requirement(each.key, _OPERATORS[each.operator], tuple(each.values)) for each in message.requirements),
        Resources.parse(dict(message.min_unit), round_up=True),
    )
