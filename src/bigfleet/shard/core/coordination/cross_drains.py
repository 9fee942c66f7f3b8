"""Drains for demand of another shard: the coordinator asks, this shard picks machines, drains them and keeps them
free.

Whom to drain is the engine's to say, by its own order of victims, so a request is answered after the next step. Only
machines of lower priority are taken, none whose node says otherwise, whose interruption costs more than the
preemptor's, or that a consolidation move needs. What was taken is journalled before anything is drained: a repeated
request gets the same answer, and the machines stay free, also after a restart, until they are asked for by name or that
is no longer to be expected.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from bigfleet.engine.results import ActionKind
from bigfleet.model.machine import MachineState
from bigfleet.model.penalty import bucket_dollars
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.coordination import DrainFor, OwnershipTable, Phase, Ranking, VictimQuestion
from bigfleet.shard.contract.events import JournalState, Table
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.actions.moves import Moves
from bigfleet.shard.core.clusters.nodes import Nodes
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import FIRST_CALL, Operation
from bigfleet.shard.core.state.state import ShardState

ROW = "drain/"
REASON = "coordinator.cross_shard_drain"
_REMEMBERED = 256
_SECOND = 1_000_000_000
# So long beyond the grace machines are kept for a transfer that nobody proposed yet, and for one that was proposed; the
# coordinator has given up before.
KEPT_UNASKED = 120 * _SECOND
KEPT_ASKED = 1200 * _SECOND
# The engine is asked for more than are wanted: some may not be this shard's to drain when it answers.
_SPARE = 16


class Taken(Struct):
    """What a drain took: (provider, id) of each, and until when they are kept free. `asked`: a transfer named them."""

    machines: tuple[tuple[str, str], ...]
    until: int
    asked: bool = False


class CrossDrains:
    """Answers the coordinator's drains."""

    def __init__(self, state: ShardState, executor: Executor, nodes: Nodes, moves: Moves, boot: JournalState) -> None:
        self._state = state
        self._moves = moves
        self._executor = executor
        self._nodes = nodes
        self._taken: dict[str, Taken] = {}
        self._kept: dict[tuple[str, str], int] = {}
        self._pending: dict[str, DrainFor] = {}
        for (table, key), row in sorted(boot.rows.items()):
            if table == Table.OWNERSHIP and key.startswith(ROW) and (taken := _read(row)) is not None:
                self._enter(key.removeprefix(ROW), taken)

    def answer(self, transfer: str) -> tuple[tuple[str, str], ...] | None:
        """What a drain took, None if it was not decided yet."""
        taken = self._taken.get(transfer)
        return None if taken is None else taken.machines

    def ask(self, wanted: DrainFor) -> None:
        """To be decided with the next step."""
        if wanted.transfer not in self._pending:
            self._pending[wanted.transfer] = wanted
            self._state.ask_for_cycle()

    def questions(self) -> tuple[VictimQuestion, ...]:
        """What the engine is asked with the step that begins."""
        return tuple(
            VictimQuestion(
                each.transfer,
                each.priority,
                each.selector,
                2 * max(each.selector.count, len(each.machines)) + _SPARE,
                self._largest(each),
            )
            for each in self._pending.values()
        )

    def decide(self, ranked: Mapping[str, Ranking], cycle: int) -> list[str]:
        """The engine has answered: begin the drains; returns the transfers that are decided."""
        decided = [transfer for transfer in ranked if transfer in self._pending]
        for transfer in decided:
            wanted = self._pending.pop(transfer)
            chosen = [] if self._state.halted else self._chosen(wanted, ranked[transfer])
            until = self._state.now + max((grace for _, grace in chosen), default=0) * _SECOND + KEPT_UNASKED
            self._enter(transfer, Taken(tuple((record.provider, record.id) for record, _ in chosen), until))
            self._journal(transfer)
            for record, grace in chosen:
                self.appeared(record)
                self._drain(record, wanted, grace, cycle)
        return decided

    def keeps(self, record: Record) -> bool:
        """Whether the machine is kept free for a transfer."""
        return bool(self._kept) and self._state.now < self._kept.get((record.provider, record.id), 0)

    def kept(self) -> list[Record]:
        """Machines kept free now."""
        found = (self._state.fleet.find(*name) for name, until in self._kept.items() if self._state.now < until)
        return [record for record in found if record is not None]

    def appeared(self, record: Record) -> None:
        """A machine is seen for the first time, or was just taken: nobody acquires what is kept."""
        if self.keeps(record):
            self._state.rest_machine(record, self._kept[record.provider, record.id])

    def compare(self, table: OwnershipTable) -> None:
        """A table arrived: machines that were asked for and are so no longer are free for everybody."""
        named = {id for each in table.transfers if each.phase == Phase.PROPOSED for id in each.machines}
        for transfer, taken in list(self._taken.items()):
            wanted = any(id in named for _, id in taken.machines)
            if wanted and not taken.asked:
                taken.asked, taken.until = True, taken.until + KEPT_ASKED
                self._enter(transfer, taken)
                self._journal(transfer)
                for name in taken.machines:
                    if (record := self._state.fleet.find(*name)) is not None:
                        self.appeared(record)
            elif taken.asked and not wanted and taken.until > self._state.now:
                taken.until = self._state.now
                self._journal(transfer)
                for name in taken.machines:
                    self._lift(name)

    def _chosen(self, wanted: DrainFor, ranked: Ranking) -> list[tuple[Record, int]]:
        machines = self._state.fleet.machines
        known = [(machines[key], grace) for key, grace in ranked if key in machines]
        fits = [(record, grace) for record, grace in known if self._may_go(record, wanted)]
        # An answer names machines by id, and ids are a provider's own.
        fits = [(record, grace) for record, grace in fits if record.provider == fits[0][0].provider]
        return _enough(wanted, fits[: len(wanted.machines) or wanted.selector.count])

    def _may_go(self, record: Record, wanted: DrainFor) -> bool:
        node = self._nodes.report_on(record.key)
        return (
            record.owned
            and record.state == MachineState.CONFIGURED
            and wanted.selector.provider in ("", record.provider)
            and (not wanted.machines or record.id in wanted.machines)
            and (node is None or node.empty or node.max_pod_priority < wanted.priority)
            and (not wanted.bucket or record.stamp.interruption_dollars <= bucket_dollars(wanted.bucket))
            and self._state.operations.on(record.key) is None
            and self._moves.of(record.key) is None
        )

    def _drain(self, record: Record, wanted: DrainFor, grace: int, cycle: int) -> None:
        self._executor.begin(
            Operation(
                machine=record,
                kind=ActionKind.PREEMPT,
                call=FIRST_CALL[ActionKind.PREEMPT],
                cluster=record.cluster,
                fingerprint=record.stamp.fingerprint,
                group=record.stamp.group,
                grace_seconds=grace,
                preemptor_priority=wanted.priority,
                reason=REASON,
                cycle=cycle,
            )
        )

    def _largest(self, wanted: DrainFor) -> Resources:
        """The largest of the machines that could be meant, resource by resource."""
        sizes: dict[str, int] = {}
        for shape in self._state.fleet.shapes():
            if wanted.selector.instance_type in ("", shape.instance_type):
                for name, amount in shape.allocatable.items():
                    sizes[name] = max(amount, sizes.get(name, 0))
        return Resources(sizes)

    def _enter(self, transfer: str, taken: Taken) -> None:
        self._taken[transfer] = taken
        for name in taken.machines:
            self._kept[name] = max(taken.until, self._kept.get(name, 0))
        while len(self._taken) > _REMEMBERED:
            oldest = next(iter(self._taken))
            for name in self._taken.pop(oldest).machines:
                self._lift(name)
            self._state.turn.erase(Table.OWNERSHIP, ROW + oldest)

    def _lift(self, name: tuple[str, str]) -> None:
        self._kept.pop(name, None)
        record = self._state.fleet.find(*name)
        if record is not None:
            self._state.not_before.pop(record.key, None)
            self._state.fleet.touch(record)
            self._state.ask_for_cycle()

    def _journal(self, transfer: str) -> None:
        self._state.turn.write(Table.OWNERSHIP, ROW + transfer, msgspec.json.encode(self._taken[transfer]).decode())


def _enough(wanted: DrainFor, fits: list[tuple[Record, int]]) -> list[tuple[Record, int]]:
    """No more than the demand needs: the coordinator does not know how large machines in use are."""
    unit, units, missing = wanted.selector.min_unit, wanted.units, wanted.missing
    taken: list[tuple[Record, int]] = []
    for record, grace in fits:
        if (wanted.units and units <= 0) or (not wanted.missing.is_zero and missing.is_zero):
            break
        taken.append((record, grace))
        size = record.shape.allocatable
        units -= min((size.get(name) // amount for name, amount in unit.items()), default=1)
        missing = Resources({name: max(0, amount - size.get(name)) for name, amount in missing.items()})
    return taken


def _read(row: str) -> Taken | None:
    """A row that cannot be read is as good as none: the machines are used again a little early."""
    try:
        return msgspec.json.decode(row, type=Taken)
    except msgspec.MsgspecError:
        return None
