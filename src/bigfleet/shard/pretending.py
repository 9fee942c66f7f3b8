"""`--fake-provider`: a provider of machines that do not exist, inside the shard's process but behind a real socket.

For a laptop and for tests. Whoever wants it must ask: a shard without any provider does not start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from bigfleet.model.machine import CapacityType
from bigfleet.provider.client import ProviderEndpoint
from bigfleet.provider.fake.catalogue import Catalogue, builtin_catalogue, load_catalogue
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.offerings import Offering
from bigfleet.provider.fake.process import FakeProcess, FakeSettings
from bigfleet.shard.config import ConfigError
from bigfleet.shard.settings import ProcessSettings

log = structlog.get_logger(__name__)

_SIZE = {"cpu": "2", "memory": "8Gi"}


@asynccontextmanager
async def pretend_provider(name: str, settings: ProcessSettings) -> AsyncIterator[ProviderEndpoint]:
    """Runs the pretend provider for the length of the block."""
    process = FakeProcess(FakeSettings("127.0.0.1:0", _catalogue(name, settings)))
    await process.start()
    log.warning("pretend provider: none of its machines exist", provider=name, addr=process.address)
    try:
        yield ProviderEndpoint(name, process.address)
    finally:
        await process.stop()


def _catalogue(name: str, settings: ProcessSettings) -> Catalogue:
    try:
        chosen = load_catalogue(Path(settings.fake_catalogue)) if settings.fake_catalogue else builtin_catalogue()
    except CatalogueError as error:
        raise ConfigError(f"fake-catalogue: {error}") from error
    seeds = (
        ("idle", CapacityType.RESERVED, settings.seed_machines, settings.seed_machines, 0.1, 0.0),
        ("spec", CapacityType.ON_DEMAND, settings.seed_speculative, 0, 1.0, 0.05),
        ("spot", CapacityType.SPOT, settings.seed_spot, 0, 0.3, 0.3),
    )
    offerings = tuple(
        Offering(
            name=prefix,
            instance_type="m6i.large",
            capacity_type=kind,
            count=count,
            zones=("zone-a",),
            racks=0,
            price_per_hour=price,
            interruption_probability=risk,
            hosts=hosts,
            resources=dict(_SIZE),
        )
        for prefix, kind, count, hosts, price, risk in seeds
        if count
    )
    return replace(chosen, provider=name, offerings=offerings or chosen.offerings)
