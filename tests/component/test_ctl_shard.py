"""`bigfleetctl` asked about a running shard: needs, machines, actions, explanations, stories, rails, and told
which cluster is gone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import yaml

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
        assert "told-1" in table and "6 vCPU, 12 GiB" in table and "2 vCPU" in table
        assert "p=100" not in table and "instance type is told.x" in table

        machines = await told(fleet, "machines", "--instance-type", "told.x", "--state", "configured")
        assert [view["machine"]["cluster"] for view in machines] == ["told-1", "told-1"]
        name = machines[0]["machine"]["id"]
        listed = await ctl(fleet, "machines", "--machine", name)
        assert "2 vCPU, 8 GiB" in listed and "OWNER" in listed and "this shard" in listed

        actions = await told(fleet, "actions", "--machine", name, "--kind", "bootstrap")
        assert [action["outcome"] for action in actions] == ["success"]
        listed = await ctl(fleet, "actions", "--cluster", "told-1")
        assert "bootstrap" in listed and "a free machine fits" in listed and "phase1" not in listed

        story = await ctl(fleet, "story", name)
        assert "Configured" in story and "phase1" not in story

        text = await ctl(fleet, "explain", "told-1")
        assert text.splitlines()[0].endswith("lacks 2 vCPU") and "has      2 × told.x" in text
        assert text.splitlines()[1].startswith("  remedy   ")
        assert "|" not in text, "a fingerprint is no word"
        assert await ctl(fleet, "explain", "--cluster", "told-1") == text
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


async def test_a_deleted_cluster_is_forgotten_also_by_a_shard_that_is_killed_meanwhile(fleet: Asking) -> None:
    async with operator(fleet.address, "forgotten-1") as cluster:
        cluster.want(rows("forgotten", 4))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 3, 60)
        refused = await ctl(fleet, "clusters", "forget", "forgotten-1", "--yes", code=5)
        assert "'forgotten-1' is not deleted: its operator is connected" in refused

    shown = await told(fleet, "clusters", "forget", "forgotten-1")
    assert (shown["machines"], shown["forgetting"]) == (3, False) and abs(shown["dollars_per_hour"] - 0.3) < 1e-9
    sentence = await ctl(fleet, "clusters", "forget", "forgotten-1", code=2)
    assert "give --yes to let go of cluster forgotten-1: 3 machines, $0.300/h" in sentence
    await fleet.cycles(3)
    assert (await fleet.states("forgotten"))["Configured"] == 3, "nothing was confirmed"

    await fleet.switch(paused=True)
    held = await ctl(fleet, "clusters", "forget", "forgotten-1", "--yes", "--reason", "ticket 4711")
    assert (
        "has 3 machines, $0.300/h at this shard; its operator is away since 20" in held and "the rails are on" in held
    )
    await asyncio.to_thread(fleet.local.shard.kill)
    fleet.local.shard.start()
    await asyncio.to_thread(fleet.local.wait_ready)
    assert (await told(fleet, "clusters", "forget", "forgotten-1"))["forgetting"] is True
    assert (await fleet.states("forgotten"))["Configured"] == 3
    await fleet.switch()

    async def free() -> bool:
        return not [machine for machine in await fleet.at_provider("forgotten") if machine.cluster]

    await until(free, what="no machine is the cluster's at its provider")
    await until(lambda: forgotten(fleet), what="the shard knows nothing of it any more")
    act, *drains = [line for line in fleet.audited("forgotten-1") if line["reason"] == "admin.forgotten"]
    assert act["kind"] == "Forget" and "ticket 4711; 3 machines, $0.300/h" in act["detail"]
    assert [(line["kind"], line["outcome"]) for line in drains] == [("Reclaim", "success")] * 3
    assert "its cluster was forgotten" in await ctl(fleet, "story", drains[0]["machine"])

    async with operator(fleet.address, "forgotten-1") as again:
        again.want(rows("forgotten", 1))
        await again.send_rollup()
        await again.until(lambda heard: len(heard.configured) == 1, 60)
        again.want([])
        await again.send_rollup()


async def forgotten(fleet: Asking) -> bool:
    command = [sys.executable, "-c", MAIN, "clusters", "forget", "forgotten-1", "--shard", fleet.address]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    return ended.returncode == 3 and "'forgotten-1' is not known to this shard" in ended.stderr


async def test_what_cannot_be_asked_is_refused_with_what_could(fleet: Asking) -> None:
    assert "there are: speculative" in await ctl(fleet, "machines", "--state", "asleep", code=2)
    assert "give one of" in await ctl(fleet, "rails", "--pause", "--resume", code=2)
    assert "give one of them" in await ctl(fleet, "explain", "a", "--cluster", "b", code=2)
    assert "'soon' is not a duration" in await ctl(fleet, "needs", "--timeout", "soon", code=2)
    command = [sys.executable, "-c", MAIN, "needs", "--shard", "192.0.2.1:7780"]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "--insecure" in ended.stderr


async def test_what_does_not_exist_is_an_error_of_its_own_that_names_what_does(fleet: Asking) -> None:
    assert "machine 'no-such-machine' is not known" in await ctl(fleet, "story", "no-such-machine", code=3)
    async with operator(fleet.address, "told-2") as cluster:
        await cluster.send_rollup()
        said = await ctl(fleet, "explain", "no-such-cluster", code=3)
        assert said.startswith("error: cluster 'no-such-cluster' is not known to this shard; it knows ")
        # Other tests' clusters may be known to it too, and a long list is cut.
        assert ("told-2" in said or " more" in said) and said.count("\n") == 1
        assert await ctl(fleet, "explain", "told-2") == "every need got everything it wants\n"
        assert "no need matches" in await ctl(fleet, "explain", "told-2", "--group", "nobody", code=3)


async def test_every_list_is_yaml_too(fleet: Asking) -> None:
    for words in (("needs",), ("machines", "--limit", "3"), ("actions", "--limit", "3"), ("explain",), ("rails",)):
        as_json, as_yaml = [await ctl(fleet, *words, "-o", form) for form in ("json", "yaml")]
        assert type(yaml.safe_load(as_yaml)) is type(json.loads(as_json)), words
    assert yaml.safe_load(await ctl(fleet, "machines", "--limit", "3", "-o", "yaml")) == await told(
        fleet, "machines", "--limit", "3"
    )


async def test_a_closed_pipe_ends_a_list_quietly(fleet: Asking) -> None:
    command = f"{sys.executable} -c '{MAIN}' machines --shard {fleet.address} -o json | head -1"
    ended = await asyncio.to_thread(subprocess.run, ["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("[\n", "")


async def test_a_shard_that_is_not_there_is_told_in_one_line() -> None:
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", MAIN, "needs", "--shard", "127.0.0.1:1", "--timeout", "10s"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 4
    assert ended.stderr.startswith("error: shard 127.0.0.1:1 cannot be reached") and ended.stderr.count("\n") == 1


async def test_a_limit_counts_what_is_still_being_done_too(fleet: Asking) -> None:
    async with operator(fleet.address, "told-3") as cluster:
        await fleet.inject("hold", transition="configure")
        try:
            cluster.want(rows("limited", 2))
            await cluster.send_rollup()

            async def both_in_flight() -> bool:
                found = await told(fleet, "actions", "--cluster", "told-3")
                return [action.get("outcome", "") for action in found] == ["", ""]

            await until(both_in_flight, what="two machines are being bound")
            assert len(await told(fleet, "actions", "--cluster", "told-3", "--limit", "1")) == 1
            assert "in flight" in await ctl(fleet, "actions", "--cluster", "told-3")
        finally:
            await fleet.inject("release", transition="configure")
        await cluster.until(lambda heard: len(heard.configured) == 2, 60)
        assert len(await told(fleet, "actions", "--cluster", "told-3", "--limit", "1")) == 1
        cluster.want([])
        await cluster.send_rollup()
