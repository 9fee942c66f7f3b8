"""Node reports on their way to the engine: the last word of each cluster on each of its nodes, as columns.

What the shard has told a cluster to close or open again is laid over its reports until one agrees, or it would be
decided twice; so is a drain that was taken back, whose room no roll-up knows of yet. A report says nothing once its
machine is another's, or when a new stream begins. Reports wake no cycle, unless a node became empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bigfleet.engine.batches import Ids
from bigfleet.engine.placement import Load, NodeBatch
from bigfleet.engine.policy import SECOND
from bigfleet.model.machine import MachineState
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.state.enum_aliases import CONFIGURED, CONFIGURING, DRAINING, FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bigfleet.shard.contract.events import NodeReported
    from bigfleet.shard.core.state.state import ShardState

REJECTED = "bigfleet_shard_machines_rejected_total"
# So long the shard's own word counts for more than a report that does not know of it.
LAID_FOR = 60 * SECOND
# No roll-up is as new: a node so reported is coming until its cluster reports it itself.
UNSEEN = 2**62
_WITH_NODE = frozenset({CONFIGURING, CONFIGURED, DRAINING})


class Laid(Struct, frozen=True):
    """What the shard says of a node meanwhile: closed (since) or open, until when."""

    closing_since: int
    until: int


class NodeReports:
    """Reports in force, and those the engine has not heard of. `reopened(machine)`: a cluster opened a node itself."""

    def __init__(self, state: ShardState, reopened: Callable[[str], None]) -> None:
        self._state = state
        self._reopened = reopened
        self._last: dict[str, NodeReported] = {}
        self._of: dict[str, dict[str, None]] = {}
        self._laid: dict[str, Laid] = {}
        # Machines by cluster whose report the engine has still to hear.
        self._waiting: dict[str, dict[str, None]] = {}

    def reported(self, cluster: str, event: NodeReported) -> None:
        """One of the cluster's own machines, by a stream that reports placement."""
        machine = event.machine
        if event.error:
            event = self._refused(cluster, event)
        before = self._last.get(machine)
        self._last[machine] = event
        self._of.setdefault(cluster, {})[machine] = None
        laid = self._laid.get(machine)
        if laid is not None and (event.closing_since > 0) == (laid.closing_since > 0):
            del self._laid[machine]
        self._owe(cluster, machine)
        if before is not None and before.closing_since and not event.closing_since:
            self._reopened(machine)
        if event.empty and not (before is not None and before.empty):
            self._state.ask_for_cycle()

    def lay(self, machine: str, *, closing: bool) -> None:
        """The shard closes the node, or opens it: so it is, until its cluster says the same."""
        record = self._state.fleet.machines.get(machine)
        if record is None or machine not in self._last:
            return
        now = self._state.now
        self._laid[machine] = Laid(now if closing else 0, now + LAID_FOR)
        self._owe(record.cluster, machine)

    def changed(self, cluster: str, machine: str, to: MachineState) -> None:
        """The machine is or was this cluster's and has just changed."""
        if machine not in self._last:
            return
        record = self._state.fleet.machines.get(machine)
        if record is None or record.cluster != cluster or (to not in _WITH_NODE and to != FAILED):
            if machine in self._of.get(cluster, ()):
                self._forget(cluster, machine)
        elif to in _WITH_NODE:
            # The engine forgets a report while the machine has no node, and what it was seen as when it drains.
            self._owe(cluster, machine)

    def stream_changed(self, cluster: str) -> None:
        """A stream began or ended: everything has to be told anew."""
        for machine in list(self._of.get(cluster, ())):
            self._forget(cluster, machine)

    def on(self, machine: str) -> NodeReported | None:
        """What counts of the machine at the moment."""
        event, laid = self._last.get(machine), self._laid.get(machine)
        if event is None or laid is None:
            return event
        if laid.closing_since:
            return event if event.closing_since else replace(event, closing_since=laid.closing_since)
        return replace(event, closing_since=0, mirror_version=UNSEEN)

    def of_cluster(self, cluster: str) -> list[NodeReported]:
        """Every report in force, by machine."""
        return [event for machine in sorted(self._of.get(cluster, ())) if (event := self.on(machine)) is not None]

    @property
    def clusters(self) -> Iterable[str]:
        return self._of.keys()

    @property
    def waiting(self) -> bool:
        """Whether `take` would say anything."""
        return bool(self._waiting) or any(laid.until <= self._state.now for laid in self._laid.values())

    def take(self) -> list[NodeBatch]:
        """What the engine has still to hear, by cluster; each is told once."""
        self._expire()
        waiting, self._waiting = self._waiting, {}
        return self._batches({cluster: sorted(machines) for cluster, machines in waiting.items()})

    def all(self) -> list[NodeBatch]:
        """Everything in force, for an engine that knows nothing."""
        return self._batches({cluster: sorted(machines) for cluster, machines in self._of.items()})

    def validate(self) -> None:
        known = {machine for machines in self._of.values() for machine in machines}
        assert known == self._last.keys(), "node reports and their clusters disagree"
        assert self._laid.keys() <= known, "something is laid over a report that is not there"

    def _batches(self, machines: Mapping[str, list[str]]) -> list[NodeBatch]:
        fleet, made = self._state.fleet.machines, []
        for cluster, keys in sorted(machines.items()):
            found = [
                event
                for key in keys
                if (record := fleet.get(key)) is not None
                and record.owned
                and record.cluster == cluster
                and record.state in _WITH_NODE
                and (event := self.on(key)) is not None
            ]
            if found:
                made.append(batch_of(cluster, found))
        return made

    def _owe(self, cluster: str, machine: str) -> None:
        self._waiting.setdefault(cluster, {})[machine] = None

    def _forget(self, cluster: str, machine: str) -> None:
        del self._last[machine]
        self._laid.pop(machine, None)
        members = self._of[cluster]
        del members[machine]
        if not members:
            del self._of[cluster]
        waiting = self._waiting.get(cluster)
        if waiting is not None:
            waiting.pop(machine, None)
            if not waiting:
                del self._waiting[cluster]

    def _expire(self) -> None:
        for machine in [machine for machine, laid in self._laid.items() if self._state.now >= laid.until]:
            del self._laid[machine]
            record = self._state.fleet.machines.get(machine)
            if record is not None:
                self._owe(record.cluster, machine)

    def _refused(self, cluster: str, event: NodeReported) -> NodeReported:
        """A node with amounts nobody can read is there, and is left alone."""
        self._state.turn.count(REJECTED, "node")
        self._state.turn.log(
            Level.WARNING,
            "node report cannot be read; its node is left alone",
            cluster=cluster,
            machine=event.machine,
            err=event.error,
        )
        return replace(event, empty=False, removable=False, pinned=True, used=(), allocatable=())


