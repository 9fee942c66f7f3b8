"""Three coordinators under load and faults for as long as you like: memory and descriptors must stay what they were.

Shards report, machines and domains change hands, people list; the state does not grow. Meanwhile leaders and followers
are killed, frozen past their lease and started again, etcd members are frozen and killed, and callers hang up in the
middle of calls. One replica is frozen but never killed: what it holds late, as a leader and as a follower, is compared
with what it held in the same part when it was warm. Writes go on throughout; what was acknowledged must be so at the
end.
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

from bench.coordinator.moving import Moving, Reporting
from bench.coordinator.reports import METHOD
from bigfleet.model.names import REDIRECT
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.coordinators import Coordinators, Writer
from tools.etcd import ETCD, KILLABLE, EtcdCluster
from tools.processes import Program

SHARDS, MOVING, TYPES, SHORTFALLS = 100, 20, 20, 10
DOMAINS = 500
WRITE_SECONDS = 0.1
REBALANCE = ("--rebalance-interval", "1s", "--rebalance-after", "0s", "--rebalance-cooldown", "30s")
REPORT_SECONDS = 2.0
FAULT_SECONDS = 15.0
SAMPLE_SECONDS = 2.0
# Samples taken in these parts of the run are compared: what caches and tables need is there by then.
WARM, LATE = (0.2, 0.5), (0.7, 1.0)
FEWEST = 5
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
        fleet = Coordinators(folder / "coordinators", etcd.endpoints, flags=REBALANCE)
        fleet.start()
        stack.callback(fleet.stop)
        writer = Writer(fleet.addresses, values=DOMAINS, pause=WRITE_SECONDS)
        until = time.monotonic() + options.minutes * 60
        moving = [Moving(number, SHORTFALLS, TYPES) for number in range(MOVING)]
        shards = [*moving, *(Reporting(number, SHORTFALLS, TYPES) for number in range(MOVING, SHARDS))]
        callers = [
            asyncio.create_task(_shard(shard, number, fleet.addresses, until)) for number, shard in enumerate(shards)
        ]
        callers.append(asyncio.create_task(_lister(fleet.addresses, until)))
        writing = asyncio.create_task(writer.run())
        measured = asyncio.create_task(_measured(fleet.programs[0], fleet.addresses[0], until))
        kinds = ("killed", "frozen", "member_frozen", *(("member_killed",) if killable else ()))
        faults = await _faults(fleet, etcd, dice, until, dict.fromkeys(kinds, 0))
        reports = sum(await asyncio.gather(*callers))
        samples = await measured
        writer.stop()
        await writing
        wrong = set(writer.acknowledged) ^ await writer.listed()
        await writer.close()
        terms = fleet.terms()
    claimed = [machine for shard in moving for machine in shard.machines]
    parts = _compared(samples)
    return {
        "minutes": options.minutes,
        "seed": options.seed,
        "faults": faults,
        "reports": reports,
        "machines_moved": sum(shard.given for shard in moving),
        "machines_with_two_owners": len(claimed) - len(set(claimed)),
        "writes": len(writer.moments),
        "acknowledged_and_lost": len(wrong),
        "terms": len(terms),
        "terms_with_two_leaders": len(terms) - len(set(terms)),
        **parts,
        "resident_growth_percent": max(part["resident_growth_percent"] for part in parts.values()),
        "descriptors_grown": max(part["descriptors_grown"] for part in parts.values()),
        "limits": {
            "resident_growth_percent": GROWTH_PERCENT,
            "descriptors_grown": DESCRIPTORS,
            "machines_with_two_owners": 0,
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


async def _shard(shard: Reporting, number: int, addresses: list[str], until: float) -> int:
    """Reports through whoever leads; now and then it hangs up in the middle of one."""
    dice, told, at = random.Random(number), 0, addresses[number % len(addresses)]
    opened = channel(at)
    while time.monotonic() < until:
        call: Any = opened.unary_unary(METHOD)(shard.next(time.monotonic()), timeout=5.0)
        if dice.random() < 0.02:
            call.cancel()
        try:
            shard.hear(pb.ReportAck.FromString(await call))
            told += 1
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


async def _measured(program: Program, address: str, until: float) -> list[tuple[bool, float, int]]:
    """(whether it leads, MiB resident, descriptors) again and again, while it answers."""
    samples = []
    async with channel(address) as opened:
        stub: Any = coordinator_pb2_grpc.CoordinatorStub(opened)
        while time.monotonic() < until:
            code = grpc.StatusCode.OK
            try:
                await stub.ListProviders(pb.ListProvidersRequest(), timeout=1.0)
            except grpc.aio.AioRpcError as error:
                code = error.code()
            open_files = sum(1 for _ in Path(f"/proc/{program.pid}/fd").iterdir())
            if code in (grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION):
                samples.append((code is grpc.StatusCode.OK, program.resident() / 2**20, open_files))
            await asyncio.sleep(SAMPLE_SECONDS)
    return samples


def _compared(samples: list[tuple[bool, float, int]]) -> dict[str, dict[str, Any]]:
    """By part played: the medians when it was warm and late, and what came between."""
    found: dict[str, dict[str, Any]] = {}
    for name, leads in (("leading", True), ("following", False)):
        warm, late = (
            [each for each in samples[int(begin * len(samples)) : int(end * len(samples))] if each[0] is leads]
            for begin, end in (WARM, LATE)
        )
        if min(len(warm), len(late)) < FEWEST:
            continue
        resident = [round(statistics.median(each[1] for each in part), 1) for part in (warm, late)]
        descriptors = [round(statistics.median(each[2] for each in part)) for part in (warm, late)]
        found[name] = {
            "samples": [len(warm), len(late)],
            "resident_mib": resident,
            "descriptors": descriptors,
            "most_descriptors": [max(each[2] for each in part) for part in (warm, late)],
            "resident_growth_percent": round(100 * (resident[1] / resident[0] - 1), 1),
            "descriptors_grown": descriptors[1] - descriptors[0],
        }
    return found
