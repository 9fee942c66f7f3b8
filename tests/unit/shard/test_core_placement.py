"""Clusters that report placement, around the pure core: what is bought, closed, moved, refused, lost and remembered."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.placement import RestKind
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.events import Table
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, cpu, test_config

MINUTE = 60.0


def placing(**settings: Any) -> World:
    """Hours pass in these tests, so the shard looks half as often as it would."""
    seldom = {"cycle_interval": round(20e9), "reconcile_interval": round(20e9), "transition_poll_interval": 0}
    world = World(config=test_config(**{**seldom, **settings}))
    world.provider.work[CallKind.CREATE] = 20
    return world


def test_pods_that_do_not_divide_a_machine_get_a_machine_each() -> None:
    """Forty pods of five cores on machines of eight: by sums 25 would do, and 15 pods would wait for ever."""
    world = placing()
    world.provider.several(60, "s", S.SPECULATIVE, size={"cpu": 8000})
    cluster = PlacingOperator(world, "c")
    cluster.start(40, 5)
    world.run(120)
    assert not cluster.waiting
    assert len(world.provider.configured("c")) == 40


@pytest.mark.parametrize("rows_every", [12, 21, 28])
def test_rows_that_come_seldom_buy_nothing_twice(rows_every: int) -> None:
    """Reports of nodes that the pods have filled come at once, rows that still call them stranded stay in force."""
    world = placing(cycle_interval=round(1e9), transition_poll_interval=round(1e9))
    world.provider.several(20, "s", S.SPECULATIVE, size={"cpu": 8000})
    cluster = PlacingOperator(world, "c")
    world.provider.work[CallKind.CREATE] = 1
    cluster.every, cluster.rows_every = 1.0, float(rows_every)
    cluster.start(4, 5)
    world.run(MINUTE)
    assert not cluster.waiting
    assert world.outcomes("Provision") == {"success": 4}


def test_a_cluster_that_tells_sums_is_served_by_sums_beside_one_that_counts() -> None:
    world = placing()
    world.provider.several(60, "s", S.SPECULATIVE, size={"cpu": 8000})
    cluster = PlacingOperator(world, "c")
    cluster.start(4, 5)
    reference = world.operator("r", frozenset())
    reference.send(cpu("r", 10))
    world.run(120)
    assert len(world.provider.configured("c")) == 4
    assert len(world.provider.configured("r")) == 5, "forty cores in machines of eight"


def test_counts_are_not_read_where_placement_is_switched_off() -> None:
    world = World(config=test_config(placement=False))
    world.provider.several(4, "s", S.IDLE)
    cluster = PlacingOperator(world, "c")
    cluster.start(1, 3)
    world.run(30)
    assert not [step for step in world.steps if step.demand is not None and step.demand.reports]
    assert all(step.machines is None or step.machines.deadline is None for step in world.steps)


def test_an_unchanged_rollup_advances_the_mirror_version() -> None:
    world = placing()
    world.provider.several(2, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(1, 3)
    world.run(90)
    confirmed = [step.demand.confirmed for step in world.steps if step.demand is not None and step.demand.confirmed]
    assert confirmed and [pair[0] for pair in confirmed[-1]] == ["c"]
    assert confirmed[-1][0][1] > confirmed[0][0][1]


def test_reports_wake_no_cycle_but_an_empty_node_does() -> None:
    world = placing()
    world.provider.several(1, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(1, 3)
    world.run(61)
    assert not cluster.waiting
    machine = world.provider.configured("c")[0]
    report = cluster._report(machine)
    steps = len(world.steps)
    cluster._look = lambda: None  # type: ignore[method-assign]
    world.post(report)
    world.run(2)
    assert len(world.steps) <= steps + 1, "a report as before wakes nobody"
    at = world.now
    world.post(ev.NodeReported(cluster.session, machine, machine, ready=True, empty=True, mirror_version=99))
    world.run(1.5)
    assert any(step.now >= at for step in world.steps), "an empty node does"


def test_an_empty_node_is_given_back_as_a_voluntary_drain() -> None:
    world = placing()
    world.provider.several(4, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(2, 3)
    world.run(11 * MINUTE)
    cluster.stop(1, 3)
    world.run(10 * MINUTE)
    assert len(world.provider.configured("c")) == 1
    [instruction] = cluster.of(ev.ReclaimInstruction)
    assert instruction.voluntary
    assert world.outcomes("Reclaim") == {"success": 1}


def test_a_refused_drain_leaves_the_machine_configured_and_rests_it() -> None:
    world = placing()
    world.provider.several(4, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(2, 3)
    world.run(11 * MINUTE)
    machines = world.provider.configured("c")
    cluster.refusals.of = set(machines)
    cluster.stop(1, 3)
    for _ in range(200):
        world.run(5)
        if cluster.refusals.said:
            break
    [machine] = cluster.refusals.said
    world.run(1)
    assert world.state_of(machine) == S.CONFIGURED
    assert world.outcomes("Reclaim") == {"refused": 1}
    [rest] = world.core.placement.spared.rests()
    assert (rest.machine, rest.kind) == (machine, RestKind.DRAIN)
    asked = world.now
    world.run(4 * MINUTE)
    assert cluster.refusals.said == [machine], "not asked again while it rests"
    cluster.refusals.of = set()
    world.run(4 * MINUTE)
    assert world.provider.configured("c") == [each for each in machines if each != machine]
    assert world.now > asked


def test_the_rest_of_a_refused_machine_survives_a_restart() -> None:
    world = placing()
    world.provider.several(4, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(2, 3)
    world.run(11 * MINUTE)
    cluster.refusals.of = set(world.provider.configured("c"))
    cluster.stop(1, 3)
    while not cluster.refusals.said:
        world.run(5)
    world.crash()
    assert [(rest.machine, rest.kind) for rest in world.core.placement.spared.rests()] == [
        (cluster.refusals.said[0], RestKind.DRAIN)
    ]


def test_a_machine_the_provider_loses_is_told_at_once_and_replaced() -> None:
    world = placing()
    world.provider.several(4, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(2, 3)
    world.run(2 * MINUTE)
    lost = world.provider.configured("c")[0]
    world.provider.lose_host(lost)
    world.run(25)
    assert [frame.machine for frame in cluster.of(ev.NodeLost)] == [lost]
    world.run(MINUTE)
    assert not cluster.waiting
    assert len(world.provider.configured("c")) == 2


def test_a_reference_operator_hears_nothing_of_loss() -> None:
    world = placing()
    world.provider.several(4, "i")
    operator = world.operator("r", frozenset())
    operator.send(cpu("r", 2))
    world.run(30)
    world.provider.lose_host(world.provider.configured("r")[0])
    world.run(30)
    assert not operator.of(ev.NodeLost)


def test_a_machine_whose_node_never_appears_is_drained_and_its_kind_backs_off() -> None:
    world = placing(ready_timeout=round(60e9))
    world.provider.several(1, "a", S.SPECULATIVE, type="bad", price=0.5)
    world.provider.several(2, "b", S.SPECULATIVE, type="good")
    cluster = PlacingOperator(world, "c")
    cluster.never_ready = {"a0"}
    cluster.start(1, 3)
    world.run(4 * MINUTE)
    assert not cluster.waiting
    assert world.provider.configured("c") == ["b0"]
    [drain] = cluster.of(ev.ReclaimInstruction)
    assert drain.nodes == ("a0",) and not drain.voluntary, "nobody may refuse to give up what is not there"
    [backoff] = world.core.placement.backoffs.in_force()
    assert (backoff.cluster, backoff.instance_type, backoff.row) == ("c", "bad", None)


def test_a_kind_that_does_not_come_up_is_not_bought_again_when_that_is_found() -> None:
    world = placing(ready_timeout=round(60e9))
    world.provider.several(4, "a", S.SPECULATIVE, type="bad", price=0.5)
    world.provider.several(4, "b", S.SPECULATIVE, type="good")
    cluster = PlacingOperator(world, "c")
    cluster.never_ready = {f"a{n}" for n in range(4)}
    cluster.start(1, 3)
    world.run(4 * MINUTE)
    assert not cluster.waiting
    given_up = sorted(node for drain in cluster.of(ev.ReclaimInstruction) for node in drain.nodes)
    assert given_up == ["a0"], "its pods had to wait for one kind that does not come up, not for the next of it"
    assert len(world.messages("did not help")) == 1


def test_a_ready_node_nobody_can_use_backs_its_kind_off_for_the_row() -> None:
    world = placing()
    world.provider.several(3, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.unplaceable = True
    cluster.start(1, 3)
    world.run(2 * MINUTE)
    [backoff] = world.core.placement.backoffs.in_force()
    assert backoff.row is not None and backoff.row.cluster == "c"
    assert len(world.provider.configured("c")) == 1, "the same again would not help"


def test_a_node_that_larger_pods_filled_first_backs_nothing_off() -> None:
    world = placing()
    world.provider.several(3, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(1, 1)
    while not cluster.nodes:
        world.run(1.0)
    # In a burst other pods follow: larger ones, which the node bought for the first carries instead.
    cluster.start(1, 4)
    world.run(2 * MINUTE)
    assert not world.messages("did not help")
    assert not cluster.waiting and len(world.provider.configured("c")) == 2


def half_used(world: World, cluster: PlacingOperator) -> None:
    """Four machines of which two are half empty, after the cluster has settled."""
    cluster.start(8, 2)
    world.run(12 * MINUTE)
    assert not cluster.waiting and len(world.provider.configured("c")) == 4
    for machine in world.provider.configured("c")[:2]:
        cluster.pods.remove(cluster.on(machine)[0])


def test_a_node_whose_pods_fit_elsewhere_is_closed_and_then_emptied() -> None:
    world = placing(eviction_rate=1.0)
    world.provider.several(6, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    half_used(world, cluster)
    world.run(3 * MINUTE)
    [closing] = cluster.of(ev.NodeClosing)
    assert closing.closing
    assert "closed to new pods" in str(world.core.read.story(closing.machine))
    world.run(40 * MINUTE)
    assert not cluster.waiting and len(world.provider.configured("c")) == 3
    assert world.count("bigfleet_shard_consolidation_moves_total", "ended") == 1
    told = [audit for audit in world.audits if audit.reason == "phase3.move"]
    assert told and "saves $1.000/h" in told[0].detail


def test_consolidation_has_a_switch_and_a_dry_run_of_its_own() -> None:
    for settings in ({"consolidate": False}, {"consolidate_dry_run": True}):
        world = placing(eviction_rate=1.0, **settings)
        world.provider.several(6, "s", S.SPECULATIVE)
        cluster = PlacingOperator(world, "c")
        half_used(world, cluster)
        world.run(25 * MINUTE)
        assert not cluster.of(ev.NodeClosing), settings
        assert len(world.provider.configured("c")) == 4
        told = {audit.outcome for audit in world.audits if audit.reason == "phase3.close"}
        assert told == ({"dryrun"} if "consolidate_dry_run" in settings else set())


def dear_and_cheap(eviction_rate: float = 1.0, others: int = 0, **settings: Any) -> tuple[World, PlacingOperator]:
    """A dear machine carries what a cheap one could, which comes to market when the pods are settled.

    Others stand beside it that are as cheap already.
    """
    world = placing(eviction_rate=eviction_rate, **settings)
    world.provider.add("dear", S.SPECULATIVE, type="dear", price=4.0)
    cluster = PlacingOperator(world, "c")
    cluster.evict_after = 20.0
    cluster.start(1, 3)
    world.run(11 * MINUTE)
    assert world.provider.configured("c") == ["dear"]
    world.provider.several(others, "other", S.SPECULATIVE, type="cheap", price=1.0)
    cluster.start(others, 3)
    world.run(MINUTE)
    world.provider.add("cheap", S.SPECULATIVE, type="cheap", price=1.0)
    return world, cluster


def until(world: World, happened: Any, limit: float = 120 * MINUTE) -> None:
    waited = 0.0
    while not happened():
        assert waited < limit, "it never happened"
        world.run(5)
        waited += 5


def test_a_move_brings_the_new_machine_up_before_the_old_one_drains() -> None:
    world, cluster = dear_and_cheap()
    until(world, lambda: world.provider.units["cheap"].state == S.CREATING)
    assert world.provider.units["dear"].state == S.CONFIGURED
    assert (Table.MOVE, "dear") in world.journal
    until(world, lambda: world.state_of("dear") == S.DRAINING)
    assert world.provider.units["cheap"].state == S.CONFIGURED
    world.run(2 * MINUTE)
    assert world.provider.configured("c") == ["cheap"] and not cluster.waiting
    world.run(45 * MINUTE)
    assert world.provider.configured("c") == ["cheap"], "and it is not undone"
    assert not [key for key in world.journal if key[0] == Table.MOVE]


@pytest.mark.parametrize("listed_after", [0.1, 30.0])
@pytest.mark.parametrize("when", ["creating", "configured", "draining"])
def test_a_restart_in_the_middle_of_a_move_changes_nothing(when: str, listed_after: float) -> None:
    world, cluster = dear_and_cheap(eviction_rate=4.0)
    moments = {
        "creating": lambda: world.provider.units["cheap"].state == S.CREATING,
        "configured": lambda: world.provider.units["cheap"].state == S.CONFIGURED,
        "draining": lambda: world.state_of("dear") == S.DRAINING,
    }
    world.provider.add("cheap-2", S.SPECULATIVE, type="cheap", price=1.0)
    until(world, moments[when])
    world.provider.list_latency = listed_after
    world.crash()
    assert [move.new for move in world.core.consolidation.moves] == ["cheap"]
    cluster.connect()
    world.run(15 * MINUTE)
    assert world.provider.configured("c") == ["cheap"] and not cluster.waiting
    assert world.provider.counts[CallKind.CREATE, "cheap"] == 1
    assert not world.provider.counts[CallKind.CREATE, "cheap-2"], "it is not bought for a second time"
    assert not list(world.core.consolidation.moves)


def test_a_move_outlives_a_first_roll_up_that_is_held_back_after_a_restart() -> None:
    world, cluster = dear_and_cheap(others=3, empty_rollup_guard=True)
    until(world, lambda: world.provider.units["cheap"].state == S.CREATING)
    world.crash()
    pods, cluster.pods = cluster.pods, []
    cluster.connect()
    world.run(12)
    assert cluster.of(ev.Acknowledgement)[-1].outcome == "held"
    assert [move.new for move in world.core.consolidation.moves] == ["cheap"]
    cluster.pods = pods
    until(world, lambda: world.state_of("dear") == S.DRAINING, 5 * MINUTE)
    world.run(2 * MINUTE)
    assert "cheap" in world.provider.configured("c") and not cluster.waiting


def test_a_refused_move_bars_its_old_machine_for_the_payback() -> None:
    world, cluster = dear_and_cheap()
    cluster.refusals.of = {"dear"}
    until(world, lambda: bool(cluster.refusals.said))
    world.run(1)
    assert not list(world.core.consolidation.moves)
    rests = {(rest.machine, rest.kind) for rest in world.core.placement.spared.rests()}
    assert {("dear", RestKind.DRAIN), ("dear", RestKind.CLOSE), ("cheap", RestKind.CLOSE)} <= rests
    cluster.refusals.of = set()
    said = len(cluster.refusals.said)
    world.run(40 * MINUTE)
    assert world.state_of("dear") == S.CONFIGURED and len(cluster.refusals.said) == said


def test_a_shortage_gives_a_move_up_and_its_old_node_stays() -> None:
    world, cluster = dear_and_cheap()
    world.provider.work[CallKind.CREATE] = 600
    cluster.reopens = False
    until(world, lambda: bool(list(world.core.consolidation.moves)))
    cluster.start(1, 2)
    world.run(MINUTE)
    assert not list(world.core.consolidation.moves)
    assert world.count("bigfleet_shard_consolidation_moves_total", "aborted") == 1
    world.run(30 * MINUTE)
    assert world.provider.configured("c") == ["cheap", "dear"] and not cluster.waiting


def closed(world: World, cluster: PlacingOperator) -> str:
    half_used(world, cluster)
    until(world, lambda: bool(cluster.of(ev.NodeClosing)))
    return str(cluster.of(ev.NodeClosing)[0].machine)


def test_a_closing_node_is_opened_again_before_anything_is_bought() -> None:
    world = placing()
    world.provider.several(6, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.reopens = False
    machine = closed(world, cluster)
    cluster.start(2, 2)
    world.run(MINUTE)
    assert not cluster.waiting
    assert len(world.provider.configured("c")) == 4
    assert [frame.closing for frame in cluster.of(ev.NodeClosing)] == [True, False]
    [rest] = world.core.placement.spared.rests()
    assert (rest.machine, rest.kind) == (machine, RestKind.CLOSE)


def test_a_node_its_cluster_opened_itself_is_not_closed_again_for_an_hour() -> None:
    world = placing()
    world.provider.several(6, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    machine = closed(world, cluster)
    cluster.start(2, 2)
    world.run(20)
    assert not cluster.waiting
    cluster.pods.remove(cluster.on(machine)[0])
    world.run(50 * MINUTE)
    assert machine not in [frame.machine for frame in cluster.of(ev.NodeClosing)[1:]]


def test_evictions_are_earned_by_pods_that_stay() -> None:
    world = placing()
    world.provider.several(20, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    world.run(60)
    cluster.start(20, 2)
    world.run(10 * MINUTE)
    assert world.core.placement.evictions.allowed() == ()
    cluster.start(10, 1)
    world.run(2 * MINUTE)
    cluster.stop(10, 1)
    world.run(30 * MINUTE)
    # Twenty times 0.045 is not a whole pod yet; the ten that left early earned nothing.
    assert world.core.placement.evictions.allowed() == ()
    cluster.start(3, 1)
    world.run(20 * MINUTE)
    assert world.core.placement.evictions.allowed() == (("c", 1),)
    # So do pods that take the place of others: a row of as many as before is not the same pods.
    for _ in range(30):
        cluster.stop(1, 2)
        cluster.start(1, 2)
        world.run(1 * MINUTE)
    world.run(15 * MINUTE)
    assert world.core.placement.evictions.allowed() == (("c", 2),)
    # Pods that are old already earn nothing again: without the journal none could ever be evicted after a restart.
    world.crash()
    cluster.connect()
    world.run(1 * MINUTE)
    assert world.core.placement.evictions.allowed() == (("c", 2),)


def test_who_was_evicted_and_becomes_old_again_earns_nothing_once_more() -> None:
    """Else a cluster whose pods are moved again and again evicts more than its share of them."""
    world, cluster = dear_and_cheap()
    until(world, lambda: world.provider.configured("c") == ["cheap"])
    assert world.core.placement.evictions.allowed() == ()
    # A restart between the eviction and the day it is old again forgets neither.
    world.crash()
    cluster.connect()
    world.run(30 * MINUTE)
    assert all(pod.old for pod in cluster.pods)
    assert world.core.placement.evictions.allowed() == ()
    cluster.start(1, 1)
    world.run(30 * MINUTE)
    assert world.core.placement.evictions.allowed() == (("c", 1),), "others earn as before"


def test_a_large_cluster_saves_up_more_evictions_and_keeps_them_when_it_shrinks() -> None:
    world = placing(eviction_rate=0.25, eviction_most=2, consolidate=False)
    world.provider.several(20, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(20, 3)
    world.run(20 * MINUTE)
    assert world.core.placement.evictions.allowed() == (("c", 5),)
    cluster.stop(16, 3)
    cluster.start(4, 1)
    world.run(20 * MINUTE)
    assert world.core.placement.evictions.allowed() == (("c", 5),), "four more pods earn one where two may be saved up"


@pytest.mark.parametrize("row", ["nan 1", "2.5 x", "", "inf"])
def test_evictions_that_cannot_be_read_are_none(row: str) -> None:
    world = placing()
    world.provider.several(2, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(1, 1)
    world.run(MINUTE)
    world.journal[Table.EVICTIONS, "c"] = row
    world.crash()
    assert world.core.placement.evictions.allowed() == ()
    world.journal[Table.EVICTIONS, "c"] = "2.5"
    world.crash()
    assert world.core.placement.evictions.allowed() == (("c", 2),), "as versions before this one wrote it"


def test_demand_that_returns_takes_back_a_drain_of_its_own_cluster() -> None:
    world = placing()
    world.provider.several(4, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.evict_after = 300.0
    cluster.start(2, 3)
    world.run(11 * MINUTE)
    cluster.stop(1, 3)
    until(world, lambda: bool(cluster.of(ev.ReclaimInstruction)))
    [machine] = cluster.of(ev.ReclaimInstruction)[0].nodes
    cluster.start(1, 3)
    world.run(MINUTE)
    assert world.state_of(machine) == S.CONFIGURED and not cluster.waiting
    assert world.outcomes("Reclaim") == {"cancelled": 1}
    assert world.provider.counts.total() == 4, "two were created and configured, and nothing else"


def test_a_new_stream_is_believed_only_once_it_has_told_everything() -> None:
    world = placing()
    world.provider.several(6, "s", S.SPECULATIVE)
    cluster = PlacingOperator(world, "c")
    cluster.start(4, 3)
    world.run(3 * MINUTE)
    for _ in range(6):
        cluster.disconnect("network")
        world.run(7)
        cluster.connect()
        world.run(13)
    assert not cluster.waiting
    assert len(world.provider.configured("c")) == 4 and not cluster.of(ev.ReclaimInstruction)
    streams = [step.demand.streams for step in world.steps if step.demand is not None and step.demand.streams]
    assert streams == [("c",)] * 7
