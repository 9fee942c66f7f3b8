"""The shard as one state machine: events go in, instructions come out, nothing in here waits, sends or knows the time.

Theory of operation. `handle(event, now)` gives the event to the part that owns it, then lets everything that became
possible happen: calls go out, Gets start, a step is taken when it is due. The shell performs the returned
instructions in order, calls `handle(TimerDue(), now)` when `next_timer()` has come, runs engine steps and answers
with `StepDone`. The simulator does the same on a virtual clock. `start(now)` comes first; after a restart a new core
is made from the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import assert_never

from bigfleet.model.names import REFERRALS
from bigfleet.shard.contract.config import ShardConfig
from bigfleet.shard.contract.events import (
    BootstrapAnswered,
    CallDone,
    CallFailed,
    CloseCode,
    CloseSession,
    ClusterForgotten,
    CoordinatorAnswered,
    DrainReported,
    Event,
    HelloRepeated,
    Instruction,
    JournalState,
    ListArrived,
    ListFailed,
    MachineRead,
    NodeReported,
    RailsSet,
    ReadFailed,
    ReclaimAcked,
    ReportNow,
    RollupReceived,
    SendFrame,
    SessionClosed,
    SessionOpened,
    SessionWritable,
    StepDone,
    TimerDue,
)
from bigfleet.shard.contract.outcomes import Level, Outcome
from bigfleet.shard.contract.shortfalls import Short, shorts
from bigfleet.shard.core.actions.call_queue import LANE_TIMER
from bigfleet.shard.core.actions.call_queue import TIMER as OPERATION_TIMER
from bigfleet.shard.core.actions.consolidation import Consolidation
from bigfleet.shard.core.actions.emission import Emission
from bigfleet.shard.core.actions.empty_first import Twins
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.actions.forgetting import Forgetting
from bigfleet.shard.core.actions.resume import Resume
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.clusters.hints import Hints
from bigfleet.shard.core.clusters.nodes import Nodes
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.clusters.refused_rows import REJECTED_AS
from bigfleet.shard.core.coordination.arrivals import Arrivals
from bigfleet.shard.core.coordination.bindings import Bindings
from bigfleet.shard.core.coordination.coordination import Coordination
from bigfleet.shard.core.coordination.cross_drains import CrossDrains
from bigfleet.shard.core.coordination.ownership import Ownership
from bigfleet.shard.core.coordination.releases import Releases
from bigfleet.shard.core.cycle import TIMER as CYCLE_TIMER
from bigfleet.shard.core.cycle import Cycle
from bigfleet.shard.core.machines.as_offered import AsOffered
from bigfleet.shard.core.machines.departures import WATCH
from bigfleet.shard.core.machines.lifecycle import Lifecycle
from bigfleet.shard.core.machines.rereads import TIMER as REREAD_TIMER
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.machines.visibility import TIMER as VISIBILITY_TIMER
from bigfleet.shard.core.published import Published
from bigfleet.shard.core.rails import CapEpisode, Rails
from bigfleet.shard.core.readmodel import LastStep, ReadModel
from bigfleet.shard.core.reconcile import TIMER as LIST_TIMER
from bigfleet.shard.core.reconcile import Reconcile
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.outbox import Renderer
from bigfleet.shard.core.state.sessions import Session
from bigfleet.shard.core.state.state import ShardState


class ShardCore:
    """Everything a shard decides."""

    def __init__(self, config: ShardConfig, boot: JournalState) -> None:
        state = self.state = ShardState(config, boot)
        self.placement = Placement(state, boot)
        self.nodes = Nodes(state, self.placement)
        self.rails = Rails(state, boot)
        self.ownership = Ownership(state, boot)
        self.demand = Demand(state, boot, self.placement)
        self.rereads = Rereads(state)
        self.consolidation = Consolidation(state, self.demand, self.nodes, self.placement, boot)
        twins = Twins(state, self.nodes, self.demand, self.placement)
        self.emission = Emission(state, self.demand, twins, self.placement, self.consolidation)
        lifecycle = Lifecycle(state, self.nodes)
        self.executor = Executor(
            state,
            lifecycle,
            self.nodes,
            self.demand,
            self.rereads,
            boot,
            AsOffered(state, self.demand, self.placement),
            finished=self.emission.ended,
            refused=self.consolidation.refused,
            undrained=self.consolidation.undrained,
            departed=self.ownership.gone,
        )
        moves = self.consolidation.moves
        drains = CrossDrains(state, self.executor, self.nodes, moves, boot)
        releases = Releases(state, self.ownership, moves, boot, drains.keeps)
        self.bindings = Bindings(state, self.demand, boot)
        arrivals = Arrivals(state, self.rereads)
        self.coordination = Coordination(state, self.ownership, releases, drains, self.bindings, arrivals, boot)
        self.resume = Resume(
            state,
            self.executor,
            boot,
            expect=lambda id, shape: self.reconcile.expect(id, shape),
            refused=self.consolidation.refused,
            given_back=moves.given_back,
        )
        self.reconcile = Reconcile(
            state, lifecycle, self.ownership, self.executor, self.rereads, self.placement, resume=self._appeared
        )
        self.forgetting = Forgetting(
            state, self.executor, self.demand, moves, boot, may_act=lambda: self.reconcile.settled
        )
        self.hints = Hints(state, self.demand)
        self._frames = Renderer(
            self.nodes.render, self.hints.render, self.nodes.members, self.executor.bootstraps.still_wanted
        )
        self.cycle = Cycle(
            state,
            self.demand,
            self.executor,
            self.reconcile,
            self.rails,
            self.hints,
            self.placement,
            moves,
            victims=self.coordination.questions,
        )
        self._last = LastStep()
        self.read = ReadModel(
            state,
            self.nodes,
            self.rails,
            self.ownership,
            self.demand,
            self.rereads,
            self.emission,
            self.executor,
            self.reconcile,
            self.cycle,
            self._last,
            self.coordination,
            self.placement,
            self.consolidation,
            self.forgetting,
        )
        self._due: dict[str, Callable[[str], None]] = {
            OPERATION_TIMER: self.executor.overdue,
            LIST_TIMER: self.reconcile.begin,
            REREAD_TIMER: self.rereads.due,
            WATCH: self.reconcile.overdue,
            VISIBILITY_TIMER: self.executor.unseen,
            # Being awake is enough: calls and steps that are due follow every event.
            LANE_TIMER: lambda _: None,
            CYCLE_TIMER: lambda _: None,
        }
        self._cap = CapEpisode(state)
        self._escalated: frozenset[str] = frozenset()
        self._published: Published | None = None

    # ---------------------------------------------------------------------------------------------------------- driving

    def start(self, now: int) -> list[Instruction]:
        """The first call: begin to list the providers and arm the first cycle."""
        self.state.begin(now)
        self.cycle.start()
        self.reconcile.start()
        return self._end()

    def handle(self, event: Event, now: int) -> list[Instruction]:
        """One event; returns what to do about it, in order."""
        self.state.begin(now)
        self._give(event)
        return self._end()

    def next_timer(self) -> int | None:
        """When `TimerDue` is wanted at the latest."""
        return self.state.timers.next()

    def _end(self) -> list[Instruction]:
        if not self.state.halted:
            self.executor.calls.dispatch()
        if self.rereads.queued:
            self.rereads.dispatch()
        self.cycle.consider()
        self._published = None
        return self.state.turn.end()

    def _give(self, event: Event) -> None:
        """To whose business it is; the most frequent events first, because they are tried in this order."""
        match event:
            case CallDone():
                self.executor.call_done(event)
            case SessionWritable():
                self._write(event)
            case NodeReported():
                self.nodes.reported(event)
            case BootstrapAnswered():
                self.executor.bootstraps.answered(event)
            case StepDone():
                self._decided(event)
            case RollupReceived():
                self.demand.receive(event)
            case TimerDue():
                self._timers()
            case MachineRead():
                self.executor.away.heard(event.provider)
                self.reconcile.read(event)
                self.executor.refusals.answered(event.provider)
            case ListArrived():
                self._listed(event)
            case DrainReported():
                self.executor.drains.reported(event)
            case CallFailed():
                self.executor.call_failed(event)
            case ReclaimAcked():
                pass  # An operator that has begun to drain: nothing follows from it.
            case ListFailed():
                self.reconcile.failed(event)
                if event.limited:
                    self.executor.refusals.limits_calls(event.provider, event.error)
                else:
                    self.executor.away.list_failed(event.provider)
            case ReadFailed():
                self.reconcile.read_failed(event)
                if event.limited:
                    self.executor.refusals.limits_calls(event.provider, event.error)
            case SessionOpened():
                self._open(event)
            case HelloRepeated():
                self._greet(event)
            case SessionClosed():
                self._close(event)
            case RailsSet():
                self._switch(event)
            case ClusterForgotten():
                self.forgetting.begin(event, self.cycle.number)
            case CoordinatorAnswered():
                self._answered(event)
            case _:
                assert_never(event)

    def _listed(self, event: ListArrived) -> None:
        self.executor.away.heard(event.provider)
        self.reconcile.arrived(event)
        self.executor.refusals.answered(event.provider)
        if event.complete and event.full:
            self.resume.finish(event.provider)

    def _appeared(self, record: Record) -> None:
        self.coordination.appeared(record)
        self.resume(record)
        self.emission.foundlings.appeared(record)

    def _answered(self, event: CoordinatorAnswered) -> None:
        """The coordinator's word; its switches last, so that what it asks for is judged by those in force before."""
        if not self.coordination.heard(event):
            return
        if event.look and self.ownership.sightings.look(event.look, self.state.now):
            self.reconcile.look()
        for session in list(self.state.sessions):
            self._refer(session)
        if event.switches is not None:
            switches = event.switches
            who = switches.who or "coordinator"
            self._switch(RailsSet(switches.paused, switches.dry_run, who, switches.reason, from_coordinator=True))

    def _timers(self) -> None:
        while (timer := self.state.timers.take(self.state.now)) is not None:
            kind, key = timer
            self._due[kind](key)

    # --------------------------------------------------------------------------------------------------------- sessions

    def _greet(self, event: HelloRepeated) -> None:
        session = self.state.sessions.get(event.session)
        if session is not None:
            self.state.sessions.greet(session)

    def _open(self, event: SessionOpened) -> None:
        self.forgetting.returned(event.cluster)
        session = self.state.sessions.open(event)
        self.nodes.stream_changed(session.cluster)
        self.placement.stream_changed(session.cluster, session)
        session.outbox.replay(self.nodes.members(session.cluster))
        self.executor.drains.connected(session)
        self.executor.bootstraps.reissue(session)
        self.demand.connect(session)
        self._refer(session)
        self.hints.connected()
        self.state.sessions.wake(session)

    def _refer(self, session: Session) -> None:
        """Send a cluster of another shard there, once nothing binds it to this one and its operator can be sent."""
        address = self.bindings.referrals.get(session.cluster, "")
        if address and session.can(REFERRALS) and not self.state.fleet.serves(session.cluster):
            message = f"cluster {session.cluster} is served by another shard, at {address}"
            self.state.turn.emit(CloseSession(session.id, CloseCode.FAILED_PRECONDITION, message, address))

    def _close(self, event: SessionClosed) -> None:
        session = self.state.sessions.close(event.session, event.reason)
        if session is not None:
            self.nodes.stream_changed(session.cluster)
            self.placement.stream_changed(session.cluster)
            self.executor.drains.disconnected(session.cluster)
            self.demand.disconnect(session.cluster)
            self.hints.forget(session.cluster)

    def _write(self, event: SessionWritable) -> None:
        session = self.state.sessions.get(event.session)
        if session is None:
            return
        session.awake = False
        frames = session.outbox.take(
            session.cluster, max(1, event.limit), self._frames, lambda hint: self.hints.sent(session, hint)
        )
        for frame in frames:
            self.state.turn.emit(SendFrame(session.id, frame))
        self.state.sessions.wake(session)

    # -------------------------------------------------------------------------------------------------------- decisions

    def _decided(self, event: StepDone) -> None:
        if not self.cycle.done(event.step):
            return
        state, result = self.state, event.result
        last = self._last
        last.result, last.at, last.cycle = result, state.now, event.step
        self.demand.settle(result.rollups, result.refused)
        self.consolidation.aborted(self.executor, result.aborted)
        self.emission.carry_out(self.executor, result.actions.rows(), event.step)
        self.coordination.decided(result.victims, event.step)
        self.forgetting.go_on(event.step)
        short = shorts(result.shortfalls)
        last.shortfalls, last.short_total = short.items, short.total
        if not state.halted:
            self.emission.take_back_drains(self.executor, result.verdicts)
        self._tell(last.shortfalls, short.total)
        self._doubt(result.doubted)
        for reason, amount in sorted(result.rejected.items()):
            if reason == REJECTED_AS:
                # Rows: told by their cluster.
                continue
            state.turn.count("bigfleet_shard_machines_rejected_total", reason, amount=amount)
        self._cap.decided(result.capped)
        if result.deferred:
            state.turn.count("bigfleet_shard_actions_deferred_total", amount=result.deferred)
            state.ask_for_cycle()
        self.hints.update(result.available.rows())

    def _tell(self, shortfalls: tuple[Short, ...], total: int) -> None:
        if shortfalls:
            oldest = nsmallest(3, shortfalls, key=lambda short: (short.since, short.fingerprint))
            top = [short.fingerprint for short in oldest]
            self.state.turn.log(Level.WARNING, "shortfalls detected", count=total, top=top)
        escalated = frozenset(short.fingerprint for short in shortfalls if short.escalated)
        if escalated - self._escalated:
            self.state.turn.emit(ReportNow())
        self._escalated = escalated

    def _doubt(self, doubted: tuple[str, ...]) -> None:
        """Say once who is not believed: a rail that nobody knows of looks like a shard that does nothing."""
        before, self._last.doubted = self._last.doubted, frozenset(doubted)
        for cluster in sorted(self._last.doubted - before):
            self.state.turn.log(
                Level.WARNING,
                "cluster not believed: its nodes are used by what it says has no room; it gets nothing more",
                cluster=cluster,
            )
        for cluster in sorted(before - self._last.doubted):
            self.state.turn.log(Level.INFO, "cluster believed again", cluster=cluster)

    def _switch(self, event: RailsSet) -> None:
        if event.paused is False and not event.from_coordinator:
            self.executor.refusals.resolve()
        if not self.rails.set(event) or not self.state.halted:
            return
        for operation in list(self.state.operations):
            if operation.untouched:
                self.executor.call_off_if_unsent(operation, Outcome.SUPPRESSED, "actuation was paused")

    # ---------------------------------------------------------------------------------------------------------- reading

    @property
    def ready(self) -> bool:
        return self.reconcile.all_listed

    @property
    def published(self) -> Published:
        """The moment after the last event."""
        if self._published is None:
            self._published = self.read.publish()
        return self._published

    # --------------------------------------------------------------------------------------------------------- checking

    def validate(self) -> None:
        """Every invariant of the core; called after each event in tests."""
        self.state.fleet.validate()
        self.state.sessions.validate()
        self.executor.validate()
        self.placement.reports.validate()
        self.consolidation.moves.validate()
        timer = self.next_timer()
        assert self.cycle.running or timer is not None, "nothing would ever wake the core again"
