"""Available capacity: what free supply a cluster's entries could hope for, by fingerprint (`docs/engine.md` §7)."""

from __future__ import annotations

from bigfleet.engine.decide.need_names import Needs
from bigfleet.engine.fleet.cells import IDLE, SPECULATIVE
from bigfleet.engine.results import AvailableCapacity, Confidence


class FreeCapacity:
    """Free machines by constraint set, counted once per step: a thousand clusters ask for the same few sets."""

    def __init__(self) -> None:
        self._counted: tuple[int, dict[int, tuple[int, int, float]]] = (0, {})

    def of(self, needs: Needs, cluster: int) -> list[AvailableCapacity]:
        w = needs.current
        start = int(w.c.start[cluster])
        profiles = dict.fromkeys(w.e.prof[start : start + int(w.c.entries[cluster])].tolist())
        found = []
        for prof in profiles:
            idle, speculative, cost = self._supply(needs, int(w.p.con[prof]))
            confidence = Confidence.HIGH if idle else Confidence.MEDIUM if speculative else Confidence.NONE
            fingerprint = needs.catalog.profiles[prof].fingerprint
            found.append(AvailableCapacity(needs.clusters[cluster], fingerprint, idle + speculative, confidence, cost))
        return sorted(found, key=lambda each: each.fingerprint.encode())

    def _supply(self, needs: Needs, constraints: int) -> tuple[int, int, float]:
        if self._counted[0] != needs.generation:
            self._counted = (needs.generation, {})
        memo = self._counted[1]
        if constraints not in memo:
            memo[constraints] = _counted(needs, constraints)
        return memo[constraints]


def _counted(needs: Needs, constraints: int) -> tuple[int, int, float]:
    k, n = needs.catalog.classes, needs.catalog.class_count
    mine = needs.catalog.match[constraints, :n] != 0
    idle, speculative = k.count[:n, IDLE], k.count[:n, SPECULATIVE]
    prices = k.price[:n][mine & (idle > 0)]
    return int(idle[mine].sum()), int(speculative[mine].sum()), float(prices.min()) if len(prices) else 0.0
