"""Provider calls: a queue and a bounded number in flight per provider, one fresh fence per attempt.

A provider that stopped answering gets one probe at a time, ever less often, until it answers again: its queue waits
instead of being used up. Knows nothing of what a call means: before one goes out its owner is asked whether it still
should, and while the shard is halted (paused or in dry run) none does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from bigfleet.engine.policy import SECOND
from bigfleet.shard.contract.events import CallProvider
from bigfleet.shard.core.machines.stamps import metadata_of
from bigfleet.shard.core.state.backoff import delay
from bigfleet.shard.core.state.enum_aliases import CALLING, CONFIGURE, DRAIN, QUEUED
from bigfleet.shard.core.state.operations import Operation, grace_left
from bigfleet.shard.core.state.state import ShardState

# The shell must answer every call by its deadline; should it not, the core gives up on its own a little later.
WATCHDOG_SLACK = 5 * SECOND
TIMER = "operation"
LANE_TIMER = "lane"
# So many calls in a row without any answer from a provider make it suspect.
SUSPECT_AFTER = 8


@dataclass(slots=True)
class Lane:
    """One provider's queue."""

    waiting: deque[Operation] = field(default_factory=deque)
    inflight: int = 0
    silent: int = 0
    # Times in a row that the provider asked for fewer calls.
    slowed: int = 0
    not_before: int = 0

    @property
    def suspect(self) -> bool:
        return self.silent >= SUSPECT_AFTER

    @property
    def careful(self) -> bool:
        """One call at a time, with pauses."""
        return self.slowed > 0 or self.suspect


class Calls:
    """Queues operations for their provider and sends calls."""

    def __init__(
        self, state: ShardState, still_valid: Callable[[Operation], bool], stopped: Callable[[str], bool]
    ) -> None:
        self._state = state
        self._stopped = stopped
        self._still_valid = still_valid
        self._lanes: dict[str, Lane] = {}
        self._inflight: dict[int, Operation] = {}
        self._last = 0

    @property
    def depth(self) -> int:
        return sum(1 for lane in self._lanes.values() for op in lane.waiting if op.stage == QUEUED)

    @property
    def inflight(self) -> int:
        return len(self._inflight)

    def enqueue(self, operation: Operation) -> None:
        operation.to(QUEUED)
        self._state.timers.cancel(TIMER, operation.machine.key)
        self._lane(operation).waiting.append(operation)

    def dispatch(self) -> None:
        """Send what the limits allow."""
        for provider, lane in self._lanes.items():
            if self._stopped(provider):
                continue
            if not lane.waiting or (lane.careful and self._state.now < lane.not_before):
                continue
            limit = 1 if lane.careful else self._state.config.execute_concurrency
            while lane.waiting and lane.inflight < limit:
                operation = lane.waiting.popleft()
                # An operation that was called off stays in the queue until its turn.
                if operation.stage == QUEUED and self._still_valid(operation):
                    lane.inflight += 1
                    self._send(operation)

    def answered(self, number: int) -> Operation | None:
        """The operation whose call this answers; None for an answer that comes too late."""
        operation = self._inflight.pop(number, None)
        if operation is not None:
            self._lane(operation).inflight -= 1
            operation.number = 0
            self._state.timers.cancel(TIMER, operation.machine.key)
        return operation

    def heard(self, provider: str, *, alive: bool) -> None:
        """A call ended: with an answer of whatever kind, or because nobody was there."""
        lane = self._lanes[provider]
        if alive and not lane.silent:
            return
        lane.silent = 0 if alive else lane.silent + 1
        if lane.suspect:
            self._pause(provider, lane, lane.silent - SUSPECT_AFTER + 1)
        elif not lane.slowed:
            self._state.timers.cancel(LANE_TIMER, provider)

    def slow_down(self, provider: str) -> None:
        """The provider wants fewer calls: one at a time, ever less often, until one is taken."""
        lane = self._lanes[provider]
        if self._state.now >= lane.not_before:
            # What was under way when it said so is of the same wave.
            lane.slowed += 1
            self._pause(provider, lane, lane.slowed)

    def taken(self, provider: str) -> None:
        """A call was taken: there is no limit at the moment."""
        lane = self._lanes[provider]
        if lane.slowed:
            lane.slowed = 0
            if not lane.suspect:
                self._state.timers.cancel(LANE_TIMER, provider)

    def answers(self, provider: str) -> None:
        """Something else than a call was answered."""
        if provider in self._lanes and self._lanes[provider].silent:
            self.heard(provider, alive=True)

    def _pause(self, provider: str, lane: Lane, times: int) -> None:
        config = self._state.config
        lane.not_before = self._state.now + delay(config.retry_delay, config.retry_delay_max, times, provider)
        self._state.timers.arm(LANE_TIMER, provider, lane.not_before)

    def suspect(self, provider: str) -> bool:
        return provider in self._lanes and self._lanes[provider].suspect

    def abandon(self, operation: Operation) -> None:
        """Stop waiting for the call in flight, if there is one; its answer will be ignored."""
        if operation.number:
            self.answered(operation.number)

    def validate(self) -> None:
        for provider, lane in self._lanes.items():
            mine = [op for op in self._inflight.values() if op.machine.provider == provider]
            assert lane.inflight == len(mine) <= self._state.config.execute_concurrency, f"{provider}: in flight"
        for number, operation in self._inflight.items():
            assert operation.number == number and operation.stage == CALLING, f"{operation} is not calling"
        machines = [op.machine.key for op in self._inflight.values()]
        assert len(machines) == len(set(machines)), "a machine has two calls in flight"

    def _send(self, operation: Operation) -> None:
        state = self._state
        operation.to(CALLING)
        operation.attempts += 1
        self._last += 1
        operation.number = self._last
        self._inflight[self._last] = operation
        deadline = state.now + state.config.execute_timeout
        configure = operation.call == CONFIGURE
        # Time already spent evicting is gone.
        grace = grace_left(operation.grace_ends, state.now) if operation.call == DRAIN else 0
        state.turn.emit(
            CallProvider(
                op=self._last,
                provider=operation.machine.shape.provider,
                kind=operation.call,
                machine=operation.machine.id,
                fence=state.fencing.next(),
                deadline=deadline,
                cluster=operation.cluster if configure else "",
                blob=operation.blob if configure else b"",
                metadata=metadata_of(operation.machine.stamp) if configure else (),
                grace_seconds=grace,
            )
        )
        state.timers.arm(TIMER, operation.machine.key, deadline + WATCHDOG_SLACK)

    def _lane(self, operation: Operation) -> Lane:
        provider = operation.machine.shape.provider
        lane = self._lanes.get(provider)
        if lane is None:
            lane = self._lanes[provider] = Lane()
        return lane
