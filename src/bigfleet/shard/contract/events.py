"""What the shard core hears and what it asks for: the whole contract between core, shell and simulator.

Immutable values only, and user data never shows in their text. The shell performs the instructions of one `handle`
call strictly in list order; what follows a `Journal` that is not `lazy` may only happen once the journal is durable.
Instants are Unix nanoseconds. `machine` is the shard's key of a machine (`core/state/fleet.py`) on sessions and in
logs, and the provider's own id on everything that goes to or comes from a provider. Frames are told in `frames.py`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from bigfleet.model.session import DrainOutcome
from bigfleet.shard.contract import coordination, frames
from bigfleet.shard.contract.outcomes import Level, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch, Rollup, Shape
    from bigfleet.engine.policy import Policy
    from bigfleet.model.machine import CallKind, MachineState
    from bigfleet.shard.contract.step_result import StepResult


# ---------------------------------------------------------------------------------------------------------------- facts


class ListedMachine(Struct, frozen=True):
    """One provider record, decoded and in model units; `metadata` is the provider's echo of `shard_metadata`."""

    id: str
    state: MachineState
    shape: Shape
    host: str = ""
    cluster: str = ""
    last_error: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    # The provider will take the host away then; 0 for nobody knows.
    interruption_at: int = 0


class Fence(Struct, frozen=True):
    """Token of one mutating call: greater epoch wins, then greater sequence."""

    shard_id: str
    epoch: int
    sequence: int


class Failure(StrEnum):
    """Why a provider call failed, as far as the core has to tell apart."""

    FENCED = "fenced"
    NOT_FOUND = "not_found"
    UNIMPLEMENTED = "unimplemented"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    UNREACHED = "unreached"
    """There was no connection: nothing was sent."""
    DEADLINE = "deadline"
    SOLD_OUT = "sold_out"
    """The provider said that there are no more of this kind."""
    THROTTLED = "throttled"
    """The provider said that it wants fewer calls."""
    EXHAUSTED = "exhausted"
    """One of these two; the provider did not say which."""
    BUSY = "busy"
    """The provider itself, not the way to it, said that it cannot at the moment."""
    OTHER = "other"


# --------------------------------------------------------------------------------------------------------------- events


class SessionOpened(Struct, frozen=True):
    """A stream said Hello and the shell checked its identity. `session` is unique for the life of the process."""

    session: int
    cluster: str
    protocol_version: str = ""
    capabilities: frozenset[str] = frozenset()
    bound_shard_id: str = ""
    active_drains: tuple[str, ...] = ()


class HelloRepeated(Struct, frozen=True):
    session: int


class SessionClosed(Struct, frozen=True):
    session: int
    reason: str = ""


class SessionWritable(Struct, frozen=True):
    """The stream can take frames now; the core answers with at most `limit` `SendFrame`s.

    When more are waiting the answer ends with another `WakeSession`.
    """

    session: int
    limit: int = 64


class RollupReceived(Struct, frozen=True):
    """Demand of a session.

    `rollup` is None when the bytes, timestamp and mirror version aside, equal the last ones of this cluster that
    decoded (`unchanged`, now as of `mirror_version`), or when they do not decode (`error`).
    """

    session: int
    cluster: str
    timestamp: int
    rollup: Rollup | None
    unchanged: bool = False
    error: str = ""
    mirror_version: int = 0


class BootstrapAnswered(Struct, frozen=True):
    session: int
    request_id: str
    user_data: bytes = b""
    ttl_seconds: int = 0
    error: str = ""

    def __repr__(self) -> str:
        return f"BootstrapAnswered({self.session}, {self.request_id!r}, {len(self.user_data)} bytes, {self.error!r})"


class ReclaimAcked(Struct, frozen=True):
    session: int
    instruction_id: str
    nodes_started: int = 0


class DrainReported(Struct, frozen=True):
    session: int
    instruction_id: str
    machine: str
    outcome: DrainOutcome
    error: str = ""


