"""Reclaim and release: bound machines nobody claims go back, idle ones nobody wanted for long are let go (§5).

Owns how long a machine has been excess, the clusters' token buckets and the idle holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.decide.victims import TAKES, Victims
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import (
    CONFIGURED,
    OWNER_HELD_IDLE,
    OWNER_IDLE,
)
from bigfleet.engine.fleet.members import order_members, sort_slots
from bigfleet.engine.fleet.placing import RARE, Slots
from bigfleet.engine.kernels.ids import id_less
from bigfleet.engine.kernels.jit import I4, I8, U1, inner, kernel
from bigfleet.engine.kernels.pool import Pool

# Places in the `out` column of `reclaim` and `release`, and of `survey`.
COUNT, CAPPED, NEXT = 0, 1, 2
BINDINGS, VICTIMS, EXCESS, RELEASABLE, PARKING = 3, 4, 5, 6, 7
_NEVER = 9223372036854775807


class ReclaimRules(NamedTuple):
    """Hold, cap and instant; `fraction` 0 means no cap, `capped` False skips it (nothing will be done anyway)."""

    now: int
    epoch: int
    hold: int
    fraction: float
    window: int
    capped: bool


@kernel
def survey(w: World, v: Victims, clusters: int, rules: ReclaimRules, out: I8) -> None:
    """Refills the buckets and counts what the rest of the step has to do: acquisitions, victims, excess machines of
    ready clusters, idle machines to release at most (and when the next could be), units whose parking runs."""
    out[BINDINGS] = 0
    for i in range(w.got.meta[0]):
        out[BINDINGS] += w.got.n[i]
    out[VICTIMS] = 0
    for i in range(v.meta[TAKES]):
        out[VICTIMS] += v.take_n[i]
    out[EXCESS] = 0
    out[PARKING] = 0
    for cluster in range(clusters):
        if w.c.ready[cluster] != 0:
            _refill(w, cluster, rules)
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            out[PARKING] += w.owners.timed[owner]
            if w.owners.stall[owner] >= 0:
                # Counted again: the shard-wide pass served it.
                w.owners.excess[owner] = 0
                for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
                    cell = w.held.data[k]
                    if w.cells.state[cell] == CONFIGURED:
                        w.owners.excess[owner] += w.cells.count[cell] - w.cells.taken[cell]
            if w.c.ready[cluster] != 0:
                out[EXCESS] += w.owners.excess[owner]
    out[RELEASABLE] = 0
    out[NEXT] = _NEVER
    for owner in (OWNER_IDLE, OWNER_HELD_IDLE):
        for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
            cell = w.held.data[k]
            hold = w.k.hold[w.cells.cls[cell]]
            if hold <= 0:
                continue
            if rules.now - w.cells.idle_floor[cell] >= hold:
                out[RELEASABLE] += w.cells.count[cell] - w.cells.taken[cell]
            else:
                out[NEXT] = min(out[NEXT], w.cells.idle_floor[cell] + hold)


@inner
def _bucket_size(w: World, cluster: int, fraction: float) -> int:
    configured = 0
    for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
        configured += w.owners.configured[owner]
    return max(1, int(fraction * configured))


@inner
def _has_excess(w: World, cluster: int) -> bool:
    for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
        if w.owners.excess[owner] > 0:
            return True
    return False


@inner
def _refill(w: World, cluster: int, rules: ReclaimRules) -> None:
    """The bucket of a ready cluster: full at first sight, then by the size of this step."""
    if rules.fraction <= 0.0:
        # Without a cap there is no bucket; when one is set it starts full.
        w.c.sighted[cluster] = 0
        return
    size = _bucket_size(w, cluster, rules.fraction)
    if w.c.sighted[cluster] == 0:
        w.c.sighted[cluster] = 1
        w.c.tokens[cluster] = size * rules.window
    else:
        passed = min(max(0, rules.now - w.c.refilled[cluster]), rules.window)
        w.c.tokens[cluster] = min(size * rules.window, w.c.tokens[cluster] + size * passed)
    w.c.refilled[cluster] = rules.now


@kernel
def reclaim(
    w: World, slots: Slots, members: Pool, by_name: I4, clusters: int, rules: ReclaimRules, resting: U1, slot: I4,
    cluster_of: I4, out: I8,
) -> None:  # fmt: skip
    """Excess machines in the order in which they go, within hold and cap; `resting` clusters, if any are told, give
    nothing back yet."""
    out[COUNT] = 0
    out[CAPPED] = 0
    out[NEXT] = _NEVER
    for i in range(clusters):
        cluster = by_name[i]
        if w.c.ready[cluster] == 0 or not _has_excess(w, cluster):
            continue
        most = 0
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            most += w.owners.used[owner]
        order = np.empty(most, np.int32)
        blocks = 0
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            if w.owners.excess[owner] == 0:
                continue
            for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
                cell = w.held.data[k]
                if w.cells.state[cell] != CONFIGURED or w.cells.count[cell] == w.cells.taken[cell]:
                    continue
                order_members(w.cells, members, w.ids, slots.place, cell)
                _mark(w, slots, members, cell, rules)
                if w.cells.count[cell] > w.cells.taken[cell] + w.cells.lost[cell]:
                    _insert(w, members, order, blocks, cell)
                    blocks += 1
        if len(resting) > 0 and resting[cluster] != 0:
            continue
        allowed = _NEVER
        if rules.capped and rules.fraction > 0.0:
            allowed = w.c.tokens[cluster] // rules.window
        for b in range(blocks):
            cell = order[b]
            start = w.cells.start[cell]
            for m in range(w.cells.taken[cell] + w.cells.lost[cell], w.cells.count[cell]):
                machine = members.data[start + m]
                since = slots.excess_since[machine]
                if rules.now - since < rules.hold:
                    out[NEXT] = min(out[NEXT], since + rules.hold)
                elif allowed == 0:
                    out[CAPPED] += 1
                else:
                    allowed -= 1
                    slot[out[COUNT]] = machine
                    cluster_of[out[COUNT]] = cluster
                    out[COUNT] += 1


@inner
def _mark(w: World, slots: Slots, members: Pool, cell: int, rules: ReclaimRules) -> None:
    """Notes since when each unclaimed machine has been excess in every step; victims are still excess."""
    start = w.cells.start[cell]
    for m in range(w.cells.taken[cell], w.cells.count[cell]):
        machine = members.data[start + m]
        if slots.excess_mark[machine] != rules.epoch - 1:
            slots.excess_since[machine] = rules.now
        slots.excess_mark[machine] = rules.epoch
        slots.flags[machine] |= RARE


@inner
def _insert(w: World, members: Pool, order: I4, blocks: int, cell: int) -> None:
    """Keeps excess blocks ordered: price, then what reclaiming costs, then smallest id."""
    mine = members.data[w.cells.start[cell] + w.cells.taken[cell] + w.cells.lost[cell]]
    at = blocks
    while at > 0:
        other = order[at - 1]
        if w.cells.price[cell] != w.cells.price[other]:
            before = w.cells.price[cell] < w.cells.price[other]
        elif w.cells.worth[cell] != w.cells.worth[other]:
            before = w.cells.worth[cell] < w.cells.worth[other]
        else:
            theirs = members.data[w.cells.start[other] + w.cells.taken[other] + w.cells.lost[other]]
            before = id_less(w.ids, mine, theirs)
        if not before:
            break
        order[at] = other
        at -= 1
    order[at] = cell


@kernel
def spend(w: World, cluster_of: I4, kept: int, window: int) -> None:
    """Takes the tokens of the reclaims that are carried out."""
    for i in range(kept):
        w.c.tokens[cluster_of[i]] -= window


# Walks idle machines as `survey` does: that one only counts, and a kernel has no callbacks to share a walk with.
@kernel
def release(w: World, slots: Slots, members: Pool, now: int, slot: I4, out: I8) -> None:
    """Idle machines nobody claims whose hold is over, in id order."""
    out[COUNT] = 0
    out[NEXT] = _NEVER
    for owner in (OWNER_IDLE, OWNER_HELD_IDLE):
        for k in range(w.owners.start[owner], w.owners.start[owner] + w.owners.used[owner]):
            cell = w.held.data[k]
            hold = w.k.hold[w.cells.cls[cell]]
            if hold <= 0:
                continue
            if now - w.cells.idle_floor[cell] < hold:
                out[NEXT] = min(out[NEXT], w.cells.idle_floor[cell] + hold)
                continue
            taken = w.cells.taken[cell]
            if taken > 0:
                order_members(w.cells, members, w.ids, slots.place, cell)
            floor = _NEVER
            start = w.cells.start[cell]
            for m in range(w.cells.used[cell]):
                machine = members.data[start + m]
                if machine < 0:
                    continue
                since = slots.idle_since[machine]
                floor = min(floor, since)
                if m < taken:
                    continue
                if now - since >= hold:
                    slot[out[COUNT]] = machine
                    out[COUNT] += 1
                else:
                    out[NEXT] = min(out[NEXT], since + hold)
            w.cells.idle_floor[cell] = floor
    sort_slots(w.ids, slot, out[COUNT])


@kernel
def token_time(w: World, clusters: int, rules: ReclaimRules) -> int:
    """When the first of the clusters that wait for a token has one."""
    best = _NEVER
    for cluster in range(clusters):
        if w.c.ready[cluster] == 0 or not _has_excess(w, cluster):
            continue
        size = _bucket_size(w, cluster, rules.fraction)
        missing = rules.window - w.c.tokens[cluster] % rules.window
        best = min(best, rules.now + (missing + size - 1) // size)
    return best
