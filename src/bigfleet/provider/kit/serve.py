"""A provider as a complete process: flags, state, server, metrics, health, orderly stop.

`serve` is what an author's `__main__` calls; `ProviderProcess` is the same without a command line, for tests and for
programs that embed a provider. Nothing here knows what a machine is.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import structlog

from bigfleet.provider.kit.author import Backend, Provider
from bigfleet.provider.kit.core.core import InstanceError
from bigfleet.provider.kit.faults import FaultyBackend
from bigfleet.provider.kit.flags import DEFAULT_METRICS_ADDR, AddFlags, Flags, parse_flags
from bigfleet.provider.kit.metrics import KitMetrics
from bigfleet.provider.kit.offerings import OfferingError
from bigfleet.provider.kit.runtime import Options, Runtime
from bigfleet.provider.kit.servicer import SERVICE, ProviderServicer
from bigfleet.provider.kit.sqlite_store import SqliteStore
from bigfleet.provider.kit.store import MemoryStore, Store, StoreError
from bigfleet.transport import Server, TransportError, reflection
from bigfleet.transport.address import is_local
from bigfleet.transport.certificate_watch import CertificateWatch
from bigfleet.transport.endpoints import HttpEndpoints
from bigfleet.transport.logs import LogFormat, configure
from bigfleet.transport.process import run_until_signal

log = structlog.get_logger(__name__)

STOP_GRACE = 5.0
HEALTH = "grpc.health.v1.Health"
# What the person at the command line can mend: told in one sentence, without a traceback.
_REFUSED = (TransportError, OfferingError, InstanceError, StoreError)
Build = Callable[[Flags], Provider]


def serve(
    provider: Provider | Build,
    *,
    options: Options | None = None,
    name: str = "example",
    add_flags: AddFlags | None = None,
    argv: list[str] | None = None,
) -> int:
    """Run a provider until it is told to stop; the result is the exit code.

    `provider` is a provider, or a class or function that makes one from the parsed flags.
    """
    try:
        flags = parse_flags(argv, provider=name, description=provider.__doc__, add_flags=add_flags)
        configure(log_format=LogFormat(flags.log_format), level=flags.log_level)
        made = provider if _is_provider(provider) else cast(Build, provider)(flags)
        built = cast(Provider, made)
        refused: list[Exception] = []
        code = run_until_signal(lambda stop: _run(built, flags, options or Options(), stop, refused))
    except _REFUSED as error:
        refused, code = [error], 2
    for reason in refused:
        print(f"error: {reason}", file=sys.stderr)
    return 2 if refused else code


class ProviderProcess:
    """One provider with its server, ready to be started and stopped inside an event loop."""

    def __init__(self, provider: Provider, flags: Flags, options: Options, store: Store | None = None) -> None:
        if flags.enable_faults and not is_local(flags.addr):
            raise TransportError(
                f"--enable-faults needs a loopback address; {flags.addr} can be reached from elsewhere"
            )
        kind = FaultyBackend if flags.enable_faults else Backend
        backend = kind(provider, flags.provider)
        if isinstance(backend, FaultyBackend):
            backend.slow_seconds = flags.timeouts(options.timeouts).configure + 1.0
        self.flags = flags
        self.metrics = KitMetrics()
        if store is None:
            store = SqliteStore(Path(flags.state)) if flags.state else MemoryStore()
        self.server = Server(flags.addr, tls=flags.tls, insecure=flags.insecure)
        self.runtime = Runtime(backend, store, _options(options, flags), self.metrics)
        self.certificates = CertificateWatch(flags.tls, "bigfleet_provider_")
        self.metrics.registry.register(self.certificates)
        self.pages = HttpEndpoints(
            flags.metrics_addr, registry=self.metrics.registry, ready=[self._missing, self.certificates.unusable]
        )
        self._watching: asyncio.Task[None] | None = None
        self.server.grpc.add_generic_rpc_handlers((ProviderServicer(self.runtime).handler(),))
        if flags.reflection:
            reflection.serve(self.server.grpc, (SERVICE, HEALTH))

    @property
    def address(self) -> str:
        return self.server.address

    async def start(self) -> None:
        self._watching = asyncio.create_task(self.certificates.run())
        await self._start_pages()
        await self.runtime.start()
        await self.server.start()
        for service in ("", SERVICE):
            await self.server.set_serving(True, service)
        self.metrics.serving(True)
        log.info(
            "provider serving", addr=self.address, provider=self.flags.provider, state=self.flags.state or "memory"
        )

    async def stop(self, grace: float = STOP_GRACE) -> None:
        """Health turns first, then running calls end, then the last rows are committed."""
        self.pages.begin_stop()
        if self._watching is not None:
            self._watching.cancel()
        self.metrics.serving(False)
        await self.server.stop(grace)
        await self.runtime.stop()
        await self.pages.stop()

    async def __aenter__(self) -> ProviderProcess:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(0)

    async def _start_pages(self) -> None:
        try:
            await self.pages.start()
        except TransportError as error:
            if self.flags.metrics_addr != DEFAULT_METRICS_ADDR:
                raise
            log.warning("metrics are off: the default port is taken", error=str(error))

    def _missing(self) -> str | None:
        return None if self.runtime.ready else "inventory is not loaded"


async def _run(
    provider: Provider, flags: Flags, options: Options, stop: asyncio.Event, refused: list[Exception]
) -> None:
    try:
        process = ProviderProcess(provider, flags, options)
        await process.start()
    except _REFUSED as error:
        refused.append(error)
        return
    # The inventory lives as long as the process: taking it out of garbage collection spares a pause per full pass.
    gc.collect()
    gc.freeze()
    # Backend threads that compute must not keep the loop from answering for the usual 5 ms at a time.
    sys.setswitchinterval(0.001)
    failed = asyncio.create_task(process.runtime.journal.failed.wait())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
    await process.stop()
    failed.cancel()
    stopped.cancel()
    if process.runtime.journal.failed.is_set():
        raise StoreError("state could not be written; the log above says why")


def _options(options: Options, flags: Flags) -> Options:
    return replace(options, timeouts=flags.timeouts(options.timeouts), reconcile_interval=flags.reconcile_interval)


def _is_provider(candidate: object) -> bool:
    return not isinstance(candidate, type) and hasattr(candidate, "create_instance")
