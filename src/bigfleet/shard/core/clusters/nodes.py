"""Node states: how a machine looks to its cluster, and who has to be told when that changes.

A frame is rendered when it is sent, from the record as it then is. A machine that left the cluster is shown Idle when
it still has its host, whoever uses it by then, and Speculative when the host is gone.
"""

from __future__ import annotations

from collections.abc import Collection

from bigfleet.model.machine import MachineState
from bigfleet.model.names import node_name
from bigfleet.shard.contract.events import NodeReported
from bigfleet.shard.contract.frames import NodeState
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.state.enum_aliases import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DRAINING,
    FAILED,
    IDLE,
    SPECULATIVE,
)
from bigfleet.shard.core.state.state import ShardState

# The cluster may know of its node before the provider has told that it is Configured.
_RUNNING = frozenset({CONFIGURING, CONFIGURED})
_HOSTLESS = frozenset({MachineState.SPECULATIVE, MachineState.CREATING})


class Nodes:
    """Owes frames to sessions and renders them."""

    def __init__(self, state: ShardState, placement: Placement) -> None:
        self._state = state
        self._placement = placement
        self._reports: dict[str, tuple[str, NodeReported]] = {}
        # Nodes without pods by cluster, as last reported.
        self._empty: dict[str, set[str]] = {}
        # Names nodes were told to register under, where that says more than their ids.
        self._told: dict[str, str] = {}

    def changed(self, cluster: str, machine: str, to: MachineState) -> None:
        """The machine is or was this cluster's and has just changed."""
        if cluster in self._empty and to not in _RUNNING:
            self._note_empty(cluster, machine, False)
        self._placement.reports.changed(cluster, machine, to)
        session = self._state.sessions.of(cluster)
        if session is None:
            return
        session.outbox.node(machine, draining=to == DRAINING)
        self._state.sessions.wake(session)

    def reported(self, event: NodeReported) -> None:
        """The cluster itself saw the node; what it says of machines that are not its own is ignored."""
        session = self._state.sessions.get(event.session)
        record = self._state.fleet.machines.get(event.machine)
        if session is not None and record is not None and record.cluster == session.cluster:
            self._reports[event.machine] = (session.cluster, event)
            self._note_empty(session.cluster, event.machine, event.empty and record.state in _RUNNING)
            self._placement.reported(session, event)

    def lost(self, cluster: str, machine: str) -> None:
        """The provider lost a machine its cluster still counts on: say so before anybody times out."""
        session = self._state.sessions.of(cluster)
        if session is not None and self._placement.speaks_of_it(session):
            session.outbox.lost(machine)
            self._state.sessions.wake(session)

    def close(self, cluster: str, machine: str, *, closing: bool) -> bool:
        """Have the cluster keep new pods off the node, or let them on again; False when nobody is there to do it."""
        session = self._state.sessions.of(cluster)
        if session is None or not self._placement.speaks_of_it(session):
            return False
        session.outbox.closing(machine, closing=closing)
        self._state.sessions.wake(session)
        return True

    def report_on(self, machine: str) -> NodeReported | None:
        """What its present cluster last said of the machine."""
        record = self._state.fleet.machines.get(machine)
        cluster, report = self._reports.get(machine, ("", None))
        return report if record is not None and record.cluster == cluster else None

    def empty(self, cluster: str) -> Collection[str]:
        """Machines whose nodes run nothing, as far as the cluster has told."""
        return self._empty.get(cluster, ())

    def stream_changed(self, cluster: str) -> None:
        """A stream began or ended: which nodes are empty has to be told anew."""
        self._empty.pop(cluster, None)

    def forget(self, machine: str) -> None:
        self._reports.pop(machine, None)
        self._told.pop(machine, None)

    def _note_empty(self, cluster: str, machine: str, empty: bool) -> None:
        known = self._empty.setdefault(cluster, set())
        if empty:
            known.add(machine)
        else:
            known.discard(machine)
            if not known:
                del self._empty[cluster]

    def name(self, cluster: str, machine: str) -> str:
        """The node's name: what this cluster reported, else what it is told to register under.

        That is the provider's id of the machine; an id that the first provider has too, which names machines by their
        ids alone, is told apart by its provider. Both follow from who has which ids, whoever was listed first.
        """
        reporter, report = self._reports.get(machine, ("", None))
        if report is not None and reporter == cluster and report.node_name:
            return report.node_name
        fleet = self._state.fleet
        record = fleet.machines.get(machine)
        if record is None:
            return self._told.get(machine, machine)
        if record.key == record.id:
            return self._told.get(machine, record.id)
        return self._told.get(machine) or (node_name(machine) if fleet.shares_id(record) else record.id)

    def tell_name(self, cluster: str, machine: str) -> str:
        """The name for a node that is about to be made; it keeps it, whichever ids turn up later."""
        name, record = self.name(cluster, machine), self._state.fleet.machines[machine]
        for other in self._state.fleet.namesakes(record):
            if other.cluster == cluster and self.name(cluster, other.key) == name:
                name = node_name(f"{record.provider}/{record.id}")
        if record.key != record.id or name != record.id:
            self._told[machine] = name
        return name

    def members(self, cluster: str) -> tuple[str, ...]:
        return tuple(
            key for key in self._state.fleet.of_cluster(cluster) if self._state.fleet.machines[key].state != CREATING
        )

    def render(self, cluster: str, machine: str, draining: bool) -> NodeState:
        """The machine as the cluster sees it now; `draining` shows it as it was while it drained."""
        record = self._state.fleet.machines.get(machine)
        if record is None:
            return NodeState(machine, cluster, SPECULATIVE, self.name(cluster, machine), "", "", None)
        name = self.name(cluster, machine)
        state = record.state
        mine = record.cluster == cluster and state != CREATING
        if draining:
            state = DRAINING
        elif not mine and record.cluster:
            # Another cluster's by now: to this one it is merely drained.
            state = SPECULATIVE if state in _HOSTLESS else IDLE
        error = record.error if state == FAILED else ""
        group = record.stamp.group if mine and state in _RUNNING else ""
        return NodeState(machine, cluster, state, name, record.host, error, record.shape, group)
