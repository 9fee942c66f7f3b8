"""The read RPC, shortfalls and latencies as the public project asserts them, asked of a shard process."""

from __future__ import annotations

from pathlib import Path

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.wire import shardread_pb2
from tests.strategies.fleet_process import UNIT, ZONE, Asking, of_kind, rows, until
from tests.strategies.operator_client import Row, SyntheticOperator, operator
from tests.strategies.shard_process import small_fleet

REASON = shardread_pb2.UnmetReason


async def wants(cluster: SyntheticOperator, demand: list[Row]) -> None:
    cluster.want(demand)
    sent = await cluster.send_rollup()
    await cluster.until(lambda heard: any(ack.rollup_timestamp == sent for ack in heard.acks), 60)


async def test_a_header_comes_first_then_rows_by_priority_and_the_limit_keeps_the_total(fleet: Asking) -> None:
    async with operator(fleet.address, "order-1") as one, operator(fleet.address, "order-2") as two:
        await wants(one, [*rows("order", 1, 10), *rows("order", 1, 500)])
        await wants(two, rows("order", 1, 100))
        header, *needs = await fleet.needs(cluster_id="order-1")
        assert header.header.cycle >= 1 and header.header.computed_at_unix_nanos > 0
        assert header.header.total_needs == 2 and [frame.need.need.priority for frame in needs] == [500, 10]
        header, *needs = await fleet.needs(cluster_id="order-1", limit=1)
        assert header.header.total_needs == 2 and len(needs) == 1
        header, *needs = await fleet.needs(limit=-1)
        assert header.header.total_needs == len(needs) > 2
        priorities = [frame.need.need.priority for frame in needs]
        assert priorities == sorted(priorities, reverse=True)
        header, *needs = await fleet.needs(cluster_id="nobody")
        assert header.header.total_needs == 0 and not needs


async def test_a_row_carries_what_was_asked_and_what_became_of_it(fleet: Asking) -> None:
    async with operator(fleet.address, "short-1") as cluster:
        await wants(cluster, rows("short", 3, 42, group="g", interruption_bucket=4, reclamation_bucket=6))
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        await until(lambda: _claimed(fleet, "short-1", 1))
        view = await fleet.need("short-1")
        assert dict(view.need.aggregate_resources) == {"cpu": "6", "memory": "12Gi"}
        assert dict(view.need.min_unit) == {"cpu": "2", "memory": "4Gi"}
        assert (view.need.group, view.need.interruption_penalty_bucket, view.need.reclamation_penalty_bucket) == (
            "g",
            4,
            6,
        )
        assert view.profile_fingerprint.startswith("p=42|ipb=4|rpb=6|")
        assert dict(view.residual_deficit.resources)["cpu"] == "4"
        assert view.arrival_unix_nanos > 0
        await until(lambda: _configured_supply(fleet, "short-1", 1))


async def _claimed(fleet: Asking, cluster: str, count: int) -> bool:
    return (await fleet.need(cluster)).claimed_machine_count == count


async def _configured_supply(fleet: Asking, cluster: str, count: int) -> bool:
    return (await fleet.need(cluster)).matching_supply.configured == count


async def reason(fleet: Asking, cluster: str, wanted: int) -> bool:
    return (await fleet.need(cluster)).unmet_reason == wanted


async def test_every_unmet_reason_of_the_contract_is_told_apart(fleet: Asking) -> None:
    same_zone = Requirement(ZONE, Operator.SAME, ())
    async with (
        operator(fleet.address, "met-1") as met,
        operator(fleet.address, "gang-1") as gang,
        operator(fleet.address, "none-1") as none,
        operator(fleet.address, "rich-1") as rich,
        operator(fleet.address, "poor-1") as poor,
        operator(fleet.address, "held-9") as exhausted,
        operator(fleet.address, "starved-1") as starved,
    ):
        await wants(met, rows("met", 1))
        await wants(gang, rows("gang", 2, group="g", requirements=(same_zone,)))
        await wants(none, rows("nothing", 1))
        await wants(rich, [*rows("exhausted", 1, 5000), *rows("starved", 1, 5000)])
        await rich.until(lambda heard: len(heard.configured) == 2, 60)
        await wants(poor, rows("exhausted", 1, 10))
        await poor.until(lambda heard: len(heard.configured) == 1, 60)
        await wants(starved, rows("starved", 1, 100))
        await until(lambda: reason(fleet, "met-1", REASON.UNMET_REASON_UNSPECIFIED), what="met")
        assert (await fleet.need("met-1")).satisfied
        await until(lambda: reason(fleet, "gang-1", REASON.UNMET_REASON_TOPOLOGY_UNSATISFIABLE), what="gang")
        await until(lambda: reason(fleet, "none-1", REASON.UNMET_REASON_NO_MATCHING_SUPPLY), what="none")
        await until(lambda: reason(fleet, "starved-1", REASON.UNMET_REASON_PRIORITY_STARVED), what="starved")
        starving = await fleet.explained("starved-1")
        assert [(lost.winner_cluster_id, lost.winner_priority) for lost in starving.lost][:1] == [("rich-1", 5000)]
        assert starving.lost[0].reason == "serves a need of higher priority"
        assert starving.remedy.add_supply.count == 1
        served = await fleet.explained("met-1")
        assert [(granted.source, granted.count) for granted in served.granted] == [("credited", 1)]
        assert served.need.satisfied and not served.HasField("remedy")
        async with fleet.switched(dry_run=True):
            # One of the two machines may be taken, the other may not; nothing happens, so it stays that way.
            await wants(exhausted, rows("exhausted", 2, 1000))
            await until(
                lambda: reason(fleet, "held-9", REASON.UNMET_REASON_PREEMPTION_EXHAUSTED), what="preemption exhausted"
            )
            assert (await fleet.need("held-9")).preemption.victims_found == 1


