"""Session frames between protobuf and the plain values of `events`: the only place that knows both.

Decoding never raises on what an operator may send; it returns a value that says what is wrong. Roll-ups have their own
module, because they are read as bytes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from google.protobuf.message import DecodeError

from bigfleet.model.names import (
    available_supersedes_key,
    node_supersedes_key,
)
from bigfleet.model.quantity import QuantityError, to_units
from bigfleet.model.resources import ResourceError, Resources
from bigfleet.model.session import AckOutcome, DrainOutcome
from bigfleet.operator.need_codec import requirements_to_wire
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract import limits
from bigfleet.shard.streams.rollup_codec import RawRollup, raw_body, raw_rollup
from bigfleet.wire import provider_pb2, shard_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.engine.batches import Shape

_ACK = shard_pb2.Acknowledgement
_ACK_OUTCOMES = {
    AckOutcome.UNSAID: _ACK.OUTCOME_UNSPECIFIED,
    AckOutcome.APPLIED: _ACK.OUTCOME_APPLIED,
    AckOutcome.HELD: _ACK.OUTCOME_HELD,
    AckOutcome.REJECTED: _ACK.OUTCOME_REJECTED,
}
_DRAIN_OUTCOMES = {
    shard_pb2.DrainReport.OUTCOME_DRAINED: DrainOutcome.DRAINED,
    shard_pb2.DrainReport.OUTCOME_GRACE_EXPIRED: DrainOutcome.GRACE_EXPIRED,
    shard_pb2.DrainReport.OUTCOME_CANCELLED: DrainOutcome.CANCELLED,
    shard_pb2.DrainReport.OUTCOME_FAILED: DrainOutcome.FAILED,
    shard_pb2.DrainReport.OUTCOME_REFUSED: DrainOutcome.REFUSED,
}


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a stream, and a legal if useless later one."""

    cluster: str
    protocol_version: str
    capabilities: frozenset[str]
    bound_shard_id: str
    active_drains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that are no OperatorMessage at all."""

    problem: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message without a payload this shard knows: a newer peer, not an enemy."""


Received = (
    Hello | RawRollup | ev.BootstrapAnswered | ev.ReclaimAcked | ev.DrainReported | ev.NodeReported | Garbage | Unknown
)


def received(session: int, frame: bytes) -> Received:
    """What an operator sent."""
    rollup = raw_rollup(frame)
    if rollup is not None:
        return rollup
    try:
        message = shard_pb2.OperatorMessage.FromString(frame)
    except DecodeError as error:
        return Garbage(f"{len(frame)} bytes are not an OperatorMessage: {error}")
    kind = message.WhichOneof("payload")
    if kind == "hello":
        return hello(message.hello)
    if kind == "rollup":
        return raw_body(message.rollup.SerializeToString())
    if kind == "bootstrap_response":
        answer = message.bootstrap_response
        return ev.BootstrapAnswered(
            session, answer.request_id, answer.user_data, max(0, answer.ttl_seconds), answer.error
        )
    if kind == "reclaim_ack":
        return ev.ReclaimAcked(session, message.reclaim_ack.instruction_id, message.reclaim_ack.nodes_started)
    if kind == "drain_report":
        report = message.drain_report
        outcome = _DRAIN_OUTCOMES.get(report.outcome, DrainOutcome.FAILED)
        return ev.DrainReported(session, report.instruction_id, report.machine_id, outcome, report.error)
    if kind == "node_report":
        return node_reported(session, message.node_report)
    return Unknown()


