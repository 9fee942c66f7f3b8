"""Attacks on what is said: names that change, pages that skip, reasons that are forgotten, values that mean another."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import grpc

from bigfleet.wire import capacity_pb2 as cap
from bigfleet.wire import shard_pb2, shard_pb2_grpc, shardread_pb2, shardread_pb2_grpc
from tools.attacks.cloud import CONFIGURED, IDLE, cloud
from tools.attacks.cluster import clusters, row
from tools.attacks.stage import Outcome, Shard, Stage, came, running

HELD = shard_pb2.Acknowledgement.OUTCOME_HELD


async def _read(shard: Shard, method: str, request: Any) -> list[Any]:
    async with grpc.aio.insecure_channel(shard.address) as channel:
        asked = getattr(shardread_pb2_grpc.ShardReadStub(channel), method)(request)
        if hasattr(asked, "__aiter__"):
            return [answer async for answer in asked]
        return [await asked]


async def _rails(shard: Shard, **rails: Any) -> cap.Rails:
    async with grpc.aio.insecure_channel(shard.address) as channel:
        stub = shard_pb2_grpc.ShardAdminStub(channel)
        answer = await stub.SetRails(cap.SetRailsRequest(rails=cap.Rails(**rails)))
        effective: cap.Rails = answer.effective
        return effective


async def one_id_of_two_providers(stage: Stage) -> Outcome:
    """Two providers use one id; in one life the first of them is listed first, in another the second."""
    called: list[dict[str, str]] = []
    for turn in range(2):
        async with cloud() as one, cloud() as two:
            for number, each in enumerate((one, two)):
                each.offer("m", 1, state=IDLE)
                each.machines["m-000"].instance_type = f"type-{number}"
            shard = stage.shard({"a": one.address, "b": two.address})
            late = (two, one)[turn]
            kept, late.machines = late.machines, {}
            await shard.start()
            await asyncio.sleep(2)
            late.machines = kept
            async with clusters(shard.address, ["c"]) as (cluster,):
                await cluster.want(row(2))
                assert await came(lambda: sum(each.states()[CONFIGURED] for each in (one, two)) == 2, 40)
                await asyncio.sleep(1)
                pages = await _read(shard, "ListActions", shardread_pb2.ListActionsRequest())
                called.append({view.instance_type: view.machine_id for page in pages for view in page.actions})
            shard.program.kill()
            shutil.rmtree(shard.data)
    return Outcome(called[0] == called[1], f"called {called[0]} or {called[1]}, by who was listed first")


async def pages_of_actions(stage: Stage) -> Outcome:
    """Actions are read four at a time while more of them end."""
    async with cloud() as made:
        made.offer("m", 60, state=IDLE)
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(20))
            assert await came(lambda: len(cluster.configured) == 20, 60), "twenty machines"
            seen: list[str] = []
            largest, token, wanted = 0, "", 20
            for _ in range(40):
                request = shardread_pb2.ListActionsRequest(page_size=4, limit=4, page_token=token)
                pages = await _read(shard, "ListActions", request)
                found = [view.machine_id for page in pages for view in page.actions]
                largest = max(largest, len(found))
                seen += found
                token = pages[-1].next_page_token if pages else ""
                if not token:
                    break
                wanted = min(40, wanted + 2)
                await cluster.want(row(wanted))
                await asyncio.sleep(0.6)
            views = [
                view
                for page in await _read(shard, "ListActions", shardread_pb2.ListActionsRequest())
                for view in page.actions
            ]
    twice = len(seen) - len(set(seen))
    skipped = len({f"m-{number:03}" for number in range(20)} - set(seen))
    times = sum(view.finished_at_unix_nanos > view.decided_at_unix_nanos > 0 for view in views if view.outcome)
    beats = sum(bool(view.beat) for view in views)
    return Outcome(
        not twice and not skipped and largest <= 4 and times > 0 and beats == len(views),
        f"{twice} told twice, {skipped} skipped, pages of up to {largest} instead of 4, "
        f"{times} of {len(views)} with two times, {beats} say what they beat",
    )


async def rails_after_a_restart(stage: Stage) -> Outcome:
    """A person pauses a shard and says why; it restarts."""
    async with cloud() as made:
        made.offer("m", 2, state=IDLE)
        shard = stage.shard({"p1": made.address})
        await shard.start()
        await _rails(shard, actuation_paused=True, reason="the database moves", set_by="anna")
        shard.program.kill()
        await shard.start()
        # Reading is asking for what the log and the page say.
        code, said = await asyncio.to_thread(stage.say, "rails", "--shard-addr", shard.address, command="bigfleetctl")
        if code:
            code, said = await asyncio.to_thread(stage.say, "rails", "--shard", shard.address, command="bigfleetctl")
        log = shard.program.tail(1_000_000)
        shard.program.kill()
    kept = "the database moves" in said or "the database moves" in log
    return Outcome(kept, "the reason is told after the restart" if kept else "paused, and nobody knows why")


async def errors_of_start(stage: Stage) -> Outcome:
    """Garbage instead of a journal, a journal of another shard, a folder somebody else has."""
    found = []
    shard = stage.shard({"p1": "127.0.0.1:1"})
    shard.data.mkdir()
    (shard.data / "shard.db").write_bytes(b"this is no database" * 400)
    found.append(("garbage", await asyncio.to_thread(stage.say, "shard", "--config", str(shard.config), seconds=30)))
    (shard.data / "shard.db").unlink()
    shard.program.start()
    await came(lambda: (shard.data / "shard.db").exists(), 30)
    await asyncio.sleep(2)
    found.append(("taken", await asyncio.to_thread(stage.say, "shard", "--config", str(shard.config), seconds=30)))
    shard.program.kill()
    foreign = ("shard", "--config", str(shard.config), "--id", "somebody-else")
    found.append(("foreign id", await asyncio.to_thread(stage.say, *foreign, seconds=30)))
    bad = [
        name
        for name, (code, said) in found
        if code in (0, -1) or "Traceback" in said or str(shard.data) not in said or len(said.strip().splitlines()) > 6
    ]
    return Outcome(not bad, f"not one sentence with the path: {', '.join(bad)}" if bad else "one sentence each")


async def three_of_a_resource(stage: Stage) -> Outcome:
    """Machines have three of example.com/faststorage and a pod wants three."""
    async with cloud() as made:
        made.offer("m", 2, state=IDLE, resources={"cpu": "4", "memory": "16Gi", "example.com/faststorage": "3"})
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(1, **{"example.com/faststorage": "3"}))
            served = await came(lambda: cluster.configured, 15)
    return Outcome(served, "served" if served else "three are not enough for three")


async def few_rows_collapse(stage: Stage) -> Outcome:
    """Five rows that hold twenty machines become one small one, from one report to the next."""
    async with cloud() as made:
        made.offer("m", 20, state=IDLE)
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(*(row(4, priority=number) for number in range(100, 105)))
            assert await came(lambda: len(cluster.configured) == 20, 60), "twenty machines"
            await cluster.want(row(1, priority=100))
            await asyncio.sleep(12)
            drained = len(set(cluster.drained))
    return Outcome(drained == 0, f"{drained} of 20 machines drained within 12 s of one report")


async def numbers_that_mean_nothing(stage: Stage) -> Outcome:
    """A policy of the library with NaN and with numbers below zero."""
    script = """