class NodeReported(Struct, frozen=True):
    """What a cluster says of one of its nodes; from `removable` on, only clusters that report placement say it.

    Amounts are (resource, model units) by name; `error` says what of it cannot be read, and then nothing of it counts.
    `matured` are pods that became old there, ever.
    """

    session: int
    machine: str
    node_name: str = ""
    ready: bool = False
    empty: bool = False
    max_pod_priority: int = 0
    removable: bool = False
    used: tuple[tuple[str, int], ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()
    reclamation_dollars: float = 0.0
    interruption_dollars: float = 0.0
    pinned: bool = False
    groups: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    exclusive: tuple[str, ...] = ()
    closing_since: int = 0
    mirror_version: int = 0
    error: str = ""
    matured: int = 0


class ListArrived(Struct, frozen=True):
    """Part of a List whose call began at `began`; the last part is `complete`.

    `machines` are the records that changed or, where the shell keeps no index, all of them. `absent` are ids the shell
    knows that a finished full List did not name; None lets the core work them out from all parts of this List.
    `removed` are ids the provider itself declared gone. `undecodable` are ids whose record could not be read.
    """

    provider: str
    began: int
    full: bool
    complete: bool
    machines: tuple[ListedMachine, ...] = ()
    removed: tuple[str, ...] = ()
    absent: tuple[str, ...] | None = None
    undecodable: tuple[str, ...] = ()
    revision: bytes = b""


class ListFailed(Struct, frozen=True):
    provider: str
    error: str
    # The provider refused it because there were too many calls.
    limited: bool = False


class MachineRead(Struct, frozen=True):
    """Answer of a Get: the record, or None when the provider does not know the machine."""

    provider: str
    machine: str
    began: int
    record: ListedMachine | None


class ReadFailed(Struct, frozen=True):
    provider: str
    machine: str
    error: str
    # The provider refused it because there were too many calls.
    limited: bool = False


class CallDone(Struct, frozen=True):
    """A mutating call was acknowledged with the provider's snapshot."""

    op: int
    record: ListedMachine


class CallFailed(Struct, frozen=True):
    op: int
    failure: Failure
    error: str


class StepDone(Struct, frozen=True):
    step: int
    result: StepResult


class TimerDue(Struct, frozen=True):
    """The instant of `core.next_timer()` has come (or any later one)."""


class RailsSet(Struct, frozen=True):
    """An admin or the coordinator flipped their switch; None leaves it as it is."""

    paused: bool | None = None
    dry_run: bool | None = None
    who: str = ""
    reason: str = ""
    from_coordinator: bool = False


class ClusterForgotten(Struct, frozen=True):
    """An admin says that a cluster was deleted for good: all it has is to be let go of."""

    cluster: str
    who: str = ""
    reason: str = ""


Event = (
    SessionOpened
    | HelloRepeated
    | SessionClosed
    | SessionWritable
    | RollupReceived
    | BootstrapAnswered
    | ReclaimAcked
    | DrainReported
    | NodeReported
    | ListArrived
    | ListFailed
    | MachineRead
    | ReadFailed
    | CallDone
    | CallFailed
    | StepDone
    | TimerDue
    | RailsSet
    | ClusterForgotten
    | coordination.CoordinatorAnswered
)


# ---------------------------------------------------------------------------------------------------------- coordinator

CoordinatorAnswered = coordination.CoordinatorAnswered


# --------------------------------------------------------------------------------------------------------------- frames

# Shell and simulator speak the whole contract, so they find frames where everything else is.
Acknowledgement = frames.Acknowledgement
AvailableCapacity = frames.AvailableCapacity
BootstrapRequest = frames.BootstrapRequest
Frame = frames.Frame
NodeClosing = frames.NodeClosing
NodeLost = frames.NodeLost
NodeState = frames.NodeState
ReclaimCancel = frames.ReclaimCancel
ReclaimInstruction = frames.ReclaimInstruction
ResyncEnd = frames.ResyncEnd


# --------------------------------------------------------------------------------------------------------- instructions


class RunStep(Struct, frozen=True):
    """Run one engine step at `now` and answer with `StepDone(step, …)`; never two at a time."""

    step: int
    now: int
    machines: MachineBatch | None
    demand: DemandBatch | None
    policy: Policy
    conditions: Conditions
    # Clusters that want to hear what capacity they could get (`StepResult.available`).
    hints: tuple[str, ...] = ()
    # Drains the coordinator asks for: whom would the engine take (`StepResult.victims`)?
    victims: tuple[coordination.VictimQuestion, ...] = ()


class CallProvider(Struct, frozen=True):
    """One attempt of a mutating call; answered by `CallDone` or `CallFailed` with the same op."""

    op: int
    provider: str
    kind: CallKind
    machine: str
    fence: Fence
    deadline: int
    cluster: str = ""
    blob: bytes = b""
    metadata: tuple[tuple[str, str], ...] = ()
    grace_seconds: int = 0

    def __repr__(self) -> str:
        return f"CallProvider({self.op}, {self.kind.value} {self.provider}/{self.machine} {self.cluster})"


class StartList(Struct, frozen=True):
    """Begin a List, which ends complete or in `ListFailed`; never two of one provider at a time. `full`: no cursor."""

    provider: str
    full: bool
    revision: bytes = b""


class StartRead(Struct, frozen=True):
    provider: str
    machine: str


class Table(IntEnum):
    """Tables of the journal."""

    INTENT = 1
    DRAIN = 2
    OWNERSHIP = 3
    RAILS = 4
    GUARD = 5
    MOVE = 6
    REST = 7
    EVICTIONS = 8
    FORGET = 9
    STEADY = 10


class Journal(Struct, frozen=True):
    """Write (value) or erase (None) rows; values are JSON texts, one row per key.

    Rows that are not `lazy` must be durable before the next instruction; lazy ones may be written later, in order.
    """

    entries: tuple[tuple[Table, str, str | None], ...]
    lazy: bool = False


class WakeSession(Struct, frozen=True):
    """The session's outbox has something: let its writer say `SessionWritable`."""

    session: int


class SendFrame(Struct, frozen=True):
    session: int
    frame: Frame


class CloseCode(StrEnum):
    ABORTED = "aborted"
    INVALID_ARGUMENT = "invalid_argument"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"


class CloseSession(Struct, frozen=True):
    session: int
    code: CloseCode
    message: str
    # Where the peer should go instead; empty leaves that to the peer.
    referral: str = ""


class Audit(Struct, frozen=True):
    """One line of the audit log."""

    cycle: int
    kind: str
    machine: str
    cluster: str
    reason: str
    grace_seconds: int
    outcome: Outcome
    detail: str = ""


class Log(Struct, frozen=True):
    level: Level
    message: str
    attrs: tuple[tuple[str, object], ...] = ()


class Count(Struct, frozen=True):
    metric: str
    labels: tuple[str, ...] = ()
    amount: float = 1.0


class Observe(Struct, frozen=True):
    metric: str
    seconds: float
    labels: tuple[str, ...] = ()


class ReportNow(Struct, frozen=True):
    """Something cannot wait for the next report: a shortfall grew old, or an instruction has its answer."""


Instruction = (
    RunStep
    | CallProvider
    | StartList
    | StartRead
    | Journal
    | WakeSession
    | SendFrame
    | CloseSession
    | Audit
    | Log
    | Count
    | Observe
    | ReportNow
)


class JournalState(Struct, frozen=True):
    """What a restarted core begins with; an empty one is always safe."""

    epoch: int
    rows: Mapping[tuple[Table, str], str] = field(default_factory=dict)
