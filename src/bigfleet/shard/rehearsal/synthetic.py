"""A cluster that exists only as its operator: speaks the real session protocol, answers everything, runs no pods.

For the demo, tests, chaos and load. A shell around the operator's own session core, which decides what is said and
when; without capabilities that is what a reference operator says. Nodes have no pods, so draining one is waiting.
It keeps what the shard told it, so that a test can ask and a screen can show.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from bigfleet.model.names import OPERATOR_CAPABILITIES
from bigfleet.model.resources import Resources
from bigfleet.operator import session_codec
from bigfleet.operator.core import events as op
from bigfleet.operator.core import frames
from bigfleet.operator.core.redial import doubling
from bigfleet.operator.core.session import Session, SessionSettings
from bigfleet.operator.need_codec import requirements_to_wire
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2

if TYPE_CHECKING:
    from bigfleet.model.requirement import Requirement

SESSION = "/bigfleet.v1alpha1.Shard/Session"
ALL_CAPABILITIES = frozenset(OPERATOR_CAPABILITIES)
REFERENCE: frozenset[str] = frozenset()
_TTL_SECONDS = 3600
# A machine in one of these has no node in the cluster, whatever it was drained for.
_WITHOUT_NODE = frozenset(
    (
        provider_pb2.MACHINE_STATE_SPECULATIVE,
        provider_pb2.MACHINE_STATE_CREATING,
        provider_pb2.MACHINE_STATE_IDLE,
        provider_pb2.MACHINE_STATE_CONFIGURING,
        provider_pb2.MACHINE_STATE_DELETING,
    )
)
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs


@dataclass(frozen=True, slots=True)
class Row:
    """One row of demand in the words of a person: `pods` pods of this size."""

    pods: int
    unit: Mapping[str, str]
    priority: int = 0
    requirements: tuple[Requirement, ...] = ()
    group: str = ""
    interruption_bucket: int = 1
    reclamation_bucket: int = 1

    def need(self) -> capacity_pb2.CapacityNeed:
        unit = Resources.parse(self.unit, round_up=True)
        return capacity_pb2.CapacityNeed(
            requirements=requirements_to_wire(self.requirements),
            aggregate_resources=unit.scale(self.pods).to_wire(),
            min_unit=unit.to_wire(),
            priority=self.priority,
            group=self.group,
            interruption_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(self.interruption_bucket),
            reclamation_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(self.reclamation_bucket),
        )


@dataclass(slots=True)
class Heard:
    """Everything a shard has said to one cluster."""

    acks: list[shard_pb2.Acknowledgement] = field(default_factory=list)
    bootstrap_requests: list[shard_pb2.BootstrapRequest] = field(default_factory=list)
    reclaims: list[shard_pb2.ReclaimInstruction] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)
    states: list[tuple[str, int]] = field(default_factory=list)
    nodes: dict[str, shard_pb2.NodeStateUpdate] = field(default_factory=dict)
    capacity: dict[str, shard_pb2.AvailableCapacityUpdate] = field(default_factory=dict)
    resyncs: list[tuple[str, ...]] = field(default_factory=list)

    def in_state(self, state: int) -> list[str]:
        """Machines whose last word was this state."""
        return sorted(machine for machine, node in self.nodes.items() if node.state == state)

    @property
    def configured(self) -> list[str]:
        return self.in_state(provider_pb2.MACHINE_STATE_CONFIGURED)

    def counts(self) -> Counter[int]:
        return Counter(node.state for node in self.nodes.values())


class SyntheticOperator:
    """One cluster. `connect` opens a stream that is served until it ends; `run` keeps one open for ever."""

    def __init__(
        self,
        cluster: str,
        channel: grpc.aio.Channel,
        *,
        capabilities: frozenset[str] = ALL_CAPABILITIES,
        user_data: Callable[[shard_pb2.BootstrapRequest], bytes | str] | None = None,
        drain_seconds: float = 0.0,
        keep: int = 10_000,
    ) -> None:
        """`user_data` renders a blob, or a text that says why it cannot; `keep` bounds the remembered frames."""
        self.cluster = cluster
        self.capabilities = capabilities
        self.heard = Heard()
        self.demand: list[capacity_pb2.CapacityNeed] = []
        self.connected = asyncio.Event()
        self.sessions = 0
        self.last_code: grpc.StatusCode | None = None
        self._user_data = user_data or _stub_blob
        self._drain_seconds = drain_seconds
        self._keep = keep
        self._open: Any = channel.stream_stream(
            SESSION,
            request_serializer=shard_pb2.OperatorMessage.SerializeToString,
            response_deserializer=shard_pb2.ShardMessage.FromString,
        )
        self._call: Any = None
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._session = self._made(SessionSettings(cluster, capabilities))
        self._outgoing: asyncio.Queue[shard_pb2.OperatorMessage] = asyncio.Queue()
        self._evicting: dict[str, asyncio.Task[None]] = {}
        self._requests: dict[str, shard_pb2.BootstrapRequest] = {}
        self._timekeeper: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._dials = False
        self._nudged = asyncio.Event()

    # What a script does.

    def want(self, rows: Iterable[Row | capacity_pb2.CapacityNeed]) -> None:
        """The cluster's whole demand from now on; told with the next roll-up."""
        self.demand = [row.need() if isinstance(row, Row) else row for row in rows]

    async def connect(self) -> None:
        """Open a stream, say Hello, wait for its ack, and serve it in the background."""
        self._call = call = self._open()
        self.sessions += 1
        self._outgoing = asyncio.Queue()
        self._requests.clear()
        if self._writer is not None:
            self._writer.cancel()
        self._tell(op.Connected(self.sessions))
        self._writer = self._spawn(self._write(call, self._outgoing))
        first = await call.read()
        if first is _EOF:
            # The status says why; awaiting the call raises it.
            raise ConnectionError(f"the shard closed the stream: {await call.code()} {await call.details()}")
        await self._hear(first)
        self.connected.set()
        self._spawn(self._serve(call))

    async def send(self, **payload: Any) -> None:
        """Any OperatorMessage."""
        await self.send_message(shard_pb2.OperatorMessage(**payload))

    async def send_message(self, message: shard_pb2.OperatorMessage) -> None:
        async with self._writing:
            await self._call.write(message)

    async def send_rollup(self, *, cluster: str = "", timestamp: int = 0) -> int:
        """Tell the demand; returns the roll-up's timestamp."""
        timestamp = timestamp or time.time_ns()
        await self.send(rollup=self._rollup(cluster, timestamp))
        return timestamp

    def _rollup(self, cluster: str, timestamp: int) -> capacity_pb2.ClusterCapacityNeeds:
        return capacity_pb2.ClusterCapacityNeeds(
            cluster_id=cluster or self.cluster, timestamp_unix_nanos=timestamp, needs=self.demand
        )

    async def until(self, met: Callable[[Heard], bool], seconds: float = 20.0, what: str = "") -> None:
        """Wait until the frames heard satisfy `met`."""
        async with self._changed:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait_for(lambda: met(self.heard))
            except TimeoutError:
                states = dict(self.heard.counts())
                raise TimeoutError(f"cluster {self.cluster} waited {seconds:g} s for {what or met}: {states}") from None

    async def ended(self) -> grpc.StatusCode:
        """Wait until the shard ends the stream; with which status."""
        code: grpc.StatusCode = await self._call.code()
        return code

    async def close(self) -> None:
        """Hang up."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._timekeeper = None
        if self._call is not None:
            self._call.cancel()
        self.connected.clear()

    async def run(self, rollup_seconds: float = 10.0, early: asyncio.Event | None = None) -> None:
        """Stay connected and tell the demand at once, every so often, and whenever `early` is set; until cancelled."""
        interval = int(rollup_seconds * op.SECOND)
        self._session = self._made(SessionSettings(self.cluster, self.capabilities, rollup_interval=interval))
        self._dials = True
        early = early or asyncio.Event()
        try:
            self._tell(op.CacheChanged(complete=True))
            self._tell(op.Started())
            while True:
                await early.wait()
                early.clear()
                self._tell(op.DemandGrew())
        finally:
            self._dials = False
            await self.close()

    # What the session asks for.

    def _made(self, settings: SessionSettings) -> Session:
        return Session(settings, doubling(random.random))

    def _tell(self, event: op.Event) -> None:
        """The session hears it; what it asks for in return is begun in its order."""
        for asked in self._session.handle(event, time.time_ns()):
            self._do(asked)
        if self._timekeeper is None:
            self._timekeeper = self._spawn(self._keep_time())
        self._nudged.set()

    def _do(self, asked: op.Instruction) -> None:
        match asked:
            case op.Say(_, frame):
                self._outgoing.put_nowait(session_codec.to_wire(frame))
            case op.SendRollup(_, timestamp):
                self._outgoing.put_nowait(shard_pb2.OperatorMessage(rollup=self._rollup("", timestamp)))
            case op.Dial():
                if self._dials:
                    self._spawn(self._dial())
            case op.RenderBootstrap(request):
                self._spawn(self._render(self._requests.pop(request.request_id)))
            case op.Evict(machine):
                self._evicting[machine] = self._spawn(self._evict(machine))
            case op.StopEvicting(machine):
                if (task := self._evicting.pop(machine, None)) is not None:
                    task.cancel()
            case _:
                pass  # a cluster without pods has nothing to cordon, close or report

    async def _keep_time(self) -> None:
        while True:
            due = self._session.next_timer()
            self._nudged.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.0, (due - time.time_ns()) / op.SECOND)):
                    await self._nudged.wait()
            due = self._session.next_timer()
            if due is not None and due <= time.time_ns():
                self._tell(op.TimerDue())

    async def _dial(self) -> None:
        try:
            await self.connect()
        except (grpc.RpcError, ConnectionError, asyncio.InvalidStateError):
            if self._call is not None and self._call.done():
                self.last_code = await self._call.code()
            self._hung_up()

    def _hung_up(self) -> None:
        self.connected.clear()
        replaced = self.last_code is grpc.StatusCode.ABORTED
        self._tell(op.Disconnected(op.StreamEnd.REPLACED if replaced else op.StreamEnd.LOST))

    async def _write(self, call: Any, outgoing: asyncio.Queue[shard_pb2.OperatorMessage]) -> None:
        while True:
            message = await outgoing.get()
            async with self._writing:
                await call.write(message)

    async def _render(self, request: shard_pb2.BootstrapRequest) -> None:
        rendered = self._user_data(request)
        if isinstance(rendered, bytes):
            answer = frames.BootstrapAnswer(request.request_id, rendered, _TTL_SECONDS)
        else:
            answer = frames.BootstrapAnswer(request.request_id, ttl_seconds=_TTL_SECONDS, error=rendered)
        self._tell(op.BootstrapRendered(answer))

    async def _evict(self, machine: str) -> None:
        await asyncio.sleep(self._drain_seconds)
        self._evicting.pop(machine, None)
        self._tell(op.EvictionEnded(machine))

    # What an operator hears.

    async def _serve(self, call: Any) -> None:
        try:
            async for message in _messages(call):
                await self._hear(message)
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The end of a stream is not a failure of the cluster.
            self.last_code = await call.code()
        else:
            self.last_code = await call.code()
        finally:
            if call is self._call:
                self._hung_up()
            async with self._changed:
                self._changed.notify_all()

    async def _hear(self, message: shard_pb2.ShardMessage) -> None:
        heard = self.heard
        kind = message.WhichOneof("payload")
        if kind == "ack":
            heard.acks.append(message.ack)
        elif kind == "bootstrap_request":
            heard.bootstrap_requests.append(message.bootstrap_request)
            self._requests[message.bootstrap_request.request_id] = message.bootstrap_request
        elif kind == "reclaim_instruction":
            heard.reclaims.append(message.reclaim_instruction)
        elif kind == "reclaim_cancel":
            heard.cancels.append(message.reclaim_cancel.instruction_id)
        elif kind == "node_state_update":
            node = message.node_state_update
            heard.nodes[node.machine_id] = node
            heard.states.append((node.machine_id, node.state))
            if node.state in _WITHOUT_NODE:
                self._tell(op.NodeGone(node.machine_id))
        elif kind == "available_capacity":
            heard.capacity[message.available_capacity.supersedes_key] = message.available_capacity
        elif kind == "resync_end":
            members = tuple(message.resync_end.machine_ids)
            heard.resyncs.append(members)
            for gone in heard.nodes.keys() - set(members):
                del heard.nodes[gone]
            for gone in sorted(set(self._session.draining()) - set(members)):
                self._tell(op.NodeGone(gone))
        for remembered in (heard.acks, heard.bootstrap_requests, heard.reclaims, heard.states):
            if len(remembered) > self._keep:
                del remembered[: self._keep // 2]
        frame = session_codec.received(message)
        if frame is not None:
            self._tell(op.Received(frame))
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # A stream that ended takes its answers with it; anything else is a defect and must be seen.
        if error is not None and not isinstance(error, grpc.RpcError | asyncio.InvalidStateError):
            raise error


async def _messages(call: Any) -> AsyncIterator[shard_pb2.ShardMessage]:
    while (message := await call.read()) is not _EOF:
        yield message


def _stub_blob(request: shard_pb2.BootstrapRequest) -> bytes:
    return f"#cloud-config\n# {request.cluster_id} {request.machine_id}\n".encode()
