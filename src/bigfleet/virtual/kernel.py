"""The event kernel: a virtual clock, one ordered event queue, and in-memory links that misbehave on purpose.

Theory of operation: time is an integer count of nanoseconds and moves only when the next event is taken. Two events due
at the same instant run in the order they were scheduled, so one seed gives one history, byte for byte. Randomness comes
from named streams: a new consumer of one stream never shifts the draws of another.
The kernel must never look at the wall clock, sleep, start a thread, or know what its events mean.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

Action = Callable[[], None]
M = TypeVar("M")

# Cancelled timers stay in the heap until they surface; past this many, and when they outnumber the live ones, sweep.
_SWEEP_AT = 64


class KernelError(Exception):
    """The kernel was asked for something that would break determinism, such as an event in the past."""


class Timer:
    """A scheduled action. `cancel` is safe at any moment, also from inside the action and more than once."""

    __slots__ = ("_action", "_kernel", "due")

    def __init__(self, kernel: Kernel, due: int, action: Action) -> None:
        self.due = due
        self._kernel = kernel
        self._action: Action | None = action

    @property
    def active(self) -> bool:
        """True until the action has been taken for running or the timer was cancelled."""
        return self._action is not None

    def cancel(self) -> bool:
        """Forget the action; returns whether there was still something to cancel."""
        if self._action is None:
            return False
        self._action = None
        self._kernel._note_cancelled()
        return True


class Kernel:
    """Virtual clock and event queue. Everything that happens in a simulation happens inside `step`."""

    def __init__(self, *, seed: int = 0, start: int = 0) -> None:
        self._seed = seed
        self.now = start
        """The current instant in nanoseconds; only the kernel moves it."""
        self._sequence = 0
        self._cancelled = 0
        self._executed = 0
        self._queue: list[tuple[int, int, Timer]] = []

    @property
    def executed(self) -> int:
        """How many actions have run so far."""
        return self._executed

    @property
    def pending(self) -> int:
        """How many live actions are waiting."""
        return len(self._queue) - self._cancelled

    @property
    def next_due(self) -> int | None:
        """When the next live action is due, or None when nothing is waiting."""
        self._drop_cancelled_head()
        return self._queue[0][0] if self._queue else None

    def random_stream(self, name: str) -> random.Random:
        """A generator of its own for `name`; the same seed and name always give the same draws."""
        return random.Random(f"{self._seed}/{name}")

    def at(self, due: int, action: Action) -> Timer:
        """Run `action` at the instant `due`, after everything already scheduled for that instant."""
        if due < self.now:
            raise KernelError(
                f"due is {due} ns, which is before now ({self.now} ns); give the present or a later instant"
            )
        timer = Timer(self, due, action)
        heapq.heappush(self._queue, (due, self._sequence, timer))
        self._sequence += 1
        return timer

    def after(self, delay: int, action: Action) -> Timer:
        """Run `action` after `delay` nanoseconds."""
        if delay < 0:
            raise KernelError(f"delay is {delay} ns; give 0 or more")
        return self.at(self.now + delay, action)

    def every(self, interval: int, action: Action) -> Repeating:
        """Run `action` every `interval` nanoseconds, first after one interval, until cancelled."""
        if interval <= 0:
            raise KernelError(f"interval is {interval} ns; give more than 0, or time would stand still")
        return Repeating(self, interval, action)

    def step(self) -> bool:
        """Take the next action, move the clock to it and run it; False when nothing is waiting."""
        self._drop_cancelled_head()
        if not self._queue:
            return False
        self._run_head()
        return True

    def run_until(self, instant: int) -> int:
        """Run everything due up to and including `instant`, leave the clock there, and return how many actions ran."""
        if instant < self.now:
            raise KernelError(f"instant is {instant} ns, which is before now ({self.now} ns); time only moves forward")
        before = self._executed
        while True:
            self._drop_cancelled_head()
            if not self._queue or self._queue[0][0] > instant:
                break
            self._run_head()
        self.now = instant
        return self._executed - before

    def run_for(self, duration: int) -> int:
        """`run_until` relative to now."""
        return self.run_until(self.now + duration)

    def run(self, *, limit: int = 10_000_000) -> int:
        """Run until nothing is waiting; more than `limit` actions means a loop that never settles: KernelError."""
        before = self._executed
        while self.step():
            if self._executed - before > limit:
                raise KernelError(
                    f"more than {limit} actions ran without the queue becoming empty; use run_until for endless timers"
                )
        return self._executed - before

    def validate(self) -> None:
        """Check the queue's own invariants; tests call it after every event."""
        live = sum(1 for _, _, timer in self._queue if timer.active)
        if live != self.pending:
            raise KernelError(f"{live} live timers in the queue but {self.pending} counted")
        if any(due < self.now for due, _, timer in self._queue if timer.active):
            raise KernelError("a live timer is due in the past")

    def _note_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > _SWEEP_AT and self._cancelled * 2 > len(self._queue):
            self._queue = [entry for entry in self._queue if entry[2].active]
            heapq.heapify(self._queue)
            self._cancelled = 0

    def _run_head(self) -> None:
        self.now, _, timer = heapq.heappop(self._queue)
        action, timer._action = timer._action, None
        assert action is not None
        self._executed += 1
        action()

    def _drop_cancelled_head(self) -> None:
        queue = self._queue
        while queue and queue[0][2]._action is None:
            heapq.heappop(queue)
            self._cancelled -= 1


