"""Load: so many streams and roll-ups per second over a fleet of which nearly everything is bound."""

from __future__ import annotations

import argparse
from typing import Any

from bench.shard.running import Running, offering, running, started

# One in ten stays free, so that a changed row never has to wait for supply.
BOUND_SHARE = 0.9
SETTLE_SECONDS = 900.0


async def run(options: argparse.Namespace) -> dict[str, Any]:
    per_cluster = int(options.machines * BOUND_SHARE / options.streams)
    async with running([offering("m", "reserved", options.machines, idle=True)], {}) as made:
        figures: dict[str, Any] = await started(made)
        figures |= {"connect_seconds": (await made.ask("connect", streams=options.streams, connections=100))["seconds"]}
        await made.ask("want", rows=options.rows, machines=per_cluster)
        settled = await made.ask("settled", machines=per_cluster * options.streams, seconds=SETTLE_SECONDS)
        figures |= {"bound_machines": settled["machines"], "binding_seconds": round(settled["seconds"], 1)}
        # What follows a wave of bindings is not what this is about.
        await made.ask("run", rate=options.rate, changed=options.changed, seconds=10.0)
        all_changed = await _timed(made, options.rate, 1.0, min(options.seconds, 30.0))
        figures |= {
            "streams": options.streams,
            "rows": options.rows,
            "machines": options.machines,
            **await _timed(made, options.rate, options.changed, options.seconds),
            # Beside it: every single roll-up says something new.
            "all_changed": all_changed,
            "all_changed_cycle_p99_ms": all_changed["cycle_p99_ms"],
            "all_changed_missing_share": all_changed["missing_roll_up_share"],
            "resident_mib": made.resident_mib(),
            "limits": {
                "cycle_p99_ms": 100.0,
                "missing_roll_up_share": 0.01,
                "all_changed_cycle_p99_ms": 100.0,
                "all_changed_missing_share": 0.01,
            },
        }
    return figures


async def _timed(made: Running, rate: int, changed: float, seconds: float) -> dict[str, Any]:
    made.cycles()
    worked, before = made.fleet.shard.processor_seconds(), received(made.fleet.metrics())
    told = await made.ask("run", rate=rate, changed=changed, seconds=seconds)
    cycles = made.cycles()
    return {
        "changed_share": changed,
        "seconds": seconds,
        "sent_per_second": round(told["sent_per_second"], 1),
        "read_share": round((received(made.fleet.metrics()) - before) / max(1, told["sent"]), 3),
        "missing_roll_up_share": round(max(0.0, 1 - told["sent_per_second"] / rate), 3),
        "ack_ms": told["ack_ms"],
        # Nothing has to be decided for these: how responsive the streams are while steps run.
        "unchanged_ack_ms": told["unchanged_ack_ms"],
        **cycles.figures(),
        "shard_processor_share": round((made.fleet.shard.processor_seconds() - worked) / told["seconds"], 2),
        "operators_processor_share": round(told["processor_share"], 2),
    }


def received(metrics: dict[tuple[str, ...], float]) -> float:
    return sum(value for key, value in metrics.items() if key[0] == "rollups_received_total")
