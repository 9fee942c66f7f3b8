"""Providers that are not what their Lists say, or not there at all: real processes, real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bigfleet.wire import provider_pb2
from tests.strategies.fleet_process import Asking, rows, until
from tests.strategies.operator_client import operator

CONFIGURED = provider_pb2.MACHINE_STATE_CONFIGURED
SLOTS = [f"slot-{index:05d}" for index in range(6, 10)]
SIZE = {"resources": {"cpu": "2", "memory": "8Gi"}}


def cheap(kind: str) -> dict[str, Any]:
    """Slots of the lying provider that are the same as the other's, for less."""
    facts = {"instance_type": kind, "price_per_hour": 0.01, "resources": SIZE, "allocatable": SIZE}
    return dict.fromkeys(SLOTS, facts)


async def test_machines_that_only_list_forgets_stay_and_nothing_is_bought_for_them(tmp_path: Path) -> None:
    fleet = Asking(tmp_path, {"forgotten": {"count": 4, "hosts": 0, "capacity_type": "on-demand"}})
    kind = cheap("forgotten.x")
    fleet.tell_lies(records=kind)
    try:
        fleet.start()
        async with operator(fleet.address, "c") as cluster:
            cluster.want(rows("forgotten", 2))
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.configured) == 2, 60)
            mine = sorted(cluster.heard.configured)
            every = [f"slot-{index:05d}" for index in range(60)]
            fleet.tell_lies(records=kind, hidden=every)
            await until(lambda: fleet.metric("stale_lists_total", "lies"), lambda found: found >= 1, seconds=120)
            await asyncio.sleep(8)
            assert sorted(cluster.heard.configured) == mine
            assert {view.machine.id for view in await fleet.machines(cluster_id="c")} == {
                name.removeprefix("lies/") for name in mine
            }
            assert await fleet.metric("stale_lists_total", "lies") >= 1
            fleet.tell_lies(records=kind)
            await asyncio.sleep(2)
            assert sorted(cluster.heard.configured) == mine
        assert all(machine.state != CONFIGURED for machine in await fleet.at_provider("forgotten"))
    finally:
        fleet.stop()


async def test_a_provider_that_is_gone_does_not_keep_demand_from_the_others(tmp_path: Path) -> None:
    fleet = Asking(tmp_path, {"other": {"count": 4, "hosts": 0, "capacity_type": "on-demand"}})
    fleet.tell_lies(records=cheap("other.x"))
    try:
        fleet.start()
        async with operator(fleet.address, "c") as cluster:
            cluster.want(rows("other", 1))
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.configured) == 1, 60)
            [first] = cluster.heard.configured
            fleet.liar.kill()
            cluster.want(rows("other", 4))
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.configured) == 4, 90)
            assert first in cluster.heard.configured, "what is bound stays"
            await until(lambda: _away(fleet, 1.0))
            assert fleet.logged("a provider is away; the next best is bought elsewhere")
            cluster.want(rows("other", 9))
            await cluster.send_rollup()
            await fleet.cycles(3)
            explained = await fleet.explained("c")
            assert "Nothing is asked of lies: it cannot be reached" in explained.reason, explained
            fleet.liar.start()
            await until(lambda: _away(fleet, 0.0))
    finally:
        fleet.stop()


async def _away(fleet: Asking, gauge: float) -> bool:
    return await fleet.metric("provider_away", "lies") == gauge
