"""Thousands of shards that report: what the leader pays for it, and how long a report takes.

Every shard is short of units that fit on nobody's machines, and everybody has free ones: the planner looks at all of it
and moves nothing, so the figures hold for a fleet in trouble.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc

from bench._samples import spread
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import provider_pb2
from tools.coordinators import Coordinators

METHOD = "/bigfleet.v1alpha1.Coordinator/ReportShard"
CONNECTIONS = 40
PROCESSOR_PERCENT = 50.0
P99_MS = 20.0


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        coordinators = Coordinators(Path(folder), (), replicas=1)
        coordinators.start()
        program = coordinators.programs[0]
        channels = [channel(coordinators.addresses[0]) for _ in range(CONNECTIONS)]
        try:
            shards = [Reporting(number, options, channels[number % CONNECTIONS]) for number in range(options.shards)]
            begun = time.monotonic()
            for begin in range(0, len(shards), 200):
                await asyncio.gather(*(shard.report() for shard in shards[begin : begin + 200]))
            registered = time.monotonic() - begun
            for begin in range(0, len(shards), 200):
                await asyncio.gather(*(shard.report() for shard in shards[begin : begin + 200]))
            samples: list[float] = []
            # The reporters' own collections are no part of the figure.
            gc.disable()
            processor, wall = program.processor_seconds(), time.monotonic()
            until = wall + options.seconds
            tasks = [asyncio.create_task(shard.run(until, samples)) for shard in shards]
            await asyncio.gather(*tasks)
            spent = program.processor_seconds() - processor
            lasted = time.monotonic() - wall
            resident = program.resident()
        finally:
            for each in channels:
                await each.close(None)
            coordinators.stop()
    times = spread([each * 1000 for each in samples])
    return {
        "shards": options.shards,
        "interval_s": options.interval,
        "report_bytes": shards[0].size,
        "registered_all_s": round(registered, 2),
        "reports": len(samples),
        "reports_failed": sum(len(shard.failures) for shard in shards),
        "failures": dict(Counter(each for shard in shards for each in shard.failures)),
        "reports_per_s": round(len(samples) / lasted, 1),
        "leader_processor_percent": round(100 * spent / lasted, 1),
        "report_ms": times,
        "report_p99_ms": times["p99"],
        "resident_mib": round(resident / 2**20, 1),
        "limits": {"leader_processor_percent": PROCESSOR_PERCENT, "report_p99_ms": P99_MS, "reports_failed": 0},
    }


class Reporting:
    """One shard, cheaply: the report is built once, only its cycle and table version change."""

    def __init__(self, number: int, options: argparse.Namespace, opened: grpc.aio.Channel) -> None:
        self._message = report(number, options.shortfalls, options.types)
        self._call: Any = opened.unary_unary(METHOD)
        self._interval = options.interval
        self._offset = options.interval * number / options.shards
        self.size = self._message.ByteSize()
        self.failures: list[str] = []

    async def report(self) -> None:
        self._message.cycle += 1
        answer = pb.ReportAck.FromString(await self._call(self._message.SerializeToString(), timeout=30.0))
        if answer.HasField("ownership"):
            self._message.ownership_version = answer.ownership.version

    async def run(self, until: float, samples: list[float]) -> None:
        due = time.monotonic() + self._offset
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            begin = time.perf_counter()
            try:
                await self.report()
            except grpc.aio.AioRpcError as error:
                self.failures.append(f"{error.code().name}: {error.details()}")
            samples.append(time.perf_counter() - begin)
            due += self._interval


def report(number: int, shortfalls: int, types: int) -> pb.ShardReport:
    made = pb.ShardReport(
        shard_id=f"shard-{number:05d}",
        shard_epoch=1,
        shard_address=f"shard-{number:05d}.example:7780",
        capabilities=("ownership-table", "transfers", "rails"),
        providers=("aws-eu",),
    )
    summary = made.summary
    summary.total_machines, summary.free_machines = 500_000, 40
    for each in range(types):
        kind = f"type-{each:02d}"
        cell = summary.free_cells.add(
            instance_type=kind,
            zone=f"zone-{number % 30}",
            state=provider_pb2.MACHINE_STATE_IDLE,
            count=2,
            price_per_hour=1.0 + each,
            provider="aws-eu",
        )
        cell.allocatable.update({"cpu": "32", "memory": "128Gi"})
        summary.per_instance_type_counts[kind] = 500_000 // types
    for each in range(shortfalls):
        short = made.shortfalls.add(
            fingerprint=f"p=100|ipb=3|rpb=1|reqs=node.kubernetes.io/instance-type:In:type-{each:02d};|spr=",
            priority=100 * each,
            age_seconds=90,
            units=5,
        )
        short.min_unit.update({"cpu": "64", "memory": "64Gi"})
        short.deficit.resources.update({"cpu": "320", "memory": "320Gi"})
        short.requirements.add(key="node.kubernetes.io/instance-type", operator=1, values=[f"type-{each:02d}"])
    return made
