"""Sessions, node states and drains as the public project asserts them, over processes and real sockets."""

from __future__ import annotations

from bigfleet.wire import provider_pb2, shard_pb2
from tests.strategies.fleet_process import Asking, rows, until
from tests.strategies.operator_client import REFERENCE, Row, SyntheticOperator, operator

IDLE = provider_pb2.MACHINE_STATE_IDLE
CONFIGURED = provider_pb2.MACHINE_STATE_CONFIGURED
DRAINING = provider_pb2.MACHINE_STATE_DRAINING
HIGH = shard_pb2.AvailableCapacityUpdate.CONFIDENCE_HIGH


async def wants(cluster: SyntheticOperator, demand: list[Row]) -> None:
    """Tell the demand and wait for the ack."""
    cluster.want(demand)
    sent = await cluster.send_rollup()
    await cluster.until(lambda heard: any(ack.rollup_timestamp == sent for ack in heard.acks), 60)


async def test_four_idle_machines_and_a_need_of_four_end_configured_with_four_bootstrap_requests(fleet: Asking) -> None:
    async with operator(fleet.address, "four-1") as cluster:
        await wants(cluster, rows("four", 4))
        await cluster.until(lambda heard: len(heard.configured) == 4, 60)
        assert len(cluster.heard.bootstrap_requests) == 4
        assert await fleet.states("four") == {"Configured": 4}
        assert {machine.cluster for machine in await fleet.at_provider("four")} == {"four-1"}


async def test_a_need_of_eight_over_two_machines_configures_two_and_stays_there(fleet: Asking) -> None:
    async with operator(fleet.address, "scarce-1") as cluster:
        await wants(cluster, rows("scarce", 8))
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        told = len(cluster.heard.states)
        await fleet.cycles(5)
        assert await fleet.states("scarce") == {"Configured": 2}
        assert len(cluster.heard.bootstrap_requests) == 2 and len(cluster.heard.states) == told


async def test_withdrawn_demand_drains_every_machine_back_to_idle(fleet: Asking) -> None:
    async with operator(fleet.address, "withdraw-1") as cluster:
        await wants(cluster, rows("withdraw", 4))
        await cluster.until(lambda heard: len(heard.configured) == 4, 60)
        await wants(cluster, [])
        await cluster.until(lambda heard: len(heard.in_state(IDLE)) == 4, 60)
        assert len(cluster.heard.reclaims) == 4
        assert await fleet.states("withdraw") == {"Idle": 4}
        assert not any(machine.cluster for machine in await fleet.at_provider("withdraw"))


async def test_a_higher_priority_takes_four_machines_and_the_victim_hears_of_exactly_four(fleet: Asking) -> None:
    async with operator(fleet.address, "low") as low, operator(fleet.address, "high") as high:
        await wants(low, rows("contest", 4, 100))
        await low.until(lambda heard: len(heard.configured) == 4, 60)
        await wants(high, rows("contest", 4, 1_000_000))
        await high.until(lambda heard: len(heard.configured) == 4, 60)
        assert len(low.heard.reclaims) == 4
        assert len({order.nodes[0] for order in low.heard.reclaims}) == 4
        assert {order.preemptor_priority for order in low.heard.reclaims} == {1_000_000}
        assert {machine.cluster for machine in await fleet.at_provider("contest")} == {"high"}


async def test_a_capacity_frame_tells_count_confidence_and_the_cheapest_idle_price(fleet: Asking) -> None:
    async with operator(fleet.address, "hints-1") as cluster:
        await wants(cluster, rows("hints", 1))
        await cluster.until(lambda heard: any(hint.confidence == HIGH for hint in heard.capacity.values()), 60)
        ((key, hint),) = cluster.heard.capacity.items()
        assert hint.available_count >= 1 and abs(hint.cost_per_hour - 0.1) < 1e-9
        assert key == hint.supersedes_key and key.startswith("available:")
        assert [each.key for each in hint.requirements] == ["node.kubernetes.io/instance-type"]
        assert not hint.resources.resources


async def test_resync_names_the_clusters_own_machines_and_no_others(fleet: Asking) -> None:
    async with operator(fleet.address, "resync-1") as first, operator(fleet.address, "resync-2") as other:
        for cluster in (first, other):
            await wants(cluster, rows("resync", 1))
            await cluster.until(lambda heard: len(heard.configured) == 1, 60)
    async with operator(fleet.address, "resync-1", capabilities=REFERENCE) as again:
        await again.until(lambda heard: bool(heard.nodes), 60)
        assert again.heard.configured == first.heard.configured
        assert set(again.heard.nodes) == set(first.heard.configured), "idle and foreign machines are nobody's business"