import sys
from bigfleet.engine.policy import Policy, VictimWeights
tries = [dict(victim=lambda v: VictimWeights(priority=v))]
tries += [{name: lambda v: v} for name in ("reclaim_hold_ns", "same_candidates", "max_actions_per_step")]
for each in tries:
    (name, make), = each.items()
    for value in (float("nan"), -1.0):
        try:
            Policy(**{name: make(value)})
            print(f"{name}={value}")
        except ValueError:
            pass
"""
    accepted = (await asyncio.to_thread(stage.run, "-c", script)).split()
    return Outcome(not accepted, f"accepted: {', '.join(accepted)}" if accepted else "refused")


async def a_stamp_out_of_range(stage: Stage) -> Outcome:
    """The library is told of two machines at once; what one of them was bound for cannot be."""
    script = """
import numpy as np
from bigfleet.engine import Engine
from bigfleet.engine.batches import Ids, MachineBatch, Shape, Stamp
from bigfleet.engine.policy import Policy
from bigfleet.model.resources import Resources
shape = Shape("p", "m", "a", 3, 1.0, 0.0, Resources({"cpu": 4000}))
none, no = np.full(2, -1, np.int32), np.zeros(2, np.int64)
for stamp in (Stamp(priority=2**70), Stamp(priority=2**31), Stamp(interruption_dollars=float("nan"))):
    ids, states, of = Ids.of(["bad", "good"]), np.array([3, 3], np.uint8), np.array([0, -1], np.int32)
    engine = Engine()
    try:
        machines = MachineBatch(ids, states, np.zeros(2, np.int32), none, of, no, (shape,), (), (stamp,))
        engine.step(machines, None, Policy(), 10**18)
    except Exception as error:
        print(type(error).__name__, end=" ")
        continue
    print("-".join(name for name in ("bad", "good") if engine.machine(name)), end=" ")
"""
    known = (await asyncio.to_thread(stage.run, "-c", script)).split()
    return Outcome(known == ["good"] * 3, f"known afterwards: {', '.join(known)}")


async def explained(stage: Stage) -> Outcome:
    """A need for 70,000 machines nobody has: how many are missing?"""
    async with cloud() as made:
        made.offer("m", 2, state=IDLE)
        async with running(stage, made, compiled=True) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(70_000))
            await asyncio.sleep(5)
            request = shardread_pb2.ExplainRequest(cluster_id="c")
            answer = (await asyncio.wait_for(_read(shard, "Explain", request), 200))[0]
            found = [each.remedy.add_supply.count for each in answer.explanations]
            search = [each.search for each in answer.explanations]
    return Outcome(found == [69_998], f"says that {found} more machines would help, search {search}")


ATTACKS = {
    "one id of two providers": one_id_of_two_providers,
    "pages of actions while more end": pages_of_actions,
    "rails after a restart": rails_after_a_restart,
    "errors of start": errors_of_start,
    "three of a resource": three_of_a_resource,
    "few rows that collapse": few_rows_collapse,
    "numbers that mean nothing": numbers_that_mean_nothing,
    "a stamp out of range": a_stamp_out_of_range,
    "a need for 70,000 machines": explained,
}
