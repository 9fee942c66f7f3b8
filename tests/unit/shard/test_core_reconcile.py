"""Reconcile: the provider's word refreshes everything, losses become demand again, stale sightings change nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bigfleet.engine.results import UnmetReason
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from bigfleet.shard.telemetry.gauges import publish_gauges
from bigfleet.shard.telemetry.metrics import ShardMetrics
from tests.strategies.builders import SECOND
from tests.strategies.shard_world import S, World, cpu, reshaped, test_config

REJECTED = "bigfleet_shard_machines_rejected_total"


def serving(machines: int = 1, spare: int = 20, **config: object) -> World:
    world = World(test_config(**config))
    world.provider.several(machines + spare, "i")
    world.operator("c").send(cpu("c", machines))
    world.run(15)
    assert len(world.provider.configured("c")) == machines
    return world


def listed(world: World, *ids: str, began: int | None = None, full: bool = False, **facts: object) -> None:
    records = tuple(world.provider.units[id].record() for id in ids)
    at = world.now if began is None else began
    world.post(ev.ListArrived("p", at, full, False, records, **facts))  # type: ignore[arg-type]


def until_doubted(world: World) -> None:
    for _ in range(150):
        if world.messages("lost more machines"):
            return
        world.run(0.1)
    raise AssertionError("no List was doubted")


def test_nothing_is_acquired_before_every_provider_has_listed_once() -> None:
    world = World(test_config(providers=("p", "q")))
    world.provider.several(2, "i")
    world.providers["q"].list_fails = "connection refused"
    world.operator("c").send(cpu("c", 1))
    world.run(60)
    assert not world.provider.calls and not world.core.ready
    assert "q" in world.core.published.waiting_for
    assert world.messages("reconcile failed")
    assert {verdict.reason for verdict in world.results[-1].verdicts.rows()} == {UnmetReason.ACQUISITION_HELD}
    world.providers["q"].list_fails = ""
    world.run(30)
    assert world.core.ready and len(world.provider.configured("c")) == 1


def test_an_ignored_provider_is_not_waited_for() -> None:
    world = World(test_config(providers=("p", "q"), ignore_provider=("q",)))
    world.provider.several(2, "i")
    world.providers["q"].list_fails = "down"
    world.operator("c").send(cpu("c", 1))
    world.run(15)
    assert world.core.ready and len(world.provider.configured("c")) == 1


def test_every_field_of_an_unchanged_state_is_refreshed() -> None:
    world = serving()
    unit = world.provider.units["i0"]
    reshaped(unit, price=7.5, probability=0.25, labels=(("rack", "r9"),))
    unit.host = "moved"
    world.run(12)
    record = world.core.state.fleet.machines["i0"]
    assert (record.shape.price, record.shape.probability, record.shape.labels) == (7.5, 0.25, (("rack", "r9"),))
    assert record.host == "moved" and record.stamp.priority == 1000
    assert world.core.published.dollars_per_hour == pytest.approx(7.5 + 20)


@pytest.mark.parametrize("what", ["lost", "broken", "unbound", "gone"])
def test_a_lost_machine_is_demand_again_within_one_reconcile(what: str) -> None:
    world = serving()
    unit = world.provider.units["i0"]
    match what:
        case "lost":
            world.provider.lose_host("i0")
        case "broken":
            world.provider.breaks("i0")
        case "unbound":
            unit.state, unit.cluster, unit.metadata = S.IDLE, "", ()
            unit.shape = replace(unit.shape, price=99.0)
        case "gone":
            del world.provider.units["i0"]
    world.run(13)
    assert world.provider.configured("c") == ["i1"]


def test_a_failed_machine_that_the_provider_repairs_is_used_again() -> None:
    world = serving(spare=0)
    world.provider.breaks("i0")
    world.run(15)
    assert world.state_of("i0") == S.FAILED
    unit = world.provider.units["i0"]
    unit.state, unit.cluster, unit.metadata, unit.error = S.IDLE, "", (), ""
    world.run(15)
    assert world.provider.configured("c") == ["i0"]


def test_a_sighting_older_than_the_last_answer_is_ignored_and_looked_up() -> None:
    world = World()
    world.provider.add("i0")
    world.run(1)
    stale, began = world.provider.units["i0"].record(), world.now
    world.operator("c").send(cpu("c", 1))
    world.run(10)
    assert world.state_of("i0") == S.CONFIGURED
    reads = len(world.provider.reads)
    world.post(ev.ListArrived("p", began, False, False, (stale,)))
    assert world.state_of("i0") == S.CONFIGURED
    world.run(3)
    assert world.provider.reads[reads:] == ["i0"] and world.state_of("i0") == S.CONFIGURED


def test_a_record_that_came_while_a_call_was_in_flight_is_looked_up_afterwards() -> None:
    world = World()
    world.provider.add("i0")
    world.provider.latency = 4.0
    world.operator("c").send(cpu("c", 1))
    world.run(3)
    assert world.core.published.inflight == 1
    listed(world, "i0")
    assert world.state_of("i0") == S.CONFIGURING
    world.run(20)
    assert "i0" in world.provider.reads and world.state_of("i0") == S.CONFIGURED


def test_removal_takes_a_get_that_finds_nothing_or_lists_without_it_for_long() -> None:
    world = serving(spare=30, visibility_window=60 * SECOND)
    del world.provider.units["i4"]
    world.run(13)
    assert world.state_of("i4") is None
    world.provider.read_fails = "busy"
    del world.provider.units["i5"]
    world.run(40)
    assert world.state_of("i5") == S.IDLE, "Get does not answer: nothing is lost yet"
    world.run(60)
    assert world.state_of("i5") is None


def test_a_machine_that_only_one_list_forgot_stays() -> None:
    world = serving(spare=30)
    world.provider.read_fails = "busy"
    world.provider.hide.add("i0")
    world.run(8)
    world.provider.hide.clear()
    world.run(60)
    assert world.provider.configured("c") == ["i0"] and world.state_of("i0") == S.CONFIGURED
    assert len(world.provider.calls) == 1


def test_a_large_loss_is_held_until_a_second_list_confirms_it_and_acquisition_pauses() -> None:
    world = serving(spare=9)
    hidden = {f"i{index}" for index in range(5)}
    world.provider.hide |= hidden
    operator = world.operators["c"]
    until_doubted(world)
    operator.send(cpu("c", 3))
    world.run(3)
    assert world.state_of("i0") == S.CONFIGURED and world.core.published.providers[0].doubted == 5
    assert len(world.provider.calls) == 1
    assert not world.steps[-1].conditions.acquire
    world.run(20)
    assert world.state_of("i0") is None
    assert len(world.provider.configured("c")) == 4  # one of them is hidden


def test_a_large_loss_that_was_a_glitch_changes_nothing() -> None:
    world = serving(spare=9)
    world.provider.hide |= set(world.provider.units)
    until_doubted(world)
    world.provider.hide.clear()
    world.run(30)
    assert len(world.core.state.fleet.machines) == 10 and len(world.provider.calls) == 1
    assert world.core.published.providers[0].doubted == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"price": -1.0}, "price"),
        ({"price": math.nan}, "price"),
        ({"probability": 1.5}, "interruption_probability"),
    ],
)
def test_a_bad_shape_is_rejected_and_the_last_good_record_stays(change: dict[str, float], reason: str) -> None:
    world = serving()
    good = world.provider.units["i0"].shape
    world.provider.units["i0"].shape = replace(good, **change)  # type: ignore[arg-type]
    listed(world, "i0", "i1")
    assert world.count(REJECTED, reason) == 1
    assert world.core.state.fleet.machines["i0"].shape == good
    world.provider.units["i0"].shape = good


def test_a_clusterless_configured_machine_is_rejected() -> None:
    world = World()
    world.provider.add("i0")
    world.provider.add("bad", S.CONFIGURED)
    world.run(5)
    assert world.state_of("bad") is None and world.state_of("i0") == S.IDLE
    assert world.count(REJECTED, "structural") >= 1
    assert world.messages("provider machine rejected at ingest")


def test_an_asynchronous_configure_is_finished_by_reconcile_with_one_frame() -> None:
    world = World()
    world.provider.add("i0")
    world.provider.work[CallKind.CONFIGURE] = 25
    operator = world.operator("c")
    operator.send(cpu("c", 1, priority=77))
    world.run(60)
    assert operator.node_states("i0") == [S.CONFIGURING, S.CONFIGURED]
    assert world.core.state.fleet.machines["i0"].stamp.priority == 77


def test_attribution_survives_a_restart_through_the_providers_echo() -> None:
    world = World()
    world.provider.add("i0")
    line = cpu("c", 1, priority=77, interruption=4.0, reclamation=2.0)
    world.operator("c").send(line)
    world.run(15)
    world.journal.clear()
    world.crash()
    world.run(2)
    record = world.core.state.fleet.machines["i0"]
    stamp = record.stamp
    assert (record.state, record.cluster, stamp.fingerprint) == (S.CONFIGURED, "c", line.profile.fingerprint)
    assert (stamp.priority, stamp.interruption_dollars, stamp.reclamation_dollars) == (77, 4.0, 2.0)


def test_a_malformed_metadata_key_costs_only_itself() -> None:
    world = World()
    unit = world.provider.add("i0", S.CONFIGURED, cluster="c")
    unit.metadata = (
        ("bigfleet.lucy.sh/assigned-priority", "high"),
        ("bigfleet.lucy.sh/assigned-need-fingerprint", "fp"),
    )
    world.run(2)
    stamp = world.core.state.fleet.machines["i0"].stamp
    assert (stamp.priority, stamp.fingerprint) == (0, "fp")
    assert world.messages("shard_metadata decode failed at ingest")


def test_two_providers_may_use_one_id() -> None:
    world = World(test_config(providers=("p", "q")))
    world.providers["p"].add("m")
    world.providers["q"].add("m")
    operator = world.operator("c")
    operator.send(cpu("c", 2))
    world.run(15)
    assert sorted(world.core.state.fleet.machines) == ["m", "q/m"]
    assert [u.cluster for p in world.providers.values() for u in p.units.values()] == ["c", "c"]
    assert {frame.machine for frame in operator.of(ev.NodeState)} == {"m", "q/m"}
    told = {frame.machine: frame.node_name for frame in operator.of(ev.NodeState)}
    assert told["m"] == "m" != told["q/m"], "two nodes of one cluster cannot have one name"


def test_incremental_mode_uses_the_cursor_and_lists_fully_now_and_then() -> None:
    world = World(test_config(incremental_reconcile=True, full_list_interval=60 * SECOND))
    world.provider.add("i0")
    wanted: list[ev.StartList] = []
    original = world.provider.list

    def spy(start: ev.StartList) -> None:
        wanted.append(start)
        original(start)

    world.provider.list = spy  # type: ignore[method-assign]
    world.run(130)
    assert [start.full for start in wanted].count(True) == 2
    assert all(bool(start.revision) != start.full for start in wanted)


def test_a_removal_the_provider_announces_is_confirmed_by_get() -> None:
    world = serving()
    del world.provider.units["i3"]
    world.post(ev.ListArrived("p", world.now, False, True, removed=("i3", "i4"), revision=b"9"))
    world.run(1)
    assert world.state_of("i3") is None and world.state_of("i4") == S.IDLE


def test_an_undecodable_record_is_looked_up_and_its_machine_stays() -> None:
    world = serving(spare=30)
    world.post(ev.ListArrived("p", world.now, True, False, undecodable=("i0",)))
    world.run(2)
    assert world.provider.reads == ["i0"] and world.state_of("i0") == S.CONFIGURED


def test_a_transition_nobody_here_began_must_end_too() -> None:
    world = World(test_config(configure_timeout=60 * SECOND))
    unit = world.provider.add("i0", S.CONFIGURING, cluster="c")
    world.run(90)
    assert world.state_of("i0") == S.FAILED
    unit.state = S.CONFIGURED
    world.run(400)
    assert world.state_of("i0") == S.CONFIGURED


def test_states_skipped_between_two_looks_are_believed() -> None:
    world = World()
    unit = world.provider.add("s0", S.SPECULATIVE)
    world.run(2)
    unit.state, unit.host, unit.cluster = S.DRAINING, "h", "x"
    world.run(12)
    record = world.core.state.fleet.machines["s0"]
    assert (record.state, record.cluster) == (S.DRAINING, "x")


def test_a_provider_with_an_empty_store_after_a_restart_is_refilled() -> None:
    world = serving(machines=2, spare=8)
    everything = dict(world.provider.units)
    world.provider.units.clear()
    world.run(30)
    assert not world.core.state.fleet.machines
    for unit in everything.values():
        world.provider.add(unit.id, S.IDLE)
    world.run(30)
    assert len(world.provider.configured("c")) == 2


def test_a_provider_lost_at_run_time_shows_in_the_age_of_its_last_good_list() -> None:
    world = World(test_config(providers=("p", "q")))
    metrics = ShardMetrics()

    def age(provider: str) -> float:
        publish_gauges(metrics, world.core.published, None, world.now)
        return metrics.value("provider_list_age_seconds", (provider,))

    world.providers["q"].list_fails = "connection refused"
    world.run(35)
    assert age("p") <= 11 and age("q") == 35
    world.providers["q"].list_fails, world.providers["p"].list_fails = "", "connection refused"
    world.run(300)
    assert age("p") > 300 and age("q") <= 11


@pytest.mark.parametrize("late", ["p", "q"])
def test_a_machine_is_called_the_same_whoever_was_listed_first(late: str) -> None:
    world = World(test_config(providers=("p", "q")))
    for name in ("p", "q"):
        world.providers[name].add("m-1")
        world.providers[name].add("q/m-1")
    world.providers[late].list_latency = 5.0
    world.run(8)
    called = {(view.provider, view.id): view.key for view in world.core.read.machines()}
    assert called == {
        ("p", "m-1"): "m-1",
        ("p", "q/m-1"): "p/q/m-1",
        ("q", "m-1"): "q/m-1",
        ("q", "q/m-1"): "q/q/m-1",
    }
