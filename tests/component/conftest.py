"""What component tests share: one fleet of processes, because starting a shard takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.strategies.fleet_process import Asking

# Each name is one test's own instance type.
OFFERINGS = {
    "four": {},
    "scarce": {"count": 2},
    "withdraw": {},
    "contest": {},
    "hints": {"count": 3},
    "resync": {},
    "draining": {"count": 1},
    "fallback": {"count": 1},
    "silent": {"count": 1},
    "async": {"count": 1},
    "asyncdrain": {"count": 1},
    "forty": {"count": 40},
    "held": {"count": 2},
    "paused": {},
    "dry": {},
    "audited": {"count": 1},
    "restart": {"count": 2},
    "latency": {"count": 2},
    "short": {"count": 1},
    "starved": {"count": 1},
    "exhausted": {"count": 2},
    "gang": {"count": 2, "zones": ["zone-a", "zone-b"]},
    "met": {"count": 1},
    "order": {"count": 1},
    "queue": {"count": 40},
    "stuck": {"count": 2},
    "recovers": {"count": 1},
    "lost": {"count": 3},
    "broken": {"count": 2},
    "bound": {"count": 2},
    "replaced": {"count": 1},
    "leaves": {"count": 2},
    "flap": {"count": 1},
    "gauge": {"count": 2, "capacity_type": "bare-metal"},
    "free": {"count": 1, "price_per_hour": 0.0},
    "paid": {"count": 1, "price_per_hour": 5.0},
    "tombstone": {"count": 1},
    "loris": {"count": 2},
    "garbage": {"count": 2},
    "fenced": {"count": 1},
    "victim": {"count": 2},
    "told": {"count": 2},
    "limited": {"count": 2},
    "forgotten": {"count": 3},
}


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A shard and two providers as processes, used by all tests that leave them usable."""
    offerings = {name: dict(facts) for name, facts in OFFERINGS.items()}
    made = Asking(tmp_path_factory.mktemp("fleet"), offerings)
    try:
        made.start()
        yield made
    finally:
        made.stop()
