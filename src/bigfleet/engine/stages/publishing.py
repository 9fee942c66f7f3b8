"""Publish, the last stage: rails on what was picked, ages of what stayed short, and everything a step tells (§6, §7).

Spends reclaim tokens and ages shortfalls; what is told is rendered when somebody asks.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.decide.need_names import Needs
from bigfleet.engine.decide.order import in_order
from bigfleet.engine.decide.reclaim import spend
from bigfleet.engine.decide.victims import forget_lost
from bigfleet.engine.fleet.tally import Columns, Counts
from bigfleet.engine.kernels.ids import USED
from bigfleet.engine.outcome.actions import ActionBatch, Names, all_actions, shares
from bigfleet.engine.outcome.outcome import StepResult
from bigfleet.engine.outcome.placed import Placed
from bigfleet.engine.outcome.shortfall import ShortfallBatch, age_parts, count_parts, next_change
from bigfleet.engine.outcome.verdict import VerdictBatch
from bigfleet.engine.placement import Move
from bigfleet.engine.stages import reporting
from bigfleet.engine.stages.picking import Picked
from bigfleet.engine.stages.running import Running
from bigfleet.engine.stages.stores import Stores

_NONE = np.zeros(0, np.int32)


class _Kept(NamedTuple):
    """What the rails let through, how many actions they defer, and whether tokens were spent."""

    actions: ActionBatch
    deferred: int
    spent: bool


def publish(run: Running, picked: Picked, clock: NDArray[np.int64]) -> tuple[StepResult, bool]:
    """What the step decided, and whether a step without news would decide the same until `next_timer`. `clock` counts
    the engine's steps: once it has gone on, nothing of this one is rendered any more."""
    w, stores, policy, counted = run.w, run.stores, run.policy, run.counted
    fleet, number = stores.fleet, int(clock[0])
    needs = Needs(w, stores.catalog, fleet.clusters, number, clock)
    names = Names(fleet.ids.texts, fleet.clusters, needs.entry_key)
    placed = reporting.phases(run, picked) if stores.nodes.heard else None
    if placed is not None:
        kept = _Kept(*placed.rails(w, policy, run.conditions, names, run.live))
    else:
        kept = _rails(run, picked, names)
    victims = picked.victims
    if len(victims.slot):
        forget_lost(w, run.bench.victims)
    part_of, entry_of = _short_parts(run)
    if placed is not None:
        parts, entries = reporting.short_units(run)
        part_of, entry_of = np.concatenate((part_of, parts)), np.concatenate((entry_of, entries))
    verdicts = VerdictBatch(
        needs, _told_order(run), victims.entry, victims.slot,
        w.cells.cls[fleet.v.cell[victims.slot]] if len(victims.slot) else _NONE, run.now, run.conditions.acquire,
        policy, reporting.unit_outcome(run, needs, placed) if placed is not None else None,
    )  # fmt: skip
    doubted = counted.doubted() if counted is not None else ()
    result = StepResult(
        now=run.now,
        actions=kept.actions,
        verdicts=verdicts,
        shortfalls=ShortfallBatch(part_of, entry_of, run.now, policy, needs, verdicts),
        rejected=run.applied.rejected,
        rollups=run.applied.rollups,
        refused=run.applied.refused,
        deferred=kept.deferred,
        capped=picked.excess.capped + (placed.capped if placed is not None else 0),
        counts=Counts(fleet.counted, partial(_columns, stores, clock, number)),
        next_timer=_next_timer(run, picked, placed, part_of),
        aborted=placed.aborted if placed is not None else _all_of(run.conditions.moves),
        doubted=tuple(sorted((fleet.clusters[each] for each in doubted), key=str.encode)),
    )
    # What reporting clusters say runs out all the time: their freshness, holds and deadlines.
    return result, not kept.spent and placed is None


def _rails(run: Running, picked: Picked, names: Names) -> _Kept:
    """The rails where nobody reports placement (R6.1)."""
    w, policy, excess = run.w, run.policy, picked.excess
    n3, n4 = len(excess.slot), len(picked.released)
    wanted = len(picked.acquired.slot), len(picked.victims.slot), n3 + n4
    k1, k2, k3 = shares(wanted, policy.max_actions_per_step if run.live else 0)
    kept3 = min(n3, k3)
    spent = run.live and policy.reclaim_cap_fraction > 0 and kept3 > 0
    if spent:
        spend(w, excess.cluster, kept3, policy.reclaim_cap_window_ns)
    actions = all_actions(
        w, run.stores.fleet.v.cluster, names, run.conditions, policy, (k1, k2, kept3, k3 - kept3), picked.acquired,
        *picked.victims, excess.slot, excess.cluster, picked.released,
    )  # fmt: skip
    return _Kept(actions, sum(wanted) - k1 - k2 - k3, spent)


def _short_parts(run: Running) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """What entries of sums lack: parts and their entries, with their age."""
    w, (order, short) = run.w, run.pending
    if not len(short):
        return _NONE, _NONE
    most = count_parts(w, order, short, len(short))
    part_of, entry_of = np.empty(most, np.int32), np.empty(most, np.int32)
    lacking = age_parts(w, order, short, len(short), run.now, part_of, entry_of)
    return part_of[:lacking], entry_of[:lacking]


def _told_order(run: Running) -> NDArray[np.int32]:
    """Entries that were served, of both kinds, in order."""
    order = run.pending.order
    if run.counted is None:
        return order
    if not len(order):
        return run.counted.entries
    both = np.concatenate((order, run.counted.entries))
    return both[in_order(run.w, both)]


def _next_timer(run: Running, picked: Picked, placed: Placed | None, part_of: NDArray[np.int32]) -> int:
    """When a step without news could decide differently."""
    policy, stores = run.policy, run.stores
    timer = min(picked.timer, stores.fleet.next_due, run.applied.opens)
    if placed is not None:
        timer = min(timer, placed.timer)
    if run.counted is not None and run.counted.hopeless:
        timer = min(timer, run.now + policy.cycle_ns)
    if len(part_of) or picked.parking:
        escalate = policy.escalate_after_ns
        timer = min(timer, next_change(run.w, run.rules, part_of, len(part_of), escalate, stores.clusters))
    return timer


def _columns(stores: Stores, clock: NDArray[np.int64], number: int) -> Columns:
    """What machines are counted by; valid until the next step."""
    if number != int(clock[0]):
        raise RuntimeError(
            f"counts of step {number} were asked for after step {int(clock[0])}; "
            "render what you keep before the engine's next step"
        )
    fleet, used = stores.fleet, int(stores.fleet.ids.v.meta[USED])
    offers = stores.catalog.shape_offer[fleet.v.shape[:used]]
    return Columns(fleet.v.state[:used], offers, fleet.v.cluster[:used], stores.catalog.offers, fleet.clusters)


def _all_of(moves: tuple[Move, ...]) -> tuple[str, ...]:
    """First old machines of the moves that have not ended: where nobody reports placement none goes on."""
    return tuple(sorted({move.old[0] for move in moves if not move.ended}, key=str.encode)) if moves else ()
