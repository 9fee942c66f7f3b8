"""Actions of a step in which clusters report placement: three phases made of both kinds of clusters, and the rails on
them (P40). It renders what was decided and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions
from bigfleet.engine.counted.book import BUY, PAID_EMPTY, PAID_IDLE, REOPEN
from bigfleet.engine.counted.supply import sort_machines
from bigfleet.engine.decide.order import in_order
from bigfleet.engine.decide.reclaim import spend
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import IDLE
from bigfleet.engine.outcome.actions import (
    NO_ENTRY,
    Acquisitions,
    ActionBatch,
    Names,
    Phase,
    graces,
    joined,
    reasons_of,
    same,
    shares,
    told_actions,
)
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind, Reason

if TYPE_CHECKING:
    from bigfleet.engine.counted.step import CountedStep
    from bigfleet.engine.fleet.fleet import Fleet
    from bigfleet.engine.giving_back.consolidation import Moved, Passed
    from bigfleet.engine.giving_back.giving import Goings

_TIERS = {
    REOPEN: (ActionKind.REOPEN, Reason.REOPEN),
    PAID_EMPTY: (ActionKind.RECLAIM, Reason.EMPTY),
    PAID_IDLE: (ActionKind.BOOTSTRAP, Reason.IDLE),
    BUY: (ActionKind.PROVISION, Reason.SPECULATIVE),
}
# The same by tier, as columns have them.
_KINDS, _WHYS = np.zeros(8, np.uint8), np.zeros(8, np.uint8)
for _number, (_kind, _reason) in _TIERS.items():
    _KINDS[_number], _WHYS[_number] = _kind, same(1, _reason)[0]
_NONE = np.zeros(0, np.int32)
NO_PHASE = Phase.of(np.zeros(0, np.uint8), _NONE, _NONE, _NONE, np.zeros(0, np.uint8))


@dataclass(eq=False)
class Placed:
    """The phases, before the rails; `reclaims` are those that cost tokens, `rest` moves and closes. `freed` is by
    class: unclaimed machines beyond what cells say."""

    first: Phase
    second: Phase
    reclaims: Phase
    rest: Phase
    releases: Phase
    capped: int
    freed: NDArray[np.int64]
    aborted: tuple[str, ...]
    timer: int

    def rails(
        self, w: World, policy: Policy, conditions: Conditions, names: Names, live: bool
    ) -> tuple[ActionBatch, int, bool]:
        """What is kept, how many actions are deferred, and whether tokens were spent."""
        third = joined((self.reclaims, self.rest, self.releases))
        sizes = (len(self.first.kind), len(self.second.kind), len(third.kind))
        kept = shares(sizes, policy.max_actions_per_step if live else 0)
        tokens = min(len(self.reclaims.kind), kept[2])
        spent = live and policy.reclaim_cap_fraction > 0 and tokens > 0
        if spent:
            spend(w, self.reclaims.cluster, tokens, policy.reclaim_cap_window_ns)
        phases = [phase.first(count) for phase, count in zip((self.first, self.second, third), kept, strict=True)]
        return told_actions(phases, conditions, names), sum(sizes) - sum(kept), spent


def acquired(w: World, fleet: Fleet, counted: CountedStep | None, sums: Acquisitions, policy: Policy) -> Phase:
    """Phase 1: what entries of both kinds acquired, in their order."""
    found = Phase.of(*sums, reasons_of(sums.kind)) if len(sums.kind) else NO_PHASE
    if counted is None or not counted.took:
        return found
    tier, slot, turn = counted.acquisitions()
    entry = counted.entries[turn]
    mine = Phase.of(_KINDS[tier], slot, entry, w.e.cluster[entry], _WHYS[tier])
    taken = tier == PAID_EMPTY
    mine.cluster[taken] = fleet.v.cluster[slot[taken]]
    mine.grace[taken] = policy.reclaim_grace_seconds
    mine.voluntary[taken] = True
    if not len(found.kind):
        return mine
    both = joined((found, mine))
    return both.at(in_order(w, both.entry))


def preempted(
    w: World,
    fleet: Fleet,
    slot: NDArray[np.int32],
    entry: NDArray[np.int32],
    gap: NDArray[np.int64],
    empty: NDArray[np.uint8],
) -> Phase:
    """Phase 2: victims in the order in which they were taken; operators may refuse what is said to be `empty`."""
    if not len(slot):
        return NO_PHASE
    kind = np.full(len(slot), ActionKind.PREEMPT, np.uint8)
    why = np.where(empty != 0, same(len(slot), Reason.EMPTY), same(len(slot), Reason.INVERSION))
    found = Phase.of(kind, slot, entry, fleet.v.cluster[slot], why)
    found.voluntary[:] = empty != 0
    return found._replace(grace=graces(gap), priority=w.p.priority[w.e.prof[entry]])


def given_back(
    w: World,
    going: Mapping[int, Goings],
    slot: NDArray[np.int32],
    cluster: NDArray[np.int32],
    policy: Policy,
    window: int,
) -> tuple[Phase, int]:
    """Reclaims per cluster in text order: excess machines of sums (their cap is applied), and what reporting clusters
    give back, as far as their tokens go (`window` 0: no cap); how many it leaves out."""
    slots, clusters = slot.tolist(), cluster.tolist()
    reasons = [Reason.EXCESS] * len(slots)
    refused = 0
    for number, each in going.items():
        count = len(each.slots)
        if window:
            count = min(count, int(w.c.tokens[number]) // window)
        refused += len(each.slots) - count
        slots += each.slots[:count]
        clusters += [number] * count
        reasons += each.reasons[:count]
    n = len(slots)
    if not n:
        return NO_PHASE, refused
    home = np.array(clusters, np.int32)
    whys = np.array([same(1, reason)[0] for reason in reasons], np.uint8)
    nobody = np.full(n, NO_ENTRY, np.int32)
    found = Phase.of(np.full(n, ActionKind.RECLAIM, np.uint8), np.array(slots, np.int32), nobody, home, whys)
    found.grace[:] = policy.reclaim_grace_seconds
    found.voluntary[len(slot) :] = [reason is not Reason.NEVER_READY for reason in reasons[len(slot) :]]
    return found.at(np.argsort(w.c.rank[home], kind="stable")), refused


def consolidated(
    fleet: Fleet, under_way: Sequence[tuple[int, Moved]], passed: Sequence[Passed], policy: Policy
) -> Phase:
    """Moves under way, then per cluster new moves and closes."""
    found: list[tuple[ActionKind, int, int, Reason, tuple[int, ...]]] = []
    for cluster, move in under_way:
        found.append((ActionKind.BOOTSTRAP, move.new, cluster, Reason.MOVE, move.old))
    for each in passed:
        for move in each.moves:
            if move.new < 0:
                found.append((ActionKind.RECLAIM, move.old[0], each.cluster, Reason.MOVE, ()))
            else:
                idle = int(fleet.v.state[move.new]) == IDLE
                kind = ActionKind.BOOTSTRAP if idle else ActionKind.PROVISION
                found.append((kind, move.new, each.cluster, Reason.MOVE, move.old))
        found += [(ActionKind.CLOSE, slot, each.cluster, Reason.CLOSE, ()) for slot in each.closes]
    if not found:
        return NO_PHASE
    kinds = np.array([int(each[0]) for each in found], np.uint8)
    slots, clusters = (np.array([each[place] for each in found], np.int32) for place in (1, 2))
    whys = np.array([same(1, each[3])[0] for each in found], np.uint8)
    phase = Phase.of(kinds, slots, np.full(len(found), NO_ENTRY, np.int32), clusters, whys)
    going = kinds == ActionKind.RECLAIM
    phase.grace[going] = policy.reclaim_grace_seconds
    phase.voluntary[going] = True
    phase.replaces.update({at: tuple(fleet.ids.texts(np.array(each[4]))) for at, each in enumerate(found) if each[4]})
    return phase


def released(slot: NDArray[np.int32]) -> Phase:
    if not len(slot):
        return NO_PHASE
    kind = np.full(len(slot), ActionKind.DELETE, np.uint8)
    nobody = np.full(len(slot), -1, np.int32)
    return Phase.of(kind, slot, nobody, nobody, same(len(slot), Reason.RELEASE))


def with_dropped(
    w: World, fleet: Fleet, dropped: NDArray[np.int32], slot: NDArray[np.int32], now: int
) -> NDArray[np.int32]:
    """Releases, with the Idle machines that were taken and given back in this step."""
    v = fleet.v
    idle = dropped[v.state[dropped] == IDLE]
    hold = w.k.hold[w.cells.cls[v.cell[idle]]]
    due = idle[(hold > 0) & (now - v.idle_since[idle] >= hold)]
    found = np.concatenate((slot, due))
    sort_machines(w.ids, found, len(found))
    return found
