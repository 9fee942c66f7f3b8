"""Machines this shard gives away: it stops acting on them, journals that, and only then names them to the
coordinator.

Asked again for the same transfer it gives the same answer. A transfer that a later table no longer has was called
off, and its machines are judged by the table again; one that the table shows as released needs no note of its own any
more.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import MachineState
from bigfleet.shard.contract.coordination import AckOutcome, LetGo, Phase, Selector
from bigfleet.shard.contract.events import JournalState, Table
from bigfleet.shard.core.actions.moves import Moves
from bigfleet.shard.core.coordination.ownership import Ownership
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.state import ShardState

ROW = "transfer/"

# Provider and the provider's own id.
Name = tuple[str, str]
Answer = tuple[AckOutcome, str, tuple[Name, ...]]


class Releases:
    """Answers the coordinator's requests for machines. `kept` tells those that were drained for another shard."""

    def __init__(
        self,
        state: ShardState,
        ownership: Ownership,
        moves: Moves,
        boot: JournalState,
        kept: Callable[[Record], bool],
    ) -> None:
        self._state = state
        self._ownership = ownership
        self._moves = moves
        self._kept = kept
        self._notes: dict[str, tuple[Name, ...]] = {}
        for (table, key), row in sorted(boot.rows.items()):
            if table == Table.OWNERSHIP and key.startswith(ROW):
                self._notes[key.removeprefix(ROW)] = msgspec.json.decode(row, type=tuple[Name, ...])
        for transfer, machines in self._notes.items():
            ownership.give_up(machines, transfer)

    def let_go(self, asked: LetGo) -> Answer:
        """Give machines up, and which; FAILED asks to be asked again."""
        if not asked.transfer or asked.donor not in ("", self._state.config.id):
            # A coordinator that names no transfer only keeps books.
            return AckOutcome.ACCEPTED, "", ()
        known = self._notes.get(asked.transfer)
        if known is not None:
            return AckOutcome.ACCEPTED, "", known
        proposed = self._ownership.transfer(asked.transfer)
        if proposed is None or proposed.phase != Phase.PROPOSED:
            return AckOutcome.FAILED, f"transfer {asked.transfer} is not proposed in the table this shard has", ()
        if self._state.halted:
            return AckOutcome.FAILED, "actuation is paused", ()
        chosen = self._named(asked) if asked.machines else self._selected(asked.selector, _wanted(asked))
        if chosen is None:
            return AckOutcome.FAILED, "some of the machines are not free yet", ()
        names = tuple((record.provider, record.id) for record in of_one_provider(chosen))
        if names:
            self._note(asked.transfer, names)
        return AckOutcome.ACCEPTED, "", names

    def compare(self) -> None:
        """A table arrived: notes it replaces, or whose transfer was called off, are over."""
        for transfer in list(self._notes):
            listed = self._ownership.transfer(transfer)
            if listed is None or listed.phase != Phase.PROPOSED:
                machines = self._notes.pop(transfer)
                self._state.turn.erase(Table.OWNERSHIP, ROW + transfer)
                self._ownership.take_back(machines)

    def _note(self, transfer: str, machines: tuple[Name, ...]) -> None:
        self._notes[transfer] = machines
        self._state.turn.write(Table.OWNERSHIP, ROW + transfer, msgspec.json.encode(machines).decode())
        self._ownership.give_up(machines, transfer)

    def _named(self, asked: LetGo) -> list[Record] | None:
        """Those of the named machines that are free; None while one is still on its way to being so."""
        fleet, chosen = self._state.fleet, []
        for id in asked.machines:
            providers = (asked.selector.provider,) if asked.selector.provider else self._state.config.providers
            found = [record for each in providers if (record := fleet.find(each, id)) is not None and record.owned]
            # Two providers may have the id: the machine that was drained for this is meant, else neither.
            record = next(iter([each for each in found if self._kept(each)] or found[: len(found) == 1]), None)
            if record is None:
                continue
            busy = self._state.operations.on(record.key) is not None
            if busy or record.state in (MachineState.DRAINING, MachineState.DELETING):
                return None
            if record.state == _wanted(asked):
                chosen.append(record)
        return chosen

    def _selected(self, selector: Selector, wanted: MachineState) -> list[Record]:
        """Free machines of a kind, those first that this shard would use last: the dearest, the latest known.

        Ends as soon as there are enough: a donor has tens of thousands, and somebody waits.
        """
        shapes = {id(shape): shape.price for shape in self._state.fleet.shapes() if _serves(shape, selector)}
        chosen: list[Record] = []
        for price in sorted(set(shapes.values()), reverse=True):
            for record in reversed(self._state.fleet.machines.values()):
                if len(chosen) == selector.count:
                    return chosen
                if record.state == wanted and record.owned and shapes.get(id(record.shape)) == price:
                    same = not chosen or record.provider == chosen[0].provider
                    if same and self._free(record, selector):
                        chosen.append(record)
        return chosen

    def _free(self, record: Record, selector: Selector) -> bool:
        return (
            self._state.operations.on(record.key) is None
            and not self._kept(record)
            and self._moves.of(record.key) is None
            and (bool(selector.provider) or self._unique(record))
        )

    def _unique(self, record: Record) -> bool:
        """Whether the id alone names it."""
        others = (each for each in self._state.config.providers if each != record.provider)
        return all(self._state.fleet.find(each, record.id) is None for each in others)


def _serves(shape: Shape, selector: Selector) -> bool:
    """Asked once per shape: there may be hundreds of thousands of machines. Nobody asks for a host by name here."""
    return (
        selector.instance_type in ("", shape.instance_type)
        and selector.zone in ("", shape.zone)
        and selector.provider in ("", shape.provider)
        and shape.allocatable.covers(selector.min_unit)
        and all(each.matches(shape.label(each.key)) for each in selector.requirements)
    )


def of_one_provider(records: list[Record]) -> list[Record]:
    """Those of the first one's: an answer names machines by id, and ids are a provider's own."""
    return [record for record in records if record.provider == records[0].provider]


def _wanted(asked: LetGo) -> MachineState:
    return MachineState.SPECULATIVE if asked.speculative else MachineState.IDLE
