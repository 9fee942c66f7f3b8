"""Which machines are this shard's to act on: all, those of its `--domain`s, or what the coordinator's table says.

The table is kept in the journal and obeyed also while the coordinator is away. A shard that has a coordinator but no
table yet owns nothing. Machines given away stay given away whatever their domain; a machine keeps its owner when its
labels change, so ownership is judged when a machine appears and when the table does.
"""

from __future__ import annotations

import json

from msgspec.structs import asdict, replace

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import MachineState
from bigfleet.shard.contract.events import JournalState, OwnershipReceived, Table, TransferAnswered, TransferAsked
from bigfleet.shard.core.machines.matching import attribute
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.state import ShardState

TABLE_ROW = "table"
TRANSFER_ROW = "transfer/"
DEFAULT_KEYS = ("topology.bigfleet/rack", "topology.kubernetes.io/zone")


class Ownership:
    """Judges machines."""

    def __init__(self, state: ShardState, boot: JournalState) -> None:
        self._state = state
        self._domains = frozenset(state.config.domain)
        self.table: OwnershipReceived | None = None
        self._assigned: frozenset[tuple[str, str]] = frozenset()
        self._elsewhere: frozenset[tuple[str, str]] = frozenset()
        self._granted: frozenset[str] = frozenset()
        self._withheld: frozenset[str] = frozenset()
        self._released: dict[str, tuple[str, ...]] = {}
        # Clusters that other shards serve → the address of that shard.
        self.referrals: dict[str, str] = {}
        if (text := boot.rows.get((Table.OWNERSHIP, TABLE_ROW))) is not None and state.config.with_coordinator:
            self._restore(text)
        for (table, key), row in boot.rows.items():
            if table == Table.OWNERSHIP and key.startswith(TRANSFER_ROW):
                self._released[key.removeprefix(TRANSFER_ROW)] = tuple(json.loads(row))

    @property
    def version(self) -> int:
        return 0 if self.table is None else self.table.version

    def owns(self, machine: str, shape: Shape) -> bool:
        if self._released and any(machine in machines for machines in self._released.values()):
            return False
        if not self._state.config.with_coordinator:
            return not self._domains or any(attribute(machine, shape, key) == value for key, value in self._domains)
        table = self.table
        if table is None or machine in self._withheld:
            return False
        if machine in self._granted:
            return True
        for key in table.keys or DEFAULT_KEYS:
            domain = (key, attribute(machine, shape, key) or "")
            if domain in self._assigned:
                return True
            if domain in self._elsewhere:
                return False
        return table.default_owner

    def receive(self, event: OwnershipReceived) -> None:
        """A new table: journal it and judge every machine again."""
        if not self._state.config.with_coordinator or not self._state.fencing.accept_term(event.term):
            return
        if self.table is not None:
            older = (event.term, event.version) < (self.table.term, self.table.version)
            if older or replace(event, term=self.table.term) == self.table:
                return
        self._install(event)
        self._state.turn.write(Table.OWNERSHIP, TABLE_ROW, json.dumps(asdict(event), sort_keys=True))
        for transfer in [name for name, machines in self._released.items() if self._withheld >= set(machines)]:
            # The table itself says so now.
            del self._released[transfer]
            self._state.turn.erase(Table.OWNERSHIP, TRANSFER_ROW + transfer)
        for record in list(self._state.fleet.all()):
            self._judge(record)

    def release(self, event: TransferAsked) -> None:
        """Give up free machines for another shard: stop acting on them, journal that, then say so."""
        released = self._released.get(event.transfer)
        if released is None:
            wanted = MachineState.SPECULATIVE if event.speculative else MachineState.IDLE
            fits = (
                key for key in self._state.fleet.ordered() if self._free(self._state.fleet.machines[key], wanted, event)
            )
            released = tuple(key for key, _ in zip(fits, range(event.count), strict=False))
            self._released[event.transfer] = released
            self._state.turn.write(Table.OWNERSHIP, TRANSFER_ROW + event.transfer, json.dumps(released))
            for key in released:
                self._judge(self._state.fleet.machines[key])
        self._state.turn.emit(TransferAnswered(event.transfer, released))

    def _free(self, record: Record, wanted: MachineState, event: TransferAsked) -> bool:
        return (
            record.owned
            and record.state == wanted
            and event.instance_type in ("", record.shape.instance_type)
            and event.zone in ("", record.shape.zone)
            and self._state.operations.on(record.key) is None
        )

    def _judge(self, record: Record) -> None:
        owned = self.owns(record.key, record.shape)
        if owned != record.owned:
            self._state.fleet.change(record, owned=owned)
            self._state.stories.tell(record.key, self._state.now, "now this shard's" if owned else "given up")
            self._state.ask_for_cycle()

    def _install(self, table: OwnershipReceived) -> None:
        self.table = table
        self._assigned = frozenset(table.domains)
        self._elsewhere = frozenset(table.assigned_elsewhere)
        self._granted = frozenset(table.granted)
        self._withheld = frozenset(table.withheld)
        self.referrals = dict(table.referrals)

    def _restore(self, text: str) -> None:
        try:
            row = json.loads(text)
            for name in ("domains", "assigned_elsewhere", "referrals"):
                row[name] = tuple((str(key), str(value)) for key, value in row.get(name, ()))
            for name in ("keys", "granted", "withheld"):
                row[name] = tuple(map(str, row[name]))
            if row["clusters"] is not None:
                row["clusters"] = tuple(row["clusters"])
            self._install(OwnershipReceived(**row))
        except (ValueError, KeyError, TypeError):
            # Without a readable table the shard owns nothing until the coordinator sends one: cautious, not wrong.
            self.table = None
