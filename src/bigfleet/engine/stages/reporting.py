"""What a step does besides where clusters report placement: counted entries, and what those clusters give back.

Called only once somebody reports; until then nobody pays for it. `look` changes the running step's `counted` and
`fresh`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.closing import age_units, clear_parking, count_short, mark_parked
from bigfleet.engine.counted.judging import lie_empty
from bigfleet.engine.counted.step import CountedStep
from bigfleet.engine.counted.turns import find_lacking
from bigfleet.engine.decide.need_names import Needs
from bigfleet.engine.fleet.placing import KEPT
from bigfleet.engine.giving_back.giving import aborted, begun
from bigfleet.engine.nodes.sessions import FRESH
from bigfleet.engine.outcome.placed import (
    Placed,
    acquired,
    consolidated,
    given_back,
    preempted,
    released,
    with_dropped,
)
from bigfleet.engine.outcome.units import UnitOutcome
from bigfleet.engine.stages.picking import Picked
from bigfleet.engine.stages.running import Running

_NONE = np.zeros(0, np.int32)


def look(run: Running) -> None:
    """Before Assign: what counted entries lack, and what their clusters could give back."""
    stores, policy = run.stores, run.policy
    mark_parked(run.w, run.rules, stores.clusters, run.applied.more)
    run.giving.begin(stores.nodes, stores.fleet, run.applied.standing, run.w.c.connected, policy.placement, run.now)
    run.fresh = (run.giving.sessions & FRESH) != 0
    lacking = find_lacking(run.w, stores.clusters)
    if lacking is not None:
        run.counted = CountedStep(lacking, policy, run.now, run.bench.victims, run.bench.ranked)


def phases(run: Running, picked: Picked) -> Placed:
    """The three phases: what counted entries got beside what sums did, and what is given back (P40)."""
    w, stores, giving, counted = run.w, run.stores, run.giving, run.counted
    policy, conditions, placement, standing = run.policy, run.conditions, run.policy.placement, run.applied.standing
    fleet, nodes, catalog = stores.fleet, stores.nodes, stores.catalog
    dropped = counted.dropped if counted is not None else _NONE
    victims = set(picked.victims.slot.tolist())
    busy = victims | (counted.busy() if counted is not None else set())
    doubted = counted.doubted() if counted is not None else set()
    going = giving.reclaims(w, catalog, fleet, nodes, standing, busy, doubted, placement, run.now)
    passed = giving.consolidate(
        w, catalog, fleet, nodes, standing, stores.clusters_by_name().tolist(), dropped, conditions, placement,
        run.now,
    )  # fmt: skip
    begun_moves = begun(standing, fleet, conditions, run.now)
    moved = np.array([move.new for each in passed for move in each.moves if move.new >= 0], np.int32)
    leaving = picked.released
    # Machines that were bought and dropped again, and that no move took.
    freed = np.zeros(catalog.class_count, np.int64)
    if len(dropped):
        dropped = dropped[~np.isin(dropped, moved)]
        np.add.at(freed, w.cells.cls[fleet.v.cell[dropped]], 1)
        if conditions.release:
            leaving = with_dropped(w, fleet, dropped, leaving, run.now)
    if len(leaving):
        leaving = leaving[((fleet.v.flags[leaving] & KEPT) == 0) & ~np.isin(leaving, moved)]
    published = giving.published(catalog, placement)
    empty = lie_empty(nodes.r, nodes.s, fleet.v, fleet.cells.v, published, picked.victims.slot, run.now)
    capped = run.live and policy.reclaim_cap_fraction > 0
    reclaims, refused = given_back(
        w, going if conditions.reclaim else {}, picked.excess.slot, picked.excess.cluster, policy,
        policy.reclaim_cap_window_ns * capped,
    )  # fmt: skip
    return Placed(
        first=acquired(w, fleet, counted, picked.acquired, policy),
        second=preempted(w, fleet, *picked.victims, empty),
        reclaims=reclaims,
        rest=consolidated(fleet, begun_moves, passed, policy),
        releases=released(leaving),
        capped=refused,
        freed=freed,
        aborted=tuple(aborted(standing, victims)),
        timer=min(giving.next, standing.next),
    )


def short_units(run: Running) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """What counted entries lack at the end: parts and their entries."""
    w, clusters = run.w, run.stores.clusters
    if run.counted is not None:
        short = run.counted.close(w, clusters)
    else:
        short = np.zeros(len(w.c.start), np.uint8)
        clear_parking(w, clusters)
    most = count_short(w, clusters, short)
    parts, entries = np.empty(most, np.int32), np.empty(most, np.int32)
    found = age_units(w, clusters, short, run.now, parts, entries)
    return parts[:found], entries[:found]


def unit_outcome(run: Running, needs: Needs, placed: Placed) -> UnitOutcome:
    return UnitOutcome(
        needs, run.counted, run.stores.demand, run.stores.nodes, run.applied.standing, run.fresh,
        run.conditions.acquire, run.policy.placement.risk_limit, placed.freed,
    )  # fmt: skip
