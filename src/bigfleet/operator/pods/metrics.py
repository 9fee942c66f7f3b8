"""Every metric of the pod controller."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

_P = "bigfleet_unschedulable_pod_controller_"


class PodControllerMetrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.reconciles = Counter(
            f"{_P}reconciles", "Pods looked at, by what came of it.", ["outcome"], registry=registry
        )
        self.inexpressible = Counter(f"{_P}not_expressible", "Pods no fleet can be asked for.", registry=registry)
        self.api_answers = Counter(
            f"{_P}api_requests", "Answers of the API server.", ["verb", "code"], registry=registry
        )
