"""What a replay cost and whom it hurt, counted as the judge's rules say.

Owns every figure of a replay. Dollars = machines + reclamation dollars of evicted pods + expected interruption dollars;
beside them, time a pod waits beyond one boot is unserved and costs ten times the cheapest price of its room, for
everybody alike. Must never be told what a policy intended, only what happened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench._samples import percentile
from bench.quality.bounds import allowed
from bench.quality.demand import Trace
from bench.quality.kinds import UNLIMITED, Floats, Ints, Kinds

OLD_S = 900.0
UNSERVED = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replay in figures; shares are of 1."""

    machines: float
    reclamation: float
    interruption: float
    unserved: float
    late: float
    wait_p99: float
    service_wait_p99: float
    wait_max: float
    wait_hours: float
    evicted: float
    evicted_young: int
    pinned_evicted: int
    purchases: int
    bought_back: float
    at_rest: int
    unexplained: int = 0

    @property
    def dollars(self) -> float:
        return self.machines + self.reclamation + self.interruption + self.unserved


class Account:
    def __init__(self, trace: Trace, kinds: Kinds, boot_s: float, cycle_s: float) -> None:
        self.trace, self.kinds, self.boot_s, self.cycle_s = trace, kinds, boot_s, cycle_s
        self.machine_dollars = self.reclamation_dollars = self.interruption_dollars = self.unserved_dollars = 0.0
        self.evictions_old = self.evictions_young = self.evictions_pinned = 0
        self.purchases = self.bought_back = 0
        self.first_wait = np.full(len(trace), np.nan)
        self.longest = np.zeros(len(trace))
        self.stuck = 0
        # Pods that waited too long and of which somebody could read why.
        self.explained: set[int] = set()
        self._returns: list[tuple[float, int, int]] = []
        self._cheapest = cheapest_room(trace, kinds)

    # ---- what happened ---------------------------------------------------------------------------------------------

    def started(self, pod: int, waited: float) -> None:
        if np.isnan(self.first_wait[pod]):
            self.first_wait[pod] = waited
        self._waited(pod, waited)

    def never_started(self, pod: int, waited: float) -> None:
        self._waited(pod, waited)
        self.stuck += int(waited > self.boot_s + 3 * self.cycle_s)

    def _waited(self, pod: int, waited: float) -> None:
        self.longest[pod] = max(self.longest[pod], waited)
        beyond = max(0.0, waited - self.boot_s - self.cycle_s)
        self.unserved_dollars += UNSERVED * float(self._cheapest[self.trace.cls[pod]]) * beyond / 3600

    def ran(self, pod: int, kind: int, seconds: float) -> None:
        """A stretch of a pod on a machine; its expected interruption is priced by the hour."""
        risk = float(self.kinds.probability[kind])
        if risk > 0:
            penalty = float(self.trace.classes.interruption[self.trace.cls[pod]])
            self.interruption_dollars += risk * penalty * seconds / 3600

    def evicted(self, pod: int, age: float) -> None:
        """A pod put off its node by the policy; it counts against the limit once it is 15 minutes old."""
        cls = self.trace.cls[pod]
        pinned = bool(np.isinf(self.trace.classes.reclamation[cls]))
        self.evictions_pinned += int(pinned)
        if age >= OLD_S:
            self.evictions_old += 1
        else:
            self.evictions_young += 1
        if not pinned:
            self.reclamation_dollars += float(self.trace.classes.reclamation[cls])

    def bought(self, now: float, cluster: int, kind: int, room: Ints) -> None:
        """A purchase; it is bought back if a machine returned within twice the boot would have carried it."""
        self.purchases += 1
        self._returns = [each for each in self._returns if now - each[0] <= 2 * self.boot_s]
        spot = bool(self.kinds.spot[kind])
        for place in range(len(self._returns) - 1, -1, -1):
            _at, whose, returned = self._returns[place]
            same_risk = bool(self.kinds.spot[returned]) <= spot
            if whose == cluster and same_risk and (self.kinds.capacity[returned] >= room).all():
                self.bought_back += 1
                del self._returns[place]
                return

    def returned(self, now: float, cluster: int, kind: int, seconds: float) -> None:
        self._returns.append((now, cluster, kind))
        self.paid(kind, seconds)

    def paid(self, kind: int, seconds: float) -> None:
        """What one machine cost; the reserved base is paid for as a whole, used or not."""
        if self.kinds.limit[kind] >= UNLIMITED:
            self.machine_dollars += float(self.kinds.price[kind]) * seconds / 3600

    def base(self, kind: int, seconds: float) -> None:
        self.machine_dollars += float(self.kinds.price[kind] * self.kinds.limit[kind]) * seconds / 3600

    # ---- what it comes to ------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        trace = self.trace
        longest = self.longest
        service = trace.classes.service[trace.cls]
        old = int((trace.work > OLD_S).sum())
        late = longest > self.boot_s + 3 * self.cycle_s
        return Outcome(
            machines=self.machine_dollars,
            reclamation=self.reclamation_dollars,
            interruption=self.interruption_dollars,
            unserved=self.unserved_dollars,
            late=float(late.mean()),
            wait_p99=percentile(longest.tolist(), 0.99),
            service_wait_p99=percentile(longest[service].tolist(), 0.99),
            wait_max=float(longest.max()),
            wait_hours=float(np.nansum(self.first_wait)) / 3600,
            evicted=self.evictions_old / max(1, old),
            evicted_young=self.evictions_young,
            pinned_evicted=self.evictions_pinned,
            purchases=self.purchases,
            bought_back=self.bought_back / max(1, self.purchases),
            at_rest=self.stuck,
            unexplained=sum(pod not in self.explained for pod in np.flatnonzero(late).tolist()),
        )


def cheapest_room(trace: Trace, kinds: Kinds) -> Floats:
    """Dollars an hour of the cheapest fraction of a machine that holds one pod of each class."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(trace.classes.request[:, None, :] / kinds.capacity[None, :, :], nan=0.0, posinf=np.inf)
    return np.where(allowed(trace.classes, kinds), share.max(2) * kinds.price, np.inf).min(1)
