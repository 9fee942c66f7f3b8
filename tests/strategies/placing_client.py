"""A cluster that reports placement, over a real socket: written from the protobuf contract and nothing else.

It runs one kind of pod, a core each. A node is there when the shard says its machine is Configured; the first open node
with room takes a pod. Twenty times a second it looks, binds and tells: nodes first, then rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.transport import channel
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2

SESSION = "/bigfleet.v1alpha1.Shard/Session"
CAPABILITIES = ("drain-reports", "reclaim-cancel", "resync-end", "ack-outcomes", "node-reports", "placement")
LOOK_SECONDS = 0.05
# By the operator's contract equal rows have equal bytes, so only the version tells two looks apart.
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_Outcome = shard_pb2.DrainReport


@dataclass
class Node:
    cores: int
    pods: int = 0
    closing_since: int = 0
    draining: bool = False
    # Pods that came with the last look, and those that came before it, ever.
    young: int = 0
    matured: int = 0


@dataclass
class PlacingClient:
    """One cluster; `types` are the instance types its pods may run on."""

    address: str
    cluster: str
    types: tuple[str, ...]
    pods: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    refuses: bool = False
    # Nodes of new machines do not become ready while this is on.
    slow: bool = False
    version: int = 0
    acks: list[shard_pb2.Acknowledgement] = field(default_factory=list)
    reclaims: list[shard_pb2.ReclaimInstruction] = field(default_factory=list)
    closings: list[tuple[str, bool]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stream: Any = None
        # A stream takes one write at a time, and two tasks write.
        self._writing = asyncio.Lock()
        # Cores of the machines said to be Configured; while it is slow they have no node.
        self.told: dict[str, int] = {}
        # Machines named since the stream began; the end of the resync says that there are no others.
        self._named: set[str] = set()
        where = Requirement(INSTANCE_TYPE, Operator.IN, self.types)
        self.fingerprint = Profile([where], [], 0, 1, 1, []).fingerprint

    @property
    def waiting(self) -> int:
        return self.pods - sum(node.pods for node in self.nodes.values())

    # ------------------------------------------------------------------------------------------------------------ wire

    async def serve(self) -> None:
        """Keep a stream open, for ever."""
        while True:
            async with channel(self.address) as opened:
                self._stream = opened.stream_stream(SESSION)()
                self._named.clear()
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await self.say(hello=shard_pb2.Hello(cluster_id=self.cluster, capabilities=CAPABILITIES))
                    both = [asyncio.create_task(self._listen()), asyncio.create_task(self._tell_on())]
                    try:
                        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                        for task in done:
                            task.result()
                    finally:
                        for task in both:
                            task.cancel()
                        await asyncio.gather(*both, return_exceptions=True)
            await asyncio.sleep(0.1)

    async def _listen(self) -> None:
        async for frame in self._stream:
            await self._hear(shard_pb2.ShardMessage.FromString(frame))

    async def say(self, **payload: Any) -> None:
        async with self._writing:
            await self._stream.write(shard_pb2.OperatorMessage(**payload).SerializeToString(deterministic=True))

    async def _hear(self, message: shard_pb2.ShardMessage) -> None:
        match message.WhichOneof("payload"):
            case "ack":
                self.acks.append(message.ack)
            case "bootstrap_request":
                request = message.bootstrap_request.request_id
                await self.say(bootstrap_response=shard_pb2.BootstrapBlobResponse(request_id=request, user_data=b"#!"))
            case "node_state_update":
                self._node(message.node_state_update)
            case "resync_end":
                for machine in (set(self.told) | set(self.nodes)) - self._named:
                    self.told.pop(machine, None)
                    self.nodes.pop(machine, None)
            case "reclaim_instruction":
                await self._reclaim(message.reclaim_instruction)
            case "node_closing":
                closing = message.node_closing
                self.closings.append((closing.machine_id, closing.closing))
                if closing.machine_id in self.nodes:
                    self.nodes[closing.machine_id].closing_since = time.time_ns() if closing.closing else 0
            case "node_lost":
                self.lost.append(message.node_lost.machine_id)
                self.nodes.pop(message.node_lost.machine_id, None)

    def _node(self, update: shard_pb2.NodeStateUpdate) -> None:
        machine = update.machine_id
        self._named.add(machine)
        if update.state == provider_pb2.MACHINE_STATE_CONFIGURED:
            self.told[machine] = int(update.resources.resources["cpu"])
        elif update.state != provider_pb2.MACHINE_STATE_DRAINING:
            self.told.pop(machine, None)
            self.nodes.pop(machine, None)

    async def _reclaim(self, wanted: shard_pb2.ReclaimInstruction) -> None:
        self.reclaims.append(wanted)
        for machine in wanted.nodes:
            refused = self.refuses and wanted.voluntary
            if refused:
                self.refused.append(machine)
            elif machine in self.nodes:
                self.nodes[machine].draining = True
                self.nodes[machine].pods = 0
            outcome = _Outcome.OUTCOME_REFUSED if refused else _Outcome.OUTCOME_DRAINED
            report = shard_pb2.DrainReport(instruction_id=wanted.instruction_id, machine_id=machine, outcome=outcome)
            await self.say(drain_report=report)

    # ------------------------------------------------------------------------------------------------------- scheduling

    async def _tell_on(self) -> None:
        for _ in itertools.count():
            self.look()
            await self.tell()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        self.version += 1
        if not self.slow:
            for machine, cores in self.told.items():
                self.nodes.setdefault(machine, Node(cores))
        surplus = -self.waiting
        for node in self.nodes.values():
            gone = min(max(0, surplus), node.pods)
            node.pods, surplus = node.pods - gone, surplus - gone
        for _, node in sorted(self.nodes.items()):
            node.matured, node.young = node.matured + node.young, 0
            if not node.closing_since and not node.draining:
                node.young = min(self.waiting, node.cores - node.pods)
                node.pods += node.young

    async def tell(self) -> None:
        for machine, node in sorted(self.nodes.items()):
            await self.say(node_report=self._report(machine, node))
        await self.say(rollup=self.rollup())

    def rollup(self) -> capacity_pb2.ClusterCapacityNeeds:
        need = self.need(self.pods, stranded=self.waiting, running=self.pods - self.waiting)
        return capacity_pb2.ClusterCapacityNeeds(
            cluster_id=self.cluster,
            timestamp_unix_nanos=time.time_ns(),
            needs=[need] if self.pods else [],
            mirror_version=self.version,
        )

    def need(self, count: int, **units: int) -> capacity_pb2.CapacityNeed:
        where = capacity_pb2.NodeSelectorRequirement(
            key=INSTANCE_TYPE, operator=capacity_pb2.NodeSelectorRequirement.OPERATOR_IN, values=self.types
        )
        return capacity_pb2.CapacityNeed(
            requirements=[where],
            aggregate_resources={"cpu": str(count)},
            min_unit={"cpu": "1"},
            interruption_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(1),
            reclamation_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(1),
            count=count,
            **units,
        )

    def _report(self, machine: str, node: Node) -> shard_pb2.NodeReport:
        return shard_pb2.NodeReport(
            machine_id=machine,
            node_name=machine,
            ready=True,
            empty=not node.pods,
            removable=False,
            used={"cpu": str(node.pods), "pods": str(node.pods)} if node.pods else {},
            reclamation_dollars=0.005 * node.pods,
            profiles=[self.fingerprint] if node.pods else [],
            closing_since=node.closing_since,
            mirror_version=self.version,
            matured=node.matured,
        )


@asynccontextmanager
async def placing(address: str, cluster: str, *types: str, pods: int = 0) -> AsyncIterator[PlacingClient]:
    """A cluster that is connected for as long as the block lasts."""
    client = PlacingClient(address, cluster, types, pods)
    serving = asyncio.create_task(client.serve())
    try:
        yield client
    finally:
        assert not serving.done(), serving.exception()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
