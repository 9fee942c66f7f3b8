"""The judge's lower bounds against brute force: never above the cheapest fleet there is, and not far below it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.quality.bounds import Program, over_time, rounded_share
from bench.quality.demand import NOBODY, Classes, Trace, TraceBuilder
from bench.quality.families import FAMILIES
from bench.quality.greedy import Greedy
from bench.quality.kinds import UNLIMITED, Kinds, undominated


def kinds_of(*rows: tuple[int, int, float], limits: tuple[int, ...] = ()) -> Kinds:
    """Kinds of (cpu, memory, price)."""
    return Kinds(
        tuple(f"k{place}" for place in range(len(rows))),
        np.array([[cpu, memory, 0] for cpu, memory, _ in rows], np.int64),
        np.array([price for *_, price in rows]),
        np.zeros(len(rows)),
        np.array(limits or (UNLIMITED,) * len(rows), np.int64),
    )


def classes_of(*sizes: tuple[int, int], exclusive: tuple[int, ...] = ()) -> Classes:
    count = len(sizes)
    return Classes(
        np.array([[cpu, memory, 0] for cpu, memory in sizes], np.int64),
        np.zeros(count, np.bool_),
        np.zeros(count),
        np.full(count, 0.005),
        np.array(exclusive or (NOBODY,) * count, np.int64),
    )


def cheapest(sizes: list[tuple[int, int]], kinds: Kinds) -> float:
    """Every way to part pods among machines, each the cheapest kind that holds its part."""

    def part(rest: list[tuple[int, int]], bins: list[list[tuple[int, int]]]) -> float:
        if not rest:
            return sum(price(each) for each in bins)
        first, others = rest[0], rest[1:]
        best = math.inf
        for place in range(len(bins)):
            best = min(best, part(others, [*bins[:place], [*bins[place], first], *bins[place + 1 :]]))
        return min(best, part(others, [*bins, [first]]))

    def price(pods: list[tuple[int, int]]) -> float:
        total = np.array([sum(cpu for cpu, _ in pods), sum(memory for _, memory in pods), 0])
        fits = (kinds.capacity >= total).all(1)
        return float(kinds.price[fits].min()) if fits.any() else math.inf

    return part(sizes, [])


SIZES = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(SIZES)
def test_no_fleet_is_cheaper_than_the_bound_and_the_greedy_is_a_fleet(sizes: list[tuple[int, int]]) -> None:
    kinds = kinds_of((8, 8, 1.0), (16, 8, 1.7), (4, 4, 0.55))
    distinct = sorted(set(sizes))
    counts = np.array([sizes.count(each) for each in distinct], np.int64)
    classes = classes_of(*distinct)
    bound, best = Program(classes, kinds).solve(counts).dollars, cheapest(sizes, kinds)
    assert bound <= best + 1e-9
    assert best <= Greedy(classes, kinds).dollars(counts) + 1e-9


def test_pods_of_five_cores_on_machines_of_eight_need_one_each() -> None:
    classes, kinds = classes_of((5, 1)), kinds_of((8, 64, 1.0))
    assert Program(classes, kinds).solve(np.array([40])).dollars == pytest.approx(40)


def test_three_thirds_and_a_bit_count_for_two() -> None:
    classes, kinds = classes_of((35, 1)), kinds_of((100, 1000, 1.0))
    assert Program(classes, kinds).solve(np.array([30])).dollars == pytest.approx(15)


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 30), st.integers(1, 9))
def test_rounded_shares_of_what_fits_never_pass_one(amounts: list[int], capacity: int, steps: int) -> None:
    kept, total = [], 0
    for amount in amounts:
        if total + amount <= capacity:
            kept.append(amount)
            total += amount
    assert sum(rounded_share(amount, capacity, steps) for amount in kept) <= 1 + 1e-9


def test_pods_that_share_a_token_take_a_machine_each() -> None:
    classes, kinds = classes_of((1, 1), exclusive=(0,)), kinds_of((8, 8, 1.0))
    assert Program(classes, kinds).solve(np.array([5])).dollars == pytest.approx(5)


def test_a_reserved_base_is_paid_once_and_shared_between_clusters() -> None:
    kinds = kinds_of((4, 4, 1.0), (4, 4, 0.6), limits=(UNLIMITED, 2))
    program = Program(classes_of((4, 4)), kinds, clusters=2)
    assert program.solve(np.array([[0], [0]])).dollars == pytest.approx(1.2)
    assert program.solve(np.array([[2], [0]])).dollars == pytest.approx(1.2)
    assert program.solve(np.array([[2], [2]])).dollars == pytest.approx(3.2)


def test_a_kind_that_another_replaces_is_left_out() -> None:
    kinds = kinds_of((8, 8, 1.0), (8, 8, 1.1), (4, 8, 1.0), (16, 16, 2.0), (8, 8, 1.0))
    assert undominated(kinds).tolist() == [0, 3]


def one_pod(arrive: float, work: float) -> Trace:
    trace = TraceBuilder("one", 1, 7200.0)
    trace.add(arrive, work, (4, 4, 0))
    return trace.build()


def test_the_bound_over_time_pays_for_the_hour_a_pod_would_run_and_for_one_boot() -> None:
    kinds = kinds_of((4, 4, 1.0))
    trace = one_pod(600.0, 3600.0)
    found = over_time(trace, Program(trace.classes, kinds), boot_s=90.0, every=600.0)
    assert found.dollars == pytest.approx(1.0 + 90 / 3600)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_family_is_large_enough_to_judge_and_every_pod_of_it_fits_something(name: str) -> None:
    family = FAMILIES[name]
    trace = family.build(1)
    assert Program(trace.classes, family.kinds).solve(np.ones(len(trace.classes), np.int64)).dollars > 0
    assert min(int(trace.alive(at).sum()) for at in np.linspace(60, trace.horizon * 0.99, 25)) >= 300


def test_a_trace_is_the_same_for_the_same_seed_only() -> None:
    once, again, other = (FAMILIES["exclusive"].build(seed) for seed in (1, 1, 2))
    assert np.array_equal(once.arrive, again.arrive) and np.array_equal(once.cls, again.cls)
    assert not np.array_equal(once.arrive[:50], other.arrive[:50]) or not np.array_equal(once.cls[:50], other.cls[:50])
