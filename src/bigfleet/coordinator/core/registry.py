"""Shards, the clusters bound to them, providers and rails: registration and removal.

A cluster has one shard and keeps it; only an explicit move or the removal of its shard changes that.
"""

from __future__ import annotations

from msgspec.structs import replace

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Code, Refused
from bigfleet.coordinator.core.records import Binding, Shard
from bigfleet.coordinator.core.tables import Tables


def registered(tables: Tables, shard: str) -> Shard:
    """The shard of this id, or a refusal."""
    found = tables.shards.get(shard)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"coordinator: shard not found: {shard}")
    return found


def add_shard(tables: Tables, command: do.AddShard) -> None:
    if not command.id:
        raise Refused(Code.INVALID, "coordinator: ShardEntry.ID required")
    if command.id in tables.shards:
        raise Refused(Code.EXISTS, f"coordinator: shard already registered: {command.id}")
    tables.put(
        Shard(
            id=command.id,
            generation=tables.next,
            address=command.address,
            registered_at=command.at,
            tables=command.tables,
            version=tables.next,
        )
    )


def update_shard(tables: Tables, command: do.UpdateShard) -> None:
    shard = registered(tables, command.id)
    changed = replace(shard, address=command.address or shard.address, tables=command.tables)
    if changed != shard:
        tables.put(changed)


def remove_shard(tables: Tables, command: do.RemoveShard) -> None:
    tables.bury(registered(tables, command.id))
    tables.touch_fleet()
    if not tables.generations:
        tables.put(replace(tables.meta, emptied=tables.next))


def bind_cluster(tables: Tables, command: do.BindCluster) -> None:
    if not command.cluster:
        raise Refused(Code.INVALID, "coordinator: cluster id required")
    shard = registered(tables, command.shard)
    bound = tables.clusters.get(command.cluster)
    if bound is None:
        tables.put(Binding(command.cluster, shard.generation, command.at))
    elif bound.holder != shard.generation:
        raise Refused(
            Code.EXISTS,
            f"coordinator: cluster already bound to a different shard: {command.cluster} currently bound to "
            f"{tables.generations[bound.holder].id}, asked {command.shard}",
        )


def move_cluster(tables: Tables, command: do.MoveCluster) -> str:
    """Returns the shard it was bound to."""
    shard = registered(tables, command.shard)
    bound = tables.clusters.get(command.cluster)
    if bound is None:
        raise Refused(Code.NOT_FOUND, f"coordinator: cluster not found: {command.cluster}")
    before = tables.generations[bound.holder].id
    if bound.holder != shard.generation:
        tables.put(Binding(command.cluster, shard.generation, command.at))
    return before


def upsert_provider(tables: Tables, command: do.UpsertProvider) -> None:
    provider = command.provider
    if not provider.name:
        raise Refused(Code.INVALID, "coordinator: ProviderEntry.Name required")
    if tables.providers.get(provider.name) != provider:
        tables.put(provider)


def remove_provider(tables: Tables, command: do.RemoveProvider) -> None:
    provider = tables.providers.get(command.name)
    if provider is None:
        raise Refused(Code.NOT_FOUND, f"coordinator: provider not found: {command.name}")
    tables.drop(provider)


def set_rails(tables: Tables, command: do.SetRails) -> None:
    if command.rails.shard:
        registered(tables, command.rails.shard)
    if tables.rails.get(command.rails.shard) != command.rails:
        tables.put(command.rails)
