"""The operator's side of the session protocol, as far as capacity decisions depend on it.

Pure: `handle(input, now)` returns what the cluster and the stream must do. Hello announces capabilities and the drains
under way; demand is reported at once after connecting, at every interval, and early when it grew; bootstrap requests
are answered; reclaims cordon, evict and report. Drains nobody claims within 30 s of a reconnect are undone.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bigfleet.model.names import ACK_OUTCOMES, DRAIN_REPORTS, RECLAIM_CANCEL, RESYNC_END
from bigfleet.shard.contract import events as ev
from bigfleet.virtual.kernel import SECOND

EARLY_INTERVAL = SECOND
UNCLAIMED_AFTER = 30 * SECOND
PROTOCOL_VERSION = "v1alpha1"


# -------------------------------------------------------------------------------------------------------------- inputs


class Connected(Struct, frozen=True):
    session: int


class Disconnected(Struct, frozen=True):
    pass


class Received(Struct, frozen=True):
    frame: ev.Frame


class DemandGrew(Struct, frozen=True):
    pass


class EvictionEnded(Struct, frozen=True):
    """All pods have left the node, or the grace is over and some remain."""

    machine: str
    emptied: bool


class NodeGone(Struct, frozen=True):
    machine: str


class TimerDue(Struct, frozen=True):
    pass


Input = Connected | Disconnected | Received | DemandGrew | EvictionEnded | NodeGone | TimerDue


# ------------------------------------------------------------------------------------------------------------- outputs


class Say(Struct, frozen=True):
    """Send this to the shard."""

    event: ev.Event


class ReportDemand(Struct, frozen=True):
    """Send the present demand to the shard."""

    session: int


class Cordon(Struct, frozen=True):
    machine: str
    on: bool


class Evict(Struct, frozen=True):
    """Make the pods leave; answer with `EvictionEnded`."""

    machine: str
    grace: int
    cause: Literal["preemption", "reclaim"]


Output = Say | ReportDemand | Cordon | Evict


class _Drain:
    __slots__ = ("cause", "emptied", "instruction", "session")

    def __init__(self, instruction: str, cause: Literal["preemption", "reclaim"], session: int) -> None:
        self.instruction = instruction
        self.cause = cause
        self.session = session
        self.emptied: bool | None = None


class Agent:
    """One cluster's operator."""

    def __init__(self, cluster: str, *, rollup_interval: int, drain_reports: bool = True) -> None:
        self.cluster = cluster
        self.session: int | None = None
        self._interval = rollup_interval
        known = (DRAIN_REPORTS, RECLAIM_CANCEL, RESYNC_END, ACK_OUTCOMES) if drain_reports else ()
        self.capabilities = frozenset(known)
        self._drains: dict[str, _Drain] = {}
        self._next_rollup: int | None = None
        self._last_rollup = -(1 << 62)
        self._claim_by: int | None = None

    def handle(self, given: Input, now: int) -> list[Output]:
        match given:
            case Connected(session):
                return self._connected(session, now)
            case Disconnected():
                self.session = self._next_rollup = self._claim_by = None
                return []
            case Received(frame):
                return self._received(frame) if self.session is not None else []
            case DemandGrew():
                if self._next_rollup is not None:
                    self._next_rollup = min(self._next_rollup, max(now, self._last_rollup + EARLY_INTERVAL))
                return []
            case EvictionEnded(machine, emptied):
                return self._eviction_ended(machine, emptied)
            case NodeGone(machine):
                return self._node_gone(machine)
            case TimerDue():
                return self._timer_due(now)

    def next_timer(self) -> int | None:
        due = [at for at in (self._next_rollup, self._claim_by) if at is not None]
        return min(due, default=None)

    def draining(self, machine: str) -> bool:
        return machine in self._drains

    def cause_of(self, machine: str) -> str:
        drain = self._drains.get(machine)
        return drain.cause if drain else "loss"

    def _connected(self, session: int, now: int) -> list[Output]:
        self.session = session
        hello = ev.SessionOpened(
            session=session,
            cluster=self.cluster,
            protocol_version=PROTOCOL_VERSION,
            capabilities=self.capabilities,
            active_drains=tuple(sorted(self._drains)) if self.capabilities else (),
        )
        self._claim_by = now + UNCLAIMED_AFTER if self._drains else None
        self._last_rollup, self._next_rollup = now, now + self._interval
        return [Say(hello), ReportDemand(session)]

    def _received(self, frame: ev.Frame) -> list[Output]:
        assert self.session is not None
        match frame:
            case ev.BootstrapRequest():
                blob = f"# sim bootstrap for {self.cluster}\n".encode()
                return [Say(ev.BootstrapAnswered(self.session, frame.request_id, blob, 3600))]
            case ev.ReclaimInstruction():
                return self._reclaim(frame)
            case ev.ReclaimCancel():
                return self._cancel(frame.instruction_id)
            case _:
                return []

    def _reclaim(self, frame: ev.ReclaimInstruction) -> list[Output]:
        assert self.session is not None
        out: list[Output] = [Say(ev.ReclaimAcked(self.session, frame.instruction_id, len(frame.nodes)))]
        for machine in frame.nodes:
            drain = self._drains.get(machine)
            # An eviction that ran out of grace is over; another instruction brings a grace of its own.
            given_up = drain is not None and drain.emptied is False and drain.instruction != frame.instruction_id
            if drain is None or given_up:
                cause: Literal["preemption", "reclaim"] = "preemption" if frame.preemptor_priority else "reclaim"
                self._drains[machine] = _Drain(frame.instruction_id, cause, self.session)
                out += [Cordon(machine, True), Evict(machine, frame.grace_seconds * SECOND, cause)]
            else:  # the shard asks again after a reconnect: the same drain under its new name
                drain.instruction, drain.session = frame.instruction_id, self.session
                if drain.emptied is not None:
                    out += self._report(machine, drain)
        return out

    def _cancel(self, instruction: str) -> list[Output]:
        found = [machine for machine, drain in self._drains.items() if drain.instruction == instruction]
        out: list[Output] = []
        for machine in found:
            del self._drains[machine]
            out.append(Cordon(machine, False))
            if DRAIN_REPORTS in self.capabilities and self.session is not None:
                out.append(Say(ev.DrainReported(self.session, instruction, machine, "cancelled")))
        return out

    def _eviction_ended(self, machine: str, emptied: bool) -> list[Output]:
        drain = self._drains.get(machine)
        if drain is None:
            return []
        drain.emptied = emptied
        return self._report(machine, drain)

    def _report(self, machine: str, drain: _Drain) -> list[Output]:
        if self.session is None or DRAIN_REPORTS not in self.capabilities:
            return []
        outcome = "drained" if drain.emptied else "grace_expired"
        error = "" if drain.emptied else "pods were still running when the grace was over"
        return [Say(ev.DrainReported(self.session, drain.instruction, machine, outcome, error))]

    def _node_gone(self, machine: str) -> list[Output]:
        drain = self._drains.pop(machine, None)
        if drain is None or drain.emptied is not None:
            return []
        drain.emptied = True
        return self._report(machine, drain)

    def _timer_due(self, now: int) -> list[Output]:
        out: list[Output] = []
        if self._claim_by is not None and now >= self._claim_by:
            self._claim_by = None
            for machine in [m for m, drain in self._drains.items() if drain.session != self.session]:
                del self._drains[machine]
                out.append(Cordon(machine, False))
        if self._next_rollup is not None and now >= self._next_rollup and self.session is not None:
            self._last_rollup, self._next_rollup = now, now + self._interval
            out.append(ReportDemand(self.session))
        return out
