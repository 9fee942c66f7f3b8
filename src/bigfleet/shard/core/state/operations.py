"""Operations: what the shard is doing to a machine right now, at most one each, and the stages they pass.

STAGES is the whole transition table; anything else is a bug. Operations carry facts, the executor carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import ActionKind, NeedKey
from bigfleet.model.machine import CallKind

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape
    from bigfleet.model.profile import Profile
    from bigfleet.shard.core.state.fleet import Record


class Stage(StrEnum):
    """Where an operation stands."""

    NEW = "new"
    QUEUED = "waiting for a call slot"
    CALLING = "call in flight"
    RETRYING = "waiting before the next attempt"
    AWAITING = "provider at work"
    BLOB = "waiting for user data"
    AWAY = "waiting for the operator to return"
    EVICTING = "operator evicting pods"
    DONE = "done"


_S = Stage
STAGES: Final[Mapping[Stage, frozenset[Stage]]] = {
    _S.NEW: frozenset({_S.QUEUED, _S.AWAITING, _S.BLOB, _S.AWAY, _S.EVICTING, _S.DONE}),
    _S.QUEUED: frozenset({_S.CALLING, _S.AWAITING, _S.BLOB, _S.DONE}),
    _S.CALLING: frozenset({_S.RETRYING, _S.AWAITING, _S.BLOB, _S.DONE}),
    _S.RETRYING: frozenset({_S.QUEUED, _S.AWAITING, _S.BLOB, _S.DONE}),
    _S.AWAITING: frozenset({_S.BLOB, _S.DONE}),
    _S.BLOB: frozenset({_S.QUEUED, _S.BLOB, _S.AWAITING, _S.DONE}),
    _S.AWAY: frozenset({_S.EVICTING, _S.QUEUED, _S.AWAITING, _S.DONE}),
    _S.EVICTING: frozenset({_S.AWAY, _S.QUEUED, _S.AWAITING, _S.DONE}),
    _S.DONE: frozenset(),
}

# Stages in which no provider knows of the operation, unless an earlier attempt may have got through.
_UNSENT: Final = frozenset({_S.NEW, _S.QUEUED, _S.BLOB, _S.AWAY, _S.EVICTING})

DRAINS: Final = frozenset({ActionKind.RECLAIM, ActionKind.PREEMPT})

# Why a machine is drained whose host the provider has said it will take.
INTERRUPTION = "provider.interruption"
# Why a machine is drained whose cluster a person said is deleted: nobody is there to evict.
FORGOTTEN = "admin.forgotten"
FIRST_CALL: Final[Mapping[ActionKind, CallKind]] = {
    ActionKind.PROVISION: CallKind.CREATE,
    ActionKind.BOOTSTRAP: CallKind.CONFIGURE,
    ActionKind.RECLAIM: CallKind.DRAIN,
    ActionKind.PREEMPT: CallKind.DRAIN,
    ActionKind.DELETE: CallKind.DELETE,
}


def grace_left(grace_ends: int, now: int) -> int:
    """Whole seconds of a grace that remain, never less than one: peers read 0 as "your own default"."""
    return max(1, -((now - grace_ends) // SECOND))


class Operation(Struct, eq=False):
    """One action being carried out. `call` is the provider call it works towards; `began` that of the current part."""

    machine: Record
    kind: ActionKind
    call: CallKind
    cluster: str = ""
    fingerprint: str = ""
    group: str = ""
    # What one unit of the row takes; of a move all pods that are to go there.
    min_unit: str = ""
    profile: Profile | None = None
    grace_seconds: int = 0
    preemptor_priority: int = 0
    reason: str = ""
    cycle: int = 0
    decided: int = 0
    began: int = 0
    stage: Stage = Stage.NEW
    number: int = 0
    attempts: int = 0
    # When the current call went out for the first and for the last time.
    asked: int = 0
    sent: int = 0
    # A call went out whose end we do not know: the provider may have moved on without telling.
    ambiguous: bool = False
    error: str = ""
    request_id: str = ""
    blob: bytes = b""
    blob_expires: int = 0
    instruction_id: str = ""
    grace_ends: int = 0
    # Of a drain: its pods may run on until then while they have no room elsewhere.
    evict_by: int = 0
    # The cluster may refuse this drain.
    voluntary: bool = False
    # What it saves and costs, in words; for the audit log.
    note: str = ""
    # What it was preferred to, by name where that is known.
    beat: str = ""
    # How often the machine was looked up because it took its time.
    polls: int = 0
    # Of a purchase: what the slot was when it was chosen, and how what comes is something its row cannot use.
    offered: Shape | None = None
    otherwise: str = ""

    def __repr__(self) -> str:
        return f"<{self.kind.name.lower()} {self.machine.key} {self.stage.name}>"

    @property
    def journal_key(self) -> str:
        return f"{self.machine.shape.provider}/{self.machine.id}"

    @property
    def need(self) -> NeedKey:
        """The row it serves; a move's is of no row, only of a profile and what moves."""
        return NeedKey(self.cluster, self.fingerprint, self.group, self.min_unit)

    @property
    def is_drain(self) -> bool:
        return self.kind in DRAINS

    @property
    def untouched(self) -> bool:
        """Whether no provider has been asked, as far as anybody can know."""
        return self.stage in _UNSENT and not self.ambiguous

    @property
    def never_sent(self) -> bool:
        """Whether no provider can know of it: it was not asked, or every call found nobody."""
        return self.untouched or (self.stage == Stage.RETRYING and not self.ambiguous)

    def to(self, stage: Stage) -> None:
        if stage not in STAGES[self.stage]:
            raise AssertionError(f"operation on {self.machine.key} cannot go from {self.stage.name} to {stage.name}")
        self.stage = stage


class Operations:
    """All operations under way, by machine and by cluster."""

    __slots__ = ("_by_cluster", "_by_machine", "on")

    def __init__(self) -> None:
        self._by_machine: dict[str, Operation] = {}
        # The operation on a machine, None if there is none.
        self.on: Callable[[str], Operation | None] = self._by_machine.get
        self._by_cluster: dict[str, dict[str, Operation]] = {}

    def __len__(self) -> int:
        return len(self._by_machine)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._by_machine.values())

    def of_cluster(self, cluster: str) -> list[Operation]:
        return list(self._by_cluster.get(cluster, {}).values())

    def add(self, operation: Operation) -> None:
        key = operation.machine.key
        assert key not in self._by_machine, f"machine {key} already has an operation"
        self._by_machine[key] = operation
        if operation.cluster:
            self._by_cluster.setdefault(operation.cluster, {})[key] = operation

    def remove(self, operation: Operation) -> None:
        key = operation.machine.key
        del self._by_machine[key]
        if operation.cluster:
            members = self._by_cluster[operation.cluster]
            del members[key]
            if not members:
                del self._by_cluster[operation.cluster]
