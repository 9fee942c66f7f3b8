"""The shard's metrics: plain numbers in dictionaries, turned into series only when somebody scrapes.

Counters and histograms add up; gauges are published whole, so a label set that emptied disappears with the next
publication. A scrape costs what there are series, never what there are machines, and runs in a thread of its own: it
works on copies, which the interpreter lock makes consistent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "bigfleet_shard_"
FAST = tuple(0.001 * 2**power for power in range(14))
SLOW = tuple(0.01 * 2**power for power in range(16))

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without the prefix and, for counters, without `_total`."""

    name: str
    kind: str
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, "counter", text, labels)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, "gauge", text, labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family(name, "histogram", text, labels, buckets)


FAMILIES: tuple[Family, ...] = (
    _histogram("cycle_duration_seconds", "A whole cycle.", FAST),
    _histogram("cycle_phase_duration_seconds", "A part of a cycle.", FAST, "phase"),
    _histogram("provisioning_latency_seconds", "First sight of a demand until its first machine is Configured.", SLOW),
    _histogram("configure_phase_seconds", "Configuring until the provider acknowledged it.", SLOW),
    _histogram("request_bootstrap_seconds", "Round trip of a bootstrap request to an operator.", SLOW),
    _histogram("drain_phase_seconds", "Draining until the provider acknowledged it.", SLOW),
    _counter("actions", "Actions emitted for execution.", "kind"),
    _counter("action_execute_outcomes", "Actions executed, by outcome.", "kind", "outcome"),
    _counter("actions_deferred", "Actions over the maximum of a cycle; derived again later."),
    _counter("actions_dropped", "Actions that found the queue full."),
    _counter("actions_deduped", "Actions on a machine that was busy or had moved on."),
    _counter("actions_suppressed", "Actions held back by the kill switch.", "kind"),
    _counter("actions_dryrun", "Actions only pretended.", "kind"),
    _gauge("action_queue_depth", "Actions waiting for a free slot at their provider."),
    _gauge("execute_inflight", "Actions being executed."),
    _counter("reclaims_capped", "Reclaims put off by the cap per cluster."),
    _gauge("rollup_quarantined", "Suspicious roll-ups held in a row.", "cluster"),
    _gauge("cluster_doubted", "Clusters whose reports contradict each other and that get nothing more.", "cluster"),
    _gauge("actuation_paused", "1 while the kill switch is on."),
    _counter("idle_releases", "Idle machines given back."),
    _counter("machines_rejected", "Provider records refused.", "reason"),
    _counter("rollups_rejected", "Roll-ups refused.", "cluster"),
    _counter("session_lifecycle", "Operator sessions installed, replaced and removed.", "event"),
    _gauge("active_sessions", "Clusters with a live session."),
    _counter("session_identity_rejected", "Streams whose certificate is not their cluster's."),
    _gauge("inventory_machines", "Machines.", "state", "capacity_type", "interruption_penalty_bucket"),
    _gauge("demand_machines", "Rows of demand.", "interruption_penalty_bucket"),
    _gauge("shortfalls", "Demand nobody can answer yet."),
    _gauge("shortfalls_aged", "The same by age in cycles.", "bucket"),
    _gauge("shortfalls_by_priority", "The same by class of priority.", "priority_class"),
    _counter("phase1_occ_proposals", "Assignments, all of them committed.", "outcome"),
    _counter("phase1_occ_displacements", "Always 0: assignment is sequential."),
    _counter("phase1_occ_retries_exhausted", "Always 0: assignment is sequential."),
    _histogram("phase1_pool_build_duration_seconds", "Kept for dashboards; never observed.", FAST),
    _histogram("phase1_pool_take_duration_seconds", "Kept for dashboards; never observed.", FAST, "path"),
    _counter("phase1_pool_take_calls", "Kept for dashboards; never counted.", "path"),
    # Clusters that report placement.
    _counter("consolidation_closings", "Nodes closed to new pods, and opened again.", "event"),
    _counter("consolidation_moves", "Moves to something cheaper, by what became of them.", "outcome"),
    _counter("consolidation_evictions", "Pods that moves evict."),
    _counter("consolidation_refusals", "Drains a cluster refused because its pods would find no room.", "cluster"),
    _counter("consolidation_saved_dollars_per_hour", "What moves that ended save, in dollars an hour."),
    _gauge("consolidation_open_moves", "Moves under way."),
    _gauge("consolidation_closing_nodes", "Nodes closed to new pods.", "cluster"),
    _gauge("consolidation_evictions_allowed", "Pods that may be evicted now.", "cluster"),
    _gauge("fragmentation_dollars_per_hour", "What is paid for room on used nodes that nobody uses.", "cluster"),
    # Additions.
    _counter("streams_refused", "Operator streams this shard ended.", "reason"),
    _counter("frames_ignored", "Operator frames without a payload this shard knows."),
    _counter("rollups_received", "Roll-ups by what they cost.", "path"),
    _counter("rows_rejected", "Rows of roll-ups left out: their counts cannot be true.", "cluster"),
    _counter("rpc_errors", "Calls answered with another status than OK.", "method", "code"),
    _counter("coordinator_reports", "Reports to the coordinator.", "outcome"),
    _gauge("coordinator_term", "Highest coordinator term seen."),
    _gauge("epoch", "Restart epoch of this process."),
    _histogram("journal_commit_seconds", "One durable write of the journal.", FAST),
    _gauge("provider_listed", "1 once a provider has listed its machines.", "provider"),
    _gauge("provider_machines", "Machines a provider has listed.", "provider"),
    _gauge("provider_list_age_seconds", "Time since a provider's last good List, or since the start.", "provider"),
    _counter("stale_lists", "Lists that missed or misplaced machines which Get found where they were.", "provider"),
    _gauge("provider_away", "1 while nothing is bought from a provider because nobody can reach it.", "provider"),
    _gauge("provider_limits_calls", "1 while a provider refuses calls because there are too many.", "provider"),
    _gauge("provider_fenced", "1 while nothing is asked of a provider because it fences this shard.", "provider"),
    _gauge("dollars_per_hour", "What providers bill: machines that have a host, and reserved ones."),
)
_BY_NAME = {family.name: family for family in FAMILIES}
_ALWAYS = {("phase1_occ_proposals", ("committed",)), ("phase1_occ_proposals", ("conflict",))}


