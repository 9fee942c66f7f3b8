"""The drains an operator carries out: instruction, eviction within its grace, report, cancel, refusal.

Where the instruction leaves time for it, pods run on until all of the node's have room elsewhere: what they need is
missing from the moment the drain begins, and is bought while they run. A drain outlives the stream it was asked on: a
shard that comes back claims it under a new instruction, and what nobody claims is undone. Owns no pods: who leaves a
node and how is the shell's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from bigfleet.model.session import DrainOutcome
from bigfleet.operator.core.events import SECOND, Cordon, DrainCause, Evict, Instruction, Say, StopEvicting
from bigfleet.operator.core.frames import DrainReport, ReclaimAck, ReclaimInstruction

DEFAULT_GRACE = 30 * SECOND
_GRACE_OVER = "pods were still running when the grace was over"


class Placement(Protocol):
    """Who knows whether the pods of a node have room elsewhere."""

    def refusal(self, machine: str) -> str:
        """Why it must not be drained now; empty when it may."""

    def is_occupied(self, machine: str) -> bool:
        """Whether pods run there that a drain would end."""

    def has_room(self, machine: str) -> bool:
        """Whether all pods of a machine that is being drained have room elsewhere now, as far as anybody looked."""

    def begin(self, machine: str) -> None:
        """It is being drained: the room its pods will take is set aside from now on."""

    def release(self, machine: str) -> None:
        """It is not being drained any more."""


class Anywhere:
    """Knows nothing, refuses nothing."""

    def refusal(self, machine: str) -> str:
        return ""

    def is_occupied(self, machine: str) -> bool:
        return False

    def has_room(self, machine: str) -> bool:
        return True

    def begin(self, machine: str) -> None:
        pass

    def release(self, machine: str) -> None:
        pass


class ResumedDrain(Struct, frozen=True):
    """A drain that an earlier life of this operator began, as the node's annotation tells it."""

    machine: str
    instruction_id: str
    until: int
    cause: DrainCause = DrainCause.RECLAIM
    # Its pods wait for room elsewhere until then; 0 when they are to leave.
    evict_by: int = 0


class _Drain:
    __slots__ = ("cause", "evict_by", "instruction", "outcome", "problem", "session", "until")

    def __init__(self, instruction: str, cause: DrainCause, session: int | None, until: int, evict_by: int = 0) -> None:
        self.instruction = instruction
        self.cause = cause
        self.session = session
        self.until = until
        self.evict_by = evict_by
        self.outcome: DrainOutcome | None = None
        self.problem = ""

    @property
    def is_evicting(self) -> bool:
        return self.outcome is None and not self.evict_by


