"""Bound: half a million machines that all serve somebody, with demand and machines that change in every cycle.

Binding so many through calls takes a quarter of an hour, so the provider begins with a state file in which they are
bound: it is the file a provider would have written. Machines change in a pool of their own that breaks and is repaired.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from bench.shard.running import MIB, Running, offering, provider_is_up, running, started
from bigfleet.model import assignment
from bigfleet.model.machine import MachineState
from bigfleet.provider.fake.control import send_command
from bigfleet.provider.kit import SqliteStore
from bigfleet.provider.kit.core.events import SaveMachine
from tools.processes import LocalFleet
from tools.waiting import until

SETTINGS = {"cycle-interval": "1s", "reconcile-interval": "1s", "incremental-reconcile": True}
SPARE = "spare"
LONGEST_SECONDS = 900.0
# What the shard may add to a cycle of the engine at this size, which has evidence of its own.
SHARD_MS = 10.0
ENGINE = Path("docs/evidence/engine/steady-500k.json")


async def run(options: argparse.Namespace) -> dict[str, Any]:
    per_cluster = options.machines // options.clusters
    offerings = [
        offering("m", "reserved", per_cluster * options.clusters, idle=True),
        offering(SPARE, "reserved", 4 * options.changes, idle=True),
    ]
    engine_ms = json.loads(ENGINE.read_text())["p99_ms"]
    async with running(offerings, SETTINGS, keep_state=True) as made:
        await asyncio.to_thread(_bind, made.fleet, options.clusters)
        made.fleet.provider.start()
        await provider_is_up(made.fleet)
        figures: dict[str, Any] = await started(made)
        await until(lambda: _listed(made), lambda n: n >= per_cluster * options.clusters, seconds=LONGEST_SECONDS)
        await made.ask("connect", streams=options.clusters, connections=options.clusters)
        await made.ask("want", rows=options.needs // options.clusters, machines=per_cluster)
        # Every cluster hears of all its machines, and says so many rows for the first time.
        await made.ask("settled", machines=per_cluster * options.clusters, seconds=LONGEST_SECONDS)
        await made.ask("run", rate=options.clusters, changed=0.0, seconds=10.0)
        made.cycles()
        changing = asyncio.create_task(_change(made, options.changes))
        told = await made.ask("run", rate=1, changed=1.0, seconds=options.seconds)
        changes = await _stopped(changing)
        figures |= {
            "machines": options.machines,
            "needs": options.needs,
            "clusters": options.clusters,
            **made.cycles().figures(),
            "ack_ms": told["ack_ms"],
            "changes_per_second": round(changes / options.seconds, 1),
            "missing_changes_share": round(max(0.0, 1 - changes / options.seconds / options.changes), 3),
            "engine_p99_ms": engine_ms,
            "resident_mib": made.resident_mib(),
            "peak_mib": round(made.fleet.shard.peak() / MIB, 1),
            "limits": {"cycle_p99_ms": engine_ms + SHARD_MS, "missing_changes_share": 0.05},
        }
    return figures


def _bind(fleet: LocalFleet, clusters: int) -> None:
    """Every machine of the fleet serves a cluster, as if it had been asked for one by one."""
    fleet.provider.stop(120.0)
    store = SqliteStore(fleet.state_file)
    whose = assignment.encode(assignment.Assignment(1, 0.0, 0.0, "", ""))
    machines = [each for each in store.load().machines if not each.id.startswith(SPARE)]
    for first in range(0, len(machines), 50_000):
        rows = [
            SaveMachine(
                structs.replace(
                    each,
                    state=MachineState.CONFIGURED,
                    cluster=f"cluster-{(first + place) % clusters:05}",
                    metadata=whose,
                )
            )
            for place, each in enumerate(machines[first : first + 50_000])
        ]
        store.write(rows)
    store.close()


async def _listed(made: Running) -> int:
    return int(await asyncio.to_thread(made.fleet.metric, "provider_machines", "p1"))


async def _change(made: Running, changes: int) -> int:
    """Half of them break and half are repaired, once a second, for ever; how many changed, when it is stopped."""
    count = 0
    began = time.monotonic()
    turn = 0
    try:
        while True:
            for do in ("break", "repair") if turn else ("break",):
                answer = await send_command(made.fleet.control, {"do": do, "offering": SPARE, "count": changes // 2})
                count += len(answer.get("machines", ()))
            turn += 1
            await asyncio.sleep(max(0.0, began + turn - time.monotonic()))
    except asyncio.CancelledError:
        return count


async def _stopped(task: asyncio.Task[int]) -> int:
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task
    return 0
