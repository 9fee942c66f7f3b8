"""What goes into the lifecycle core and what comes out of it.

Events are facts and requests; instructions are what the surrounding shell must do, in the order given. Both are
frozen values. Saved rows come out before the work and the answer that depend on them, because the shell commits
them first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bigfleet.provider.kit.records import NO_TOKEN, Host, Instance, Kind, MachineRecord, Token

# ── events: requests of a shard ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class CreateRequested:
    machine_id: str
    token: Token = NO_TOKEN


@dataclass(frozen=True, slots=True)
class ConfigureRequested:
    machine_id: str
    cluster_id: str
    bootstrap_blob: bytes = field(default=b"", repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)
    token: Token = NO_TOKEN


@dataclass(frozen=True, slots=True)
class DrainRequested:
    machine_id: str
    grace_seconds: int = 0
    token: Token = NO_TOKEN


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    machine_id: str
    token: Token = NO_TOKEN


# ── events: reports of the backend ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The backend finished. A create must bring its host; it may refine the shape's quantities."""

    machine_id: str
    operation_id: str
    host: Host | None = None
    resources: Mapping[str, str] | None = None
    allocatable: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class WorkFailed:
    machine_id: str
    operation_id: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeReady:
    """The node of a configured host was seen Ready on its cluster."""

    machine_id: str
    operation_id: str


@dataclass(frozen=True, slots=True)
class HostLost:
    """The host is gone (spot reclaim, hardware fault). The record disappears; its slot comes back later."""

    machine_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MachineBroken:
    """The machine is unusable but still there: FAILED from any state."""

    machine_id: str
    error: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """Somebody cleaned up a FAILED machine: idle if a host is left, a slot if not."""

    machine_id: str
    host: Host | None = None


@dataclass(frozen=True, slots=True)
class SlotsWithdrawn:
    """Quota shrank: these slots, where still unrealised, are no longer for sale."""

    machine_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Described:
    """The answer of `describe`. `as_of` is the head revision when the call began; `complete` means that what is
    missing is gone (believed the second time)."""

    instances: Sequence[Instance]
    as_of: int
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The ids of a complete description, each with whether it has a host; sent ahead when it is applied in slices."""

    hosted: Mapping[str, bool]
    as_of: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """The process came back with transitions open: re-attach to them, or fail them visibly."""

    reattach: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; deadlines may be due."""


Request = CreateRequested | ConfigureRequested | DrainRequested | DeleteRequested
Event = (
    Request
    | WorkDone
    | WorkFailed
    | NodeReady
    | HostLost
    | MachineBroken
    | Repaired
    | SlotsWithdrawn
    | Described
    | Surveyed
    | Restarted
    | Tick
)

# ── instructions: rows to commit ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SaveMachine:
    machine: MachineRecord


@dataclass(frozen=True, slots=True)
class SaveRemoval:
    """The record is gone; the tombstone stays. `relist_at` set: the slot returns then, as `machine` says."""

    machine: MachineRecord
    revision: int
    relist_at: float | None


@dataclass(frozen=True, slots=True)
class ForgetRemovals:
    """Tombstones up to this revision are dropped; an older cursor gets a full list."""

    machine_ids: tuple[str, ...]
    floor: int


@dataclass(frozen=True, slots=True)
class SaveFence:
    shard_id: str
    machine_id: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class ForgetFence:
    shard_id: str
    machine_id: str


@dataclass(frozen=True, slots=True)
class SaveOperation:
    machine_id: str
    kind: Kind
    operation_id: str
    number: int


Row = SaveMachine | SaveRemoval | ForgetRemovals | SaveFence | ForgetFence | SaveOperation

# ── instructions: work and answers ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StartWork:
    """Call the backend. With `reattach`, the work was begun by an earlier process and the blob is unknown."""

    kind: Kind
    machine: MachineRecord
    operation_id: str
    deadline: float
    bootstrap_blob: bytes = field(default=b"", repr=False)
    grace_seconds: int = 0
    reattach: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmReady:
    """Ask whether the node is Ready, within what is left of the Configure deadline."""

    machine: MachineRecord
    operation_id: str
    deadline: float


@dataclass(frozen=True, slots=True)
class StopWork:
    """Nobody waits for this work any more."""

    machine_id: str
    operation_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class LateSuccess:
    """Work succeeded after its transition had ended; a created host may be running unowned."""

    machine_id: str
    operation_id: str
    host: Host | None


@dataclass(frozen=True, slots=True)
class InstanceSkipped:
    """`describe` returned a record that cannot be published."""

    problem: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
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


@dataclass(frozen=True, slots=True)
class Refuse:
    refusal: Refusal
    message: str


Instruction = Row | StartWork | ConfirmReady | StopWork | LateSuccess | InstanceSkipped | Acknowledge | Refuse
ROWS = (SaveMachine, SaveRemoval, ForgetRemovals, SaveFence, ForgetFence, SaveOperation)
