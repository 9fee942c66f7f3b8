"""The one way to dial gRPC: bounded messages, keepalive, mutual TLS or local plaintext, leaf reload, server identity.

gRPC fixes a client's certificate and its roots when a channel is made. `ReloadingChannel` therefore makes a new inner
channel when the leaf files change: the next call uses it, running calls finish on the old one, which closes after
its last call. With an expected server identity, no call leaves before the server's certificate was seen to carry it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from bigfleet.transport.address import is_local, require_local_plaintext
from bigfleet.transport.certificates import PLAINTEXT, LeafFiles, LeafPair, TlsFiles
from bigfleet.transport.errors import TransportError
from bigfleet.transport.identity import Identity
from bigfleet.transport.pin import ServerPin
from bigfleet.transport.server import MAX_MESSAGE_BYTES
from bigfleet.transport.tls13 import require_tls13_only

# A Go peer with default settings closes connections that ping more often than every five minutes. Data that is not
# acknowledged is noticed after the keepalive timeout anyway, and servers of ours ping their clients.
DEFAULT_KEEPALIVE_SECONDS = 305.0
_LOOK_AGAIN_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def channel(
    target: str,
    *,
    tls: TlsFiles = PLAINTEXT,
    insecure: bool = False,
    server_name: str = "",
    server_identity: Identity | None = None,
    keepalive_seconds: float = DEFAULT_KEEPALIVE_SECONDS,
) -> grpc.aio.Channel:
    """A lazily connecting channel to `target`; closing it is the caller's job.

    `server_name` replaces the host of `target` when the server's certificate is checked. With `server_identity` the
    server must also hold that identity; calls made before it was verified are refused as UNAVAILABLE, so await
    `channel_ready()` first or retry. Over plaintext there are no identities and none is checked. `keepalive_seconds`
    below the default only towards servers of this project, which allow ten seconds.
    """
    options = _options(target, keepalive_seconds)
    if not tls.enabled:
        require_local_plaintext(target, insecure=insecure, purpose="dial")
        return grpc.aio.insecure_channel(target, options=options)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return ReloadingChannel(target, tls, options, server_name, server_identity)


class ReloadingChannel(grpc.aio.Channel):
    """A TLS channel whose next call presents the newest leaf and trusts only the expected server."""

    def __init__(
        self,
        target: str,
        tls: TlsFiles,
        options: list[tuple[str, Any]],
        server_name: str = "",
        server_identity: Identity | None = None,
    ) -> None:
        require_tls13_only()
        self._target = target
        self._options = options
        self._leaf = LeafFiles(tls)
        self._current: _Connection | None = None
        self._retired: set[_Connection] = set()
        self._pin: ServerPin | None = None
        self._verified = asyncio.Event()
        self._last_look = "not looked yet"
        self._keeper: asyncio.Task[None] | None = None
        if server_identity is not None:
            self._pin = ServerPin(target, tls, self._leaf.authority, server_name, server_identity)
            self._keeper = asyncio.get_running_loop().create_task(self._keep_verified(self._pin))

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_stream", args, kwargs)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if self._pin and not self._pin.trusted:
            return grpc.ChannelConnectivity.CONNECTING
        return self._connection().channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        if self._pin and not self._pin.trusted:
            await self._verified.wait()
            return
        await self._connection().channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        if self._pin:
            await self._verified.wait()
        await self._connection().channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        if self._keeper:
            self._keeper.cancel()
        for connection in (*self._retired, self._current):
            if connection:
                await connection.channel.close(grace)
        self._retired.clear()

    async def __aenter__(self) -> "ReloadingChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _method(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        bound_to: _Connection | None = None
        bound: Any = None

        def call(*call_args: Any, **call_kwargs: Any) -> Any:
            nonlocal bound_to, bound
            connection = self._connection()
            if connection is not bound_to:
                bound_to, bound = connection, getattr(connection.channel, kind)(*args, **kwargs)
            return connection.track(bound(*call_args, **call_kwargs))

        return call

    def _connection(self) -> "_Connection":
        """The connection for a call that starts now; refuses while the server's identity is not verified."""
        roots = self._pin.trusted if self._pin else self._leaf.authority
        if not roots:
            raise _not_verified(self._last_look)
        leaf = self._leaf.current()
        if self._current is None or self._current.leaf is not leaf or self._current.roots != roots:
            if self._current is not None:
                self._retired.add(self._current)
                self._current.close_after_last_call(self._retired.discard)
            self._current = self._connect(leaf, roots)
        return self._current

    def _connect(self, leaf: LeafPair, roots: bytes) -> "_Connection":
        credentials = grpc.ssl_channel_credentials(roots, leaf.key, leaf.chain)
        return _Connection(leaf, roots, grpc.aio.secure_channel(self._target, credentials, options=self._options))

    async def _keep_verified(self, pin: ServerPin) -> None:
        """Look until the server is the expected one, then again whenever its connection is refused or lost."""
        attempt = 0
        while True:
            try:
                await pin.look()
            except TransportError as error:
                self._last_look = str(error)
            else:
                self._verified.set()
                if await self._was_ready_until_lost():
                    attempt = 0
            await asyncio.sleep(_LOOK_AGAIN_SECONDS[min(attempt, len(_LOOK_AGAIN_SECONDS) - 1)])
            attempt += 1

    async def _was_ready_until_lost(self) -> bool:
        states = grpc.ChannelConnectivity
        watched = self._connection().channel
        ready = False
        try:
            while (state := watched.get_state()) not in (states.TRANSIENT_FAILURE, states.SHUTDOWN):
                ready = ready or state is states.READY
                await watched.wait_for_state_change(state)
        except grpc.aio.UsageError:
            # A leaf reload closed the watched channel under us: look again for its successor.
            return ready
        return ready


class _Connection:
    """An inner channel with the leaf and roots it was made of, and the number of its running calls."""

    def __init__(self, leaf: LeafPair, roots: bytes, inner: grpc.aio.Channel) -> None:
        self.leaf = leaf
        self.roots = roots
        self.channel = inner
        self._running = 0
        self._on_closed: Callable[[_Connection], None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def track(self, call: Any) -> Any:
        self._running += 1
        call.add_done_callback(self._finished)
        return call

    def close_after_last_call(self, on_closed: "Callable[[_Connection], None]") -> None:
        self._on_closed = on_closed
        if self._running == 0:
            self._close()

    def _finished(self, _: object) -> None:
        self._running -= 1
        if self._running == 0 and self._on_closed:
            self._close()

    def _close(self) -> None:
        self._closing = asyncio.get_running_loop().create_task(self._closed())

    async def _closed(self) -> None:
        await self.channel.close(None)
        if self._on_closed:
            self._on_closed(self)


def _options(target: str, keepalive_seconds: float) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", int(keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 30_000),
        # A shared subchannel would outlive the certificate it was made with.
        ("grpc.use_local_subchannel_pool", 1),
        # Local traffic must stay local, whatever proxy the environment names.
        ("grpc.enable_http_proxy", 0 if is_local(target) else 1),
    ]


def _not_verified(reason: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details=reason, debug_error_string=reason
    )
