"""Provider edge figures as JSON: client and provider in separate processes, over loopback gRPC.

    python -m bench provider [--machines 100000] [--paged 500000] [--calls 1000] [--json FILE]

The provider is `bigfleet fake-provider` with a SQLite state file; the one whose backend blocks comes from
`bench._slow_provider`. Times are what the caller of `bigfleet.provider.client` sees, hashing and parsing included. The
verdict holds the figures against the limits of the project; nothing here is a test.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from bench._report import conclude
from bench._samples import spread
from bigfleet.provider.client import (
    CallLimits,
    Fence,
    Listing,
    ListQuery,
    ListSummary,
    ProviderClient,
    ProviderEndpoint,
    ProviderRegistry,
)
from bigfleet.wire import provider_pb2 as pb
from tools.processes import free_address, processor_seconds, resident
from tools.waiting import until

LIMITS = {
    "first_list_seconds": 2.0,
    "repeat_list_seconds": 2.0,
    "client_growth_mib": 16.0,
    "provider_growth_mib": 32.0,
    "incremental_seconds": 0.05,
    # A thousand calls at once: the last is answered within two seconds, also while every backend call blocks a thread.
    "concurrent_calls_seconds": 2.0,
    "blocked_burst_ack_max_seconds": 2.0,
    "blocked_ack_p99_seconds": 0.1,
}
EVIDENCE = Path("docs/evidence/provider-bench.json")
MIB = 2**20
_REPEATS = 30
_CHANGES = 1_000
_SETTLE_SECONDS = 300.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench provider", description=__doc__)
    parser.add_argument("--machines", type=int, default=100_000, help="fleet of the List figures (100000)")
    parser.add_argument("--paged", type=int, default=500_000, help="fleet listed by pages; 0 skips it (500000)")
    parser.add_argument("--calls", type=int, default=1_000, help="lifecycle calls at once (1000)")
    parser.add_argument("--backend-seconds", type=float, default=3.0, help="how long the slow backend blocks (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    options = parser.parse_args(argv)
    load_before = os.getloadavg()[0]
    return conclude(asyncio.run(_measure(options)), LIMITS, options.json, load_before)


def evidence() -> int:
    return main(["--json", str(EVIDENCE)])


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {"machines": options.machines}
    with tempfile.TemporaryDirectory(prefix="bigfleet-bench-") as folder:
        async with _Running(_fake(folder, options.machines)) as running:
            figures |= await _lists(running)
            figures |= await _changes(running, options.calls)
        async with _Running(_slow(folder, 2 * options.calls, options.backend_seconds)) as running:
            figures |= await _blocked(running, options.calls)
        if options.paged:
            async with _Running(_fake("", options.paged)) as running:
                figures |= await _pages(running)
    return figures


async def _lists(running: _Running) -> dict[str, Any]:
    """The first List parses every machine; the next ones find them unchanged."""
    client = running.client
    async with _Ticker() as ticker:
        worked = time.process_time() + running.cpu_seconds()
        first, summary = await _timed(lambda: _drained(client.full()))
        worked = time.process_time() + running.cpu_seconds() - worked
        parsed_lateness = ticker.worst()
        times, client_mib, provider_mib = [], [], []
        for _ in range(_REPEATS):
            seconds, again = await _timed(lambda: _drained(client.full()))
            assert again.changed == 0
            times.append(seconds)
            client_mib.append(resident(os.getpid()) / MIB)
            provider_mib.append(running.resident_mib())
        lateness = ticker.worst()
    return {
        "listed": summary.listed,
        "list_mib": round(summary.bytes / 2**20, 1),
        "list_pages": summary.pages,
        "first_list_seconds": round(first, 3),
        "first_list_cpu_seconds": round(worked, 2),
        "repeat_list_seconds": round(max(times), 3),
        "repeat_list_p50_seconds": round(statistics.median(times), 3),
        "loop_lateness_first_ms": round(parsed_lateness * 1e3, 1),
        "loop_lateness_repeat_ms": round(lateness * 1e3, 1),
        "client_growth_mib": _growth(client_mib),
        "provider_growth_mib": _growth(provider_mib),
    }


async def _changes(running: _Running, calls: int) -> dict[str, Any]:
    """Many calls at once, then the incremental List that finds exactly what they changed."""
    client = running.client
    page = pb.MachineList.FromString(await client.list_page(_speculative(max(calls, _CHANGES))))
    ids = [machine.id for machine in page.machines]
    burst, acks = await _timed(lambda: asyncio.gather(*(_ack_seconds(client, i) for i in ids[:calls])))
    for machine_id in ids[calls:_CHANGES]:
        await client.create(machine_id)
    await until(lambda: _none_creating(client), seconds=_SETTLE_SECONDS, what="every Create is done")
    cursor, times = client.index.cursor, []
    for _ in range(5):
        # The same delta five times: the median is the figure, the first one also pays for the digests.
        client.index.cursor = cursor
        for machine_id in ids[:_CHANGES]:
            client.index.forget(machine_id)
        seconds, delta = await _timed(lambda: _drained(client.incremental()))
        assert delta.changed >= _CHANGES
        times.append(seconds)
    return {
        "concurrent_calls": calls,
        "concurrent_calls_seconds": round(burst, 3),
        **_percentiles("concurrent_ack", acks),
        "incremental_changes": delta.changed,
        "incremental_seconds": round(statistics.median(times), 4),
        "incremental_max_seconds": round(max(times), 4),
    }


async def _blocked(running: _Running, calls: int) -> dict[str, Any]:
    """Acks while every backend call blocks a thread: first a burst, then sixteen callers in a row."""
    client = running.client
    page = pb.MachineList.FromString(await client.list_page(_speculative(2 * calls)))
    ids = [machine.id for machine in page.machines]
    burst = await asyncio.gather(*(_ack_seconds(client, machine_id) for machine_id in ids[:calls]))
    width = asyncio.Semaphore(16)

    async def paced(machine_id: str) -> float:
        async with width:
            return await _ack_seconds(client, machine_id)

    acks = await asyncio.gather(*(paced(machine_id) for machine_id in ids[calls:]))
    return {**_percentiles("blocked_burst_ack", burst), **_percentiles("blocked_ack", acks)}


async def _pages(running: _Running) -> dict[str, Any]:
    before = resident(os.getpid()) / MIB
    seconds, summary = await _timed(lambda: _drained(running.client.full()))
    again, repeat = await _timed(lambda: _drained(running.client.full()))
    assert summary.listed == repeat.listed and repeat.changed == 0
    return {
        "paged_machines": summary.listed,
        "paged_pages": summary.pages,
        "paged_mib": round(summary.bytes / 2**20, 1),
        "paged_first_seconds": round(seconds, 3),
        "paged_repeat_seconds": round(again, 3),
        "paged_client_mib": round(resident(os.getpid()) / MIB - before, 1),
        "paged_provider_mib": round(running.resident_mib(), 1),
    }


class _Running:
    """A provider process and a client for it."""

    def __init__(self, command: list[str]) -> None:
        self.address = free_address()
        self._process = subprocess.Popen([*command, "--listen", self.address, "--log-level", "warning"])
        self._registry = ProviderRegistry(tokens=Fence("bench", 1), limits=CallLimits(lifecycle=120.0))

    async def __aenter__(self) -> _Running:
        self.client: ProviderClient = self._registry.add(ProviderEndpoint("bench", self.address))
        await until(self._answers, seconds=_SETTLE_SECONDS, what="the provider answers")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._registry.close()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    async def _answers(self) -> bool:
        try:
            await self.client.list_page(_creating())
        except Exception:
            if self._process.poll() is not None:
                raise
            return False
        return True

    def cpu_seconds(self) -> float:
        """What the provider has computed so far: on a busy machine the honest half of a wall time."""
        return processor_seconds(self._process.pid)

    def resident_mib(self) -> float:
        return resident(self._process.pid) / MIB


class _Ticker:
    """How late a task that wants to run every millisecond gets its turn."""

    async def __aenter__(self) -> _Ticker:
        self._worst = 0.0
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    def worst(self) -> float:
        """The worst lateness since the last question, in seconds."""
        worst, self._worst = self._worst, 0.0
        return worst

    async def _tick(self) -> None:
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            self._worst = max(self._worst, time.perf_counter() - due)


def _fake(folder: str, machines: int) -> list[str]:
    start = "from bigfleet.cli.bigfleet import main; main()"
    state = ["--state", f"{folder}/fake.db"] if folder else []
    return [
        *(sys.executable, "-c", start, "fake-provider", "--durations", "instant"),
        *("--seed-count", str(machines), *state),
    ]


def _slow(folder: str, slots: int, seconds: float) -> list[str]:
    return [
        *(sys.executable, "-m", "bench._slow_provider", "--backend-seconds", str(seconds)),
        *("--seed-count", str(slots), "--state", f"{folder}/slow.db", "--metrics-addr", ""),
    ]


async def _drained(listing: Listing[pb.Machine]) -> ListSummary:
    async for _ in listing:
        pass
    assert listing.summary is not None
    return listing.summary


async def _ack_seconds(client: ProviderClient, machine_id: str) -> float:
    return (await _timed(lambda: client.create(machine_id)))[0]


async def _timed(call: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = await call()
    return time.perf_counter() - started, answer


def _speculative(count: int) -> ListQuery:
    return ListQuery((pb.MACHINE_STATE_SPECULATIVE,), count)


def _creating() -> ListQuery:
    return ListQuery((pb.MACHINE_STATE_CREATING,), 1)


async def _none_creating(client: ProviderClient) -> bool:
    return not pb.MachineList.FromString(await client.list_page(_creating())).machines


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    return {f"{name}_{label}_seconds": value for label, value in spread(seconds, 4).items()}


def _growth(resident: Sequence[float]) -> float:
    """Low water of the last third against that of the middle third: allocators breathe, leaks do not."""
    third = len(resident) // 3
    return round(min(resident[-third:]) - min(resident[third:-third]), 1)
