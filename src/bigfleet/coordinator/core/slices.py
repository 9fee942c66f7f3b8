"""The initial slice of a new shard: unassigned zones that hold free machines only.

Without one a new shard would own nothing until somebody is short. Zones with bound machines stay where they are: the
clusters that run there have their shard. Racks are an administrator's to give; reports do not name them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.domains import ownership_keys
from bigfleet.coordinator.core.reports import Standing
from bigfleet.coordinator.core.tables import Tables
from bigfleet.model.names import ZONE_LABEL


def initial_slices(tables: Tables, standings: Mapping[int, Standing]) -> list[do.Command]:
    """Domains for registered shards that own nothing and have nothing; each gets its share of what is free."""
    default = tables.default
    if default is None or ZONE_LABEL not in ownership_keys(tables):
        return []
    new = [
        shard
        for generation, shard in sorted(tables.generations.items())
        if shard.tables
        and shard is not default
        and generation in standings
        and not standings[generation].machines
        and generation not in tables.owned
        and generation not in tables.open
    ]
    zones = _free_zones(tables, standings) if new else []
    share = len(zones) // (len(new) + 1)
    found: list[do.Command] = []
    for number, shard in enumerate(new):
        mine = zones[number * share : (number + 1) * share]
        found.extend(do.AssignDomain(ZONE_LABEL, zone, shard.id) for zone in mine)
    return found


def _free_zones(tables: Tables, standings: Mapping[int, Standing]) -> list[str]:
    """Unassigned zones all of whose machines are free, in order."""
    known: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for standing in standings.values():
        known.update(dict(standing.zones))
        for cell in standing.cells:
            free[cell.kind.zone] += cell.count
    return [
        zone
        for zone, count in sorted(known.items())
        if zone and count and count == free[zone] and (ZONE_LABEL, zone) not in tables.domains
    ]
