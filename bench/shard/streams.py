"""Streams: how many a shard holds open, and what each of them costs."""

from __future__ import annotations

import argparse
from typing import Any

from bench.shard.running import MIB, offering, running, started


async def run(options: argparse.Namespace) -> dict[str, Any]:
    async with running([offering("m", "reserved", 100, idle=True)], {}) as made:
        await started(made)
        before = made.fleet.shard.resident()
        connected = await made.ask("connect", streams=options.streams, connections=options.connections)
        await made.ask("want", rows=1, machines=1)
        told = await made.ask("run", rate=options.streams / 10, changed=0.0, seconds=20.0)
        after = made.fleet.shard.resident()
        sessions = made.fleet.metric("active_sessions")
        return {
            "streams": options.streams,
            "connections": min(options.connections, options.streams),
            "sessions": int(sessions),
            "connect_seconds": round(connected["seconds"], 1),
            "resident_mib_before": round(before / MIB, 1),
            "resident_mib": round(after / MIB, 1),
            "bytes_per_stream": round((after - before) / options.streams),
            "files": made.fleet.shard.files(),
            "unchanged_ack_ms": told["ack_ms"],
            "missing_sessions": options.streams - int(sessions),
            "limits": {"missing_sessions": 0},
        }
