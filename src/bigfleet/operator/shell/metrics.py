"""Every metric of the operator, under the names dashboards know."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_P = "bigfleet_operator_"


def _powers(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2.0**power for power in range(count))


class OperatorMetrics:
    """One operator's."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        fast, slow = _powers(0.001, 16), _powers(0.01, 16)
        self.rollup = Histogram(
            f"{_P}rollup_duration_seconds",
            "Looking, building and handing over one roll-up.",
            buckets=fast,
            registry=registry,
        )
        self.rollup_phase = Histogram(
            f"{_P}rollup_phase_duration_seconds",
            "One part of a roll-up: list (deltas and look), build, enqueue.",
            ["phase"],
            buckets=fast,
            registry=registry,
        )
        self.acknowledge = Histogram(
            f"{_P}acknowledge_duration_seconds",
            "Writing Acknowledged to every request of one roll-up.",
            buckets=slow,
            registry=registry,
        )
        self.acknowledged = Counter(f"{_P}acknowledged", "Requests marked Acknowledged.", registry=registry)
        self.reconnects = Counter(
            f"{_P}session_reconnects", "Streams that ended or could not be opened.", registry=registry
        )
        self.dropped = Counter(f"{_P}outbox_dropped", "Frames dropped because too many waited.", registry=registry)
        self.node_state = Histogram(
            f"{_P}node_state_update_duration_seconds",
            "From a node state frame to its UpcomingNode being written.",
            ["phase"],
            buckets=_powers(0.001, 17),
            registry=registry,
        )
        self.upcoming_writes = Counter(
            f"{_P}upcoming_node_writes", "Writes of UpcomingNodes.", ["op", "outcome"], registry=registry
        )
        self.dispatch = Gauge(f"{_P}dispatch_inflight", "Writes to the cluster under way.", registry=registry)
        self.evictions = Counter(f"{_P}evictions", "Evictions asked for.", ["outcome"], registry=registry)
        self.reservations = Counter(
            f"{_P}reservations", "Tolerations of new nodes added to pods.", ["outcome"], registry=registry
        )
        self.reserves = Gauge(
            f"{_P}reserves_nodes", "Whether new nodes are reserved: 0 where pods may not be patched.", registry=registry
        )
        self.drains = Gauge(f"{_P}drains", "Nodes being drained.", registry=registry)
        self.inexpressible = Gauge(
            f"{_P}requests_not_expressible", "Requests that no fleet can be asked for.", registry=registry
        )
        self.requests = Gauge(f"{_P}requests", "Requests in the roll-up.", registry=registry)
        self.stranded = Gauge(
            f"{_P}stranded_units", "Units without room on any node of the cluster.", registry=registry
        )
        self.connected = Gauge(f"{_P}connected", "Whether a shard has greeted us.", registry=registry)
        self.relists = Counter(f"{_P}relists", "Lists made anew because a watch had expired.", registry=registry)
        self.api_answers = Counter(
            f"{_P}api_requests", "Answers of the API server.", ["verb", "code"], registry=registry
        )
        self.look = Histogram(f"{_P}look_duration_seconds", "One look of the mirror.", buckets=fast, registry=registry)
