"""A zone fails under half of the shards: they are short of everything at once, the others have some of everything.

One real coordinator; the shards only report, let go and take. Timed are reports before the failure and after it, while
the coordinator plans and commits hundreds of moves.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

from bench._samples import spread
from bench.coordinator.moving import PROVIDER, Moving
from bench.coordinator.reports import METHOD
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import provider_pb2
from tools.coordinators import Coordinators

KINDS, OF_EACH, UNITS = 20, 3, 40
BEFORE_SECONDS = 20.0
P99_MS = 20.0
FLAGS = ("--rebalance-after", "0s", "--rebalance-interval", "1s", "--rebalance-margin", "0")
_SIZE = {"cpu": "8", "memory": "32Gi"}


class Shard(Moving):
    """Even ones lose their zone; odd ones have idle machines of every kind."""

    def __init__(self, number: int) -> None:
        super().__init__(number, 0, 0)
        self._stricken = number % 2 == 0
        kinds = range(0 if self._stricken else KINDS)
        self._home = frozenset(f"{self._id}/kind-{kind:02}/{each}" for kind in kinds for each in range(OF_EACH))

    def next(self, now: float) -> bytes:
        """`now` is 0 until the zone fails."""
        cycle, version = self._message.cycle + 1, self._message.ownership_version
        made = self._message = pb.ShardReport.FromString(self._base)
        made.cycle, made.ownership_version = cycle, version
        made.capabilities.append("arrivals")
        made.instruction_acks.extend(self._acks.values())
        self._told = tuple(self._acks)
        have: dict[str, int] = {}
        for machine in self.machines:
            kind = machine.split("/")[1]
            have[kind] = have.get(kind, 0) + 1
        for kind, count in sorted(have.items()):
            made.summary.per_instance_type_counts[kind] = count
            if not self._stricken:
                cell = made.summary.free_cells.add(instance_type=kind, zone="z", count=count, provider=PROVIDER)
                cell.state, cell.price_per_hour = provider_pb2.MACHINE_STATE_IDLE, 1.0
                cell.allocatable.update(_SIZE)
        for number in range(KINDS if self._stricken and now else 0):
            kind = f"kind-{number:02}"
            short = made.shortfalls.add(fingerprint=kind, priority=number, age_seconds=90)
            short.units = UNITS - have.get(kind, 0)
            short.min_unit.update(_SIZE)
            short.requirements.add(key="node.kubernetes.io/instance-type", operator=1, values=[kind])
        return made.SerializeToString()

    def _gives(self, machine: str, instance_type: str) -> bool:
        return machine.split("/")[1] == instance_type


class Failure:
    """The clock of it all."""

    def __init__(self) -> None:
        self.since = 0.0
        self.before: list[float] = []
        self.after: list[float] = []

    async def report(self, shard: Shard, call: Any, interval: float, first: float, until: float) -> None:
        due = time.monotonic() + first
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            failed, begin = bool(self.since), time.perf_counter()
            shard.hear(pb.ReportAck.FromString(await call(shard.next(self.since), timeout=30.0)))
            (self.after if failed else self.before).append(1000 * (time.perf_counter() - begin))
            due += interval


async def run(options: argparse.Namespace) -> dict[str, Any]:
    failure = Failure()
    shards = [Shard(number) for number in range(options.shards)]
    with tempfile.TemporaryDirectory() as folder:
        coordinators = Coordinators(Path(folder), (), replicas=1, flags=FLAGS)
        coordinators.start()
        opened: list[grpc.aio.Channel] = [channel(coordinators.addresses[0]) for _ in shards]
        program = coordinators.programs[0]
        try:
            until = time.monotonic() + BEFORE_SECONDS + options.seconds
            calls = [each.unary_unary(METHOD) for each in opened]
            reporting = [
                asyncio.create_task(
                    failure.report(shard, call, options.interval, options.interval * number / len(shards), until)
                )
                for number, (shard, call) in enumerate(zip(shards, calls, strict=True))
            ]
            await asyncio.sleep(BEFORE_SECONDS)
            failure.since, worked = time.monotonic(), program.processor_seconds()
            given = await _spread_out(shards, until)
            await asyncio.gather(*reporting)
            worked = program.processor_seconds() - worked
        finally:
            for each in opened:
                await each.close(None)
            coordinators.stop()
    claimed = [machine for shard in shards for machine in shard.machines]
    after = spread(failure.after)
    return {
        "shards": options.shards,
        "stricken": sum(shard._stricken for shard in shards),
        "shortfalls_at_once": sum(shard._stricken for shard in shards) * KINDS,
        "interval_s": options.interval,
        "report_ms_before": spread(failure.before),
        "report_ms_after": after,
        "report_p99_ms": after["p99"],
        "all_moved_after_s": round(given - failure.since, 1) if given else None,
        "machines_moved": sum(shard.given for shard in shards),
        "machines_with_two_owners": len(claimed) - len(set(claimed)),
        "leader_processor_percent": round(100 * worked / options.seconds, 1),
        "limits": {"report_p99_ms": P99_MS, "machines_with_two_owners": 0},
    }


async def _spread_out(shards: list[Shard], until: float) -> float:
    """When everything that could be given was taken; 0 when that never was so."""
    free = sum(len(shard._home) for shard in shards)
    while time.monotonic() < until:
        if sum(len(shard.machines) for shard in shards if shard._stricken) == free:
            return time.monotonic()
        await asyncio.sleep(0.1)
    return 0.0
