"""Where the reference is known to be weak, done right: one test for each item, in its order and with its number.

Over processes and sockets where the weakness shows there, on the core in virtual time where waiting is the point.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from bigfleet.model.machine import CallKind
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.shard.contract import events as ev
from bigfleet.shard.runtime.journal import JournalError, JournalFile
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2
from tests.strategies.builders import SECOND, rollup
from tests.strategies.fleet_process import INSTANCE_TYPE, UNIT, ZONE, Asking, of_kind, rows, until
from tests.strategies.operator_client import Row, SyntheticOperator, operator, raw_session
from tests.strategies.shard_process import offering, provider, shard
from tests.strategies.shard_world import OLD, S, World, cpu, test_config
from tools.processes import BIGFLEET, free_address

IDLE = provider_pb2.MACHINE_STATE_IDLE


async def wants(cluster: SyntheticOperator, demand: list[Row]) -> None:
    cluster.want(demand)
    sent = await cluster.send_rollup()
    await cluster.until(lambda heard: any(ack.rollup_timestamp == sent for ack in heard.acks), 60)


async def all_are(fleet: Asking, kind: str, state: str) -> bool:
    return set(await fleet.states(kind)) == {state}


async def test_01_a_burst_of_actions_is_carried_out_at_once_and_none_is_dropped(fleet: Asking) -> None:
    async with operator(fleet.address, "queue-1") as cluster:
        await wants(cluster, rows("queue", 40))
        await cluster.until(lambda heard: len(heard.configured) == 40, 60)
    cycles = {line["cycle"] for line in fleet.audited("queue-1")}
    assert len(cycles) == 1, "forty bindings of one decision"
    assert await fleet.metric("actions_dropped_total") == 0


async def test_02_an_operator_that_reads_nothing_stalls_nobody(fleet: Asking) -> None:
    async with raw_session(fleet.address) as deaf, operator(fleet.address, "stuck-1") as cluster:
        hello = shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="deaf"))
        await deaf.write(hello.SerializeToString())
        for number in range(300):
            needs = [Row(pods=1, unit={"cpu": "900"}, priority=each).need() for each in range(number % 40)]
            told = capacity_pb2.ClusterCapacityNeeds(cluster_id="deaf", timestamp_unix_nanos=number, needs=needs)
            await deaf.write(shard_pb2.OperatorMessage(rollup=told).SerializeToString())
        await wants(cluster, rows("stuck", 2))
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)


async def test_03_a_machine_that_failed_for_a_passing_reason_is_used_again(fleet: Asking) -> None:
    answers = iter(["the template is broken", "it still is"])

    def mended(request: shard_pb2.BootstrapRequest) -> bytes | str:
        return next(answers, b"#cloud-config")

    async with operator(fleet.address, "recovers-1", user_data=mended) as cluster:
        await wants(cluster, rows("recovers", 1))
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        await until(lambda: _audits(fleet, "recovers-1", 3))
    assert [line["outcome"] for line in fleet.audited("recovers-1")] == ["blob_error", "blob_error", "success"]
    assert {line["machine"] for line in fleet.audited("recovers-1")} == {"recovers-zone-a-0000"}


async def _audits(fleet: Asking, cluster: str, count: int) -> bool:
    return len(fleet.audited(cluster)) >= count


async def test_04_a_host_that_dies_under_its_cluster_is_demand_again(fleet: Asking) -> None:
    async with operator(fleet.address, "lost-1") as cluster:
        await wants(cluster, rows("lost", 1))
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        (first,) = cluster.heard.configured
        await fleet.inject("break", machine=first)
        await cluster.until(lambda heard: len(heard.configured) == 1 and heard.configured != [first], 60)
        (second,) = cluster.heard.configured
        await fleet.inject("lose-hosts", machine=second)
        await cluster.until(lambda heard: len(heard.configured) == 1 and heard.configured != [second], 60)
        assert second not in {view.machine.id for view in await fleet.machines("lost", cluster_id="lost-1")}


async def test_05_every_field_of_a_machine_in_an_unchanged_state_is_refreshed(fleet: Asking) -> None:
    before = (await fleet.machine("slot-00010")).machine
    changed = {
        "price_per_hour": 3.25,
        "interruption_probability": 0.5,
        "zone": "zone-moved",
        "labels": {"rack": "new"},
        "allocatable": {"resources": {"cpu": "7", "memory": "1Gi"}},
    }
    fleet.tell_lies(records={"slot-00010": changed})
    try:
        await until(lambda: _price(fleet, "slot-00010", 3.25))
        after = (await fleet.machine("slot-00010")).machine
        assert (after.state, after.interruption_probability, after.zone) == (before.state, 0.5, "zone-moved")
        labels = {"rack": "new", "bigfleet.lucy.sh/capacity-type": "on-demand"}
        assert dict(after.labels) == labels and after.allocatable.resources["cpu"] == "7"
    finally:
        fleet.tell_lies()
    await until(lambda: _price(fleet, "slot-00010", before.price_per_hour))


async def _price(fleet: Asking, machine: str, price: float) -> bool:
    return (await fleet.machine(machine)).machine.price_per_hour == price


def test_06_a_change_seen_only_while_a_call_was_under_way_is_looked_up_although_the_cursor_moved_on() -> None:
    world = World(test_config(incremental_reconcile=True, full_list_interval=10**6 * SECOND))
    world.provider.add("m", S.IDLE)
    world.run(5)
    listed_since = _lists_changes_only(world)
    world.provider.latency = 24.0
    world.operator("c").send(cpu("c", 1))
    world.run(14)
    world.provider.breaks("m", "burnt")
    listed_since.add("m")
    world.run(10)
    assert world.state_of("m") == S.CONFIGURING and not listed_since, "told once, while the call was under way"
    world.run(60)
    record = world.core.state.fleet.machines["m"]
    assert (record.state, record.error) == (S.FAILED, "burnt")


def _lists_changes_only(world: World) -> set[str]:
    """From now on a List names only what is in the returned set, once."""
    changed: set[str] = set()

    def changes(wanted: ev.StartList) -> None:
        assert not wanted.full and wanted.revision, "the cursor is used"
        provider = world.provider
        provider.revision += 1
        records = tuple(provider.units[machine].record() for machine in sorted(changed))
        changed.clear()
        cursor = str(provider.revision).encode()
        arrived = ev.ListArrived(provider.name, world.now, False, True, records, revision=cursor)
        world.after(0.1, lambda: world.post(arrived))

    world.provider.list = changes  # type: ignore[method-assign]
    return changed


def test_07_a_transition_that_never_ends_becomes_a_failure_that_can_heal() -> None:
    world = World(test_config(configure_timeout=60 * SECOND))
    unit = world.provider.add("m", S.IDLE)
    world.provider.work[CallKind.CONFIGURE] = 10**6
    world.operator("c").send(cpu("c", 1))
    world.run(45)
    assert world.state_of("m") == S.CONFIGURING
    world.run(60)
    assert world.state_of("m") == S.FAILED and "not finished within 60s" in world.core.state.fleet.machines["m"].error
    world.provider.work[CallKind.CONFIGURE] = 0.0
    unit.state, unit.cluster, unit.metadata = S.IDLE, "", ()
    world.run(700)
    assert world.state_of("m") == S.CONFIGURED


async def test_08_a_roll_up_in_another_clusters_name_is_refused(fleet: Asking) -> None:
    async with operator(fleet.address, "bound-1") as victim, operator(fleet.address, "bound-2") as mallory:
        await wants(victim, rows("bound", 2))
        await victim.until(lambda heard: len(heard.configured) == 2, 60)
        sent = await mallory.send_rollup(cluster="bound-1")
        await mallory.until(lambda heard: any(ack.rollup_timestamp == sent for ack in heard.acks), 60)
        assert mallory.heard.acks[-1].outcome == shard_pb2.Acknowledgement.OUTCOME_REJECTED
        assert "'bound-1'" in mallory.heard.acks[-1].reason
        assert await fleet.metric("rollups_rejected_total", "bound-2") == 1
        await fleet.cycles(3)
        assert len(victim.heard.configured) == 2 and not victim.heard.reclaims


async def test_09_a_replaced_stream_ends_at_once_and_what_it_was_asked_moves_to_the_new_one(fleet: Asking) -> None:
    asked: list[str] = []

    def mute(request: shard_pb2.BootstrapRequest) -> bytes:
        asked.append(request.request_id)
        raise asyncio.InvalidStateError  # an operator that never answers

    async with (
        operator(fleet.address, "replaced-1", user_data=mute) as first,
        AsyncExitStack() as stack,
    ):
        await wants(first, rows("replaced", 1))
        await first.until(lambda heard: bool(heard.bootstrap_requests), 60)
        second = await stack.enter_async_context(operator(fleet.address, "replaced-1"))
        async with asyncio.timeout(10):
            assert await first.ended() is grpc.StatusCode.ABORTED
        await second.until(lambda heard: len(heard.configured) == 1, 10)
        assert [request.request_id for request in second.heard.bootstrap_requests] == asked[-1:]


async def test_10_a_returning_operator_hears_everything_in_order_and_what_left_meanwhile(fleet: Asking) -> None:
    async with operator(fleet.address, "leaves-1") as cluster:
        await wants(cluster, rows("leaves", 2))
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        gone, kept = cluster.heard.configured
    await fleet.inject("break", machine=gone)
    await fleet.inject("lose-hosts", machine=gone)
    await until(lambda: _unbound(fleet, gone))
    async with operator(fleet.address, "leaves-1") as again:
        await again.until(lambda heard: bool(heard.resyncs), 60)
        assert again.heard.resyncs[0] == (kept,), "the end of a resync names every machine there is, and so who left"
        assert again.heard.configured == [kept]


async def _unbound(fleet: Asking, machine: str) -> bool:
    return not any(view.machine.cluster for view in await fleet.machines(machine_id=machine))


def test_11_a_cluster_without_a_session_neither_makes_machines_flap_nor_resets_their_holds() -> None:
    world = World(test_config(idle_hold_on_demand=120 * SECOND))
    world.provider.add("m", S.IDLE)
    cluster = world.operator("c", OLD)
    cluster.silent = True
    cluster.send(cpu("c", 1))
    world.run(11)
    assert world.state_of("m") == S.CONFIGURING
    cluster.disconnect()
    world.run(60)
    record = world.core.state.fleet.machines["m"]
    assert (record.state, record.cluster, record.stamp.fingerprint, record.stamp.group) == (S.IDLE, "", "", "")
    moves = len(world.core.read.story("m"))
    world.run(50)
    assert len(world.core.read.story("m")) == moves, "nothing happens to it while nobody could bootstrap it"
    world.run(120)
    assert world.state_of("m") == S.SPECULATIVE, "its hold ran on, and it was given back"


async def test_12_a_label_set_that_emptied_disappears_from_the_inventory_gauge(fleet: Asking) -> None:
    idle = ("inventory_machines", "BareMetal", "0", "Idle")
    bound = ("inventory_machines", "BareMetal", "0", "Configured")
    await until(lambda: _series(fleet, idle, present=True))
    async with operator(fleet.address, "gauge-1") as cluster:
        await wants(cluster, rows("gauge", 2))
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        await until(lambda: _series(fleet, idle, present=False))
        await until(lambda: _reads(fleet, bound, 2))


async def _reads(fleet: Asking, key: tuple[str, ...], value: float) -> bool:
    """Whether the gauge shows this; it is written once a cycle, so it may lag behind what operators heard."""
    return await fleet.metric(*key) == value


async def _series(fleet: Asking, key: tuple[str, ...], *, present: bool) -> bool:
    return (key in await asyncio.to_thread(fleet.local.metrics)) == present


async def test_13_a_hint_counts_and_prices_what_the_demand_could_really_use(fleet: Asking) -> None:
    both = Row(pods=1, unit=UNIT, priority=1, requirements=(_either("free", "paid"),))
    dear = Row(pods=1, unit=UNIT, priority=2, requirements=(of_kind("paid"),))
    elsewhere = Requirement(ZONE, Operator.IN, ("zone-far-away",))
    far = Row(pods=1, unit=UNIT, priority=3, requirements=(_either("free", "paid"), elsewhere))
    async with operator(fleet.address, "free-1") as cluster, fleet.switched(dry_run=True):
        await wants(cluster, [both, dear, far])
        await cluster.until(lambda heard: len(heard.capacity) == 3, 60)
        hints = {key.partition("p=")[2].partition("|")[0]: hint for key, hint in cluster.heard.capacity.items()}
        assert (hints["1"].available_count, hints["1"].cost_per_hour) == (2, 0.0), "free is a price, not its absence"
        assert (hints["2"].available_count, hints["2"].cost_per_hour) == (1, 5.0)
        assert hints["3"].available_count == 0, "a machine somewhere else is no capacity"


def _either(*kinds: str) -> Requirement:
    return Requirement(INSTANCE_TYPE, Operator.IN, tuple(f"{kind}.x" for kind in kinds))


async def test_14_demand_that_ends_takes_its_hint_back_and_a_new_stream_is_told_afresh(fleet: Asking) -> None:
    async with operator(fleet.address, "tombstone-1") as cluster, AsyncExitStack() as stack:
        await wants(cluster, rows("tombstone", 2))
        await cluster.until(lambda heard: bool(heard.capacity), 60)
        (key,) = cluster.heard.capacity
        second = await stack.enter_async_context(operator(fleet.address, "tombstone-1"))
        await second.until(lambda heard: key in heard.capacity, 60)
        await wants(second, [])
        await second.until(lambda heard: heard.capacity[key].available_count == 0, 60)
        assert second.heard.capacity[key].confidence == shard_pb2.AvailableCapacityUpdate.CONFIDENCE_NONE


def test_15_a_list_slower_than_a_cycle_still_makes_the_shard_ready_and_nothing_is_decided_before() -> None:
    world = World()
    world.provider.several(3, "m")
    world.provider.list_latency = 45.0
    world.crash()
    world.operator("c").send(cpu("c", 2))
    world.run(40)
    assert not world.core.ready and not world.provider.calls and len(world.steps) >= 3
    world.run(60)
    assert world.core.ready and len(world.provider.configured("c")) == 2


def test_16_the_epoch_is_durable_before_it_is_used_and_a_data_directory_has_one_owner(tmp_path: Path) -> None:
    first = JournalFile(tmp_path, "shard-0", unix_ms=1)
    assert first.epoch == 1
    with pytest.raises(JournalError, match="is in use by the process"):
        JournalFile(tmp_path, "shard-0")
    # A crash leaves no farewell; the next process reads what the last one committed.
    first.close()
    second = JournalFile(tmp_path, "shard-0", unix_ms=1)
    assert second.epoch == 2
    second.close()


def test_17_a_provider_that_fences_this_shard_is_left_alone_and_finished_work_leaves_nothing_behind() -> None:
    world = World()
    world.provider.several(2, "m")
    world.provider.units["m0"].mark = (99, 1)
    cluster = world.operator("c")
    cluster.send(cpu("c", 2))
    world.run(60)
    assert world.state_of("m0") == S.IDLE and world.state_of("m1") == S.CONFIGURED
    assert world.outcomes("Bootstrap")["fenced"] == 2 and world.messages("provider fenced this shard's mutation")
    assert "refuses epoch 1 of shard shard-0" in world.core.published.stood_off["p"]
    calls = len(world.provider.calls)
    cluster.send()
    world.run(120)
    assert len(world.provider.calls) == calls, "another process acts for this shard: nothing more is asked"
    world.provider.units["m0"].mark = (0, 0)
    world.post(ev.RailsSet(paused=False, dry_run=False, who="admin"))
    for _ in range(20):
        cluster.send()
        world.run(30)
        cluster.send(cpu("c", 1))
        world.run(30)
    assert not list(world.core.state.operations) and not world.core.executor.drains.journalled
    assert not [key for (table, key) in world.journal if table in (ev.Table.INTENT, ev.Table.DRAIN)]


async def test_18_two_shards_on_one_provider_act_on_their_own_domains_only(tmp_path: Path) -> None:
    zones = offering("m", 4, zones=("zone-a", "zone-b"))
    key = "topology.kubernetes.io/zone"
    async with (
        provider(zones) as served,
        shard(served, tmp_path / "a", id="shard-a", domain=[f"{key}=zone-a"]) as one,
        shard(served, tmp_path / "b", id="shard-b", domain=[f"{key}=zone-b"]) as two,
        operator(one.address, "c-a") as left,
        operator(two.address, "c-b") as right,
    ):
        for cluster in (left, right):
            await wants(cluster, [Row(pods=4, unit=UNIT)])
            await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        assert all("zone-a" in machine for machine in left.heard.configured)
        assert all("zone-b" in machine for machine in right.heard.configured)


def test_19_a_part_that_cannot_work_ends_the_process_with_an_exit_code_that_says_so(tmp_path: Path) -> None:
    taken = free_address()
    host, _, port = taken.rpartition(":")
    with socket.socket() as holder:
        holder.bind((host, int(port)))
        holder.listen()
        argv = [*BIGFLEET, "shard", "--fake-provider", "--listen", "127.0.0.1:0", "--metrics-addr", taken]
        done = subprocess.run([*argv, "--data-dir", str(tmp_path)], capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"metrics" in done.stderr and b"in use" in done.stderr


def test_20_a_shard_without_a_provider_does_not_start_and_no_profiler_is_exposed(tmp_path: Path, fleet: Asking) -> None:
    argv = [*BIGFLEET, "shard", "--listen", "127.0.0.1:0", "--metrics-addr", "0", "--data-dir", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, timeout=120, check=False)
    assert done.returncode == 2 and b"no provider is set" in done.stderr
    assert {fleet.local.page(path)[0] for path in ("/debug/pprof/", "/debug/pprof/profile", "/")} == {404}


def test_21_the_older_of_two_equal_demands_stays_the_older_one_however_often_it_is_reported() -> None:
    world = World()
    old, young = world.operator("z-old"), world.operator("a-young")
    old.send(cpu("z-old", 1))
    world.run(12)
    young.send(cpu("a-young", 1))
    for number in range(5):
        world.run(10)
        # Told again and again with ever newer timestamps, and once with other rows beside it.
        old.rollup = rollup("z-old", cpu("z-old", 1), *([cpu("z-old", 1, priority=-5)] if number == 3 else []))
        old.report()
    world.provider.add("m", S.IDLE)
    world.run(30)
    assert world.provider.configured("z-old") == ["m"]


def test_22_a_limit_on_actions_starves_no_phase_and_does_not_make_cycles_chase_each_other() -> None:
    world = World(test_config(max_actions_per_cycle=4))
    world.provider.several(6, "given", type="given")
    giver = world.operator("giver", OLD)
    giver.send(cpu("giver", 6, types=["given"]))
    world.run(30)
    assert len(world.provider.configured("giver")) == 6
    world.provider.several(200, "slot", S.SPECULATIVE, type="wanted")
    world.operator("taker", OLD).send(cpu("taker", 200, types=["wanted"]))
    giver.send()
    steps = len(world.steps)
    world.run(20)
    assert world.count("bigfleet_shard_actions_total", "Reclaim") == 6, "reclaims go on beside the purchases"
    assert world.count("bigfleet_shard_actions_total", "Provision") < 200, "which are still far from done"
    assert len(world.steps) - steps <= 22, "and at most one early cycle comes per second"
