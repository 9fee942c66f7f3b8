"""Attacks that cost money: what is bought twice, what is not bought, what is thrown away, what is counted wrong."""

from __future__ import annotations

import asyncio
import shutil
import time

from bigfleet.wire import provider_pb2 as pb
from tools.attacks.cloud import CONFIGURED, FAILED, IDLE, cloud
from tools.attacks.cluster import clusters, row
from tools.attacks.stage import Outcome, Stage, came, running


async def invisible_machines(stage: Stage) -> Outcome:
    """Create is acknowledged, then nobody knows the machine for twelve seconds; four are wanted."""
    async with cloud() as made:
        made.offer("m", 60)
        made.invisible_seconds = 12.0
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(4))
            served = await came(lambda: len(cluster.configured) >= 4, 60)
            await asyncio.sleep(3)
            hosts = sum(machine.HasField("host") for machine in made.machines.values())
    return Outcome(
        hosts == 4 and served, f"{hosts} machines bought for a need of 4; {'served' if served else 'not served'}"
    )


async def create_not_found(stage: Stage) -> Outcome:
    """Create answers NOT_FOUND for every slot of the cheap type; another one would do."""
    async with cloud() as made:
        made.offer("cheap", 3, price=1.0)
        made.offer("dear", 3, price=3.0)
        made.unknown = {f"cheap-{number:03}" for number in range(3)}
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(1))
            served = await came(lambda: len(cluster.configured) >= 1, 30)
            calls = made.calls["create"]
    how = "another type served it" if served else "nobody was served in 30 s"
    return Outcome(served and calls <= 8, f"{calls} Creates, {how}")


async def sold_out(stage: Stage) -> Outcome:
    """The cheap type is sold out in the provider's own words; a dearer one is there."""
    async with cloud() as made:
        made.offer("cheap", 10, price=1.0)
        made.offer("dear", 10, price=3.0)
        made.sold_out = {"cheap"}
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(3))
            began = time.monotonic()
            served = await came(lambda: len(cluster.configured) >= 3, 120)
            took = time.monotonic() - began
    return Outcome(served, f"served by the dearer type after {took:.0f} s" if served else "not served in 120 s")


async def limited_without_a_word(stage: Stage) -> Outcome:
    """The provider takes a call a second and refuses all others with a bare RESOURCE_EXHAUSTED; 20 are wanted."""
    async with cloud() as made:
        made.offer("cheap", 40, price=1.0)
        made.offer("dear", 40, price=3.0)
        made.calls_per_second = 1.0
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(20))
            began = time.monotonic()
            await came(lambda: len(cluster.configured) >= 20, 90)
            took, served = time.monotonic() - began, len(cluster.configured)
            dear = sum(each.HasField("host") and each.instance_type == "dear" for each in made.machines.values())
    refused = sum(made.refused.values())
    return Outcome(
        served >= 20 and not dear and refused <= 120,
        f"{served} of 20 served after {took:.0f} s, {dear} of them dear, {refused} calls refused",
    )


async def late_answers(stage: Stage) -> Outcome:
    """Every call is applied at once and answered after 45 s, later than anybody waits; ten are wanted."""
    async with cloud() as made:
        made.offer("m", 20)
        made.late_seconds = 45.0
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(10))
            began = time.monotonic()
            await came(lambda: len(cluster.configured) >= 10, 90)
            took, served = time.monotonic() - began, len(cluster.configured)
    return Outcome(served >= 10 and took < 30, f"{served} of 10 served after {took:.0f} s")


async def lost_data_directory(stage: Stage) -> Outcome:
    """The shard dies and loses its folder; afterwards a node must go and the rest must stay."""
    async with cloud() as made:
        made.offer("m", 12)
        shard = stage.shard({"p1": made.address})
        await shard.start()
        async with clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(4))
            assert await came(lambda: len(cluster.configured) == 4, 60), "four machines at the beginning"
        shard.program.kill()
        shutil.rmtree(shard.data)
        bought = made.calls["create"]
        await shard.start()
        async with clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(2))
            gone = await came(lambda: made.states()[CONFIGURED] == 2, 45)
            await asyncio.sleep(5)
            states, more = made.states(), made.calls["create"] - bought
        shard.program.kill()
    refused = sum(made.refused.values())
    return Outcome(
        gone and refused == 0 and more == 0,
        f"{refused} calls fenced by its own past, {states[CONFIGURED]} of 2 nodes left, {more} bought again",
    )


async def lower_epoch(stage: Stage) -> Outcome:
    """The provider has seen a newer token of this shard for every machine, and demand has gone away."""
    async with cloud() as made:
        made.offer("m", 20)
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(4))
            assert await came(lambda: len(cluster.configured) == 4, 60), "four machines at the beginning"
            bought = made.calls["create"]
            for machine in made.machines:
                made.fence("shard-0", machine, 2**62)
            await cluster.want(row(2))
            await asyncio.sleep(15)
            await cluster.want(row(6))
            await asyncio.sleep(20)
            attempts = sum(made.refused.values())
            ready, why = await asyncio.to_thread(shard.page, "/readyz")
            failed = [state for state in cluster.nodes.values() if state == FAILED]
            alive = (await asyncio.to_thread(shard.page, "/healthz"))[0] == 200
    told = "newer token" in why or "fence" in why.lower() or "epoch" in why
    stopped = attempts <= 8 and not failed
    return Outcome(
        stopped and told and ready != 200 and alive and made.calls["create"] - bought <= 8,
        f"{attempts} calls against the fence in 35 s, {len(failed)} nodes called Failed, "
        f"/readyz {ready}{' says why' if told else ' says nothing of it'}",
    )


async def dollars(stage: Stage) -> Outcome:
    """One node is Failed and the cloud still bills it, of another the host is gone: what does the gauge say?"""
    async with cloud() as made:
        made.offer("m", 4, price=2.0)
        made.offer("spare", 1, state=IDLE, price=7.0, resources={"cpu": "1"})
        reserved = pb.CAPACITY_TYPE_RESERVED
        made.offer("promised", 2, price=5.0, resources={"cpu": "1"}, capacity_type=reserved)
        settings = {"idle_hold_on_demand": "10m", "machine_backoff": "10m"}
        async with running(stage, made, **settings) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(3))
            assert await came(lambda: len(cluster.configured) == 3, 60), "three machines"
            broken, gone = (made.machines[name] for name in cluster.configured[:2])
            for each in (broken, gone):
                each.state, each.last_error = pb.MACHINE_STATE_FAILED, "the kernel is gone"
            gone.ClearField("host")
            await cluster.want(row(1))
            await asyncio.sleep(6)
            paid, gauge = made.billed(), await asyncio.to_thread(shard.metric, "dollars_per_hour")
    equal = gauge is not None and abs(gauge - paid) < 0.01
    return Outcome(equal, f"the cloud bills ${paid:.2f}/h, the gauge says {gauge}")


ATTACKS = {
    "machines that are not visible yet": invisible_machines,
    "Create answers NOT_FOUND": create_not_found,
    "sold out in the provider's words": sold_out,
    "a limit on calls without a word": limited_without_a_word,
    "answers that come late": late_answers,
    "the data directory is lost": lost_data_directory,
    "a newer token is known": lower_epoch,
    "dollars that are paid": dollars,
}
