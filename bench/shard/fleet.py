"""Fleet: a provider with half a million machines. Cold start, memory, steady cycles, a burst of bindings, scrapes."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from bench._samples import percentile
from bench.shard.running import MIB, Running, offering, running, started
from tools.waiting import until

# Cycles come once a second here, so that a minute has enough of them for a percentile.
SETTINGS = {"cycle-interval": "1s"}
ROWS = 100
LONGEST_SECONDS = 300.0
CONFIGURED = ("provider_rpc_duration_seconds_count", "Configure", "p1")
SCRAPES = 20
# What the engine issue allows a cycle at this size, and what the shard may add.
ENGINE_P99_MS = 10.0
SHARD_MS = 10.0


async def run(options: argparse.Namespace) -> dict[str, Any]:
    idle = max(2 * options.bindings, options.machines // 10)
    slots = options.machines - idle
    offerings = [
        offering("idle", "reserved", idle, idle=True),
        offering("slots", "on-demand", slots // 2, idle=False),
        offering("spot", "spot", slots - slots // 2, idle=False),
    ]
    per_cluster = options.bindings // options.clusters
    async with running(offerings, SETTINGS) as made:
        figures: dict[str, Any] = await started(made)
        listed = await until(lambda: _listed(made), lambda count: count >= options.machines, seconds=LONGEST_SECONDS)
        figures |= {
            "machines": options.machines,
            "provider_mib": round(made.fleet.provider.resident() / MIB, 1),
            "resident_mib": made.resident_mib(),
            "peak_mib": round(made.fleet.shard.peak() / MIB, 1),
            "listed_machines": listed,
        }
        await made.ask("connect", streams=options.clusters, connections=options.clusters)
        figures |= await bindings(made, per_cluster, per_cluster * options.clusters)
        # A rest and not a wait: what still follows a wave of bindings is not what the cycles below are about.
        await asyncio.sleep(15.0)
        made.cycles()
        told = await made.ask("run", rate=options.clusters, changed=0.1, seconds=options.seconds)
        cycles = made.cycles()
        figures |= {
            **cycles.figures(),
            "ack_ms": told["ack_ms"],
            **_scrapes(made),
            "resident_mib_after": made.resident_mib(),
            "peak_mib_after": round(made.fleet.shard.peak() / MIB, 1),
        }
    missing = per_cluster * options.clusters - figures["bindings"]
    figures |= {
        "missing_bindings": missing,
        "limits": {
            "ready_seconds": 60.0,
            "peak_mib_after": 1024.0,
            "binding_seconds": 10.0,
            "missing_bindings": 0,
            "cycle_p99_ms": ENGINE_P99_MS + SHARD_MS,
            "scrape_p50_ms": 50.0,
        },
    }
    return figures


async def _listed(made: Running) -> int:
    """By a gauge that is published once a second."""
    return int(await asyncio.to_thread(made.fleet.metric, "provider_machines", "p1"))


async def bindings(made: Running, per_cluster: int, wanted: int) -> dict[str, Any]:
    """All at once: until every Configure was answered, and until the Lists have shown every machine Configured."""
    began, worked = time.monotonic(), _worked(made)
    await made.ask("want", rows=ROWS, machines=per_cluster)
    while (made_calls := await asyncio.to_thread(made.fleet.metric, *CONFIGURED)) < wanted:
        if time.monotonic() - began > LONGEST_SECONDS:
            break
        await asyncio.sleep(0.1)
    executed = time.monotonic() - began
    cpu = {f"binding_{name}_cpu_seconds": round(now - worked[name], 2) for name, now in _worked(made).items()}
    settled = await made.ask("settled", machines=wanted, seconds=LONGEST_SECONDS)
    return {
        "bindings": settled["machines"],
        "binding_calls": int(made_calls),
        "binding_seconds": round(executed, 2),
        "configured_seconds": round(time.monotonic() - began, 2),
        **cpu,
    }


def _worked(made: Running) -> dict[str, float]:
    """On a busy machine the honest half of a wall time."""
    fleet = made.fleet
    return {"shard": fleet.shard.processor_seconds(), "provider": fleet.provider.processor_seconds()}


def _scrapes(made: Running) -> dict[str, Any]:
    times, size = [], 0
    for _ in range(SCRAPES):
        began = time.monotonic()
        _, text = made.fleet.page("/metrics")
        times.append((time.monotonic() - began) * 1000)
        size = len(text)
    return {
        "scrape_p50_ms": percentile(times, 0.5),
        "scrape_max_ms": percentile(times, 1.0),
        "scrape_bytes": size,
    }
