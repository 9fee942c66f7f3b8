"""A shortfall on one shard, filled from another: how long that takes from the moment it is eligible.

Real processes: a coordinator, three shards, a provider, ten clusters. Shard s0 is full; again and again one of its
clusters needs a few machines more, first of a kind that others have idle, then of one that can only be bought from
another's slots, then of one that less important pods elsewhere use. Eligible is the instant at which the coordinator
received the first report of that shortfall; it is filled when the shard reports that the machines are its own, and
bound when their nodes are. The same once more at the intervals that are the defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench._samples import spread
from bigfleet.model.names import INSTANCE_TYPE_LABEL, REFERRALS
from bigfleet.model.requirement import Operator, Requirement
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
FOUR, SLOT, BUSY = "m.four", "m.slot", "m.busy"
# Operators that stay where they dialled.
STAYING = ALL_CAPABILITIES - {REFERRALS}
LIMIT_MS = 400.0
BAR_MS = 5000.0
# What fills a shortfall, and how its figures' names begin.
PREFIXES = {"idle": "", "slots": "slots_", "preempted": "preempted_"}
KINDS = tuple(PREFIXES)
DEFAULT_REPORT_MS, DEFAULT_PLAN_MS = 10_000, 5_000


async def run(options: argparse.Namespace) -> dict[str, Any]:
    quick = await _fleet(options.machines, options.interval, options.interval, options.trials, options.kinds)
    figures: dict[str, Any] = {
        "machines": options.machines,
        "shards": 3,
        "clusters": CLUSTERS,
        "interval_ms": options.interval,
        "trials": options.trials,
    }
    for kind, samples in quick.items():
        figures |= _named(PREFIXES[kind], samples)
    if options.defaults:
        slow = await _fleet(options.machines, DEFAULT_REPORT_MS, DEFAULT_PLAN_MS, options.defaults, ("idle",))
        figures |= _named("default_intervals_", slow["idle"])
    limits = {"filled_ms_max": LIMIT_MS, "slots_filled_ms_max": BAR_MS}
    return {**figures, "limits": {name: limit for name, limit in limits.items() if name in figures}}


def _named(prefix: str, samples: tuple[list[float], list[float]]) -> dict[str, float]:
    filled, bound = samples
    named = {f"{prefix}filled_ms_{name}": value for name, value in spread(filled).items()}
    return named | {f"{prefix}bound_ms_{name}": value for name, value in spread(bound).items()}


async def _fleet(
    count: int, report_ms: int, plan_ms: int, trials: int, kinds: Sequence[str]
) -> dict[str, tuple[list[float], list[float]]]:
    rest = (count - FULL) // 2
    rebalance = ("--rebalance-interval", f"{plan_ms}ms", "--rebalance-after", "0s", "--preempt-after", "0s")
    settings = {
        "coordinator-heartbeat-interval": f"{report_ms}ms",
        "cycle-interval": "1s",
        "early-cycle-interval": "100ms",
        "reconcile-interval": "10s",
        "incremental-reconcile": True,
    }
    more = EXTRA * trials
    offerings = (
        {"name": "slots", "instance_type": SLOT, "capacity_type": "on-demand", "count": 2 * more, "zones": ["z1"]},
        {"name": "busy", "instance_type": BUSY, "capacity_type": "bare-metal", "count": more, "zones": ["z1"]}
        | {"hosts": more},
    )
    with tempfile.TemporaryDirectory() as folder:
        machines = (FULL, rest, rest)
        fleet = MultiShard(
            Path(folder), machines, settings=settings, rebalance=rebalance, environment={}, offerings=offerings
        )
        try:
            fleet.start()
            await fleet.divide(600)
            wanted = {"s0": FULL, "s1": rest + 3 * more, "s2": rest}
            await until(fleet.owning, lambda owned: owned == wanted, seconds=600, what="every shard owns its zone")
            async with AsyncExitStack() as stack:
                hungry = await _clusters(fleet, stack, more)
                watched = await stack.enter_async_context(channel(fleet.coordinators.addresses[0]))
                stub: Any = coordinator_pb2_grpc.CoordinatorStub(watched)
                return {kind: await _trials(hungry, stub, kind, trials) for kind in kinds}
        finally:
            fleet.stop()


async def _clusters(fleet: MultiShard, stack: AsyncExitStack, busy: int) -> SyntheticOperator:
    """Ten of them, at rest; the first is the one that will need more."""
    clusters = []
    for number in range(CLUSTERS):
        shard = fleet.names[number % len(fleet.names)]
        opened = await stack.enter_async_context(channel(fleet.addresses[shard]))
        cluster = SyntheticOperator(f"c-{number}", opened, capabilities=STAYING)
        await cluster.connect()
        stack.push_async_callback(cluster.close)
        clusters.append(cluster)
    for cluster in clusters[1:]:
        # Those of s0 have nothing there and ask for nothing; the others use some of theirs.
        rows = [] if cluster.cluster in ("c-3", "c-6", "c-9") else [_row(5, FOUR, priority=100)]
        cluster.want([*rows, _row(busy, BUSY, priority=1)] if cluster.cluster == "c-1" else rows)
        await cluster.send_rollup()
    await clusters[1].until(lambda heard: len(heard.configured) >= busy + 5, 300)
    hungry = clusters[0]
    hungry.want([_row(FULL, FOUR, priority=100)])
    await hungry.send_rollup()
    await hungry.until(lambda heard: len(heard.configured) >= FULL, 300)
    return hungry


async def _trials(hungry: SyntheticOperator, stub: Any, kind: str, trials: int) -> tuple[list[float], list[float]]:
    """Demand grows by a few pods of the kind, and stays."""
    before = list(hungry.demand)
    first = len(hungry.heard.configured)
    filled, bound = [], []
    for trial in range(1, trials + 1):
        await asyncio.sleep(4.0)
        pods, machines = trial * EXTRA, first + trial * EXTRA
        if kind == "idle":
            hungry.want([_row(first + pods, FOUR, priority=100)])
        else:
            hungry.demand = [*before, _row(pods, SLOT if kind == "slots" else BUSY, priority=1000).need()]
        await hungry.send_rollup()
        eligible, done = await _watch(stub, machines)
        filled.append((done - eligible) / 1e6)
        await hungry.until(lambda heard, machines=machines: len(heard.configured) >= machines, 300)
        bound.append(max(0.0, (time.time_ns() - eligible) / 1e6))
        print(f"{kind}: filled after {filled[-1]:.0f} ms, bound after {bound[-1]:.0f} ms", file=sys.stderr)
    return filled, bound


def _row(pods: int, instance_type: str, priority: int) -> Row:
    only = Requirement(INSTANCE_TYPE_LABEL, Operator.IN, (instance_type,))
    return Row(pods=pods, unit=POD, priority=priority, requirements=(only,))


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
