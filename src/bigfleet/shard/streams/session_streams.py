"""`Shard.Session` on raw bytes: one handler per stream, which carries frames both ways.

Each stream has at most one event and one roll-up on their way through the core, and the newest roll-up waiting; what is
sent is pulled from the core when the stream can take it. So a flooding, stuck or broken operator costs its own stream
only. Large frames are hashed and decoded in a thread. A roll-up equal to the one the core applied last does not pass
through the core again: the core's own answer to a repetition is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import structlog

from bigfleet.model.names import PLACEMENT, REDIRECT
from bigfleet.shard.contract import events as ev
from bigfleet.shard.runtime.worker import Worker
from bigfleet.shard.streams import codec
from bigfleet.shard.streams.rollup_codec import RawRollup, RollupDecoder, RollupError, looks_like_rollup, raw_rollup
from bigfleet.transport.identity import IdentityError, cluster, peer_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from bigfleet.shard.runtime.conductor import Conductor
    from bigfleet.shard.telemetry.metrics import ShardMetrics

log = structlog.get_logger(__name__)

SERVICE = "bigfleet.v1alpha1.Shard"
HELLO_SECONDS = 10.0
MAX_FRAME_BYTES = 64 << 20
MAX_CLUSTER_ID = 253
# Decoding less than this is cheaper than a thread.
OFF_LOOP_BYTES = 64 << 10
# An operator that floods is slowed down to this; the newest roll-up is the one that counts.
ROLLUP_SECONDS = 0.1
# One roll-up at a time is on its way to a decision; the newest of those that came meanwhile follows its ack.
ACK_SECONDS = 30.0
FRAMES_PER_PULL = 64
# A peer that does not read cannot hold up the end of its own stream for longer.
ABORT_SECONDS = 5.0

_CODES = {
    ev.CloseCode.ABORTED: grpc.StatusCode.ABORTED,
    ev.CloseCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ev.CloseCode.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    ev.CloseCode.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ev.CloseCode.FAILED_PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
}

Context = Any
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs
T = TypeVar("T")


class Refusal(Exception):  # noqa: N818 - the end of a stream, not a fault of ours
    """Ends a stream with a status; `reason` is the label it is counted under."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: str, referral: str = "") -> None:
        super().__init__(message)
        self.trailers = ((REDIRECT, referral),) if referral else ()
        self.code = code
        self.message = message
        self.reason = reason


@dataclass(slots=True)
class _Stream:
    session: int
    cluster: str
    context: Context
    ended: asyncio.Future[Refusal]
    # Whether its rows are read as units, if every one has a count.
    placement: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    # Whether the core has frames for it, and the acknowledgement of a roll-up that said nothing new.
    owed: bool = False
    repeated: ev.Acknowledgement | None = None
    frames: deque[ev.Frame] = field(default_factory=deque)
    rollup: bytes = b""
    rollup_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    rollup_taken: float = 0.0
    # Whether one is between its arrival and the core's answer.
    taking: bool = False
    # The roll-up the core was given last, and whether the core has said that it applies it.
    given_digest: bytes = b""
    given_timestamp: int = 0
    applied: bool = False
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)


