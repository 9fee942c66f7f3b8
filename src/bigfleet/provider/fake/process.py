"""`bigfleet fake-provider` as a process: the kit's own server around the pretend cloud, with a control socket.

Loopback only, by address check at start: a fake that a fleet could reach would sell machines that do not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import structlog

from bigfleet.provider.fake.backend import FakeProvider, fake_provider
from bigfleet.provider.fake.catalogue import Catalogue
from bigfleet.provider.fake.control import ControlSocket, require_local_address
from bigfleet.provider.kit.flags import Flags
from bigfleet.provider.kit.runtime import Options
from bigfleet.provider.kit.serve import ProviderProcess
from bigfleet.provider.kit.store import StoreError
from bigfleet.transport.certificates import PLAINTEXT, TlsFiles

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FakeSettings:
    """How a fake process is run; the catalogue says what it is."""

    listen: str
    catalogue: Catalogue
    state: str = ""
    control: str = ""
    metrics_addr: str = ""
    tls: TlsFiles = field(default=PLAINTEXT)


class FakeProcess:
    """One running fake, also for tests and benchmarks that embed it."""

    def __init__(self, settings: FakeSettings) -> None:
        require_local_address(settings.listen, "--listen")
        catalogue = settings.catalogue
        self.provider: FakeProvider = fake_provider(catalogue)
        self.control = ControlSocket(settings.control, self.provider) if settings.control else None
        flags = Flags(
            addr=settings.listen,
            provider=catalogue.provider,
            state=settings.state,
            reconcile_interval=0.0,
            metrics_addr=settings.metrics_addr,
            tls=settings.tls,
        )
        options = Options(timeouts=catalogue.timeouts, relist_after=catalogue.relist_seconds)
        self.process = ProviderProcess(self.provider, flags, options)
        self._living: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self.process.address

    async def start(self) -> None:
        await self.process.start()
        self._living = asyncio.create_task(self.provider.live(self.process.runtime))
        await asyncio.sleep(0)  # the provider is live once its task has taken its first step
        if self.control is not None:
            await self.control.start()
            log.info("control socket open", addr=self.control.address)

    async def stop(self) -> None:
        if self.control is not None:
            await self.control.stop()
        if self._living is not None:
            self._living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._living
        await self.process.stop()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop; a store that fails ends the process with its error."""
        await self.start()
        failure = self.process.runtime.journal.failed
        waiting = [asyncio.create_task(event.wait()) for event in (stop, failure)]
        assert self._living is not None
        await asyncio.wait({*waiting, self._living}, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        died = self._living.exception() if self._living.done() else None
        await self.stop()
        if died is not None:
            raise died
        if failure.is_set():
            raise StoreError("state could not be written; the log above says why")