class UnknownMetric(KeyError):  # noqa: N818 - a programming error, named after what it is
    """A metric no table knows; a defect of the caller."""


class ShardMetrics(Collector):
    """Every number of one shard. Written by the event loop only."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, list[float]]] = {}
        self._gauges: dict[str, dict[Labels, float]] = {}
        for family in FAMILIES:
            store = {"counter": self._counters, "gauge": self._gauges}.get(family.kind)
            if store is not None:
                store[family.name] = {} if family.labels else {(): 0.0}
            elif family.kind == "histogram":
                self._histograms[family.name] = {} if family.labels else {(): [0.0] * (len(family.buckets) + 2)}
        for name, labels in _ALWAYS:
            self._counters[name][labels] = 0.0

    def count(self, metric: str, labels: Labels = (), amount: float = 1.0) -> None:
        series = self._counters[_checked(metric, "counter", labels)]
        series[labels] = series.get(labels, 0.0) + amount

    def counted(self, metric: str, labels: Labels, total: float) -> None:
        """Set a counter that somebody else adds up."""
        self._counters[_checked(metric, "counter", labels)][labels] = total

    def observe(self, metric: str, seconds: float, labels: Labels = ()) -> None:
        name = _checked(metric, "histogram", labels)
        bounds = _BY_NAME[name].buckets
        numbers = self._histograms[name].get(labels)
        if numbers is None:
            numbers = self._histograms[name][labels] = [0.0] * (len(bounds) + 2)
        numbers[bisect_left(bounds, seconds)] += 1
        numbers[-1] += seconds

    def publish(self, metric: str, values: Mapping[Labels, float] | float) -> None:
        """Replace a gauge, all its label sets at once."""
        whole: dict[Labels, float] = {(): float(values)} if isinstance(values, int | float) else dict(values)
        for labels in whole:
            _checked(metric, "gauge", labels)
        self._gauges[_short(metric)] = whole

    def value(self, metric: str, labels: Labels = ()) -> float:
        """A counter or gauge as it stands; 0 when the label set does not exist."""
        name = _short(metric)
        store = self._counters if name in self._counters else self._gauges
        return store[name].get(labels, 0.0)

    def observations(self, metric: str, labels: Labels = ()) -> int:
        numbers = self._histograms[_short(metric)].get(labels)
        return int(sum(numbers[:-1])) if numbers else 0

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            name = PREFIX + family.name
            if family.kind == "counter":
                counter = CounterMetricFamily(name, family.help, labels=family.labels)
                for labels, value in _sorted(self._counters[family.name]):
                    counter.add_metric(labels, value)
                yield counter
            elif family.kind == "gauge":
                gauge = GaugeMetricFamily(name, family.help, labels=family.labels)
                for labels, value in _sorted(self._gauges[family.name]):
                    gauge.add_metric(labels, value)
                yield gauge
            else:
                yield self._histogram(name, family)

    def _histogram(self, name: str, family: Family) -> Metric:
        made = HistogramMetricFamily(name, family.help, labels=family.labels)
        bounds = [*(f"{bound:g}" for bound in family.buckets), "+Inf"]
        for labels in sorted(dict(self._histograms[family.name])):
            numbers = list(self._histograms[family.name][labels])
            buckets, total = [], 0.0
            for bound, number in zip(bounds, numbers[:-1], strict=True):
                total += number
                buckets.append((bound, total))
            made.add_metric(labels, buckets, numbers[-1])
        return made


def _sorted(series: dict[Labels, float]) -> Iterable[tuple[Labels, float]]:
    return sorted(series.copy().items())


def _short(metric: str) -> str:
    name = metric.removeprefix(PREFIX).removesuffix("_total")
    if name not in _BY_NAME:
        raise UnknownMetric(metric)
    return name


def _checked(metric: str, kind: str, labels: Labels) -> str:
    name = _short(metric)
    family = _BY_NAME[name]
    if family.kind != kind or len(labels) != len(family.labels):
        raise UnknownMetric(
            f"{metric} is a {family.kind} with the labels {family.labels}, used as {kind} with {labels}"
        )
    return name
