"""Carries the core's provider calls: one attempt each, with the core's own fence and deadline, answered as events.

Listings hash records and decode only the changed ones, slice by slice, and wait for the core to take each slice.
Decides nothing: attempts, backoff and timeouts are the core's.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bigfleet.model.blob import plain_words
from bigfleet.model.machine import CallKind
from bigfleet.provider.client import (
    NO_RETRY,
    Busy,
    CallLimits,
    Fenced,
    FencingToken,
    GivenFences,
    Invalid,
    InventoryIndex,
    Malformed,
    NotFound,
    ProviderClient,
    ProviderEndpoint,
    ProviderError,
    ProviderRegistry,
    RateLimited,
    Refused,
    RpcMetrics,
    SoldOut,
    Throttled,
    TimedOut,
    Unavailable,
    Unimplemented,
    Unreachable,
)
from bigfleet.shard.contract import events as ev
from bigfleet.shard.provider_io.machine_codec import MachineDecoder, RecordError, Undecodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bigfleet.provider.client import Batch
    from bigfleet.shard.runtime.clock import SteadyClock
    from bigfleet.wire import provider_pb2

# Decoding so many changed records holds the loop for a few milliseconds.
SLICE_RECORDS = 400
# The core removes a machine after two absences; a few more cost nothing and survive a List it holds back.
ABSENCES_REPORTED = 10

_FAILURES: tuple[tuple[type[ProviderError], ev.Failure], ...] = (
    (Fenced, ev.Failure.FENCED),
    (NotFound, ev.Failure.NOT_FOUND),
    (Unimplemented, ev.Failure.UNIMPLEMENTED),
    (Invalid, ev.Failure.INVALID),
    (TimedOut, ev.Failure.DEADLINE),
    (Busy, ev.Failure.BUSY),
    (Unreachable, ev.Failure.UNREACHED),
    (Unavailable, ev.Failure.UNAVAILABLE),
    (SoldOut, ev.Failure.SOLD_OUT),
    (Throttled, ev.Failure.THROTTLED),
    (RateLimited, ev.Failure.EXHAUSTED),
)


class Poster(Protocol):
    def post(self, event: ev.Event) -> None: ...

    def ask(self, event: ev.Event) -> asyncio.Future[None]: ...


@dataclass(slots=True)
class _Provider:
    client: ProviderClient
    decoder: MachineDecoder
    absences: dict[str, int] = field(default_factory=dict)
    listing: bool = False

    @property
    def index(self) -> InventoryIndex:
        return self.client.index

    def missed(self, absent: tuple[str, ...]) -> tuple[str, ...]:
        """The ids to report as absent; those reported often enough are forgotten, or vanished ids would pile up."""
        counts = {machine: self.absences.get(machine, 0) + 1 for machine in absent}
        for machine in [machine for machine, count in counts.items() if count >= ABSENCES_REPORTED]:
            self.index.forget(machine)
            del counts[machine]
        self.absences = counts
        return absent


class ProviderCalls:
    """Every provider of the shard, by name."""

    def __init__(
        self,
        endpoints: Iterable[ProviderEndpoint],
        poster: Poster,
        clock: SteadyClock,
        *,
        list_seconds: float = 120.0,
        read_seconds: float = 30.0,
        page_size: int = 25_000,
        log_problem: Callable[[str, str, str], None] = lambda provider, machine, problem: None,
    ) -> None:
        self.metrics = RpcMetrics()
        self._poster = poster
        self._clock = clock
        self._log_problem = log_problem
        limits = CallLimits(get=read_seconds, list=list_seconds, page_size=page_size, slice_records=SLICE_RECORDS)
        self._registry = ProviderRegistry(tokens=GivenFences(), limits=limits, retry=NO_RETRY, metrics=self.metrics)
        self._providers = {
            endpoint.name: _Provider(self._registry.add(endpoint), MachineDecoder(endpoint.name))
            for endpoint in endpoints
        }

    async def close(self) -> None:
        await self._registry.close()

    async def call(self, wanted: ev.CallProvider) -> None:
        provider = self._providers[wanted.provider]
        seconds = max(0.001, (wanted.deadline - self._clock()) / 1e9)
        try:
            ack = await _sent(provider.client, wanted, seconds)
            answer: ev.Event = ev.CallDone(wanted.op, _acknowledged(provider.decoder, wanted.machine, ack))
        except ProviderError as error:
            # Configure carries the blob, so it is known there; a host that is created was given none yet.
            knows = wanted.kind in (CallKind.CREATE, CallKind.CONFIGURE)
            answer = ev.CallFailed(wanted.op, _failure(error), str(error) if knows else _plain(error))
        except RecordError as error:
            answer = ev.CallFailed(wanted.op, ev.Failure.OTHER, f"ack rejected: {error}")
        self._poster.post(answer)

    async def read(self, wanted: ev.StartRead) -> None:
        provider = self._providers[wanted.provider]
        began = self._clock()
        try:
            message = await provider.client.get(wanted.machine)
            record = provider.decoder.machine(message)
            answer: ev.Event = ev.MachineRead(wanted.provider, wanted.machine, began, record)
        except NotFound:
            answer = ev.MachineRead(wanted.provider, wanted.machine, began, None)
        except RecordError as error:
            answer = ev.ReadFailed(wanted.provider, wanted.machine, str(error))
        except ProviderError as error:
            limited = isinstance(error, RateLimited)
            answer = ev.ReadFailed(wanted.provider, wanted.machine, _plain(error), limited)
        # What this told the core is newer than the last List; the next one must not call the machine unchanged.
        provider.index.expect_change(wanted.machine, time.monotonic_ns())
        self._poster.post(answer)

    async def list(self, wanted: ev.StartList) -> None:
        provider = self._providers[wanted.provider]
        if provider.listing:
            return
        provider.listing = True
        try:
            await self._listed(provider, wanted)
        except ProviderError as error:
            if isinstance(error, Malformed):
                provider.index.reset()
            self._poster.post(ev.ListFailed(wanted.provider, str(error), isinstance(error, RateLimited)))
        finally:
            provider.listing = False

    async def _listed(self, provider: _Provider, wanted: ev.StartList) -> None:
        began = self._clock()
        incremental = not wanted.full and bool(wanted.revision)
        if incremental:
            provider.index.cursor = wanted.revision
        listing = provider.client.decoding(provider.decoder.read, incremental=incremental)
        absent: tuple[str, ...] = ()
        async for batch in listing:
            if batch.absent:
                absent = batch.absent
            else:
                await self._poster.ask(self._part(wanted.provider, batch, full=not incremental))
        summary = listing.summary
        assert summary is not None, "a listing that was read to its end has a summary"
        if summary.complete:
            absent = provider.missed(absent)
        self._poster.post(
            ev.ListArrived(
                wanted.provider,
                began,
                summary.complete,
                complete=True,
                absent=absent,
                revision=provider.index.cursor,
            )
        )

    def _part(self, name: str, batch: Batch[ev.ListedMachine | Undecodable], *, full: bool) -> ev.ListArrived:
        machines = tuple(entry for entry in batch.changed if isinstance(entry, ev.ListedMachine))
        undecodable = []
        for entry in batch.changed:
            if isinstance(entry, Undecodable):
                self._log_problem(name, entry.id, entry.problem)
                if entry.id:
                    undecodable.append(entry.id)
        return ev.ListArrived(
            name,
            self._clock.from_monotonic(batch.began_ns),
            full,
            complete=False,
            machines=machines,
            removed=batch.removed,
            # Which machines are absent the last part says; the core need not remember half a million ids until then.
            absent=(),
            undecodable=tuple(undecodable),
        )


async def _sent(client: ProviderClient, wanted: ev.CallProvider, seconds: float) -> provider_pb2.TransitionAck:
    fence = FencingToken(wanted.fence.shard_id, wanted.fence.epoch, wanted.fence.sequence)
    match wanted.kind:
        case CallKind.CREATE:
            return await client.create(wanted.machine, deadline=seconds, fence=fence)
        case CallKind.CONFIGURE:
            return await client.configure(
                wanted.machine, wanted.cluster, wanted.blob, dict(wanted.metadata), deadline=seconds, fence=fence
            )
        case CallKind.DRAIN:
            return await client.drain(wanted.machine, wanted.grace_seconds, deadline=seconds, fence=fence)
        case CallKind.DELETE:
            return await client.delete(wanted.machine, deadline=seconds, fence=fence)


def _acknowledged(decoder: MachineDecoder, machine: str, ack: provider_pb2.TransitionAck) -> ev.ListedMachine:
    if ack.machine.id != machine:
        raise RecordError(f"machine {machine}: the ack names machine {ack.machine.id!r}")
    return decoder.machine(ack.machine)


def _plain(error: ProviderError) -> str:
    """What a provider says of a machine whose blob it may know and we do not, without what may be part of it.

    Only words about a failure of its own: those of a refusal by the contract, and ours, have numbers people need.
    """
    if not isinstance(error, Refused | Busy):
        return str(error)
    detail = plain_words(error.detail, {error.machine_id, error.provider})
    return str(type(error)(error.provider, error.method, error.code, detail, error.machine_id))


def _failure(error: ProviderError) -> ev.Failure:
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), ev.Failure.OTHER)
