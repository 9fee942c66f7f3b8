"""A pretend cluster that reports placement: the operator's session and mirror over pods and nodes that do not exist.

The same client as `synthetic`, which tells sums, with a cluster behind it: it binds pods to the nodes it is given,
tells which pods have no room and what stands on which node, refuses drains its pods have no room for, and closes nodes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bigfleet.model.names import PLACEMENT
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint
from bigfleet.operator.core import events as op
from bigfleet.operator.core.mirror import facts
from bigfleet.operator.core.mirror.labels import Selector, checks_of, equal_to
from bigfleet.operator.core.redial import doubling
from bigfleet.operator.core.session import Session
from bigfleet.operator.report_codec import report_to_wire, rollup_to_wire
from bigfleet.shard.rehearsal.pretend_cluster import PretendCluster
from bigfleet.shard.rehearsal.synthetic import ALL_CAPABILITIES, Row, SyntheticOperator
from bigfleet.shard.streams.rollup_codec import profile_of
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2

if TYPE_CHECKING:
    import grpc

    from bigfleet.operator.core.session import SessionSettings

NAMESPACE = "default"
LOOK_SECONDS = 0.25
_CONFIGURED = provider_pb2.MACHINE_STATE_CONFIGURED
_DRAINING = provider_pb2.MACHINE_STATE_DRAINING


class PlacingOperator(SyntheticOperator):
    """One cluster with pods. `want` says what is to run; who runs where is found out by waiting."""

    def __init__(
        self,
        cluster: str,
        channel: grpc.aio.Channel,
        *,
        capabilities: frozenset[str] = ALL_CAPABILITIES,
        user_data: Callable[[shard_pb2.BootstrapRequest], bytes | str] | None = None,
        drain_seconds: float = 0.0,
    ) -> None:
        self.pretended = PretendCluster()
        self._looking: asyncio.Task[None] | None = None
        super().__init__(
            cluster,
            channel,
            capabilities=capabilities | {PLACEMENT},
            user_data=user_data,
            drain_seconds=drain_seconds,
        )

    def want(self, rows: Iterable[Row | capacity_pb2.CapacityNeed]) -> None:
        super().want(rows)
        wanted = {}
        for number, need in enumerate(self.demand):
            shape = shape_of(number, need)
            name = f"{shape.profile.fingerprint}-{shape.group}-{shape.requests.canonical}"
            wanted[name] = (shape, _pods(need, shape.requests))
        self.pretended.want(wanted, time.time_ns())

    async def connect(self) -> None:
        await super().connect()
        if self._looking is None or self._looking.done():
            self._looking = self._spawn(self._look_again())

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        """What stands where has changed, perhaps: the session hears what is worth telling."""
        found = self.pretended.look(time.time_ns())
        self._tell(op.NodesChanged())
        if found.grew:
            self._tell(op.DemandGrew())

    def _made(self, settings: SessionSettings) -> Session:
        # It knows all of itself from the start.
        whole = replace(settings, complete=True)
        return Session(whole, doubling(random.random), placement=self.pretended.mirror)

    def _rollup(self, cluster: str, timestamp: int) -> capacity_pb2.ClusterCapacityNeeds:
        self.pretended.look(time.time_ns())
        mirror = self.pretended.mirror
        return rollup_to_wire(cluster or self.cluster, mirror.rows(), timestamp=timestamp, version=mirror.version)

    def _do(self, asked: op.Instruction) -> None:
        match asked:
            case op.ReportNodes(_, anew):
                self.pretended.look(time.time_ns())
                for report in self.pretended.mirror.reports(anew=anew):
                    self._outgoing.put_nowait(shard_pb2.OperatorMessage(node_report=report_to_wire(report)))
            case op.Cordon(machine, on):
                self.pretended.cordon(machine, on)
            case op.LoseNode(machine):
                self.pretended.lose(machine)
            case op.CloseNode(machine, closing):
                self.pretended.close(machine, time.time_ns() if closing else 0)
            case op.ReopenNodes():
                self.pretended.reopen_all()
            case _:
                super()._do(asked)

    async def _evict(self, machine: str) -> None:
        await asyncio.sleep(self._drain_seconds)
        self.pretended.empty(machine, time.time_ns())
        self._evicting.pop(machine, None)
        self._tell(op.EvictionEnded(machine))

    async def _hear(self, message: shard_pb2.ShardMessage) -> None:
        now = time.time_ns()
        kind = message.WhichOneof("payload")
        if kind == "node_state_update":
            node = message.node_state_update
            if node.state == _CONFIGURED:
                taints = tuple(Taint(each.key, each.value, each.effect) for each in node.taints)
                allocatable = Resources.parse(node.resources.resources, round_up=False)
                self.pretended.join(node.machine_id, node.labels, allocatable, taints)
            elif node.state != _DRAINING:
                self.pretended.leave(node.machine_id, now)
        elif kind == "resync_end":
            for gone in self.pretended.nodes.keys() - set(message.resync_end.machine_ids):
                self.pretended.leave(gone, now)
        await super()._hear(message)


def _pods(need: capacity_pb2.CapacityNeed, unit: Resources) -> int:
    """How many units a row that says no count asks for."""
    total = Resources.parse(need.aggregate_resources, round_up=True)
    return max((total.get(name) // amount for name, amount in unit.items()), default=0)


def shape_of(number: int, need: capacity_pb2.CapacityNeed) -> facts.PodShape:
    profile = profile_of(number, need)
    unit = Resources.parse(need.min_unit, round_up=True)
    spread = profile.strict_spread
    app = f"{profile.fingerprint}-{need.group}"
    terms = checks_of(profile.requirements)
    own = Selector(equal_to({"app": app}))
    return facts.PodShape(
        namespace=NAMESPACE,
        requests=unit,
        profile=profile,
        group=need.group,
        labels=(("app", app),),
        node_terms=(terms,) if terms else (),
        tolerations=tuple(profile.tolerations),
        spreads=(facts.SpreadTerm(spread.topology_key, spread.max_skew, own),) if spread is not None else (),
    )
