"""Crowd: one cluster sends a roll-up of very many rows that differ in everything; how long another one waits meanwhile.

The other asks for a few machines just after it, again and again, while the crowd's roll-up is read, decided about,
changed and decided about again. What counts is the time from its roll-up to the last of its machines Configured.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import suppress
from typing import Any

import grpc

from bench._samples import percentile
from bench.shard.running import offering, running, started
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.shard.rehearsal.synthetic import Row, SyntheticOperator
from bigfleet.wire import capacity_pb2

UNIT = {"cpu": "2", "memory": "4Gi"}
CYCLE_SECONDS = 10.0
# What a cluster may wait beyond one cycle because of another one.
ALLOWED_SECONDS = 2.0
ROUNDS = 6
MACHINES = 5
PAUSE_SECONDS = 3.0
LONGEST_SECONDS = 300.0


async def run(options: argparse.Namespace) -> dict[str, Any]:
    machines = 2 * MACHINES * ROUNDS + 100
    async with running([offering("m", "reserved", machines, idle=True)], {}) as made:
        figures: dict[str, Any] = await started(made)
        async with (
            grpc.aio.insecure_channel(made.fleet.address) as one,
            grpc.aio.insecure_channel(made.fleet.address) as other,
        ):
            crowd, small = SyntheticOperator("crowd", one), SyntheticOperator("small", other)
            await small.connect()
            alone = [await _bound(small, MACHINES * (number + 1)) for number in range(2)]
            await crowd.connect()
            made.cycles()
            waits, decided = [], []
            for number in range(ROUNDS):
                crowd.want(_rows(options.rows, number, options.profiles))
                began, heard = time.monotonic(), len(crowd.heard.acks)
                await crowd.send_rollup()
                telling = asyncio.create_task(_told(crowd, heard, began))
                await asyncio.sleep(PAUSE_SECONDS * number / ROUNDS)
                waits.append(await _bound(small, MACHINES * (number + 3)))
                decided.append(await telling)
            cycles = made.cycles()
            for each in (crowd, small):
                with suppress(Exception):
                    await each.close()
        figures |= {
            "crowd_rows": options.rows,
            "crowd_profiles": options.profiles,
            "alone_seconds": round(max(alone), 2),
            "bound_p50_seconds": percentile(waits, 0.5),
            "bound_max_seconds": round(max(waits), 2),
            "crowd_acknowledged_seconds": [round(each, 2) for each in decided],
            **cycles.figures(),
            "resident_mib": made.resident_mib(),
            "peak_mib": round(made.fleet.shard.peak() / 2**20, 1),
            "limits": {"bound_max_seconds": CYCLE_SECONDS + ALLOWED_SECONDS},
        }
    return figures


def _rows(count: int, turn: int, profiles: int) -> list[capacity_pb2.CapacityNeed]:
    """No two alike, none to be served by what there is; in every turn some others."""
    made = []
    for number in range(count):
        value = f"v{number % profiles}-{turn}"
        made.append(
            Row(
                pods=1,
                unit=UNIT,
                priority=number % 1000,
                requirements=(Requirement("example.com/crowd", Operator.IN, (value,)),),
                group=f"g{number}" if profiles < count else "",
            ).need()
        )
    return made


async def _bound(operator: SyntheticOperator, wanted: int) -> float:
    """Ask for so many machines in all; seconds until the last of them is Configured."""
    operator.want([Row(pods=wanted, unit=UNIT, priority=10)])
    began = time.monotonic()
    await operator.send_rollup()
    await operator.until(lambda heard: len(heard.configured) >= wanted, LONGEST_SECONDS, f"{wanted} machines")
    return time.monotonic() - began


async def _told(operator: SyntheticOperator, heard: int, began: float) -> float:
    await operator.until(lambda each: len(each.acks) > heard, LONGEST_SECONDS, "an acknowledgement")
    return time.monotonic() - began
