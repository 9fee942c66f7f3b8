"""Which machines are this shard's to act on: all, those of its `--domain`s, or what the coordinator's table says.

The table is kept in the journal and obeyed also while the coordinator is away. A shard that has a coordinator but no
table yet owns nothing. A machine is judged by where it stood when it was first seen (`homes`), so it keeps its owner
when it is relabelled; one that was never seen before is nobody's until others were asked about it (`sightings`).
Transfers win over domains, and machines this shard let go stay let go until a table says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from bigfleet.engine.batches import Shape
from bigfleet.shard.contract.coordination import OwnershipTable, Phase, TableTransfer
from bigfleet.shard.contract.events import JournalState, ReportNow, Table
from bigfleet.shard.core.coordination.homes import Home, Homes
from bigfleet.shard.core.coordination.sightings import Name, Sightings
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.state import ShardState

TABLE_ROW = "table"
DOMAINS_ROW = "domains"
DEFAULT_KEYS = ("topology.bigfleet/rack", "topology.kubernetes.io/zone")
RELABELLED_REPORTED = 64


class Ownership:
    """Judges machines."""

    def __init__(self, state: ShardState, boot: JournalState) -> None:
        self._state = state
        self._me = state.config.id
        self._static = frozenset(state.config.domain)
        self._judges = state.config.with_coordinator or bool(self._static)
        self._homes = Homes(state.turn, boot.rows if self._judges else {})
        listed = (each for each in state.config.providers if each not in state.config.ignore_provider)
        self.sightings = Sightings(state.fencing.epoch, listed)
        self.table: OwnershipTable | None = None
        self._domains: dict[tuple[str, str], str] = {}
        # Machine id → provider (empty: any) → the transfer that handed it to a shard.
        self._handed: dict[str, dict[str, TableTransfer]] = {}
        # (provider, id) of machines let go for a transfer the table does not show as released yet → that transfer.
        self._let_go: dict[tuple[str, str], str] = {}
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
        name = f"{provider}/{id}"
        home = self._homes.find(name)
        if home is None and self._asks_first:
            self.sightings.doubt((provider, id))
            home = tuple(now.items())
        elif home is None or now.keys() - dict(home).keys():
            home = self._homes.note(name, tuple({**now, **dict(home or ())}.items()))
        if any(now.get(key, value) != value for key, value in home):
            self.sightings.strayed[provider, id] = None
        return self._owns(provider, id, home), home

    def stands(self, record: Record, shape: Shape, *, believed: bool) -> None:
        """A machine was seen again; a sighting that may be outdated still says that it was elsewhere once."""
        if not self._judges:
            return
        name = (record.provider, record.id)
        strayed = any((shape.label(key) or "") != value for key, value in record.home)
        if strayed and name in self.sightings:
            record.home = tuple((key, shape.label(key) or "") for key, _ in record.home)
            self.sightings.doubt(name)
        elif strayed:
            self.sightings.strayed[name] = None
        elif believed:
            self.sightings.strayed.pop(name, None)

    def gone(self, record: Record) -> None:
        """The provider has it no more. Should it come back, others are asked who remembers it."""
        self.sightings.forget((record.provider, record.id))
        if self._vouched:
            self._homes.forget(f"{record.provider}/{record.id}")

    def listed(self, provider: str, began: int) -> None:
        """A List has ended: a look may be over, and there may be more to ask about."""
        self.seen_all()
        if self.sightings.listed(provider, began) or self.sightings.news:
            self._state.turn.emit(ReportNow())

    def seen_all(self) -> None:
        """Everything of a List was seen, or a single machine was read: first sightings become durable."""
        if self._homes.changed:
            self._homes.keep(self._alive)

    def relabelled(self) -> list[tuple[str, str, str]]:
        """(provider, id, owner) of machines that stand elsewhere than at first, as far as the table pins none."""
        found = []
        for name in self.sightings.strayed if self.table is not None else ():
            record = self._state.fleet.find(*name)
            if record is not None and self._pinned(*name) is None:
                if owner := self._owner(record.home):
                    found.append((*name, owner))
                if len(found) == RELABELLED_REPORTED:
                    break
        return found

    def judge(self, records: Iterable[Record], *, called_off: bool = False) -> None:
        """Look at machines again; `called_off`: those that are owned again are so because a transfer was."""
        for record in records:
            owned = not self._judges or self._owns(record.provider, record.id, record.home)
            if owned != record.owned:
                self._state.fleet.change(record, owned=owned)
                self._state.stories.tell(record.key, self._state.now, self._told(record, called_off))
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
        transfer = self._pinned(provider, id)
        if transfer is not None:
            return transfer.recipient == self._me
        if self.sightings and (provider, id) in self.sightings:
            return False
        return self._owner(home) == self._me

    def _told(self, record: Record, called_off: bool) -> str:
        """Whose a machine has become, and by what: a line of its story."""
        changed = "now this shard's" if record.owned else "given up"
        if record.owned and called_off:
            return f"{changed} again: its transfer was called off"
        transfer = self._pinned(record.provider, record.id)
        if not record.owned and (name := self._let_go.get((record.provider, record.id))):
            transfer = self.transfer(name)
        if transfer is None:
            owner = "" if record.owned or self.table is None else self._owner(record.home)
            return f"{changed}: {owner}'s by the coordinator's table" if owner not in ("", self._me) else changed
        if not transfer.donor:
            return f"{changed}: the coordinator pinned it when its labels changed"
        if record.owned:
            return f"{changed}: demand here lacked machines, and {transfer.donor} gave it (transfer {transfer.id})"
        return f"{changed}: to {transfer.recipient}, whose demand lacks machines (transfer {transfer.id})"

    def _pinned(self, provider: str, id: str) -> TableTransfer | None:
        """The transfer by which the table gives this machine to a shard by name; None when it does not name it."""
        handed = self._handed.get(id)
        return None if handed is None else handed.get(provider, handed.get(""))

    def _owner(self, home: Home) -> str:
        """Whose machines of this home are; empty while that changes."""
        where = dict(home)
        for key in self._keys():
            owner = self._domains.get((key, where.get(key, "")))
            if owner is not None:
                return owner
        return self.table.default if self.table is not None else ""

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
        if known is not None and known.generation != table.generation and known.generation and table.vouches:
            self._start_over()
        if not table.vouches:
            self._trust(self.sightings.settle())
        self._state.turn.write(Table.OWNERSHIP, TABLE_ROW, msgspec.json.encode(table).decode())
        rules = ("default", "keys", "domains", "vouches", "generation")
        if known is None or any(getattr(known, name) != getattr(table, name) for name in rules):
            self.judge(list(self._state.fleet.all()))
        else:
            changed = set(known.transfers) ^ set(table.transfers)
            self.judge(self._named({(each.provider, id) for each in changed for id in each.machines}))
        return True

    def sure(self, number: int) -> None:
        """Everybody was asked about machines first seen up to this number; what somebody remembers is in the table."""
        if number:
            names = self.sightings.settle(number)
            self._trust(names)
            self.judge(self._named(names))

    def _trust(self, names: Iterable[Name]) -> None:
        for provider, id in names:
            record = self._state.fleet.find(provider, id)
            if record is not None:
                self._homes.note(f"{provider}/{id}", record.home)
        self.seen_all()

    def _start_over(self) -> None:
        """This shard was removed and is back: who owned what meanwhile, by which labels, it does not know."""
        for record in self._state.fleet.all():
            self._homes.forget(f"{record.provider}/{record.id}")
            record.home = tuple((key, record.shape.label(key) or "") for key in self._settled)
            self.sightings.forget((record.provider, record.id))
            self.sightings.doubt((record.provider, record.id))
        self.seen_all()

    @property
    def _vouched(self) -> bool:
        return self.table is not None and self.table.vouches

    @property
    def _asks_first(self) -> bool:
        """Whether machines seen for the first time wait for others. Without a table nothing is owned anyway."""
        if self.table is None:
            return self._state.config.with_coordinator and self._assigned is None
        return self.table.vouches

    def assign(self, key: str, value: str, *, given: bool) -> None:
        """One domain more or less, from a coordinator that knows no tables."""
        assigned = dict(self._assigned or {})
        if given:
            assigned[key, value] = None
        else:
            assigned.pop((key, value), None)
        self._assigned = assigned
        self._settle_on([key])
        if self.table is None:
            self._trust(self.sightings.settle())
        self._state.turn.write(Table.OWNERSHIP, DOMAINS_ROW, json.dumps(sorted(assigned)))
        self.judge(list(self._state.fleet.all()))

    def give_up(self, machines: Iterable[tuple[str, str]], transfer: str) -> None:
        """From now on another's, whatever the table says; the caller has journalled it."""
        machines = list(machines)
        self._let_go.update(dict.fromkeys(machines, transfer))
        self.judge(self._named(machines))

    def take_back(self, machines: Iterable[tuple[str, str]]) -> None:
        """The table decides again."""
        machines = list(machines)
        for machine in machines:
            self._let_go.pop(machine, None)
        self.judge(self._named(machines), called_off=True)

    def _settle_on(self, keys: Iterable[str]) -> None:
        """Labels that decide from now on: where machines known already stand is where they belong."""
        keys = [key for key in keys if key not in self._settled]
        if keys:
            self._settled.update(dict.fromkeys(keys))
            for record in self._state.fleet.all():
                known = dict(record.home)
                new = tuple((key, record.shape.label(key) or "") for key in keys if key not in known)
                if new and (record.provider, record.id) in self.sightings:
                    record.home = (*record.home, *new)
                elif new:
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
                    self._handed.setdefault(id, {})[transfer.provider] = transfer

    def _restore(self, boot: JournalState) -> None:
        """Without a readable table the shard owns nothing until the coordinator sends one: cautious, not wrong."""
        try:
            if (text := boot.rows.get((Table.OWNERSHIP, TABLE_ROW))) is not None:
                self._install(msgspec.json.decode(text, type=OwnershipTable))
            if (text := boot.rows.get((Table.OWNERSHIP, DOMAINS_ROW))) is not None:
                self._assigned = {(str(key), str(value)): None for key, value in json.loads(text)}
        except (msgspec.MsgspecError, ValueError, TypeError):
            self.table = None
