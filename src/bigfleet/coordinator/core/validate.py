"""Every invariant of the coordinator's state, checked from scratch; tests run it after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bigfleet.coordinator.core.quotas import live_shares
from bigfleet.coordinator.core.records import Phase
from bigfleet.coordinator.core.tables import Tables


def problems(tables: Tables) -> list[str]:
    """One sentence for each invariant that does not hold."""
    return [*_shards(tables), *_references(tables), *_domains(tables), *_transfers(tables), *_quotas(tables)]


def _shards(tables: Tables) -> Iterator[str]:
    meta = tables.meta
    if meta.fleet_version > meta.revision:
        yield f"fleet version {meta.fleet_version} is of a later revision than {meta.revision}"
    if {shard.generation: shard for shard in tables.shards.values()} != tables.generations:
        yield "shards and generations disagree"
    for name, shard in tables.shards.items():
        if not name or name != shard.id:
            yield f"shard {shard.id!r} is registered as {name!r}"
        if not 0 < shard.generation <= meta.revision or shard.version > meta.revision:
            yield f"shard {name} is of a later revision than {meta.revision}"


def _references(tables: Tables) -> Iterator[str]:
    for binding in tables.clusters.values():
        if binding.holder not in tables.generations:
            yield f"cluster {binding.cluster} is bound to no registered shard"
    for row in tables.withdrawn.values():
        if row.holder not in tables.generations:
            yield f"domain {row.topology_key}={row.value} is withdrawn from no registered shard"


def _domains(tables: Tables) -> Iterator[str]:
    claims: dict[str, Counter[int]] = {}
    waiting: dict[int, dict[tuple[str, str], None]] = {}
    owned: dict[int, dict[tuple[str, str], None]] = {}
    for place, domain in tables.domains.items():
        if place != (domain.topology_key, domain.value) or not all(place):
            yield f"domain {domain.text} is filed under {place}"
        if domain.holder not in tables.generations and (domain.holder or not tables.awaited(domain)):
            yield f"domain {domain.text} is assigned to no registered shard and awaits nobody"
        if domain.holder in domain.awaiting:
            yield f"domain {domain.text} awaits its own owner"
        owned.setdefault(domain.holder, {})[place] = None
        for generation in domain.awaiting:
            waiting.setdefault(generation, {})[place] = None
        claims.setdefault(domain.topology_key, Counter()).update((domain.holder, *domain.awaiting))
    if {key: count for key, count in tables.claims.items() if count} != claims:
        yield "the index of claims is wrong"
    if tables.waiting != waiting or tables.owned != owned:
        yield "an index of domains is wrong"


def _transfers(tables: Tables) -> Iterator[str]:
    moved: dict[str, dict[str, str]] = {}
    unfinished: dict[int, dict[str, None]] = {}
    for transfer in tables.transfers.values():
        if transfer.recipient not in tables.generations or transfer.donor == transfer.recipient:
            yield f"transfer {transfer.id} has no recipient"
        if transfer.phase is not Phase.ADOPTED:
            for generation in (transfer.donor, transfer.recipient):
                unfinished.setdefault(generation, {})[transfer.id] = None
        if transfer.phase is Phase.PROPOSED:
            if transfer.donor not in tables.generations:
                yield f"transfer {transfer.id} is proposed to no registered shard"
            continue
        if not transfer.machines:
            yield f"transfer {transfer.id} carries nothing"
        if transfer.recipient in transfer.withheld:
            yield f"transfer {transfer.id} is withheld from its recipient"
        for machine in transfer.machines:
            held = moved.setdefault(machine, {})
            if held.setdefault(transfer.provider, transfer.id) != transfer.id or (len(held) > 1 and "" in held):
                yield f"machine {machine} is in two transfers"
    if moved != tables.moved:
        yield "the index of moved machines is wrong"
    if tables.open != unfinished:
        yield "the index of unfinished transfers is wrong"


def _quotas(tables: Tables) -> Iterator[str]:
    for division in tables.divisions.values():
        shares = live_shares(tables, division)
        slots = Counter(slot for share in shares for slot in share.slots)
        if any(count > 1 for count in slots.values()):
            yield f"quota of {division.provider} {division.region} gives a slot twice"
        if any(share.limit < len(share.slots) for share in shares):
            yield f"quota of {division.provider} {division.region} names more slots than it gives"
