"""The coordinator's records in memory with their indexes, and the log of rows a command has written.

Owns what is alive: a record that points at a removed shard is not here, whether its row is still stored or not. Rules
about who may change what are not here; they are in the modules that the state hands commands to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from bigfleet.coordinator.core.records import (
    Binding,
    Division,
    Domain,
    Meta,
    Phase,
    Provider,
    Rails,
    Record,
    Row,
    Shard,
    Table,
    Transfer,
    Withdrawn,
    erased,
    kept,
    key_of,
    read,
)

T = TypeVar("T")


class Tables:
    """All live records. Changed only through `put` and `drop`, between `begin` and `taken`."""

    def __init__(self) -> None:
        self.meta = Meta()
        self.shards: dict[str, Shard] = {}
        self.generations: dict[int, Shard] = {}
        self.clusters: dict[str, Binding] = {}
        self.domains: dict[tuple[str, str], Domain] = {}
        self.withdrawn: dict[tuple[int, str, str], Withdrawn] = {}
        self.divisions: dict[tuple[str, str], Division] = {}
        self.providers: dict[str, Provider] = {}
        self.transfers: dict[str, Transfer] = {}
        self.rails: dict[str, Rails] = {}
        # Machine → provider → the transfer that owns it or gave it to its owner.
        self.moved: dict[str, dict[str, str]] = {}
        # Topology key → generations that domains of this key name, as owner or awaited.
        self.claims: dict[str, Counter[int]] = {}
        # Generation → domains that wait for its confirmation, transfers that are not over, domains it owns.
        self.waiting: dict[int, dict[tuple[str, str], None]] = {}
        self.open: dict[int, dict[str, None]] = {}
        self.owned: dict[int, dict[tuple[str, str], None]] = {}
        # Stored rows that stand for nothing, in the order they died.
        self.dead: dict[tuple[str, str], None] = {}
        self._written: dict[tuple[str, str], Row] = {}
        self._revision = 0

    def load(self, rows: Iterable[Row]) -> None:
        """Take stored rows, in any order; what points at nobody alive is only remembered for sweeping."""
        records = [(row, read(row.table, row.value)) for row in rows if row.value is not None]
        for _, record in records:
            if isinstance(record, Meta | Shard):
                self._place(record)
        for row, record in records:
            if record is None or isinstance(record, Meta | Shard):
                continue
            alive = self._alive(record)
            if alive is None:
                self.dead[row.table, row.key] = None
            else:
                self._place(alive)
        self._revision = self.meta.revision

    def rows(self) -> list[Row]:
        """Everything alive, in order: what a snapshot holds, and what two equal states agree on."""
        records: list[Record] = [self.meta, *self.shards.values(), *self.clusters.values(), *self.domains.values()]
        records += [*self.withdrawn.values(), *self.divisions.values(), *self.providers.values()]
        records += [*self.transfers.values(), *self.rails.values()]
        return sorted((kept(record) for record in records), key=lambda row: (row.table, row.key))

    @property
    def next(self) -> int:
        """The revision of the command being applied."""
        return self._revision

    @property
    def default(self) -> Shard | None:
        """Owner of what no domain decides: the shard registered longest."""
        return self.generations[min(self.generations)] if self.generations else None

    def begin(self) -> None:
        self._revision = self.meta.revision + 1
        self._written = {}

    def taken(self) -> tuple[Row, ...]:
        """The rows written since `begin`, the raised revision among them; none when nothing changed."""
        if self._written:
            self.put(replace(self.meta, revision=self._revision))
        return tuple(self._written.values())

    def put(self, record: Record) -> None:
        self._place(record)
        self._log(kept(record))

    def drop(self, record: Record) -> None:
        self._remove(record)
        self._log(erased(record))

    def touch(self, *generations: int) -> None:
        """These shards need a new table."""
        for generation in sorted(set(generations)):
            shard = self.generations.get(generation)
            if shard is not None:
                self.put(replace(shard, version=self._revision))

    def touch_fleet(self) -> None:
        """Every shard needs a new table."""
        self.put(replace(self.meta, fleet_version=self._revision))

    def version(self, shard: Shard) -> int:
        """Of the table this shard should have."""
        return max(shard.version, self.meta.fleet_version)

    def awaited(self, domain: Domain) -> tuple[int, ...]:
        """Those still registered whose confirmation a domain waits for."""
        return tuple(each for each in domain.awaiting if each in self.generations)

    def holding(self, provider: str, machine: str) -> Transfer | None:
        """The transfer that holds a machine. A provider nobody named may be any: better one owner than two."""
        held = self.moved.get(machine)
        if not held:
            return None
        name = held.get(provider) or held.get("") or ("" if provider else held[min(held)])
        return self.transfers[name] if name else None

    def bury(self, shard: Shard) -> None:
        """Remove a shard: one row. All that pointed at it dies with it and is swept later."""
        gone = shard.generation
        self.drop(shard)
        self._bury_settled(gone)
        named = {**self.owned.get(gone, {}), **self.waiting.get(gone, {})}
        dependants: list[Record] = [self.domains[place] for place in named]
        dependants += [each for each in self.clusters.values() if each.holder == gone]
        dependants += [each for each in self.withdrawn.values() if each.holder == gone]
        dependants += [each for each in self.transfers.values() if gone in (each.donor, each.recipient)]
        for record in dependants:
            alive = self._alive(record)
            if alive is record:
                continue
            self._remove(record)
            if alive is None:
                self.dead[record.table.value, record.key] = None
            else:
                self._place(alive)

    def _bury_settled(self, gone: int) -> None:
        """The domains that wait for nobody, all at once: there may be a hundred thousand, and a lease to keep."""
        claims: Counter[str] = Counter()
        left: dict[tuple[str, str], None] = {}
        for place in self.owned.pop(gone, {}):
            if self.domains[place].awaiting:
                left[place] = None
                continue
            del self.domains[place]
            claims[place[0]] += 1
            self.dead[Table.DOMAIN.value, key_of(*place)] = None
        if left:
            self.owned[gone] = left
        for key, count in claims.items():
            self.claims[key][gone] -= count
            if not self.claims[key][gone]:
                del self.claims[key][gone]

    def sweep(self, limit: int) -> None:
        """Erase rows of the dead."""
        for place in list(islice(self.dead, limit)):
            self._log(Row(*place))

    def _alive(self, record: Record) -> Record | None:
        """The record as it stands with the shards there are; None when it stands for nothing."""
        live = self.generations
        if isinstance(record, Binding | Withdrawn):
            return record if record.holder in live else None
        if isinstance(record, Domain) and record.holder not in live:
            if not self.awaited(record):
                return None
            # Whoever may still act on it must confirm before it falls to somebody else.
            return record if record.holder == 0 else replace(record, holder=0)
        if isinstance(record, Transfer):
            return self._alive_transfer(record)
        return record

    def _alive_transfer(self, record: Transfer) -> Transfer | None:
        """What a removed shard had been given is the default owner's: shards may remember such machines differently."""
        live, default = self.generations, self.default
        if record.phase is Phase.PROPOSED:
            return record if record.recipient in live and record.donor in live else None
        if record.recipient in live:
            return record
        if default is None or record.revision <= self.meta.emptied:
            return None
        heir = default.generation
        withheld = tuple(each for each in record.withheld if each != heir)
        donor = 0 if record.donor == heir else record.donor
        return replace(record, recipient=heir, donor=donor, withheld=withheld)

    def _log(self, row: Row) -> None:
        self._written[row.table, row.key] = row
        # Written or erased, the dead row is gone.
        self.dead.pop((row.table, row.key), None)

    def _place(self, record: Record) -> None:
        match record:
            case Meta():
                self.meta = record
            case Shard():
                self.shards[record.id] = record
                self.generations[record.generation] = record
            case Binding():
                self.clusters[record.cluster] = record
            case Domain():
                self._place_domain(record)
            case Withdrawn():
                self.withdrawn[record.holder, record.topology_key, record.value] = record
            case Division():
                self.divisions[record.provider, record.region] = record
            case Provider():
                self.providers[record.name] = record
            case Transfer():
                self._place_transfer(record)
            case Rails():
                self.rails[record.shard] = record

    def _remove(self, record: Record) -> None:
        match record:
            case Meta():
                raise AssertionError("the meta row is never erased")
            case Shard():
                del self.shards[record.id]
                del self.generations[record.generation]
            case Binding():
                del self.clusters[record.cluster]
            case Domain():
                self._remove_domain(self.domains.pop((record.topology_key, record.value)))
            case Withdrawn():
                del self.withdrawn[record.holder, record.topology_key, record.value]
            case Division():
                del self.divisions[record.provider, record.region]
            case Provider():
                del self.providers[record.name]
            case Transfer():
                self._remove_transfer(self.transfers.pop(record.id))
            case Rails():
                del self.rails[record.shard]

    def _place_domain(self, domain: Domain) -> None:
        place = (domain.topology_key, domain.value)
        if (old := self.domains.get(place)) is not None:
            self._remove_domain(old)
        self.domains[place] = domain
        self.claims.setdefault(domain.topology_key, Counter()).update((domain.holder, *domain.awaiting))
        self.owned.setdefault(domain.holder, {})[place] = None
        for generation in domain.awaiting:
            self.waiting.setdefault(generation, {})[place] = None

    def _remove_domain(self, domain: Domain) -> None:
        claims = self.claims[domain.topology_key]
        for generation in (domain.holder, *domain.awaiting):
            claims[generation] -= 1
            if not claims[generation]:
                del claims[generation]
        _discard(self.owned, domain.holder, (domain.topology_key, domain.value))
        for generation in domain.awaiting:
            _discard(self.waiting, generation, (domain.topology_key, domain.value))

    def _place_transfer(self, transfer: Transfer) -> None:
        if (old := self.transfers.get(transfer.id)) is not None:
            self._remove_transfer(old)
        self.transfers[transfer.id] = transfer
        if transfer.phase is not Phase.PROPOSED:
            for machine in transfer.machines:
                self.moved.setdefault(machine, {})[transfer.provider] = transfer.id
        if transfer.phase is not Phase.ADOPTED:
            for generation in (transfer.donor, transfer.recipient):
                self.open.setdefault(generation, {})[transfer.id] = None

    def _remove_transfer(self, transfer: Transfer) -> None:
        for machine in transfer.machines:
            held = self.moved.get(machine, {})
            if held.get(transfer.provider) == transfer.id:
                del held[transfer.provider]
                if not held:
                    del self.moved[machine]
        for generation in (transfer.donor, transfer.recipient):
            _discard(self.open, generation, transfer.id)


def _discard(index: dict[int, dict[T, None]], generation: int, member: T) -> None:
    members = index.get(generation)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[generation]