def node_reported(session: int, node: shard_pb2.NodeReport) -> ev.NodeReported:
    """What the report says; amounts a scheduler could not use are rounded against the node."""
    error = ""
    used: tuple[tuple[str, int], ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()
    try:
        used = _amounts(node.used, round_up=True)
        allocatable = _amounts(node.allocatable, round_up=False)
    except (QuantityError, ResourceError) as flaw:
        error = str(flaw)
    return ev.NodeReported(
        session,
        node.machine_id,
        node.node_name,
        node.ready,
        node.empty,
        node.max_pod_priority,
        node.removable,
        used,
        allocatable,
        node.reclamation_dollars,
        node.interruption_dollars,
        node.pinned,
        tuple(node.groups),
        tuple(node.profiles),
        tuple(node.exclusive),
        max(0, node.closing_since),
        node.mirror_version,
        error,
        max(0, node.matured),
    )


def _amounts(quantities: Mapping[str, str], *, round_up: bool) -> tuple[tuple[str, int], ...]:
    if len(quantities) > limits.RESOURCES:
        raise ResourceError(limits.over("the report names resources", len(quantities), limits.RESOURCES))
    found = []
    for name, text in sorted(quantities.items()):
        amount = to_units(name, text, round_up=round_up)
        Resources({name: amount or 1})
        found.append((name, amount))
    return tuple(found)


def hello(message: shard_pb2.Hello) -> Hello:
    return Hello(
        message.cluster_id,
        message.protocol_version,
        frozenset(message.capabilities),
        message.bound_shard_id,
        tuple(message.active_drains),
    )


def frame_bytes(frame: ev.Frame) -> bytes:
    """A frame as a serialised ShardMessage."""
    return shard_message(frame).SerializeToString()


def shard_message(frame: ev.Frame) -> shard_pb2.ShardMessage:
    match frame:
        case ev.Acknowledgement():
            return shard_pb2.ShardMessage(ack=_acknowledgement(frame))
        case ev.BootstrapRequest():
            return shard_pb2.ShardMessage(
                bootstrap_request=shard_pb2.BootstrapRequest(
                    request_id=frame.request_id,
                    requirements=requirements_to_wire(frame.requirements),
                    cluster_id=frame.cluster,
                    machine_id=frame.machine,
                    node_name=frame.node_name,
                    labels=dict(frame.labels),
                )
            )
        case ev.ReclaimInstruction():
            return shard_pb2.ShardMessage(
                reclaim_instruction=shard_pb2.ReclaimInstruction(
                    instruction_id=frame.instruction_id,
                    nodes=frame.nodes,
                    grace_period_seconds=frame.grace_seconds,
                    preemptor_priority=frame.preemptor_priority,
                    voluntary=frame.voluntary,
                    empty=frame.empty,
                    room_within_seconds=frame.room_within_seconds,
                )
            )
        case ev.ReclaimCancel():
            return shard_pb2.ShardMessage(reclaim_cancel=shard_pb2.ReclaimCancel(instruction_id=frame.instruction_id))
        case ev.NodeLost():
            return shard_pb2.ShardMessage(node_lost=shard_pb2.NodeLost(machine_id=frame.machine))
        case ev.NodeClosing():
            closing = shard_pb2.NodeClosing(machine_id=frame.machine, closing=frame.closing)
            return shard_pb2.ShardMessage(node_closing=closing)
        case ev.NodeState():
            return shard_pb2.ShardMessage(node_state_update=_node_state(frame))
        case ev.AvailableCapacity():
            return shard_pb2.ShardMessage(
                available_capacity=shard_pb2.AvailableCapacityUpdate(
                    supersedes_key=available_supersedes_key(frame.fingerprint),
                    requirements=requirements_to_wire(frame.requirements),
                    available_count=min(frame.count, 2**31 - 1),
                    confidence=shard_pb2.AvailableCapacityUpdate.Confidence.Value(
                        f"CONFIDENCE_{frame.confidence.upper()}"
                    ),
                    cost_per_hour=frame.cost_per_hour,
                )
            )
        case ev.ResyncEnd():
            return shard_pb2.ShardMessage(resync_end=shard_pb2.ResyncEnd(machine_ids=frame.machines))
    assert_never(frame)


def taints(shape: Shape) -> list[provider_pb2.Taint]:
    return [provider_pb2.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in shape.taints]


def _acknowledgement(frame: ev.Acknowledgement) -> shard_pb2.Acknowledgement:
    return shard_pb2.Acknowledgement(
        echo=frame.echo,
        coordinator_term=frame.coordinator_term,
        shard_epoch=frame.shard_epoch,
        rollup_timestamp=frame.rollup_timestamp,
        outcome=_ACK_OUTCOMES[frame.outcome],
        reason=frame.reason,
    )


def _node_state(frame: ev.NodeState) -> shard_pb2.NodeStateUpdate:
    update = shard_pb2.NodeStateUpdate(
        supersedes_key=node_supersedes_key(frame.machine),
        machine_id=frame.machine,
        cluster_id=frame.cluster,
        state=provider_pb2.MachineState.ValueType(frame.state),
        node_name=frame.node_name,
        provider_id=frame.provider_id,
        last_error=frame.last_error,
        group=frame.group,
    )
    if frame.shape is not None:
        update.labels.update(frame.shape.node_labels())
        update.taints.extend(taints(frame.shape))
        if not frame.shape.allocatable.is_zero:
            update.resources.resources.update(frame.shape.allocatable.to_wire())
    return update
