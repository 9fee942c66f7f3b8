"""The stream to the shard: dialled when the session asks, read until it ends, written in order.

One roll-up waits at most, the newest; other frames wait in a queue of 256, and what does not fit is dropped and counted
because the shard asks again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
import structlog

from bigfleet.model.names import REDIRECT
from bigfleet.operator.core.events import Connected, Disconnected, StreamEnd
from bigfleet.transport import TransportError, channel
from bigfleet.transport.certificates import TlsFiles
from bigfleet.wire import shard_pb2

log = structlog.get_logger(__name__)

SESSION = "/bigfleet.v1alpha1.Shard/Session"
OUTBOX = 256
# Dialling a host that does not answer must end some time; the session decides about the next attempt.
DIAL_SECONDS = 20.0
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs


class ShardStream:
    """At most one stream. `hear` gets what opened and closed, `read` every frame."""

    def __init__(
        self,
        tls: TlsFiles,
        *,
        insecure: bool,
        hear: Callable[[Connected | Disconnected], None],
        read: Callable[[shard_pb2.ShardMessage], None],
    ) -> None:
        self._tls = tls
        self._insecure = insecure
        self._hear = hear
        self._read = read
        self._frames: deque[shard_pb2.OperatorMessage] = deque()
        self._rollup: shard_pb2.OperatorMessage | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._opened = 0
        self.session: int | None = None
        self.dropped = 0
        self.reports_dropped = 0

    def dial(self, address: str) -> None:
        assert self._task is None or self._task.done(), "one stream at a time"
        self._task = asyncio.get_running_loop().create_task(self._live(address))

    def say(self, session: int, message: shard_pb2.OperatorMessage, *, keep: bool = False) -> None:
        """Queue a frame of the present stream. Those that nobody would ask for again are kept whatever their number."""
        if session != self.session:
            return
        if not keep and len(self._frames) >= OUTBOX:
            self.dropped += 1
            return
        self._frames.append(message)
        self._ready.set()

    def say_rollup(self, session: int, message: shard_pb2.OperatorMessage) -> None:
        if session == self.session:
            # Node reports queued before it must arrive before it: it waits behind what is queued now.
            self._rollup = message
            self._ready.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _live(self, address: str) -> None:
        end, redirect = StreamEnd.LOST, ""
        try:
            async with channel(address, tls=self._tls, insecure=self._insecure) as connection:
                async with asyncio.timeout(DIAL_SECONDS):
                    await connection.channel_ready()
                opened: Any = connection.stream_stream(
                    SESSION,
                    request_serializer=shard_pb2.OperatorMessage.SerializeToString,
                    response_deserializer=shard_pb2.ShardMessage.FromString,
                )
                end, redirect = await self._serve(opened(), address)
        except TimeoutError:
            log.warning("shard not reached", shard=address, err=f"no connection within {DIAL_SECONDS:g} s")
        except (TransportError, grpc.aio.AioRpcError) as error:
            log.warning("shard not reached", shard=address, err=str(error))
        finally:
            self.session = None
            self._task = None
        self._hear(Disconnected(end, redirect))

    async def _serve(self, call: Any, address: str) -> tuple[StreamEnd, str]:
        self._frames.clear()
        self._rollup = None
        self._opened += 1
        self.session = self._opened
        self._hear(Connected(self._opened))
        writer = asyncio.get_running_loop().create_task(self._write(call))
        try:
            while (message := await call.read()) is not _EOF:
                self._read(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # how it ended is asked below
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            if not call.done():
                call.cancel()
        code, details = await call.code(), await call.details()
        trailers = dict(await call.trailing_metadata() or ())
        log.warning("session ended", shard=address, code=code.name, err=details or "")
        end = StreamEnd.REPLACED if code is grpc.StatusCode.ABORTED else StreamEnd.LOST
        return end, str(trailers.get(REDIRECT, ""))

    async def _write(self, call: Any) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            while self._frames or self._rollup is not None:
                if self._frames:
                    message = self._frames.popleft()
                else:
                    assert self._rollup is not None
                    message, self._rollup = self._rollup, None
                await call.write(message)