class Repeating:
    """A timer that re-arms itself before its action runs, so an action may cancel it."""

    __slots__ = ("_action", "_interval", "_kernel", "_timer")

    def __init__(self, kernel: Kernel, interval: int, action: Action) -> None:
        self._kernel = kernel
        self._interval = interval
        self._action = action
        self._timer = kernel.after(interval, self._fire)

    def cancel(self) -> bool:
        return self._timer.cancel()

    def _fire(self) -> None:
        self._timer = self._kernel.after(self._interval, self._fire)
        self._action()


@dataclass(frozen=True, slots=True)
class Duration:
    """A distribution of durations in nanoseconds. `kind` is fixed, uniform, exponential or lognormal."""

    kind: str
    low: int
    high: int = 0

    @staticmethod
    def fixed(value: int) -> Duration:
        return Duration("fixed", value, value)

    @staticmethod
    def uniform(low: int, high: int) -> Duration:
        return Duration("uniform", low, high)

    @staticmethod
    def exponential(mean: int) -> Duration:
        return Duration("exponential", mean)

    @staticmethod
    def lognormal(median: int, p99: int) -> Duration:
        """The shape cloud control planes show: most calls near the median, a long tail given by its 99th percentile."""
        return Duration("lognormal", median, p99)

    def __post_init__(self) -> None:
        if self.kind not in _SAMPLERS:
            raise KernelError(f"kind is {self.kind!r}; give one of {', '.join(sorted(_SAMPLERS))}")
        if self.low < 0:
            raise KernelError(f"a {self.kind} duration of {self.low} ns is negative; give 0 or more")
        if self.kind in ("uniform", "lognormal") and self.high < self.low:
            raise KernelError(
                f"a {self.kind} duration ends at {self.high} ns, before {self.low} ns; give an end not below the start"
            )

    def sample(self, rng: random.Random) -> int:
        return _SAMPLERS[self.kind](self, rng)


_Z99 = 2.3263478740408408  # standard normal quantile at 0.99: what turns a p99 into a sigma


def _lognormal(spread: Duration, rng: random.Random) -> int:
    if spread.low == 0:
        return 0
    sigma = math.log(spread.high / spread.low) / _Z99
    return int(spread.low * math.exp(sigma * rng.gauss(0.0, 1.0)))


_SAMPLERS: dict[str, Callable[[Duration, random.Random], int]] = {
    "fixed": lambda spread, rng: spread.low,
    "uniform": lambda spread, rng: rng.randint(spread.low, spread.high),
    "exponential": lambda spread, rng: int(rng.expovariate(1.0) * spread.low),
    "lognormal": _lognormal,
}


