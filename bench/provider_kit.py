"""Kit figures as JSON: full List, paged List, incremental List, concurrent lifecycle calls, ack latency.

    python bench/provider_kit.py [--machines 100000] [--paged 500000] [--out FILE]

The provider runs as its own process with a SQLite state file; times are what a client sees, parsing included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bigfleet.transport import channel
from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc

ACKS_IN_FLIGHT = 16
LIMITS = {
    "full_list_seconds": 2.0,
    "incremental_list_seconds": 0.05,
    "ack_p99_seconds": 0.1,
    "memory_growth_mib": 32.0,
}


class SlowProvider:
    """Hosts in memory; every backend call blocks its thread for a while."""

    def __init__(self, flags: Any) -> None:
        from bigfleet.provider import kit

        self.seconds = float(flags.extra["backend_seconds"])
        market = [
            kit.Offering(
                f"box.{size}",
                f"zone-{zone}",
                1,
                price_per_hour=0.1 * size,
                resources={"cpu": str(size), "memory": f"{4 * size}Gi"},
                labels={"topology.bigfleet/rack": f"{zone}-{rack}"},
            )
            for size in (2, 4, 8)
            for zone in "abc"
            for rack in range(4)
        ]
        offered = kit.spread(market, flags.seed_count)
        self.slots = [slot for number, o in enumerate(offered) for slot in o.slots(f"bench-{number}")]

    def describe(self) -> Any:
        return self.slots

    def create_instance(self, machine: Any, operation_id: str) -> str:
        time.sleep(self.seconds)
        return operation_id

    def configure_instance(self, machine: Any, cluster_id: str, bootstrap_blob: bytes, operation_id: str) -> None:
        time.sleep(self.seconds)

    def drain_instance(self, machine: Any, grace_period_seconds: int, operation_id: str) -> None:
        time.sleep(self.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=100_000)
    parser.add_argument("--paged", type=int, default=500_000)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--out", default="")
    arguments = parser.parse_args()
    figures = asyncio.run(_measure(arguments))
    broken = sorted(name for name, limit in LIMITS.items() if figures[name] > limit)
    report = {"figures": figures, "limits": LIMITS, "over": broken, "verdict": "FAILED" if broken else "PASSED"}
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")
    return 1 if broken else 0


async def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        figures: dict[str, Any] = {
            "machines": arguments.machines,
            "cpus": os.cpu_count(),
            "load_average_at_start": round(os.getloadavg()[0], 1),
        }
        async with _Running(folder, "a", arguments.machines, backend_seconds=3.0) as provider:
            figures |= await _lists(provider)
            figures |= await _acks(provider, arguments.calls)
        async with _Running(folder, "b", arguments.paged, backend_seconds=0.0) as provider:
            figures |= await _pages(provider)
        return figures


async def _lists(provider: _Running) -> dict[str, Any]:
    first, listed = await _timed(lambda: provider.stub.List(pb.ListFilter()))
    assert len(listed.machines) == provider.machines
    cursor = listed.revision
    before = provider.memory_mib()
    times = []
    for _ in range(10):
        seconds, answer = await _timed(lambda: provider.stub.List(pb.ListFilter()))
        assert len(answer.machines) == provider.machines
        times.append(seconds)
    growth = provider.memory_mib() - before
    ids = [machine.id for machine in listed.machines[:1000]]
    await asyncio.gather(*(provider.stub.Create(pb.CreateRequest(machine_id=i), timeout=60) for i in ids))
    deltas = []
    for _ in range(5):
        seconds, delta = await _timed(lambda: provider.stub.List(pb.ListFilter(since_revision=cursor)))
        assert {machine.id for machine in delta.machines} >= set(ids)
        deltas.append(seconds)
    return {
        "first_full_list_seconds": round(first, 3),
        "full_list_seconds": round(max(times), 3),
        "full_list_bytes": listed.ByteSize(),
        "memory_growth_mib": round(growth, 1),
        "incremental_changes": len(delta.machines),
        "incremental_list_seconds": round(sorted(deltas)[len(deltas) // 2], 4),
    }


async def _acks(provider: _Running, calls: int) -> dict[str, Any]:
    listed = await provider.stub.List(pb.ListFilter(states=[pb.MACHINE_STATE_SPECULATIVE], max_results=2 * calls))
    ids = [machine.id for machine in listed.machines]
    gate = asyncio.Semaphore(ACKS_IN_FLIGHT)

    async def paced(machine_id: str) -> float:
        async with gate:
            return (await _timed(lambda: provider.stub.Create(pb.CreateRequest(machine_id=machine_id))))[0]

    burst, _ = await _timed(
        lambda: asyncio.gather(*(provider.stub.Create(pb.CreateRequest(machine_id=i), timeout=60) for i in ids[:calls]))
    )
    times = sorted(await asyncio.gather(*(paced(i) for i in ids[calls:])))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        creating = await provider.stub.List(pb.ListFilter(states=[pb.MACHINE_STATE_CREATING], max_results=1))
        if not creating.machines:
            break
        await asyncio.sleep(0.5)
    failed = await provider.stub.List(pb.ListFilter(states=[pb.MACHINE_STATE_FAILED]))
    assert not creating.machines and not failed.machines
    return {
        "concurrent_calls": calls,
        "concurrent_calls_seconds": round(burst, 3),
        "acks_in_flight": ACKS_IN_FLIGHT,
        "ack_p50_seconds": round(times[len(times) // 2], 4),
        "ack_p99_seconds": round(times[int(len(times) * 0.99)], 4),
    }


async def _pages(provider: _Running) -> dict[str, Any]:
    started = time.monotonic()
    seen: set[str] = set()
    cursor, pages = b"", 0
    while True:
        page = await provider.stub.List(pb.ListFilter(max_results=20_000, since_revision=cursor), timeout=60)
        seen.update(machine.id for machine in page.machines)
        cursor, pages = page.revision, pages + 1
        if not page.more:
            break
    assert len(seen) == provider.machines
    return {
        "paged_machines": len(seen),
        "pages": pages,
        "paged_list_seconds": round(time.monotonic() - started, 3),
        "paged_server_mib": round(provider.memory_mib(), 1),
    }


async def _timed(call: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = await call()
    return time.perf_counter() - started, answer


class _Running:
    """The provider as a process of its own."""

    def __init__(self, folder: str, name: str, machines: int, *, backend_seconds: float) -> None:
        self.machines = machines
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = [sys.executable, __file__, "--serve", "--addr", self.address, "--metrics-addr", ""]
        command += ["--state", f"{folder}/{name}.db", "--seed-count", str(machines), "--reconcile-interval", "0"]
        command += ["--backend-seconds", str(backend_seconds), "--log-level", "warning"]
        self._process = subprocess.Popen(command)

    async def __aenter__(self) -> _Running:
        self._channel = channel(self.address)
        await asyncio.wait_for(self._channel.channel_ready(), 120)
        self.stub: Any = rpc.CapacityProviderStub(self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(resident.split()[1]) / 1024


def _serve() -> int:
    from bigfleet.provider import kit

    def flags(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--serve", action="store_true")
        parser.add_argument("--backend-seconds", default="0")

    return kit.serve(SlowProvider, add_flags=flags)


if __name__ == "__main__":
    raise SystemExit(_serve() if "--serve" in sys.argv else main())
