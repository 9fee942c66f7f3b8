"""The coordinator's side of the core: whom to listen to, and what becomes of each instruction.

A coordinator of an older term than the highest ever heard is not listened to; the mark is journalled before anything
of that term is done. An instruction is carried out once, however often it arrives, and its outcome is told with every
report until one got through. Everything here may stay silent for ever and the shard goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

from bigfleet.shard.contract.coordination import (
    Ack,
    AckOutcome,
    AssignDomain,
    CoordinatorAnswered,
    CoordinatorInstruction,
    DrainFor,
    LetGo,
    Ranking,
    UnassignDomain,
    VictimQuestion,
)
from bigfleet.shard.contract.events import JournalState, ReportNow, Table
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.coordination.arrivals import Arrivals
from bigfleet.shard.core.coordination.bindings import Bindings
from bigfleet.shard.core.coordination.cross_drains import CrossDrains
from bigfleet.shard.core.coordination.ownership import Ownership
from bigfleet.shard.core.coordination.releases import Releases
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.state import ShardState

TERM_ROW = "term"
REPEATED = "duplicate-redelivery"
_REMEMBERED = 10_000
_CEILING = 2**63


class Coordination:
    """Hears answers, keeps what is to be told back."""

    def __init__(
        self,
        state: ShardState,
        ownership: Ownership,
        releases: Releases,
        drains: CrossDrains,
        bindings: Bindings,
        arrivals: Arrivals,
        boot: JournalState,
    ) -> None:
        self._state = state
        self._arrivals = arrivals
        self._ownership = ownership
        self._releases = releases
        self._drains = drains
        self._bindings = bindings
        self._acks: dict[str, Ack] = {}
        # Domain instructions that were carried out; drain instructions that wait for a step, by transfer.
        self._done: dict[str, None] = {}
        self._asked: dict[str, dict[str, None]] = {}
        term = boot.rows.get((Table.OWNERSHIP, TERM_ROW), "")
        if term.isdecimal() and state.config.with_coordinator:
            state.fencing.accept_term(int(term))

    @property
    def acks(self) -> tuple[Ack, ...]:
        """What the next report tells."""
        return tuple(self._acks.values())

    def heard(self, event: CoordinatorAnswered) -> bool:
        """An answer to a report; returns whether it counts."""
        for told in event.told:
            self._acks.pop(told, None)
        if event.term and not self._accept(event.term):
            return False
        before = self._ownership.table
        if event.table is not None and self._state.config.with_coordinator and self._ownership.receive(event.table):
            self._releases.compare()
            self._drains.compare(event.table)
            self._arrivals.compare(before, event.table)
        self._ownership.sure(event.sure)
        self._bindings.receive(event.bindings)
        for instruction in event.instructions:
            if instruction.id:
                self._obey(instruction)
        return True

    @property
    def arriving(self) -> tuple[str, ...]:
        """Transfers to this shard that the last step did not count."""
        return self._arrivals.named

    def questions(self) -> tuple[VictimQuestion, ...]:
        """A step begins: what it is asked besides, and what is here for it to count."""
        self._arrivals.step_begins()
        return self._drains.questions()

    def decided(self, ranked: Mapping[str, Ranking], cycle: int) -> None:
        """A step ended, and said whom to drain."""
        self._arrivals.step_ended()
        for transfer in self._drains.decide(ranked, cycle):
            for instruction in self._asked.pop(transfer, {}):
                self._answer(instruction, AckOutcome.ACCEPTED, "", self._drains.answer(transfer) or ())

    def kept(self) -> list[Record]:
        """Machines that are free and spoken for."""
        return self._drains.kept()

    def appeared(self, record: Record) -> None:
        """A machine was seen for the first time."""
        self._drains.appeared(record)

    def _accept(self, term: int) -> bool:
        fencing = self._state.fencing
        before = fencing.term
        if not 0 < term < _CEILING or not fencing.accept_term(term):
            self._state.turn.log(
                Level.WARNING, "coordinator term validation failed", term=term, highest=self._state.fencing.term
            )
            return False
        if term != before:
            self._state.turn.write(Table.OWNERSHIP, TERM_ROW, str(term))
        return True

    def _obey(self, instruction: CoordinatorInstruction) -> None:
        payload, name = instruction.payload, instruction.id
        if name in self._done:
            self._answer(name, AckOutcome.ACCEPTED, REPEATED)
        elif instruction.term < self._state.fencing.term:
            reason = f"term {instruction.term} is below {self._state.fencing.term}"
            self._answer(name, AckOutcome.REJECTED_STALE, reason)
        elif isinstance(payload, AssignDomain | UnassignDomain):
            self._ownership.assign(payload.key, payload.value, given=isinstance(payload, AssignDomain))
            self._remember(name)
            self._answer(name, AckOutcome.ACCEPTED)
        elif isinstance(payload, LetGo):
            self._answer(name, *self._releases.let_go(payload))
        elif isinstance(payload, DrainFor):
            self._ask(name, payload)
        else:
            self._answer(name, AckOutcome.REJECTED_INVALID, "unknown payload")

    def _ask(self, name: str, wanted: DrainFor) -> None:
        taken = self._drains.answer(wanted.transfer)
        if taken is not None:
            self._answer(name, AckOutcome.ACCEPTED, REPEATED, taken)
        elif not wanted.machines and not wanted.selector.count:
            self._answer(name, AckOutcome.ACCEPTED)
        elif self._state.halted:
            self._answer(name, AckOutcome.FAILED, "actuation is paused")
        else:
            self._asked.setdefault(wanted.transfer, {})[name] = None
            self._drains.ask(wanted)

    def _answer(
        self, name: str, outcome: AckOutcome, reason: str = "", machines: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Machines as (provider, id), all of one provider."""
        provider = machines[0][0] if machines else ""
        self._acks[name] = Ack(name, outcome, reason, tuple(id for _, id in machines), provider)
        self._state.turn.emit(ReportNow())

    def _remember(self, name: str) -> None:
        self._done[name] = None
        if len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
