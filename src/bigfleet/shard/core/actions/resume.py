"""After a restart: what the journal says was under way, picked up as each machine is seen for the first time.

The provider's word comes first. A purchase the provider never heard of is made again under the same intent; anything
it is at work on is waited for; anything else is dropped and the engine decides anew.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.engine.batches import Shape
from bigfleet.engine.results import ActionKind
from bigfleet.model.machine import CallKind, MachineState
from bigfleet.shard.contract.events import JournalState, Table
from bigfleet.shard.core.actions import intents
from bigfleet.shard.core.actions.drains import JournalledDrain
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.actions.intents import Intent
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import Operation
from bigfleet.shard.core.state.state import ShardState

# What a journalled intent is worth when its machine is seen in this state: the call that is under way.
_UNDER_WAY = {
    (ActionKind.PROVISION, MachineState.CREATING): CallKind.CREATE,
    (ActionKind.PROVISION, MachineState.CONFIGURING): CallKind.CONFIGURE,
    (ActionKind.BOOTSTRAP, MachineState.CONFIGURING): CallKind.CONFIGURE,
    (ActionKind.DELETE, MachineState.DELETING): CallKind.DELETE,
}
_FREED = frozenset({MachineState.IDLE, MachineState.SPECULATIVE, MachineState.DELETING})


class Resume:
    """Journalled intents and drains that have not been looked at yet."""

    def __init__(
        self,
        state: ShardState,
        executor: Executor,
        boot: JournalState,
        expect: Callable[[str, Shape], Record | None],
        refused: Callable[[Operation], None] = lambda operation: None,
        given_back: Callable[[str], None] = lambda machine: None,
    ) -> None:
        self._state = state
        self._expect = expect
        self._refused = refused
        self._given_back = given_back
        self._executor = executor
        self._intents = intents.read(boot.rows)
        kept = {(Table.INTENT, key) for key in self._intents} | {
            (Table.DRAIN, key) for key in executor.drains.journalled
        }
        self._unreadable = [row for row in boot.rows if row[0] in (Table.INTENT, Table.DRAIN) and row not in kept]

    def __call__(self, record: Record) -> None:
        """A machine was seen for the first time."""
        key = f"{record.provider}/{record.id}"
        drain = self._executor.drains.journalled.pop(key, None)
        intent = self._intents.pop(key, None)
        if drain is not None and not (record.owned and self._drain(record, drain)):
            self._state.turn.erase(Table.DRAIN, key)
        if intent is not None and (drain is not None or not (record.owned and self._intent(record, intent))):
            self._state.turn.erase(Table.INTENT, key)

    def finish(self, provider: str) -> None:
        """The provider has been listed: rows about machines it did not name are of no use."""
        prefix = f"{provider}/"
        for key in [key for key in self._intents if key.startswith(prefix)]:
            intent = self._intents.pop(key)
            if not self._unseen(key.removeprefix(prefix), intent):
                self._state.turn.erase(Table.INTENT, key)
        for key in [key for key in self._executor.drains.journalled if key.startswith(prefix)]:
            del self._executor.drains.journalled[key]
            self._state.turn.erase(Table.DRAIN, key)
        for row in self._unreadable:
            self._state.turn.erase(*row)
        self._unreadable = []

    def _unseen(self, id: str, intent: Intent) -> bool:
        """Wait for a purchase of the earlier process that its provider does not show yet, as that process would."""
        visibility, shape = self._executor.visibility, intents.shape_of(intent)
        until = intent.asked + visibility.window
        if intent.kind != ActionKind.PROVISION or shape is None or self._state.now >= until:
            return False
        record = self._expect(id, shape)
        if record is None or not record.owned:
            return False
        self._executor.rejoin(_operation(record, intent, CallKind.CREATE))
        visibility.acknowledged(record.key, intent.asked)
        return True

    def _intent(self, record: Record, intent: Intent) -> bool:
        call = _UNDER_WAY.get((intent.kind, record.state))
        unheard = intent.kind == ActionKind.PROVISION and record.state == MachineState.SPECULATIVE
        operation = _operation(record, intent, call or CallKind.CREATE)
        if call == CallKind.CONFIGURE and record.cluster != intent.cluster:
            return False
        if call is not None:
            self._executor.rejoin(operation)
        elif unheard and self._state.now < intent.deadline:
            self._executor.begin(operation)
        else:
            return False
        return True

    def _drain(self, record: Record, drain: JournalledDrain) -> bool:
        if record.cluster != drain.cluster:
            if record.state in _FREED:
                # It went while nobody watched.
                self._given_back(record.key)
            return False
        operation = Operation(
            machine=record,
            kind=drain.kind,
            call=CallKind.DRAIN,
            cluster=drain.cluster,
            grace_seconds=drain.grace_seconds,
            preemptor_priority=drain.preemptor_priority,
            reason=drain.reason,
            cycle=drain.cycle,
            instruction_id=drain.instruction_id,
            grace_ends=drain.grace_ends,
            voluntary=drain.voluntary,
            evict_by=drain.evict_by,
        )
        if drain.refused and record.state == MachineState.CONFIGURED:
            self._refused(operation)
            return False
        if record.state == MachineState.DRAINING:
            self._executor.rejoin(operation)
        elif record.state == MachineState.CONFIGURED:
            self._executor.begin_drain(operation, evicted=drain.evicted)
        else:
            return False
        return True


def _operation(record: Record, intent: Intent, call: CallKind) -> Operation:
    return Operation(
        machine=record,
        kind=intent.kind,
        call=call,
        cluster=intent.cluster,
        fingerprint=intent.fingerprint,
        group=intent.group,
        min_unit=intent.min_unit,
        offered=intents.shape_of(intent),
        reason=intent.reason,
        cycle=intent.cycle,
        # The earlier process may have called: only the provider can say how that ended.
        ambiguous=True,
    )
