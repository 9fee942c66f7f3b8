"""Three coordinators under load and faults for as long as you like: memory and descriptors must stay what they were.

Shards report, domains and transfers change, people list; meanwhile leaders and followers are killed, frozen past their
lease and started again, etcd members are frozen, and callers hang up in the middle of calls. One replica is frozen but
never killed: what it holds at the end is compared with what it held when it was warm. Writes go on throughout, and what
was acknowledged must be there at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc

from bench.coordinator.reports import METHOD, report
from bigfleet.model.names import REDIRECT
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.coordinators import Coordinators, Writer
from tools.etcd import ETCD, KILLABLE, EtcdCluster
from tools.processes import Program

SHARDS, TYPES, SHORTFALLS = 100, 20, 10
REPORT_SECONDS = 2.0
FAULT_SECONDS = 15.0
SAMPLE_SECONDS = 2.0
# Of the last fifth against the second: what caches and tables need is there by then.
GROWTH_PERCENT = 10.0
DESCRIPTORS = 16


async def run(options: argparse.Namespace) -> dict[str, Any]:
    dice = random.Random(options.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        killable = KILLABLE.exists()
        etcd = EtcdCluster(folder / "etcd", 3, synced=killable, program=KILLABLE if killable else ETCD)
        etcd.start()
        stack.callback(etcd.stop)
        fleet = Coordinators(folder / "coordinators", etcd.endpoints, flags=("--rebalance-interval", "1s"))
        fleet.start()
        stack.callback(fleet.stop)
        writer = Writer(fleet.addresses)
        until = time.monotonic() + options.minutes * 60
        callers = [asyncio.create_task(_shard(number, fleet.addresses, until)) for number in range(SHARDS)]
        callers.append(asyncio.create_task(_lister(fleet.addresses, until)))
        writing = asyncio.create_task(writer.run())
        measured = asyncio.create_task(_measured(fleet.programs[0], until))
        kinds = ("killed", "frozen", "member_frozen", *(("member_killed",) if killable else ()))
        faults = await _faults(fleet, etcd, dice, until, dict.fromkeys(kinds, 0))
        reports = sum(await asyncio.gather(*callers))
        samples = await measured
        writer.stop()
        await writing
        missing = set(writer.acknowledged) - await writer.listed()
        await writer.close()
        terms = fleet.terms()
    warm, late = _fifth(samples, 1), _fifth(samples, 4)
    return {
        "minutes": options.minutes,
        "seed": options.seed,
        "faults": faults,
        "reports": reports,
        "writes": len(writer.acknowledged),
        "acknowledged_and_lost": len(missing),
        "terms": len(terms),
        "terms_with_two_leaders": len(terms) - len(set(terms)),
        "resident_mib": [round(warm[0], 1), round(late[0], 1)],
        "descriptors": [round(warm[1]), round(late[1])],
        "resident_growth_percent": round(100 * (late[0] / warm[0] - 1), 1),
        "descriptors_grown": round(late[1] - warm[1]),
        "limits": {
            "resident_growth_percent": GROWTH_PERCENT,
            "descriptors_grown": DESCRIPTORS,
            "acknowledged_and_lost": 0,
            "terms_with_two_leaders": 0,
        },
    }


async def _faults(
    fleet: Coordinators, etcd: EtcdCluster, dice: random.Random, until: float, done: dict[str, int]
) -> dict[str, int]:
    """One after the other, each over before the next; the first replica is spared the kills."""
    while time.monotonic() + FAULT_SECONDS < until:
        await asyncio.sleep(FAULT_SECONDS)
        kind = dice.choice(list(done))
        if kind.startswith("member"):
            program = dice.choice(etcd.members)
        else:
            # Whoever leads is frozen, so that leaderships change and every replica may be killed as a leader but one.
            program = dice.choice(fleet.programs[1:]) if kind == "killed" else fleet.leader()
        if kind.endswith("killed"):
            program.kill()
            await asyncio.sleep(1.0)
            await asyncio.to_thread(program.start)
        else:
            program.hang()
            await asyncio.sleep(7.0)
            program.go_on()
        done[kind] += 1
        print(f"{kind}: {program.name}", file=sys.stderr)
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    return done


async def _shard(number: int, addresses: list[str], until: float) -> int:
    """Reports through whoever leads; now and then it hangs up in the middle of one."""
    dice, told, at = random.Random(number), 0, addresses[number % len(addresses)]
    message = report(number, SHORTFALLS, TYPES)
    opened = channel(at)
    while time.monotonic() < until:
        message.cycle += 1
        call: Any = opened.unary_unary(METHOD)(message.SerializeToString(), timeout=5.0)
        if dice.random() < 0.02:
            call.cancel()
        try:
            answer = pb.ReportAck.FromString(await call)
            told += 1
            if answer.HasField("ownership"):
                message.ownership_version = answer.ownership.version
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            trailers: Any = error.trailing_metadata() or () if isinstance(error, grpc.aio.AioRpcError) else ()
            hint = next((str(value) for key, value in trailers if key == REDIRECT), "")
            at = hint or dice.choice(addresses)
            await opened.close(None)
            opened = channel(at)
        await asyncio.sleep(REPORT_SECONDS * (0.5 + dice.random()))
    await opened.close(None)
    return told


async def _lister(addresses: list[str], until: float) -> int:
    """A dashboard: lists everything from everybody, whoever leads."""
    while time.monotonic() < until:
        for address in addresses:
            async with channel(address) as opened:
                stub: Any = coordinator_pb2_grpc.CoordinatorStub(opened)
                with suppress(grpc.aio.AioRpcError):
                    await stub.ListShards(pb.ListShardsRequest(), timeout=5.0)
                    await stub.ListShardReports(pb.ListShardReportsRequest(), timeout=5.0)
        await asyncio.sleep(2.0)
    return 0


async def _measured(program: Program, until: float) -> list[tuple[float, int]]:
    """(MiB resident, descriptors) again and again."""
    samples = []
    while time.monotonic() < until:
        open_files = sum(1 for _ in Path(f"/proc/{program.pid}/fd").iterdir())
        samples.append((program.resident() / 2**20, open_files))
        await asyncio.sleep(SAMPLE_SECONDS)
    return samples


def _fifth(samples: list[tuple[float, int]], number: int) -> tuple[float, float]:
    """The medians of one fifth of the time."""
    size = max(1, len(samples) // 5)
    part = samples[number * size : (number + 1) * size]
    return statistics.median(each[0] for each in part), statistics.median(each[1] for each in part)
