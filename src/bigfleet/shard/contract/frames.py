"""Frames: what the shard core has sent to operators. What operators send is events (`events.py`).

Names follow the wire contract, their types do not; `machine` is the shard's key of a machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from bigfleet.engine.results import Confidence
from bigfleet.model.session import AckOutcome

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape
    from bigfleet.model.machine import MachineState
    from bigfleet.model.requirement import Requirement


class Acknowledgement(Struct, frozen=True):
    echo: str
    coordinator_term: int
    shard_epoch: int
    rollup_timestamp: int = 0
    outcome: AckOutcome = AckOutcome.UNSAID
    reason: str = ""


class BootstrapRequest(Struct, frozen=True):
    request_id: str
    cluster: str
    requirements: tuple[Requirement, ...]
    machine: str
    node_name: str
    labels: tuple[tuple[str, str], ...] = ()


class ReclaimInstruction(Struct, frozen=True):
    instruction_id: str
    nodes: tuple[str, ...]
    grace_seconds: int
    preemptor_priority: int
    # The operator may refuse it, and should if it has pods although it is `empty`.
    voluntary: bool = False
    empty: bool = False
    # Its pods run on until all have room elsewhere, so long at most; 0: they leave at once.
    room_within_seconds: int = 0


class NodeLost(Struct, frozen=True):
    """The provider has lost the machine: whatever ran there has no room any more."""

    machine: str


class NodeClosing(Struct, frozen=True):
    """Keep new pods off the node, or let them on again."""

    machine: str
    closing: bool


class ReclaimCancel(Struct, frozen=True):
    instruction_id: str


class NodeState(Struct, frozen=True):
    """State of one machine of this cluster; `shape` carries labels, allocatable and taints. `group` is the gang it was
    bound for, as long as it is bound."""

    machine: str
    cluster: str
    state: MachineState
    node_name: str
    provider_id: str
    last_error: str
    shape: Shape | None
    group: str = ""


class AvailableCapacity(Struct, frozen=True):
    fingerprint: str
    requirements: tuple[Requirement, ...]
    count: int
    confidence: Confidence
    cost_per_hour: float


class ResyncEnd(Struct, frozen=True):
    machines: tuple[str, ...]


Frame = (
    Acknowledgement
    | BootstrapRequest
    | ReclaimInstruction
    | ReclaimCancel
    | NodeLost
    | NodeClosing
    | NodeState
    | AvailableCapacity
    | ResyncEnd
)
