"""Rails and the audit log as the public project asserts them: reclaim cap, roll-up quarantine, kill switch, dry run."""

from __future__ import annotations

import asyncio
from collections import Counter

from bigfleet.wire import shard_pb2
from tests.strategies.fleet_process import UNIT, Asking, of_kind, rows, until
from tests.strategies.operator_client import Row, SyntheticOperator, operator

APPLIED = shard_pb2.Acknowledgement.OUTCOME_APPLIED
HELD = shard_pb2.Acknowledgement.OUTCOME_HELD


async def told(cluster: SyntheticOperator, demand: list[Row]) -> int:
    """Tell the demand; what the shard made of it."""
    cluster.want(demand)
    sent = await cluster.send_rollup()
    await cluster.until(lambda heard: any(ack.rollup_timestamp == sent for ack in heard.acks), 60)
    return next(ack.outcome for ack in cluster.heard.acks if ack.rollup_timestamp == sent)


def many(kind: str, count: int) -> list[Row]:
    """So many rows, of which the machines of the kind satisfy hardly any."""
    return [Row(pods=1, unit=UNIT, priority=number, requirements=(of_kind(kind),)) for number in range(count)]


async def row_count(fleet: Asking, cluster: str) -> int:
    return int((await fleet.needs(cluster_id=cluster))[0].header.total_needs)


async def test_draining_forty_machines_stays_within_the_cap_takes_several_cycles_and_ends_idle(fleet: Asking) -> None:
    async with operator(fleet.address, "forty-1") as cluster:
        await told(cluster, rows("forty", 40))
        await cluster.until(lambda heard: len(heard.configured) == 40, 120)
        capped = await fleet.metric("reclaims_capped_total")
        # So much demand is not believed to be gone before it has been said for a while.
        assert [await told(cluster, []) for _ in range(2)] == [HELD, HELD]
        await asyncio.sleep(0.15)
        assert await told(cluster, []) == APPLIED
        await cluster.until(lambda heard: len(heard.reclaims) == 40, 120)
        await until(lambda: _all_idle(fleet, "forty"))
        await until(lambda: _reclaims_audited(fleet, 40), what="the audit lines, written after the core's decision")
        assert await fleet.metric("reclaims_capped_total") > capped
    per_cycle = Counter(line["cycle"] for line in fleet.audited("forty-1") if line["kind"] == "Reclaim")
    assert sum(per_cycle.values()) == 40 and len(per_cycle) > 1
    # A full bucket holds a quarter of the forty; later ones are smaller, because the cluster is.
    assert max(per_cycle.values()) <= 10
    assert {line["reason"] for line in fleet.audited("forty-1") if line["kind"] == "Reclaim"} == {"phase3.excess"}


async def _reclaims_audited(fleet: Asking, count: int) -> bool:
    return sum(line["kind"] == "Reclaim" for line in fleet.audited("forty-1")) >= count


async def _all_idle(fleet: Asking, kind: str) -> bool:
    return set(await fleet.states(kind)) == {"Idle"}


async def test_a_sudden_loss_of_demand_is_held_twice_and_applied_when_it_is_confirmed(fleet: Asking) -> None:
    async with operator(fleet.address, "held-1") as cluster:
        assert await told(cluster, many("held", 20)) == APPLIED
        for number in (1, 2):
            assert await told(cluster, []) == HELD
            assert await row_count(fleet, "held-1") == 20
            await until(lambda number=number: _gauge(fleet, "held-1", number))  # type: ignore[misc]
        # Not a wait for an effect: time itself, more of it than `rollup-guard-hold`, is what the guard waits for.
        await asyncio.sleep(0.15)
        assert await told(cluster, []) == APPLIED
        assert await row_count(fleet, "held-1") == 0
        await until(lambda: _gauge(fleet, "held-1", 0))
    held = fleet.logged("rollup quarantined", cluster="held-1")
    assert [(line["previous_rows"], line["new_rows"], line["held_consecutive"]) for line in held] == [
        (20, 0, 1),
        (20, 0, 2),
    ]
    assert held[0]["accepted_after"] == 3
    assert fleet.logged("quarantined rollup accepted", cluster="held-1")


async def _gauge(fleet: Asking, cluster: str, held: int) -> bool:
    return await fleet.metric("rollup_quarantined", cluster) == held


async def test_a_recovering_rollup_is_accepted_at_once_and_the_count_begins_anew(fleet: Asking) -> None:
    async with operator(fleet.address, "held-2") as cluster:
        await told(cluster, many("held", 20))
        assert [await told(cluster, []) for _ in range(2)] == [HELD, HELD]
        assert await told(cluster, many("held", 20)) == APPLIED
        assert [await told(cluster, []) for _ in range(2)] == [HELD, HELD]
        assert await row_count(fleet, "held-2") == 20


