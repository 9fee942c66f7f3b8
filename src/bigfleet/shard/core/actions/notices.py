"""Hosts a provider has said it will take: drained in time, replaced while their pods run, given back once empty.

The drain begins a boot and a minute before the host goes, or at once when that is told later. Its pods lack room from
then on, so what replaces them is bought while they run; the cluster makes them leave when they have room elsewhere, and
in any case in time to end as they like to. A cluster that tells sums does not know who has room: there the pods leave
at once, two minutes before.
"""

from __future__ import annotations

from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import ActionKind
from bigfleet.model.machine import CallKind
from bigfleet.model.names import RECLAIM_CANCEL
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.state.enum_aliases import CONFIGURED, EVICTING, IDLE
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import INTERRUPTION, Operation, Stage
from bigfleet.shard.core.state.state import ShardState

# What spot markets give: in a cluster of sums the drain begins so long before.
NOTICE = 120 * SECOND
# The pods leave so long before at the latest: Kubernetes gives them half a minute to end, and asking takes its time.
LAST = 35 * SECOND
# Beyond a boot and what the pods need to leave: a cluster's look, its roll-up and a cycle.
HEARING = 25 * SECOND
# Never earlier than this: room that stays unused for five minutes is taken for none by the cluster.
LONGEST = 240 * SECOND


class Notices:
    """Acts on notices as sightings repeat them; remembers none."""

    def __init__(self, state: ShardState, executor: Executor, rereads: Rereads, placement: Placement) -> None:
        self._state = state
        self._executor = executor
        self._rereads = rereads
        self._placement = placement
        self._policy = state.config.policy()

    def heard(self, record: Record, taken_at: int) -> None:
        """The provider announced that it takes the host away then; 0: that it does not, or not any more."""
        state = self._state
        operation = state.operations.on(record.key)
        if not taken_at or self._longest(record) < taken_at - state.now:
            self._taken_back(operation)
        if not record.owned or not state.now < taken_at:
            return
        if record.state == IDLE:
            self._let_go(record, taken_at)
        if operation is not None and operation.reason == INTERRUPTION:
            # Begun by an earlier process, perhaps, which has forgotten that nobody is to take it.
            state.rest_machine(record, taken_at)
        if record.state == CONFIGURED:
            self._drain(record, taken_at)

    def _drain(self, record: Record, taken_at: int) -> None:
        state = self._state
        early = state.now < taken_at - self._lead(record)
        if early or state.halted or state.operations.on(record.key) is not None:
            again = max(taken_at - self._longest(record), state.now + state.config.reconcile_interval)
            self._rereads.ask(record.provider, record.id, again)
            return
        grace = min(taken_at - state.now, state.config.reclaim_grace)
        # Once drained nobody is to take it for the little time it has left.
        state.rest_machine(record, taken_at)
        self._executor.begin_drain(
            Operation(
                machine=record,
                # Not a reclaim: demand that is still there must not take it back.
                kind=ActionKind.PREEMPT,
                call=CallKind.DRAIN,
                cluster=record.cluster,
                grace_seconds=max(1, grace // SECOND),
                evict_by=state.now + max(0, grace - LAST),
                reason=INTERRUPTION,
            )
        )

    def _taken_back(self, operation: Operation | None) -> None:
        """Nobody takes the host for now: what has not left yet stays, where the cluster can still be told."""
        if operation is None or not operation.is_drain or operation.reason != INTERRUPTION:
            return
        session = self._state.sessions.of(operation.cluster)
        told = operation.stage == EVICTING and session is not None and session.can(RECLAIM_CANCEL)
        if told or operation.stage == Stage.AWAY:
            self._executor.cancel_drain(operation, "the provider does not take the host for now")

    def _lead(self, record: Record) -> int:
        """How long before its host goes a machine is drained."""
        return self._longest(record) if self._placement.reports_placement(record.cluster) else NOTICE

    def _longest(self, record: Record) -> int:
        """The same where pods may run on. A restarted shard does not know of its clusters yet: no drain is too early
        that began within this."""
        policy = self._policy.placement
        return min(policy.boot_by_provider.get(record.provider, policy.boot_ns) + LAST + HEARING, LONGEST)

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
