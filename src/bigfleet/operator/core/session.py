"""One cluster's side of the session protocol, for every operator we play.

`handle(event, now)` returns what the shell must do. Greeting, roll-ups, node reports, bootstrap answers, drains,
closing nodes, back-off and referrals are decided here and nowhere else; rows, pods and bytes never pass through.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec import Struct

from bigfleet.model.names import DRAIN_REPORTS, NODE_REPORTS, PLACEMENT
from bigfleet.operator.core import frames
from bigfleet.operator.core.drains import Anywhere, Drains, Placement, ResumedDrain
from bigfleet.operator.core.events import (
    SECOND,
    BootstrapRendered,
    CacheChanged,
    CloseNode,
    Connected,
    DemandGrew,
    Dial,
    Disconnected,
    DrainCause,
    Event,
    EvictionEnded,
    Instruction,
    KeepShard,
    LoseNode,
    NodeGone,
    NodesChanged,
    Received,
    RenderBootstrap,
    ReopenNodes,
    ReportNodes,
    RollupAnswered,
    Say,
    SendRollup,
    Started,
    TimerDue,
)
from bigfleet.operator.core.pacing import EARLY_INTERVAL, RollupPace
from bigfleet.operator.core.redial import Pauses, Redial

ROLLUP_INTERVAL = 10 * SECOND
UNCLAIMED_AFTER = 30 * SECOND
REOPENED_AFTER = 60 * SECOND


class SessionSettings(Struct, frozen=True):
    """Who this operator is. `complete`: whether its view of the cluster is complete from the start."""

    cluster: str
    capabilities: frozenset[str] = frozenset()
    address: str = ""
    bound_shard_id: str = ""
    rollup_interval: int = ROLLUP_INTERVAL
    complete: bool = False


class Session:
    """At most one stream at a time, one after the other."""

    def __init__(
        self,
        settings: SessionSettings,
        pauses: Pauses,
        *,
        placement: Placement | None = None,
        resumed: Iterable[ResumedDrain] = (),
    ) -> None:
        can = settings.capabilities
        self.cluster = settings.cluster
        self.capabilities = can
        self.session: int | None = None
        self.bound_shard_id = settings.bound_shard_id
        self._shard_id = ""
        self._drains = Drains(reports=DRAIN_REPORTS in can, placement=placement or Anywhere(), resumed=resumed)
        self._redial = Redial(settings.address, pauses)
        self._pace = RollupPace(settings.rollup_interval, complete=settings.complete, gathers=PLACEMENT in can)
        self._reports_nodes = NODE_REPORTS in can or PLACEMENT in can
        self._nodes_told: int | None = None
        self._nodes_due: int | None = None
        self._rendering: set[str] = set()
        self._claim_by: int | None = None
        self._reopen_by: int | None = None
        self._running = False

    def handle(self, event: Event, now: int) -> list[Instruction]:
        """What to do because of this; room for pods that wait may be seen whatever happens."""
        return [*self._handle(event, now), *self._drains.go_on(now)]

    def _handle(self, event: Event, now: int) -> list[Instruction]:
        match event:
            case Started():
                return self._started(now)
            case Connected():
                return self._connected(event, now)
            case Disconnected():
                self._disconnected(event, now)
                return []
            case Received(frame):
                return self._received(frame, self.session, now) if self.session is not None else []
            case CacheChanged(complete):
                self._pace.complete = complete
                return []
            case DemandGrew():
                self._pace.grew(now)
                return []
            case NodesChanged():
                self._nodes_changed(now)
                return []
            case BootstrapRendered(answer):
                return self._rendered(answer)
            case EvictionEnded(machine, error):
                return self._drains.eviction_ended(machine, error, self.session)
            case NodeGone(machine):
                return self._drains.node_gone(machine, self.session)
            case TimerDue():
                return self._timer_due(now)
            case _:
                assert_never(event)

    def next_timer(self) -> int | None:
        due = (
            self._redial.due,
            self._pace.due(),
            self._nodes_due,
            self._claim_by,
            self._reopen_by,
            self._drains.next_deadline(),
        )
        return min((at for at in due if at is not None), default=None)

    def draining(self) -> tuple[str, ...]:
        return self._drains.machines()

    def cause_of(self, machine: str) -> DrainCause | None:
        """Why the machine is being drained; None when it is not."""
        return self._drains.cause_of(machine)

    def drain_of(self, machine: str) -> ResumedDrain | None:
        """The drain of a machine as the cluster has to remember it; None when there is none."""
        return self._drains.kept(machine)

    def validate(self) -> None:
        """Raise AssertionError when the session contradicts itself; tests call it after every event."""
        self._pace.validate()
        if self.session is None:
            assert self._pace.in_flight is None, "a roll-up in flight without a stream"
            assert not self._rendering, "user data for a stream that is gone"
            assert self._claim_by is None, "drains wait for claims without a stream"
            assert self._nodes_due is None, "node reports without a stream"
        else:
            assert self._redial.due is None, "dialling beside an open stream"

    # --------------------------------------------------------------------------------------------------------- streams

    def _started(self, now: int) -> list[Instruction]:
        if self.session is None:
            self._redial.at_once(now)
        if self._running:
            return []
        self._running = True
        self._shard_away(now)
        return self._drains.resume()

    def _connected(self, opened: Connected, now: int) -> list[Instruction]:
        self.session = opened.session
        self._shard_id = opened.shard_id
        self._redial.dialled()
        self._pace.opened(now)
        self._rendering.clear()
        self._nodes_told = self._nodes_due = None
        draining = self._drains.machines()
        self._claim_by = now + UNCLAIMED_AFTER if draining else None
        hello = frames.Hello(
            cluster=self.cluster,
            capabilities=self.capabilities,
            bound_shard_id=self.bound_shard_id if self.capabilities else "",
            active_drains=draining if DRAIN_REPORTS in self.capabilities else (),
        )
        return [Say(opened.session, hello), *self._report_demand(now)]

    def _disconnected(self, gone: Disconnected, now: int) -> None:
        if self.session is not None:
            self._shard_away(now)
        self.session = self._claim_by = self._nodes_told = self._nodes_due = None
        self._pace.closed()
        self._rendering.clear()
        self._redial.ended(gone.end, gone.redirect, now)

    def _shard_away(self, now: int) -> None:
        if self._reopen_by is None and PLACEMENT in self.capabilities:
            self._reopen_by = now + REOPENED_AFTER

    def _greeted(self) -> list[Instruction]:
        self._redial.greeted()
        self._reopen_by = None
        if not self._shard_id or self._shard_id == self.bound_shard_id:
            return []
        self.bound_shard_id = self._shard_id
        return [KeepShard(self._shard_id)]

    # ---------------------------------------------------------------------------------------------------------- frames

    def _received(self, frame: frames.FromShard, session: int, now: int) -> list[Instruction]:
        match frame:
            case frames.HelloAck():
                return self._greeted()
            case frames.RollupAck():
                answered = self._pace.answered(frame.timestamp)
                return [] if answered is None else [RollupAnswered(answered, frame.outcome, frame.reason)]
            case frames.BootstrapRequest():
                if frame.request_id in self._rendering:
                    return []
                self._rendering.add(frame.request_id)
                return [RenderBootstrap(frame)]
            case frames.ReclaimInstruction():
                return self._drains.reclaim(frame, session, now)
            case frames.ReclaimCancel(instruction):
                return self._drains.cancel(instruction, session)
            case frames.NodeLost(machine):
                return [LoseNode(machine)]
            case frames.NodeClosing(machine, closing):
                return [CloseNode(machine, closing)]
            case _:
                assert_never(frame)

    def _rendered(self, answer: frames.BootstrapAnswer) -> list[Instruction]:
        # What an earlier stream asked for is asked again on this one, if it is still wanted.
        if self.session is None or answer.request_id not in self._rendering:
            return []
        self._rendering.remove(answer.request_id)
        return [Say(self.session, answer)]

    # --------------------------------------------------------------------------------------------------------- reports

    def _report_demand(self, now: int) -> list[Instruction]:
        """Nodes before demand: a shard that hears of free room after the demand would buy for both."""
        due = self._pace.due()
        if self.session is None or due is None or now < due:
            return []
        self._pace.sent(now)
        return [*self._report_nodes(now), SendRollup(self.session, now)]

    def _report_nodes(self, now: int) -> list[Instruction]:
        self._nodes_due = None
        if self.session is None or not self._reports_nodes:
            return []
        anew = self._nodes_told is None
        self._nodes_told = now
        return [ReportNodes(self.session, anew)]

    def _nodes_changed(self, now: int) -> None:
        # Before the first roll-up there is nothing to change: all reports go with it.
        if self._reports_nodes and self._nodes_told is not None and self._nodes_due is None:
            self._nodes_due = max(now, self._nodes_told + EARLY_INTERVAL)

    def _timer_due(self, now: int) -> list[Instruction]:
        out: list[Instruction] = []
        if self._redial.due is not None and now >= self._redial.due:
            self._redial.dialled()
            out.append(Dial(self._redial.address))
        out += self._drains.expire(self.session, now)
        if self._claim_by is not None and now >= self._claim_by:
            self._claim_by = None
            out += self._drains.undo_unclaimed(self.session)
        if self._reopen_by is not None and now >= self._reopen_by:
            self._reopen_by = None
            out.append(ReopenNodes())
        out += self._report_demand(now)
        if self._nodes_due is not None and now >= self._nodes_due:
            out += self._report_nodes(now)
        return out