def batch_of(cluster: str, reports: list[NodeReported]) -> NodeBatch:
    """Reports as the engine takes them."""
    names = tuple(sorted({name for each in reports for name, _ in (*each.used, *each.allocatable)}))
    places = {name: place for place, name in enumerate(names)}
    used = np.zeros((len(reports), len(names)), np.int64)
    allocatable = np.zeros((len(reports), len(names)), np.int64)
    loads: dict[Load, int] = {}
    load = []
    for row, each in enumerate(reports):
        for name, amount in each.used:
            used[row, places[name]] = amount
        for name, amount in each.allocatable:
            allocatable[row, places[name]] = amount
        load.append(loads.setdefault(Load(each.profiles, each.groups, each.exclusive), len(loads)))
    return NodeBatch(
        cluster=cluster,
        ids=Ids.of([each.machine for each in reports]),
        resources=names,
        ready=np.array([each.ready for each in reports], np.bool_),
        empty=np.array([each.empty for each in reports], np.bool_),
        removable=np.array([each.removable for each in reports], np.bool_),
        pinned=np.array([each.pinned for each in reports], np.bool_),
        max_pod_priority=np.array([each.max_pod_priority for each in reports], np.int32),
        used=used,
        allocatable=allocatable,
        reclamation_dollars=np.array([each.reclamation_dollars for each in reports], np.float64),
        interruption_dollars=np.array([each.interruption_dollars for each in reports], np.float64),
        closing_since=np.array([each.closing_since for each in reports], np.int64),
        mirror_version=np.array([each.mirror_version for each in reports], np.int64),
        load=np.array(load, np.int32),
        loads=tuple(loads) or (Load(),),
    )
