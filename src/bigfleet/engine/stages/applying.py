"""Apply, the first stage: what changed goes into the stores, in the one order in which nothing is looked up too early.

Owns what decides when things are derived or given back: the sizes of tables at the last turnover, and what is open to
buyers. Decides nothing about needs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch
from bigfleet.engine.counted.closing import classes_with_more
from bigfleet.engine.fleet.openings import Openings
from bigfleet.engine.nodes.standing import Standing, standing
from bigfleet.engine.outcome.outcome import Latest
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import RefusedRows, RollupOutcome
from bigfleet.engine.stages.stores import Stores
from bigfleet.engine.turnover import Tables

_NONE = np.zeros(0, np.int32)


class Applied(NamedTuple):
    """What became of a step's inputs, and what later stages must know of them."""

    rejected: dict[str, int]
    rollups: dict[str, RollupOutcome]
    refused: dict[str, RefusedRows]
    standing: Standing
    # Classes of which this step's machines brought more that are free or will be (P17).
    more: NDArray[np.int32]
    # Numbers are others than before: what was kept by them is worth nothing.
    renumbered: bool
    # Every entry is to be tried again; whether more or less may be acquired than in the last step.
    retry_all: bool
    doors_changed: bool
    # When the first offer opens again.
    opens: int


class Inputs:
    """The way into the stores."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._openings = Openings()
        self._kept = Tables()
        self._shapes_covered = 0
        self._retry_all = True
        # The next step gives back what is unused, however little it is.
        self.wants_room = False

    def apply(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        conditions: Conditions,
        now: int,
        last: Latest | None,
        *,
        keeps_numbers: bool,
    ) -> Applied:
        stores = self._stores
        rejected: dict[str, int] = {}
        refused: dict[str, RefusedRows] = {}
        renumbered = not keeps_numbers and self._give_back()
        catalog, fleet, nodes = stores.catalog, stores.fleet, stores.nodes
        # As long as nobody reports placement nobody pays for it.
        heard = nodes.heard or (demand is not None and _reports(demand))
        if heard and not nodes.heard:
            nodes.know(np.nonzero(stores.demand.store.c.ready[: stores.clusters])[0])
        if machines is not None and demand is not None and demand.rollups:
            catalog.expect(machines.shapes)
        rollups = stores.demand.apply(demand, policy, now, rejected, refused) if demand is not None else {}
        stale = not catalog.live_keys.are_current()
        if stale:
            catalog.rekey()
        if stale or renumbered:
            stores.derive(now)
            self._retry_all = True
        catalog.complete_matches()
        stores.demand.split()
        fleet.name(catalog.live_keys.named_ids, now)
        fleet.advance(now)
        more = self._apply_machines(machines, now, rejected, heard)
        if demand is not None and heard:
            nodes.take_over(demand, rollups, now, rejected)
        stores.demand.cover_clusters()
        found = self._hear(policy, conditions, now) if nodes.heard else Standing()
        catalog.rank_domains()
        stores.complete()
        fleet.settle()
        self._openings.set_holds(catalog, policy, anew=self._retry_all)
        self._openings.set_breakers(catalog, conditions, now)
        if renumbered:
            self._kept = stores.tables
        retry_all, self._retry_all = self._retry_all, False
        doors = last is None or last.conditions.acquire != conditions.acquire or last.policy is not policy
        return Applied(rejected, rollups, refused, found, more, renumbered, retry_all, doors, self._openings.next)

    def _give_back(self) -> bool:
        """Drops what nobody uses any more, when there is enough of it; everything is then to be derived anew."""
        if not (self.wants_room or self._stores.overgrown(self._kept)):
            return False
        self.wants_room = False
        self._stores.give_back()
        self._shapes_covered = 0
        return True

    def _apply_machines(
        self, machines: MachineBatch | None, now: int, rejected: dict[str, int], heard: bool
    ) -> NDArray[np.int32]:
        """Returns the classes of which there are more now; nobody asks where nobody reports placement."""
        if machines is None or not len(machines):
            return _NONE
        stores = self._stores
        # Not what the last step counted: classes may have been derived anew since.
        before = stores.catalog.machines_by_class()
        stores.fleet.apply(machines, now, rejected)
        more = classes_with_more(before, stores.catalog.machines_by_class()) if heard else _NONE
        stores.nodes.follow()
        stores.demand.follow_machines()
        return more

    def _hear(self, policy: Policy, conditions: Conditions, now: int) -> Standing:
        """Last of the inputs where clusters report placement: nodes, and what conditions say about machines."""
        stores, shapes = self._stores, self._stores.catalog.shapes
        if self._shapes_covered != len(shapes):
            # What is left of a machine is compared in all it has, also in what no row names.
            names = {name for shape in shapes[self._shapes_covered :] for name in shape.allocatable.names()}
            stores.demand.cover_resources(tuple(sorted(names)))
            self._shapes_covered = len(shapes)
        stores.nodes.settle()
        waiting = stores.demand.store.c.lacking
        found = standing(conditions, stores.fleet, stores.nodes.s, waiting, policy.placement, now)
        stores.fleet.keep(found.news, now)
        return found


def nothing_changed(machines: MachineBatch | None, demand: DemandBatch | None) -> bool:
    """Whether there is nothing to apply."""
    return (machines is None or not len(machines)) and (
        demand is None
        or not (
            demand.rollups or demand.links or demand.forgotten or demand.streams or demand.confirmed or demand.reports
        )
    )


def _reports(demand: DemandBatch) -> bool:
    return bool(demand.reports) or any(rollup.counted is not None for rollup in demand.rollups)
