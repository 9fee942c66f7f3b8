"""What a shard takes from providers, and keeps over its own death, as the public project asserts it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bigfleet.model.machine import CallKind, MachineState
from bigfleet.shard.contract import events as ev
from bigfleet.transport import channel
from bigfleet.wire import provider_pb2, provider_pb2_grpc, shardread_pb2, shardread_pb2_grpc
from tests.strategies.fleet_process import Asking, rows, until
from tests.strategies.operator_client import Row, operator
from tests.strategies.shard_world import ALL, World, cpu, test_config

CONFIGURED = provider_pb2.MACHINE_STATE_CONFIGURED
S = MachineState


async def machine_is(fleet: Asking, machine: str, *states: int) -> bool:
    return (await fleet.machine(machine)).machine.state in states


async def test_impossible_records_are_refused_with_their_reason_and_the_last_good_one_stays(fleet: Asking) -> None:
    before = await asyncio.to_thread(fleet.local.metrics)
    known = {name: (await fleet.machine(name)).machine for name in ("slot-00001", "slot-00002", "slot-00003")}
    fleet.tell_lies(
        records={
            "slot-00001": {"price_per_hour": -1},
            "slot-00002": {"interruption_probability": 1.5},
            "slot-00003": {"state": CONFIGURED, "host": {"provider": "p", "ref": "h"}},
            "slot-00004": {"price_per_hour": 0.7, "zone": "zone-z"},
        }
    )
    try:
        for reason in ("price", "interruption_probability", "structural"):
            await until(lambda reason=reason: _more(fleet, before, "machines_rejected_total", reason))  # type: ignore[misc]
        await until(lambda: _zone(fleet, "slot-00004", "zone-z"))
        assert (await fleet.machine("slot-00004")).machine.price_per_hour == 0.7, "a clean record is accepted"
        for name, machine in known.items():
            assert (await fleet.machine(name)).machine == machine
    finally:
        fleet.tell_lies()
    assert {line["machine"] for line in fleet.logged("provider machine rejected at ingest")} >= set(known)


async def _more(fleet: Asking, before: dict[tuple[str, ...], float], *key: str) -> bool:
    return await fleet.metric(*key) > before.get(key, 0.0)


async def _zone(fleet: Asking, machine: str, zone: str) -> bool:
    return (await fleet.machine(machine)).machine.zone == zone


async def test_a_garbage_create_ack_fails_the_machine_keeps_its_price_and_is_counted(fleet: Asking) -> None:
    before = await asyncio.to_thread(fleet.local.metrics)
    kind: dict[str, Any] = {"slot-00005": {"instance_type": "ack.x"}}
    fleet.tell_lies(records=kind, acks={"slot-00005": {"price_per_hour": -5}})
    try:
        await until(lambda: _typed(fleet, "slot-00005", "ack.x"))
        price = (await fleet.machine("slot-00005")).machine.price_per_hour
        async with operator(fleet.address, "ack-1") as cluster:
            cluster.want(rows("ack", 1))
            await cluster.send_rollup()
            await until(lambda: _told_story(fleet, "slot-00005", "ack rejected"))
            rejected = before.get(("machines_rejected_total", "price"), 0.0) + 1
            await until(lambda: _counted(fleet, rejected, "machines_rejected_total", "price"), what="it is counted")
            assert (await fleet.machine("slot-00005")).machine.price_per_hour == price
            # The host exists at the provider nevertheless, and once it says so in order, it is used.
            fleet.tell_lies(records=kind)
            await cluster.until(lambda heard: len(heard.configured) == 1, 60)
    finally:
        fleet.tell_lies()
    assert any("ack rejected" in line["detail"] for line in fleet.audited("ack-1"))


async def _typed(fleet: Asking, machine: str, kind: str) -> bool:
    return (await fleet.machine(machine)).machine.instance_type == kind


async def _told_story(fleet: Asking, machine: str, text: str) -> bool:
    async with channel(fleet.address) as opened:
        story = await shardread_pb2_grpc.ShardReadStub(opened).Story(shardread_pb2.StoryRequest(machine_id=machine))
    return any(text in event.detail for event in story.events)


async def test_an_idle_purchase_is_released_after_its_hold_on_both_sides(fleet: Asking) -> None:
    fleet.tell_lies(records={"slot-00006": {"instance_type": "released.x"}})
    try:
        await until(lambda: _typed(fleet, "slot-00006", "released.x"))
        released = await fleet.metric("idle_releases_total")
        async with operator(fleet.address, "released-1") as cluster:
            cluster.want(rows("released", 1))
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.configured) == 1, 60)
            cluster.want([])
            await cluster.send_rollup()
            await until(lambda: machine_is(fleet, "slot-00006", S.SPECULATIVE))
        view = (await fleet.machine("slot-00006")).machine
        assert not view.HasField("host") and not view.cluster
        await until(lambda: _counted(fleet, released + 1, "idle_releases_total"), what="the release is counted")
        listed = await at_the_liar(fleet, "slot-00006")
        assert listed.state == S.SPECULATIVE and not listed.HasField("host")
    finally:
        fleet.tell_lies()


async def at_the_liar(fleet: Asking, machine: str) -> provider_pb2.Machine:
    address = fleet.local.more_providers["lies"]
    async with channel(address) as opened:
        found = await provider_pb2_grpc.CapacityProviderStub(opened).Get(provider_pb2.MachineRef(id=machine))
    assert isinstance(found, provider_pb2.Machine)
    return found


def test_a_release_is_for_idle_machines_only_and_a_refused_one_fails_with_its_text() -> None:
    world = World(test_config(idle_hold_on_demand=1))
    world.provider.add("idle", S.IDLE)
    world.provider.add("slot", S.SPECULATIVE)
    world.provider.add("busy", S.CONFIGURED, cluster="c")
    world.provider.refuse = lambda call: (ev.Failure.OTHER, "quota service is down")
    world.run(15)
    assert {(call.kind, call.machine) for call in world.provider.calls} == {(CallKind.DELETE, "idle")}
    failed = [audit for audit in world.audits if audit.machine == "idle"]
    assert failed and all("quota service is down" in audit.detail for audit in failed)
    assert any("Failed" in line.text and "quota service" in line.text for line in world.core.read.story("idle"))
    world.provider.refuse = lambda call: None
    world.run(700)
    assert world.state_of("idle") == S.SPECULATIVE
    assert world.provider.counts[CallKind.DELETE, "idle"] == 1, "what is released is not released again"


@pytest.mark.parametrize(
    ("begins", "ends", "kind", "outcome"),
    [
        (S.IDLE, S.IDLE, "Bootstrap", "transition_raced_to_idle"),
        (S.SPECULATIVE, S.CONFIGURED, "Provision", "transition_error"),
    ],
)
def test_a_configure_that_raced_back_to_idle_has_its_own_outcome(
    begins: MachineState, ends: MachineState, kind: str, outcome: str
) -> None:
    world = World()
    unit = world.provider.add("m", begins)
    world.run(1)
    calls: list[ev.CallProvider] = []
    world.provider.call = calls.append  # type: ignore[method-assign]
    world.operator("c", ALL).send(cpu("c", 1))
    world.run(5)
    unit.state, unit.host, unit.cluster = ends, "host-m", "c" if ends == S.CONFIGURED else ""
    world.post(ev.CallDone(calls[0].op, unit.record()))
    assert world.outcomes(kind) == {outcome: 1}


def test_a_machine_with_a_call_under_way_is_not_overwritten_by_a_list() -> None:
    world = World()
    world.provider.add("m", S.IDLE)
    world.provider.latency = 25.0
    cluster = world.operator("c", ALL)
    cluster.send(cpu("c", 1))
    world.run(20)
    assert world.provider.lists >= 2
    assert world.state_of("m") == S.CONFIGURING, "Lists that still show it Idle say nothing new"
    world.run(30)
    assert world.state_of("m") == S.CONFIGURED
    assert world.provider.counts[CallKind.CONFIGURE, "m"] == 1


async def test_a_new_process_has_a_higher_epoch_and_knows_every_assignment_again(fleet: Asking) -> None:
    async with operator(fleet.address, "restart-1") as cluster:
        demand = rows("restart", 2, 7, group="g", interruption_bucket=5, reclamation_bucket=27)
        cluster.want([Row(**_fields(demand[0]))])
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        epoch = cluster.heard.acks[0].shard_epoch
        before = {view.machine.id: view for view in await fleet.machines("restart")}
        await asyncio.to_thread(fleet.local.shard.kill)
    fleet.local.shard.start()
    await asyncio.to_thread(fleet.local.wait_ready)
    after = {view.machine.id: view for view in await fleet.machines("restart")}
    assert len(after) == 2
    for machine, view in after.items():
        old = before[machine]
        assert (view.machine.state, view.machine.cluster) == (CONFIGURED, "restart-1")
        assert (view.assigned_priority, view.assigned_group, view.assigned_fingerprint) == (
            7,
            "g",
            old.assigned_fingerprint,
        )
        assert view.assigned_interruption_penalty_bucket == 5 and view.assigned_reclamation_penalty_bucket == 27
        assert not view.machine.shard_metadata, "the map is read, not kept"
    async with operator(fleet.address, "restart-1") as again:
        assert again.heard.acks[0].shard_epoch > epoch
        await fleet.cycles(3)
        assert not again.heard.reclaims, "nothing is reclaimed from a cluster that has not spoken"


def _fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


async def test_a_clusterless_configured_machine_stays_unknown(fleet: Asking) -> None:
    lie = {"state": CONFIGURED, "host": {"provider": "p", "ref": "h"}, "instance_type": "orphan.x"}
    fleet.tell_lies(records={"slot-00007": lie})
    try:
        await until(lambda: _rejected_line(fleet, "slot-00007"))
        assert not await fleet.machines("orphan")
    finally:
        fleet.tell_lies()


async def _rejected_line(fleet: Asking, machine: str) -> bool:
    return bool(fleet.logged("provider machine rejected at ingest", machine=machine))


async def _counted(fleet: Asking, count: float, *metric: str) -> bool:
    """What the core decided is counted a moment after it can be read."""
    return await fleet.metric(*metric) >= count