async def test_shortfalls_of_one_fingerprint_count_once_keep_their_age_and_end_when_all_are_resolved(
    fleet: Asking,
) -> None:
    async with operator(fleet.address, "sum-1") as one, operator(fleet.address, "sum-2") as two:
        for cluster in (one, two):
            await wants(cluster, rows("nowhere", 2, 1_000_001))
        await until(lambda: _critical(fleet, 1), what="two clusters are short of the same")
        assert await fleet.metric("shortfalls") >= 1
        view = await fleet.need("sum-1")
        line = fleet.logged("shortfalls detected")[-1]
        assert line["count"] >= 1 and len(line["top"]) <= 3 and line["top"].count(view.profile_fingerprint) <= 1
        await wants(two, [])
        await fleet.cycles(2)
        assert await _critical(fleet, 1), "the other cluster still is"
        assert (await fleet.need("sum-1")).age_cycles_unmet >= view.age_cycles_unmet >= 1
        await wants(one, [])
        await until(lambda: _critical(fleet, 0), what="all of them are resolved")


async def _critical(fleet: Asking, count: int) -> bool:
    """No other test is short of something critical."""
    return await fleet.metric("shortfalls_by_priority", "critical") == count


async def test_provisioning_latency_is_observed_once_per_demand_however_often_it_is_reported(fleet: Asking) -> None:
    async with operator(fleet.address, "latency-1") as cluster:
        before = await fleet.metric("provisioning_latency_seconds_count")
        await wants(cluster, rows("latency", 1))
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        await wants(cluster, rows("latency", 1))
        await wants(cluster, rows("latency", 2))
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        assert await fleet.metric("provisioning_latency_seconds_count") == before + 1
        # Demand that went away and comes back is seen for the first time again.
        await wants(cluster, [])
        await until(lambda: _states(fleet, "latency", "Idle"))
        await wants(cluster, rows("latency", 1))
        await until(lambda: _observed(fleet, before + 2))


async def _states(fleet: Asking, kind: str, state: str) -> bool:
    return set(await fleet.states(kind)) == {state}


async def _observed(fleet: Asking, count: float) -> bool:
    return await fleet.metric("provisioning_latency_seconds_count") == count


async def test_warm_up_cycles_leave_no_duration_samples(tmp_path: Path) -> None:
    async with small_fleet(tmp_path, 1, metrics_warmup_cycles=3, cycle_interval="50ms") as running:
        await running.until(lambda process: process.core.published.cycle >= 5)
        await until(lambda: running.shard.metrics.observations("cycle_duration_seconds") >= 2)
        steps = running.shard._steps
        assert running.shard.metrics.observations("cycle_duration_seconds") == steps - 3


async def test_unpinned_demand_is_told_all_supply_it_could_use(fleet: Asking) -> None:
    """MEDIUM when only slots are left, HIGH while machines idle, NONE when nothing fits."""
    async with operator(fleet.address, "hints-2") as cluster:
        big = Row(pods=1, unit={"cpu": "500"}, priority=1)
        slots = Row(pods=1, unit={"cpu": "12"}, priority=2, requirements=())
        none = Row(pods=1, unit=UNIT, priority=3, requirements=(of_kind("nothing"),))
        async with fleet.switched(dry_run=True):
            await wants(cluster, [big, slots, none])
            await cluster.until(lambda heard: len(heard.capacity) >= 3, 60)
        by_priority = {key.partition("p=")[2].partition("|")[0]: hint for key, hint in cluster.heard.capacity.items()}
        assert by_priority["3"].confidence == 1 and by_priority["3"].available_count == 0
        assert by_priority["2"].confidence in (3, 4) and by_priority["2"].available_count > 0