@dataclass(frozen=True, slots=True)
class Weather:
    """How a link treats messages: how long they take, and how often one is lost, doubled or overtaken."""

    delay: Duration = Duration("fixed", MILLISECOND, MILLISECOND)
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    straggle: Duration = Duration("uniform", MILLISECOND, 50 * MILLISECOND)

    def __post_init__(self) -> None:
        for field in ("loss", "duplication", "reordering"):
            value = getattr(self, field)
            if not 0.0 <= value <= 1.0:
                raise KernelError(f"{field} is {value}; give a probability from 0 to 1")

    @property
    def calm(self) -> bool:
        """Whether every message arrives once and in order."""
        return not (self.loss or self.duplication or self.reordering)


@dataclass(slots=True)
class Parcel(Generic[M]):
    """Messages of one link that arrive at the same instant."""

    messages: deque[M]
    timer: Timer


class Link(Generic[M]):
    """One direction of a connection. In order unless the weather reorders; a cut link loses what is in flight."""

    def __init__(self, kernel: Kernel, name: str, deliver: Callable[[M], None], weather: Weather | None = None) -> None:
        self.weather = weather if weather is not None else Weather()
        self.sent = self.delivered = self.lost = 0
        self._kernel = kernel
        self._deliver = deliver
        # Two streams: turning mishaps on or off leaves the delays in place.
        self._delays = kernel.random_stream(f"link/{name}")
        self._mishaps = kernel.random_stream(f"link/{name}/mishaps")
        self._up = True
        self._horizon = 0
        self._in_flight: dict[int, Parcel[M]] = {}
        self._next = 0
        self._last: Parcel[M] | None = None

    @property
    def up(self) -> bool:
        return self._up

    @property
    def in_flight(self) -> int:
        return sum(len(parcel.messages) for parcel in self._in_flight.values())

    def send(self, message: M) -> None:
        """Hand a message to the link. Whether it arrives is the weather's business."""
        self.sent += 1
        weather, now = self.weather, self._kernel.now
        due = now + weather.delay.sample(self._delays)
        if weather.calm:
            if self._up:
                self._in_order(due, message)
            else:
                self.lost += 1
            return
        # All draws happen for every message, lost or not: changing one probability leaves the other draws in place.
        rng = self._mishaps
        lost, doubled, late = rng.random(), rng.random(), rng.random()
        again, straggle = weather.delay.sample(rng), weather.straggle.sample(rng)
        if not self._up or lost < weather.loss:
            self.lost += 1
            return
        if late < weather.reordering:
            self._put(due + straggle, message)
        else:
            self._in_order(due, message)
        if doubled < weather.duplication:
            self._put(max(self._horizon, now + again), message)

    def cut(self) -> None:
        """Take the link down: what is in flight is lost, and so is everything sent until `heal`."""
        self._up = False
        self.lost += self.in_flight
        for parcel in self._in_flight.values():
            parcel.timer.cancel()
            parcel.messages.clear()
        self._in_flight.clear()
        self._last = None

    def heal(self) -> None:
        """Bring the link back up, empty."""
        self._up = True
        self._horizon = self._kernel.now

    def _in_order(self, due: int, message: M) -> None:
        """Not before what was sent before it; what arrives at one instant travels together."""
        last = self._last
        if due <= self._horizon:
            if last is not None and last.timer.due == self._horizon:
                last.messages.append(message)
                return
            due = self._horizon
        self._horizon = due
        self._last = self._put(due, message)

    def _put(self, due: int, message: M) -> Parcel[M]:
        ticket = self._next
        self._next += 1
        parcel = self._in_flight[ticket] = Parcel(deque((message,)), self._kernel.at(due, lambda: self._arrive(ticket)))
        return parcel

    def _arrive(self, ticket: int) -> None:
        parcel = self._in_flight[ticket]
        if parcel is self._last:
            self._last = None
        while parcel.messages:  # a message may cut the link: then the rest is lost
            self.delivered += 1
            self._deliver(parcel.messages.popleft())
        self._in_flight.pop(ticket, None)
