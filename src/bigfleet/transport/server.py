"""The one way to serve gRPC: bounded messages, keepalive, health, mutual TLS or local plaintext, and a stop that ends.

Constructing a `Server` binds its address, so a refused or busy address fails before anything else starts. Stopping
first reports NOT_SERVING, then gives running calls their grace, then cancels them, and never waits longer for a
handler that ignores its cancellation.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from bigfleet.transport.address import listen_address, require_local_plaintext, split
from bigfleet.transport.certificates import PLAINTEXT, LeafFiles, LeafPair, TlsFiles
from bigfleet.transport.errors import TransportError
from bigfleet.transport.guard import Guard
from bigfleet.transport.tls13 import require_tls13_only

log = structlog.get_logger(__name__)

MAX_MESSAGE_BYTES = 256 << 20
DEFAULT_GRACE_SECONDS = 10.0
_CANCEL_SECONDS = 2.0

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The server pings: a client that vanished without closing is noticed within 40 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Clients may ping as often as every ten seconds.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    # Two processes on one port would share its connections silently; the second must fail to start.
    ("grpc.so_reuseport", 0),
)

_Servicer = TypeVar("_Servicer")


class Server:
    """A bound gRPC server. Add services, `await start()`, later `await stop()`."""

    def __init__(
        self,
        address: str,
        *,
        tls: TlsFiles = PLAINTEXT,
        insecure: bool = False,
        require_identity: bool = True,
    ) -> None:
        """Bind `address` (`host:port`, `:port`, `unix:/path`; port 0 picks one).

        `require_identity=False` lets callers without a BigFleet identity reach the handlers (their certificate is
        verified all the same); use it where enforcement is the service's own choice.
        """
        #: Answers other than OK, by (method, status name).
        self.rpc_errors: Counter[tuple[str, str]] = Counter()
        #: Set when a stop begins: long-lived streams may await it to end politely within the grace.
        self.stopping = asyncio.Event()
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing from the stubs
        self._grpc = grpc.aio.server(
            interceptors=[Guard(require_identity=require_identity, errors=self.rpc_errors)], options=list(_OPTIONS)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        self.tls = tls.enabled
        self.port = self._bind(listen_address(address), tls, insecure)
        self.address = address if address.startswith("unix") else _dialable(address, self.port)

    @property
    def grpc(self) -> grpc.aio.Server:
        """The underlying server, for generic handlers and reflection."""
        return self._grpc

    def add(self, register: Callable[[_Servicer, Any], object], servicer: _Servicer) -> None:
        """Register a generated service: `server.add(add_ShardServicer_to_server, servicer)`."""
        register(servicer, self._grpc)

    async def start(self) -> None:
        await self._grpc.start()

    async def set_serving(self, serving: bool, service: str = "") -> None:
        """What the standard health service answers for `service` ("" is the whole server)."""
        status = health_pb2.HealthCheckResponse
        await self._health.set(service, status.SERVING if serving else status.NOT_SERVING)

    async def stop(self, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        """Stop within `grace` plus two seconds, whatever the open calls do. Safe to call more than once."""
        self.stopping.set()
        await self._health.enter_graceful_shutdown()
        stopped = asyncio.ensure_future(self._grpc.stop(grace))
        done, _ = await asyncio.wait({stopped}, timeout=grace + _CANCEL_SECONDS)
        if done:
            stopped.result()
            return
        log.warning("handlers ignored cancellation; leaving them behind", grace_seconds=grace)
        stopped.cancel()

    async def wait(self) -> None:
        """Until the server has stopped."""
        await self._grpc.wait_for_termination()

    async def __aenter__(self) -> "Server":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(grace=0)

    def _bind(self, address: str, tls: TlsFiles, insecure: bool) -> int:
        try:
            if tls.enabled:
                return self._grpc.add_secure_port(address, server_credentials(tls))
            require_local_plaintext(address, insecure=insecure, purpose="listen on")
            return self._grpc.add_insecure_port(address)
        except RuntimeError as error:
            raise TransportError(f"cannot listen on {address}: the address is in use or not of this host") from error


def server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Mutual TLS 1.3 credentials that present the newest leaf at each handshake."""
    require_tls13_only()
    leaf = LeafFiles(tls)
    served = leaf.current()

    def configuration(pair: LeafPair) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(pair.key, pair.chain)], leaf.authority)

    def changed() -> Any:
        nonlocal served
        newest = leaf.current()
        if newest is served:
            return None
        served = newest
        return configuration(newest)

    return grpc.dynamic_ssl_server_credentials(configuration(served), changed, require_client_authentication=True)


def _dialable(address: str, port: int) -> str:
    host, _ = split(address)
    if host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
