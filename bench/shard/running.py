"""A shard, a provider and an operator process for a benchmark, and what the shard says about itself meanwhile."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench._samples import percentile, spread
from bigfleet.provider.fake.control import send_command
from tools.processes import LocalFleet
from tools.waiting import until

MIB = 2**20
PHASES = ("merging", "snapread", "phase1", "phase2", "phase3", "emit", "execute")
ANSWER_SECONDS = 1200.0
PROVIDER_SECONDS = 600.0


def offering(name: str, capacity: str, count: int, *, idle: bool) -> dict[str, Any]:
    """Equal machines of 2 cpu and 8Gi in three zones; hosts that exist, or slots to buy."""
    risk = {"interruption_probability": 0.05} if capacity == "spot" else {}
    return {
        "name": name,
        "instance_type": f"{name}.large",
        "capacity_type": capacity,
        "count": count,
        "hosts": count if idle else 0,
        "zones": ["zone-a", "zone-b", "zone-c"],
        "price_per_hour": 0.1,
        "resources": {"cpu": "2", "memory": "8Gi"},
        **risk,
    }


class Cycles:
    """Cycles as the shard's own log tells them."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self._lines = lines

    def figures(self) -> dict[str, Any]:
        whole = [line["seconds"] * 1000 for line in self._lines]
        slowest = max(self._lines, key=lambda line: float(line["seconds"]), default={})
        parts = {name for line in self._lines for name in line if name in PHASES}
        return {
            "cycles": len(whole),
            "cycle_p50_ms": percentile(whole, 0.5),
            "cycle_p99_ms": percentile(whole, 0.99),
            "cycle_max_ms": percentile(whole, 1.0),
            # What a cycle took of a processor: on a busy machine the honest half of a wall time.
            "cycle_cpu_ms": spread([line["cpu"] * 1000 for line in self._lines]),
            "phase_p50_ms": {
                name: percentile([line.get(name, 0.0) * 1000 for line in self._lines], 0.5) for name in sorted(parts)
            },
            "slowest_cycle_ms": {name: round(slowest[name] * 1000, 2) for name in sorted(parts) if name in slowest},
        }


class Running:
    """The processes of one benchmark."""

    def __init__(self, fleet: LocalFleet) -> None:
        self.fleet = fleet
        self._operators: asyncio.subprocess.Process | None = None
        self._lines = 0

    async def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """One command to the operators."""
        if self._operators is None:
            self._operators = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.shard.operators", self.fleet.address),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        assert self._operators.stdin is not None and self._operators.stdout is not None
        self._operators.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        line = await asyncio.wait_for(self._operators.stdout.readline(), ANSWER_SECONDS)
        if not line:
            raise RuntimeError(f"the operators died: {do} {fields}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def cycles(self) -> Cycles:
        """Every cycle since this was last asked."""
        lines = [line for line in self.fleet.shard.lines("cycle") if line["msg"] == "cycle"]
        fresh, self._lines = lines[self._lines :], len(lines)
        return Cycles(fresh)

    def resident_mib(self) -> float:
        return round(self.fleet.shard.resident() / MIB, 1)

    async def close(self) -> None:
        if self._operators is not None and self._operators.returncode is None:
            self._operators.kill()
            await self._operators.wait()
        self.fleet.stop()


def warm_kernels() -> float:
    """Have the engine's kernels in the cache, as an installed shard has; how long that took."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "from bigfleet.engine import Engine; Engine().warm()"], check=True)
    return round(time.monotonic() - began, 1)


@asynccontextmanager
async def running(
    offerings: list[dict[str, Any]], settings: dict[str, Any], *, keep_state: bool = False
) -> AsyncIterator[Running]:
    """Kernels compiled, provider up, shard not yet started."""
    await asyncio.to_thread(warm_kernels)
    with tempfile.TemporaryDirectory(prefix="bigfleet-bench-") as folder:
        catalogue = {"provider": "fake", "offerings": offerings}
        # Nothing of the load may end in a log file except what is measured.
        fleet = LocalFleet(
            Path(folder), catalogue, {"audit-log": "", **settings}, keep_state=keep_state, environment={}
        )
        fleet.shard.argv += ["--log-level", "debug"]
        fleet.provider.argv += ["--log-level", "warning"]
        made = Running(fleet)
        try:
            fleet.provider.start()
            await provider_is_up(fleet)
            yield made
        finally:
            await made.close()


async def started(made: Running) -> dict[str, float]:
    """Start the shard; how long until it was ready, and how much of that its kernels took."""
    began = time.monotonic()
    made.fleet.shard.start()
    await asyncio.to_thread(made.fleet.wait_ready, 900.0)
    ready = time.monotonic() - began
    warm = made.fleet.shard.told("engine warm")
    return {
        "ready_seconds": round(ready, 2),
        "kernel_seconds": warm["seconds"],
        "ready_cpu_seconds": round(made.fleet.shard.processor_seconds(), 2),
    }


async def provider_is_up(fleet: LocalFleet) -> None:
    await until(lambda: _answers(fleet), seconds=PROVIDER_SECONDS, what="the provider answers")


async def _answers(fleet: LocalFleet) -> bool:
    assert fleet.provider.alive, fleet.provider.tail()
    try:
        await send_command(fleet.control, {"do": "status"})
    except Exception:
        return False
    return True
