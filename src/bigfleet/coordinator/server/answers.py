"""The answer to a report, as bytes: instructions, bindings and rails, and the ownership table when the shard's is old.

The table's domains are the same for everybody, so they are rendered once per change and their bytes are appended:
protobuf fields of one message may be concatenated. Without that, a change of 100,000 domains would be rendered for each
of thousands of shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.coordinator.core.domains import ownership_keys
from bigfleet.coordinator.core.ownership import rails_of
from bigfleet.coordinator.core.reports import PROVIDERS, TABLES
from bigfleet.coordinator.server.codec import instruction_to_wire, transfer_to_wire
from bigfleet.wire import capacity_pb2, coordinator_pb2

if TYPE_CHECKING:
    from bigfleet.coordinator.core.leader import Leader
    from bigfleet.coordinator.core.records import Rails, Shard
    from bigfleet.coordinator.core.reports import Report
    from bigfleet.coordinator.core.tables import Tables

_OWNERSHIP = coordinator_pb2.ReportAck.DESCRIPTOR.fields_by_name["ownership"].number


class Answers:
    """Renders what one tenure tells its shards."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._domains = (-1, b"")
        self._transfers = (-1, b"")

    def answer(self, report: Report, counts: bool, now: int) -> tuple[bytes, int]:
        """The bytes of a ReportAck, and how many instructions it holds."""
        tables, term = self._leader.state.tables, self._leader.term
        shard = tables.shards.get(report.shard)
        made = coordinator_pb2.ReportAck(coordinator_term=term, acknowledged=counts)
        if shard is None or not counts:
            return made.SerializeToString(), 0
        waiting = self._leader.waiting(shard, now)
        made.instructions.extend(instruction_to_wire(tables, term, number, each) for number, each in waiting)
        self._bindings(made, tables, report)
        rails = rails_of(tables, shard)
        if rails is not None:
            made.rails.CopyFrom(rails_to_wire(rails))
        if PROVIDERS in report.capabilities:
            made.providers.extend(providers_to_wire(tables))
        made.look, made.sure = self._leader.looks.look(shard), self._leader.looks.sure(shard, report)
        body = made.SerializeToString()
        if TABLES in report.capabilities and report.version != tables.version(shard):
            body += self._table(tables, shard, term)
        return body, len(waiting)

    def _bindings(self, made: coordinator_pb2.ReportAck, tables: Tables, report: Report) -> None:
        """Of the clusters this shard sees: which are its, and where the others belong."""
        for each in report.clusters:
            binding = tables.clusters.get(each.cluster)
            if binding is not None:
                holder = tables.generations[binding.holder]
                made.bindings.add(
                    cluster_id=binding.cluster,
                    shard_id=holder.id,
                    shard_address=holder.address,
                    bound_at_unix_nanos=binding.bound_at,
                )

    def _table(self, tables: Tables, shard: Shard, term: int) -> bytes:
        default = tables.default
        head = coordinator_pb2.OwnershipTable(
            version=tables.version(shard),
            coordinator_term=term,
            keys=ownership_keys(tables),
            default_shard_id=default.id if default is not None else "",
            vouches=True,
            generation=shard.generation,
        )
        body = head.SerializeToString() + self._domain_bytes(tables) + self._transfer_bytes(tables)
        return _varint(_OWNERSHIP << 3 | 2) + _varint(len(body)) + body

    def _domain_bytes(self, tables: Tables) -> bytes:
        if self._domains[0] != tables.meta.fleet_version:
            part = coordinator_pb2.OwnershipTable()
            for (key, value), domain in sorted(tables.domains.items()):
                settled = domain.holder and not tables.awaited(domain)
                holder = tables.generations[domain.holder].id if settled else ""
                part.domains.add(topology_key=key, topology_value=value, shard_id=holder)
            self._domains = (tables.meta.fleet_version, part.SerializeToString())
        return self._domains[1]

    def _transfer_bytes(self, tables: Tables) -> bytes:
        if self._transfers[0] != tables.meta.revision:
            part = coordinator_pb2.OwnershipTable()
            part.transfers.extend(transfer_to_wire(tables, tables.transfers[name]) for name in sorted(tables.transfers))
            self._transfers = (tables.meta.revision, part.SerializeToString())
        return self._transfers[1]


def rails_to_wire(rails: Rails) -> capacity_pb2.Rails:
    return capacity_pb2.Rails(
        actuation_paused=rails.paused,
        dry_run=rails.dry_run,
        reason=rails.reason,
        set_by=rails.set_by,
        set_at_unix_nanos=rails.set_at,
    )


def providers_to_wire(tables: Tables) -> list[coordinator_pb2.ProviderEntry]:
    return [
        coordinator_pb2.ProviderEntry(name=each.name, address=each.address, region=each.region)
        for _, each in sorted(tables.providers.items())
    ]


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