class Drains:
    """All drains of one cluster by machine. Without `reports` they are carried out in silence."""

    def __init__(self, *, reports: bool, placement: Placement, resumed: Iterable[ResumedDrain] = ()) -> None:
        self._reports = reports
        self._placement = placement
        self._drains = {
            each.machine: _Drain(each.instruction_id, each.cause, None, each.until, each.evict_by) for each in resumed
        }

    def machines(self) -> tuple[str, ...]:
        return tuple(sorted(self._drains))

    def cause_of(self, machine: str) -> DrainCause | None:
        drain = self._drains.get(machine)
        return drain.cause if drain else None

    def kept(self, machine: str) -> ResumedDrain | None:
        """The drain as it has to be written down, so that another life of this operator can go on with it."""
        drain = self._drains.get(machine)
        if drain is None:
            return None
        return ResumedDrain(machine, drain.instruction, drain.until, drain.cause, drain.evict_by)

    def resume(self) -> list[Instruction]:
        """Go on with what nobody is evicting yet after a start."""
        for machine in self._drains:
            self._placement.begin(machine)
        return [
            Evict(machine, drain.until, drain.cause) for machine, drain in self._drains.items() if drain.is_evicting
        ]

    def go_on(self, now: int) -> list[Instruction]:
        """Make those pods leave that have room elsewhere by now, or for which there is no more time."""
        out: list[Instruction] = []
        for machine, drain in self._drains.items():
            if not drain.evict_by or drain.outcome is not None:
                continue
            if now >= drain.evict_by or self._placement.has_room(machine):
                drain.evict_by = 0
                out.append(Evict(machine, drain.until, drain.cause))
        return out

    def reclaim(self, asked: ReclaimInstruction, session: int, now: int) -> list[Instruction]:
        out: list[Instruction] = []
        refused: list[Instruction] = []
        for machine in asked.machines:
            drain = self._drains.get(machine)
            if drain is not None and not _given_up(drain, asked.instruction_id):
                # The shard asks again after a reconnect: the same drain under its new name.
                drain.instruction, drain.session = asked.instruction_id, session
                drain.evict_by = min(drain.evict_by, now + asked.room_within_seconds * SECOND)
                out += self._report(machine, drain, session)
                continue
            problem = self._refusal(machine, asked) if asked.voluntary else ""
            if problem:
                refused += self._say(session, asked.instruction_id, machine, DrainOutcome.REFUSED, problem)
                continue
            cause = DrainCause.NOTICE if asked.room_within_seconds else DrainCause.RECLAIM
            cause = DrainCause.PREEMPTION if asked.preemptor_priority else cause
            grace = asked.grace_seconds * SECOND if asked.grace_seconds > 0 else DEFAULT_GRACE
            # Eviction needs some of the grace, whatever was asked for.
            room = min(grace - SECOND, asked.room_within_seconds * SECOND)
            evict_by = now + room if room > 0 else 0
            self._drains[machine] = _Drain(asked.instruction_id, cause, session, now + grace, evict_by)
            self._placement.begin(machine)
            out.append(Cordon(machine, True))
            if not evict_by:
                out.append(Evict(machine, now + grace, cause))
        started = len(asked.machines) - len(refused)
        return [Say(session, ReclaimAck(asked.instruction_id, started)), *out, *refused]

    def _refusal(self, machine: str, asked: ReclaimInstruction) -> str:
        problem = self._placement.refusal(machine)
        if not problem and asked.empty and self._placement.is_occupied(machine):
            return "pods came there after it was empty"
        return problem

    def cancel(self, instruction: str, session: int) -> list[Instruction]:
        out: list[Instruction] = []
        for machine in [m for m, drain in self._drains.items() if drain.instruction == instruction]:
            out += self._undo(machine)
            out += self._say(session, instruction, machine, DrainOutcome.CANCELLED)
        return out

    def eviction_ended(self, machine: str, error: str, session: int | None) -> list[Instruction]:
        drain = self._drains.get(machine)
        if drain is None or drain.outcome is not None:
            return []
        drain.outcome, drain.problem = (DrainOutcome.FAILED, error) if error else (DrainOutcome.DRAINED, "")
        return self._report(machine, drain, session)

    def node_gone(self, machine: str, session: int | None) -> list[Instruction]:
        drain = self._drains.pop(machine, None)
        if drain is None:
            return []
        self._placement.release(machine)
        if drain.outcome is not None:
            return []
        drain.outcome = DrainOutcome.DRAINED
        return self._report(machine, drain, session)

    def expire(self, session: int | None, now: int) -> list[Instruction]:
        """End what ran out of grace: its node stays cordoned, the shard decides what comes of it."""
        out: list[Instruction] = []
        for machine, drain in self._drains.items():
            if drain.outcome is None and now > drain.until:
                evicting = drain.is_evicting
                drain.outcome, drain.problem = DrainOutcome.GRACE_EXPIRED, _GRACE_OVER
                out += [StopEvicting(machine)] if evicting else []
                out += self._report(machine, drain, session)
        return out

    def undo_unclaimed(self, session: int | None) -> list[Instruction]:
        """Undo what was asked on an earlier stream and not again on this one."""
        unclaimed = [m for m, drain in self._drains.items() if drain.session != session]
        return [step for machine in unclaimed for step in self._undo(machine)]

    def next_deadline(self) -> int | None:
        # Pods that leave at the last instant are in time.
        under_way = (drain for drain in self._drains.values() if drain.outcome is None)
        return min((drain.evict_by or drain.until + 1 for drain in under_way), default=None)

    def _undo(self, machine: str) -> list[Instruction]:
        drain = self._drains.pop(machine)
        self._placement.release(machine)
        evicting: list[Instruction] = [StopEvicting(machine)] if drain.is_evicting else []
        return [*evicting, Cordon(machine, False)]

    def _report(self, machine: str, drain: _Drain, session: int | None) -> list[Instruction]:
        if drain.outcome is None:
            return []
        return self._say(session, drain.instruction, machine, drain.outcome, drain.problem)

    def _say(
        self, session: int | None, instruction: str, machine: str, outcome: DrainOutcome, problem: str = ""
    ) -> list[Instruction]:
        if session is None or not self._reports:
            return []
        return [Say(session, DrainReport(instruction, machine, outcome, problem))]


def _given_up(drain: _Drain, instruction: str) -> bool:
    """An eviction that failed or ran out of grace is over; another instruction brings a grace of its own."""
    return drain.outcome not in (None, DrainOutcome.DRAINED) and drain.instruction != instruction
