"""Carries out operations: from a decision to the provider's last word, at most one per machine.

Theory of operation. A machine moves to its transitional state the moment the operation begins, so the next step sees
it, and the intent is journalled before any call. Answers of calls and sightings by reconcile are judged alike
(`PASSAGES` of the model): the state before the call, the one in which the provider works, the one in which it is
done. What fails ends as Failed with an error and is looked at again; the provider's word brings it back. What no
provider has heard of is simply called off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bigfleet.engine.batches import Stamp
from bigfleet.engine.policy import SECOND
from bigfleet.model.machine import PASSAGES
from bigfleet.shard.contract.events import CallDone, CallFailed, Failure, JournalState, ListedMachine
from bigfleet.shard.contract.outcomes import Outcome
from bigfleet.shard.core.actions import intents
from bigfleet.shard.core.actions.away import Away
from bigfleet.shard.core.actions.bootstrap import Bootstraps
from bigfleet.shard.core.actions.call_queue import TIMER, Calls
from bigfleet.shard.core.actions.drains import Drains
from bigfleet.shard.core.actions.endings import Endings, Finished
from bigfleet.shard.core.actions.failed_calls import FailedCalls, time_allowed
from bigfleet.shard.core.actions.refusals import Refusals
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.clusters.nodes import Nodes
from bigfleet.shard.core.machines.as_offered import AsOffered
from bigfleet.shard.core.machines.departures import Departures
from bigfleet.shard.core.machines.failures import LocalFailures
from bigfleet.shard.core.machines.intake import flaw_of
from bigfleet.shard.core.machines.lifecycle import Lifecycle
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.machines.stamps import stamp_of
from bigfleet.shard.core.machines.visibility import Visibility
from bigfleet.shard.core.state.backoff import kind_of
from bigfleet.shard.core.state.enum_aliases import (
    AWAITING,
    BOOTSTRAP,
    CONFIGURE,
    CONFIGURED,
    CONFIGURING,
    CREATE,
    CREATING,
    DELETING,
    DONE,
    DRAIN,
    DRAINING,
    FAILED,
    IDLE,
    PROVISION,
    QUEUED,
    SPECULATIVE,
)
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.ids import IdSource
from bigfleet.shard.core.state.operations import DRAINS, INTERRUPTION, Operation, Stage
from bigfleet.shard.core.state.state import ShardState

REJECTED: Final = "bigfleet_shard_machines_rejected_total"
RELEASES: Final = "bigfleet_shard_idle_releases_total"
CONFIGURE_PHASE: Final = "bigfleet_shard_configure_phase_seconds"
DRAIN_PHASE: Final = "bigfleet_shard_drain_phase_seconds"

_DRAINS: Final = {kind: kind.name.lower() for kind in DRAINS}

Refused = Callable[[Operation], None]

# Machines under way that are looked at one by one; beyond that the next List tells.
POLLED_AT_ONCE = 256


class Executor:
    """Operations and everything that can happen to them. `finished(op, outcome, detail)` hears how each one ends."""

    def __init__(
        self,
        state: ShardState,
        lifecycle: Lifecycle,
        nodes: Nodes,
        demand: Demand,
        rereads: Rereads,
        boot: JournalState,
        as_offered: AsOffered,
        finished: Finished,
        refused: Refused = lambda operation: None,
        undrained: Callable[[str], None] = lambda machine: None,
        departed: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._demand = demand
        self._rereads = rereads
        self._as_offered = as_offered
        self._refused = refused
        self._undrained = undrained
        ids = IdSource(state.config.id, boot.epoch)
        self.failures = LocalFailures(state.config.stuck_hold)
        self.visibility = Visibility(state)
        self.departures = Departures(state, lifecycle, self.failures, self.visibility, departed)
        self.endings = Endings(state, lifecycle, rereads, self.failures, self._let_go, finished)
        self.calls = Calls(state, self._still_valid, lambda provider: self.refusals.standoffs.stopped(provider))
        self.refusals = Refusals(state, self.calls, rereads, self.endings.back, self.call_off_if_unsent)
        self.away = Away(state, self.refusals.standoffs.stopped, self.endings.back)
        self.failed_calls = FailedCalls(
            state, self.calls, self.refusals, self.away, self.visibility, self.departures, self.endings
        )
        self.bootstraps = Bootstraps(state, nodes, ids, self.calls.enqueue, self.endings.without_blob)
        self.drains = Drains(
            state, ids, boot.rows, self.calls.enqueue, self.endings.stuck, self.cancel_drain, self._drain_refused
        )

    # ------------------------------------------------------------------------------------------------------- beginning

    def begin(self, operation: Operation) -> None:
        """Move the machine, journal the intent, take the first step."""
        if operation.is_drain:
            self.begin_drain(operation)
            return
        record = operation.machine
        operation.began = self._state.now
        self._state.operations.add(operation)
        self._journal(operation)
        if operation.kind == PROVISION:
            stamp = Stamp(fingerprint=operation.fingerprint, group=operation.group)
            why = f"bought for {operation.cluster} ({operation.reason})"
            self._lifecycle.move(record, CREATING, why, cluster=operation.cluster, stamp=stamp, wake=False)
            self.calls.enqueue(operation)
        elif operation.kind == BOOTSTRAP:
            self._bind(operation)
        else:
            self._lifecycle.move(record, DELETING, f"released ({operation.reason})", wake=False)
            self.calls.enqueue(operation)

    def begin_drain(self, operation: Operation, *, evicted: bool = False) -> None:
        """Drain through the operator, or at the provider at once when the pods are known to be gone."""
        operation.began = self._state.now
        self._state.operations.add(operation)
        why = f"{_DRAINS[operation.kind]} ({operation.reason})"
        self._lifecycle.move(operation.machine, DRAINING, why, wake=False)
        if evicted:
            self.calls.enqueue(operation)
        else:
            self.drains.begin(operation)

    def rejoin(self, operation: Operation) -> None:
        """The provider is already at work on what an earlier process began: wait for the end."""
        record = operation.machine
        operation.began = self._state.now
        self._state.operations.add(operation)
        if operation.call == CREATE:
            stamp = Stamp(fingerprint=operation.fingerprint, group=operation.group)
            why = f"bought for {operation.cluster} by an earlier process"
            self._lifecycle.move(record, CREATING, why, cluster=operation.cluster, stamp=stamp)
        self._await(operation)

    def adopt(self, operation: Operation) -> None:
        """Take over a purchase under way that nobody remembers making."""
        self._journal(operation)
        self.rejoin(operation)

    def _bind(self, operation: Operation) -> None:
        """Idle → Configuring, and ask for the user data."""
        assert operation.profile is not None
        stamp = stamp_of(operation.profile, operation.group)
        why = f"bound to {operation.cluster} ({operation.reason})"
        operation.call = CONFIGURE
        operation.attempts, operation.ambiguous, operation.error = 0, False, ""
        operation.began = self._state.now
        self._lifecycle.move(operation.machine, CONFIGURING, why, cluster=operation.cluster, stamp=stamp, wake=False)
        self.bootstraps.begin(operation)

    def _journal(self, operation: Operation, *, acknowledged: bool = False) -> None:
        config = self._state.config
        longest = config.transition_timeout(CREATE) + config.transition_timeout(CONFIGURE) + config.bootstrap_timeout
        now = self._state.now
        intents.write(self._state.turn, operation, now + longest, now, lazy=acknowledged)

    # --------------------------------------------------------------------------------------------------------- answers

    def call_done(self, event: CallDone) -> None:
        operation = self.calls.answered(event.op)
        if operation is None:
            return
        record, listed = operation.machine, event.record
        self.calls.heard(record.shape.provider, alive=True)
        self.away.heard(record.shape.provider)
        self.refusals.taken(operation)
        self.refusals.standoffs.accepted(record.key)
        self._state.answered[record.key] = self._state.now
        flaw = flaw_of(listed, record.shape)
        if flaw is not None or listed.id != record.id:
            reason = "structural" if flaw is None else flaw.reason
            detail = f"it is about machine {listed.id!r}" if flaw is None else flaw.detail
            self._state.turn.count(REJECTED, reason)
            self.endings.fail(operation, Outcome.PROVIDER_ERROR, f"ack rejected: {detail}")
            return
        self._lifecycle.refresh(record, listed.shape, listed.host or None)
        self._acknowledged(operation)
        self._as_offered.arriving(operation)
        if listed.state == PASSAGES[operation.call].before:
            raced = operation.call == CONFIGURE
            outcome = Outcome.RACED_TO_IDLE if raced else Outcome.TRANSITION_ERROR
            self.endings.fail(operation, outcome, f"the provider acknowledged it and shows {listed.state.label}")
        elif not self._advance(operation, listed):
            self.endings.fail(operation, Outcome.TRANSITION_ERROR, f"the provider shows {_seen(listed)}")

    def _acknowledged(self, operation: Operation) -> None:
        """A purchase the provider took may take its time to be seen; any other answer is a sighting."""
        if operation.call == CREATE:
            self.visibility.acknowledged(operation.machine.key, self._state.now)
            self._journal(operation, acknowledged=True)
        else:
            self.visibility.ends(operation.machine.key)

    def call_failed(self, event: CallFailed) -> None:
        operation = self.calls.answered(event.op)
        if operation is not None:
            self.failed_calls.judge(operation, event.failure, event.error)

    def sighted(self, operation: Operation, listed: ListedMachine) -> bool:
        """A fresh provider record of a machine at work; False when it ended the operation and is to be adopted."""
        before = PASSAGES[operation.call].before
        if listed.state == before and operation.stage != AWAITING:
            self._lifecycle.refresh(operation.machine, listed.shape, listed.host)
            return True
        if listed.state != before:
            self._lifecycle.refresh(operation.machine, listed.shape, listed.host or None)
            unheard = operation.ambiguous and operation.stage != AWAITING
            self._as_offered.arriving(operation)
            if self._advance(operation, listed):
                if unheard:
                    # The provider took a call that it did not answer.
                    self.calls.answers(operation.machine.provider)
                return True
        if listed.state == before:
            self.endings.undone(operation, f"undone by the provider: {_seen(listed)}")
        else:
            self.endings.finish(operation, Outcome.STALE, f"{operation.call}: the provider shows {_seen(listed)}")
        return False

    def overtaken(self, operation: Operation, listed: ListedMachine, began: int) -> bool:
        """Whether a Get shows that the provider took the call in flight; if so its answer is not waited for."""
        _, during, after = PASSAGES[operation.call]
        mine = operation.call != CONFIGURE or listed.cluster == operation.cluster
        if began <= operation.sent or listed.state not in (during, after) or not mine:
            return False
        self.calls.abandon(operation)
        self.calls.heard(operation.machine.provider, alive=True)
        self._state.answered[operation.machine.key] = began
        return True

    def unseen(self, machine: str) -> None:
        """The visibility window of a machine is over."""
        why = self.visibility.overdue(machine)
        record = self._state.fleet.machines.get(machine)
        if not why or record is None:
            return
        operation = self._state.operations.on(machine)
        self._state.breakers.failed(kind_of(record.shape), self._state.now, why)
        self._state.machine_rests.failed(machine, self._state.now, why)
        if operation is not None:
            self.lost(operation, Outcome.PROVIDER_ERROR, f"{CREATE}: {why}")
        self.departures.gone(record, why)

    def lost(self, operation: Operation, outcome: Outcome, detail: str) -> None:
        """The machine is gone from under the operation."""
        self.endings.finish(operation, outcome, detail)

    def overdue(self, machine: str) -> None:
        """The timer of a machine's operation fired."""
        operation = self._state.operations.on(machine)
        if operation is None:
            return
        match operation.stage:
            case Stage.CALLING if self.calls.only_slow(operation):
                self._rereads.ask(operation.machine.provider, operation.machine.id, self._state.now)
            case Stage.CALLING:
                self.calls.abandon(operation)
                self.failed_calls.judge(operation, Failure.DEADLINE, "no answer")
            case Stage.RETRYING:
                self.calls.enqueue(operation)
            case Stage.AWAITING:
                allowed = time_allowed(operation, self._state) // SECOND
                self.endings.fail(operation, Outcome.TIMED_OUT, f"not finished within {allowed}s")
            case Stage.BLOB:
                self.bootstraps.expire(operation)
            case Stage.AWAY | Stage.EVICTING:
                self.drains.overdue(operation)
            case _:
                pass

    def _advance(self, operation: Operation, listed: ListedMachine) -> bool:
        """Follow the provider along the operation's journey; False when it is somewhere else."""
        _, during, after = PASSAGES[operation.call]
        mine = operation.call != CONFIGURE or listed.cluster == operation.cluster
        if listed.state == FAILED:
            self.endings.provider_failed(operation, listed)
        elif listed.state == during and mine:
            self._await(operation)
        elif listed.state == after and mine:
            self._complete(operation, listed)
        else:
            return False
        return True

    def _await(self, operation: Operation) -> None:
        self._poll(operation)
        if operation.stage == AWAITING:
            return
        self.bootstraps.forget(operation)
        operation.to(AWAITING)
        due = self._state.now + time_allowed(operation, self._state)
        self._state.timers.arm(TIMER, operation.machine.key, due)

    def _poll(self, operation: Operation) -> None:
        """Look again before the next List does, while few enough are under way that single Gets are cheap."""
        config, record = self._state.config, operation.machine
        if config.transition_poll_interval and len(self._rereads) < POLLED_AT_ONCE:
            wait = min(config.transition_poll_interval << min(operation.polls, 10), config.reconcile_interval)
            operation.polls += 1
            self._rereads.ask(record.provider, record.id, self._state.now + wait)

    def _complete(self, operation: Operation, listed: ListedMachine) -> None:
        state, record = self._state, operation.machine
        state.machine_rests.succeeded(record.key)
        self.failures.settled(record.key)
        call = operation.call
        if call == CREATE:
            if not operation.otherwise:
                state.breakers.succeeded(kind_of(record.shape))
            self.refusals.stockouts.bought(record.shape)
            self._lifecycle.move(record, IDLE, "host attached", host=listed.host)
            self._go_on_binding(operation)
            return
        if call == CONFIGURE:
            self._lifecycle.move(record, CONFIGURED, "node ready", host=listed.host)
            state.turn.observe(CONFIGURE_PHASE, state.now - operation.began)
            state.need_rests.succeeded((operation.cluster, operation.fingerprint))
            self._demand.came_up(operation.cluster, operation.fingerprint)
        elif call == DRAIN:
            self._lifecycle.move(record, IDLE, "drained", host=listed.host or None)
            if operation.reason == INTERRUPTION:
                # What is left of the notice is nobody's: reconcile gives it back when it sees it so.
                self._rereads.ask(record.provider, record.id, state.now)
            state.turn.observe(DRAIN_PHASE, state.now - operation.began)
        else:
            self._lifecycle.move(record, SPECULATIVE, "host released", host="")
            state.turn.count(RELEASES)
        self.endings.finish(operation, Outcome.SUCCESS, "")

    def _go_on_binding(self, operation: Operation) -> None:
        """A bought machine has its host: bind it for the same need if that still stands, else leave it Idle."""
        need = (operation.cluster, operation.fingerprint)
        operation.profile = operation.profile or self._demand.profile(*need)
        if self._state.halted:
            self.endings.finish(operation, Outcome.SUPPRESSED, "actuation was paused")
        elif not self._demand.may_acquire(operation.cluster) and not self._state.config.local_bootstrap:
            self.endings.finish(operation, Outcome.NO_SESSION, f"cluster {operation.cluster} has no live session")
        elif self._demand.profile(*need) is None or operation.profile is None:
            self.endings.finish(operation, Outcome.STALE, "nobody asks for it any more")
        elif self._state.need_rests.resting(need, self._state.now):
            self.endings.finish(
                operation, Outcome.BLOB_ERROR, "the cluster cannot bootstrap this profile at the moment"
            )
        elif why := self._as_offered.arriving(operation):
            self.endings.finish(operation, Outcome.TRANSITION_ERROR, why)
        else:
            self._bind(operation)

    # ---------------------------------------------------------------------------------------------------------- ending

    def call_off(self, operation: Operation, outcome: Outcome, detail: str) -> None:
        """Stop before a provider was asked; the machine is what it was."""
        assert operation.untouched, f"{operation} has been sent to the provider"
        self.endings.back(operation, outcome, detail)

    def call_off_if_unsent(self, operation: Operation, outcome: Outcome, detail: str) -> None:
        """Stop what can be stopped; what the provider is at work on, or an operator cannot take back, goes on."""
        if operation.stage == Stage.EVICTING and not self.drains.cancellable(operation):
            return
        if operation.untouched or operation.stage == Stage.RETRYING:
            if operation.is_drain:
                self.drains.tell_cancelled(operation)
            self.endings.back(operation, outcome, detail)

    def cancel_drain(self, operation: Operation, why: str = "the drain was taken back") -> None:
        """Demand returned, the host stays after all, or the operator took it back: the machine stays where it is."""
        self.drains.tell_cancelled(operation)
        self.endings.back(operation, Outcome.CANCELLED, why)
        self._undrained(operation.machine.key)

    def _drain_refused(self, operation: Operation, why: str) -> None:
        """The cluster keeps the machine: some of its pods would find no room."""
        self._refused(operation)
        self.endings.back(operation, Outcome.REFUSED, f"the cluster refused{f': {why}' if why else ''}")

    def _let_go(self, operation: Operation) -> None:
        """It has ended: no answer is waited for any more, from a provider or from an operator."""
        self.calls.abandon(operation)
        self.bootstraps.forget(operation)

    # ------------------------------------------------------------------------------------------------------ validation

    def _still_valid(self, operation: Operation) -> bool:
        """Asked when an operation's turn for a call has come."""
        state, now = self._state, self._state.now
        if operation.call == CONFIGURE and operation.blob_expires and now >= operation.blob_expires:
            self.bootstraps.begin(operation)
            return False
        if not operation.untouched:
            return True
        wanted = operation.call in (CREATE, CONFIGURE)
        cluster = self._demand.clusters.get(operation.cluster)
        if not operation.machine.owned:
            self.call_off(operation, Outcome.STALE, "the machine is not this shard's any more")
        elif wanted and cluster is not None and operation.fingerprint not in cluster.profiles:
            self.call_off(operation, Outcome.STALE, "nobody asks for it any more")
        elif operation.call == CREATE and state.breakers.resting(kind_of(operation.machine.shape), now):
            self.call_off(operation, Outcome.STALE, "purchases of this kind are paused")
        elif operation.call == CREATE and (why := self._as_offered.left_alone(operation)):
            self.call_off(operation, Outcome.STALE, why)
        else:
            return True
        return False

    def validate(self) -> None:
        self.calls.validate()
        self.bootstraps.validate()
        for operation in self._state.operations:
            record = operation.machine
            key = record.key
            assert self._state.fleet.machines.get(key) is record, f"operation on {key}, which is not in the fleet"
            assert record.state == PASSAGES[operation.call].during, (
                f"{key} is {record.state.label} during {operation.call}"
            )
            assert operation.stage not in (Stage.NEW, DONE), f"operation on {key} is {operation.stage.name}"
            armed = self._state.timers.due_at(TIMER, key) is not None
            assert armed or operation.stage == QUEUED, f"operation on {key} waits without a timer"
            assert operation.cluster == record.cluster, (
                f"{key} is {record.cluster}'s, its operation {operation.cluster}'s"
            )


def _seen(listed: ListedMachine) -> str:
    return listed.state.label + (f" of {listed.cluster}" if listed.cluster else "")
