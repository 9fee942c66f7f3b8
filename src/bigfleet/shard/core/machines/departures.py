"""A machine is gone: the one place where everything remembered of it ends, whoever found out.

Two Lists without it, a Get or a call answered with NOT_FOUND say the same. Whether to believe them is decided by those
who heard it; an operation on the machine has ended before.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.machines.failures import LocalFailures
from bigfleet.shard.core.machines.lifecycle import Lifecycle
from bigfleet.shard.core.machines.visibility import Visibility
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.state import ShardState

WATCH = "watch"


class Departures:
    """Absences of machines, and their end."""

    def __init__(
        self,
        state: ShardState,
        lifecycle: Lifecycle,
        failures: LocalFailures,
        visibility: Visibility,
        departed: Callable[[Record], None],
    ) -> None:
        self._departed = departed
        self._state = state
        self._lifecycle = lifecycle
        self._failures = failures
        self._visibility = visibility
        # Full Lists in a row that did not name a machine.
        self.missed: dict[str, int] = {}

    def gone(self, record: Record, why: str) -> None:
        self.missed.pop(record.key, None)
        self._failures.forget(record.key)
        self._visibility.ends(record.key)
        self._state.timers.cancel(WATCH, record.key)
        self._state.turn.log(
            Level.INFO, "machine gone", machine=record.key, state=record.state.label, cluster=record.cluster
        )
        self._departed(record)
        self._lifecycle.vanish(record, why)
