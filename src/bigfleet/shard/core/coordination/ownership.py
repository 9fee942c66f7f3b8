"""Which machines are this shard's to act on: all, those of its `--domain`s, or what the coordinator's table says.

The table is kept in the journal and obeyed also while the coordinator is away. A shard that has a coordinator but no
table yet owns nothing. A machine is judged by where it stood when it was first seen (`homes`), so it keeps its owner
when it is relabelled; transfers win over domains, and machines this shard let go stay let go until a table says
otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from bigfleet.engine.batches import Shape
from bigfleet.shard.contract.coordination import OwnershipTable, Phase, TableTransfer
from bigfleet.shard.contract.events import JournalState, Table
from bigfleet.shard.core.coordination.homes import Home, Homes
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.state import ShardState

TABLE_ROW = "table"
DOMAINS_ROW = "domains"
DEFAULT_KEYS = ("topology.bigfleet/rack", "topology.kubernetes.io/zone")


class Ownership:
    """Judges machines."""

    def __init__(self, state: ShardState, boot: JournalState) -> None:
        self._state = state
        self._me = state.config.id
        self._static = frozenset(state.config.domain)
        self._judges = state.config.with_coordinator or bool(self._static)
        self._homes = Homes(state.turn, boot.rows if self._judges else {})
        self.table: OwnershipTable | None = None
        self._domains: dict[tuple[str, str], str] = {}
        # Machine id → provider (empty: any) → whether it was handed to this shard.
        self._handed: dict[str, dict[str, bool]] = {}
        # (provider, id) of machines let go for a transfer the table does not show as released yet.
        self._let_go: dict[tuple[str, str], None] = {}
        # Domains given one by one, by a coordinator that knows no tables; None when it never gave any.
        self._assigned: dict[tuple[str, str], None] | None = None
        if state.config.with_coordinator:
            self._restore(boot)
        # Label keys that every machine's home is known for.
        self._settled = dict.fromkeys((*self._keys(), *(key for key, _ in (*self._static, *(self._assigned or ())))))

    @property
    def version(self) -> int:
        return 0 if self.table is None else self.table.version

    def transfer(self, name: str) -> TableTransfer | None:
        """A transfer as the table has it."""
        transfers = () if self.table is None else self.table.transfers
        return next((each for each in transfers if each.id == name), None)

    # ---------------------------------------------------------------------------------------------------------- judging

    def admit(self, provider: str, id: str, shape: Shape) -> tuple[bool, Home]:
        """A machine that appears: whether it is this shard's, and by which labels that is judged from now on."""
        if not self._judges:
            return True, ()
        now = {key: shape.label(key) or "" for key in self._settled}
        home = self._homes.of(f"{provider}/{id}", tuple(now.items()))
        if now.keys() - dict(home).keys():
            home = self._homes.note(f"{provider}/{id}", tuple({**now, **dict(home)}.items()))
        return self._owns(provider, id, home), home

    def seen_all(self) -> None:
        """A List has ended, or a single machine was read: first sightings become durable."""
        if self._homes.changed:
            self._homes.keep(self._alive)

    def judge(self, records: Iterable[Record]) -> None:
        """Look at machines again."""
        for record in records:
            owned = not self._judges or self._owns(record.provider, record.id, record.home)
            if owned != record.owned:
                self._state.fleet.change(record, owned=owned)
                self._state.stories.tell(record.key, self._state.now, "now this shard's" if owned else "given up")
                self._state.ask_for_cycle()

    def _owns(self, provider: str, id: str, home: Home) -> bool:
        if self._let_go and (provider, id) in self._let_go:
            return False
        where = dict(home)
        if not self._state.config.with_coordinator:
            return any(where.get(key) == value for key, value in self._static)
        if self.table is None:
            if self._assigned is None:
                return False
            return not self._assigned or any(where.get(key) == value for key, value in self._assigned)
        handed = self._handed.get(id)
        if handed is not None:
            mine = handed.get(provider, handed.get(""))
            if mine is not None:
                return mine
        for key in self._keys():
            owner = self._domains.get((key, where.get(key, "")))
            if owner is not None:
                return owner == self._me
        return self.table.default == self._me

    # --------------------------------------------------------------------------------------------------------- changing

    def receive(self, table: OwnershipTable) -> bool:
        """A table of the coordinator: journal it and judge what it may have changed; False when it is an old one."""
        known = self.table
        if known is not None and (table.term, table.version) < (known.term, known.version):
            return False
        if known == table:
            return True
        self._install(table)
        self._settle_on(self._keys())
        self._state.turn.write(Table.OWNERSHIP, TABLE_ROW, msgspec.json.encode(table).decode())
        rules = ("default", "keys", "domains")
        if known is None or any(getattr(known, name) != getattr(table, name) for name in rules):
            self.judge(list(self._state.fleet.all()))
        else:
            changed = set(known.transfers) ^ set(table.transfers)
            self.judge(self._named({(each.provider, id) for each in changed for id in each.machines}))
        return True

    def assign(self, key: str, value: str, *, given: bool) -> None:
        """One domain more or less, from a coordinator that knows no tables."""
        assigned = dict(self._assigned or {})
        if given:
            assigned[key, value] = None
        else:
            assigned.pop((key, value), None)
        self._assigned = assigned
        self._settle_on([key])
        self._state.turn.write(Table.OWNERSHIP, DOMAINS_ROW, json.dumps(sorted(assigned)))
        self.judge(list(self._state.fleet.all()))

    def give_up(self, machines: Iterable[tuple[str, str]]) -> None:
        """From now on another's, whatever the table says; the caller has journalled it."""
        machines = list(machines)
        self._let_go.update(dict.fromkeys(machines))
        self.judge(self._named(machines))

    def take_back(self, machines: Iterable[tuple[str, str]]) -> None:
        """The table decides again."""
        machines = list(machines)
        for machine in machines:
            self._let_go.pop(machine, None)
        self.judge(self._named(machines))

    def _settle_on(self, keys: Iterable[str]) -> None:
        """Labels that decide from now on: where machines known already stand is where they belong."""
        keys = [key for key in keys if key not in self._settled]
        if keys:
            self._settled.update(dict.fromkeys(keys))
            for record in self._state.fleet.all():
                known = dict(record.home)
                new = tuple((key, record.shape.label(key) or "") for key in keys if key not in known)
                if new:
                    record.home = self._homes.note(f"{record.provider}/{record.id}", (*record.home, *new))
            self.seen_all()

    def _keys(self) -> tuple[str, ...]:
        return (self.table.keys if self.table is not None else ()) or DEFAULT_KEYS

    def _named(self, machines: Iterable[tuple[str, str]]) -> list[Record]:
        fleet, all_providers = self._state.fleet, self._state.config.providers
        found = (
            fleet.find(each, id) for provider, id in machines for each in ((provider,) if provider else all_providers)
        )
        return [record for record in found if record is not None]

    def _alive(self, machine: str) -> bool:
        provider, _, id = machine.partition("/")
        return self._state.fleet.find(provider, id) is not None

    def _install(self, table: OwnershipTable) -> None:
        self.table = table
        self._domains = {(key, value): shard for key, value, shard in table.domains}
        self._handed = {}
        for transfer in table.transfers:
            if transfer.phase in (Phase.RELEASED, Phase.ADOPTED):
                for id in transfer.machines:
                    self._handed.setdefault(id, {})[transfer.provider] = transfer.recipient == self._me

    def _restore(self, boot: JournalState) -> None:
        """Without a readable table the shard owns nothing until the coordinator sends one: cautious, not wrong."""
        try:
            if (text := boot.rows.get((Table.OWNERSHIP, TABLE_ROW))) is not None:
                self._install(msgspec.json.decode(text, type=OwnershipTable))
            if (text := boot.rows.get((Table.OWNERSHIP, DOMAINS_ROW))) is not None:
                self._assigned = {(str(key), str(value)): None for key, value in json.loads(text)}
        except (msgspec.MsgspecError, ValueError, TypeError):
            self.table = None
