"""`bigfleetctl` asked about a running shard: needs, machines, actions, explanations, stories and rails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from tests.strategies.fleet_process import Asking, rows, until
from tests.strategies.operator_client import operator

MAIN = "from bigfleet.cli.bigfleetctl import main; main()"


async def ctl(fleet: Asking, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-c", MAIN, *arguments, "--shard", fleet.address]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == code, ended.stderr
    return ended.stderr if code else ended.stdout


async def told(fleet: Asking, *arguments: str) -> Any:
    return json.loads(await ctl(fleet, *arguments, "-o", "json"))


async def unmet(fleet: Asking) -> bool:
    return [need["cluster_id"] for need in await told(fleet, "needs", "--cluster", "told-1", "--unmet")] == ["told-1"]


async def test_a_person_can_follow_a_need_from_the_table_to_the_remedy(fleet: Asking) -> None:
    async with operator(fleet.address, "told-1") as cluster:
        cluster.want(rows("told", 3))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        await until(lambda: unmet(fleet), what="one of three pods has no machine")

        table = await ctl(fleet, "needs", "--cluster", "told-1")
        assert table.splitlines()[0].split()[:3] == ["CLUSTER", "PRIORITY", "WANTS"]
        assert "told-1" in table and "cpu 2" in table

        machines = await told(fleet, "machines", "--instance-type", "told.x", "--state", "configured")
        assert [view["machine"]["cluster"] for view in machines] == ["told-1", "told-1"]
        name = machines[0]["machine"]["id"]
        assert name in await ctl(fleet, "machines", "--machine", name)

        actions = await told(fleet, "actions", "--machine", name, "--kind", "bootstrap")
        assert [action["outcome"] for action in actions] == ["success"]
        assert "bootstrap" in await ctl(fleet, "actions", "--cluster", "told-1")

        assert "Configured" in await ctl(fleet, "story", name)

        text = await ctl(fleet, "explain", "told-1")
        assert "missing cpu 2" in text and "has      2 × told.x" in text and "remedy" in text
        (explained,) = await told(fleet, "explain", "told-1")
        assert explained["need"]["cluster_id"] == "told-1" and explained["granted"][0]["count"] == 2
        cluster.want([])
        await cluster.send_rollup()


async def test_rails_are_read_flipped_and_explained(fleet: Asking) -> None:
    try:
        flipped = await told(fleet, "rails", "--dry-run", "--reason", "trying things")
        assert (flipped["paused"], flipped["dry_run"], flipped["reason"]) == (False, True, "trying things")
        assert "trying things" in await ctl(fleet, "rails")
    finally:
        assert (await told(fleet, "rails", "--resume"))["dry_run"] is False


async def test_what_cannot_be_asked_is_refused_with_what_could(fleet: Asking) -> None:
    assert "there are: speculative" in await ctl(fleet, "machines", "--state", "asleep", code=1)
    assert "give one of" in await ctl(fleet, "rails", "--pause", "--resume", code=1)
    assert "NOT_FOUND" in await ctl(fleet, "story", "no-such-machine", code=1)
    command = [sys.executable, "-c", MAIN, "needs", "--shard", "192.0.2.1:7780"]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "--insecure" in ended.stderr
