"""Drains for demand of another shard: the coordinator asks, this shard picks machines, drains them and keeps them free.

Only machines of lower priority than the preemptor are taken, the lowest first, and a repeated request gets the same
answer, also after a restart. A drain never moves ownership: the coordinator asks for a transfer once they are Idle.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bigfleet.engine.policy import drain_grace_seconds
from bigfleet.engine.results import ActionKind
from bigfleet.model.machine import MachineState
from bigfleet.shard.contract.events import DrainAsked, JournalState, Table, TransferReleased
from bigfleet.shard.core.state.operations import FIRST_CALL, Operation

if TYPE_CHECKING:
    from bigfleet.shard.core.actions.executor import Executor
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.state import ShardState

ROW = "drain/"
REASON = "coordinator.cross_shard_drain"
_REMEMBERED = 256
_SECOND = 1_000_000_000
# So long after its grace a drained machine is kept for the transfer; its own cluster would take it right back.
KEPT_FREE = 300 * _SECOND


class CrossDrains:
    """Answers the coordinator's drains."""

    def __init__(self, state: ShardState, executor: Executor, boot: JournalState) -> None:
        self._state = state
        self._executor = executor
        self._taken: dict[str, tuple[str, ...]] = {
            key.removeprefix(ROW): tuple(json.loads(row))
            for (table, key), row in sorted(boot.rows.items())
            if table == Table.OWNERSHIP and key.startswith(ROW)
        }

    def carry_out(self, event: DrainAsked, cycle: int) -> None:
        """Begin the drains and say of which machines."""
        taken = self._taken.get(event.transfer)
        if taken is None:
            chosen = [] if self._state.halted else self._chosen(event)
            taken = tuple(record.key for record in chosen)
            self._remember(event.transfer, taken)
            for record in chosen:
                self._drain(record, event, cycle)
        self._state.turn.emit(TransferReleased(event.transfer, taken))

    def _chosen(self, event: DrainAsked) -> list[Record]:
        fleet = self._state.fleet
        if event.machines:
            named = [fleet.machines[key] for key in event.machines if key in fleet.machines]
            return [record for record in named if self._may_go(record, event)]
        fits = (record for record in fleet.all() if self._may_go(record, event))
        cheapest = sorted(fits, key=lambda each: (each.stamp.priority, each.stamp.reclamation_dollars, each.key))
        return cheapest[: event.count]

    def _may_go(self, record: Record, event: DrainAsked) -> bool:
        return (
            record.owned
            and record.state == MachineState.CONFIGURED
            and record.stamp.priority < event.preemptor_priority
            and event.instance_type in ("", record.shape.instance_type)
            and event.zone in ("", record.shape.zone)
            and self._state.operations.on(record.key) is None
        )

    def _drain(self, record: Record, event: DrainAsked, cycle: int) -> None:
        grace = drain_grace_seconds(event.preemptor_priority - record.stamp.priority)
        self._state.rest_machine(record, self._state.now + grace * _SECOND + KEPT_FREE)
        self._executor.begin(
            Operation(
                machine=record,
                kind=ActionKind.PREEMPT,
                call=FIRST_CALL[ActionKind.PREEMPT],
                cluster=record.cluster,
                fingerprint=record.stamp.fingerprint,
                group=record.stamp.group,
                grace_seconds=grace,
                preemptor_priority=event.preemptor_priority,
                reason=REASON,
                cycle=cycle,
            )
        )

    def _remember(self, transfer: str, taken: tuple[str, ...]) -> None:
        self._taken[transfer] = taken
        self._state.turn.write(Table.OWNERSHIP, ROW + transfer, json.dumps(taken))
        while len(self._taken) > _REMEMBERED:
            oldest = next(iter(self._taken))
            del self._taken[oldest]
            self._state.turn.erase(Table.OWNERSHIP, ROW + oldest)
