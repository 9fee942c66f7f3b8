"""Calls to etcd: several endpoints over our own channels, each tried in turn until a deadline.

The stubs are those of the `aetcd` package; its client is not used, because it knows one endpoint and no TLS. Every call
made through here may be repeated: reads change nothing, and a write's condition no longer holds once it has happened.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc

from bigfleet.coordinator.stores.store import StoreError
from bigfleet.transport.channel import channel

if TYPE_CHECKING:
    from bigfleet.coordinator.server.settings import EtcdSettings

TRY_SECONDS = 1.0
PAUSE_SECONDS = 0.05
_AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


class Member(NamedTuple):
    """One endpoint."""

    address: str
    channel: grpc.aio.Channel
    kv: Any
    lease: Any
    auth: Any


class EtcdCalls:
    """Whoever answers."""

    def __init__(self, settings: EtcdSettings, *, insecure: bool) -> None:
        self._settings = settings
        self._members = [self._member(address, insecure) for address in settings.endpoints]
        self._at = 0
        self._token = ""

    async def txn(self, request: Any, seconds: float) -> Any:
        return await self._until(seconds, lambda member: member.kv.Txn, request)

    async def range(self, request: Any, seconds: float) -> Any:
        return await self._until(seconds, lambda member: member.kv.Range, request)

    async def grant(self, ttl: int, seconds: float) -> Any:
        return await self._until(seconds, lambda member: member.lease.LeaseGrant, rpc_pb2.LeaseGrantRequest(TTL=ttl))

    async def revoke(self, lease: int, seconds: float) -> None:
        await self._until(seconds, lambda member: member.lease.LeaseRevoke, rpc_pb2.LeaseRevokeRequest(ID=lease))

    async def keep_alive(self, lease: int, seconds: float) -> int:
        """Seconds the lease has been given; 0 when it is gone."""

        def once(member: Member) -> Callable[..., Any]:
            async def beat(request: Any, **options: Any) -> Any:
                call = member.lease.LeaseKeepAlive(**options)
                try:
                    await call.write(request)
                    answer = await call.read()
                finally:
                    call.cancel()
                if answer is grpc.aio.EOF:  # type: ignore[attr-defined]  # missing from the stubs
                    raise StoreError("the lease stream ended")
                return answer

            return beat

        answer = await self._until(seconds, once, rpc_pb2.LeaseKeepAliveRequest(ID=lease))
        return int(answer.TTL)

    async def close(self) -> None:
        for member in self._members:
            await member.channel.close(None)

    async def _until(self, seconds: float, pick: Callable[[Member], Callable[..., Any]], request: Any) -> Any:
        """Ask one member after the other until one answers or the time is over."""
        end = time.monotonic() + seconds
        last = "no time left"
        while (left := end - time.monotonic()) > 0:
            member = self._members[self._at]
            try:
                await self._authenticate(member, left)
                return await pick(member)(request, timeout=min(left, TRY_SECONDS), metadata=self._metadata())
            except grpc.aio.AioRpcError as error:
                last = f"{member.address}: {error.code().name}: {error.details()}"
                if error.code() is grpc.StatusCode.UNAUTHENTICATED and self._token:
                    self._token = ""
                elif error.code() not in _AGAIN:
                    raise StoreError(f"etcd refused: {last}") from error
                self._at = (self._at + 1) % len(self._members)
            except (StoreError, grpc.aio.UsageError) as error:
                last = str(error)
                self._at = (self._at + 1) % len(self._members)
            await asyncio.sleep(min(PAUSE_SECONDS, max(0.0, end - time.monotonic())))
        raise StoreError(f"etcd did not answer within {seconds:.1f} s: {last}")

    async def _authenticate(self, member: Member, seconds: float) -> None:
        if not self._settings.user or self._token:
            return
        password = Path(self._settings.password_file).read_text().strip()
        request = rpc_pb2.AuthenticateRequest(name=self._settings.user, password=password)
        answer = await member.auth.Authenticate(request, timeout=min(seconds, TRY_SECONDS))
        self._token = answer.token

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()

    def _member(self, address: str, insecure: bool) -> Member:
        plain = address.removeprefix("http://").removeprefix("https://")
        opened = channel(plain, tls=self._settings.tls, insecure=insecure)
        return Member(
            plain, opened, rpc_pb2_grpc.KVStub(opened), rpc_pb2_grpc.LeaseStub(opened), rpc_pb2_grpc.AuthStub(opened)
        )
