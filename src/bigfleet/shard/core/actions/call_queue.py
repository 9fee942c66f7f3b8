"""Provider calls: a queue and a bounded number in flight per provider, one fresh fence per attempt.

What was bought is bound before more is bought. A provider that limits calls is asked at a pace (`pace`); one that
stopped answering gets one probe at a time, ever less often, until it answers again: its queue waits instead of being
used up. Knows nothing of what a call means: before one goes out its owner is asked whether it still should, and while
the shard is halted (paused or in dry run) none does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bigfleet.engine.policy import SECOND
from bigfleet.shard.contract.events import CallProvider
from bigfleet.shard.core.machines.stamps import metadata_of
from bigfleet.shard.core.state.backoff import delay
from bigfleet.shard.core.state.enum_aliases import CALLING, CONFIGURE, DRAIN, QUEUED
from bigfleet.shard.core.state.operations import Operation, grace_left
from bigfleet.shard.core.state.pace import Pace
from bigfleet.shard.core.state.state import ShardState

# The shell must answer every call by its deadline; should it not, the core gives up on its own a little later.
WATCHDOG_SLACK = 5 * SECOND
TIMER = "operation"
LANE_TIMER = "lane"
# So many calls in a row without any answer from a provider make it suspect.
SUSPECT_AFTER = 8
# A call that takes longer than that is not waited for blindly: Get may show that the provider took it.
SLOW = 3 * SECOND
# One turn of so many is of whoever waits longest, or calls that are refused for ever would keep out all others. Which
# one follows no beat: a provider that takes one call of four would else always be asked for the same.
OLDEST_FIRST = 4


class Waiting:
    """Operations in the order of their turns: bindings of machines that are paid for, then drains, then the others."""

    __slots__ = ("_count", "_queues", "_turns")

    def __init__(self) -> None:
        self._queues: tuple[deque[tuple[int, Operation]], ...] = (deque(), deque(), deque())
        self._count = 0
        self._turns = 0

    def __bool__(self) -> bool:
        return any(self._queues)

    def __iter__(self) -> Iterator[Operation]:
        return (operation for queue in self._queues for _, operation in queue)

    def append(self, operation: Operation) -> None:
        self._count += 1
        rank = 0 if operation.call == CONFIGURE else 1 if operation.call == DRAIN else 2
        self._queues[rank].append((self._count, operation))

    def take(self) -> Operation:
        self._turns += 1
        queues = [queue for queue in self._queues if queue]
        oldest = (self._turns * 2654435761 >> 16) % OLDEST_FIRST == 0
        queue = min(queues, key=lambda each: each[0][0]) if oldest else queues[0]
        return queue.popleft()[1]


@dataclass(slots=True)
class Lane:
    """One provider's queue."""

    waiting: Waiting = field(default_factory=Waiting)
    inflight: int = 0
    silent: int = 0
    pace: Pace = field(default_factory=Pace)
    # While it is suspect.
    not_before: int = 0

    @property
    def suspect(self) -> bool:
        return self.silent >= SUSPECT_AFTER

    def ready_at(self, now: int) -> int:
        """When the next call may go out."""
        return max(self.not_before if self.suspect else 0, self.pace.ready_at(now))


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
        now = self._state.now
        for provider, lane in self._lanes.items():
            if not lane.waiting or self._stopped(provider):
                continue
            limit = 1 if lane.suspect else self._state.config.execute_concurrency
            while lane.waiting and lane.inflight < limit:
                if (at := lane.ready_at(now)) > now:
                    self._state.timers.arm(LANE_TIMER, provider, at)
                    break
                operation = lane.waiting.take()
                # An operation that was called off stays in the queue until its turn.
                if operation.stage == QUEUED and self._still_valid(operation):
                    lane.inflight += 1
                    lane.pace.sent_at = now
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
            config, times = self._state.config, lane.silent - SUSPECT_AFTER + 1
            lane.not_before = self._state.now + delay(config.retry_delay, config.retry_delay_max, times, provider)
            self._state.timers.arm(LANE_TIMER, provider, lane.not_before)

    def slow_down(self, operation: Operation) -> None:
        """The provider wants fewer calls."""
        pace = self._lanes[operation.machine.provider].pace
        pace.refused(operation.sent, self._state.now, self._state.config.retry_delay_max)

    def taken(self, operation: Operation) -> None:
        """The provider took a call."""
        pace = self._lanes[operation.machine.provider].pace
        pace.taken(operation.sent, self._state.config.retry_delay_max)

    def paced(self, provider: str) -> bool:
        """Whether the provider refuses calls for their number at the moment."""
        return provider in self._lanes and self._lanes[provider].pace.limited(self._state.now)

    def told(self) -> dict[str, str]:
        """Whoever limits calls, in words."""
        return {
            provider: "it limits calls; it is asked once in "
            f"{lane.pace.interval / SECOND:.1f} s, what is refused is asked again, and "
            f"{sum(1 for each in lane.waiting if each.stage == QUEUED)} calls wait for their turn"
            for provider, lane in sorted(self._lanes.items())
            if lane.pace.limited(self._state.now)
        }

    def answers(self, provider: str) -> None:
        """Something else than a call was answered."""
        if provider in self._lanes and self._lanes[provider].silent:
            self.heard(provider, alive=True)

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
        operation.sent = state.now
        if not operation.attempts:
            operation.asked = state.now
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
        given_up = deadline + WATCHDOG_SLACK
        look = state.now + SLOW if state.config.transition_poll_interval else given_up
        state.timers.arm(TIMER, operation.machine.key, min(given_up, look))

    def only_slow(self, operation: Operation) -> bool:
        """Whether a call in flight still has time; if so it is looked at again when that is over."""
        given_up = operation.sent + self._state.config.execute_timeout + WATCHDOG_SLACK
        if self._state.now >= given_up:
            return False
        self._state.timers.arm(TIMER, operation.machine.key, given_up)
        return True

    def _lane(self, operation: Operation) -> Lane:
        provider = operation.machine.shape.provider
        lane = self._lanes.get(provider)
        if lane is None:
            lane = self._lanes[provider] = Lane()
        return lane
