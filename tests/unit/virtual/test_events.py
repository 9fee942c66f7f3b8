"""The virtual clock and its queue: order, cancellation, and time that only moves forward."""

from __future__ import annotations

import pytest

from bigfleet.virtual.kernel import MILLISECOND, SECOND, Kernel, KernelError


def test_events_run_in_time_order_and_the_clock_follows() -> None:
    kernel = Kernel()
    seen: list[tuple[str, int]] = []
    kernel.after(3 * SECOND, lambda: seen.append(("late", kernel.now)))
    kernel.after(1 * SECOND, lambda: seen.append(("early", kernel.now)))
    assert kernel.run() == 2
    assert seen == [("early", SECOND), ("late", 3 * SECOND)]


def test_events_of_one_instant_run_in_the_order_they_were_scheduled() -> None:
    kernel = Kernel()
    seen: list[int] = []
    for number in range(100):
        kernel.at(SECOND, lambda number=number: seen.append(number))
    kernel.run()
    assert seen == list(range(100))


def test_an_event_scheduled_for_now_by_an_event_runs_after_its_peers() -> None:
    kernel = Kernel()
    seen: list[str] = []
    kernel.at(0, lambda: (seen.append("first"), kernel.after(0, lambda: seen.append("nested")))[0])
    kernel.at(0, lambda: seen.append("second"))
    kernel.run()
    assert seen == ["first", "second", "nested"]


def test_a_cancelled_timer_never_runs_and_says_so_once() -> None:
    kernel = Kernel()
    timer = kernel.after(SECOND, lambda: pytest.fail("cancelled timer ran"))
    assert timer.active
    assert timer.cancel()
    assert not timer.cancel()
    assert not timer.active
    assert kernel.pending == 0
    assert kernel.next_due is None
    assert kernel.run() == 0


def test_a_timer_that_already_ran_cannot_be_cancelled() -> None:
    kernel = Kernel()
    timer = kernel.after(0, lambda: None)
    kernel.run()
    assert not timer.cancel()
    kernel.validate()


def test_thousands_of_cancelled_timers_leave_the_queue_small_and_the_order_intact() -> None:
    kernel = Kernel()
    seen: list[int] = []
    timers = [kernel.after(number, lambda number=number: seen.append(number)) for number in range(10_000)]
    for number, timer in enumerate(timers):
        if number % 100:
            timer.cancel()
    kernel.validate()
    assert kernel.pending == 100
    assert len(kernel._queue) < 300
    kernel.run()
    assert seen == list(range(0, 10_000, 100))


def test_run_until_stops_at_the_instant_and_leaves_the_rest() -> None:
    kernel = Kernel()
    seen: list[int] = []
    for second in (1, 2, 3):
        kernel.at(second * SECOND, lambda second=second: seen.append(second))
    assert kernel.run_until(2 * SECOND) == 2
    assert kernel.now == 2 * SECOND
    assert kernel.run_for(500 * MILLISECOND) == 0
    assert kernel.now == 2_500 * MILLISECOND
    assert kernel.next_due == 3 * SECOND


def test_a_repeating_timer_fires_until_its_own_action_cancels_it() -> None:
    kernel = Kernel()
    instants: list[int] = []

    def tick() -> None:
        instants.append(kernel.now)
        if len(instants) == 3:
            repeating.cancel()

    repeating = kernel.every(SECOND, tick)
    kernel.run()
    assert instants == [SECOND, 2 * SECOND, 3 * SECOND]


def test_the_past_and_endless_runs_are_refused_with_the_value_at_fault() -> None:
    kernel = Kernel(start=SECOND)
    with pytest.raises(KernelError, match="due is 0 ns"):
        kernel.at(0, lambda: None)
    with pytest.raises(KernelError, match="delay is -1 ns"):
        kernel.after(-1, lambda: None)
    with pytest.raises(KernelError, match="interval is 0 ns"):
        kernel.every(0, lambda: None)
    with pytest.raises(KernelError, match="instant is 5 ns"):
        kernel.run_until(5)
    kernel.every(SECOND, lambda: None)
    with pytest.raises(KernelError, match="more than 50 actions"):
        kernel.run(limit=50)


def test_random_streams_are_independent_and_repeatable() -> None:
    first, again = Kernel(seed=7), Kernel(seed=7)
    first.random_stream("other").random()
    assert first.random_stream("spot").random() == again.random_stream("spot").random()
    assert Kernel(seed=8).random_stream("spot").random() != again.random_stream("spot").random()
