"""Pick: which machines the decisions of Assign, Preempt and Reclaim mean (§4 to §6), phase by phase, before the rails.

Owns the count of steps by which Reclaim knows how long a machine has been excess.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.decide.reclaim import (
    BINDINGS,
    CAPPED,
    COUNT,
    EXCESS,
    NEXT,
    PARKING,
    RELEASABLE,
    VICTIMS,
    ReclaimRules,
    reclaim,
    release,
    survey,
    token_time,
)
from bigfleet.engine.decide.victims import victim_slots
from bigfleet.engine.fleet.fleet import NEVER
from bigfleet.engine.nodes.sessions import MODE_HELD
from bigfleet.engine.outcome.actions import NO_ACQUISITIONS, Acquisitions, bindings
from bigfleet.engine.stages.running import Running

_NONE = np.zeros(0, np.int32)
_NO_GAPS = np.zeros(0, np.int64)
_NO_CLUSTERS = np.zeros(0, np.uint8)


class Victims(NamedTuple):
    """Machines that are preempted, for whom, and by how much priority."""

    slot: NDArray[np.int32]
    entry: NDArray[np.int32]
    gap: NDArray[np.int64]


class Excess(NamedTuple):
    """Machines that are reclaimed and whose they are; how many the cap leaves out."""

    slot: NDArray[np.int32]
    cluster: NDArray[np.int32]
    capped: int = 0


class Picked(NamedTuple):
    """Machines of the phases: what is acquired, who is preempted, what is reclaimed and what is released."""

    acquired: Acquisitions
    victims: Victims
    excess: Excess
    released: NDArray[np.int32]
    # Some entry is parked; when the first machine would be picked without news.
    parking: bool
    timer: int


_NO_VICTIMS = Victims(_NONE, _NONE, _NO_GAPS)
_NO_EXCESS = Excess(_NONE, _NONE)


class Picks:
    def __init__(self) -> None:
        # Reclaim's steps. The first is 2: machines that no step found excess have 0, which is not the one before it.
        self._epoch = 1
        self._out = np.zeros(8, np.int64)

    def pick(self, run: Running) -> Picked:
        w, out, policy = run.w, self._out, run.policy
        self._epoch += 1
        hold = ReclaimRules(
            run.now,
            self._epoch,
            policy.reclaim_hold_ns,
            policy.reclaim_cap_fraction,
            policy.reclaim_cap_window_ns,
            run.live,
        )
        survey(w, run.bench.victims, run.stores.clusters, hold, out)
        found = out.tolist()
        acquired = _acquired(run, found[BINDINGS]) if found[BINDINGS] else NO_ACQUISITIONS
        victims = _victims(run, found[VICTIMS]) if found[VICTIMS] else _NO_VICTIMS
        excess, due = self._excess(run, found[EXCESS], hold) if found[EXCESS] else (_NO_EXCESS, NEVER)
        released, leaves = self._released(run, found[RELEASABLE]) if found[RELEASABLE] else (_NONE, found[NEXT])
        return Picked(acquired, victims, excess, released, bool(found[PARKING]), min(due, leaves))

    def _excess(self, run: Running, most: int, hold: ReclaimRules) -> tuple[Excess, int]:
        stores, out = run.stores, self._out
        slot, cluster = np.empty(most, np.int32), np.empty(most, np.int32)
        reclaim(
            run.w, stores.fleet.v, stores.fleet.cells.members.v, stores.clusters_by_name(), stores.clusters, hold,
            _resting_clusters(run), slot, cluster, out,
        )  # fmt: skip
        n, capped = (int(out[COUNT]), int(out[CAPPED])) if run.conditions.reclaim else (0, 0)
        timer = int(out[NEXT])
        if capped:
            timer = min(timer, token_time(run.w, stores.clusters, hold))
        return Excess(slot[:n], cluster[:n], capped), timer

    def _released(self, run: Running, most: int) -> tuple[NDArray[np.int32], int]:
        fleet, out = run.stores.fleet, self._out
        slot = np.empty(most, np.int32)
        release(run.w, fleet.v, fleet.cells.members.v, run.now, slot, out)
        return slot[: int(out[COUNT]) if run.conditions.release else 0], int(out[NEXT])


def _acquired(run: Running, count: int) -> Acquisitions:
    fleet, made = run.stores.fleet, Acquisitions.of(count)
    bindings(run.w, fleet.cells.members.v, fleet.v.place, *made)
    return made


def _victims(run: Running, count: int) -> Victims:
    fleet = run.stores.fleet
    made = Victims(np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int64))
    victim_slots(run.w, run.bench.victims, fleet.cells.members.v, fleet.v.place, *made)
    return made


def _resting_clusters(run: Running) -> NDArray[np.uint8]:
    """Clusters that changed their mode so lately that nothing of them is reclaimed (P2); none where nobody reports."""
    if not run.stores.nodes.heard:
        return _NO_CLUSTERS
    return ((run.giving.sessions & MODE_HELD) != 0).astype(np.uint8)
