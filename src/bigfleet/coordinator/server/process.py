"""`bigfleet coordinator` as a process: binds, opens the store, serves, and ends in order.

Start-up fails with one sentence before anything is served. Afterwards the store may come and go: the process stays,
healthy, and is ready while it knows a leader. A stop resigns first, so that another replica leads at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from bigfleet.coordinator.server.exporting import export_regularly
from bigfleet.coordinator.server.handlers import SERVICE, coordinator_handlers
from bigfleet.coordinator.server.metrics import PREFIX, CoordinatorMetrics
from bigfleet.coordinator.server.replica import Replica
from bigfleet.coordinator.server.service import CoordinatorService
from bigfleet.coordinator.stores.sqlite import SqliteStore
from bigfleet.transport import Server
from bigfleet.transport.address import split
from bigfleet.transport.certificate_watch import CertificateWatch
from bigfleet.transport.endpoints import HttpEndpoints
from bigfleet.transport.errors import FlagError
from bigfleet.transport.parts import Parts

if TYPE_CHECKING:
    from bigfleet.coordinator.server.settings import CoordinatorSettings
    from bigfleet.coordinator.stores.store import Store

log = structlog.get_logger(__name__)

PUBLISH_SECONDS = 1.0
NOBODY = "no leader observed"
_EVERYWHERE = ("", "0.0.0.0", "::")


async def run_coordinator(settings: CoordinatorSettings, stop: asyncio.Event) -> None:
    """Serve until told to stop; raises what broke."""
    async with CoordinatorProcess.opened(settings) as coordinator:
        await coordinator.serve(stop)


class CoordinatorProcess:
    """One running replica, also for tests and all-in-one. Make it with `opened`."""

    def __init__(self, settings: CoordinatorSettings, server: Server, store: Store) -> None:
        self.settings = settings
        self.server = server
        self.store = store
        self.metrics = CoordinatorMetrics()
        self.replica = Replica(
            store,
            settings.policy,
            self.metrics,
            address=settings.advertise_addr or server.address,
            rebalance_seconds=settings.rebalance_seconds,
            keys=settings.ownership_keys,
        )
        server.grpc.add_generic_rpc_handlers((coordinator_handlers(CoordinatorService(self.replica)),))
        registry = CollectorRegistry()
        registry.register(self.metrics)
        ProcessCollector(registry=registry)
        self.certificates = CertificateWatch(settings.tls, PREFIX)
        registry.register(self.certificates)
        self.http = HttpEndpoints(
            settings.metrics_addr, registry=registry, ready=[self._not_ready, self.certificates.unusable]
        )
        self.parts = Parts()

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: CoordinatorSettings) -> AsyncIterator[CoordinatorProcess]:
        """A coordinator whose address is bound and whose store is open; closed in order at the end of the block."""
        async with AsyncExitStack() as stack:
            _require_reachable(settings)
            server = Server(settings.listen, tls=settings.tls, insecure=settings.insecure, require_identity=False)
            stack.push_async_callback(server.stop, 0)
            store = open_store(settings, settings.advertise_addr or server.address)
            stack.push_async_callback(store.close)
            yield cls(settings, server, store)

    # Served as a shard is; what starting and stopping means is each process's own.
    @property
    def address(self) -> str:
        return self.server.address

    async def serve(self, stop: asyncio.Event) -> None:
        """Until `stop` is set or a part breaks; raises what broke."""
        await self.parts.serve(stop, self._start, self._stop)

    async def _start(self) -> None:
        settings = self.settings
        await self.http.start()
        await self.server.start()
        await self.server.set_serving(True)
        await self.server.set_serving(False, SERVICE)
        self.parts.spawn(self.replica.run())
        self.parts.spawn(self._publish())
        self.parts.spawn(self.certificates.run())
        if settings.export_dir is not None:
            self.parts.spawn(
                export_regularly(self.replica, settings.export_dir, settings.export_seconds, settings.export_keep)
            )
        log.info("coordinator started", id=settings.id, store=type(self.store).__name__)
        log.info("coordinator listening", addr=self.address)

    async def _stop(self) -> None:
        self.http.begin_stop()
        await self.store.resign()
        await self.server.stop(self.settings.shutdown_grace)
        await self.parts.end()
        await self.http.stop()
        log.info("coordinator stopped")

    async def _publish(self) -> None:
        while True:
            self.replica.publish()
            codes: dict[str, int] = {}
            for (_, code), number in self.server.rpc_errors.items():
                codes[code] = codes.get(code, 0) + number
            self.metrics.publish("rpc_errors_total", codes)
            await self.server.set_serving(self._not_ready() is None, SERVICE)
            await asyncio.sleep(PUBLISH_SECONDS)

    def _not_ready(self) -> str | None:
        return None if self.replica.tenure is not None or self.store.leader() else NOBODY


def open_store(settings: CoordinatorSettings, address: str) -> Store:
    """The store the settings name."""
    if not settings.etcd.endpoints:
        return SqliteStore(settings.data_dir, address)
    # Imported here: a single replica needs no etcd client installed.
    from bigfleet.coordinator.stores.etcd import EtcdStore

    return EtcdStore(settings.etcd, settings.id, address, insecure=settings.insecure)


def _require_reachable(settings: CoordinatorSettings) -> None:
    """Other replicas refer callers to this one, so it must have an address that means something elsewhere."""
    if settings.etcd.endpoints and not settings.advertise_addr and split(settings.listen)[0] in _EVERYWHERE:
        raise FlagError(
            f"--listen {settings.listen} names no host that others can be sent to; give --advertise-addr HOST:PORT"
        )
