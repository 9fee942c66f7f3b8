"""Fold and Assign: rows become entries, each unit is credited with what it has, and what is pending is served in order.

Entries of sums and of units are served in one pass (P17). Changes the running step's `w` and `pending`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.opening import Offered, Opening
from bigfleet.engine.counted.step import CountedStep
from bigfleet.engine.decide.assign import count_pending, order_pending, serve_pending
from bigfleet.engine.decide.credit_units import begin_assign, credit_units
from bigfleet.engine.decide.fold import fold_gangs
from bigfleet.engine.decide.free import SHORTS
from bigfleet.engine.decide.order import ranks, runs
from bigfleet.engine.decide.workbench import Workbench
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.entries import build_entries
from bigfleet.engine.stages.running import Pending, Running
from bigfleet.engine.stages.stores import Stores


def fold(stores: Stores, bench: Workbench) -> World:
    """The world of the step that begins, with the entries of today."""
    store = stores.demand.store
    bench.fit(stores.catalog, stores.fleet, store.entries)
    w, rebuild = bench.world(stores.catalog, stores.fleet, store), bench.which
    found = fold_gangs(
        w.c, w.rows, w.p, w.k, stores.catalog.class_count, w.match, w.cells, w.owners, w.units, w.held, w.dom,
        w.pairs, stores.clusters, rebuild,
    )  # fmt: skip
    if found:
        build_entries(
            w.c, w.rows, w.e, w.parts, w.p, w.texts, store.regions.v, w.owners, w.units, stores.demand.descending,
            rebuild, found,
        )  # fmt: skip
    return w


def assign(run: Running) -> None:
    """Credits what entries have, then serves those that lack something."""
    _credit(run)
    bench, clusters, counted = run.bench, run.stores.clusters, run.counted
    count = count_pending(run.w, clusters)
    if not count and counted is None:
        return
    order, short = np.empty(count, np.int32), np.empty(count, np.int32)
    order_pending(run.w, run.stores.clusters_by_name(), clusters, order)
    run.w = bench.count_universe(run.w, count)
    if counted is None:
        _serve_sums(run, order, 0, count, short)
    else:
        _serve_both(run, counted, order, short)
    run.pending = Pending(order, short[: int(run.w.free.meta[SHORTS])])


def _credit(run: Running) -> None:
    w, which, applied = run.w, run.bench.which, run.applied
    members = run.stores.fleet.cells.members.v
    found = begin_assign(w, members, run.stores.clusters, applied.retry_all, applied.doors_changed, which)
    at = 0
    while at < found:
        at = credit_units(w, members, run.rules, which, at, found)
        if at < found:
            w = run.bench.grow_credit(w, int(which[at]))
    run.w = w


def _serve_sums(run: Running, order: NDArray[np.int32], first: int, last: int, short: NDArray[np.int32]) -> None:
    w, at = run.w, first
    while at < last:
        at = serve_pending(w, run.rules, order, at, last, short)
        if at < last:
            w = run.bench.grow_service(w, int(order[at]))
    run.w = w


def _serve_both(run: Running, counted: CountedStep, order: NDArray[np.int32], short: NDArray[np.int32]) -> None:
    stores, giving, placement = run.stores, run.giving, run.policy.placement
    lacking = stores.demand.store.c.lacking
    offered = Offered(
        *giving.offered(stores.nodes, lacking, stores.fleet, stores.catalog, run.conditions, placement, run.now)
    )
    opening = Opening(counted.lacking, counted.rules, stores.catalog, stores.fleet, stores.demand, stores.nodes)

    def world() -> World:
        return run.bench.world(stores.catalog, stores.fleet, stores.demand.store)

    opened = opening.open(
        world, run.policy, run.conditions, run.applied.standing, giving.published(stores.catalog, placement),
        run.fresh, offered,
    )  # fmt: skip
    run.w = counted.begin(opened)
    stretches: Iterable[tuple[bool, int, int]] = [(True, 0, len(counted.entries))]
    if len(order):
        stretches = runs(ranks(run.w, order), ranks(run.w, counted.entries))
    for is_turn, first, last in stretches:
        if is_turn:
            counted.serve(run.w, first, last)
        else:
            _serve_sums(run, order, first, last, short)
    counted.finish(run.w)