class SessionStreams:
    """Every open stream, by session number. Register with `handler()`."""

    def __init__(
        self,
        conductor: Conductor,
        metrics: ShardMetrics,
        repeated: Callable[[int], ev.Acknowledgement],
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        hello_seconds: float = HELLO_SECONDS,
        rollup_seconds: float = ROLLUP_SECONDS,
        ack_seconds: float = ACK_SECONDS,
        placement: bool = False,
    ) -> None:
        self._conductor = conductor
        self._metrics = metrics
        self._repeated = repeated
        self._max_frame_bytes = max_frame_bytes
        self._hello_seconds = hello_seconds
        self._rollup_seconds = rollup_seconds
        self._ack_seconds = ack_seconds
        self._placement = placement
        self._decoder = RollupDecoder()
        self._thread = Worker("rollups")
        self._streams: dict[int, _Stream] = {}
        self._numbers = count(1)
        self._closing = False

    def __len__(self) -> int:
        return len(self._streams)

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """For `server.grpc.add_generic_rpc_handlers`; without serialisers frames stay bytes."""
        method = grpc.stream_stream_rpc_method_handler(self._session)
        return grpc.method_handlers_generic_handler(SERVICE, {"Session": method})

    # What the conductor asks for.

    def wake(self, session: int) -> None:
        stream = self._streams.get(session)
        if stream is not None:
            stream.owed = True
            stream.wake.set()

    def send(self, session: int, frame: ev.Frame) -> None:
        stream = self._streams.get(session)
        if stream is None:
            return
        stream.frames.append(frame)
        if (
            isinstance(frame, ev.Acknowledgement)
            and frame.echo == "rollup"
            and frame.rollup_timestamp == stream.given_timestamp
        ):
            stream.applied = frame.outcome == "applied"
            stream.acknowledged.set()

    def close(self, session: int, code: ev.CloseCode, message: str, referral: str = "") -> None:
        stream = self._streams.get(session)
        if stream is not None:
            _end(stream, Refusal(_CODES[code], message, code.value, referral))

    def close_all(self) -> None:
        """The process stops: end every stream politely, and new ones at once."""
        self._closing = True
        for stream in self._streams.values():
            _end(stream, _shutting_down())
        self._thread.close()

    # One stream.

    async def _session(self, _: Any, context: Context) -> None:
        try:
            if self._closing:
                raise _shutting_down()
            hello = await self._hello(context)
        except Refusal as refusal:
            if refusal.reason == "hello":
                log.warning("operator stream refused", reason=refusal.reason, peer=context.peer(), err=refusal.message)
            await self._refuse(context, refusal)
            return
        placement = self._placement and PLACEMENT in hello.capabilities
        ended: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()
        stream = _Stream(next(self._numbers), hello.cluster, context, ended, placement)
        self._streams[stream.session] = stream
        self._conductor.post(
            ev.SessionOpened(
                stream.session,
                stream.cluster,
                hello.protocol_version,
                hello.capabilities,
                hello.bound_shard_id,
                hello.active_drains,
            )
        )
        tasks = {
            _started(self._read(stream)),
            _started(self._write(stream)),
            _started(self._take_rollups(stream)),
        }
        reason = "the stream was cancelled"
        try:
            waited: set[asyncio.Future[Any]] = {stream.ended, *tasks}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            end = _outcome(stream, tasks)
            reason = end.message if isinstance(end, Refusal) else end
        finally:
            del self._streams[stream.session]
            for task in tasks:
                task.cancel()
            self._conductor.post(ev.SessionClosed(stream.session, reason))
        await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(end, Refusal):
            await self._refuse(context, end)

    async def _hello(self, context: Context) -> codec.Hello:
        """The first frame, and whether its sender may speak for that cluster."""
        try:
            async with asyncio.timeout(self._hello_seconds):
                frame = await context.read()
        except TimeoutError:
            raise _invalid(f"no Hello within {self._hello_seconds:g} s") from None
        if frame is _EOF:
            raise _invalid("the stream ended before its Hello")
        self._require_size(frame)
        hello = codec.received(0, frame)
        if not isinstance(hello, codec.Hello):
            raise _invalid("the first frame must be Hello")
        if not hello.cluster:
            raise _invalid("Hello.cluster_id is empty; the cluster's stable id is needed")
        if len(hello.cluster) > MAX_CLUSTER_ID:
            raise _invalid(
                f"Hello.cluster_id has {len(hello.cluster)} characters; at most {MAX_CLUSTER_ID} are accepted"
            )
        self._require_identity(context, hello.cluster)
        return hello

    def _require_identity(self, context: Context, claimed: str) -> None:
        try:
            presented = peer_identity(context)
            if presented is None or presented == cluster(claimed):
                return
            problem = f"presented {presented}"
        except IdentityError as error:
            presented, problem = None, str(error)
        self._metrics.count("session_identity_rejected_total")
        log.error(
            "operator session identity rejected",
            cluster=claimed,
            presented_identity=str(presented) if presented else problem,
        )
        raise Refusal(
            grpc.StatusCode.PERMISSION_DENIED, f"requires bigfleet://cluster/{claimed}: {problem}", "identity"
        )

    async def _read(self, stream: _Stream) -> None:
        while (frame := await stream.context.read()) is not _EOF:
            self._require_size(frame)
            if looks_like_rollup(frame):
                if not self._repeats(stream, frame):
                    stream.rollup = frame
                    stream.rollup_arrived.set()
            else:
                await self._take(stream, codec.received(stream.session, frame))

    def _repeats(self, stream: _Stream, frame: bytes) -> bool:
        """Acknowledge a roll-up equal to the one in force; False when it has to be looked at in its turn."""
        now = time.monotonic()
        if (
            not stream.applied
            # The core counts on such a cluster only while it hears of it.
            or stream.placement
            or stream.taking
            or stream.rollup
            or len(frame) >= OFF_LOOP_BYTES
            or now < stream.rollup_taken + self._rollup_seconds
        ):
            return False
        raw = raw_rollup(frame)
        if raw is None or raw.digest != stream.given_digest:
            return False
        stream.rollup_taken = now
        self._metrics.count("rollups_received_total", ("unchanged",))
        stream.repeated = self._repeated(raw.timestamp)
        stream.wake.set()
        return True

    async def _take(self, stream: _Stream, frame: codec.Received) -> None:
        match frame:
            case codec.Garbage():
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, frame.problem, "garbage")
            case codec.Unknown():
                self._metrics.count("frames_ignored_total")
                log.warning("operator message handling", cluster=stream.cluster, err="no payload this shard knows")
            case codec.Hello():
                await self._conductor.ask(ev.HelloRepeated(stream.session))
            case RawRollup():
                await self._take_rollup(stream, frame)
            case _:
                await self._conductor.ask(frame)

    async def _take_rollups(self, stream: _Stream) -> None:
        while True:
            await stream.rollup_arrived.wait()
            stream.taking = True
            early = stream.rollup_taken + self._rollup_seconds - time.monotonic()
            if early > 0:
                await asyncio.sleep(early)
            stream.rollup_arrived.clear()
            stream.rollup_taken = time.monotonic()
            frame, stream.rollup = stream.rollup, b""
            received = await self._off_loop(len(frame), codec.received, stream.session, frame)
            await self._take(stream, received)
            stream.taking = False

    async def _take_rollup(self, stream: _Stream, raw: RawRollup) -> None:
        if stream.applied and raw.digest == stream.given_digest:
            self._metrics.count("rollups_received_total", ("unchanged",))
            await self._conductor.ask(
                ev.RollupReceived(
                    stream.session,
                    stream.cluster,
                    raw.timestamp,
                    None,
                    unchanged=True,
                    mirror_version=raw.mirror_version,
                )
            )
            return
        self._metrics.count("rollups_received_total", ("decoded",))
        try:
            rollup, timestamp = await self._off_loop(
                len(raw.body), partial(self._decoder.decode, placement=stream.placement), raw.body
            )
            event = ev.RollupReceived(stream.session, rollup.cluster, timestamp, rollup)
        except RollupError as error:
            timestamp = raw.timestamp
            event = ev.RollupReceived(stream.session, stream.cluster, timestamp, None, error=str(error))
        stream.given_digest, stream.given_timestamp, stream.applied = raw.digest, timestamp, False
        stream.acknowledged.clear()
        await self._conductor.ask(event)
        if event.error or event.cluster != stream.cluster:
            return  # refused; peers that cannot read outcomes hear nothing of it
        try:
            async with asyncio.timeout(self._ack_seconds):
                await stream.acknowledged.wait()
        except TimeoutError:
            # Whatever ack may still come, it no longer says anything about these bytes.
            stream.given_digest = b""

    async def _write(self, stream: _Stream) -> None:
        while True:
            await stream.wake.wait()
            stream.wake.clear()
            if stream.repeated is not None:
                acknowledged, stream.repeated = stream.repeated, None
                await stream.context.write(codec.frame_bytes(acknowledged))
            if not stream.owed:
                continue
            stream.owed = False
            # The core wakes the stream again if this was not all.
            await self._conductor.ask(ev.SessionWritable(stream.session, FRAMES_PER_PULL))
            while stream.frames:
                await stream.context.write(codec.frame_bytes(stream.frames.popleft()))

    async def _off_loop(self, size: int, work: Callable[..., T], *args: Any) -> T:
        if size < OFF_LOOP_BYTES:
            return work(*args)
        return await self._thread.run(work, *args)

    def _require_size(self, frame: bytes) -> None:
        if len(frame) > self._max_frame_bytes:
            raise Refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"a frame of {len(frame)} bytes is too large; at most {self._max_frame_bytes} are accepted",
                "oversized",
            )

    async def _refuse(self, context: Context, refusal: Refusal) -> None:
        self._metrics.count("streams_refused_total", (refusal.reason,))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                await context.abort(refusal.code, refusal.message, refusal.trailers)


def _outcome(stream: _Stream, tasks: set[asyncio.Task[None]]) -> Refusal | str:
    """Why the stream ends: what the core said, else what a task ran into; empty when the operator hung up."""
    if stream.ended.done():
        return stream.ended.result()
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, Refusal):
                log.warning("operator message handling", cluster=stream.cluster, reason=error.reason, err=error.message)
                return error
            if stream.context.cancelled() or stream.context.done() or isinstance(error, grpc.RpcError):
                return str(error) or type(error).__name__
            raise error
    return ""


def _started(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


def _end(stream: _Stream, refusal: Refusal) -> None:
    if not stream.ended.done():
        stream.ended.set_result(refusal)


def _invalid(message: str) -> Refusal:
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message, "hello")


def _shutting_down() -> Refusal:
    return Refusal(grpc.StatusCode.UNAVAILABLE, "the shard is shutting down; reconnect", "shutdown")
