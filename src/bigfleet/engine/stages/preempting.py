"""Preempt: entries that stayed short take draining machines first, then victims, each in the order of service (§4).

Changes the running step's `w` and the workbench's victims.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.judging import count_judged, judged_blocks
from bigfleet.engine.decide.order import ranks, runs
from bigfleet.engine.decide.preempt import take_draining, take_victims, wanting
from bigfleet.engine.decide.victims import BLOCKS, Weights, count_blocks, make_blocks
from bigfleet.engine.policy import Policy
from bigfleet.engine.stages.running import Running

_NO_TURNS = np.zeros(0, np.int64)


class _Wanting(NamedTuple):
    """Who may preempt: places in the short ones of sums, turns, and the entries of both."""

    chosen: NDArray[np.int32]
    turns: NDArray[np.int64]
    sums: NDArray[np.int32]
    counted: NDArray[np.int32]
    # Classes that any of them could use.
    classes: NDArray[np.uint8]


def preempt(run: Running) -> None:
    run.bench.victims.meta.fill(0)
    wanted = _find_wanting(run)
    if wanted is None or not run.conditions.preempt:
        return
    terms = _terms(run.policy)
    run.w = run.bench.written(run.w, run.stores.fleet)
    _list_victims(run, wanted, terms)
    _take(run, wanted, terms)


def _find_wanting(run: Running) -> _Wanting | None:
    w, counted, (order, short) = run.w, run.counted, run.pending
    turns = counted.short() if counted is not None else _NO_TURNS
    if not len(short) and not len(turns):
        return None
    classes = np.zeros(max(1, run.stores.catalog.class_count), np.uint8)
    chosen = np.empty(len(short), np.int32)
    chosen = chosen[: wanting(w, order, short, len(short), classes, chosen)]
    if not len(chosen) and not len(turns):
        return None
    mine = counted.entries[turns] if counted is not None else order[:0]
    if len(mine):
        classes |= w.match[np.unique(w.p.con[w.e.prof[mine]])][:, : len(classes)].max(axis=0)
    return _Wanting(chosen, turns, order[chosen], mine, classes)


def _terms(policy: Policy) -> Weights:
    weights = policy.victim
    return Weights(
        weights.priority,
        weights.drain / max(weights.drain_estimate_seconds, 1.0),
        weights.interruption,
        weights.reclamation,
        weights.penalty_floor_dollars,
    )


def _list_victims(run: Running, wanted: _Wanting, terms: Weights) -> None:
    """Blocks of machines of less priority than the highest that wants any; reporting clusters' by their reports."""
    w, bench, stores, clusters = run.w, run.bench, run.stores, run.stores.clusters
    fleet, nodes = stores.fleet, stores.nodes
    most = count_blocks(w, clusters)
    if nodes.heard:
        most += count_judged(w, clusters)
    bench.grow_victims(most)
    v, members = bench.victims, fleet.cells.members.v
    ceiling = int(w.p.priority[w.e.prof[np.concatenate((wanted.sums, wanted.counted))]].max())
    make_blocks(w, v, members, fleet.v.place, clusters, wanted.classes, ceiling, terms)
    if nodes.heard:
        mark = run.counted.book.mark if run.counted is not None else np.zeros(len(fleet.v.state), np.uint8)
        published = run.giving.published(stores.catalog, run.policy.placement)
        judged_blocks(
            w, v, nodes.r, nodes.s, fleet.v, members, published, mark, clusters, wanted.classes, ceiling, terms,
            run.now,
        )  # fmt: skip
    bench.rank_anew(int(v.meta[BLOCKS]))


def _take(run: Running, wanted: _Wanting, terms: Weights) -> None:
    """All that drains is given out before the first victim is chosen."""
    counted, bench = run.counted, run.bench
    domains = np.full(len(wanted.chosen), -1, np.int32)
    stretches = [(False, 0, len(wanted.chosen))]
    if len(wanted.turns):
        stretches = list(runs(ranks(run.w, wanted.sums), ranks(run.w, wanted.counted)))
    for kernel in (take_draining, take_victims):
        for is_turn, first, last in stretches:
            if not is_turn:
                _take_for_sums(run, kernel, wanted, terms, first, last, domains)
                continue
            assert counted is not None
            if kernel is take_draining:
                counted.await_draining(run.w, bench.victims, first, last)
            else:
                bench.victims = counted.choose_victims(run.w, bench.victims, bench.ranked, terms, first, last)


def _take_for_sums(
    run: Running,
    kernel: Callable[..., int],
    wanted: _Wanting,
    terms: Weights,
    first: int,
    last: int,
    domains: NDArray[np.int32],
) -> None:
    bench, order, at = run.bench, run.pending.order, first
    while at < last:
        at = kernel(run.w, bench.victims, bench.ranked, terms, order, wanted.chosen, at, last, domains)
        if at < last:
            run.w = bench.grow_takes(run.w, int(wanted.sums[at]))