async def test_a_drain_is_told_as_draining_first_and_idle_last_to_the_cluster_that_had_it(fleet: Asking) -> None:
    async with operator(fleet.address, "draining-1") as cluster:
        await wants(cluster, rows("draining", 1))
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        del cluster.heard.states[:]
        await wants(cluster, [])
        await cluster.until(lambda heard: len(heard.in_state(IDLE)) == 1, 60)
        told = [state for _, state in cluster.heard.states]
        assert told[0] == DRAINING and told[-1] == IDLE


async def left_alone(fleet: Asking, kind: str, cluster_name: str) -> None:
    """A cluster whose demand is gone, and then its reference operator too, before anything was reclaimed."""
    async with operator(fleet.address, cluster_name, capabilities=REFERENCE) as cluster:
        cluster.want(rows(kind, 1))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        await fleet.switch(paused=True)
        cluster.want([])
        await cluster.send_rollup()
        await until(lambda: _rows_of(fleet, cluster_name, 0))
    await until(lambda: _disconnected(fleet, cluster_name))


async def _rows_of(fleet: Asking, cluster: str, count: int) -> bool:
    return (await fleet.needs(cluster_id=cluster))[0].header.total_needs == count


async def _disconnected(fleet: Asking, cluster: str) -> bool:
    return bool(fleet.logged("operator session", cluster=cluster)[-1]["msg"] != "operator session opened")


async def test_a_reclaim_without_a_session_drains_and_logs_the_fallback(fleet: Asking) -> None:
    await left_alone(fleet, "fallback", "fallback-1")
    await fleet.switch()
    await until(lambda: _all(fleet, "fallback", "Idle"))
    assert fleet.logged("reclaim fallback", cluster="fallback-1")


async def _all(fleet: Asking, kind: str, state: str) -> bool:
    return set(await fleet.states(kind)) == {state}


async def test_a_preemption_without_a_session_drains_silently(fleet: Asking) -> None:
    async with operator(fleet.address, "silent-1", capabilities=REFERENCE) as cluster:
        cluster.want(rows("silent", 1))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
    await until(lambda: _disconnected(fleet, "silent-1"))
    async with operator(fleet.address, "silent-2") as high:
        await wants(high, rows("silent", 1, 1_000_000))
        await high.until(lambda heard: len(heard.configured) == 1, 60)
    assert not fleet.logged("reclaim fallback", cluster="silent-1")


async def test_an_asynchronous_configure_sends_exactly_one_configured_update_and_keeps_its_assignment(
    fleet: Asking,
) -> None:
    async with operator(fleet.address, "async-1") as cluster:
        await fleet.inject("hold", transition="configure")
        try:
            await wants(cluster, rows("async", 1, 77, group="g", interruption_bucket=5))
            await until(lambda: _all(fleet, "async", "Configuring"))
            await fleet.cycles(3)
            assert not cluster.heard.configured
        finally:
            await fleet.inject("release", transition="configure")
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        await fleet.cycles(3)
        assert [state for _, state in cluster.heard.states].count(CONFIGURED) == 1
        (view,) = await fleet.machines("async")
        assert (view.assigned_priority, view.assigned_group) == (77, "g")
        assert view.assigned_interruption_penalty_bucket == 5 and view.assigned_fingerprint


async def test_an_asynchronous_drain_keeps_the_binding_until_reconcile_finishes_it_and_clears_everything(
    fleet: Asking,
) -> None:
    async with operator(fleet.address, "asyncdrain-1") as cluster:
        await wants(cluster, rows("asyncdrain", 1, 77, group="g", interruption_bucket=5))
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        await fleet.inject("hold", transition="drain")
        try:
            await wants(cluster, [])
            await until(lambda: _all(fleet, "asyncdrain", "Draining"))
            await fleet.cycles(3)
            (view,) = await fleet.machines("asyncdrain")
            assert view.machine.cluster == "asyncdrain-1" and not view.machine.last_error
        finally:
            await fleet.inject("release", transition="drain")
        await until(lambda: _all(fleet, "asyncdrain", "Idle"))
        (view,) = await fleet.machines("asyncdrain")
        assert not view.machine.cluster and not view.assigned_fingerprint and not view.assigned_group
        assert view.assigned_priority == 0 and view.assigned_interruption_penalty_bucket in (0, 1)
