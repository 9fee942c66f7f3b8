"""Coordinator, shards and provider as processes: capacity moves, and nobody needs the coordinator to go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.strategies.operator_client import Row, operator
from tools.multi_shard import MultiShard
from tools.waiting import until

POD = {"cpu": "3"}


async def test_shards_serve_and_restart_without_the_coordinator_and_missing_capacity_comes_from_elsewhere(
    tmp_path: Path,
) -> None:
    fleet = MultiShard(tmp_path, (2, 4))
    try:
        fleet.start()
        await fleet.divide()
        await until(fleet.owning, lambda owned: owned == {"s0": 2, "s1": 4}, seconds=120)

        fleet.coordinator.kill()
        async with operator(fleet.addresses["s0"], "c-0") as here, operator(fleet.addresses["s1"], "c-1") as there:
            here.want([Row(pods=2, unit=POD, priority=100)])
            there.want([Row(pods=1, unit=POD, priority=100)])
            await here.send_rollup()
            await there.send_rollup()
            await here.until(lambda heard: len(heard.configured) == 2, 120)
            await there.until(lambda heard: len(heard.configured) == 1, 120)
        fleet.shards["s1"].kill()
        fleet.shards["s1"].start()
        fleet.shards["s1"].told("listening")
        async with operator(fleet.addresses["s1"], "c-1") as there:
            there.want([Row(pods=2, unit=POD, priority=100)])
            await there.send_rollup()
            await there.until(lambda heard: len(heard.configured) == 2, 120)
            assert all("in-z1" in name for name in there.heard.configured)

            fleet.coordinators.start()
            await until(fleet.owning, lambda owned: owned == {"s0": 2, "s1": 4}, seconds=120, what="nothing moved")
            async with operator(fleet.addresses["s0"], "c-0") as here:
                here.want([Row(pods=3, unit=POD, priority=100)])
                await here.send_rollup()
                await here.until(lambda heard: len(heard.configured) == 3, 120)
            await until(fleet.owning, lambda owned: owned["s0"] > 2 and owned["s0"] + owned["s1"] == 6, seconds=120)
            for _ in range(10):
                # Reports go on crossing plans; one was missing, so one moved.
                assert await fleet.owning() == {"s0": 3, "s1": 3}
                await asyncio.sleep(0.2)
            assert len(there.heard.configured) == 2, "what the donor used stayed where it was"
    finally:
        fleet.stop()
