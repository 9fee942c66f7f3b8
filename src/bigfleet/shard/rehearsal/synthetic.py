"""A cluster that exists only as its operator: speaks the real session protocol, answers everything, runs no pods.

For the demo, tests, chaos and load. Without capabilities it behaves as a reference operator does; with them it reports
drains and reads resync ends. It keeps what the shard told it, so that a test can ask and a screen can show.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from bigfleet.model.names import OPERATOR_CAPABILITIES
from bigfleet.model.resources import Resources
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2

if TYPE_CHECKING:
    from bigfleet.model.requirement import Requirement

SESSION = "/bigfleet.v1alpha1.Shard/Session"
ALL_CAPABILITIES = frozenset(OPERATOR_CAPABILITIES)
REFERENCE: frozenset[str] = frozenset()
_BACKOFF_SECONDS = (0.5, 30.0)
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
            requirements=[
                capacity_pb2.NodeSelectorRequirement(
                    key=each.key,
                    operator=capacity_pb2.NodeSelectorRequirement.Operator.ValueType(each.operator),
                    values=each.values,
                )
                for each in self.requirements
            ],
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
        self.drains: dict[str, str] = {}
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

    # What a script does.

    def want(self, rows: Iterable[Row | capacity_pb2.CapacityNeed]) -> None:
        """The cluster's whole demand from now on; told with the next roll-up."""
        self.demand = [row.need() if isinstance(row, Row) else row for row in rows]

    async def connect(self) -> None:
        """Open a stream, say Hello, wait for its ack, and serve it in the background."""
        self._call = self._open()
        self.sessions += 1
        await self.send(
            hello=shard_pb2.Hello(
                cluster_id=self.cluster,
                protocol_version="v1alpha1",
                capabilities=sorted(self.capabilities),
                active_drains=sorted(self.drains) if self.capabilities else (),
            )
        )
        first = await self._call.read()
        if first is _EOF:
            # The status says why; awaiting the call raises it.
            raise ConnectionError(
                f"the shard closed the stream: {await self._call.code()} {await self._call.details()}"
            )
        await self._hear(first)
        self.connected.set()
        self._spawn(self._serve(self._call))

    async def send(self, **payload: Any) -> None:
        """Any OperatorMessage."""
        await self.send_message(shard_pb2.OperatorMessage(**payload))

    async def send_message(self, message: shard_pb2.OperatorMessage) -> None:
        async with self._writing:
            await self._call.write(message)

    async def send_rollup(self, *, cluster: str = "", timestamp: int = 0) -> int:
        """Tell the demand; returns the roll-up's timestamp."""
        timestamp = timestamp or time.time_ns()
        rollup = capacity_pb2.ClusterCapacityNeeds(
            cluster_id=cluster or self.cluster, timestamp_unix_nanos=timestamp, needs=self.demand
        )
        await self.send(rollup=rollup)
        return timestamp

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
        if self._call is not None:
            self._call.cancel()
        self.connected.clear()

    async def run(self, rollup_seconds: float = 10.0, early: asyncio.Event | None = None) -> None:
        """Stay connected and tell the demand at once, every so often, and whenever `early` is set; until cancelled."""
        pause = _BACKOFF_SECONDS[0]
        early = early or asyncio.Event()
        try:
            while True:
                try:
                    await self.connect()
                    pause = _BACKOFF_SECONDS[0]
                    while self.connected.is_set():
                        await self.send_rollup()
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(rollup_seconds):
                                await early.wait()
                        early.clear()
                except (grpc.RpcError, ConnectionError, asyncio.InvalidStateError):
                    self.connected.clear()
                if self.last_code is grpc.StatusCode.ABORTED:
                    # Another stream of this cluster took over: two that take turns would starve each other.
                    pause = _BACKOFF_SECONDS[1]
                await asyncio.sleep(pause)
                pause = min(pause * 2, _BACKOFF_SECONDS[1])
        finally:
            await self.close()

    # What an operator does by itself.

    async def _serve(self, call: Any) -> None:
        try:
            async for message in _messages(call):
                await self._hear(message)
                self._react(message)
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The end of a stream is not a failure of the cluster.
            self.last_code = await call.code()
        else:
            self.last_code = await call.code()
        finally:
            if call is self._call:
                self.connected.clear()
            async with self._changed:
                self._changed.notify_all()

    async def _hear(self, message: shard_pb2.ShardMessage) -> None:
        heard = self.heard
        kind = message.WhichOneof("payload")
        if kind == "ack":
            heard.acks.append(message.ack)
        elif kind == "bootstrap_request":
            heard.bootstrap_requests.append(message.bootstrap_request)
        elif kind == "reclaim_instruction":
            heard.reclaims.append(message.reclaim_instruction)
        elif kind == "reclaim_cancel":
            heard.cancels.append(message.reclaim_cancel.instruction_id)
        elif kind == "node_state_update":
            node = message.node_state_update
            heard.nodes[node.machine_id] = node
            heard.states.append((node.machine_id, node.state))
        elif kind == "available_capacity":
            heard.capacity[message.available_capacity.supersedes_key] = message.available_capacity
        elif kind == "resync_end":
            members = tuple(message.resync_end.machine_ids)
            heard.resyncs.append(members)
            for gone in heard.nodes.keys() - set(members):
                del heard.nodes[gone]
        for remembered in (heard.acks, heard.bootstrap_requests, heard.reclaims, heard.states):
            if len(remembered) > self._keep:
                del remembered[: self._keep // 2]
        async with self._changed:
            self._changed.notify_all()

    def _react(self, message: shard_pb2.ShardMessage) -> None:
        kind = message.WhichOneof("payload")
        if kind == "bootstrap_request":
            self._spawn(self._answer(message.bootstrap_request))
        elif kind == "reclaim_instruction":
            self._spawn(self._drain(message.reclaim_instruction))
        elif kind == "reclaim_cancel":
            cancelled = message.reclaim_cancel.instruction_id
            for machine in [machine for machine, order in self.drains.items() if order == cancelled]:
                del self.drains[machine]

    async def _answer(self, request: shard_pb2.BootstrapRequest) -> None:
        rendered = self._user_data(request)
        answer = shard_pb2.BootstrapBlobResponse(request_id=request.request_id, ttl_seconds=3600)
        if isinstance(rendered, bytes):
            answer.user_data = rendered
        else:
            answer.error = rendered
        await self.send(bootstrap_response=answer)

    async def _drain(self, order: shard_pb2.ReclaimInstruction) -> None:
        ack = shard_pb2.ReclaimAck(instruction_id=order.instruction_id, nodes_started=len(order.nodes))
        await self.send(reclaim_ack=ack)
        if not self.capabilities:
            return
        self.drains.update(dict.fromkeys(order.nodes, order.instruction_id))
        await asyncio.sleep(self._drain_seconds)
        for node in order.nodes:
            if self.drains.pop(node, None) == order.instruction_id:
                report = shard_pb2.DrainReport(
                    instruction_id=order.instruction_id,
                    machine_id=node,
                    outcome=shard_pb2.DrainReport.OUTCOME_DRAINED,
                )
                await self.send(drain_report=report)

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

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
