"""Hosts a provider has said it will take: drained shortly before, replaced, and given back once they are empty."""

from __future__ import annotations

from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import ActionKind
from bigfleet.model.machine import CallKind
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.state.enum_aliases import CONFIGURED, IDLE
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import INTERRUPTION, Operation
from bigfleet.shard.core.state.state import ShardState

# A drain because of a notice begins so long before the host goes, which is what spot markets give.
NOTICE = 120 * SECOND


class Notices:
    """Acts on notices as sightings repeat them; remembers none."""

    def __init__(self, state: ShardState, executor: Executor, rereads: Rereads) -> None:
        self._state = state
        self._executor = executor
        self._rereads = rereads
        self._policy = state.config.policy()

    def heard(self, record: Record, taken_at: int) -> None:
        """The provider announced that it takes the host away: its pods leave in the time before, not in the crash."""
        state = self._state
        if not record.owned or not state.now < taken_at:
            return
        if record.state == IDLE:
            self._let_go(record, taken_at)
        if record.state != CONFIGURED:
            return
        begins = taken_at - NOTICE
        if state.now < begins or state.halted or state.operations.on(record.key) is not None:
            self._rereads.ask(record.provider, record.id, max(begins, state.now + state.config.reconcile_interval))
            return
        grace = min(taken_at - state.now, state.config.reclaim_grace) // SECOND
        # Once drained nobody is to take it for the little time it has left.
        state.rest_machine(record, taken_at)
        self._executor.begin_drain(
            Operation(
                machine=record,
                # Not a reclaim: demand that is still there must not take it back.
                kind=ActionKind.PREEMPT,
                call=CallKind.DRAIN,
                cluster=record.cluster,
                grace_seconds=max(1, grace),
                reason=INTERRUPTION,
            )
        )

    def _let_go(self, record: Record, taken_at: int) -> None:
        """Nobody is to take a machine for the little time it has left, so nobody is to pay for it either."""
        state, key = self._state, record.key
        if not state.resting(key):
            state.rest_machine(record, taken_at)
        busy = state.operations.on(key) is not None or state.machine_rests.resting(key, state.now)
        if busy or state.halted or self._executor.refusals.standoffs.stopped(record.provider):
            return
        kept = self._policy.idle_hold_ns(record.provider, record.shape.capacity_type) == 0
        if not kept and record.provider not in self._executor.failed_calls.cannot_delete:
            self._executor.begin(
                Operation(machine=record, kind=ActionKind.DELETE, call=CallKind.DELETE, reason=INTERRUPTION)
            )
