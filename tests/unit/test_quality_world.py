"""The judge's closed loop, scheduler, accounting and candidate, on worlds small enough to count by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from bench.quality.account import Account
from bench.quality.autoscaler import Autoscaler
from bench.quality.demand import NOBODY, Trace, TraceBuilder
from bench.quality.fleet import Fleet
from bench.quality.greedy import Greedy
from bench.quality.kinds import SPOT_PROBABILITY, UNLIMITED, Kinds
from bench.quality.scheduler import EMPTIEST, FULLEST, Scheduler
from bench.quality.sums import Sums
from bench.quality.world import BOOT_S, CYCLE_S, World

HOUR = 3600.0
SMALL, LARGE = 0, 1
KINDS = Kinds(
    ("small", "large"),
    np.array([[4000, 16384, 0], [16000, 65536, 0]], np.int64),
    np.array([0.2, 0.7]),
    np.zeros(2),
    np.array([UNLIMITED, UNLIMITED]),
)
RISKY = Kinds(
    ("firm", "spot"),
    np.array([[4000, 16384, 0], [4000, 16384, 0]], np.int64),
    np.array([0.2, 0.06]),
    np.array([0.0, SPOT_PROBABILITY]),
    np.array([UNLIMITED, UNLIMITED]),
)
TWINS = Kinds(
    ("cheap", "dear"),
    np.array([[4000, 16384, 0], [4000, 16384, 0]], np.int64),
    np.array([0.2, 0.3]),
    np.zeros(2),
    np.array([UNLIMITED, UNLIMITED]),
)
ONE = (1000, 1024, 0)


class Idle:
    """A policy that does what a test tells it at the first cycle, and nothing else."""

    name = "idle"

    def __init__(self, *acts: tuple[float, object]) -> None:
        self._acts = list(acts)

    def decide(self, world: World) -> None:
        while self._acts and self._acts[0][0] <= world.now:
            self._acts.pop(0)[1](world)  # type: ignore[operator]


def trace_of(*pods: dict[str, object], horizon: float = 2 * HOUR) -> Trace:
    trace = TraceBuilder("test", 1, horizon)
    for pod in pods:
        facts = {"arrive": 0.0, "work": HOUR, "request": ONE, **pod}
        trace.add(facts.pop("arrive"), facts.pop("work"), facts.pop("request"), **facts)  # type: ignore[arg-type]
    return trace.build()


def world_of(trace: Trace, kinds: Kinds = KINDS, scoring: str = EMPTIEST, racks: int = 0) -> World:
    return World(trace, kinds, Scheduler(scoring), racks)


def ready(world: World, kind: int, cluster: int = 0, rack: int = NOBODY) -> int:
    row = world.buy(cluster, kind, np.zeros(3, np.int64), rack)
    world.nodes.ready[row] = True
    return row


# Scheduler


@pytest.mark.parametrize(("scoring", "expected"), [(EMPTIEST, 1), (FULLEST, 0)])
def test_scorings_choose_opposite_nodes(scoring: str, expected: int) -> None:
    world = world_of(trace_of({}, {}), scoring=scoring)
    rows = [ready(world, SMALL), ready(world, SMALL)]
    world._bind(0, rows[0])
    assert world.scheduler.choose(world, 0, 0, 1) == rows[expected]


def test_a_soft_taint_outweighs_emptiness_and_yields_to_need() -> None:
    world = world_of(trace_of({}, {}))
    rows = [ready(world, SMALL), ready(world, SMALL)]
    world._bind(0, rows[0])
    world.nodes.taints[rows[1]] = 3
    assert world.scheduler.choose(world, 0, 0, 1) == rows[0]
    world.nodes.free[rows[0]] = 0
    assert world.scheduler.choose(world, 0, 0, 1) == rows[1]


def test_pods_of_the_fleet_prefer_nodes_of_their_proportion_and_take_others_when_those_are_full() -> None:
    lean, rich = (1000, 1024, 0), (250, 2048, 0)
    sizes = np.array([[8000, 16384, 0], [2000, 16384, 0], [8000, 65536, 1]], np.int64)
    many = np.full(3, UNLIMITED)
    kinds = Kinds(("lean", "rich", "gpu"), sizes, np.array([0.3, 0.2, 3.0]), np.zeros(3), many)
    world = world_of(trace_of({"request": lean}, {"request": rich}), kinds)
    rows = [ready(world, kind) for kind in range(3)]
    world.nodes.taints[rows[2]] = 7
    assert world.scheduler.choose(world, int(world.trace.cls[1]), 0, 1) == rows[0], "the emptiest, if nobody tells it"
    Fleet(world, own_proportion=True)
    for pod, own in ((0, rows[0]), (1, rows[1])):
        assert world.scheduler.choose(world, int(world.trace.cls[pod]), 0, pod) == own
    world.nodes.free[rows[1]] = 0
    assert world.scheduler.choose(world, int(world.trace.cls[1]), 0, 1) == rows[0], "no other room: it goes there"
    assert not world.preferred[:, 2].any(), "nobody is drawn to devices"


def test_a_closed_node_takes_a_pod_only_when_no_other_does_and_is_open_again() -> None:
    world = world_of(trace_of({}, {}))
    rows = [ready(world, SMALL), ready(world, SMALL)]
    world.close(rows[1])
    assert world.scheduler.choose(world, 0, 0, 0) == rows[0]
    world.nodes.free[rows[0]] = 0
    assert world.scheduler.choose(world, 0, 0, 0) == rows[1]
    world._bind(0, rows[1])
    assert not world.nodes.closed[rows[1]]


def test_two_pods_of_one_token_never_share_a_node() -> None:
    world = world_of(trace_of({"exclusive": 1}, {"exclusive": 1}))
    row = ready(world, LARGE)
    world._bind(0, row)
    assert world.scheduler.choose(world, 0, 0, 1) == NOBODY
    world._unbind(0, 0.0)
    assert world.scheduler.choose(world, 0, 0, 1) == row


def test_what_must_not_be_interrupted_stays_off_spot() -> None:
    world = world_of(trace_of({"interruption": 0.01}, {"interruption": 256.0}, {"interruption": math.inf}), RISKY)
    row = ready(world, 1)
    chosen = [world.scheduler.choose(world, int(world.trace.cls[pod]), 0, pod) for pod in range(3)]
    assert chosen == [row, NOBODY, NOBODY]


def test_a_gang_goes_whole_into_one_rack_or_waits() -> None:
    member = {"request": (4000, 1024, 0), "gang": 7}
    world = world_of(trace_of(member, member), racks=16)
    ready(world, SMALL, rack=0)
    ready(world, SMALL, rack=1)
    assert world.scheduler.choose_gang(world, [0, 1], NOBODY) is None
    second = ready(world, SMALL, rack=1)
    chosen = world.scheduler.choose_gang(world, [0, 1], NOBODY)
    assert chosen is not None and second in chosen and {int(world.nodes.rack[row]) for row in chosen} == {1}


def test_clusters_do_not_lend_room() -> None:
    world = world_of(trace_of({"cluster": 1}))
    ready(world, LARGE, cluster=0)
    assert world.scheduler.choose(world, 0, 1, 0) == NOBODY


# Accounting


def test_a_machine_costs_from_purchase_to_return() -> None:
    world = world_of(trace_of({}))
    policy = Idle((0.0, lambda w: w.buy(0, SMALL)), (HOUR + 600, lambda w: w.give_back(0)))
    outcome = world.run(policy).outcome()
    assert outcome.machines == pytest.approx(0.2 * (HOUR + 600) / HOUR)
    assert (outcome.reclamation, outcome.interruption, outcome.unserved, outcome.late) == (0, 0, 0, 0)
    assert outcome.wait_max <= BOOT_S[1] + CYCLE_S


def test_waiting_beyond_a_boot_costs_ten_times_the_cheapest_room() -> None:
    trace = trace_of({"request": (4000, 16384, 0), "work": 60.0}, horizon=HOUR)
    outcome = world_of(trace).run(Idle()).outcome()
    # A quarter of the large machine is the cheapest room.
    assert outcome.unserved == pytest.approx(10 * 0.7 / 4 * (HOUR - BOOT_S[1] - CYCLE_S) / HOUR)
    assert (outcome.at_rest, outcome.late) == (1, 1.0)


def test_an_eviction_costs_its_reclamation_dollars_and_counts_once_the_pod_is_old() -> None:
    trace = trace_of({"reclamation": 0.25}, {"reclamation": 0.25, "arrive": 1000.0}, horizon=2 * HOUR)
    buy = (0.0, lambda w: w.buy(0, SMALL))
    again = (1200.0, lambda w: (w.give_back(0), w.buy(0, SMALL)))
    outcome = world_of(trace).run(Idle(buy, again)).outcome()
    assert outcome.reclamation == pytest.approx(0.5)
    assert (outcome.evicted, outcome.evicted_young) == (0.5, 1)
    # Both go on where they were: nothing is left at the end, and nobody was late.
    assert (outcome.at_rest, outcome.late) == (0, 0.0)


def test_expected_interruption_dollars_follow_the_hours_on_spot() -> None:
    trace = trace_of({"interruption": 0.1, "work": HOUR})
    outcome = world_of(trace, RISKY).run(Idle((0.0, lambda w: w.buy(0, 1)))).outcome()
    assert outcome.interruption == pytest.approx(SPOT_PROBABILITY * 0.1)


@pytest.mark.parametrize(("later", "kind", "share"), [(100.0, SMALL, 0.5), (1000.0, SMALL, 0.0), (100.0, LARGE, 0.0)])
def test_bought_back_is_a_purchase_the_returned_machine_would_have_carried(
    later: float, kind: int, share: float
) -> None:
    room = KINDS.capacity[kind]
    world = world_of(trace_of({}))
    acts = [
        (0.0, lambda w: w.buy(0, SMALL, KINDS.capacity[SMALL])),
        (600.0, lambda w: w.give_back(0)),
        (600.0 + later, lambda w: w.buy(0, kind, room)),
    ]
    assert world.run(Idle(*acts)).outcome().bought_back == share


# Purchases and policies


def test_one_purchase_holds_every_pod_and_no_gpus_for_work_without() -> None:
    kinds = Kinds(
        ("gpu", "plain"),
        np.array([[8000, 16384, 1], [8000, 16384, 0]], np.int64),
        np.array([0.1, 0.4]),
        np.zeros(2),
        np.array([UNLIMITED, UNLIMITED]),
    )
    trace = trace_of(*[{"request": (5000, 2048, 0)}] * 7, *[{"request": (3000, 8192, 0)}] * 9)
    assert Greedy(trace.classes, kinds).machines(np.array([7, 9])).tolist() == [0, 8]


def test_one_purchase_pays_for_the_interruptions_of_those_who_go_to_spot() -> None:
    trace = trace_of({"interruption": 0.0, "request": (4000, 1024, 0)}, {"interruption": math.inf, "request": ONE})
    found = Greedy(trace.classes, RISKY)
    assert found.machines(np.array([2, 1])).tolist() == [1, 2]
    assert found.dollars(np.array([2, 1])) == pytest.approx(0.2 + 2 * 0.06)
    # Without a firm machine the pinned one needs another; what costs a dollar to interrupt pays for its risk.
    assert found._risk(np.array([2, 1]), np.array([0, 2])) == pytest.approx(0.2)
    dollar = trace_of({"interruption": 1.0, "request": ONE}, {"interruption": 0.0, "request": ONE})
    assert Greedy(dollar.classes, RISKY)._risk(np.array([3, 1]), np.array([0, 1])) == pytest.approx(
        3 * RISKY.probability.max()
    )


def many(count: int) -> Trace:
    random = np.random.default_rng(5)
    sizes = ((500, 1024, 0), (1000, 4096, 0), (3000, 4096, 0))
    return trace_of(
        *(
            {
                "arrive": float(random.uniform(0, HOUR)),
                "work": float(random.uniform(300, HOUR)),
                "request": sizes[int(random.integers(3))],
                "service": True,
            }
            for _ in range(count)
        ),
        horizon=3 * HOUR,
    )


@pytest.mark.parametrize("scoring", [EMPTIEST, FULLEST])
def test_the_fleet_serves_within_a_boot_and_gives_everything_back(scoring: str) -> None:
    world = world_of(many(150), scoring=scoring)
    outcome = world.run(Fleet(world)).outcome()
    assert (outcome.at_rest, outcome.late, outcome.pinned_evicted) == (0, 0.0, 0)
    assert outcome.service_wait_p99 <= BOOT_S[1] + 2 * CYCLE_S
    assert not world.nodes.alive.any()


def test_a_machine_is_paid_for_from_its_create_to_its_delete() -> None:
    """One pod of 20 minutes: a boot before it, and the holds of an empty node and an idle machine after it."""
    world = world_of(trace_of({"work": 1200.0, "arrive": 5.0}))
    outcome = world.run(Fleet(world)).outcome()
    hours = outcome.machines / 0.2
    assert outcome.purchases == 1
    assert 1200 + BOOT_S[0] + 120 + 300 <= 3600 * hours <= 1200 + BOOT_S[1] + 120 + 300 + 5 * CYCLE_S


def test_without_a_budget_the_fleet_evicts_nobody() -> None:
    world = world_of(many(150))
    outcome = world.run(Fleet(world, eviction_rate=0.0)).outcome()
    assert (outcome.evicted, outcome.evicted_young, outcome.reclamation) == (0, 0, 0)


def test_who_becomes_old_is_told_of_whoever_ends_beside_him() -> None:
    """Eight short pods stand one after the other beside a long one of their kind; had the oldest of them ended each
    time, as a cluster that only counts them would say, nine would have become old."""
    short = [{"arrive": 600.0 * number, "work": 700.0, "request": (500, 512, 0)} for number in range(8)]
    world = world_of(trace_of({"work": 2 * HOUR, "request": (500, 512, 0)}, *short, horizon=2 * HOUR - 60))
    fleet = Fleet(world, eviction_rate=1.0, consolidate=False)
    world.run(fleet)
    [site] = fleet._sites
    assert site.host.core.placement.evictions.allowed() == (("c0", 1),)


def test_the_fleet_never_evicts_what_is_pinned() -> None:
    pods = [{"reclamation": math.inf, "work": 2 * HOUR, "request": (500, 512, 0)}] * 3
    world = world_of(trace_of(*pods, *[{"work": 400.0, "request": (4000, 4096, 0)}] * 9, horizon=3 * HOUR))
    outcome = world.run(Fleet(world, eviction_rate=10.0, consolidate_closing=60 * 10**9)).outcome()
    assert outcome.pinned_evicted == 0


def test_a_gang_gets_one_rack_and_nothing_is_bought_twice_while_its_machines_boot() -> None:
    """They are ready up to a minute apart, and until the last one is, all of the gang waits."""
    member = {"request": (3000, 12288, 0), "gang": 7, "arrive": 5.0}
    world = world_of(trace_of(*[member] * 6, horizon=0.5 * HOUR), TWINS, racks=16)
    outcome = world.run(Fleet(world)).outcome()
    assert NOBODY not in world.node_of and len({int(world.nodes.rack[row]) for row in world.node_of}) == 1
    assert outcome.purchases == 6


def test_clusters_that_share_nothing_have_their_part_of_what_is_reserved() -> None:
    kinds = Kinds(
        ("firm", "base"),
        np.array([[4000, 16384, 0], [4000, 16384, 0]], np.int64),
        np.array([0.2, 0.12]),
        np.zeros(2),
        np.array([UNLIMITED, 2]),
    )
    pods = [{"request": (3000, 1024, 0), "cluster": 0, "arrive": 5.0, "work": HOUR}] * 2
    trace = dataclasses.replace(trace_of(*pods, horizon=0.5 * HOUR), clusters=2)
    bought = []
    for shared in (True, False):
        world = world_of(trace, kinds)
        outcome = world.run(Fleet(world, shared=shared)).outcome()
        bought.append(outcome.machines - 2 * 0.12 * 0.5)
    # Together both run on what is paid for anyway; apart the second has to be bought.
    assert bought[0] == pytest.approx(0) and bought[1] > 0.08


def test_a_pod_that_fits_nothing_is_late_and_somebody_says_why() -> None:
    kinds = Kinds(("k",), np.array([[1000, 1024, 0]], np.int64), np.array([0.4]), np.zeros(1), np.array([UNLIMITED]))
    world = world_of(trace_of({"request": (5000, 1024, 0)}, {"request": (500, 512, 0)}, horizon=0.2 * HOUR), kinds)
    world.account = Account(world.trace, KINDS, BOOT_S[1], CYCLE_S)
    outcome = world.run(Fleet(world)).outcome()
    assert (outcome.at_rest, outcome.late, outcome.unexplained) == (1, 0.5, 0)


def test_the_autoscaler_serves_everybody_and_consolidates() -> None:
    world = world_of(many(150))
    outcome = world.run(Autoscaler(world, 0.0)).outcome()
    assert (outcome.at_rest, outcome.late) == (0, 0.0)
    assert not world.nodes.alive.any()


def test_todays_arithmetic_leaves_pods_without_room_where_sums_lie() -> None:
    """Five cores on machines of eight: sums say that 25 machines hold 40 pods."""
    kinds = Kinds(("k",), np.array([[8000, 65536, 0]], np.int64), np.array([0.4]), np.zeros(1), np.array([UNLIMITED]))
    trace = trace_of(*[{"request": (5000, 1024, 0)}] * 40, horizon=0.5 * HOUR)
    world = world_of(trace, kinds)
    outcome = world.run(Sums(world, 0.0)).outcome()
    assert (outcome.purchases, outcome.at_rest) == (25, 15)
    other = world_of(trace, kinds)
    judged = other.run(Fleet(other)).outcome()
    assert (judged.purchases, judged.at_rest) == (40, 0)


def test_fleets_that_share_nothing_each_pay_for_their_own_machines() -> None:
    """Two clusters with the same work at the same time cost twice as much as one of them."""

    def dollars(clusters: int) -> float:
        pods = [{"request": (3000, 1024, 0), "cluster": each, "arrive": 5.0} for each in range(clusters)]
        trace = dataclasses.replace(trace_of(*pods, horizon=HOUR), clusters=clusters)
        world = world_of(trace)
        return world.run(Fleet(world, shared=False)).outcome().machines

    # Boots are drawn for each machine, so that only minutes of a price differ.
    assert dollars(2) == pytest.approx(2 * dollars(1), rel=0.05)
