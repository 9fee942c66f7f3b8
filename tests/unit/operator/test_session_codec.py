"""Frames cross the wire unchanged, and what this operator does not know asks nothing of it."""

from __future__ import annotations

import pytest

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.session import AckOutcome, DrainOutcome
from bigfleet.operator import session_codec
from bigfleet.operator.core import frames
from bigfleet.wire import shard_pb2


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (shard_pb2.ShardMessage(ack=shard_pb2.Acknowledgement(echo="hello")), frames.HelloAck()),
        (
            shard_pb2.ShardMessage(
                ack=shard_pb2.Acknowledgement(
                    echo="rollup",
                    rollup_timestamp=7,
                    outcome=shard_pb2.Acknowledgement.OUTCOME_HELD,
                    reason="sudden loss",
                )
            ),
            frames.RollupAck(7, AckOutcome.HELD, "sudden loss"),
        ),
        (shard_pb2.ShardMessage(ack=shard_pb2.Acknowledgement(echo="rollup")), frames.RollupAck()),
        (
            shard_pb2.ShardMessage(
                reclaim_instruction=shard_pb2.ReclaimInstruction(
                    instruction_id="i",
                    nodes=["m"],
                    grace_period_seconds=30,
                    preemptor_priority=4,
                    voluntary=True,
                    room_within_seconds=20,
                )
            ),
            frames.ReclaimInstruction("i", ("m",), 30, 4, True, room_within_seconds=20),
        ),
        (
            shard_pb2.ShardMessage(reclaim_cancel=shard_pb2.ReclaimCancel(instruction_id="i")),
            frames.ReclaimCancel("i"),
        ),
        (shard_pb2.ShardMessage(node_lost=shard_pb2.NodeLost(machine_id="m")), frames.NodeLost("m")),
        (
            shard_pb2.ShardMessage(node_closing=shard_pb2.NodeClosing(machine_id="m", closing=True)),
            frames.NodeClosing("m", True),
        ),
        (shard_pb2.ShardMessage(node_state_update=shard_pb2.NodeStateUpdate(machine_id="m")), None),
        (shard_pb2.ShardMessage(), None),
        (shard_pb2.ShardMessage(ack=shard_pb2.Acknowledgement(echo="something newer")), None),
    ],
)
def test_a_message_is_what_the_session_hears(message: shard_pb2.ShardMessage, frame: frames.FromShard | None) -> None:
    assert session_codec.received(shard_pb2.ShardMessage.FromString(message.SerializeToString())) == frame


def test_a_bootstrap_request_keeps_everything_a_template_may_use() -> None:
    request = shard_pb2.BootstrapRequest(request_id="r", machine_id="m", node_name="n", labels={"b": "2", "a": "1"})
    request.requirements.add(key="zone", operator=1, values=["a"])
    heard = session_codec.received(shard_pb2.ShardMessage(bootstrap_request=request))
    needs = (Requirement("zone", Operator.IN, ("a",)),)
    assert heard == frames.BootstrapRequest("r", "m", "n", needs, (("a", "1"), ("b", "2")))


def test_every_outcome_of_a_drain_has_its_own_number() -> None:
    sent = {
        session_codec.to_wire(frames.DrainReport("i", "m", outcome, "why")).drain_report.outcome
        for outcome in DrainOutcome
    }
    assert sent == set(shard_pb2.DrainReport.Outcome.values()) - {0}


def test_hello_says_who_and_what() -> None:
    hello = frames.Hello("c", frozenset(("b", "a")), "shard-1", ("m",))
    wire = session_codec.to_wire(hello).hello
    assert (wire.cluster_id, list(wire.capabilities)) == ("c", ["a", "b"])
    assert (wire.bound_shard_id, list(wire.active_drains), wire.protocol_version) == ("shard-1", ["m"], "v1alpha1")
