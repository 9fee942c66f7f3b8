"""Moves machines through their states: record, binding, the frames owed for it, and a line in its story, all at once.

Callers say why; nothing here decides whether it should happen. Records are made where machines appear (`reconcile`),
and who owns them is written by `ownership`; everything else about a record changes here.
"""

from __future__ import annotations

from bigfleet.engine.batches import Shape, Stamp
from bigfleet.model.machine import BOUND, CALL_DURING, OBSERVED_EDGES, MachineState
from bigfleet.shard.core.clusters.nodes import Nodes
from bigfleet.shard.core.state.enum_aliases import CREATING, DRAINING, IDLE, SPECULATIVE
from bigfleet.shard.core.state.fleet import NO_STAMP, Record
from bigfleet.shard.core.state.state import ShardState

# States in which the record may name a cluster at all; Creating names the one it is bought for.
_MAY_BELONG = BOUND | {MachineState.CREATING, MachineState.FAILED}
# Pods may run there: a machine that goes from here without having been drained takes them along.
_HAS_NODE = frozenset({MachineState.CONFIGURED, MachineState.DRAINING})


class Lifecycle:
    """Moves machines."""

    def __init__(self, state: ShardState, nodes: Nodes) -> None:
        self._state = state
        self._nodes = nodes

    def move(
        self,
        record: Record,
        to: MachineState,
        why: str,
        *,
        cluster: str | None = None,
        stamp: Stamp | None = None,
        host: str | None = None,
        error: str = "",
        wake: bool = True,
        seen: bool = False,
    ) -> None:
        """Change the state. Leaving a cluster clears the binding; `wake` asks for a cycle soon.

        What we do must be an edge of the model; what was `seen` at the provider is so, however it got there.
        """
        before, owner = record.state, record.cluster
        if not seen and before != to and (before, to) not in OBSERVED_EDGES:
            raise AssertionError(f"machine {record.key} cannot go from {before.label} to {to.label}")
        if to not in _MAY_BELONG:
            cluster, stamp = "", NO_STAMP
        self._state.fleet.change(record, state=to, cluster=cluster, stamp=stamp, host=host, error=error)
        if before != to:
            report = self._nodes.report_on(record.key) if to == DRAINING else None
            empty = report is not None and report.empty
            self._state.deadlines.moved(record.key, to, self._state.now, empty=empty)
        self._state.stories.tell(record.key, self._state.now, why, before, to)
        left = to not in BOUND or record.cluster != owner
        if seen and owner and left and before in _HAS_NODE and (before, to) != (DRAINING, IDLE):
            self._nodes.lost(owner, record.key)
        if to != CREATING:
            self._notify(record, owner, before)
        if wake:
            self._state.ask_for_cycle()

    def refresh(self, record: Record, shape: Shape, host: str | None) -> None:
        """Take over what the provider says about the machine besides its state."""
        changed = record.shape is not shape and record.shape is not self._state.fleet.intern_shape(shape)
        if not changed and (host is None or host == record.host):
            return
        self._state.fleet.change(record, shape=shape if changed else None, host=host)
        if record.cluster:
            self._notify(record, record.cluster, record.state)
        if changed:
            self._state.ask_for_cycle()

    def appeared(self, record: Record) -> None:
        """A machine seen for the first time, or again."""
        if record.key in self._state.stories:
            bound = f" of {record.cluster}" if record.cluster else ""
            self.tell(record, f"gone → {record.state.label}{bound}: seen again at the provider")
        if record.state in CALL_DURING:
            self._state.deadlines.moved(record.key, record.state, self._state.now)
        if record.cluster:
            self._nodes.changed(record.cluster, record.key, record.state)
        self._state.ask_for_cycle()

    def vanish(self, record: Record, why: str) -> None:
        """The provider has it no more."""
        owner = record.cluster
        self._state.fleet.remove(record)
        self._state.answered.pop(record.key, None)
        self._state.not_before.pop(record.key, None)
        self._state.deadlines.forget(record.key)
        self.tell(record, f"{record.state.label} → gone: {why}")
        if owner:
            if record.state in _HAS_NODE:
                self._nodes.lost(owner, record.key)
            self._nodes.changed(owner, record.key, SPECULATIVE)
        self._nodes.forget(record.key)
        self._state.ask_for_cycle()

    def tell(self, record: Record, text: str) -> None:
        self._state.stories.tell(record.key, self._state.now, text)

    def _notify(self, record: Record, owner: str, before: MachineState) -> None:
        if owner and owner != record.cluster and before != CREATING:
            self._nodes.changed(owner, record.key, record.state)
        if record.cluster and record.state != CREATING:
            self._nodes.changed(record.cluster, record.key, record.state)
