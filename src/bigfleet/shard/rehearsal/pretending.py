"""`--fake-provider`: a provider of machines that do not exist, inside the shard's process but behind a real socket.

For a laptop and for tests. Whoever wants it must ask: a shard without any provider does not start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from bigfleet.model.profile import Profile
from bigfleet.provider.client import ProviderEndpoint
from bigfleet.provider.fake.process import FakeProcess, FakeSettings
from bigfleet.shard.core.machines.stamps import metadata_of, stamp_of
from bigfleet.shard.rehearsal.seeding import BOUND, owned_clusters, seeded_catalogue
from bigfleet.shard.settings import ProcessSettings
from bigfleet.transport import channel
from bigfleet.wire import provider_pb2, provider_pb2_grpc

log = structlog.get_logger(__name__)

# Whom the seeded bindings are fenced as: nobody that ever comes back.
_SEEDER = "seed"
_SETTLE_SECONDS = 10.0


@asynccontextmanager
async def pretend_provider(name: str, settings: ProcessSettings, shard_id: str) -> AsyncIterator[ProviderEndpoint]:
    """Runs the pretend provider for the length of the block."""
    catalogue = seeded_catalogue(name, settings, shard_id)
    process = FakeProcess(FakeSettings("127.0.0.1:0", catalogue))
    await process.start()
    log.warning("pretend provider: none of its machines exist", provider=name, addr=process.address)
    try:
        if clusters := owned_clusters(settings, shard_id):
            hosts = [each for each in catalogue.offerings if each.name.partition("-")[0] == BOUND]
            machines = [offering.machine_id(number) for offering in hosts for number in range(offering.count)]
            await _bind(process.address, machines, clusters)
        yield ProviderEndpoint(name, process.address)
    finally:
        await process.stop()


async def _bind(address: str, machines: Sequence[str], clusters: Sequence[str]) -> None:
    """Give the machines to the clusters in turn, as if an earlier life of the shard had."""
    metadata = dict(metadata_of(stamp_of(Profile((), (), 0, 0, 0), "")))
    async with channel(address) as opened:
        stub = provider_pb2_grpc.CapacityProviderStub(opened)
        for number, machine in enumerate(machines):
            await stub.Configure(
                provider_pb2.ConfigureRequest(
                    machine_id=machine,
                    cluster_id=clusters[number % len(clusters)],
                    shard_id=_SEEDER,
                    shard_epoch=1,
                    sequence_number=number + 1,
                    shard_metadata=metadata,
                ),
                timeout=30,
            )
        await _settled(stub)
    log.info("seeded bindings", machines=len(machines), clusters=len(clusters))


async def _settled(stub: provider_pb2_grpc.CapacityProviderAsyncStub) -> None:
    """Until they are bound, so that the first List shows them so; a slow pretend provider is not waited for."""
    under_way = provider_pb2.ListFilter(states=[provider_pb2.MACHINE_STATE_CONFIGURING], max_results=1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_SECONDS):
            while (await stub.List(under_way)).machines:
                await asyncio.sleep(0.02)
