"""What a provider process counts, under the prefix `bigfleet_provider_`. Owns a registry, never the default one."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bigfleet.model.machine import MachineState
from bigfleet.provider.kit.core.records import Kind

_BACKEND_SECONDS = (0.01, 0.1, 1, 5, 15, 30, 60, 120, 300, 600, 1800)
_RPC_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)


class KitMetrics:
    """Counters the kit feeds, and a view of the inventory taken when scraped."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        prefix = "bigfleet_provider_"
        self._rpcs = Counter(f"{prefix}grpc_requests", "RPCs answered", ["method", "code"], registry=registry)
        self._rpc_seconds = Histogram(
            f"{prefix}grpc_request_duration_seconds", "RPC time", ["method"], buckets=_RPC_SECONDS, registry=registry
        )
        self._calls = Counter(f"{prefix}backend_calls", "Backend calls ended", ["op", "outcome"], registry=registry)
        self._call_seconds = Histogram(
            f"{prefix}backend_call_duration_seconds",
            "Backend time",
            ["op"],
            buckets=_BACKEND_SECONDS,
            registry=registry,
        )
        self._reconciles = Counter(f"{prefix}reconcile", "Reconciles ended", ["outcome"], registry=registry)
        self._ready = Gauge(f"{prefix}ready", "1 once the provider serves", registry=registry)

    def answered(self, method: str, code: str, seconds: float) -> None:
        self._rpcs.labels(method, code).inc()
        self._rpc_seconds.labels(method).observe(seconds)

    def backend_called(self, kind: Kind, outcome: str, seconds: float) -> None:
        self._calls.labels(kind.value, outcome).inc()
        self._call_seconds.labels(kind.value).observe(seconds)

    def reconciled(self, outcome: str) -> None:
        self._reconciles.labels(outcome).inc()

    def serving(self, ready: bool) -> None:
        self._ready.set(int(ready))

    def watch_machines(self, counts: Callable[[], Tally[MachineState]]) -> None:
        """Publish machines by state, counted at scrape time."""
        self.registry.register(_Machines(counts))


class _Machines(Collector):
    def __init__(self, counts: Callable[[], Tally[MachineState]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("bigfleet_provider_machines", "Machines by state", labels=["state"])
        tally = self._counts()
        for state in MachineState:
            family.add_metric([state.label], tally[state])
        yield family
