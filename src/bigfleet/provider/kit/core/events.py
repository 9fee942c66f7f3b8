"""What goes into the lifecycle core and what comes out of it.

Events are facts and requests; instructions are what the surrounding shell must do, in the order given. Both are
immutable values, and user data never shows in their text. Saved rows come out before the work and the answer that
depend on them, because the shell commits them first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field

from bigfleet.provider.kit.core.records import NO_TOKEN, Host, Instance, Kind, MachineRecord, Token

# ── events: requests of a shard ──────────────────────────────────────────────────────────────────────────────


class CreateRequested(Struct, frozen=True):
    machine_id: str
    token: Token = NO_TOKEN


class ConfigureRequested(Struct, frozen=True):
    machine_id: str
    cluster_id: str
    bootstrap_blob: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)
    token: Token = NO_TOKEN

    def __repr__(self) -> str:
        return f"ConfigureRequested({self.machine_id!r}, {self.cluster_id!r}, {len(self.bootstrap_blob)} bytes)"


class DrainRequested(Struct, frozen=True):
    machine_id: str
    grace_seconds: int = 0
    token: Token = NO_TOKEN


class DeleteRequested(Struct, frozen=True):
    machine_id: str
    token: Token = NO_TOKEN


# ── events: reports of the backend ───────────────────────────────────────────────────────────────────────────


class WorkDone(Struct, frozen=True):
    """The backend finished. A create must bring its host; it may refine the shape's quantities."""

    machine_id: str
    operation_id: str
    host: Host | None = None
    resources: Mapping[str, str] | None = None
    allocatable: Mapping[str, str] | None = None


class WorkFailed(Struct, frozen=True):
    """The backend gave up. `retry_after` above 0: it has nothing of this kind left and may again after so long."""

    machine_id: str
    operation_id: str
    error: str
    retry_after: float = 0.0


class NodeReady(Struct, frozen=True):
    """The node of a configured host was seen Ready on its cluster."""

    machine_id: str
    operation_id: str


class HostLost(Struct, frozen=True):
    """The host is gone (spot reclaim, hardware fault). The record disappears; its slot comes back later."""

    machine_id: str
    reason: str = ""


class InterruptionNoticed(Struct, frozen=True):
    """The backend will take the host away at this instant; 0 takes an earlier notice back."""

    machine_id: str
    at: float


class MachineBroken(Struct, frozen=True):
    """The machine is unusable but still there: FAILED from any state."""

    machine_id: str
    error: str


class Repaired(Struct, frozen=True):
    """Somebody cleaned up a FAILED machine: idle if a host is left, a slot if not."""

    machine_id: str
    host: Host | None = None


class SlotsWithdrawn(Struct, frozen=True):
    """Quota shrank: these slots, where still unrealised, are no longer for sale."""

    machine_ids: Sequence[str]


class Described(Struct, frozen=True):
    """The answer of `describe`. `as_of` is the head revision when the call began; `complete` means that what is
    missing is gone (believed the second time)."""

    instances: Sequence[Instance]
    as_of: int
    complete: bool = False


class Surveyed(Struct, frozen=True):
    """The ids of a complete description, each with whether it has a host; sent ahead when it is applied in slices."""

    hosted: Mapping[str, bool]
    as_of: int


class Restarted(Struct, frozen=True):
    """The process came back with transitions open: re-attach to them, or fail them visibly."""

    reattach: bool


class Tick(Struct, frozen=True):
    """Time passed; deadlines may be due."""


Request = CreateRequested | ConfigureRequested | DrainRequested | DeleteRequested
Event = (
    Request
    | WorkDone
    | WorkFailed
    | NodeReady
    | HostLost
    | InterruptionNoticed
    | MachineBroken
    | Repaired
    | SlotsWithdrawn
    | Described
    | Surveyed
    | Restarted
    | Tick
)

# ── instructions: rows to commit ─────────────────────────────────────────────────────────────────────────────


class SaveMachine(Struct, frozen=True):
    machine: MachineRecord


class SaveRemoval(Struct, frozen=True):
    """The record is gone; the tombstone stays. `relist_at` set: the slot returns then, as `machine` says."""

    machine: MachineRecord
    revision: int
    relist_at: float | None


class ForgetRemovals(Struct, frozen=True):
    """Tombstones up to this revision are dropped; an older cursor gets a full list."""

    machine_ids: tuple[str, ...]
    floor: int


class SaveFence(Struct, frozen=True):
    shard_id: str
    machine_id: str
    epoch: int
    sequence: int


class ForgetFence(Struct, frozen=True):
    shard_id: str
    machine_id: str


class SaveOperation(Struct, frozen=True):
    machine_id: str
    kind: Kind
    operation_id: str
    number: int


Row = SaveMachine | SaveRemoval | ForgetRemovals | SaveFence | ForgetFence | SaveOperation

# ── instructions: work and answers ───────────────────────────────────────────────────────────────────────────


class StartWork(Struct, frozen=True):
    """Call the backend. With `reattach`, the work was begun by an earlier process and the blob is unknown."""

    kind: Kind
    machine: MachineRecord
    operation_id: str
    deadline: float
    bootstrap_blob: bytes = b""
    grace_seconds: int = 0
    reattach: bool = False

    def __repr__(self) -> str:
        return f"StartWork({self.kind.value} {self.machine.id!r}, {self.operation_id!r}, until {self.deadline:g})"


class ConfirmReady(Struct, frozen=True):
    """Ask whether the node is Ready, within what is left of the Configure deadline."""

    machine: MachineRecord
    operation_id: str
    deadline: float


class StopWork(Struct, frozen=True):
    """Nobody waits for this work any more."""

    machine_id: str
    operation_id: str
    reason: str


class LateSuccess(Struct, frozen=True):
    """Work succeeded after its transition had ended; a created host may be running unowned."""

    machine_id: str
    operation_id: str
    host: Host | None


class InstanceSkipped(Struct, frozen=True):
    """`describe` returned a record that cannot be published."""

    problem: str


class Acknowledge(Struct, frozen=True):
    """The answer to an accepted or repeated request."""

    operation_id: str
    machine: MachineRecord


class Refusal(StrEnum):
    """Why a request was refused; the server maps each to one status code of the contract."""

    INVALID = "invalid"
    UNSUPPORTED = "unsupported"
    FENCED = "fenced"
    UNKNOWN = "unknown"
    OUT_OF_POSITION = "out_of_position"
    SOLD_OUT = "sold_out"


class Refuse(Struct, frozen=True):
    refusal: Refusal
    message: str


Instruction = Row | StartWork | ConfirmReady | StopWork | LateSuccess | InstanceSkipped | Acknowledge | Refuse
ROWS = (SaveMachine, SaveRemoval, ForgetRemovals, SaveFence, ForgetFence, SaveOperation)
