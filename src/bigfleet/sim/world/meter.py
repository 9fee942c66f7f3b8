"""Counts what a run costs and yields: machine states, dollars, pods that ran, waited or were thrown out.

Fed with every change as it happens, so integrals over time are exact; sampled on a fixed grid for plots. Decides
nothing and is asked only when the run is over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from bigfleet.model.billing import billed_per_hour
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.provider.kit.core.records import MachineRecord
from bigfleet.sim.world.thinning import (
    ENTRIES_KEPT,
    SAMPLES_KEPT,
    every_second,
    folded_actions,
    folded_steps,
    rounded,
)
from bigfleet.sim.world.waits import Waits
from bigfleet.virtual.kernel import HOUR, SECOND

MARKETS = {
    CapacityType.BARE_METAL: "bare-metal",
    CapacityType.RESERVED: "reserved",
    CapacityType.ON_DEMAND: "on-demand",
    CapacityType.SPOT: "spot",
    CapacityType.UNSPECIFIED: "other",
}
STATES = tuple(state.label for state in MachineState)
_LABELS = {state: state.label for state in MachineState}
ACTIONS = ("Bootstrap", "Provision", "Preempt", "Reclaim", "Delete", "Close", "Reopen")


@dataclass(slots=True)
class Sample:
    """One point of the plots."""

    at: int
    states: dict[str, int]
    rates: dict[str, float]
    live: dict[str, int]
    running: dict[str, int]
    shortfalls: int
    oldest_shortfall: float
    actions: dict[str, int]
    interrupted: dict[str, int] = field(default_factory=dict)
    queued: int = 0
    operations: int = 0

    @property
    def waiting(self) -> int:
        """Pods that should run and do not."""
        return sum(self.live.values()) - sum(self.running.values())


@dataclass(frozen=True, slots=True)
class Acted:
    """The actions of one kind and cluster in one decision."""

    at: int
    kind: str
    cluster: str
    count: int


@dataclass(slots=True)
class Meter:
    """The books of one run. `now` is moved by `advance` before anything changes."""

    resources: tuple[str, ...]
    # The instants that clauses will ask about, in order: between them entries may be folded into one.
    moments: tuple[int, ...] = ()
    waits: Waits = field(default_factory=lambda: Waits(()))
    now: int = 0
    # Cycles between two samples: more in long runs, so that months take no more memory than days.
    stride: int = 1
    states: Counter[str] = field(default_factory=Counter)
    acted: list[Acted] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    interrupted: Counter[str] = field(default_factory=Counter)
    interrupted_classes: Counter[str] = field(default_factory=Counter)
    bound_pods: int = 0
    lost_machines: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    machine_hours: dict[str, float] = field(default_factory=dict)
    shortfall_steps: list[tuple[int, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    _rates: dict[str, float] = field(default_factory=dict)
    _running_machines: Counter[str] = field(default_factory=Counter)
    _waits: dict[str, Counter[int]] = field(default_factory=dict)
    _still_waiting: dict[str, Counter[int]] = field(default_factory=dict)
    _used: list[int] = field(default_factory=list)
    _capacity: list[int] = field(default_factory=list)
    _loads: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    _used_time: list[float] = field(default_factory=list)
    _capacity_time: list[float] = field(default_factory=list)
    _since_sample: Counter[str] = field(default_factory=Counter)
    _interrupted_since_sample: Counter[str] = field(default_factory=Counter)
    _fold_at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = len(self.resources)
        self._used, self._capacity = [0] * size, [0] * size
        self._used_time, self._capacity_time = [0.0] * size, [0.0] * size

    def advance(self, now: int) -> None:
        """Time passed with everything as it is."""
        if now == self.now:
            return
        hours = (now - self.now) / HOUR
        for market, rate in self._rates.items():
            self.spent[market] = self.spent.get(market, 0.0) + rate * hours
        for market, count in self._running_machines.items():
            self.machine_hours[market] = self.machine_hours.get(market, 0.0) + count * hours
        for place in range(len(self.resources)):
            self._used_time[place] += self._used[place] * hours
            self._capacity_time[place] += self._capacity[place] * hours
        self.now = now

    def machine(self, before: MachineRecord | None, after: MachineRecord | None) -> None:
        """A machine changed, appeared or vanished."""
        if before is not None and after is not None and _same_to_the_books(before, after):
            self.states[_LABELS[before.state]] -= 1
            self.states[_LABELS[after.state]] += 1
            return
        for record, sign in ((before, -1), (after, 1)):
            if record is None:
                continue
            self.states[_LABELS[record.state]] += sign
            market = MARKETS[record.shape.capacity_type]
            shape = record.shape
            billed = billed_per_hour(shape.capacity_type, shape.price_per_hour, has_host=record.host is not None)
            if billed:
                self._rates[market] = self._rates.get(market, 0.0) + sign * billed
            if record.host is not None:
                self._running_machines[market] += sign

    def load(self, cluster: str, used: list[int], capacity: list[int]) -> None:
        """What pods of a cluster request of its nodes, and what those have."""
        nothing = [0] * len(self.resources)
        was_used, was_capacity = self._loads.get(cluster, (nothing, nothing))
        if used is not was_used:
            self._used = [total - was + now for total, was, now in zip(self._used, was_used, used, strict=True)]
        if capacity is not was_capacity:
            totals = zip(self._capacity, was_capacity, capacity, strict=True)
            self._capacity = [total - was + now for total, was, now in totals]
        self._loads[cluster] = (used, capacity)

    def pods_bound(self, cluster: str, priority_class: str, waited: int, count: int) -> None:
        self.bound_pods += count
        waits = self._waits.setdefault(priority_class, Counter())
        waits[waited] += count
        if self._full(priority_class, len(waits)):
            self._waits[priority_class] = waits = rounded(waits)
            self._fold_at[priority_class] = len(waits) + ENTRIES_KEPT

    def pods_waited(self, cluster: str, priority: int, since: int, until: int, count: int) -> None:
        """A wait is over, or the run is."""
        self.waits.waited(cluster, priority, since, until, count)

    def pods_waiting(self, priority_class: str, waited: int, count: int) -> None:
        """Pods that wait when the run is over: nobody knows for how much longer, so they count as late as they are."""
        self._still_waiting.setdefault(priority_class, Counter())[waited] += count

    def pods_interrupted(self, cluster: str, priority_class: str, cause: str, count: int) -> None:
        self.interrupted[cause] += count
        self.interrupted_classes[priority_class] += count
        self._interrupted_since_sample[cause] += count

    def actions(self, kind: str, cluster: str, count: int) -> None:
        self.acted.append(Acted(self.now, kind, cluster, count))
        self._since_sample[kind] += count
        if self._full("acted", len(self.acted)):
            self.acted = folded_actions(self.acted, self.moments)
            self._fold_at["acted"] = len(self.acted) + ENTRIES_KEPT

    def shortfalls(self, by_priority: tuple[tuple[int, int], ...]) -> None:
        """How many rows are short, per priority, from now on."""
        if not self.shortfall_steps or self.shortfall_steps[-1][1] != by_priority:
            self.shortfall_steps.append((self.now, by_priority))
        if self._full("short", len(self.shortfall_steps)):
            self.shortfall_steps = folded_steps(self.shortfall_steps, self.moments)
            self._fold_at["short"] = len(self.shortfall_steps) + ENTRIES_KEPT

    def _full(self, book: str, entries: int) -> bool:
        return entries >= self._fold_at.get(book, ENTRIES_KEPT)

    def sample(
        self, live: Counter[str], running: Counter[str], oldest_shortfall: float, queued: int = 0, operations: int = 0
    ) -> Sample:
        """A point of the plots: what is, how old the oldest shortfall is, and what the shards have under way."""
        count = sum(rows for _, rows in self.shortfall_steps[-1][1]) if self.shortfall_steps else 0
        made = Sample(
            self.now,
            {state: self.states[state] for state in STATES if self.states[state]},
            {market: round(rate, 6) for market, rate in sorted(self._rates.items()) if rate > 1e-9},
            dict(sorted(live.items())),
            dict(sorted(running.items())),
            count,
            oldest_shortfall,
            dict(sorted(self._since_sample.items())),
            dict(sorted(self._interrupted_since_sample.items())),
            queued,
            operations,
        )
        self.samples.append(made)
        self._since_sample.clear()
        self._interrupted_since_sample.clear()
        if len(self.samples) >= SAMPLES_KEPT:
            self.samples = every_second(self.samples)
            self.stride *= 2
        return made

    # ----------------------------------------------------------------------------------------------------------- asked

    @property
    def dollars(self) -> float:
        return float(sum(self.spent.values()))

    def acted_since(self, kind: str, since: int, cluster: str) -> int:
        return sum(
            each.count
            for each in self.acted
            if each.at >= since and kind in ("any", each.kind) and cluster in ("", each.cluster)
        )

    def shortfall_range(self, since: int, priority: int) -> tuple[int, int]:
        """Fewest and most rows of at least a priority that were short at one time, from `since` on."""
        counts = [0] if not self.shortfall_steps or self.shortfall_steps[0][0] > since else []
        for place, (at, rows) in enumerate(self.shortfall_steps):
            ends = self.shortfall_steps[place + 1][0] if place + 1 < len(self.shortfall_steps) else 1 << 62
            if ends > since or at >= since:
                counts.append(sum(count for level, count in rows if level >= priority))
        return min(counts), max(counts)

    def utilisation(self, resource: str) -> float:
        place = self.resources.index(resource) if resource in self.resources else -1
        if place < 0 or not self._capacity_time[place]:
            return 0.0
        return self._used_time[place] / self._capacity_time[place]

    def waited(self, priority_class: str, percentile: float) -> float | None:
        """Seconds within which this share of the class's pods ran; None when no pod of it ever asked."""
        waits = self._waits.get(priority_class, Counter()) + self._still_waiting.get(priority_class, Counter())
        if not waits:
            return None
        ordered = sorted(waits.items())
        upto, running = [], 0
        for _, count in ordered:
            running += count
            upto.append(running)
        place = bisect_left(upto, max(1, -(-running * percentile // 100)))
        return ordered[min(place, len(ordered) - 1)][0] / SECOND

    def waited_classes(self) -> dict[str, tuple[int, int]]:
        """Pods of each class that got to run, and that wait at the end."""
        names = sorted(self._waits.keys() | self._still_waiting.keys())
        books = (self._waits, self._still_waiting)
        return {name: (sum(books[0].get(name, {}).values()), sum(books[1].get(name, {}).values())) for name in names}


def _same_to_the_books(before: MachineRecord, after: MachineRecord) -> bool:
    """Whether both cost the same: most changes are of the state alone."""
    return before.shape is after.shape and (before.host is None) == (after.host is None)
