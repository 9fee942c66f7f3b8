"""The operator at work: hears the cluster and the shard, lets session and mirror decide, and has it carried out.

Nothing is decided here. Everything that happens comes in on one loop, so session and mirror are never asked twice at a
time; everything that takes time (writes, evictions, the stream) runs beside it and comes back as an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from typing import Any, assert_never

import structlog

from bigfleet.crd.available_capacity import AvailableCapacity
from bigfleet.crd.capacity_request import CapacityRequest
from bigfleet.crd.upcoming_node import UpcomingNode
from bigfleet.model.names import API_GROUP, API_VERSION, OPERATOR_CAPABILITIES, PLACEMENT
from bigfleet.model.session import AckOutcome
from bigfleet.operator import session_codec
from bigfleet.operator.core import events as op
from bigfleet.operator.core.frames import BootstrapAnswer, ReclaimAck
from bigfleet.operator.core.mirror.mirror import Findings, Mirror
from bigfleet.operator.core.mirror.waiting import PATIENCE
from bigfleet.operator.core.redial import doubling
from bigfleet.operator.core.session import Session, SessionSettings
from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.listwatch import ListWatch, key_of
from bigfleet.operator.kube.notices import Notices
from bigfleet.operator.kube.objects import Budget, DaemonSet, Node, Pod
from bigfleet.operator.reading.overhead import Overhead
from bigfleet.operator.reading.shapes import closing_since
from bigfleet.operator.reading.view import ClusterView
from bigfleet.operator.reading.watches import Told, volume_watches
from bigfleet.operator.report_codec import report_to_wire, rollup_to_wire
from bigfleet.operator.shell.acknowledging import Acknowledging
from bigfleet.operator.shell.evictions import Evictions
from bigfleet.operator.shell.hints import Hints
from bigfleet.operator.shell.metrics import OperatorMetrics
from bigfleet.operator.shell.node_marks import NodeMarks, read_drain
from bigfleet.operator.shell.reservations import Reservations, coming_node
from bigfleet.operator.shell.settings import OperatorSettings
from bigfleet.operator.shell.stream import ShardStream
from bigfleet.operator.shell.templates import Renderer
from bigfleet.operator.shell.upcoming import UpcomingNodes
from bigfleet.wire import provider_pb2, shard_pb2

log = structlog.get_logger(__name__)

OURS = f"/apis/{API_GROUP}/{API_VERSION}"
# Deltas gather for so long before a look; looks never take more than a fifth of the time.
GATHER_SECONDS = 0.05
HINTS_HEARD_WITHIN_SECONDS = 180.0
# Less than the half minute that Kubernetes grants a container for its end.
LEAVING_SECONDS = 20.0
_WITHOUT_NODE = frozenset(
    (
        provider_pb2.MACHINE_STATE_SPECULATIVE,
        provider_pb2.MACHINE_STATE_CREATING,
        provider_pb2.MACHINE_STATE_IDLE,
        provider_pb2.MACHINE_STATE_CONFIGURING,
        provider_pb2.MACHINE_STATE_DELETING,
    )
)


class Operator:
    """One cluster's."""

    def __init__(
        self, settings: OperatorSettings, client: Client, metrics: OperatorMetrics, renderer: Renderer
    ) -> None:
        self._settings = settings
        self._client = client
        self._metrics = metrics
        self._renderer = renderer
        self._notices = Notices(client, "bigfleet-operator")
        self._view = ClusterView(
            self._notices.tell, namespaces=settings.namespaces, keep_off=settings.keep_off_interruptible
        )
        self._overhead = Overhead(self._view.nodes)
        self._mirror = Mirror(
            levels_every=int(settings.fill_seconds * op.SECOND),
            firm_last=settings.spares_firm_nodes,
            old_after=int(settings.old_seconds * op.SECOND),
            reserves=settings.reserves,
            patience=PATIENCE if settings.hard_closing else 0,
        )
        self._session: Session | None = None
        self._stream = ShardStream(settings.tls, insecure=settings.insecure, hear=self._tell, read=self._read)
        self._acks = Acknowledging(client, self._view.unacknowledged, metrics, settings.ack_concurrency)
        self._marks = NodeMarks(
            client, self._view.nodes, hard_closing=settings.hard_closing, levels=settings.fill_levels
        )
        self._reservations = Reservations(client, self._view.key_of_uid, metrics, self._may_reserve)
        self._evictions = Evictions(client, self._view, metrics, self._eviction_ended)
        self._hints = Hints(client)
        self._upcoming = UpcomingNodes(
            client,
            metrics,
            node_of=self._view.node_of,
            draining=lambda machine: self._session is not None and self._session.cause_of(machine) is not None,
            retention_seconds=settings.drained_retention_seconds,
        )
        self._watches = self._made_watches()
        self._events: deque[op.Event] = deque()
        self._handling = False
        # What the last answer said of rows that the shard leaves out: told when it changes.
        self._left_out = ""
        self._dirty = asyncio.Event()
        self._nudged = asyncio.Event()
        self._clock = time.time_ns() - time.monotonic_ns()
        self._levels_due = 0.0
        self._hints_due: float | None = None
        # Machines on their way, and the gang each was bound for.
        self._expected: dict[str, str] = {}
        self._greeted = False
        self._view.on_change = self._dirty.set
        self._view.on_node = self._node_changed

    def now(self) -> int:
        """Unix nanoseconds that never go back."""
        return self._clock + time.monotonic_ns()

    @property
    def complete(self) -> bool:
        return all(watch.complete.is_set() for watch in self._watches)

    async def run(self) -> None:
        """For ever, or until a part of it fails in a way it cannot mend."""
        try:
            async with asyncio.TaskGroup() as parts:
                for watch in self._watches:
                    parts.create_task(watch.run())
                parts.create_task(self._notices.run())
                await asyncio.gather(*(watch.complete.wait() for watch in self._watches))
                self._begin()
                works = (self._acks, self._marks, self._reservations, self._hints, self._upcoming)
                for work in (each.work for each in works):
                    parts.create_task(work.run())
                parts.create_task(self._keep_looking())
                parts.create_task(self._keep_time())
        finally:
            await self._evictions.close()
            await self._stream.close()
            # Clusters run without BigFleet: what only we would open must not stay shut.
            await self._marks.leave(LEAVING_SECONDS)

    def _made_watches(self) -> list[ListWatch[Any]]:
        view, client = self._view, self._client
        made: list[ListWatch[Any]] = [
            ListWatch(client, "/api/v1/nodes", Node, Told(view.node_seen, view.node_gone)),
            ListWatch(client, "/api/v1/pods", Pod, Told(self._pod_seen, self._pod_gone)),
            ListWatch(client, f"{OURS}/capacityrequests", CapacityRequest, Told(view.request_seen, view.request_gone)),
            ListWatch(client, "/apis/policy/v1/poddisruptionbudgets", Budget, Told(view.budget_seen, view.budget_gone)),
            ListWatch(client, "/apis/apps/v1/daemonsets", DaemonSet, self._overhead),
            *volume_watches(client, view.volumes),
            ListWatch(client, f"{OURS}/upcomingnodes", UpcomingNode, self._upcoming),
            ListWatch(client, f"{OURS}/availablecapacities", AvailableCapacity, self._hints),
        ]
        for watch in made:
            watch.on_event = lambda what: self._metrics.relists.inc() if what == "expired" else None
        return made

    def _begin(self) -> None:
        """Everything of the cluster is known: dial, and go on with what an earlier life had begun."""
        resumed = [
            drain
            for machine, name in sorted(self._view.machines.items())
            if (drain := read_drain(self._view.nodes[name], machine)) is not None
        ]
        settings = self._settings
        capabilities = {*OPERATOR_CAPABILITIES, *((PLACEMENT,) if settings.placement else ())}
        if settings.reserves:
            self._reservations.begin()
        self._look()
        self._session = Session(
            SessionSettings(
                settings.cluster_id,
                capabilities=frozenset(capabilities),
                address=settings.shard_addr,
                rollup_interval=int(settings.rollup_seconds * op.SECOND),
                complete=True,
            ),
            doubling(random.random),
            placement=self._mirror,
            resumed=resumed,
        )
        log.info(
            "operator started",
            component="operator",
            cluster=settings.cluster_id,
            shard=settings.shard_addr,
            rollup_interval=f"{settings.rollup_seconds:g}s",
            placement=settings.placement,
            requests=self._view.requests,
            resumed_drains=len(resumed),
        )
        self._tell(op.Started())

    # ---------------------------------------------------------------------------------------------------------- events

    def _tell(self, event: op.Event) -> None:
        """The session hears it; what it asks for is begun in its order, and what comes of that is heard afterwards."""
        if self._session is None:
            return
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                happened = self._events.popleft()
                self._note(happened)
                for asked in self._session.handle(happened, self.now()):
                    self._do(asked)
        finally:
            self._handling = False
        self._metrics.drains.set(len(self._session.draining()))
        self._nudged.set()

    def _note(self, event: op.Event) -> None:
        match event:
            case op.Connected():
                self._hints.connected()
                self._hints_due = time.monotonic() + HINTS_HEARD_WITHIN_SECONDS
            case op.Disconnected():
                self._metrics.reconnects.inc()
                self._metrics.connected.set(0)
                self._greeted = False
                self._hints_due = None
            case op.TimerDue():
                pass
            case _:
                # Drains begin and end by events: the mirror has to look again before it answers.
                self._dirty.set()

    def _do(self, asked: op.Instruction) -> None:
        match asked:
            case op.Dial(address):
                self._stream.dial(address or self._settings.shard_addr)
            case op.Say(session, frame):
                self._stream.say(session, session_codec.to_wire(frame), keep=not isinstance(frame, _RE_ASKED))
                self._count_dropped()
            case op.SendRollup(session, timestamp):
                self._send_rollup(session, timestamp)
            case op.ReportNodes(session, anew):
                self._look()
                for report in self._mirror.reports(anew=anew):
                    self._stream.say(session, shard_pb2.OperatorMessage(node_report=report_to_wire(report)), keep=True)
            case op.RollupAnswered(timestamp, outcome, reason):
                self._acks.answered(timestamp, outcome)
                if outcome in (AckOutcome.REJECTED, AckOutcome.HELD):
                    log.warning("roll-up not applied", outcome=str(outcome), reason=reason)
                elif reason and reason != self._left_out:
                    log.warning("roll-up applied without some of its rows", reason=reason)
                self._left_out = reason if outcome is AckOutcome.APPLIED else ""
            case op.RenderBootstrap(request):
                self._tell(op.BootstrapRendered(self._renderer.render(request)))
            case op.Cordon(machine, _):
                self._mark_drain(machine)
            case op.Evict(machine):
                self._mark_drain(machine)
                self._evictions.begin(machine)
            case op.StopEvicting(machine):
                self._evictions.stop(machine)
            case op.LoseNode(machine):
                self._mirror.lost(machine)
                self._dirty.set()
            case op.CloseNode(machine, closing):
                self._close(machine, self.now() if closing else 0)
            case op.ReopenNodes():
                for machine, name in list(self._view.machines.items()):
                    if closing_since(self._view.nodes[name]):
                        self._close(machine, 0)
            case op.KeepShard(shard_id):
                log.info("bound to shard", shard=shard_id)
            case _:
                assert_never(asked)

    def _mark_drain(self, machine: str) -> None:
        assert self._session is not None
        node = self._view.node_of(machine)
        if node is not None:
            self._marks.drain(node.metadata.name, self._session.drain_of(machine))
        self._upcoming.look(machine)

    def _close(self, machine: str, since: int) -> None:
        node = self._view.node_of(machine)
        if node is not None:
            self._marks.close(node.metadata.name, since)

    def _keep(self, name: str, machine: str) -> None:
        """A node that has just come, and is not ready yet, may be kept for those it came for."""
        expected = self._expected.pop(machine, None)
        if expected is None or self._view.nodes[name].ready or not self._settings.keep_new_nodes:
            return
        if whom := self._mirror.keep_for(expected):
            log.debug("new node kept", node=name, kept_for=whom)
            self._marks.keep(name, whom)

    def _may_reserve(self, may: bool) -> None:
        self._mirror.reserve(may)
        self._dirty.set()

    def _expect(self, frame: shard_pb2.NodeStateUpdate) -> None:
        if frame.state == provider_pb2.MACHINE_STATE_CONFIGURING:
            self._mirror.told(frame.machine_id, coming_node(frame, self._overhead.total()), frame.group)
            self._expected[frame.machine_id] = frame.group
        else:
            self._mirror.told(frame.machine_id, None)
            if frame.state != provider_pb2.MACHINE_STATE_CONFIGURED:
                self._expected.pop(frame.machine_id, None)
        if (node := self._view.node_of(frame.machine_id)) is not None:
            self._keep(node.metadata.name, frame.machine_id)
        self._dirty.set()

    def _eviction_ended(self, machine: str, error: str) -> None:
        self._tell(op.EvictionEnded(machine, error))

    def _node_changed(self, name: str, machine: str) -> None:
        if not machine:
            return
        if name in self._view.nodes:
            self._marks.identify(name, machine)
            self._keep(name, machine)
        self._upcoming.look(machine)
        if name not in self._view.nodes:
            self._marks.forget(name)
            self._evictions.changed()
            self._tell(op.NodeGone(machine))

    def _pod_seen(self, pod: Pod) -> None:
        self._view.pod_seen(pod)
        self._reservations.seen(key_of(pod), pod)

    def _pod_gone(self, key: str) -> None:
        self._view.pod_gone(key)
        self._reservations.gone(key)
        self._evictions.changed()

    # -------------------------------------------------------------------------------------------------------- the shard

    def _read(self, message: shard_pb2.ShardMessage) -> None:
        match message.WhichOneof("payload"):
            case "node_state_update":
                frame = message.node_state_update
                self._view.machine_named(frame.machine_id)
                self._upcoming.heard(frame)
                self._expect(frame)
                if frame.state in _WITHOUT_NODE:
                    self._tell(op.NodeGone(frame.machine_id))
            case "available_capacity":
                self._hints.heard(message.available_capacity)
            case "resync_end":
                named = dict.fromkeys(message.resync_end.machine_ids)
                self._upcoming.resynced(named)
                assert self._session is not None
                for machine in self._session.draining():
                    if machine not in named:
                        self._tell(op.NodeGone(machine))
            case _:
                frame_for_session = session_codec.received(message)
                if frame_for_session is not None:
                    if message.ack.echo == "hello":
                        self._metrics.connected.set(1)
                        log.info("greeted by the shard", shard_epoch=message.ack.shard_epoch)
                    self._tell(op.Received(frame_for_session))

    def _send_rollup(self, session: int, timestamp: int) -> None:
        began = time.perf_counter()
        self._look(grew_matters=False)
        looked = time.perf_counter()
        rows = self._mirror.rows()
        needs = rollup_to_wire(
            self._settings.cluster_id,
            rows,
            timestamp=timestamp,
            version=self._mirror.version,
            overhead=self._overhead.total(),
        )
        built = time.perf_counter()
        self._stream.say_rollup(session, shard_pb2.OperatorMessage(rollup=needs))
        self._acks.sent(timestamp)
        done = time.perf_counter()
        phases = {"list": looked - began, "build": built - looked, "enqueue": done - built}
        for phase, seconds in phases.items():
            self._metrics.rollup_phase.labels(phase).observe(seconds)
        self._metrics.rollup.observe(done - began)
        self._metrics.requests.set(self._view.requests)
        self._metrics.inexpressible.set(len(self._view.inexpressible))
        log.debug(
            "roll-up sent",
            rows=len(rows),
            units=sum(row.count for row in rows),
            running=sum(row.running for row in rows),
            stranded=sum(row.stranded for row in rows),
            version=self._mirror.version,
        )

    def _count_dropped(self) -> None:
        if self._stream.dropped:
            self._metrics.dropped.inc(self._stream.dropped)
            self._stream.dropped = 0

    # ------------------------------------------------------------------------------------------------------ the mirror

    def _look(self, *, grew_matters: bool = True) -> Findings:
        """Tell the mirror what changed, look once, and act on what it found."""
        self._dirty.clear()
        began = time.perf_counter()
        deltas = self._view.take()
        if deltas:
            self._mirror.apply(deltas)
        found = self._mirror.settle(self.now())
        self._metrics.look.observe(time.perf_counter() - began)
        self._metrics.stranded.set(found.stranded)
        for machine in found.reopen:
            self._close(machine, 0)
        for machine in found.close:
            self._close(machine, self.now())
        for machine in found.let_go:
            if (node := self._view.node_of(machine)) is not None:
                log.debug("new node open to all", node=node.metadata.name)
                self._marks.keep(node.metadata.name, "")
        nodes = self._view.machines
        self._reservations.show((nodes[machine], pods) for machine, pods in found.reserved if machine in nodes)
        for uid in found.stuck:
            self._view.tell_stuck(uid)
        if self._settings.fill_levels:
            for name, level in self._mirror.levels():
                self._marks.level(name, level)
        if found.grew and grew_matters:
            self._tell(op.DemandGrew())
        if deltas:
            self._tell(op.NodesChanged())
        return found

    async def _keep_looking(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(GATHER_SECONDS)
            began = time.perf_counter()
            self._look()
            await asyncio.sleep(4 * (time.perf_counter() - began))

    async def _keep_time(self) -> None:
        while True:
            self._nudged.clear()
            seconds = self._seconds_to_next()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._nudged.wait()
            assert self._session is not None
            now = self.now()
            due = self._session.next_timer()
            if due is not None and due <= now:
                self._tell(op.TimerDue())
            due = self._mirror.next_timer()
            if due is not None and due <= now:
                self._look()
                self._tell(op.NodesChanged())
                # A timer that looking did not put off must not be asked in a tight loop.
                await asyncio.sleep(GATHER_SECONDS)
            self._level()
            if self._hints_due is not None and time.monotonic() >= self._hints_due:
                self._hints_due = None
                self._hints.remove_unheard()

    def _seconds_to_next(self) -> float:
        assert self._session is not None
        now = self.now()
        due = [at for at in (self._session.next_timer(), self._mirror.next_timer()) if at is not None]
        seconds = [max(0.0, (at - now) / op.SECOND) for at in due]
        if self._settings.fill_levels:
            seconds.append(max(0.0, self._levels_due - time.monotonic()))
        if self._hints_due is not None:
            seconds.append(max(0.0, self._hints_due - time.monotonic()))
        return min(seconds, default=60.0)

    def _level(self) -> None:
        if not self._settings.fill_levels or time.monotonic() < self._levels_due:
            return
        self._levels_due = time.monotonic() + self._settings.fill_seconds
        self._look()


# The shard asks again for what it did not get of these.
_RE_ASKED = (BootstrapAnswer, ReclaimAck)
