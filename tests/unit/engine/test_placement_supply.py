"""Clusters that report placement get room for what is stranded, judged by what a machine carries (engine.md §11-13)."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.batches import DemandBatch
from bigfleet.engine.placement import Backoff
from bigfleet.engine.policy import Policy, RollupGuard
from bigfleet.engine.results import ActionKind, Reason, UnmetReason
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.taint import Toleration
from tests.oracle.implementations import BOTH
from tests.strategies.builders import (
    CONFIGURING,
    CREATING,
    DRAINING,
    ON_DEMAND,
    RACK,
    RESERVED,
    SECOND,
    SPOT,
    START,
    ZONE,
    bound,
    idle,
    machine,
    need,
    rollup,
    several,
    slot,
    stamp_of,
)
from tests.strategies.placed import Steps, counted, did, node, pods, verdict

B, P, R = ActionKind.BOOTSTRAP, ActionKind.PROVISION, ActionKind.RECLAIM


def offers(count: int, prefix: str, **facts: Any) -> list[Any]:
    return several(count, slot, prefix, **({"capacity": ON_DEMAND} | facts))


@BOTH
def test_forty_pods_of_five_cores_get_forty_machines_of_eight(make: Any) -> None:
    row = pods("c", 40, cpu=5, mem=1)
    result = Steps(make)(offers(60, "m", cpu=8, mem=32, price=0.4), rows=[row])
    assert len(did(result, P)) == 40
    assert verdict(result, row).units.acquired == 40
    assert result.shortfalls == []


@BOTH
def test_one_gpu_pods_choose_the_cheapest_gpu_carried(make: Any) -> None:
    small = offers(20, "p3-", type="p3.2xlarge", cpu=8, mem=61, gpu=1, price=3.06)
    large = offers(20, "g6-", type="g6.12xlarge", cpu=48, mem=192, gpu=4, price=4.6)
    result = Steps(make)(small, large, rows=[pods("c", 8, cpu=1, mem=4, gpu=1)])
    assert did(result, P) == ["g6-0", "g6-1"]


@BOTH
def test_a_single_gpu_pod_buys_the_machine_it_fills(make: Any) -> None:
    small = offers(2, "p3-", cpu=8, mem=61, gpu=1, price=3.06)
    large = offers(2, "g6-", cpu=48, mem=192, gpu=4, price=4.6)
    result = Steps(make)(small, large, rows=[pods("c", 1, cpu=1, mem=4, gpu=1)])
    assert did(result, P) == ["p3-0"]


@BOTH
def test_batch_takes_spot_and_services_get_on_demand_in_the_same_cluster(make: Any) -> None:
    spot = offers(9, "s", capacity=SPOT, cpu=4, mem=16, price=0.06, risk=0.05)
    steady = offers(9, "d", cpu=4, mem=16, price=0.2)
    batch = pods("c", 8, cpu=2, mem=2, priority=1)
    service = pods("c", 4, cpu=2, mem=2, priority=100, interruption=256)
    result = Steps(make)(spot, steady, rows=[batch, service])
    assert did(result, P) == ["d0", "d1", "s0", "s1", "s2", "s3"]


@BOTH
def test_work_that_costs_a_cent_to_interrupt_takes_spot_where_half_a_dollar_does_not(make: Any) -> None:
    """Half a core of it: spot saves less an hour than a twentieth of half a dollar, and much more than of a cent."""
    spot = offers(9, "s", capacity=SPOT, cpu=1, mem=2, price=0.012, risk=0.05)
    steady = offers(9, "d", cpu=1, mem=2, price=0.04)
    half_a_dollar = pods("c", 2, cpu=0.5, mem=1, interruption=0.5)
    cent = pods("c", 2, cpu=0.5, mem=1, interruption=0.01, microdollars=15_625)
    assert did(Steps(make)(spot, steady, rows=[half_a_dollar]), P) == ["d0"]
    assert did(Steps(make)(spot, steady, rows=[cent]), P) == ["s0"]


@BOTH
def test_services_do_not_ride_on_spot_that_batch_buys(make: Any) -> None:
    spot = offers(1, "s", capacity=SPOT, cpu=8, mem=16, price=0.1, risk=0.05)
    batch = pods("c", 1, cpu=2, mem=2, priority=100)
    service = pods("c", 1, cpu=2, mem=2, priority=1, interruption=256)
    dear = offers(1, "d", cpu=8, mem=16, price=9.0)
    result = Steps(make)(spot, dear, rows=[batch, service])
    assert [(a.machine, a.need.fingerprint) for a in result.actions] == [
        ("s0", batch.row.profile.fingerprint),
        ("d0", service.row.profile.fingerprint),
    ]


@BOTH
def test_a_penalty_too_high_for_every_machine_left_is_told(make: Any) -> None:
    spot = offers(1, "s", capacity=SPOT, cpu=8, mem=16, price=0.1, risk=0.05)
    taken = bound("d", "c", capacity=ON_DEMAND, cpu=8, mem=16, price=0.3)
    row = pods("c", 1, cpu=2, mem=2, interruption=256)
    result = Steps(make)(spot, taken, rows=[row], nodes=[node("d", cpu=8, mem=1)])
    assert result.actions == []
    assert verdict(result, row).reason == UnmetReason.RISK_TOO_HIGH


@BOTH
def test_a_pinned_row_never_gets_a_machine_that_may_be_interrupted(make: Any) -> None:
    row = pods("c", 1, cpu=2, mem=2, interruption=1e9)
    result = Steps(make)(offers(1, "s", capacity=SPOT, cpu=8, mem=16, price=0.1, risk=0.01), rows=[row])
    assert did(result, P) == []


@BOTH
def test_the_cheapest_machine_within_reach_of_the_best_value(make: Any) -> None:
    """16 cores carry exactly what two times 8 do; the small ones empty sooner, where that is worth something."""
    large, small = offers(3, "a", cpu=16, mem=64, price=0.76), offers(3, "b", cpu=8, mem=32, price=0.4)
    for within, bought in ((0.1, ["b0", "b1"]), (0.0, ["a0"])):
        result = Steps(make, within=within)(large, small, rows=[pods("c", 16, cpu=1, mem=1)])
        assert did(result, P) == bought


@BOTH
def test_the_best_value_wins_and_of_equals_the_cheaper_machine(make: Any) -> None:
    for price, bought in ((0.79, ["a0"]), (0.8, ["b0", "b1"])):
        large, small = offers(3, "a", cpu=16, mem=64, price=price), offers(3, "b", cpu=8, mem=32, price=0.4)
        result = Steps(make)(large, small, rows=[pods("c", 16, cpu=1, mem=1)])
        assert did(result, P) == bought


@BOTH
def test_riders_fill_a_machine_that_one_row_alone_would_not_pay_for(make: Any) -> None:
    large, small = offers(3, "big", cpu=8, mem=8, price=0.4), offers(9, "tiny", cpu=4, mem=4, price=0.3)
    thin, fat = pods("c", 1, cpu=5, mem=1, priority=9), pods("c", 1, cpu=3, mem=6, priority=1)
    result = Steps(make)(large, small, rows=[thin, fat])
    assert did(result, P) == ["big0"]
    assert verdict(result, fat).units.acquired == 1
    assert verdict(result, fat).claimed == 0


@BOTH
def test_riders_count_for_nothing_where_rows_exhaust_a_class_by_themselves(make: Any) -> None:
    """Only `big` holds the second row. Riders would lure the first one there although `mid` suits it."""
    big, mid = offers(1, "big", cpu=8, mem=8, price=0.4), offers(1, "mid", cpu=4, mem=4, price=0.3)
    first = pods("c", 1, cpu=4, mem=1, priority=9)
    second = pods("c", 1, cpu=8, mem=2, priority=5)
    rider = pods("c", 1, cpu=4, mem=4, priority=1)
    result = Steps(make)(big, mid, rows=[first, second, rider])
    assert [(a.machine, a.need.fingerprint) for a in result.actions] == [
        ("mid0", first.row.profile.fingerprint),
        ("big0", second.row.profile.fingerprint),
    ]


@BOTH
def test_machines_with_devices_are_filled_by_those_who_go_together(make: Any) -> None:
    """4 + 3, 3 + 2 + 2 and 2 as they come; 4 + 2 + 2 and 3 + 3 + 2 go on two machines of eight."""
    machines = offers(9, "m", cpu=96, mem=96, gpu=8, price=20)
    jobs = [pods("c", count, cpu=1, mem=1, gpu=devices) for count, devices in ((1, 4), (2, 3), (3, 2))]
    assert did(Steps(make)(machines, rows=jobs), P) == ["m0", "m1"]
    assert len(did(Steps(make, refills=0)(machines, rows=jobs), P)) == 3
    # Riders that complete a machine are looked for beyond the first.
    assert len(did(Steps(make, refills=1)(machines, rows=jobs), P)) == 3
    # Without devices larger machines would win, and stay longer than those they were bought for.
    plain = [pods("c", count, cpu=cores, mem=1) for count, cores in ((1, 4), (2, 3), (3, 2))]
    assert len(did(Steps(make)(offers(9, "m", cpu=8, mem=96, price=0.4), rows=plain), P)) == 3


@BOTH
def test_of_a_row_with_devices_one_less_goes_where_another_completes_the_machine(make: Any) -> None:
    """3 + 3, 5 and 5 as they come; 3 + 5 twice."""
    machines = offers(9, "m", cpu=96, mem=96, gpu=8, price=20)
    jobs = [pods("c", 2, cpu=1, mem=1, gpu=3, priority=9), pods("c", 2, cpu=1, mem=1, gpu=5, priority=1)]
    result = Steps(make)(machines, rows=jobs)
    assert did(result, P) == ["m0", "m1"]
    assert all(verdict(result, row).units.missing == 0 for row in jobs)
    assert len(did(Steps(make, refills=0)(machines, rows=jobs), P)) == 3


@BOTH
def test_what_is_scarce_with_devices_is_filled_as_it_comes(make: Any) -> None:
    """Two machines are all there is: those who come first get as much of them as ever."""
    machines = offers(2, "m", cpu=96, mem=96, gpu=8, price=20)
    first, last = pods("c", 2, cpu=1, mem=1, gpu=3, priority=9), pods("c", 2, cpu=1, mem=1, gpu=5, priority=1)
    result = Steps(make)(machines, rows=[first, last])
    assert (verdict(result, first).units.missing, verdict(result, last).units.missing) == (0, 1)


@BOTH
def test_higher_precedence_gets_what_is_scarce(make: Any) -> None:
    low, high = pods("c", 1, cpu=4, mem=4, priority=1), pods("d", 1, cpu=4, mem=4, priority=9)
    demand = DemandBatch(rollups=[counted("c", low), counted("d", high)])
    result = Steps(make)(offers(1, "m", cpu=4, mem=4, price=1), demand=demand)
    assert [(a.machine, a.cluster) for a in result.actions] == [("m0", "d")]
    assert verdict(result, low).reason == UnmetReason.PRIORITY_STARVED


@BOTH
def test_what_is_left_of_a_purchase_serves_the_next_row(make: Any) -> None:
    rows = [pods("c", 2, cpu=5, mem=1, priority=9), pods("c", 2, cpu=3, mem=1, priority=1)]
    result = Steps(make, riders=0)(offers(9, "m", cpu=8, mem=32, price=0.4), rows=rows)
    assert did(result, P) == ["m0", "m1"]


@BOTH
def test_at_most_so_many_remainders_stay_open(make: Any) -> None:
    """With one open remainder the roomier of two is kept: two thirds of a machine against one third."""
    last = pods("c", 3, cpu=3, mem=1, priority=1)
    a, b = offers(1, "a", type="a", cpu=9, mem=9, price=0.3), offers(5, "b", type="b", cpu=9, mem=9, price=0.4)
    held = [
        pods("c", 1, cpu=3, mem=1, priority=9, types=["a"]),
        pods("c", 1, cpu=6, mem=1, priority=8, types=["b"]),
        last,
    ]
    assert len(did(Steps(make, riders=0)(a, b, rows=held), P)) == 2
    assert len(did(Steps(make, riders=0, open_remainders=1)(a, b, rows=held), P)) == 3


@BOTH
def test_the_second_pass_drops_what_later_purchases_made_superfluous(make: Any) -> None:
    small = offers(1, "small", type="s", cpu=2, mem=2, price=0.1)
    large = offers(9, "large", type="l", cpu=8, mem=32, price=0.4)
    rows = [pods("c", 1, cpu=2, mem=1, priority=9), pods("c", 7, cpu=5, mem=1, priority=1)]
    assert len(did(Steps(make, riders=0, second_pass_from=9)(small, large, rows=rows), P)) == 8
    assert did(Steps(make, riders=0)(small, large, rows=rows), P) == [f"large{n}" for n in range(7)]


@BOTH
def test_work_without_gpus_buys_no_gpu_machine_unless_nothing_else_fits(make: Any) -> None:
    gpu, cpu = offers(2, "a-gpu", cpu=8, mem=8, gpu=1, price=0.1), offers(1, "b", cpu=8, mem=8, price=2.0)
    result = Steps(make)(gpu, cpu, rows=[pods("c", 2, cpu=8, mem=1)])
    assert did(result, P) == ["b0", "a-gpu0"]


@BOTH
def test_pods_that_came_first_do_not_take_the_cores_of_gpu_machines_on_their_way(make: Any) -> None:
    """They grew after the GPU machines were bought, and are first in order."""
    steps = Steps(make)
    gpus = several(2, machine, "k", CREATING, "c", capacity=ON_DEMAND, cpu=32, mem=128, gpu=8, price=12)
    slots = offers(9, "g", cpu=32, mem=128, gpu=8, price=12), offers(30, "m", cpu=8, mem=32, price=0.4)
    web = pods("c", 1, cpu=1, mem=2)
    steps(*slots, rows=[web])
    tolerates = [Toleration("nvidia.com/gpu", "Exists")]
    web, train = pods("c", 100, cpu=1, mem=2), pods("c", 16, cpu=2, mem=8, gpu=1, tolerations=tolerates)
    result = steps(gpus, rows=[web, train], after=1)
    assert verdict(result, train).units.coming == 16
    assert [name for name in did(result, P) if name.startswith("g")] == []


@BOTH
def test_what_a_gpu_machine_has_left_beside_its_gpus_is_planned_for_nobody_else(make: Any) -> None:
    """The scheduler would give them all of it, and the pods it was bought for would be bought for again."""
    web, train = pods("c", 7, cpu=1, mem=2), pods("c", 8, cpu=2, mem=8, gpu=1)
    shape = {"cpu": 32, "mem": 128, "gpu": 8, "price": 12}
    slots = offers(2, "g", **shape), offers(9, "m", cpu=7, mem=32, price=0.4)
    for rows in ([web, train], [train, web]):
        assert did(Steps(make)(*slots, rows=rows), P) == ["g0", "m0"], "no riders"
    coming = machine("k", CREATING, "c", capacity=ON_DEMAND, **shape)
    assert did(Steps(make)(coming, *slots, rows=[web, train]), P) == ["m0"], "no room on its way"
    spare = machine("k", CREATING, "c", capacity=ON_DEMAND, **shape)
    assert did(Steps(make)(spare, *slots, rows=[web]), P) == [], "one that nobody with GPUs needs is room"


@BOTH
def test_owned_idle_machines_come_first_and_cost_nothing(make: Any) -> None:
    own = several(2, idle, "own", capacity=RESERVED, cpu=8, mem=8, price=5.0)
    result = Steps(make)(own, offers(2, "m", cpu=8, mem=8, price=0.1), rows=[pods("c", 3, cpu=8, mem=1)])
    assert did(result, B) == ["own0", "own1"]
    assert did(result, P) == ["m0"]


@BOTH
def test_an_idle_machine_far_too_large_is_left_alone_while_a_small_one_can_be_bought(make: Any) -> None:
    large = idle("large", capacity=ON_DEMAND, cpu=96, mem=96, price=4.8)
    row = pods("c", 1, cpu=1, mem=1)
    assert did(Steps(make)(large, offers(1, "m", cpu=2, mem=2, price=0.1), rows=[row]), P) == ["m0"]
    assert did(Steps(make)(large, rows=[row]), B) == ["large"]


@BOTH
def test_the_best_that_could_be_bought_is_used_once_it_is_idle(make: Any) -> None:
    """However badly the pod fills it: another one would fill no better."""
    steps = Steps(make)
    result = steps(offers(3, "m", cpu=96, mem=96, price=4.8), rows=[pods("c", 1, cpu=1, mem=1)])
    assert did(result, P) == ["m0"]
    result = steps(idle("m0", capacity=ON_DEMAND, cpu=96, mem=96, price=4.8), after=10)
    assert (did(result, B), did(result, P)) == (["m0"], [])


@BOTH
def test_empty_nodes_of_another_cluster_are_taken_before_buying(make: Any) -> None:
    steps = Steps(make)
    steps(
        several(2, bound, "n", "other", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4),
        cluster="other",
        rows=[],
        nodes=[node("n0", empty=True), node("n1", cpu=4, mem=1)],
    )
    row = pods("c", 1, cpu=8, mem=1)
    slots = offers(2, "m", cpu=8, mem=8, price=0.4)
    refreshed = DemandBatch(rollups=[counted("c", row)], confirmed=[("other", 1)])
    early = steps(slots, demand=refreshed, after=10)
    assert did(early, P) == ["m0"]
    refreshed = DemandBatch(rollups=[counted("c", row)], confirmed=[("other", 1)])
    late = steps(demand=refreshed, after=115)
    assert did(late, P) == []
    taken = [a for a in late.actions if a.kind == R]
    assert [(a.machine, a.cluster, a.reason, a.need.cluster, a.voluntary) for a in taken] == [
        ("n0", "other", Reason.EMPTY, "c", True)
    ]
    draining = steps(
        machine("n0", DRAINING, "other", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4),
        demand=DemandBatch(confirmed=[("c", 1), ("other", 1)]),
        after=1,
    )
    assert draining.actions == []
    assert verdict(draining, row).reason == UnmetReason.AWAITING_DRAIN


@BOTH
def test_what_is_coming_is_not_bought_again_until_its_deadline(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 2, cpu=5, mem=1)
    steps(offers(9, "m", cpu=8, mem=8, price=0.4), rows=[row])
    coming = several(2, machine, "m", CREATING, "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    until = {"m0": START + 60 * SECOND, "m1": START + 90 * SECOND}
    result = steps(coming, rows=[row], after=10, deadlines=until)
    assert result.actions == []
    told = verdict(result, row)
    assert (told.units.coming, told.units.coming_until, told.satisfied) == (2, START + 90 * SECOND, False)
    assert told.reason == UnmetReason.AWAITING_NODE
    assert len(did(steps(rows=[row], after=60), P)) == 1
    assert len(did(steps(rows=[row], after=40), P)) == 2


@BOTH
def test_a_configured_node_is_coming_until_a_roll_up_has_seen_it(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 1, cpu=5, mem=1)
    here = bound("m", "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    spare = offers(1, "s", cpu=8, mem=8, price=0.4)
    assert steps(here, spare, rows=[row], version=3).actions == []
    assert steps(nodes=[node("m", version=5)], rows=[row], version=4, after=1).actions == []
    assert did(steps(rows=[row], version=5, after=1), P) == ["s0"]


@BOTH
def test_a_node_whose_room_the_rows_know_serves_nobody_twice_though_its_provider_is_not_done(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 2, stranded=1, cpu=5, mem=1)
    here = machine("m", CONFIGURING, "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    spare = offers(1, "s", cpu=8, mem=8, price=0.4)
    assert steps(here, spare, rows=[row], version=3).actions == [], "on its way"
    assert steps(nodes=[node("m", version=5)], rows=[row], version=4, after=1).actions == [], "and not in the rows yet"
    assert did(steps(rows=[row], version=5, after=1), P) == ["s0"], "one has room there; the other is without"
    kept = steps(nodes=[node("m", ready=False, version=6)], rows=[row], version=6, after=1)
    assert (kept.actions, verdict(kept, row).units.coming) == ([], 1), "not ready after all"


@BOTH
def test_an_unchanged_roll_up_advances_what_the_cluster_has_seen(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 1, cpu=5, mem=1)
    here = bound("m", "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    steps(here, offers(1, "s", cpu=8, mem=8, price=0.4), rows=[row], nodes=[node("m", version=5)], version=4)
    assert did(steps(demand=DemandBatch(confirmed=[("c", 5)]), after=1), P) == ["s0"]


@BOTH
def test_coming_machines_are_filled_in_precedence_order_and_shared(make: Any) -> None:
    coming = machine("m", CREATING, "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    high, low = pods("c", 1, cpu=5, mem=1, priority=9), pods("c", 2, cpu=3, mem=1, priority=1)
    result = Steps(make)(coming, rows=[low, high])
    assert [verdict(result, row).units.coming for row in (high, low)] == [1, 1]
    assert verdict(result, low).units.missing == 1


@BOTH
def test_a_machine_that_names_no_cluster_serves_whoever_comes_first(make: Any) -> None:
    orphan = machine("m", CREATING, "", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    low, high = pods("a", 1, cpu=5, mem=1, priority=1), pods("b", 1, cpu=5, mem=1, priority=9)
    result = Steps(make)(orphan, demand=DemandBatch(rollups=[counted("a", low), counted("b", high)]))
    assert [verdict(result, row).units.coming for row in (high, low)] == [1, 0]


@BOTH
def test_purchases_use_the_smallest_real_allocatable_seen(make: Any) -> None:
    """Eight cores as published, four for real: one pod of three cores each, not two."""
    facts: dict[str, Any] = {"capacity": ON_DEMAND, "cpu": 8, "mem": 8, "price": 0.4}
    real = node("n", allocatable={"cpu": 4000, "memory": 8 * 2**20}, cpu=3, mem=1)
    row = pods("c", 4, running=1, stranded=2, cpu=3, mem=1)
    result = Steps(make)(bound("n", "c", **facts), offers(5, "m", **facts), rows=[row], nodes=[real])
    assert len(did(result, P)) == 2


@BOTH
def test_a_unit_takes_one_of_pods_where_machines_publish_it(make: Any) -> None:
    result = Steps(make)(offers(9, "m", cpu=8, mem=8, pods=2, price=0.4), rows=[pods("c", 6, cpu=1, mem=1)])
    assert len(did(result, P)) == 3


@BOTH
def test_overhead_counts_for_its_cluster(make: Any) -> None:
    slots = offers(9, "m", cpu=8, mem=8, price=0.4)
    row = pods("c", 2, cpu=4, mem=1)
    assert len(did(Steps(make)(slots, rows=[row]), P)) == 1
    assert len(did(Steps(make)(slots, rows=[row], overhead={"cpu": 1000}), P)) == 2


@BOTH
def test_units_that_exclude_each_other_get_a_machine_each(make: Any) -> None:
    row = pods("c", 3, cpu=1, mem=1, exclusive=["port:80"])
    other = pods("c", 1, cpu=1, mem=1, priority=5, exclusive=["port:80"])
    beside = pods("c", 3, cpu=1, mem=1, priority=1, exclusive=["port:81"])
    result = Steps(make)(offers(9, "m", cpu=8, mem=8, price=0.4), rows=[row, other, beside])
    assert len(did(result, P)) == 4
    assert verdict(result, beside).units.acquired == 3


@BOTH
def test_tokens_on_a_coming_node_keep_others_off(make: Any) -> None:
    steps = Steps(make)
    here = bound("m", "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    row = pods("c", 1, cpu=1, mem=1, exclusive=["port:80"])
    result = steps(here, rows=[row], nodes=[node("m", version=5, exclusive=["port:80"], cpu=1, mem=1)], version=4)
    assert verdict(result, row).units.missing == 1


@BOTH
def test_backed_off_kinds_are_left_alone_by_row_and_by_cluster(make: Any) -> None:
    cheap = offers(2, "a", type="cheap", cpu=8, mem=8, price=0.1)
    dear = offers(2, "b", type="dear", cpu=8, mem=8, price=1.0)
    first, second = pods("c", 1, cpu=8, mem=1), pods("c", 1, cpu=8, mem=2)
    every = Backoff("c", "p", "cheap", "a", ON_DEMAND, START + SECOND)
    assert did(Steps(make)(cheap, dear, rows=[first, second], backoffs=(every,)), P) == ["b0", "b1"]
    result = Steps(make)(cheap, dear, rows=[first])
    key = verdict(result, first).key
    only = Backoff("c", "p", "cheap", "a", ON_DEMAND, START + SECOND, key)
    result = Steps(make)(cheap, dear, rows=[first, second], backoffs=(only,))
    assert {a.machine: a.need.min_unit for a in result.actions} == {
        "b0": key.min_unit,
        "a0": verdict(result, second).key.min_unit,
    }


@BOTH
def test_nothing_is_bought_by_an_old_roll_up_or_one_of_another_session(make: Any) -> None:
    steps = Steps(make)
    row = pods("c", 1, cpu=8, mem=1)
    steps(rows=[row])
    slots = offers(1, "m", cpu=8, mem=8, price=0.4)
    old = steps(slots, after=31)
    assert old.actions == []
    assert verdict(old, row).reason == UnmetReason.ACQUISITION_HELD
    assert did(steps(demand=DemandBatch(confirmed=[("c", 2)])), P) == ["m0"]
    assert did(steps(demand=DemandBatch(streams=["c"])), P) == []
    assert did(steps(demand=DemandBatch(streams=["c"], confirmed=[("c", 2)])), P) == []
    assert did(steps(rows=[row]), P) == ["m0"]


@BOTH
def test_a_spread_adds_to_the_domains_as_reported(make: Any) -> None:
    slots = [
        slot(f"{zone}{n}", zone=zone, capacity=ON_DEMAND, cpu=2, mem=8, price=p)
        for zone, p in (("a", 1), ("b", 3))
        for n in range(9)
    ]
    row = pods("c", 9, running=5, cpu=1, mem=1, spread=(ZONE, 1), domains={"a": 4, "b": 1})
    result = Steps(make)(slots, rows=[row])
    assert sorted(did(result, P)) == ["b0", "b1"]
    assert verdict(result, row).units.acquired == 4


@BOTH
def test_a_spread_counts_units_not_machines(make: Any) -> None:
    slots = [slot("a0", zone="a", capacity=ON_DEMAND, cpu=8, mem=8, price=1)]
    slots += [slot(f"b{n}", zone="b", capacity=ON_DEMAND, cpu=1, mem=8, price=1) for n in range(8)]
    row = pods("c", 8, cpu=1, mem=1, spread=(ZONE, 1))
    result = Steps(make)(slots, rows=[row])
    assert len(did(result, P)) == 5
    assert verdict(result, row).units.missing == 0


@BOTH
def test_a_spread_that_may_not_take_more_says_so(make: Any) -> None:
    slots = [slot("a0", zone="a", capacity=ON_DEMAND, cpu=8, mem=8, price=1)]
    row = pods("c", 4, cpu=1, mem=1, spread=(ZONE, 1), domains={"b": 0})
    result = Steps(make)(slots, rows=[row])
    assert verdict(result, row).units.acquired == 1
    assert verdict(result, row).reason == UnmetReason.SPREAD_UNSATISFIABLE


@BOTH
def test_a_spreads_machine_is_chosen_for_what_its_domain_is_to_have_in_the_end(make: Any) -> None:
    """One machine for four pods of a zone costs less than four for one each, though only one may come at a time."""
    slots = [
        slot(f"{zone}-{size}-{n}", zone=zone, capacity=ON_DEMAND, cpu=cpu, mem=8, price=price)
        for zone in "abc"
        for size, cpu, price in (("one", 1, 1), ("four", 4, 2))
        for n in range(12)
    ]
    result = Steps(make)(slots, rows=[pods("c", 12, cpu=1, mem=1, spread=(ZONE, 1))])
    assert sorted(did(result, P)) == ["a-four-0", "b-four-0", "c-four-0"]


@BOTH
def test_a_spread_held_back_by_a_domain_without_machines_buys_for_what_it_may_have(make: Any) -> None:
    slots = [
        slot(f"a-{size}", zone="a", capacity=ON_DEMAND, cpu=cpu, mem=8, price=price)
        for size, cpu, price in (("one", 1, 1), ("four", 4, 2))
    ]
    result = Steps(make)(slots, rows=[pods("c", 12, cpu=1, mem=1, spread=(ZONE, 1), domains={"b": 0})])
    assert did(result, P) == ["a-one"]


def rack(name: str, count: int, **facts: Any) -> list[Any]:
    return [
        slot(f"{name}-{n}", rack=name, **({"capacity": ON_DEMAND, "cpu": 8, "mem": 8, "price": 1} | facts))
        for n in range(count)
    ]


@BOTH
def test_a_gang_buys_only_where_all_of_it_finds_room(make: Any) -> None:
    gang = pods("c", 4, cpu=8, mem=1, same=RACK, group="g")
    result = Steps(make)(rack("r1", 3, price=0.1), rack("r2", 4), rows=[gang])
    assert did(result, P) == ["r2-0", "r2-1", "r2-2", "r2-3"]
    assert verdict(result, gang).domain == "r2"
    nowhere = Steps(make)(rack("r1", 3), rack("r2", 3), rows=[gang])
    assert nowhere.actions == []
    assert verdict(nowhere, gang).reason == UnmetReason.TOPOLOGY_UNSATISFIABLE


@BOTH
def test_the_rest_of_a_gang_goes_where_its_members_run(make: Any) -> None:
    gang = pods("c", 4, running=3, cpu=8, mem=1, same=RACK, group="g", domains={"r1": 3})
    assert did(Steps(make)(rack("r1", 1, price=9), rack("r2", 4), rows=[gang]), P) == ["r1-0"]
    assert did(Steps(make)(rack("r2", 4), rows=[gang]), P) == []


@BOTH
def test_a_gang_stays_with_what_is_coming_for_it(make: Any) -> None:
    gang = pods("c", 3, cpu=8, mem=1, same=RACK, group="g")
    coming = [machine(f"k{n}", CREATING, "c", rack="r1", capacity=ON_DEMAND, cpu=8, mem=8, price=1) for n in range(2)]
    result = Steps(make)(coming, rack("r1", 1, price=9), rack("r2", 3, price=0.1), rows=[gang])
    assert did(result, P) == ["r1-0"]
    assert (verdict(result, gang).units.coming, verdict(result, gang).units.acquired) == (2, 1)


@BOTH
@pytest.mark.parametrize(("waits", "coming"), [(2, 0), (0, 2)])
def test_what_comes_for_a_gang_is_left_to_it_while_it_waits(make: Any, waits: int, coming: int) -> None:
    """The plain row came first and would fit the gang's machines; the gang would be bought for once more."""
    gang = pods("c", 2, running=2 - waits, stranded=waits, cpu=4, mem=4, same=RACK, group="g", priority=1)
    plain = pods("c", 2, cpu=8, mem=1, priority=9)
    facts: dict[str, Any] = {"rack": "r1", "capacity": ON_DEMAND, "cpu": 8, "mem": 8, "price": 1}
    bought = [machine(f"k{n}", CREATING, "c", stamp=stamp_of(gang.row), **facts) for n in range(2)]
    result = Steps(make)(bought, offers(4, "s", **facts), rows=[gang, plain])
    assert verdict(result, plain).units.coming == coming
    assert len(did(result, P)) == 2 - coming
    if waits:
        assert verdict(result, gang).units.coming == 2


