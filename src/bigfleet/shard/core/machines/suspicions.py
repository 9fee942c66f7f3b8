"""Machines a List takes away, until Get has said whether they are gone.

Lists lag, caches empty, replicas lie: a List alone takes nothing from the shard. What it no longer names, or shows in
a state that no work of its own leads to, is suspected. Of the suspects of one List a few are asked for with Get; each
answer decides about its machine. Not one of them found where the shard has it: the List was right about the others
too. A single one found: the List is stale, and the others stay suspected until a later List names them or Get is
asked for them. While Get does not answer at all, nothing is lost for `--visibility-window`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bigfleet.model.machine import BOUND, PASSAGES, MachineState
from bigfleet.shard.contract.events import ListedMachine
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.state.enum_aliases import (
    AWAITING,
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DRAINING,
    FAILED,
    IDLE,
)
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import Operation
from bigfleet.shard.core.state.state import ShardState

STALE_LISTS: Final = "bigfleet_shard_stale_lists_total"
# Gets for the suspects of one List: a zone may go with thousands of machines, and few of them tell.
SAMPLE = 16

# Somebody uses it, or paid for it.
_HELD: Final = frozenset({CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING})
_ENDS: Final[frozenset[tuple[MachineState, MachineState]]] = frozenset(
    (passage.during, passage.after) for passage in PASSAGES.values()
)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What a List that began then said of a machine; `said` is None when it did not name it."""

    record: Record
    said: ListedMachine | None
    began: int


@dataclass(slots=True)
class Round:
    """The suspects of one provider, by key, and what the Gets for some of them have said so far."""

    suspects: dict[str, Suspicion] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    left: int = SAMPLE
    agreed: int = 0
    found: list[str] = field(default_factory=list)
    # Since when no Get for a suspect was answered.
    mute: int = 0


class Suspicions:
    """`lost(suspicion)` hears of those that are believed in the end without a Get of their own."""

    def __init__(self, state: ShardState, rereads: Rereads, lost: Callable[[Suspicion], None]) -> None:
        self._state = state
        self._rereads = rereads
        self._lost = lost
        self._rounds = {name: Round() for name in state.config.providers}

    def asking(self, provider: str) -> bool:
        """Whether a verdict waits for a Get."""
        return bool(self._rounds[provider].asked)

    def begins(self, provider: str) -> None:
        """A List begins, with Gets of its own."""
        self._rounds[provider].left = SAMPLE

    def note(self, record: Record, said: ListedMachine | None, began: int) -> None:
        """A List took the machine away."""
        round_ = self._rounds[record.provider]
        round_.suspects[record.key] = Suspicion(record, said, began)
        self._ask(round_, record)

    def cleared(self, record: Record) -> None:
        """A List shows it where the shard has it."""
        round_ = self._rounds[record.provider]
        if round_.suspects and round_.suspects.pop(record.key, None) is not None:
            round_.asked.discard(record.key)

    def got(self, record: Record, *, there: bool) -> None:
        """Get was answered, and the caller acts on it; `there` when the machine is where the shard has it."""
        round_ = self._rounds[record.provider]
        suspicion = round_.suspects.pop(record.key, None)
        if suspicion is None:
            return
        round_.mute = 0
        round_.asked.discard(record.key)
        if there:
            round_.found.append(record.key)
            if suspicion.said is None:
                # Its turn comes again, after the others, for as long as no List names it.
                round_.suspects[record.key] = suspicion
        else:
            round_.agreed += 1

    def unanswered(self, record: Record) -> None:
        round_ = self._rounds[record.provider]
        if record.key in round_.asked:
            round_.asked.discard(record.key)
            round_.mute = round_.mute or self._state.now

    def complete(self, provider: str) -> None:
        """The List is at its end: whoever is still suspected is asked for, as far as its Gets go."""
        round_ = self._rounds[provider]
        machines = self._state.fleet.machines
        for key, suspicion in list(round_.suspects.items()):
            if machines.get(key) is not suspicion.record:
                del round_.suspects[key]
                round_.asked.discard(key)
        for suspicion in round_.suspects.values():
            if not round_.left:
                break
            self._ask(round_, suspicion.record)

    def judge(self, provider: str) -> None:
        """Believe the List or not, once every Get that was asked for it has ended."""
        round_ = self._rounds[provider]
        if round_.asked or not (round_.suspects or round_.agreed or round_.found):
            return
        agreed, found = round_.agreed, round_.found
        round_.agreed, round_.found = 0, []
        waited = round_.mute and self._state.now - round_.mute >= self._state.config.visibility_window
        if found:
            self._state.turn.count(STALE_LISTS, provider)
            self._state.turn.log(
                Level.WARNING,
                "a List is stale: Get finds machines where they were; nothing is lost by it",
                provider=provider,
                found=len(found),
                machine=found[0],
                suspected=len(round_.suspects),
            )
        elif agreed or waited:
            suspects, round_.suspects = round_.suspects, {}
            for suspicion in suspects.values():
                self._lost(suspicion)

    def _ask(self, round_: Round, record: Record) -> None:
        if round_.left and record.key not in round_.asked:
            round_.left -= 1
            round_.asked.add(record.key)
            self._rereads.ask(record.provider, record.id, self._state.now)


def contradicts(record: Record, operation: Operation | None, seen: ListedMachine) -> bool:
    """Whether this takes away what the shard holds, or shows it where no work on it leads.

    Failed is a provider's own word about its machine, and what was never sent has changed nothing.
    """
    if record.state not in _HELD or seen.state == FAILED:
        return False
    if operation is not None and operation.stage != AWAITING and seen.state == PASSAGES[operation.call].before:
        return False
    if seen.state == record.state:
        return bool(record.cluster) and seen.state in BOUND and seen.cluster != record.cluster
    return (record.state, seen.state) not in _ENDS
