"""The shard's side of the provider contract: six calls with deadlines, retries where allowed, and typed errors.

A client belongs to one provider under one name. It decides nothing about machines. Every attempt of a mutation carries
a fresh fencing token; the bootstrap blob goes out in Configure and appears in no error, log line or metric.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from bigfleet.model.names import REASON
from bigfleet.provider.client.errors import ProviderError, error_for
from bigfleet.provider.client.fence import FencingToken, TokenSource, Unfenced
from bigfleet.provider.client.inventory import InventoryIndex
from bigfleet.provider.client.listing import Listing
from bigfleet.provider.client.metrics import RpcMetrics
from bigfleet.provider.client.plan import ListPlan, ListQuery, Paging
from bigfleet.provider.client.retry import NO_RETRY, RetryPolicy, pause_before_retry
from bigfleet.transport.advice import with_advice
from bigfleet.wire import provider_pb2 as pb

R = TypeVar("R")
T = TypeVar("T")

# How gRPC words a status it made up itself, because nobody was there or the way broke; anything else the peer said.
_MADE_ON_THE_WAY = (
    "connect", "socket closed", "goaway", "rst_stream", "recvmsg", "resol", "handshake", "ping", "transport",
    "broken pipe", "keepalive", "stream removed", "backends", "certificate",
)  # fmt: skip
_SERVICE = "/bigfleet.v1alpha1.CapacityProvider"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Deadlines in seconds, each the budget of all attempts of a call, and the sizes of a List."""

    lifecycle: float = 30.0
    get: float = 30.0
    list: float = 120.0
    page_size: int = 25_000
    slice_records: int = 1_000


