"""Burst: a thousand machines are asked for at once. Until the last provider call is answered, and what cycles take."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from bench.shard.fleet import ROWS, bindings
from bench.shard.running import offering, running, started

SETTINGS = {"cycle-interval": "1s"}
# What a thousand calls at once may take a provider (`bench provider`), and one cycle until they are made.
CALLS_SECONDS = 2.0 + 1.0


async def run(options: argparse.Namespace) -> dict[str, Any]:
    wanted = options.calls * options.waves
    per_cluster = options.calls // options.clusters
    waves: list[dict[str, Any]] = []
    async with running([offering("idle", "reserved", 2 * wanted, idle=True)], SETTINGS) as made:
        figures: dict[str, Any] = await started(made)
        await made.ask("connect", streams=options.clusters, connections=options.clusters)
        made.cycles()
        for number in range(1, options.waves + 1):
            waves.append(await bindings(made, number * per_cluster, number * per_cluster * options.clusters))
            await asyncio.sleep(3.0)
        figures |= made.cycles().figures()
    seconds = [each["binding_seconds"] for each in waves]
    return {
        **figures,
        "calls": per_cluster * options.clusters,
        "waves_seconds": seconds,
        "calls_seconds": max(seconds),
        "configured_seconds": max(each["configured_seconds"] for each in waves),
        "shard_cpu_seconds": max(each["binding_shard_cpu_seconds"] for each in waves),
        "provider_cpu_seconds": max(each["binding_provider_cpu_seconds"] for each in waves),
        "rows": ROWS,
        "missing_calls": wanted - waves[-1]["bindings"],
        # Cycles have no limit here: those that hand over a thousand calls are told by how long these take.
        "limits": {"calls_seconds": CALLS_SECONDS, "missing_calls": 0},
    }
