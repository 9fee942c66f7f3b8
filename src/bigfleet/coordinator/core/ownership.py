"""Who owns a machine, read off the tables: what a shard's table tells it, said once for tests and the simulator too."""

from __future__ import annotations

from collections.abc import Mapping

from bigfleet.coordinator.core.domains import ownership_keys
from bigfleet.coordinator.core.records import Phase, Rails, Shard
from bigfleet.coordinator.core.tables import Tables

IN_TRANSIT = 0


def owner_of(tables: Tables, provider: str, machine: str, labels: Mapping[str, str]) -> int:
    """The generation that may act on a machine; IN_TRANSIT while a transfer or a domain's change holds it."""
    transfer = tables.holding(provider, machine)
    if transfer is not None:
        return transfer.recipient if transfer.phase is Phase.ADOPTED else IN_TRANSIT
    for key in ownership_keys(tables):
        domain = tables.domains.get((key, labels.get(key, "")))
        if domain is not None:
            return IN_TRANSIT if tables.awaited(domain) else domain.holder
    default = tables.default
    return default.generation if default is not None else IN_TRANSIT


def rails_of(tables: Tables, shard: Shard) -> Rails | None:
    """The switches in force for a shard: the stricter of its own and the fleet's; None when neither was ever set."""
    set_for = [tables.rails[name] for name in ("", shard.id) if name in tables.rails]
    if not set_for:
        return None
    strictest = max(set_for, key=lambda each: (each.paused, each.dry_run, each.shard == shard.id))
    return Rails(
        shard=shard.id,
        paused=any(each.paused for each in set_for),
        dry_run=any(each.dry_run for each in set_for),
        reason=strictest.reason,
        set_by=strictest.set_by,
        set_at=strictest.set_at,
    )


def halted(tables: Tables, shard: Shard) -> bool:
    """Whether a switch holds the shard's hands; it neither gives nor gets machines then."""
    rails = rails_of(tables, shard)
    return rails is not None and (rails.paused or rails.dry_run)