@BOTH
def test_a_gang_of_two_sizes_is_assembled_larger_first(make: Any) -> None:
    large = pods("c", 1, cpu=6, mem=1, same=RACK, group="g")
    small = pods("c", 2, cpu=2, mem=1, same=RACK, group="g")
    result = Steps(make)(rack("r1", 2), rows=[small, large])
    assert did(result, P) == ["r1-0", "r1-1"]
    assert verdict(result, large).units.acquired == 3


@BOTH
def test_a_gang_on_one_host_needs_one_machine_for_all(make: Any) -> None:
    host = "kubernetes.io/hostname"
    gang = pods("c", 3, cpu=2, mem=1, same=host, group="g")
    slots = [*offers(3, "s", cpu=4, mem=8, price=0.1), *offers(1, "l", cpu=8, mem=8, price=1)]
    result = Steps(make)(slots, rows=[gang])
    assert did(result, P) == ["l0"]
    assert verdict(result, gang).units.acquired == 3
    running = pods("c", 3, running=1, cpu=2, mem=1, same=host, group="g", domains={"n": 1})
    assert Steps(make)(slots, rows=[running]).actions == []


@BOTH
def test_requirements_decide_what_may_be_bought(make: Any) -> None:
    row = pods("c", 1, cpu=1, mem=1, where=[Requirement(ZONE, Operator.IN, ("b",))])
    result = Steps(make)(
        offers(1, "a", zone="a", cpu=2, mem=2, price=0.1), offers(1, "b", zone="b", cpu=2, mem=2, price=9), rows=[row]
    )
    assert did(result, P) == ["b0"]


