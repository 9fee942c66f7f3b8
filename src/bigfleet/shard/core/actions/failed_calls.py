"""What a failed call means for its operation: again later, off, Failed, or the machine is gone.

Owns how long and how often a call is tried, and which providers cannot delete.
"""

from __future__ import annotations

from typing import Final

from bigfleet.shard.contract.events import Failure
from bigfleet.shard.contract.outcomes import Outcome
from bigfleet.shard.core.actions.away import Away
from bigfleet.shard.core.actions.call_queue import TIMER, Calls
from bigfleet.shard.core.actions.endings import Endings
from bigfleet.shard.core.actions.refusals import Refusals
from bigfleet.shard.core.machines.departures import Departures
from bigfleet.shard.core.machines.visibility import Visibility
from bigfleet.shard.core.state.backoff import delay
from bigfleet.shard.core.state.enum_aliases import CREATE, DELETE, DRAIN
from bigfleet.shard.core.state.operations import Operation, Stage
from bigfleet.shard.core.state.state import ShardState

# Nobody answered, and the call may have been applied; or it cannot have been, because there was no connection.
_AMBIGUOUS: Final = frozenset({Failure.UNAVAILABLE, Failure.DEADLINE, Failure.BUSY})
_UNHEARD: Final = _AMBIGUOUS | {Failure.UNREACHED}
_RETRIED: Final = _UNHEARD | {Failure.EXHAUSTED, Failure.THROTTLED}


class FailedCalls:
    def __init__(
        self,
        state: ShardState,
        calls: Calls,
        refusals: Refusals,
        away: Away,
        visibility: Visibility,
        departures: Departures,
        endings: Endings,
    ) -> None:
        self._state = state
        self._calls = calls
        self._refusals = refusals
        self._away = away
        self._visibility = visibility
        self._departures = departures
        self._endings = endings
        self.cannot_delete: set[str] = set()

    def judge(self, operation: Operation, failure: Failure, error: str) -> None:
        """The call of an operation failed, or nobody answered it in time."""
        provider = operation.machine.provider
        self._state.answered[operation.machine.key] = self._state.now
        self._judge(operation, failure, error)
        if failure in _UNHEARD:
            self._away.call_failed(provider)
        else:
            self._away.heard(provider)

    def _judge(self, operation: Operation, failure: Failure, error: str) -> None:
        record, endings = operation.machine, self._endings
        self._calls.heard(record.provider, alive=failure not in _UNHEARD)
        operation.error = error
        operation.ambiguous = operation.ambiguous or failure in _AMBIGUOUS
        if self._refusals.ends(operation, failure, error):
            return
        if failure == Failure.NOT_FOUND and self._visibility.hidden(record.key):
            self._retry_later(operation)
        elif failure == Failure.NOT_FOUND:
            if operation.call == CREATE:
                endings.after_failure(operation, error)
            endings.finish(operation, Outcome.PROVIDER_ERROR, f"{operation.call}: {error}")
            self._departures.gone(record, "the provider does not know it")
        elif failure == Failure.UNIMPLEMENTED and operation.call == DELETE:
            self.cannot_delete.add(record.provider)
            endings.back(operation, Outcome.PROVIDER_ERROR, f"{operation.call}: {error}")
        elif failure in _RETRIED and self._may_retry(operation, failure):
            self._retry_later(operation)
        else:
            outcome = Outcome.TIMED_OUT if failure == Failure.DEADLINE else Outcome.PROVIDER_ERROR
            endings.fail(operation, outcome, error)

    def _retry_later(self, operation: Operation) -> None:
        state, key = self._state, operation.machine.key
        operation.to(Stage.RETRYING)
        wait = delay(state.config.retry_delay, state.config.retry_delay_max, operation.attempts, key)
        state.timers.arm(TIMER, key, state.now + wait)

    def _may_retry(self, operation: Operation, failure: Failure) -> bool:
        """A provider that is away or limits calls does not use up an operation's attempts, only its time."""
        if operation.attempts < self._state.config.execute_attempts:
            return True
        waits = failure == Failure.THROTTLED or self._calls.suspect(operation.machine.provider)
        return waits and self._state.now - operation.began < time_allowed(operation, self._state)


def time_allowed(operation: Operation, state: ShardState) -> int:
    """How long the provider may take over the current call, with what is left of a drain's grace."""
    grace = max(0, operation.grace_ends - state.now) if operation.call == DRAIN else 0
    return state.config.transition_timeout(operation.call) + grace
