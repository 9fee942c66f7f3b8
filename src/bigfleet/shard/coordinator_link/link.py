"""The shard's line to the coordinator: reports out, answers in. Never in the hot path.

Decides nothing but whom to dial and when: what an answer means is the core's to say (`core/coordination`). Everything
here may fail or be absent for ever and the shard goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import structlog

from bigfleet.model.names import REDIRECT
from bigfleet.shard.contract import events as ev
from bigfleet.shard.coordinator_link.codec import ack_to_wire, answer_of
from bigfleet.wire import coordinator_pb2, coordinator_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bigfleet.shard.contract.coordination import Ack
    from bigfleet.shard.telemetry.metrics import ShardMetrics

log = structlog.get_logger("bigfleet.shard.coordinator_link")

CAPABILITIES = ("ownership-table", "transfers", "rails", "arrivals", "looks")
REPORT_SECONDS = 10.0
DEADLINE_SECONDS = 10.0
SHORTEST_PAUSE_SECONDS = 1.0


class Poster(Protocol):
    def ask(self, event: ev.Event) -> asyncio.Future[None]: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """What a report says about the shard besides who it is; rendered when a report is due."""

    summary: coordinator_pb2.ShardSummary
    shortfalls: Sequence[coordinator_pb2.Shortfall]
    clusters: Sequence[coordinator_pb2.ReportedCluster]
    ownership_version: int = 0
    highest_term: int = 0
    acks: Sequence[Ack] = ()
    providers: Sequence[str] = ()
    arriving: Sequence[str] = ()
    relabelled: Sequence[coordinator_pb2.RelabelledMachine] = ()
    looked: int = 0
    unsure: int = 0


def report_message(
    standing: Standing, *, shard_id: str, cycle: int, epoch: int, advertise: str, now: int
) -> coordinator_pb2.ShardReport:
    """A report; `cycle` counts those of this process from one."""
    return coordinator_pb2.ShardReport(
        shard_id=shard_id,
        cycle=cycle,
        timestamp_unix_nanos=now,
        shard_epoch=epoch,
        summary=standing.summary,
        shortfalls=standing.shortfalls,
        instruction_acks=[ack_to_wire(ack) for ack in standing.acks],
        shard_address=advertise,
        clusters=standing.clusters,
        capabilities=CAPABILITIES,
        ownership_version=standing.ownership_version,
        highest_term=standing.highest_term,
        providers=standing.providers,
        arriving=standing.arriving,
        relabelled=standing.relabelled,
        looked=standing.looked,
        unsure=standing.unsure,
    )


class CoordinatorLink:
    """Reports for ever; `run` never raises for anything a coordinator does."""

    def __init__(
        self,
        addresses: Sequence[str],
        dial: Callable[[str], grpc.aio.Channel],
        poster: Poster,
        standing: Callable[[], Standing],
        metrics: ShardMetrics,
        *,
        shard_id: str,
        epoch: int,
        advertise: str,
        interval: float = REPORT_SECONDS,
        deadline: float = DEADLINE_SECONDS,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._addresses = list(addresses)
        self._dial = dial
        self._poster = poster
        self._standing = standing
        self._metrics = metrics
        self._shard_id = shard_id
        self._epoch = epoch
        self._advertise = advertise
        self._interval = interval
        self._deadline = deadline
        self._clock = clock
        self._reports = 0
        self._something_to_tell = False
        self._waiting = False
        self._soon = asyncio.Event()
        self._at = 0
        self._address = self._addresses[0]
        self._channel: grpc.aio.Channel | None = None
        self._log = log.bind(component="coordclient", shard_id=shard_id)

    def report_soon(self) -> None:
        """Something cannot wait for the next interval."""
        self._soon.set()

    async def run(self) -> None:
        """Report now, then every interval or when asked, until cancelled."""
        self._log.info("coord client started", addr=self._address)
        try:
            while True:
                self._soon.clear()
                if await self.report() and self._something_to_tell:
                    # Whoever asked waits for the answer, and a new table for being confirmed; once, so that one who
                    # asks for ever does not speed us up.
                    await self.report()
                # Help comes with an answer: who is short, or unsure what is its own, asks twice as often.
                pause = self._interval / 2 if self._waiting else self._interval
                await asyncio.sleep(min(SHORTEST_PAUSE_SECONDS, pause))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, pause - SHORTEST_PAUSE_SECONDS)):
                        await self._soon.wait()
        finally:
            self._log.info("coord client stopped")
            if self._channel is not None:
                await self._channel.close(None)

    async def report(self) -> bool:
        """One report and what its answer asks for; False when it did not get through."""
        self._reports += 1
        standing = self._standing()
        try:
            answer = await self._sent(standing)
        except grpc.aio.AioRpcError as error:
            self._metrics.count("coordinator_reports_total", ("failed",))
            self._log.warning("ReportShard failed", addr=self._address, code=error.code().name, err=error.details())
            await self._turn_elsewhere(error)
            return False
        self._metrics.count("coordinator_reports_total", ("ok",))
        await self._poster.ask(answer_of(answer, [ack.instruction for ack in standing.acks]))
        since = self._standing()
        self._something_to_tell = bool(since.acks) or since.ownership_version != standing.ownership_version
        self._waiting = bool(since.shortfalls) or since.unsure > 0
        self._metrics.publish("coordinator_term", since.highest_term)
        return True

    async def _sent(self, standing: Standing) -> coordinator_pb2.ReportAck:
        if self._channel is None:
            self._channel = self._dial(self._address)
        report = report_message(
            standing,
            shard_id=self._shard_id,
            cycle=self._reports,
            epoch=self._epoch,
            advertise=self._advertise,
            now=self._clock(),
        )
        stub = coordinator_pb2_grpc.CoordinatorStub(self._channel)
        answer: coordinator_pb2.ReportAck = await stub.ReportShard(report, timeout=self._deadline)
        return answer

    async def _turn_elsewhere(self, error: grpc.aio.AioRpcError) -> None:
        """A follower may name the leader; otherwise the next configured address has its turn."""
        trailers: Any = error.trailing_metadata() or ()
        hint = next((value for key, value in trailers if key == REDIRECT), "")
        if hint:
            target = str(hint)
            self._soon.set()
        elif len(self._addresses) > 1 or self._address not in self._addresses:
            self._at = (self._at + 1) % len(self._addresses)
            target = self._addresses[self._at]
        else:
            return
        if target != self._address:
            self._log.info("coordinator address changed", addr=target)
            old, self._channel, self._address = self._channel, None, target
            if old is not None:
                await old.close(None)
