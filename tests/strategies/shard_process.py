"""A whole shard for tests: real sockets, a real provider behind one of them, and a core whose clocks run fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bigfleet.model.machine import CapacityType
from bigfleet.provider.fake.catalogue import LATENCIES, Catalogue
from bigfleet.provider.fake.offerings import Offering
from bigfleet.provider.fake.process import FakeProcess, FakeSettings
from bigfleet.shard.process import ShardProcess
from bigfleet.shard.settings import settings_from
from tools.waiting import until

# Everything a person waits for in a test, in milliseconds; rails that only delay are off.
QUICK: Mapping[str, object] = {
    "listen": "127.0.0.1:0",
    "metrics-addr": "127.0.0.1:0",
    "cycle-interval": "200ms",
    "early-cycle-interval": "20ms",
    "reconcile-interval": "50ms",
    "reclaim-hold": "0",
    "reclaim-cap-fraction": 0,
    "machine-backoff": "100ms",
    "retry-delay": "50ms",
    "available-capacity-interval": "50ms",
    "shutdown-grace": "2s",
}


@dataclass
class Running:
    """A serving shard and the provider it uses."""

    shard: ShardProcess
    provider: FakeProcess
    serving: asyncio.Task[None]
    stop: asyncio.Event

    @property
    def address(self) -> str:
        return self.shard.address

    async def until(self, met: Callable[[ShardProcess], bool], seconds: float = 20.0) -> None:
        """Wait until the shard looks like this."""

        def seen() -> bool:
            if self.serving.done():
                self.serving.result()
            return met(self.shard)

        await until(seen, seconds=seconds, what=f"{met}")

    def states(self) -> dict[str, int]:
        """Machines by state."""
        counts: dict[str, int] = {}
        for record in self.shard.core.state.fleet.all():
            counts[record.state.label] = counts.get(record.state.label, 0) + 1
        return counts


def offering(name: str, count: int, **changes: object) -> Offering:
    """Equal machines of 2 cpu and 8Gi; hosts that exist unless told otherwise."""
    made = Offering(
        name=name,
        instance_type="m6i.large",
        capacity_type=CapacityType.RESERVED,
        count=count,
        zones=("zone-a",),
        racks=0,
        price_per_hour=0.1,
        interruption_probability=0.0,
        hosts=count,
        resources={"cpu": "2", "memory": "8Gi"},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def catalogue(*offerings: Offering) -> Catalogue:
    return Catalogue(provider="fake", offerings=offerings, latencies=LATENCIES["instant"])


@asynccontextmanager
async def provider(*offerings: Offering, listen: str = "127.0.0.1:0", state: str = "") -> AsyncIterator[FakeProcess]:
    """A provider process, inside this one but behind a socket."""
    process = FakeProcess(FakeSettings(listen, catalogue(*offerings), state))
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def shard(
    served: FakeProcess, data_dir: Path, *, ready: bool = True, **settings: object
) -> AsyncIterator[Running]:
    """A shard that uses this provider; underscores in settings stand for dashes."""
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    process_settings, config = settings_from(
        {**QUICK, "provider": [f"p1={served.address}"], "data-dir": str(data_dir), **given}
    )
    async with ShardProcess.opened(process_settings, config) as made:
        stop = asyncio.Event()
        serving = asyncio.create_task(made.serve(stop))
        running = Running(made, served, serving, stop)
        try:
            if ready:
                await running.until(lambda process: process.kernels.compiled and process.core.published.ready, 300)
            yield running
        finally:
            stop.set()
            await serving


@asynccontextmanager
async def small_fleet(data_dir: Path, machines: int = 4, **settings: object) -> AsyncIterator[Running]:
    """A shard over so many idle machines."""
    async with provider(offering("m", machines)) as served, shard(served, data_dir, **settings) as running:
        yield running
