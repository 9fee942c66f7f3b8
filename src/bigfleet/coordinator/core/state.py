"""The coordinator's state machine: a command goes in, rows to commit come out, or a refusal and no change.

The rules live in one module per subject; this one only sends commands to them. Whoever drives it commits the rows and
tells nobody before they are committed; when a commit fails, a new state is made from what the store holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, assert_never

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core import domains, quotas, registry, transfers
from bigfleet.coordinator.core.records import Row
from bigfleet.coordinator.core.tables import Tables
from bigfleet.coordinator.core.validate import problems


class Applied(NamedTuple):
    """What a command changed. `answer` is what the caller wants to know: a former owner's id, where there is one."""

    rows: tuple[Row, ...]
    answer: str = ""


class State:
    """Who owns what. Read `tables`; change by `apply`."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.tables = Tables()
        self.tables.load(rows)

    @property
    def revision(self) -> int:
        return self.tables.meta.revision

    def apply(self, command: do.Command) -> Applied:
        """Change the state as the command says; raises `Refused` and changes nothing otherwise."""
        self.tables.begin()
        answer = self._carry_out(command)
        return Applied(self.tables.taken(), answer)

    def validate(self) -> list[str]:
        """Every invariant that does not hold, one sentence each."""
        return problems(self.tables)

    def _carry_out(self, command: do.Command) -> str:
        tables = self.tables
        match command:
            case do.AddShard():
                registry.add_shard(tables, command)
            case do.UpdateShard():
                registry.update_shard(tables, command)
            case do.RemoveShard():
                registry.remove_shard(tables, command)
            case do.BindCluster():
                registry.bind_cluster(tables, command)
            case do.MoveCluster():
                return registry.move_cluster(tables, command)
            case do.UpsertProvider():
                registry.upsert_provider(tables, command)
            case do.RemoveProvider():
                registry.remove_provider(tables, command)
            case do.SetRails():
                registry.set_rails(tables, command)
            case do.AssignDomain():
                domains.assign(tables, command)
            case do.UnassignDomain():
                domains.unassign(tables, command)
            case do.MoveDomain():
                return domains.move(tables, command)
            case do.SettleDomains():
                domains.settle(tables, command)
            case do.ForgetWithdrawn():
                domains.forget_withdrawn(tables, command)
            case do.SetKeys():
                domains.set_keys(tables, command)
            case do.SetQuota():
                quotas.set_quota(tables, command)
            case do.Propose():
                transfers.propose(tables, command)
            case do.Release():
                transfers.release(tables, command)
            case do.Adopt():
                transfers.adopt(tables, command)
            case do.Pin():
                transfers.pin(tables, command)
            case do.Vouch():
                tables.touch(registry.registered(tables, command.shard).generation)
            case do.CallOff():
                transfers.call_off(tables, command)
            case do.Sweep():
                tables.sweep(command.limit)
            case _:
                assert_never(command)
        return ""