async def test_small_gradual_and_first_rollups_are_never_held(fleet: Asking) -> None:
    async with operator(fleet.address, "held-3") as cluster:
        assert await told(cluster, []) == APPLIED
        assert [await told(cluster, many("held", count)) for count in (4, 0)] == [APPLIED, APPLIED]
        assert [await told(cluster, many("held", count)) for count in (40, 20, 8, 2, 0)] == [APPLIED] * 5
    assert not fleet.logged("rollup quarantined", cluster="held-3")


async def test_paused_decides_both_ways_and_records_but_touches_nothing(fleet: Asking) -> None:
    async with operator(fleet.address, "paused-1") as one, operator(fleet.address, "paused-2") as two:
        await told(one, rows("paused", 2))
        await one.until(lambda heard: len(heard.configured) == 2, 60)
        async with fleet.switched(paused=True):
            before = await asyncio.to_thread(fleet.local.metrics)
            await told(one, [])
            await told(two, rows("paused", 8))
            for kind in ("Bootstrap", "Reclaim"):
                await until(lambda kind=kind: _grown(fleet, before, "actions_suppressed_total", kind))  # type: ignore[misc]
            await until(lambda: _gauge_is(fleet, "actuation_paused", 1))
            assert await fleet.states("paused") == {"Configured": 2, "Idle": 2}
            assert not (await fleet.need("paused-2")).satisfied, "shortfalls are still recorded"
            await until(lambda: _any_shortfall(fleet), what="the gauge of shortfalls, written once a cycle")
        await two.until(lambda heard: len(heard.configured) == 4, 60)
        await until(lambda: _gauge_is(fleet, "actuation_paused", 0))
    during = [line for line in fleet.audited("paused-2") if line["outcome"] == "suppressed"]
    assert during and {line["kind"] for line in during} == {"Bootstrap"}
    assert fleet.logged("actuation paused")


async def test_dry_run_tells_every_action_with_reason_and_cluster_and_touches_nothing(fleet: Asking) -> None:
    async with operator(fleet.address, "dry-1") as cluster:
        async with fleet.switched(dry_run=True):
            before = await asyncio.to_thread(fleet.local.metrics)
            await told(cluster, rows("dry", 4))
            await until(lambda: _grown(fleet, before, "actions_dryrun_total", "Bootstrap"))
            after = await asyncio.to_thread(fleet.local.metrics)
            assert _sum(after, "actions_suppressed_total") == _sum(before, "actions_suppressed_total")
            assert after["actuation_paused",] == 0
            assert await fleet.states("dry") == {"Idle": 4}
        await cluster.until(lambda heard: len(heard.configured) == 4, 60)
    lines = fleet.logged("dry-run: would execute action", cluster="dry-1")
    assert lines and {line["reason"] for line in lines} == {"phase1.idle"}
    outcomes = [line["outcome"] for line in fleet.audited("dry-1")]
    assert outcomes.count("dryrun") >= 4 and outcomes[-4:] == ["success"] * 4


async def _grown(fleet: Asking, before: dict[tuple[str, ...], float], *key: str) -> bool:
    return await fleet.metric(*key) > before.get(key, 0.0)


async def _any_shortfall(fleet: Asking) -> bool:
    return await fleet.metric("shortfalls") > 0


async def _gauge_is(fleet: Asking, name: str, value: float) -> bool:
    return await fleet.metric(name) == value


def _sum(metrics: dict[tuple[str, ...], float], name: str) -> float:
    return sum(value for key, value in metrics.items() if key[0] == name)


async def test_an_executed_action_is_one_audit_line_with_every_field(fleet: Asking) -> None:
    async with operator(fleet.address, "audited-1") as cluster:
        await told(cluster, rows("audited", 1))
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        await until(lambda: _audited(fleet, "audited-1"))
    (line,) = fleet.audited("audited-1")
    assert {"time", "level", "msg", "cycle", "kind", "machine", "cluster", "reason", "grace_seconds", "outcome"} <= set(
        line
    )
    assert (line["level"], line["msg"], line["kind"], line["reason"], line["outcome"]) == (
        "INFO",
        "action",
        "Bootstrap",
        "phase1.idle",
        "success",
    )
    assert line["machine"] == "audited-zone-a-0000" and line["grace_seconds"] == 0 and line["cycle"] >= 1


async def _audited(fleet: Asking, cluster: str) -> bool:
    return bool(fleet.audited(cluster))
