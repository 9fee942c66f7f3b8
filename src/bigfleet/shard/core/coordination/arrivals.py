"""Machines that other shards sent and no step has counted yet.

A report's shortfalls are those of the last step, and machines that came since are not in them: without being told, the
coordinator would send as many again. So the report names the transfers that are still arriving, until a step began with
their machines. A machine that is not known to be free here is read at once: its former owner had it in use.
"""

from __future__ import annotations

from bigfleet.model.machine import MachineState
from bigfleet.shard.contract.coordination import OwnershipTable, Phase, TableTransfer
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.state.state import ShardState

_FREE = (MachineState.IDLE, MachineState.SPECULATIVE)
# One that does not appear within this time was lost on the way; its demand is short again.
EXPECTED_NS = 120 * 1_000_000_000


class Arrivals:
    """Transfers to this shard, from the table that brings them to the step that counts them."""

    def __init__(self, state: ShardState, rereads: Rereads) -> None:
        self._state = state
        self._rereads = rereads
        self._expected: dict[str, tuple[TableTransfer, int]] = {}
        self._counted: list[str] = []

    @property
    def named(self) -> tuple[str, ...]:
        """Transfers that the last step did not count."""
        return tuple(self._expected)

    def compare(self, before: OwnershipTable | None, table: OwnershipTable) -> None:
        """A table arrived: what it hands to this shard that an earlier one did not."""
        handed = {} if before is None else _handed(before, self._state.config.id)
        now = _handed(table, self._state.config.id)
        for name in [each for each in self._expected if each not in now]:
            del self._expected[name]
        for name, transfer in now.items():
            if name not in handed:
                self._expected[name] = (transfer, self._state.now + EXPECTED_NS)
                self._read(transfer)

    def step_begins(self) -> None:
        """What is here now is in the step."""
        self._counted = [
            name
            for name, (transfer, until) in self._expected.items()
            if self._state.now >= until or all(self._here(transfer, id) for id in transfer.machines)
        ]

    def step_ended(self) -> None:
        for name in self._counted:
            self._expected.pop(name, None)
        self._counted = []

    def _here(self, transfer: TableTransfer, id: str) -> bool:
        state = self._state
        for provider in self._providers(transfer):
            record = state.fleet.find(provider, id)
            if record is not None and record.owned:
                return record.state in _FREE or state.operations.on(record.key) is not None
        return False

    def _read(self, transfer: TableTransfer) -> None:
        for id in transfer.machines:
            if not self._here(transfer, id):
                for provider in self._providers(transfer):
                    self._rereads.ask(provider, id, self._state.now)

    def _providers(self, transfer: TableTransfer) -> tuple[str, ...]:
        known = self._state.config.providers
        if transfer.provider:
            return (transfer.provider,) if transfer.provider in known else ()
        return known


def _handed(table: OwnershipTable, me: str) -> dict[str, TableTransfer]:
    given = (Phase.RELEASED, Phase.ADOPTED)
    return {each.id: each for each in table.transfers if each.phase in given and each.recipient == me}
