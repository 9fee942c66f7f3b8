"""Session frames between protobuf and the plain values of the operator's core, for every shell around it.

Rows and node reports have their own codec; frames that only show something are the shell's to read.
"""

from __future__ import annotations

from typing import assert_never

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.session import AckOutcome, DrainOutcome
from bigfleet.operator.core import frames
from bigfleet.wire import shard_pb2

_ACK = shard_pb2.Acknowledgement
_ACK_OUTCOMES = {
    _ACK.OUTCOME_APPLIED: AckOutcome.APPLIED,
    _ACK.OUTCOME_HELD: AckOutcome.HELD,
    _ACK.OUTCOME_REJECTED: AckOutcome.REJECTED,
}
_DRAIN_OUTCOMES = {
    DrainOutcome.DRAINED: shard_pb2.DrainReport.OUTCOME_DRAINED,
    DrainOutcome.GRACE_EXPIRED: shard_pb2.DrainReport.OUTCOME_GRACE_EXPIRED,
    DrainOutcome.CANCELLED: shard_pb2.DrainReport.OUTCOME_CANCELLED,
    DrainOutcome.FAILED: shard_pb2.DrainReport.OUTCOME_FAILED,
    DrainOutcome.REFUSED: shard_pb2.DrainReport.OUTCOME_REFUSED,
}
_OPERATORS = {int(operator): operator for operator in Operator}


def received(message: shard_pb2.ShardMessage) -> frames.FromShard | None:
    """What the session has to act on; None for everything else, also for what a newer shard may say."""
    match message.WhichOneof("payload"):
        case "ack":
            return _acknowledgement(message.ack)
        case "bootstrap_request":
            return _bootstrap_request(message.bootstrap_request)
        case "reclaim_instruction":
            order = message.reclaim_instruction
            return frames.ReclaimInstruction(
                instruction_id=order.instruction_id,
                machines=tuple(order.nodes),
                grace_seconds=order.grace_period_seconds,
                preemptor_priority=order.preemptor_priority,
                voluntary=order.voluntary,
                empty=order.empty,
                room_within_seconds=order.room_within_seconds,
            )
        case "reclaim_cancel":
            return frames.ReclaimCancel(message.reclaim_cancel.instruction_id)
        case "node_lost":
            return frames.NodeLost(message.node_lost.machine_id)
        case "node_closing":
            return frames.NodeClosing(message.node_closing.machine_id, message.node_closing.closing)
        case _:
            return None


def to_wire(frame: frames.ToShard) -> shard_pb2.OperatorMessage:
    match frame:
        case frames.Hello():
            hello = shard_pb2.Hello(
                cluster_id=frame.cluster,
                protocol_version=frame.protocol_version,
                capabilities=sorted(frame.capabilities),
                bound_shard_id=frame.bound_shard_id,
                active_drains=frame.active_drains,
            )
            return shard_pb2.OperatorMessage(hello=hello)
        case frames.BootstrapAnswer():
            answer = shard_pb2.BootstrapBlobResponse(
                request_id=frame.request_id,
                user_data=frame.user_data,
                ttl_seconds=frame.ttl_seconds,
                error=frame.error,
            )
            return shard_pb2.OperatorMessage(bootstrap_response=answer)
        case frames.ReclaimAck():
            ack = shard_pb2.ReclaimAck(instruction_id=frame.instruction_id, nodes_started=frame.nodes_started)
            return shard_pb2.OperatorMessage(reclaim_ack=ack)
        case frames.DrainReport():
            report = shard_pb2.DrainReport(
                instruction_id=frame.instruction_id,
                machine_id=frame.machine,
                outcome=_DRAIN_OUTCOMES[frame.outcome],
                error=frame.error,
            )
            return shard_pb2.OperatorMessage(drain_report=report)
        case _:
            assert_never(frame)


def _acknowledgement(ack: shard_pb2.Acknowledgement) -> frames.FromShard | None:
    if ack.echo == "hello":
        return frames.HelloAck()
    if ack.echo != "rollup":
        return None
    outcome = _ACK_OUTCOMES.get(ack.outcome, AckOutcome.UNSAID)
    return frames.RollupAck(ack.rollup_timestamp, outcome, ack.reason)


def _bootstrap_request(request: shard_pb2.BootstrapRequest) -> frames.BootstrapRequest:
    return frames.BootstrapRequest(
        request_id=request.request_id,
        machine=request.machine_id,
        node_name=request.node_name,
        requirements=tuple(
            Requirement(each.key, _OPERATORS.get(each.operator, Operator.UNSPECIFIED), tuple(each.values))
            for each in request.requirements
        ),
        labels=tuple(sorted(request.labels.items())),
    )