class ProviderClient:
    """Six calls to one provider. The channel is borrowed: whoever opened it closes it."""

    def __init__(
        self,
        name: str,
        channel: grpc.aio.Channel,
        *,
        tokens: TokenSource | None = None,
        limits: CallLimits | None = None,
        retry: RetryPolicy | None = None,
        metrics: RpcMetrics | None = None,
        dice: random.Random | None = None,
        index: InventoryIndex | None = None,
    ) -> None:
        self.name = name
        self.limits = limits if limits is not None else CallLimits()
        #: What the last listings showed; `full` and `incremental` report the differences to it.
        self.index = index if index is not None else InventoryIndex()
        self._tokens: TokenSource = tokens if tokens is not None else Unfenced()
        self._retry = retry if retry is not None else RetryPolicy()
        self._metrics = metrics if metrics is not None else RpcMetrics()
        self._dice = dice if dice is not None else random.Random()
        self._create = _method(channel, "Create", pb.CreateRequest, pb.TransitionAck.FromString)
        self._configure = _method(channel, "Configure", pb.ConfigureRequest, pb.TransitionAck.FromString)
        self._drain = _method(channel, "Drain", pb.DrainRequest, pb.TransitionAck.FromString)
        self._delete = _method(channel, "Delete", pb.DeleteRequest, pb.TransitionAck.FromString)
        self._get = _method(channel, "Get", pb.MachineRef, pb.Machine.FromString)
        # No deserialiser: a List stays bytes until each record's hash says that it changed.
        self._list = _method(channel, "List", pb.ListFilter, None)

    async def create(
        self, machine_id: str, *, deadline: float | None = None, fence: FencingToken | None = None
    ) -> pb.TransitionAck:
        """SPECULATIVE → CREATING → IDLE."""

        def request(token: FencingToken) -> pb.CreateRequest:
            return pb.CreateRequest(machine_id=machine_id, **_fencing(token))

        return await self._mutate("Create", self._create, request, machine_id, deadline, fence)

    async def configure(
        self,
        machine_id: str,
        cluster_id: str,
        bootstrap_blob: bytes,
        shard_metadata: Mapping[str, str] | None = None,
        *,
        deadline: float | None = None,
        fence: FencingToken | None = None,
    ) -> pb.TransitionAck:
        """IDLE → CONFIGURING → CONFIGURED, bound to `cluster_id`."""

        def request(token: FencingToken) -> pb.ConfigureRequest:
            return pb.ConfigureRequest(
                machine_id=machine_id,
                cluster_id=cluster_id,
                bootstrap_blob=bootstrap_blob,
                shard_metadata=shard_metadata or {},
                **_fencing(token),
            )

        return await self._mutate(
            "Configure", self._configure, request, machine_id, deadline, fence, secret=bootstrap_blob
        )

    async def drain(
        self, machine_id: str, grace_seconds: int, *, deadline: float | None = None, fence: FencingToken | None = None
    ) -> pb.TransitionAck:
        """CONFIGURED → DRAINING → IDLE. The call returns at once; `grace_seconds` bounds the kubelet's shutdown."""

        def request(token: FencingToken) -> pb.DrainRequest:
            return pb.DrainRequest(machine_id=machine_id, grace_period_seconds=grace_seconds, **_fencing(token))

        return await self._mutate("Drain", self._drain, request, machine_id, deadline, fence)

    async def delete(
        self, machine_id: str, *, deadline: float | None = None, fence: FencingToken | None = None
    ) -> pb.TransitionAck:
        """IDLE → DELETING → SPECULATIVE. Raises Unimplemented where hosts cannot be given back."""

        def request(token: FencingToken) -> pb.DeleteRequest:
            return pb.DeleteRequest(machine_id=machine_id, **_fencing(token))

        return await self._mutate("Delete", self._delete, request, machine_id, deadline, fence)

    async def get(self, machine_id: str, *, deadline: float | None = None) -> pb.Machine:
        """The machine as the provider sees it now; raises NotFound."""
        budget = self.limits.get if deadline is None else deadline

        async def attempt(remaining: float) -> pb.Machine:
            answer: pb.Machine = await self._get(pb.MachineRef(id=machine_id), timeout=remaining)
            return answer

        return await self._call("Get", attempt, budget, self._retry, machine_id=machine_id)

    async def list_page(self, query: ListQuery, *, deadline: float | None = None) -> bytes:
        """One List call, answered as serialised MachineList."""
        budget = self.limits.list if deadline is None else deadline
        request = pb.ListFilter(
            states=[pb.MachineState.ValueType(state) for state in query.states],
            max_results=query.max_results,
            since_revision=query.since,
        )

        async def attempt(remaining: float) -> bytes:
            answer: bytes = await self._list(request, timeout=remaining)
            return answer

        return await self._call("List", attempt, budget, self._retry)

    def full(self) -> Listing[pb.Machine]:
        """Every machine: what changed since the last listing, and what is no longer there."""
        return self._listing(pb.Machine.FromString, since=b"")

    def incremental(self) -> Listing[pb.Machine]:
        """What changed since the last listing's cursor; a full listing where there is none yet."""
        return self._listing(pb.Machine.FromString, since=self.index.cursor)

    def in_states(self, states: Collection[int]) -> Listing[pb.Machine]:
        """The machines in some states. Says nothing about the others and leaves the cursor alone."""
        return self._listing(pb.Machine.FromString, since=b"", states=tuple(sorted(states)))

    def decoding(self, decode: Callable[[bytes], T], *, incremental: bool) -> Listing[T]:
        """Like `full` and `incremental`, with the caller's own decoder for changed records."""
        return self._listing(decode, since=self.index.cursor if incremental else b"")

    def _listing(self, decode: Callable[[bytes], T], *, since: bytes, states: tuple[int, ...] = ()) -> Listing[T]:
        # What was learnt about paging concerns inventory-wide answers; some states are asked for in pages anyway.
        paging = self.index.paging if not states else Paging.UNKNOWN
        plan = ListPlan(page_size=self.limits.page_size, paging=paging, since=since, states=states)
        return Listing(
            self.name,
            self.list_page,
            decode,
            self.index,
            plan,
            slice_records=self.limits.slice_records,
            clock_ns=time.monotonic_ns,
        )

    async def _mutate(
        self,
        method: str,
        stub: Callable[..., Awaitable[Any]],
        request: Callable[[FencingToken], object],
        machine_id: str,
        deadline: float | None,
        fence: FencingToken | None,
        *,
        secret: bytes = b"",
    ) -> pb.TransitionAck:
        budget = self.limits.lifecycle if deadline is None else deadline
        # A token is good for one attempt: who gives the fence also decides whether there is another one.
        retry = self._retry if fence is None else NO_RETRY

        async def attempt(remaining: float) -> pb.TransitionAck:
            token = self._tokens.next() if fence is None else fence
            answer: pb.TransitionAck = await stub(request(token), timeout=remaining)
            return answer

        try:
            return await self._call(method, attempt, budget, retry, machine_id=machine_id, secret=secret)
        finally:
            # Also after an error: a call of unknown fate may have been applied.
            self.index.expect_change(machine_id, time.monotonic_ns())

    async def _call(
        self,
        method: str,
        attempt: Callable[[float], Awaitable[R]],
        budget: float,
        retry: RetryPolicy,
        *,
        machine_id: str = "",
        secret: bytes = b"",
    ) -> R:
        began = time.monotonic()
        number = 0
        while True:
            number += 1
            sent = time.monotonic()
            try:
                answer = await attempt(budget - (sent - began))
            except grpc.aio.AioRpcError as failure:
                error = error_for(
                    self.name,
                    method,
                    failure.code().name,
                    with_advice(failure.details() or "", "provider"),
                    machine_id=machine_id,
                    secret=secret,
                    reason=_trailer(failure, REASON),
                    from_peer=not any(word in (failure.details() or "").lower() for word in _MADE_ON_THE_WAY),
                )
            else:
                self._metrics.observe(self.name, method, time.monotonic() - sent)
                return answer
            await self._after_failure(method, error, number, sent, began, budget, retry)

    async def _after_failure(
        self,
        method: str,
        error: ProviderError,
        number: int,
        sent: float,
        began: float,
        budget: float,
        retry: RetryPolicy,
    ) -> None:
        """Wait for the next attempt, or raise."""
        now = time.monotonic()
        self._metrics.observe(self.name, method, now - sent, error.outcome)
        pause = pause_before_retry(
            retry, error, attempt=number, elapsed=now - began, budget=budget, draw=self._dice.random()
        )
        if pause is None:
            # Raised outside the handler: the transport's own exception repeats the provider's words, secret included.
            raise error
        await asyncio.sleep(pause)


def _method(
    channel: grpc.aio.Channel, name: str, request: type[Any], decode: Callable[[bytes], Any] | None
) -> Callable[..., Awaitable[Any]]:
    call: Callable[..., Awaitable[Any]] = channel.unary_unary(
        f"{_SERVICE}/{name}", request_serializer=request.SerializeToString, response_deserializer=decode
    )
    return call


def _trailer(failure: grpc.aio.AioRpcError, name: str) -> str:
    trailers: Any = failure.trailing_metadata() or ()
    return next((str(value) for key, value in trailers if key == name), "")


def _fencing(token: FencingToken) -> dict[str, Any]:
    return {"shard_id": token.shard_id, "shard_epoch": token.epoch, "sequence_number": token.sequence}
