"""Turnover: what no machine, row or cluster uses any more is given back, and what stays is numbered anew.

Jobs come and go, and with them profiles, groups, stamps and clusters; tables that only grew would grow for months. When
one of them has doubled since the last time, everything in use moves into a new catalog and the old one is dropped.
Numbers decide nothing, so neither does this; they keep their order, because rows are kept by it. Classes, cells and
units are derived anew afterwards, as they are when live keys change.
"""

from __future__ import annotations

from functools import lru_cache
from operator import gt
from typing import NamedTuple

import numpy as np

from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.demand.demand import Demand
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.fleet.partitions import MAX_SPLITS
from bigfleet.engine.nodes.nodes import Nodes

# So much may be added to any table before giving back pays; deriving everything anew costs by the machine.
ROOM, MACHINES_PER_ROOM = 4096, 16
# The same for resources, which widen every amounts matrix, and for the bytes of the match matrix.
RESOURCES_ROOM, MATCH_ROOM = 16, 2**24


class Tables(NamedTuple):
    """How much is interned; every other table is bounded by these."""

    texts: int = 0
    profiles: int = 0
    stamps: int = 0
    shapes: int = 0
    classes: int = 0
    clusters: int = 0
    resources: int = 0
    match: int = 0
    splits: int = 0
    odd: int = 0


def tables(catalog: Catalog, fleet: Fleet) -> Tables:
    classes = catalog.class_count
    return Tables(
        len(catalog.texts.texts),
        len(catalog.profiles),
        len(catalog.stamps.stamps),
        len(catalog.shapes),
        classes,
        len(fleet.clusters),
        len(catalog.resources),
        catalog.constraint_count * classes,
        fleet.units.split_count,
        len(catalog.odd),
    )


def overgrown(now: Tables, before: Tables, machines: int) -> bool:
    """Whether a table has doubled, and by enough to make giving back worth its while."""
    return any(map(gt, now, _limits(before, machines // MACHINES_PER_ROOM)))


@lru_cache(maxsize=4)
def _limits(before: Tables, room: int) -> Tables:
    """How large each table may become before what is unused is given back."""
    texts, profiles, stamps, shapes, classes, clusters = (2 * kept + ROOM + room for kept in before[:6])
    return Tables(
        texts, profiles, stamps, shapes, classes, clusters,
        2 * before.resources + RESOURCES_ROOM,
        2 * before.match + MATCH_ROOM,
        # Clusters beyond the last split are credited whole, which is slower.
        MAX_SPLITS - 1 if MAX_SPLITS > 2 * before.splits else MAX_SPLITS,
        2 * before.odd + ROOM + room,
    )  # fmt: skip


def give_back(catalog: Catalog, fleet: Fleet, demand: Demand, nodes: Nodes) -> Catalog:
    """Moves machines and demand to a catalog of what they use; call between steps, then derive classes, cells, units.

    Nothing may be half applied: the entries must be those of the rows.
    """
    resources = demand.resources_in_use()
    if nodes.heard:
        # What nodes have and what is left of it is compared in all resources, also those no row names.
        resources = np.arange(len(catalog.resources))
    fresh = catalog.emptied(catalog.resources[column] for column in resources.tolist())
    fresh.odd = catalog.odd.kept(demand.odd_in_use())
    profiles, groups = demand.profiles_in_use(), demand.groups_in_use()
    shapes, stamps = fleet.shapes_in_use(), fleet.stamps_in_use()
    clusters = np.union1d(fleet.clusters_in_use(), demand.clusters_in_use())
    clusters = np.union1d(clusters, nodes.clusters_in_use())
    texts = catalog.texts.texts
    new_groups = np.zeros(len(texts), np.int32)
    new_groups[groups] = fresh.texts.intern_all([texts[number] for number in groups.tolist()])
    new_profiles = np.zeros(max(1, len(catalog.profiles)), np.int32)
    new_profiles[profiles] = fresh.intern_profiles([catalog.profiles[number] for number in profiles.tolist()])
    # What is not used has number 0, and nobody reads it.
    new_shapes = np.zeros(max(1, len(catalog.shapes)), np.int32)
    new_shapes[shapes] = [fresh.intern_shape(catalog.shapes[number]) for number in shapes.tolist()]
    known = catalog.stamps.stamps
    new_stamps = np.zeros(max(1, len(known)), np.int32)
    new_stamps[stamps] = fresh.stamps.intern_stamps([known[number] for number in stamps.tolist()])
    # The last place is what -1, no cluster, finds.
    new_clusters = np.full(len(fleet.clusters) + 1, -1, np.int32)
    new_clusters[clusters] = np.arange(len(clusters))
    fleet.renumber(fresh, new_shapes, new_stamps, new_clusters, clusters)
    demand.renumber(fresh, new_profiles, new_groups, new_clusters, clusters, resources)
    nodes.renumber(fresh, new_clusters, clusters, resources)
    return fresh
