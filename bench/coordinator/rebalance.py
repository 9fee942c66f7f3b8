"""A shortfall on one shard, filled from another's idle machines: how long that takes from the moment it is eligible.

Real processes: a coordinator, three shards, a provider, ten clusters. Shard s0 is full; again and again one of its
clusters needs a few machines more. Eligible is the instant at which the coordinator received the first report of that
shortfall; it is filled when the shard reports that the machines are its own, and bound when their nodes are.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench._samples import spread
from bigfleet.model.names import REFERRALS
from bigfleet.shard.rehearsal.synthetic import ALL_CAPABILITIES, Row, SyntheticOperator
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.multi_shard import MultiShard
from tools.waiting import until

FULL = 40
CLUSTERS = 10
EXTRA = 4
POD = {"cpu": "4"}
# Operators that stay where they dialled.
STAYING = ALL_CAPABILITIES - {REFERRALS}
LIMIT_MS = 400.0
BAR_MS = 5000.0


async def run(options: argparse.Namespace) -> dict[str, Any]:
    rest = (options.machines - FULL) // 2
    rebalance = ("--rebalance-interval", f"{options.interval}ms", "--rebalance-after", "0s", "--rebalance-settle", "2s")
    settings = {
        "coordinator-heartbeat-interval": f"{options.interval}ms",
        "cycle-interval": "1s",
        "early-cycle-interval": "100ms",
        "reconcile-interval": "10s",
        "incremental-reconcile": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        machines = (FULL, rest, rest)
        fleet = MultiShard(Path(folder), machines, settings=settings, rebalance=rebalance, environment={})
        try:
            fleet.start()
            await fleet.divide(600)
            wanted = dict(zip(fleet.names, machines, strict=True))
            await until(fleet.owning, lambda owned: owned == wanted, seconds=600, what="every shard owns its zone")
            filled, bound = await _trials(fleet, options)
        finally:
            fleet.stop()
    return {
        "machines": options.machines,
        "shards": len(machines),
        "clusters": CLUSTERS,
        "interval_ms": options.interval,
        "trials": len(filled),
        **{f"filled_ms_{name}": value for name, value in spread(filled).items()},
        **{f"bound_ms_{name}": value for name, value in spread(bound).items()},
        "limits": {"filled_ms_p50": LIMIT_MS, "filled_ms_max": BAR_MS},
    }


async def _trials(fleet: MultiShard, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    filled, bound = [], []
    async with AsyncExitStack() as stack:
        clusters = []
        for number in range(CLUSTERS):
            shard = fleet.names[number % len(fleet.names)]
            opened = await stack.enter_async_context(channel(fleet.addresses[shard]))
            cluster = SyntheticOperator(f"c-{number}", opened, capabilities=STAYING)
            await cluster.connect()
            stack.push_async_callback(cluster.close)
            clusters.append(cluster)
        hungry, pods = clusters[0], FULL
        for cluster in clusters[1:]:
            # Those of s0 have nothing there and ask for nothing; the others use some of theirs.
            cluster.want([] if cluster.cluster in ("c-3", "c-6", "c-9") else [Row(pods=5, unit=POD, priority=100)])
            await cluster.send_rollup()
        hungry.want([Row(pods=pods, unit=POD, priority=100)])
        await hungry.send_rollup()
        await hungry.until(lambda heard: len(heard.configured) >= FULL, 300)
        watched = await stack.enter_async_context(channel(fleet.coordinators.addresses[0]))
        stub: Any = coordinator_pb2_grpc.CoordinatorStub(watched)
        for _ in range(options.trials):
            await asyncio.sleep(4.0)
            pods += EXTRA
            hungry.want([Row(pods=pods, unit=POD, priority=100)])
            await hungry.send_rollup()
            eligible, done = await _watch(stub, pods)
            filled.append((done - eligible) / 1e6)
            await hungry.until(lambda heard, pods=pods: len(heard.configured) >= pods, 300)
            bound.append(max(0.0, (time.time_ns() - eligible) / 1e6))
    return filled, bound


async def _watch(stub: Any, machines: int) -> tuple[int, int]:
    """When the first report of the shortfall came in, and the first that says so many machines are the shard's."""
    eligible = 0
    async with asyncio.timeout(120):
        while True:
            (report,) = (await stub.ListShardReports(pb.ListShardReportsRequest(shard_id="s0"))).reports
            if report.shortfalls and not eligible:
                eligible = report.received_at_unix_ns
            if eligible and report.summary.total_machines >= machines:
                return eligible, report.received_at_unix_ns
            await asyncio.sleep(0.01)
