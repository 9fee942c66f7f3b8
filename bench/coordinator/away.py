"""Static stability: load on three shards while no coordinator runs, one restarted meanwhile; then it comes back.

Demand of nine clusters grows and shrinks within what their shards own; every growth must be bound from there. What each
shard owns is listed machine by machine: before, while the coordinator is away and one shard was restarted, and after it
came back and has planned many times. Nothing may have changed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench._samples import spread
from bigfleet.model.names import REFERRALS
from bigfleet.shard.rehearsal.synthetic import ALL_CAPABILITIES, Row, SyntheticOperator
from bigfleet.transport import channel
from bigfleet.wire import shardread_pb2, shardread_pb2_grpc
from tools.multi_shard import MultiShard
from tools.waiting import until

SHARDS, CLUSTERS = 3, 9
POD = {"cpu": "4"}
# Of what a shard owns its clusters want at most this share, so that nobody is ever short.
MOST = 0.8
BACK_SECONDS = 30.0
SETTINGS = {
    "cycle-interval": "1s",
    "early-cycle-interval": "100ms",
    "reconcile-interval": "10s",
    "incremental-reconcile": True,
    "coordinator-heartbeat-interval": "1s",
}
REBALANCE = ("--rebalance-interval", "1s", "--rebalance-after", "0s", "--preempt-after", "0s")


async def run(options: argparse.Namespace) -> dict[str, Any]:
    own = options.machines // SHARDS
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = MultiShard(Path(folder), (own,) * SHARDS, settings=SETTINGS, rebalance=REBALANCE, environment={})
        try:
            fleet.start()
            await fleet.divide(600)
            wanted = dict.fromkeys(fleet.names, own)
            await until(fleet.owning, lambda owned: owned == wanted, seconds=600, what="every shard owns its zone")
            before = await _owned(fleet)
            fleet.coordinator.kill()
            print("no coordinator from here on", file=sys.stderr)
            waits = await _load(fleet, dice, own, options.seconds / 2)
            fleet.shards["s1"].kill()
            fleet.shards["s1"].start()
            fleet.shards["s1"].told("listening")
            waits += await _load(fleet, dice, own, options.seconds / 2)
            away = await _owned(fleet)
            fleet.coordinators.start()
            await until(fleet.owning, lambda owned: owned == wanted, seconds=300, what="everybody reports again")
            waits_after = await _load(fleet, dice, own, BACK_SECONDS)
            back = await _owned(fleet)
        finally:
            fleet.stop()
    times = spread([each for each, _ in waits])
    return {
        "machines": options.machines,
        "shards": SHARDS,
        "clusters": CLUSTERS,
        "seconds_without_coordinator": options.seconds,
        "growths": len(waits),
        "machines_bound_without_coordinator": sum(machines for _, machines in waits),
        "bound_s": times,
        "machines_bound_after_return": sum(machines for _, machines in waits_after),
        "owners_changed_while_away": _changed(before, away),
        "owners_changed_after_return": _changed(before, back),
        "limits": {"owners_changed_while_away": 0, "owners_changed_after_return": 0},
    }


async def _load(fleet: MultiShard, dice: random.Random, own: int, seconds: float) -> list[tuple[float, int]]:
    """(seconds until it was bound, machines) of every growth."""
    async with AsyncExitStack() as stack:
        clusters = []
        for number in range(CLUSTERS):
            opened = await stack.enter_async_context(channel(fleet.addresses[fleet.names[number % SHARDS]]))
            cluster = SyntheticOperator(f"c-{number}", opened, capabilities=ALL_CAPABILITIES - {REFERRALS})
            await cluster.connect()
            stack.push_async_callback(cluster.close)
            clusters.append(cluster)
        ending = time.monotonic() + seconds
        most = int(MOST * own / (CLUSTERS // SHARDS))
        seeds = [random.Random(dice.random()) for _ in clusters]
        each = await asyncio.gather(
            *(_swing(cluster, most, seed, ending) for cluster, seed in zip(clusters, seeds, strict=True))
        )
        return [growth for growths in each for growth in growths]


async def _swing(cluster: SyntheticOperator, most: int, dice: random.Random, ending: float) -> list[tuple[float, int]]:
    growths = []
    pods = 0
    while time.monotonic() < ending:
        pods = min(most, pods + dice.randrange(1, max(2, most // 20))) if dice.random() < 0.8 else pods // 2
        cluster.want([Row(pods=max(1, pods), unit=POD, priority=100)])
        begin, had = time.monotonic(), len(cluster.heard.configured)
        await cluster.send_rollup()
        if pods > had:
            await cluster.until(lambda heard, pods=pods: len(heard.configured) >= pods, 300)
            growths.append((time.monotonic() - begin, pods - had))
        await asyncio.sleep(0.5 + dice.random())
    return growths


async def _owned(fleet: MultiShard) -> dict[str, frozenset[str]]:
    """By each shard's own word, the ids of what it would act on."""
    found = {}
    for name in fleet.names:
        async with channel(fleet.addresses[name]) as opened:
            stub: Any = shardread_pb2_grpc.ShardReadStub(opened)
            pages = stub.ListMachines(shardread_pb2.ListMachinesRequest())
            found[name] = frozenset([each.machine.id async for page in pages for each in page.machines if each.owned])
    return found


def _changed(before: dict[str, frozenset[str]], after: dict[str, frozenset[str]]) -> int:
    return sum(len(before[name] ^ after[name]) for name in before)