@BOTH
def test_both_kinds_of_clusters_share_one_pool_in_precedence_order(make: Any) -> None:
    slots = offers(3, "m", cpu=8, mem=8, price=0.4)
    sums = need("sums", 2, cpu=5, mem=1, priority=5)
    high, low = pods("c", 1, cpu=5, mem=1, priority=9), pods("c", 1, cpu=5, mem=1, priority=1)
    demand_ = DemandBatch(rollups=[counted("c", high, low), *_sums(sums)])
    result = Steps(make)(slots, demand=demand_)
    assert [(a.machine, a.cluster) for a in result.actions] == [("m0", "c"), ("m1", "sums"), ("m2", "sums")]
    assert verdict(result, low).units.missing == 1


def _sums(*lines: Any) -> list[Any]:
    return [rollup(line.cluster, line) for line in lines]


@BOTH
def test_machines_of_a_reporting_cluster_are_not_credited_to_rows(make: Any) -> None:
    """A stranded pod is bought for although the sum of what the cluster owns would do."""
    here = several(2, bound, "n", "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    seen = [node(f"n{n}", cpu=5, mem=1) for n in range(2)]
    row = pods("c", 3, running=2, cpu=5, mem=1)
    result = Steps(make)(here, offers(1, "m", cpu=8, mem=8, price=0.4), rows=[row], nodes=seen)
    assert did(result, P) == ["m0"]
    told = verdict(result, row).units
    assert (told.count, told.running, told.room, told.stranded, told.missing) == (3, 2, 0, 1, 0)


@BOTH
def test_fragmentation_is_told_when_nothing_can_be_bought(make: Any) -> None:
    here = several(2, bound, "n", "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    row = pods("c", 3, running=2, cpu=5, mem=1)
    result = Steps(make)(here, rows=[row], nodes=[node(f"n{n}", cpu=5, mem=1) for n in range(2)])
    assert verdict(result, row).reason == UnmetReason.FRAGMENTATION
    [short] = result.shortfalls
    assert (short.units, short.coming, short.cause) == (1, 0, UnmetReason.FRAGMENTATION)


@BOTH
def test_where_nodes_have_room_and_only_a_token_forbids_no_pieces_are_too_small(make: Any) -> None:
    """Six pods of one core, one per node, and four nodes in all: every node has cores enough for all six."""
    slots = offers(4, "m", cpu=4, mem=8, price=0.4)
    row = pods("c", 6, cpu=1, mem=1, exclusive=["app"])
    steps = Steps(make)
    result = steps(slots, rows=[row])
    told = verdict(result, row)
    assert (told.units.acquired, told.units.missing, told.reason) == (4, 2, UnmetReason.EXCLUSIVE)
    here = several(4, bound, "m", "c", capacity=ON_DEMAND, cpu=4, mem=8, price=0.4)
    coming = verdict(steps(here, rows=[row]), row)
    assert (coming.units.coming, coming.units.missing, coming.reason) == (4, 2, UnmetReason.EXCLUSIVE)
    ran = pods("c", 6, running=4, cpu=1, mem=1, exclusive=["app"])
    seen = [node(f"m{n}", version=5, exclusive=["app"], cpu=1, mem=1) for n in range(4)]
    result = steps(rows=[ran], nodes=seen, version=5, after=10)
    told = verdict(result, ran)
    assert (told.units.coming, told.units.missing, told.reason) == (0, 2, UnmetReason.EXCLUSIVE)
    assert {short.cause for short in result.shortfalls} == {UnmetReason.EXCLUSIVE}


@BOTH
def test_nodes_that_would_not_hold_a_unit_anyway_are_not_told_as_taken_by_a_token(make: Any) -> None:
    here = several(2, bound, "n", "c", capacity=ON_DEMAND, cpu=8, mem=8, price=0.4)
    row = pods("c", 3, running=2, cpu=5, mem=1, exclusive=["app"])
    full = [node(f"n{n}", exclusive=["app"], cpu=5, mem=1) for n in range(2)]
    assert verdict(Steps(make)(here, rows=[row], nodes=full), row).reason == UnmetReason.PRIORITY_STARVED
    others = [node(f"n{n}", exclusive=["else"], cpu=5, mem=1) for n in range(2)]
    assert verdict(Steps(make)(here, rows=[row], nodes=others), row).reason == UnmetReason.FRAGMENTATION


@BOTH
def test_a_kind_that_did_not_help_is_told_apart_from_one_that_failed(make: Any) -> None:
    row = pods("c", 1, cpu=5, mem=1)
    off = Backoff("c", "p", "four", "a", ON_DEMAND, START + 60 * SECOND)
    spare = offers(1, "m", type="four", cpu=8, mem=8, price=0.4)
    result = Steps(make)(spare, rows=[row], backoffs=(off,))
    assert verdict(result, row).reason == UnmetReason.DID_NOT_HELP


@BOTH
def test_a_row_with_room_is_met_and_buys_nothing(make: Any) -> None:
    row = pods("c", 3, running=2, stranded=0, cpu=5, mem=1)
    result = Steps(make)(offers(1, "m", cpu=8, mem=8, price=0.4), rows=[row])
    assert result.actions == []
    assert verdict(result, row).satisfied
    assert verdict(result, row).units.room == 1


@BOTH
def test_bad_counts_are_rejected_row_by_row(make: Any) -> None:
    good = pods("c", 2, cpu=1, mem=1)
    bad = [pods("c", 2, running=2, stranded=1, cpu=2, mem=1), pods("c", 2, stranded=-1, cpu=3, mem=1)]
    result = Steps(make)(rows=[good, *bad])
    assert result.rejected == {"count": 2}
    assert len(result.verdicts) == 1


@BOTH
def test_a_report_about_a_machine_of_another_cluster_is_rejected(make: Any) -> None:
    result = Steps(make)(bound("m", "d", cpu=8), nodes=[node("m"), node("unknown")])
    assert result.rejected == {"node": 2}


@BOTH
def test_while_a_roll_up_is_held_the_smaller_count_of_stranded_units_counts(make: Any) -> None:
    steps = Steps(make, Policy(guard=RollupGuard(enabled=True, min_rows=2, retain_fraction=0.6)))
    first, second = pods("c", 2, cpu=8, mem=1), pods("c", 2, cpu=8, mem=2)
    steps(rows=[first, second])
    held = steps(offers(9, "m", cpu=8, mem=8, price=0.4), rows=[first.now(stranded=1)], after=1)
    assert did(held, P) == ["m0"]


@BOTH
@pytest.mark.parametrize("price", [0.4, 0.0])
def test_an_operator_that_says_nonsense_gets_what_its_count_needs_once_more(make: Any, price: float) -> None:
    """Everything is stranded for ever, whatever becomes ready; nodes are busy with pods that no row has running. What
    costs nothing is not to be had without end either."""
    steps = Steps(make)
    row = pods("c", 4, cpu=8, mem=1)
    facts: dict[str, Any] = {"capacity": ON_DEMAND, "cpu": 8, "mem": 8, "price": price}
    spare = [slot(f"m{n:02}", **facts) for n in range(40)]
    result = steps(spare, rows=[row])
    total = 0
    for version in range(2, 12):
        bought = did(result, P)
        total += len(bought)
        seen = [node(id, cpu=8, mem=1, version=version) for id in bought]
        result = steps(
            [bound(id, "c", **facts) for id in bought] if bought else [],
            rows=[row],
            nodes=seen,
            version=version,
            after=10,
        )
    assert total == 8
    assert verdict(result, row).reason == UnmetReason.NOT_BELIEVED
