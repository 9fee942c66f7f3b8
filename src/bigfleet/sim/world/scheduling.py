"""Where waiting pods go: a scheduler after kube-scheduler's defaults, written without a look at the operator's mirror.

Filters first (room, cordons, required anti-affinity on hostnames, strict spreads, risk), then scores of the default
profile with its weights: free or used share of cpu and memory (1), balance of both (1), PreferNoSchedule taints (3,
counted against the feasible node with the most). Ties go to the smallest id, where the real one draws lots. Soft
spreads are evened out before anything is scored. Not played: preemption, images, preferred affinity.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bigfleet.sim.scenario.scenario import Scoring
from bigfleet.sim.world.pods import Node, PodKind, PodSet, room

TAINT_WEIGHT = 3


class Slot(NamedTuple):
    """A node that passes the filters, and how many such pods fit."""

    fits: int
    node: Node


class Scheduler:
    """Chooses nodes; keeps no state of its own."""

    def __init__(self, resources: Sequence[str], scoring: Scoring, *, risk_rule: bool) -> None:
        self._scored = [place for place, name in enumerate(resources) if name in ("cpu", "memory")]
        self._packs = scoring is Scoring.MOST_ALLOCATED
        self.risk_rule = risk_rule

    def slots(self, podset: PodSet, nodes: Iterable[Node]) -> list[Slot]:
        """Of matching nodes those that take at least one pod, in their order."""
        kind = podset.kind
        found = []
        for node in nodes:
            fits = room(node.free, kind.vector)
            if fits > 0 and not self.keeps_out(podset, node):
                if node.kept_for:
                    fits = min(fits, node.reserved[podset.name])
                found.append(Slot(1 if kind.apart else fits, node))
        return found

    def keeps_out(self, podset: PodSet, node: Node) -> str:
        """Why a node with room takes no pod of this object; empty when it does."""
        kind = podset.kind
        if node.cordoned:
            return "are cordoned"
        if node.closing_since:
            return "are closing"
        if node.kept_for and not node.reserved.get(podset.name):
            return "have just come and are kept for others"
        if kind.apart and podset in node.pods:
            return "have a pod of the same object, which may share none"
        if self.risk_rule and node.shape.probability * kind.interruption_dollars > kind.most_risk:
            return "may be interrupted, which would cost it too much"
        return ""

    def choose(self, podset: PodSet, slots: list[Slot], domains: Iterable[str]) -> list[tuple[Node, int]]:
        """Nodes for as many of the waiting pods as they take. `domains` are all that a spread counts over."""
        kind, wanted = podset.kind, podset.waiting_count
        if not kind.spread_key:
            return self._best(kind, slots, wanted)
        by_domain: dict[str, list[Slot]] = {}
        for slot in slots:
            by_domain.setdefault(slot.node.attributes.get(kind.spread_key) or "", []).append(slot)
        shares = _shares(podset, {name: sum(s.fits for s in found) for name, found in by_domain.items()}, domains)
        return [each for name in sorted(by_domain) for each in self._best(kind, by_domain[name], shares.get(name, 0))]

    def _best(self, kind: PodKind, slots: list[Slot], wanted: int) -> list[tuple[Node, int]]:
        """Pods one by one onto the node that scores best at that moment."""
        if sum(slot.fits for slot in slots) <= wanted:
            return [(slot.node, slot.fits) for slot in slots]
        most = max((slot.node.level for slot in slots), default=0)
        dear = {slot.node.id: TAINT_WEIGHT * (100 - 100 * slot.node.level // most) if most else 0 for slot in slots}
        placed = {slot.node.id: 0 for slot in slots}
        heap = [(-self._score(kind, s.node, 1) - dear[s.node.id], s.node.id, s) for s in slots]
        heapq.heapify(heap)
        while wanted:
            _, id, slot = heap[0]
            placed[id] += 1
            wanted -= 1
            if placed[id] < slot.fits:
                heapq.heapreplace(heap, (-self._score(kind, slot.node, placed[id] + 1) - dear[id], id, slot))
            else:
                heapq.heappop(heap)
        return [(slot.node, placed[slot.node.id]) for slot in slots if placed[slot.node.id]]

    def _score(self, kind: PodKind, node: Node, pods: int) -> int:
        """Of the node with so many more of these pods: share of cpu and memory, and how even both are."""
        shares = []
        for place in self._scored:
            total = node.total[place]
            if total:
                used = total - node.free[place] + kind.vector[place] * pods
                shares.append(used * 100 // total)
        if not shares:
            return 0
        mean = sum(shares) // len(shares)
        return (mean if self._packs else 100 - mean) + 100 - (max(shares) - min(shares)) // 2


def _shares(podset: PodSet, rooms: dict[str, int], domains: Iterable[str]) -> dict[str, int]:
    """How many pods go into each domain: always into the one with the fewest that has room; a strict spread never
    lets one get further ahead of the emptiest domain than its skew."""
    kind, left = podset.kind, podset.waiting_count
    held = dict.fromkeys(domains, 0) | dict.fromkeys(rooms, 0)
    for node, count in podset.bound.items():
        domain = node.attributes.get(kind.spread_key) or ""
        held[domain] = held.get(domain, 0) + count
    share = dict.fromkeys(rooms, 0)
    while left:
        open_ = [domain for domain in rooms if share[domain] < rooms[domain]]
        if not open_:
            break
        chosen = min(open_, key=lambda domain: (held[domain], domain))
        if kind.strict_skew and held[chosen] + 1 - min(held.values()) > kind.strict_skew:
            break
        share[chosen] += 1
        held[chosen] += 1
        left -= 1
    return share
