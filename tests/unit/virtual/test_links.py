"""Links and duration distributions: order, loss, doubling, overtaking, and cuts."""

from __future__ import annotations

import random
import statistics

import pytest

from bigfleet.virtual.kernel import MILLISECOND, SECOND, Duration, Kernel, KernelError, Link, Weather


def test_a_fair_link_delivers_everything_once_in_order_however_delays_vary() -> None:
    kernel = Kernel(seed=3)
    seen: list[int] = []
    link = Link(kernel, "a-b", seen.append, Weather(delay=Duration.exponential(10 * MILLISECOND)))
    for number in range(500):
        kernel.at(number * MILLISECOND, lambda number=number: link.send(number))
    kernel.run()
    assert seen == list(range(500))
    assert (link.sent, link.delivered, link.lost, link.in_flight) == (500, 500, 0, 0)


def test_reordering_lets_later_messages_overtake_but_loses_none() -> None:
    kernel = Kernel(seed=3)
    seen: list[int] = []
    link = Link(kernel, "a-b", seen.append, Weather(reordering=0.3))
    for number in range(500):
        link.send(number)
    kernel.run()
    assert sorted(seen) == list(range(500))
    assert seen != list(range(500))


def test_loss_and_duplication_happen_about_as_often_as_asked() -> None:
    kernel = Kernel(seed=5)
    seen: list[int] = []
    link = Link(kernel, "a-b", seen.append, Weather(loss=0.2, duplication=0.1))
    for number in range(10_000):
        link.send(number)
    kernel.run()
    assert 1_800 < link.lost < 2_200
    assert 700 < len(seen) - len(set(seen)) < 900


def test_a_cut_link_loses_what_is_in_flight_and_works_again_after_healing() -> None:
    kernel = Kernel()
    seen: list[str] = []
    link = Link(kernel, "a-b", seen.append, Weather(delay=Duration.fixed(SECOND)))
    link.send("in flight")
    kernel.run_for(MILLISECOND)
    link.cut()
    link.send("while down")
    assert not link.up
    kernel.run_for(2 * SECOND)
    link.heal()
    link.send("after")
    kernel.run()
    assert seen == ["after"]
    assert (link.sent, link.delivered, link.lost) == (3, 1, 2)
    kernel.validate()


def test_one_seed_gives_one_history_and_links_do_not_disturb_each_other() -> None:
    def history(seed: int, with_other: bool) -> list[tuple[int, int]]:
        kernel = Kernel(seed=seed)
        seen: list[tuple[int, int]] = []
        weather = Weather(delay=Duration.uniform(0, SECOND), loss=0.1, duplication=0.1, reordering=0.2)
        link = Link[int](kernel, "a-b", lambda number: seen.append((kernel.now, number)), weather)
        other = Link[int](kernel, "b-a", lambda _: None, weather)
        for number in range(200):
            link.send(number)
            if with_other:
                other.send(number)
        kernel.run()
        return seen

    assert history(1, with_other=False) == history(1, with_other=True)
    assert history(1, with_other=False) != history(2, with_other=False)


def test_durations_have_the_shape_they_are_named_for() -> None:
    rng = random.Random(1)
    assert {Duration.fixed(7).sample(rng) for _ in range(10)} == {7}
    uniform = [Duration.uniform(10, 20).sample(rng) for _ in range(1_000)]
    assert (min(uniform), max(uniform)) == (10, 20)
    mean = statistics.mean(Duration.exponential(SECOND).sample(rng) for _ in range(20_000))
    assert 0.95 * SECOND < mean < 1.05 * SECOND
    tail = sorted(Duration.lognormal(40 * SECOND, 90 * SECOND).sample(rng) for _ in range(20_000))
    assert 39 * SECOND < tail[10_000] < 41 * SECOND
    assert 84 * SECOND < tail[19_800] < 96 * SECOND
    assert Duration.lognormal(0, 0).sample(rng) == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Duration("gamma", 1), "kind is 'gamma'; give one of"),
        (lambda: Duration.fixed(-1), "negative"),
        (lambda: Duration.uniform(5, 4), "ends at 4 ns"),
        (lambda: Weather(loss=1.5), "loss is 1.5; give a probability"),
    ],
)
def test_impossible_distributions_are_refused(build: object, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        build()  # type: ignore[operator]


def test_messages_due_at_one_instant_travel_together_and_a_cut_between_them_loses_the_rest() -> None:
    kernel = Kernel()
    seen: list[int] = []

    def deliver(number: int) -> None:
        seen.append(number)
        if number == 1:
            link.cut()
            link.heal()
            link.send(3)

    link = Link[int](kernel, "a-b", deliver)
    for number in range(3):
        link.send(number)
    assert (kernel.pending, link.in_flight) == (1, 3)
    kernel.run()
    assert seen == [0, 1, 3]
    assert (link.sent, link.delivered, link.lost, link.in_flight) == (4, 3, 1, 0)
    kernel.validate()


def test_mishaps_leave_the_delays_of_other_messages_in_place() -> None:
    def arrivals(**mishaps: float) -> dict[int, int]:
        kernel = Kernel(seed=4)
        seen: dict[int, int] = {}
        weather = Weather(delay=Duration.uniform(0, SECOND), **mishaps)
        link = Link[int](kernel, "a-b", lambda number: seen.setdefault(number, kernel.now), weather)
        for number in range(100):
            kernel.at(number * 2 * SECOND, lambda number=number: link.send(number))
        kernel.run()
        return seen

    calm, doubled = arrivals(), arrivals(duplication=0.5)
    assert calm.keys() == doubled.keys()
    assert all(doubled[number] <= at for number, at in calm.items())
    stormy = arrivals(loss=0.3)
    assert stormy.items() < calm.items()
