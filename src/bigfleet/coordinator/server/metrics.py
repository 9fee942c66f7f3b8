"""The coordinator's metrics: plain numbers, turned into series when somebody scrapes.

The first three keep the names and meanings dashboards know; `raft_term` is the coordinator's term, though no Raft is
ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "bigfleet_coordinator_"
BUCKETS = tuple(0.0005 * 2**power for power in range(16))


class Family(NamedTuple):
    name: str
    kind: str
    help: str
    label: str = ""


FAMILIES = (
    Family("raft_term", "gauge", "Term of the leader, as this replica knows it."),
    Family("apply_total", "counter", "Commands by outcome.", "outcome"),
    Family("pending_instructions", "gauge", "Instructions a shard has not answered.", "shard"),
    Family("leader", "gauge", "1 while this replica leads."),
    Family("shards", "gauge", "Registered shards."),
    Family("clusters", "gauge", "Bound clusters."),
    Family("domains", "gauge", "Assigned topology domains."),
    Family("domains_pending", "gauge", "Domains whose change is not confirmed by everybody yet."),
    Family("looks_pending", "gauge", "Shards with machines new to them that wait until everybody has listed anew."),
    Family("transfers", "gauge", "Transfers by phase.", "phase"),
    Family("heartbeat_age_seconds", "gauge", "Time since a shard's last report.", "shard"),
    Family("reports_total", "counter", "Shard reports by what became of them.", "outcome"),
    Family("report_seconds", "histogram", "Handling one shard report."),
    Family("store_commit_seconds", "histogram", "One durable commit."),
    Family("plan_seconds", "histogram", "One look for capacity to move."),
    Family("moves_total", "counter", "Moves begun, by tier.", "tier"),
    Family("called_off_total", "counter", "Proposals given up."),
    Family("rpc_errors_total", "counter", "Calls answered with another status than OK.", "code"),
    Family("identity_rejected_total", "counter", "Callers whose certificate was not the right one."),
    Family("snapshot_export_total", "counter", "Scheduled snapshot exports by outcome.", "outcome"),
    Family("snapshot_export_age_seconds", "gauge", "Time since the last successful export."),
)
_BY_NAME = {family.name: family for family in FAMILIES}


class CoordinatorMetrics(Collector):
    """Every number of one replica. Written by the event loop only."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, float]] = {
            family.name: {} if family.label else {"": 0.0} for family in FAMILIES if family.kind != "histogram"
        }
        self._histograms = {
            family.name: [0.0] * (len(BUCKETS) + 2) for family in FAMILIES if family.kind == "histogram"
        }
        for outcome in ("success", "error", "fsm_error"):
            self._numbers["apply_total"][outcome] = 0.0

    def count(self, name: str, label: str = "", amount: float = 1.0) -> None:
        series = self._numbers[name]
        series[label] = series.get(label, 0.0) + amount

    def publish(self, name: str, values: Mapping[str, float] | float) -> None:
        """Replace a gauge, all its label values at once."""
        self._numbers[name] = {"": float(values)} if isinstance(values, int | float) else dict(values)

    def observe(self, name: str, seconds: float) -> None:
        numbers = self._histograms[name]
        numbers[bisect_left(BUCKETS, seconds)] += 1
        numbers[-1] += seconds

    def value(self, name: str, label: str = "") -> float:
        return self._numbers[name].get(label, 0.0)

    def collect(self) -> Iterable[Metric]:
        for family in FAMILIES:
            yield self._family(family)

    def _family(self, family: Family) -> Metric:
        name, labels = PREFIX + family.name, [family.label] if family.label else []
        if family.kind == "histogram":
            return self._histogram(family)
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        made = kind(name.removesuffix("_total"), family.help, labels=labels)
        for label, number in list(self._numbers[family.name].items()):
            made.add_metric([label] if family.label else [], number)
        return made

    def _histogram(self, family: Family) -> Metric:
        numbers = list(self._histograms[family.name])
        made = HistogramMetricFamily(PREFIX + family.name, family.help)
        buckets, total = [], 0.0
        for bound, number in zip((*BUCKETS, float("inf")), numbers[:-1], strict=True):
            total += number
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
        made.add_metric([], buckets, numbers[-1])
        return made
