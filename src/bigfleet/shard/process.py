"""`bigfleet shard` as a process: puts core, engine, streams, providers, journal and readers together, and ends them.

Start-up fails with one sentence before anything is served. The first part that breaks ends the process non-zero. A stop
ends streams first, then lets calls under way finish within the grace; what is journalled needs no farewell.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from bigfleet.engine import Engine
from bigfleet.shard.contract.events import StepDone
from bigfleet.shard.coordinator_link.link import CoordinatorLink
from bigfleet.shard.coordinator_link.report import standing_of
from bigfleet.shard.core.core import ShardCore
from bigfleet.shard.core.shortage_probe import EVERY_CYCLES
from bigfleet.shard.provider_io.provider_calls import ProviderCalls
from bigfleet.shard.read.inspecting import needs_of_last_step
from bigfleet.shard.read.service import AdminService, ReadService
from bigfleet.shard.recording.switch import Recording
from bigfleet.shard.runtime import gc_tuning
from bigfleet.shard.runtime.audit import AuditLog
from bigfleet.shard.runtime.clock import SteadyClock
from bigfleet.shard.runtime.conductor import Conductor
from bigfleet.shard.runtime.engine_thread import EngineThread
from bigfleet.shard.runtime.journal import JournalFile
from bigfleet.shard.runtime.kernel_start import KernelStart
from bigfleet.shard.settings import FAKE_PROVIDER, ProcessSettings
from bigfleet.shard.streams.session_streams import SessionStreams
from bigfleet.shard.telemetry.gauges import publish_gauges
from bigfleet.shard.telemetry.metrics import PREFIX, ShardMetrics
from bigfleet.transport import Server, channel, identity
from bigfleet.transport.address import is_local
from bigfleet.transport.certificate_watch import CertificateWatch, require_own
from bigfleet.transport.endpoints import HttpEndpoints
from bigfleet.transport.parts import Parts
from bigfleet.wire import shard_pb2_grpc, shardread_pb2_grpc

if TYPE_CHECKING:
    from bigfleet.engine.results import Action
    from bigfleet.provider.client import ProviderEndpoint
    from bigfleet.shard.contract.config import ShardConfig
    from bigfleet.shard.contract.events import Audit, Event, RunStep
    from bigfleet.shard.contract.step_result import StepResult
    from bigfleet.transport.identity import Identity

log = structlog.get_logger(__name__)

SECOND = 1_000_000_000
PUBLISH_SECONDS = 1.0
SWITCH_SECONDS = 0.001
SERVING_SECONDS = 0.1
# The environment's way to switch the attribution probe on.
PHASEDUMP = "BIGFLEET_PHASEDUMP"


async def run_shard(settings: ProcessSettings, config: ShardConfig, stop: asyncio.Event) -> None:
    """Serve until told to stop; raises what broke."""
    async with ShardProcess.opened(settings, config) as shard:
        await shard.serve(stop)


class ShardProcess:
    """One running shard, also for tests, the demo and all-in-one. Make it with `opened`."""

    def __init__(self, settings: ProcessSettings, config: ShardConfig, journal: JournalFile) -> None:
        self.settings = settings
        self.config = config
        self.clock = SteadyClock()
        self.metrics = ShardMetrics()
        self._log = log.bind(component="shard", shard_id=config.id, epoch=journal.epoch)
        self.core = ShardCore(config, journal.state)
        self.kernels = KernelStart(self.core.read.machine_count, lambda: self.core.ready, self._log)
        self.kernels.begin()
        self.recording = Recording(
            Path(settings.data_dir),
            shard_id=config.id,
            epoch=journal.epoch,
            clock=self.clock,
            snapshot=lambda: self.core.read.inputs(self.clock()),
        )
        if settings.record:
            self.recording.open(Path(settings.record))
        self.engine = EngineThread(Engine(), record=self.recording.write)
        self._audit = _audit_log(settings)
        self.conductor = Conductor(
            self.core,
            clock=self.clock,
            step=self._step,
            write_journal=journal.write,
            write_audit=self._write_audit,
            metrics=self.metrics,
            log=self._log,
            on_handled=self._timed,
            on_report=self._report_soon,
        )
        self.streams = SessionStreams(
            self.conductor,
            self.metrics,
            self.core.read.repeated,
            max_frame_bytes=settings.max_frame_bytes,
            hello_seconds=settings.hello_timeout / SECOND,
            placement=config.placement,
        )
        self.conductor.streams = self.streams
        self.server = Server(settings.listen, tls=settings.tls, insecure=settings.insecure, require_identity=False)
        self.server.grpc.add_generic_rpc_handlers((self.streams.handler(),))
        self.server.add(
            shardread_pb2_grpc.add_ShardReadServicer_to_server,
            ReadService(self.core, self.engine, self.kernels.waiting_for),
        )
        self.server.add(
            shard_pb2_grpc.add_ShardAdminServicer_to_server,
            AdminService(self.core, self.conductor, self.recording, config.id),
        )
        self.registry = CollectorRegistry()
        self.registry.register(self.metrics)
        ProcessCollector(registry=self.registry)
        self.certificates = CertificateWatch(settings.tls, PREFIX, own=_own_identity(settings, config))
        self.registry.register(self.certificates)
        self.http = HttpEndpoints(
            settings.metrics_addr,
            registry=self.registry,
            ready=[self._not_listed, self.kernels.waiting_for, self._fenced, self.certificates.unusable],
        )
        self.providers: ProviderCalls | None = None
        self.link: CoordinatorLink | None = self._coordinator_link(journal.epoch)
        self._steps = 0
        self._probing = settings.phase_attribution_log or os.environ.get(PHASEDUMP) == "1"
        self._merging = 0.0
        self.parts = Parts()

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: ProcessSettings, config: ShardConfig) -> AsyncIterator[ShardProcess]:
        """A shard whose address is bound and whose journal is open; closed in order at the end of the block."""
        if (own := _own_identity(settings, config)) is not None:
            require_own(settings.tls, own)
        async with AsyncExitStack() as stack:
            journal = JournalFile(Path(settings.data_dir), config.id, min_epoch=settings.min_epoch)
            stack.callback(journal.close)
            shard = cls(settings, config, journal)
            stack.callback(shard.kernels.close)
            stack.callback(shard.engine.close)
            stack.callback(shard._close_files)
            endpoints = await shard._endpoints(stack)
            shard.providers = ProviderCalls(
                endpoints,
                shard.conductor,
                shard.clock,
                list_seconds=settings.list_timeout / SECOND,
                read_seconds=settings.read_timeout / SECOND,
                page_size=settings.list_page_size,
                log_problem=shard._undecodable,
            )
            stack.push_async_callback(shard.providers.close)
            shard.conductor.providers = shard.providers
            shard.registry.register(shard.providers.metrics)
            yield shard

    @property
    def address(self) -> str:
        return self.server.address

    async def serve(self, stop: asyncio.Event) -> None:
        """Until `stop` is set or a part breaks; raises what broke."""
        await self.parts.serve(stop, self._start, self._stop)

    async def _start(self) -> None:
        gc_tuning.while_starting()
        # The engine's thread comes back from compiled code many times in a step, and would wait for the loop's usual
        # 5 ms each time.
        sys.setswitchinterval(SWITCH_SECONDS)
        await self.http.start()
        await self.server.start()
        self.parts.spawn(self.conductor.run())
        self.parts.spawn(self.kernels.run(self.engine.between_steps))
        self.parts.spawn(self._serve_when_deciding())
        self.parts.spawn(self._publish())
        self.parts.spawn(self.certificates.run())
        if self.link is not None:
            self.parts.spawn(self.link.run())
        self._log.info(
            "shard started",
            execute_workers=self.config.execute_concurrency,
            queue_capacity=0,
            providers=list(self.config.providers),
        )
        self._log.info("listening", addr=self.address)
        if not self.server.tls and is_local(self.address):
            self._log.info(
                "plaintext, so only this machine can connect; give tls-cert, tls-key and tls-ca to serve others",
                addr=self.address,
            )

    async def _stop(self) -> None:
        grace = self.settings.shutdown_grace / SECOND
        self.http.begin_stop()
        self.streams.close_all()
        await self.server.stop(grace)
        await self.parts.end()
        await self.conductor.close(grace)
        await self.http.stop()
        self._log.info("shard stopped")

    async def _step(self, wanted: RunStep) -> StepResult:
        await self.kernels.until_usable()
        return await self.engine.step(wanted)

    async def _serve_when_deciding(self) -> None:
        """Health is told once this fleet, and not an empty one before its first List, can be decided about."""
        while not self.kernels.compiled and (not self.core.ready or self.kernels.waiting_for()):
            await asyncio.sleep(SERVING_SECONDS)
        await self.server.set_serving(True)

    async def _publish(self) -> None:
        settled = False
        before = None
        while True:
            published = self.core.published
            publish_gauges(self.metrics, published, before, self.clock())
            before = published
            if published.ready and not settled:
                settled = True
                gc_tuning.while_serving()
            for (method, code), number in self.server.rpc_errors.items():
                self.metrics.counted("rpc_errors_total", (method, code), number)
            await asyncio.sleep(PUBLISH_SECONDS)

    def _not_listed(self) -> str | None:
        published = self.core.published
        return None if published.ready else f"the first provider reconcile is not complete: {published.waiting_for}"

    def _fenced(self) -> str | None:
        """Why nothing is done at some provider; a person must know, and a restart must not decide it."""
        return "; ".join(self.core.published.stood_off.values()) or None

    def _timed(self, event: Event, seconds: float, worked: float) -> None:
        """Time a cycle: merging Lists before it, the engine's phases, and what the core then made of them."""
        if not isinstance(event, StepDone):
            self._merging += seconds
            return
        if self._probing and event.step % EVERY_CYCLES == 0:
            self.parts.spawn(self._probe(tuple(event.result.actions.rows())))
        merging, self._merging = self._merging, 0.0
        self._steps += 1
        if self._steps <= self.settings.metrics_warmup_cycles:
            return
        times = self.engine.times
        self.metrics.observe("cycle_duration_seconds", times.seconds + seconds)
        self._log.debug(
            "cycle",
            step=event.step,
            seconds=times.seconds + seconds,
            merging=merging,
            execute=seconds,
            cpu=times.processor_seconds + worked,
            **times.phases,
        )
        for phase, spent in {"reconcile": merging, **times.phases, "execute": seconds}.items():
            self.metrics.observe("cycle_phase_duration_seconds", spent, (phase,))

    async def _probe(self, actions: tuple[Action, ...]) -> None:
        page = await needs_of_last_step(self.engine)
        for message, attributes in self.core.read.shortage_lines(page.verdicts, actions):
            self._log.info(message, cycle=page.cycle, **attributes)

    def _report_soon(self) -> None:
        if self.link is not None:
            self.link.report_soon()

    def _undecodable(self, provider: str, machine: str, problem: str) -> None:
        self.metrics.count("machines_rejected_total", ("structural",))
        self._log.warning("provider machine rejected at ingest", provider=provider, machine=machine, err=problem)

    def _write_audit(self, records: list[tuple[int, Audit]]) -> None:
        if self._audit is not None:
            self._audit.write(records)

    def _close_files(self) -> None:
        self.recording.stop()
        if self._audit is not None:
            self._audit.close()

    def _coordinator_link(self, epoch: int) -> CoordinatorLink | None:
        settings = self.settings
        if not settings.coordinators:
            return None
        return CoordinatorLink(
            settings.coordinators,
            lambda address: channel(address, tls=settings.tls, insecure=settings.insecure),
            self.conductor,
            lambda: standing_of(self.core, self.clock()),
            self.metrics,
            shard_id=self.config.id,
            epoch=epoch,
            advertise=settings.advertise_addr or self.address,
            interval=settings.coordinator_heartbeat_interval / SECOND,
            clock=self.clock,
        )

    async def _endpoints(self, stack: AsyncExitStack) -> Sequence[ProviderEndpoint]:
        if not self.settings.fake_provider:
            endpoints = self.settings.endpoints()
            for endpoint in endpoints:
                self._log.info("dialing out-of-tree provider", provider=endpoint.name, addr=endpoint.address)
            return endpoints
        # Imported here: a shard that runs machines has no use for code that pretends to.
        from bigfleet.shard.rehearsal.pretending import pretend_provider

        return [await stack.enter_async_context(pretend_provider(FAKE_PROVIDER, self.settings, self.config.id))]


def _own_identity(settings: ProcessSettings, config: ShardConfig) -> Identity | None:
    """Who this shard's certificate must say it is; nobody is anybody over plaintext."""
    return identity.shard(config.id) if settings.tls.enabled else None


def _audit_log(settings: ProcessSettings) -> AuditLog | None:
    if not settings.audit_log:
        return None
    opened = AuditLog(Path(settings.audit_log), max_bytes=settings.audit_log_max_bytes, keep=settings.audit_log_keep)
    log.info("decision audit log enabled", path=settings.audit_log)
    return opened
