"""Attacks on what is said: names that change, pages that skip, reasons that are forgotten, values that mean another."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import grpc

from bigfleet.wire import capacity_pb2 as cap
from bigfleet.wire import (
    coordinator_pb2,
    coordinator_pb2_grpc,
    shard_pb2,
    shard_pb2_grpc,
    shardread_pb2,
    shardread_pb2_grpc,
)
from tools.attacks.cloud import CONFIGURED, IDLE, cloud
from tools.attacks.cluster import clusters, row
from tools.attacks.stage import Outcome, Shard, Stage, came, running
from tools.small_disk import small_disk

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


class _Coordinator(coordinator_pb2_grpc.CoordinatorServicer):
    """Holds one switch, and gives the shard everything."""

    def __init__(self) -> None:
        self.paused = True
        self.heard = 0

    async def ReportShard(self, request: Any, context: Any) -> Any:  # noqa: N802  the contract's name
        self.heard += 1
        table = coordinator_pb2.OwnershipTable(version=1, coordinator_term=1, default_shard_id=request.shard_id)
        rails = cap.Rails(actuation_paused=self.paused, reason="the coordinator's", set_by="fleet")
        return coordinator_pb2.ReportAck(coordinator_term=1, acknowledged=True, ownership=table, rails=rails)


async def two_switches(stage: Stage) -> Outcome:
    """A person pauses a shard that its coordinator has paused too; the coordinator lets go, and nobody else does."""
    fleet = _Coordinator()
    server = grpc.aio.server()
    coordinator_pb2_grpc.add_CoordinatorServicer_to_server(fleet, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with cloud() as made:
        made.offer("m", 4, state=IDLE)
        shard = stage.shard({"p1": made.address}, coordinator_addr=address, coordinator_heartbeat_interval="1s")
        shard.program.start()
        assert await came(lambda: fleet.heard > 2, 120), "the shard reports"
        await _rails(shard, actuation_paused=True, reason="the database moves", set_by="anna")
        async with clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(1))
            fleet.paused, heard = False, fleet.heard
            assert await came(lambda: fleet.heard > heard + 3, 60), "the coordinator was heard"
            bound = await came(lambda: cluster.configured, 10)
            # And the other way: the person lets go while the coordinator holds.
            fleet.paused, heard = True, fleet.heard
            assert await came(lambda: fleet.heard > heard + 3, 60), "the coordinator was heard"
            await _rails(shard, actuation_paused=False, set_by="anna")
            before = len(cluster.configured)
            await cluster.want(row(3))
            more = await came(lambda: len(cluster.configured) > before, 10)
            fleet.paused = False
            free = await came(lambda: len(cluster.configured) == 3, 40)
        shard.program.kill()
    await server.stop(0)
    how = [
        f"{'acted' if bound else 'held'} when the coordinator let go of the person's pause",
        f"{'acted' if more else 'held'} when the person let go of the coordinator's",
        "acted when both had let go" if free else "never acted again",
    ]
    return Outcome(not bound and not more and free, ", ".join(how))


async def a_full_disk(stage: Stage) -> Outcome:
    """The disk under the data directory is full when the shard starts, and fills up while it runs."""
    with small_disk(stage.folder / "disk", "4m") as disk:
        if disk is None:
            return Outcome(None, "this user may not make a disk of its own")
        async with cloud() as made:
            made.offer("m", 40, state=IDLE)
            shard = stage.shard({"p1": made.address}, data_dir=str(disk.path / "data"))
            shard.program.argv[:0] = disk.prefix
            disk.fill()
            shard.program.start()
            await came(lambda: not shard.program.alive, 60)
            at_start = shard.program.tail(1_000_000)
            disk.free()
            began = len(shard.program.tail(1_000_000))
            await shard.start()
            async with clusters(shard.address, ["c"]) as (cluster,):
                await cluster.want(row(2))
                assert await came(lambda: len(cluster.configured) == 2, 60), "two machines"
                disk.fill()
                await cluster.want(row(40))
                ended = await came(lambda: not shard.program.alive, 60)
            running_out = shard.program.tail(1_000_000)[began:]
    found = {"full at the start": at_start, "full while it runs": running_out}
    bad = [name for name, said in found.items() if "Traceback" in said or str(disk.path) not in said]
    told = f"not one sentence with the path: {', '.join(bad)}" if bad else "one sentence each"
    return Outcome(not bad and ended, told if ended else f"{told}; it went on without its journal")


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


async def a_spread_explained(stage: Stage) -> Outcome:
    """One machine in zone a and four in zone b, five wanted, spread with a skew of one: how many more would help?"""
    async with cloud() as made:
        made.offer("a", 1, state=IDLE)
        made.offer("b", 4, state=IDLE)
        for name, machine in made.machines.items():
            machine.zone = f"zone-{name[0]}"
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            wanted = row(5)
            wanted.spread.add(topology_key="topology.kubernetes.io/zone", max_skew=1, when_unsatisfiable=1)
            await cluster.want(wanted)
            assert await came(lambda: len(cluster.configured) == 3, 60), "three machines"
            request = shardread_pb2.ExplainRequest(cluster_id="c")
            answer = (await asyncio.wait_for(_read(shard, "Explain", request), 200))[0]
            found = [each.remedy.add_supply.count for each in answer.explanations]
    return Outcome(found == [1], f"says that {found} more machines would help, where one does")


ATTACKS = {
    "one id of two providers": one_id_of_two_providers,
    "pages of actions while more end": pages_of_actions,
    "rails after a restart": rails_after_a_restart,
    "two switches": two_switches,
    "errors of start": errors_of_start,
    "a full disk": a_full_disk,
    "three of a resource": three_of_a_resource,
    "few rows that collapse": few_rows_collapse,
    "numbers that mean nothing": numbers_that_mean_nothing,
    "a stamp out of range": a_stamp_out_of_range,
    "a need for 70,000 machines": explained,
    "a spread that lacks one machine": a_spread_explained,
}
