"""Node reports on their way to the engine: the last word of each cluster on each of its nodes, as columns.

A report waits until a roll-up of its state of the mirror, or a later one, goes with it or has gone before: pods that
were bound meanwhile would take room on their node and still be without room in the rows. What the shard has told a
cluster to close or open again is laid over its reports until one agrees, or it would be decided twice; so is a drain
that was taken back, whose room no roll-up knows of yet, and a machine that waits for others of its gang. A report says
nothing once its machine is another's, or when a new stream begins. Reports wake no cycle, unless a node became empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bigfleet.engine.batches import Ids
from bigfleet.engine.placement import Load, NodeBatch
from bigfleet.engine.policy import SECOND, Placement
from bigfleet.model.machine import MachineState
from bigfleet.model.penalty import MICRO
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.clusters.gathering import Gathering
from bigfleet.shard.core.state.enum_aliases import CONFIGURED, CONFIGURING, DRAINING, FAILED

if TYPE_CHECKING:
    from bigfleet.shard.contract.events import NodeReported
    from bigfleet.shard.core.state.state import ShardState

REJECTED = "bigfleet_shard_machines_rejected_total"
# So long the shard's own word counts for more than a report that does not know of it.
LAID_FOR = 60 * SECOND
# So long a report waits for rows: rows as old as that buy nothing any more, so nothing is bought by rows that do not
# know of what the node has taken in. A cluster whose rows never catch up is believed about its nodes all the same.
ROWS_WITHIN = Placement().fresh_ns
# States of a node that are kept while rows are awaited.
_KEPT = 8
# No roll-up is as new: a node so reported is coming until its cluster reports it itself.
UNSEEN = 2**62
_WITH_NODE = frozenset({CONFIGURING, CONFIGURED, DRAINING})


class Laid(Struct, frozen=True):
    """What the shard says of a node meanwhile: closed (since) or open, until when."""

    closing_since: int
    until: int


class _Heard(Struct, frozen=True):
    """A report the engine has not heard, and when it came."""

    event: NodeReported
    at: int


class NodeReports:
    """Reports in force, and those the engine has not heard of. `reopened(machine)`: a cluster opened a node itself."""

    def __init__(self, state: ShardState, reopened: Callable[[str], None]) -> None:
        self._state = state
        self._reopened = reopened
        self._last: dict[str, NodeReported] = {}
        self._of: dict[str, dict[str, None]] = {}
        self._laid: dict[str, Laid] = {}
        self._gathering = Gathering(state, self._last)
        # By cluster and machine: reports the engine has still to hear, oldest first.
        self._waiting: dict[str, dict[str, list[_Heard]]] = {}
        # Which state of its mirror a cluster's rows are of.
        self._rows: dict[str, int] = {}
        # What the engine heard last of each, and those it has to be told of once more.
        self._told: dict[str, NodeReported] = {}
        self._again: set[str] = set()
        # (Closing, millionths of a dollar an hour for unused room) of each node, and their sums by cluster.
        self._counted: dict[str, tuple[int, int]] = {}
        self._figures: dict[str, list[int]] = {}

    def reported(self, cluster: str, event: NodeReported) -> None:
        """One of the cluster's own machines, by a stream that reports placement."""
        machine = event.machine
        if event.error:
            event = self._refused(cluster, event)
        before = self._last.get(machine)
        self._last[machine] = event
        self._of.setdefault(cluster, {})[machine] = None
        self._count(cluster, machine, event)
        self._gathering.reported(machine, event)
        laid = self._laid.get(machine)
        if laid is not None and (event.closing_since > 0) == (laid.closing_since > 0):
            del self._laid[machine]
        heard = self._owe(cluster, machine)
        heard.append(_Heard(event, self._state.now))
        if len(heard) > _KEPT:
            del heard[1]
        if before is not None and before.closing_since and not event.closing_since:
            self._reopened(machine)
        if event.empty and not (before is not None and before.empty):
            self._state.ask_for_cycle()

    def rows_as_of(self, cluster: str, version: int) -> None:
        """The cluster's rows, as the engine has or is about to have them, are of this state of its mirror."""
        self._rows[cluster] = max(version, self._rows.get(cluster, 0))

    def lay(self, machine: str, *, closing: bool) -> None:
        """The shard closes the node, or opens it: so it is, until its cluster says the same."""
        record = self._state.fleet.machines.get(machine)
        if record is None or machine not in self._last:
            return
        now = self._state.now
        self._laid[machine] = Laid(now if closing else 0, now + LAID_FOR)
        self._repeat(record.cluster, machine)

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
            self._repeat(cluster, machine)

    def stream_changed(self, cluster: str) -> None:
        """A stream began or ended: everything has to be told anew."""
        self._rows.pop(cluster, None)
        for machine in list(self._of.get(cluster, ())):
            self._forget(cluster, machine)

    def on(self, machine: str) -> NodeReported | None:
        """What is so of the machine, as far as anybody knows."""
        event = self._last.get(machine)
        return None if event is None else self._with_laid(machine, event)

    def _with_laid(self, machine: str, event: NodeReported) -> NodeReported:
        laid = self._laid.get(machine)
        if machine in self._gathering and not event.closing_since:
            return replace(event, mirror_version=UNSEEN)
        if laid is None:
            return event
        if laid.closing_since:
            return event if event.closing_since else replace(event, closing_since=laid.closing_since)
        return replace(event, closing_since=0, mirror_version=UNSEEN)

    @property
    def closing(self) -> dict[str, int]:
        """Nodes closed to new pods, by cluster."""
        return {cluster: int(figures[0]) for cluster, figures in sorted(self._figures.items())}

    @property
    def unused_dollars(self) -> dict[str, float]:
        """By cluster, dollars an hour for what used nodes have left of the resource they have least left of."""
        return {cluster: figures[1] / MICRO for cluster, figures in sorted(self._figures.items())}

    def _count(self, cluster: str, machine: str, event: NodeReported | None) -> None:
        """The node counts as this report has it from now on; None is one that is gone."""
        sums = self._figures.setdefault(cluster, [0, 0])
        before = self._counted.pop(machine, (0, 0))
        after = (0, 0)
        if event is not None:
            after = self._counted[machine] = (int(event.closing_since > 0), round(self._unused(machine) * MICRO))
        for place in (0, 1):
            sums[place] += after[place] - before[place]

    def _unused(self, machine: str) -> float:
        record, event = self._state.fleet.machines.get(machine), self._last[machine]
        if record is None or event.empty or not event.used:
            return 0.0
        total = dict(event.allocatable) or dict(record.shape.allocatable.items())
        shares = [amount / total[name] for name, amount in event.used if total.get(name) and name != "pods"]
        return record.shape.price * (1.0 - min(1.0, max(shares, default=1.0)))

    @property
    def waiting(self) -> bool:
        """Whether `take` would say anything."""
        return bool(self._waiting) or any(laid.until <= self._state.now for laid in self._laid.values())

    def take(self) -> list[NodeBatch]:
        """What the engine can hear by now, by cluster; each is told once."""
        self._expire()
        for machine in self._gathering.changed():
            if machine in self._last:
                self._repeat(self._state.fleet.machines[machine].cluster, machine)
        waiting, self._waiting = self._waiting, {}
        found: dict[str, list[NodeReported]] = {}
        for cluster, machines in sorted(waiting.items()):
            for machine, heard in sorted(machines.items()):
                event = self._ripe(cluster, machine, heard)
                if event is not None and self._has_node(cluster, machine):
                    self._told[machine] = event
                    found.setdefault(cluster, []).append(self._with_laid(machine, event))
        return [batch_of(cluster, events) for cluster, events in found.items()]

    def all(self) -> list[NodeBatch]:
        """Everything the engine has been told that is in force, for an engine that knows nothing."""
        told: dict[str, list[NodeReported]] = {}
        for cluster, machines in sorted(self._of.items()):
            for machine in sorted(machines):
                if machine in self._told and self._has_node(cluster, machine):
                    told.setdefault(cluster, []).append(self._with_laid(machine, self._told[machine]))
        return [batch_of(cluster, events) for cluster, events in told.items()]

    def validate(self) -> None:
        known = {machine for machines in self._of.values() for machine in machines}
        assert known == self._last.keys(), "node reports and their clusters disagree"
        assert self._laid.keys() <= known, "something is laid over a report that is not there"
        for cluster, sums in self._figures.items():
            counted = [self._counted[machine] for machine in self._of[cluster]]
            assert sums == [sum(each[0] for each in counted), sum(each[1] for each in counted)], (
                "figures are out of step"
            )
        assert self._told.keys() <= known, "the engine has heard of a node that nobody reports"
        waiting = {machine for machines in self._waiting.values() for machine in machines}
        assert waiting <= known, "a report waits that is not there"

    def _ripe(self, cluster: str, machine: str, heard: list[_Heard]) -> NodeReported | None:
        """The newest report that rows have caught up with; what is newer goes on waiting."""
        rows, now = self._rows.get(cluster, 0), self._state.now
        ripe = 0
        for place, each in enumerate(heard, 1):
            if each.event.mirror_version <= rows or now - each.at > ROWS_WITHIN:
                ripe = place
        again = machine in self._again
        self._again.discard(machine)
        if ripe < len(heard):
            self._owe(cluster, machine).extend(heard[ripe:])
        if ripe:
            return heard[ripe - 1].event
        return self._told.get(machine) if again else None

    def _has_node(self, cluster: str, machine: str) -> bool:
        record = self._state.fleet.machines.get(machine)
        return record is not None and record.owned and record.cluster == cluster and record.state in _WITH_NODE

    def _repeat(self, cluster: str, machine: str) -> None:
        self._owe(cluster, machine)
        self._again.add(machine)

    def _owe(self, cluster: str, machine: str) -> list[_Heard]:
        return self._waiting.setdefault(cluster, {}).setdefault(machine, [])

    def _forget(self, cluster: str, machine: str) -> None:
        del self._last[machine]
        self._gathering.forget(machine)
        self._count(cluster, machine, None)
        self._told.pop(machine, None)
        self._again.discard(machine)
        self._laid.pop(machine, None)
        members = self._of[cluster]
        del members[machine]
        if not members:
            del self._of[cluster]
            del self._figures[cluster]
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
                self._repeat(record.cluster, machine)

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
