"""Rate: the most roll-ups per second that a shard takes without falling behind, unchanged and changed ones."""

from __future__ import annotations

import argparse
from typing import Any

from bench.shard.load import received
from bench.shard.running import Running, offering, running, started

RATES = (500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000)
# A shard that keeps up has read what was sent; the rest was superseded before anybody looked at it.
READ_SHARE = 0.98
# A changed roll-up is acknowledged by a decision, of which there is one per second.
SLOWEST_ACK_MS = {"unchanged": 500.0, "changed": 3000.0}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    async with running([offering("m", "reserved", 10_000, idle=True)], {}) as made:
        await started(made)
        await made.ask("connect", streams=options.streams, connections=100)
        await made.ask("want", rows=options.rows, machines=options.rows)
        wanted = min(10_000, options.rows * options.streams)
        await made.ask("settled", machines=wanted, seconds=900.0)
        found: dict[str, Any] = {"streams": options.streams, "rows": options.rows, "limits": {}}
        for name, changed in (("unchanged", 0.0), ("changed", 1.0)):
            found[f"{name}_per_second"], found[f"{name}_tried"] = await _highest(made, name, changed, options.seconds)
    return found


async def _highest(made: Running, name: str, changed: float, seconds: float) -> tuple[float, list[dict[str, Any]]]:
    """Faster and faster until something gives way."""
    best, tried = 0.0, []
    for rate in RATES:
        before, worked = received(made.fleet.metrics()), made.fleet.shard.processor_seconds()
        told = await made.ask("run", rate=rate, changed=changed, seconds=seconds)
        read = received(made.fleet.metrics()) - before
        worked = made.fleet.shard.processor_seconds() - worked
        kept_up = read >= READ_SHARE * told["sent"] and told["ack_ms"]["p99"] <= SLOWEST_ACK_MS[name]
        tried.append(
            {
                "rate": rate,
                "sent_per_second": round(told["sent_per_second"]),
                "read_share": round(read / max(1, told["sent"]), 3),
                "ack_ms": told["ack_ms"],
                "shard_processor_share": round(worked / seconds, 2),
                "operators_processor_share": round(told["processor_share"], 2),
                "sustained": kept_up,
            }
        )
        if kept_up:
            best = max(best, round(told["sent_per_second"]))
        if not kept_up or told["sent_per_second"] < 0.9 * rate:
            break
    return best, tried
