"""Latency and outcome of provider calls, counted in plain numbers and rendered only when somebody scrapes.

One collector serves every provider of a process. Names: `bigfleet_shard_provider_rpc_duration_seconds` and
`bigfleet_shard_provider_rpc_errors_total`; labels are the provider's configured name, the method, and the outcome.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class RpcMetrics(Collector):
    """Counts attempts: a call that succeeds at the third attempt is two errors and three durations."""

    def __init__(self) -> None:
        self._durations: dict[tuple[str, str], list[int]] = {}
        self._sums: dict[tuple[str, str], float] = {}
        self._errors: dict[tuple[str, str, str], int] = {}

    def observe(self, provider: str, method: str, seconds: float, outcome: str = "ok") -> None:
        """Record one attempt; `outcome` is `ok` or the word of a typed error."""
        key = (provider, method)
        counts = self._durations.setdefault(key, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds
        if outcome != "ok":
            error = (provider, method, outcome)
            self._errors[error] = self._errors.get(error, 0) + 1

    def forget(self, provider: str) -> None:
        """Drop every series of a provider that is no longer configured."""
        self._durations = {key: value for key, value in self._durations.items() if key[0] != provider}
        self._sums = {key: value for key, value in self._sums.items() if key[0] != provider}
        self._errors = {key: value for key, value in self._errors.items() if key[0] != provider}

    def errors(self, provider: str, method: str, outcome: str) -> int:
        return self._errors.get((provider, method, outcome), 0)

    def attempts(self, provider: str, method: str) -> int:
        return sum(self._durations.get((provider, method), ()))

    def collect(self) -> Iterator[Metric]:
        durations = HistogramMetricFamily(
            "bigfleet_shard_provider_rpc_duration_seconds",
            "Duration of one attempt of a provider call.",
            labels=("provider", "method"),
        )
        for key, counts in sorted(self._durations.items()):
            buckets: list[tuple[str, float]] = []
            total = 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            durations.add_metric(key, buckets, self._sums[key])
        yield durations
        errors = CounterMetricFamily(
            "bigfleet_shard_provider_rpc_errors",
            "Attempts of a provider call that failed, by outcome.",
            labels=("provider", "method", "outcome"),
        )
        for error, count in sorted(self._errors.items()):
            errors.add_metric(error, count)
        yield errors
