"""Standing: what conditions say about single machines and kinds now, looked up by the fleet's numbers (P6, P38).

Made once per step, after all inputs: which moves are open, which machines rest, which kinds are backed off for whom,
and how many pods may be evicted. Owns no state beyond the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions
from bigfleet.engine.fleet.cells import CONFIGURED, DELETING, DRAINING, FAILED
from bigfleet.engine.fleet.fleet import NEVER as NO_TIMER
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.nodes.sessions import Sessions
from bigfleet.engine.placement import Move, RestKind
from bigfleet.engine.policy import Placement
from bigfleet.engine.results import NeedKey


class OpenMove(NamedTuple):
    """A move under way, by slots; `new` is -1 where nothing replaces the old machines."""

    move: Move
    cluster: int
    old: tuple[int, ...]
    new: int


@dataclass(slots=True)
class BackedOff:
    """Of one kind for one cluster: every row, or these."""

    every: bool = False
    rows: set[NeedKey] = field(default_factory=set)


@dataclass(slots=True)
class Standing:
    """`aborted` are first old machines in text order; `moving` and `news` are slots in open moves and new ones of them;
    `drain_rests`, `close_rests` slots that rest; `backoffs` by (cluster, offer); `evictions` and `recent` (old machines
    of moves that began lately, ended ones too) by cluster; `next` the first instant at which any of it changes."""

    open: list[OpenMove] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    moving: set[int] = field(default_factory=set)
    news: set[int] = field(default_factory=set)
    drain_rests: set[int] = field(default_factory=set)
    close_rests: set[int] = field(default_factory=set)
    backoffs: dict[tuple[int, int], BackedOff] = field(default_factory=dict)
    evictions: dict[int, int] = field(default_factory=dict)
    recent: dict[int, int] = field(default_factory=dict)
    next: int = NO_TIMER

    def backed_off(self, cluster: int, offer: int, key: NeedKey) -> bool:
        """Whether this row of the cluster is to have no machine of this kind now (P11)."""
        found = self.backoffs.get((cluster, offer))
        return found is not None and (found.every or key in found.rows)


def standing(
    conditions: Conditions, fleet: Fleet, s: Sessions, waiting: NDArray[np.int64], placement: Placement, now: int
) -> Standing:
    """`waiting` is Σ stranded by cluster."""
    found = Standing()
    if conditions.moves:
        _split_moves(found, conditions, fleet, s, waiting, placement, now)
    for rest in conditions.rests:
        slot = fleet.ids.find(rest.machine) if now < rest.until else -1
        if slot >= 0:
            (found.drain_rests if rest.kind == RestKind.DRAIN else found.close_rests).add(slot)
            found.next = min(found.next, rest.until)
    if conditions.backoffs:
        _look_up_backoffs(found, conditions, fleet, now)
    numbers = fleet.cluster_index
    found.evictions = {numbers[name]: pods for name, pods in conditions.evictions if name in numbers}
    return found


def _split_moves(
    found: Standing,
    conditions: Conditions,
    fleet: Fleet,
    s: Sessions,
    waiting: NDArray[np.int64],
    placement: Placement,
    now: int,
) -> None:
    """Which moves are open, and the first old machine of every one that cannot go on (P38)."""
    for move in conditions.moves:
        number = fleet.cluster_index.get(move.cluster)
        if number is not None and now - move.started < placement.move_window_ns:
            found.recent[number] = found.recent.get(number, 0) + len(move.old)
            found.next = min(found.next, move.started + placement.move_window_ns)
    aborted: set[str] = set()
    going = [move for move in conditions.moves if not move.ended]
    for move in sorted(going, key=lambda move: (move.old[0].encode(), move.new.encode(), move.started)):
        open_move = _going_on(move, fleet, s, waiting, placement, now)
        if open_move is None:
            aborted.add(move.old[0])
            continue
        named = {*open_move.old, open_move.new} - {-1}
        if not named & found.moving:
            found.open.append(open_move)
            found.moving |= named
            found.news |= {open_move.new} - {-1}
            if move.deadline:
                found.next = min(found.next, move.deadline)
    found.aborted = sorted(aborted, key=str.encode)


def _going_on(
    move: Move, fleet: Fleet, s: Sessions, waiting: NDArray[np.int64], placement: Placement, now: int
) -> OpenMove | None:
    cluster = fleet.cluster_index.get(move.cluster, -1)
    if not placement.consolidate or (move.deadline and now >= move.deadline):
        return None
    if not 0 <= cluster < len(s.reporting) or not s.reporting[cluster] or waiting[cluster]:
        return None
    v = fleet.v
    old = tuple(fleet.ids.find(id) for id in move.old)
    if any(slot < 0 or v.state[slot] not in (CONFIGURED, DRAINING) or v.cluster[slot] != cluster for slot in old):
        return None
    if not move.new:
        return OpenMove(move, cluster, old, -1)
    new = fleet.ids.find(move.new)
    if new < 0 or v.state[new] in (0, FAILED, DELETING, DRAINING):
        return None
    if v.state[new] == CONFIGURED and v.cluster[new] != cluster:
        return None
    return OpenMove(move, cluster, old, new)


def _look_up_backoffs(found: Standing, conditions: Conditions, fleet: Fleet, now: int) -> None:
    offers: Mapping[tuple[str, str, str, int], int] = fleet.catalog.offer_index
    for each in conditions.backoffs:
        cluster = fleet.cluster_index.get(each.cluster)
        offer = offers.get((each.provider, each.instance_type, each.zone, each.capacity_type))
        if now >= each.until or cluster is None or offer is None:
            continue
        found.next = min(found.next, each.until)
        entry = found.backoffs.setdefault((cluster, offer), BackedOff())
        if each.row is None:
            entry.every = True
        else:
            entry.rows.add(each.row)
