"""`bigfleet all-in-one`: coordinator, shard and a pretend provider in one process on loopback, for developing against.

The rails are those of production; only the machines are pretended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.commands import CommandError, leave
from bigfleet.cli.flags import LogFormatOption, LogLevel
from bigfleet.coordinator.server.settings import CoordinatorSettings
from bigfleet.coordinator.stores.store import StoreError
from bigfleet.model.machine import CapacityType
from bigfleet.provider.fake.catalogue import Catalogue, load_catalogue
from bigfleet.provider.fake.control import require_local_address
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.offerings import Offering
from bigfleet.provider.fake.process import FakeProcess, FakeSettings
from bigfleet.transport.logs import LogFormat, configure
from bigfleet.transport.process import run_until_signal

PROVIDER = "dev"
ZONE = "dev-zone-a"
MACHINES = 8

app = typer.Typer(add_completion=False)


class DevOffering(Offering):
    """Short ids, as people type them: dev-gpu-0."""

    __slots__ = ()

    def machine_id(self, number: int) -> str:
        return f"{self.name}-{number}"


def dev_catalogue() -> Catalogue:
    """Eight machines with GPUs and eight small ones, all idle."""
    return Catalogue(
        provider=PROVIDER,
        offerings=(
            _offering(
                "dev-gpu",
                "a3-highgpu-8g",
                CapacityType.BARE_METAL,
                0.0,
                {"cpu": "208", "memory": "1872Gi", "nvidia.com/gpu": "8"},
            ),
            _offering("dev-cpu", "m6i.large", CapacityType.ON_DEMAND, 0.10, {"cpu": "2", "memory": "8Gi"}),
        ),
    )


@app.callback(invoke_without_command=True)
def all_in_one(
    shard_listen: Annotated[
        str, typer.Option(help="Address for operators and tools, on this machine only.", metavar="HOST:PORT")
    ] = "127.0.0.1:7780",
    shard_metrics_addr: Annotated[
        str, typer.Option(help="/metrics, /healthz and /readyz; 0 is off.", metavar="HOST:PORT")
    ] = "127.0.0.1:8780",
    provider_listen: Annotated[
        str, typer.Option(help="Address of the pretend provider; port 0 picks one.", metavar="HOST:PORT")
    ] = "127.0.0.1:0",
    provider_control: Annotated[
        str, typer.Option(help="Address for `bigfleet fake-provider inject`; empty is off.", metavar="ADDR")
    ] = "",
    coordinator_listen: Annotated[
        str, typer.Option(help="Address of the coordinator; 0 runs without one.", metavar="HOST:PORT")
    ] = "127.0.0.1:7790",
    coordinator_metrics_addr: Annotated[
        str, typer.Option(help="The coordinator's /metrics and health; 0 is off.", metavar="HOST:PORT")
    ] = "127.0.0.1:8790",
    coordinator_id: Annotated[str, typer.Option(help="The coordinator's name.")] = "node-1",
    raft_bind: Annotated[str, typer.Option(help="Accepted and without effect.", hidden=True)] = "",
    data_dir: Annotated[
        Path, typer.Option(help="Journal and state go to shard/ and coordinator/ in here.", metavar="DIR")
    ] = Path("bigfleet-data"),
    shard_id: Annotated[str, typer.Option(help="Stable shard id.")] = "shard-0",
    catalogue: Annotated[
        Path | None,
        typer.Option(help="Fleet to pretend, YAML; else 8 dev-gpu and 8 dev-cpu machines.", metavar="FILE"),
    ] = None,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevel = "info",
) -> None:
    """Run a coordinator, a shard and a pretend provider in one process, on loopback, until interrupted.

    The shard owns every machine, because it is the only one; others may join: `bigfleet shard --coordinator-addr
    127.0.0.1:7790`. The pretend machines are forgotten at the end; the shard's journal and the coordinator's state are
    kept.
    """
    configure(log_format=log_format, level=log_level)
    require_local_address(shard_listen, "--shard-listen")
    require_local_address(provider_listen, "--provider-listen")
    for address, flag in (
        (shard_metrics_addr, "--shard-metrics-addr"),
        (coordinator_listen, "--coordinator-listen"),
        (coordinator_metrics_addr, "--coordinator-metrics-addr"),
    ):
        if address != "0":
            require_local_address(address, flag)
    try:
        chosen = load_catalogue(catalogue) if catalogue is not None else dev_catalogue()
    except CatalogueError as error:
        raise CommandError(str(error)) from error
    provider = FakeSettings(provider_listen, chosen, control=provider_control)
    settings = {
        "id": shard_id,
        "listen": shard_listen,
        "metrics-addr": shard_metrics_addr,
        "data-dir": str(data_dir / "shard"),
    }
    coordinator = CoordinatorSettings(
        listen=coordinator_listen,
        metrics_addr=coordinator_metrics_addr,
        id=coordinator_id,
        data_dir=data_dir / "coordinator",
    )
    # Imported late: the engine's kernels take seconds to import, which help and refusals need not wait for.
    from bigfleet.shard.contract.config import ConfigError
    from bigfleet.shard.process import run_shard
    from bigfleet.shard.runtime.journal import JournalError

    try:
        code = run_until_signal(lambda stop: _run(run_shard, provider, coordinator, settings, stop))
    except (ConfigError, JournalError, StoreError) as error:
        raise CommandError(str(error)) from error
    leave(code)


async def _run(
    run_shard: Callable[..., Awaitable[None]],
    pretended: FakeSettings,
    coordinator: CoordinatorSettings,
    settings: dict[str, str],
    stop: asyncio.Event,
) -> None:
    from bigfleet.shard.settings import settings_from

    provider = FakeProcess(pretended)
    await provider.start()
    try:
        async with _coordinating(coordinator) as address:
            given: dict[str, object] = {**settings, "provider": [f"{PROVIDER}={provider.address}"]}
            if address:
                given["coordinator-addr"] = address
            process, core = settings_from(given)
            await run_shard(process, core, stop)
    finally:
        await provider.stop()


@asynccontextmanager
async def _coordinating(settings: CoordinatorSettings) -> AsyncIterator[str]:
    """The address of a coordinator that runs meanwhile; empty when there is to be none."""
    if settings.listen == "0":
        yield ""
        return
    from bigfleet.coordinator.server.process import CoordinatorProcess

    async with CoordinatorProcess.opened(settings) as process:
        stop = asyncio.Event()
        serving = asyncio.create_task(process.serve(stop))
        try:
            yield process.address
        finally:
            stop.set()
            await serving


def _offering(name: str, instance_type: str, kind: CapacityType, price: float, size: dict[str, str]) -> Offering:
    return DevOffering(
        name=name,
        instance_type=instance_type,
        capacity_type=kind,
        count=MACHINES,
        zones=(ZONE,),
        racks=0,
        price_per_hour=price,
        interruption_probability=0.0,
        hosts=MACHINES,
        resources=size,
        allocatable=size,
    )
