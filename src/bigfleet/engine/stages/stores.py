"""What outlives a step: machines, demand and node reports, and the catalog by whose numbers they know each other.

The four agree in their numbers at any time; whoever holds `Stores` reads the catalog from it, because giving back
replaces it. Nothing about a running step belongs here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.demand.demand import Demand
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.kernels.ids import LIVE
from bigfleet.engine.nodes.nodes import Nodes
from bigfleet.engine.turnover import Tables, give_back, overgrown, tables


class Stores:
    def __init__(self) -> None:
        self.catalog = Catalog()
        self.fleet = Fleet(self.catalog)
        self.demand = Demand(self.catalog, self.fleet)
        self.nodes = Nodes(self.catalog, self.fleet, self.demand.cover_resources)
        self.fleet.on_classes = self.complete
        self._by_name = np.zeros(0, np.int32)

    @property
    def clusters(self) -> int:
        """How many clusters have a number."""
        return len(self.fleet.clusters)

    @property
    def tables(self) -> Tables:
        """How much is interned."""
        return tables(self.catalog, self.fleet)

    def clusters_by_name(self) -> NDArray[np.int32]:
        """Clusters in text order of their names."""
        if len(self._by_name) != self.clusters:
            self._by_name = np.argsort(self.demand.store.c.rank[: self.clusters]).astype(np.int32)
        return self._by_name

    def complete(self) -> None:
        """New classes: what they match, and which units they belong to."""
        catalog, fleet = self.catalog, self.fleet
        if catalog.complete_matches():
            self.demand.cover_clusters()
            self.demand.joined(fleet.units.refresh(catalog.match, catalog.class_count, self.clusters))

    def overgrown(self, kept: Tables) -> bool:
        """Whether enough was added since to make giving back worth its while."""
        return overgrown(self.tables, kept, int(self.fleet.ids.v.meta[LIVE]))

    def give_back(self) -> None:
        """Drops what nobody uses any more; classes, cells and units are then to be derived anew."""
        self.catalog = give_back(self.catalog, self.fleet, self.demand, self.nodes)
        self._by_name = np.zeros(0, np.int32)

    def derive(self, now: int) -> None:
        """Derives classes, units and cells anew, under the numbers of today."""
        self.catalog.complete_matches()
        self.fleet.units.forget()
        self.demand.split_all()
        self.fleet.place_all(now)

    def validate(self) -> None:
        """Every invariant of the four; for tests, between steps."""
        self.catalog.validate()
        self.fleet.validate()
        self.demand.validate()
        self.nodes.validate()
