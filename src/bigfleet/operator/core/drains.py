"""The drains an operator carries out: instruction, eviction within its grace, report, cancel, refusal.

A drain outlives the stream it was asked on: a shard that comes back claims it under a new instruction, and what nobody
claims is undone. Owns no pods: who leaves a node and how is the shell's.
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


class _Drain:
    __slots__ = ("cause", "instruction", "outcome", "problem", "session", "until")

    def __init__(self, instruction: str, cause: DrainCause, session: int | None, until: int) -> None:
        self.instruction = instruction
        self.cause = cause
        self.session = session
        self.until = until
        self.outcome: DrainOutcome | None = None
        self.problem = ""


class Drains:
    """All drains of one cluster by machine. Without `reports` they are carried out in silence."""

    def __init__(self, *, reports: bool, placement: Placement, resumed: Iterable[ResumedDrain] = ()) -> None:
        self._reports = reports
        self._placement = placement
        self._drains = {each.machine: _Drain(each.instruction_id, each.cause, None, each.until) for each in resumed}

    def machines(self) -> tuple[str, ...]:
        return tuple(sorted(self._drains))

    def cause_of(self, machine: str) -> DrainCause | None:
        drain = self._drains.get(machine)
        return drain.cause if drain else None

    def kept(self, machine: str) -> ResumedDrain | None:
        """The drain as it has to be written down, so that another life of this operator can go on with it."""
        drain = self._drains.get(machine)
        return None if drain is None else ResumedDrain(machine, drain.instruction, drain.until, drain.cause)

    def resume(self) -> list[Instruction]:
        """Go on with what nobody is evicting yet after a start."""
        for machine in self._drains:
            self._placement.begin(machine)
        return [Evict(m, drain.until, drain.cause) for m, drain in self._drains.items() if drain.outcome is None]

    def reclaim(self, asked: ReclaimInstruction, session: int, now: int) -> list[Instruction]:
        out: list[Instruction] = []
        refused: list[Instruction] = []
        for machine in asked.machines:
            drain = self._drains.get(machine)
            if drain is not None and not _given_up(drain, asked.instruction_id):
                # The shard asks again after a reconnect: the same drain under its new name.
                drain.instruction, drain.session = asked.instruction_id, session
                out += self._report(machine, drain, session)
                continue
            problem = self._refusal(machine, asked) if asked.voluntary else ""
            if problem:
                refused += self._say(session, asked.instruction_id, machine, DrainOutcome.REFUSED, problem)
                continue
            cause = DrainCause.PREEMPTION if asked.preemptor_priority else DrainCause.RECLAIM
            grace = asked.grace_seconds * SECOND if asked.grace_seconds > 0 else DEFAULT_GRACE
            self._drains[machine] = _Drain(asked.instruction_id, cause, session, now + grace)
            self._placement.begin(machine)
            out += [Cordon(machine, True), Evict(machine, now + grace, cause)]
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
                drain.outcome, drain.problem = DrainOutcome.GRACE_EXPIRED, _GRACE_OVER
                out += [StopEvicting(machine), *self._report(machine, drain, session)]
        return out

    def undo_unclaimed(self, session: int | None) -> list[Instruction]:
        """Undo what was asked on an earlier stream and not again on this one."""
        unclaimed = [m for m, drain in self._drains.items() if drain.session != session]
        return [step for machine in unclaimed for step in self._undo(machine)]

    def next_deadline(self) -> int | None:
        # Pods that leave at the last instant are in time.
        return min((drain.until + 1 for drain in self._drains.values() if drain.outcome is None), default=None)

    def _undo(self, machine: str) -> list[Instruction]:
        drain = self._drains.pop(machine)
        self._placement.release(machine)
        evicting: list[Instruction] = [StopEvicting(machine)] if drain.outcome is None else []
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
