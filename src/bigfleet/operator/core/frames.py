"""What operator and shard say to each other, as far as the session has to act on it or say it itself.

Names follow the wire contract, types do not: protobuf belongs to the shells. Frames that ask nothing of the session
(node states, capacity hints, the end of a replay) are shown by the shell and have no place here; rows and node reports
are large, so the session only says when they go (`events.SendRollup`, `events.ReportNodes`).
"""

from __future__ import annotations

from msgspec import Struct

from bigfleet.model.requirement import Requirement
from bigfleet.model.session import AckOutcome, DrainOutcome

PROTOCOL_VERSION = "v1alpha1"


# ------------------------------------------------------------------------------------------------------ from the shard


class HelloAck(Struct, frozen=True):
    pass


class RollupAck(Struct, frozen=True):
    """`timestamp` is 0 from a shard that does not say which roll-up it answers."""

    timestamp: int = 0
    outcome: AckOutcome = AckOutcome.UNSAID
    reason: str = ""


class BootstrapRequest(Struct, frozen=True):
    request_id: str
    machine: str = ""
    node_name: str = ""
    requirements: tuple[Requirement, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


class ReclaimInstruction(Struct, frozen=True):
    """Drain these machines. Only a `voluntary` one may be refused; `empty`: nothing ran there when it was asked for.
    `room_within_seconds`: evict when its pods have room elsewhere, after so long at the latest."""

    instruction_id: str
    machines: tuple[str, ...]
    grace_seconds: int
    preemptor_priority: int = 0
    voluntary: bool = False
    empty: bool = False
    room_within_seconds: int = 0


class ReclaimCancel(Struct, frozen=True):
    instruction_id: str


class NodeLost(Struct, frozen=True):
    """The provider lost the machine, whatever Kubernetes still believes."""

    machine: str


class NodeClosing(Struct, frozen=True):
    """Keep new pods off the node, or let them on again."""

    machine: str
    closing: bool


FromShard = HelloAck | RollupAck | BootstrapRequest | ReclaimInstruction | ReclaimCancel | NodeLost | NodeClosing


# -------------------------------------------------------------------------------------------------------- to the shard


class Hello(Struct, frozen=True):
    cluster: str
    capabilities: frozenset[str] = frozenset()
    bound_shard_id: str = ""
    active_drains: tuple[str, ...] = ()
    protocol_version: str = PROTOCOL_VERSION


class BootstrapAnswer(Struct, frozen=True):
    """User data of one node, or why there is none; never shown."""

    request_id: str
    user_data: bytes = b""
    ttl_seconds: int = 0
    error: str = ""

    def __repr__(self) -> str:
        return f"BootstrapAnswer({self.request_id!r}, {len(self.user_data)} bytes, {self.error!r})"


class ReclaimAck(Struct, frozen=True):
    """Draining has started, not finished."""

    instruction_id: str
    nodes_started: int


class DrainReport(Struct, frozen=True):
    instruction_id: str
    machine: str
    outcome: DrainOutcome
    error: str = ""


ToShard = Hello | BootstrapAnswer | ReclaimAck | DrainReport
