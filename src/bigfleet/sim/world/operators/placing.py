"""An operator that reports placement: the operator's own mirror, fed from a simulated cluster, in the shard's words.

Looks before it says anything, and soon after something changed. What is told follows from the look alone; nothing is
decided here. Closing, levels of fill and losses are carried into cluster and mirror. Instants are Unix time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from bigfleet.model.machine import MachineState
from bigfleet.operator.core import events as op
from bigfleet.operator.core.mirror.mirror import Mirror
from bigfleet.operator.core.mirror.reports import NodeReport
from bigfleet.operator.core.mirror.waiting import PATIENCE
from bigfleet.operator.core.rows import Row
from bigfleet.shard.contract import events as ev
from bigfleet.sim.scenario.steps import Untruth
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.operators.counted_rows import counted_rollup
from bigfleet.sim.world.operators.mirror_feed import MirrorFeed, object_of
from bigfleet.virtual.kernel import SECOND

LOOK_PAUSE = SECOND
LEVELS_EVERY = 30 * SECOND


class PlacementReports:
    """What one cluster's operator says of its pods and nodes."""

    def __init__(self, cluster: Cluster, names: tuple[str, ...], risks: tuple[float, ...], *, levels: bool) -> None:
        cluster.track_changes()
        self.mirror = Mirror(firm_last=cluster.scheduler.risk_rule, patience=PATIENCE)
        self._nonsense: Untruth | None = None
        self._tell_all = False
        self._cluster = cluster
        self._names = names
        self._levels = levels
        self._feed = MirrorFeed(cluster, risks)
        # For which gang a machine was bound, as the shard told.
        self._bound_for: dict[str, str] = {}
        self._said: tuple[int, list[Row]] | None = None
        self._looked = -LOOK_PAUSE
        self._levels_due = 0
        self._stale = True
        # Nodes take pods that did not: the scheduler wants its turn.
        self.on_open: Callable[[], None] = lambda: None

    def talk_nonsense(self, nonsense: Untruth | None) -> None:
        """Say what is not so, or come to one's senses; either way everything is told anew."""
        self._nonsense = nonsense
        self._tell_all = self._stale = True

    def look(self, now: int) -> list[op.Event]:
        """One look at everything, unless nothing changed since the last; what the session should know of it."""
        timer = self.mirror.next_timer()
        levels = self._levels and now >= self._levels_due
        if not (self._stale or levels or self._cluster.has_changes() or (timer is not None and now >= timer)):
            return []
        self._stale = False
        deltas = self._feed.deltas(now)
        self.mirror.apply(deltas)
        found = self.mirror.settle(now)
        self._looked = now
        for machine in found.reopen:
            self.close(machine, False, now)
        for machine in found.close:
            self.close(machine, True, now)
        for machine in found.let_go:
            self._cluster.keep(machine, "")
        for machine, uids in found.reserved:
            self._cluster.reserve(machine, Counter(map(object_of, uids)))
        if found.let_go or found.reserved:
            self.on_open()
        if levels:
            self._levels_due = now + LEVELS_EVERY
        if self._levels:
            for name, level in self.mirror.levels():
                self._cluster.set_level(name, level)
        heard: list[op.Event] = [op.NodesChanged()] if deltas or timer is not None else []
        return [*heard, op.DemandGrew()] if found.grew else heard

    def next_look(self) -> int:
        """When to look although nobody asks: soon if something changed, else when the mirror or the levels want it.

        A look does not always put the mirror's timer off: reports that are due stay so until the session, which has a
        pace of its own, takes them. So no look follows another at once.
        """
        soon = self._stale or self._cluster.has_changes()
        due = self._looked + (LOOK_PAUSE if soon else LEVELS_EVERY)
        timer = self.mirror.next_timer()
        return due if timer is None else max(self._looked + LOOK_PAUSE, min(due, timer))

    def reports(self, session: int, anew: bool, now: int) -> list[ev.Event]:
        self.look(now)
        found = self.mirror.reports(anew=anew or self._tell_all)
        self._tell_all = False
        return [self._reported(session, report) for report in found]

    def rollup(self, session: int, timestamp: int, now: int) -> ev.RollupReceived:
        self.look(now)
        rows, version = self.mirror.rows(), self.mirror.version
        if self._nonsense is Untruth.EVERYTHING_STRANDED:
            rows = [replace(row, running=0, stranded=row.count) for row in rows]
        elif self._nonsense is Untruth.NO_DEMAND:
            rows = []
        name = self._cluster.name
        if self._said == (session, rows):
            return ev.RollupReceived(session, name, timestamp, None, unchanged=True, mirror_version=version)
        self._said = (session, rows)
        body = counted_rollup(name, rows, version, self._names, self._cluster.overhead)
        return ev.RollupReceived(session, name, timestamp, body, mirror_version=version)

    def told(self, state: ev.NodeState) -> None:
        """The shard says how a machine stands, and for whom it bound it."""
        if state.group:
            self._bound_for[state.machine] = state.group
        else:
            self._bound_for.pop(state.machine, None)
        comes = state.shape is not None and state.state == MachineState.CONFIGURING
        seen = self._feed.coming(state.machine, state.shape) if comes and state.shape else None
        self.mirror.told(state.machine, seen, state.group)
        self._stale = True

    def joined(self, machine: str) -> None:
        """A node has come. A real one is there for some seconds before it is ready, time enough for a taint."""
        whom = self.mirror.keep_for(self._bound_for.get(machine, ""))
        if whom:
            self._cluster.keep(machine, whom)

    def lose(self, machine: str) -> None:
        self.mirror.lost(machine)
        self._stale = True

    def refusal(self, machine: str) -> str:
        """Why it must not be drained now; who asks has looked first."""
        return self.mirror.refusal(machine)

    def is_occupied(self, machine: str) -> bool:
        return self.mirror.is_occupied(machine)

    def has_room(self, machine: str) -> bool:
        return self.mirror.has_room(machine)

    def begin(self, machine: str) -> None:
        self.mirror.begin(machine)
        self._stale = True

    def release(self, machine: str) -> None:
        self.mirror.release(machine)
        self._stale = True

    def close(self, machine: str, closing: bool, now: int) -> None:
        self._cluster.close(machine, now if closing else 0)
        if not closing:
            self.on_open()

    def reopen_all(self, now: int) -> None:
        for machine in self._cluster.closing():
            self.close(machine, False, now)

    def _reported(self, session: int, report: NodeReport) -> ev.NodeReported:
        told = ev.NodeReported(
            session=session,
            machine=report.machine,
            # The fields of `operator.report_codec`, for a shard that is spoken to without a wire.
            node_name=report.node_name,
            ready=report.ready,
            empty=report.empty,
            max_pod_priority=report.max_pod_priority,
            removable=report.removable,
            used=report.used,
            allocatable=report.allocatable,
            reclamation_dollars=report.reclamation_dollars,
            interruption_dollars=report.interruption_dollars,
            pinned=report.pinned,
            groups=report.groups,
            profiles=report.profiles,
            exclusive=report.exclusive,
            closing_since=report.closing_since,
            matured=report.matured,
            mirror_version=report.version,
        )
        match self._nonsense:
            case Untruth.NOTHING_REMOVABLE:
                return replace(told, removable=False, empty=False)
            case Untruth.EVERYTHING_EMPTY:
                return replace(told, removable=True, empty=True, used=())
            case _:
                return told
