"""Clusters that were deleted for good: a person says so, and everything that is bound to them is let go of.

Nothing else ever takes the machines of a cluster that is away: it keeps what it has until it comes back. Being told
otherwise is journalled before anything follows, so a restart goes on. What the cluster wanted is dropped at once; its
machines are drained at their providers, nobody being there to evict, as calls and rails allow: the reclaim cap guards
against demand that vanished by mistake, and here a person has seen the number. A cluster that connects is not deleted:
what no provider was asked for stays, and it is served as any other.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import ActionKind
from bigfleet.model.penalty import MICRO
from bigfleet.shard.contract.events import Audit, ClusterForgotten, JournalState, Table
from bigfleet.shard.contract.outcomes import Level, Outcome
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.actions.moves import Moves
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.state.enum_aliases import CONFIGURED
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import FIRST_CALL, FORGOTTEN, Operation
from bigfleet.shard.core.state.state import ShardState

KIND = "Forget"


class Act(Struct, frozen=True):
    """Somebody's word that a cluster is gone, as the journal has it; `machines` and `dollars` (an hour) as of then."""

    who: str
    reason: str
    at: int
    machines: int
    dollars: float

    @property
    def told(self) -> str:
        return f"forgotten by {self.who}{f': {self.reason}' if self.reason else ''}"


class Forgetting:
    """Clusters that are being let go of. `may_act()`: what is known of the fleet may be acted on."""

    def __init__(
        self,
        state: ShardState,
        executor: Executor,
        demand: Demand,
        moves: Moves,
        boot: JournalState,
        may_act: Callable[[], bool],
    ) -> None:
        self._state = state
        self._executor = executor
        self._demand = demand
        self._moves = moves
        self._may_act = may_act
        rows = ((key, _read(text)) for (table, key), text in boot.rows.items() if table == Table.FORGET)
        self._acts = {cluster: act for cluster, act in rows if act is not None}

    def __contains__(self, cluster: str) -> bool:
        return cluster in self._acts

    def bound(self, cluster: str) -> tuple[int, float]:
        """Machines of this shard that are bound to a cluster, and what they cost an hour."""
        counts, fleet = self._state.fleet.counts, self._state.fleet
        mine = sum(1 for key in fleet.bound.get(cluster, ()) if fleet.machines[key].owned)
        return mine, counts.dollars[cluster] / MICRO

    def begin(self, event: ClusterForgotten, cycle: int) -> None:
        """A person's word. It counts for nothing while the cluster is connected, and once it has been given."""
        state, cluster = self._state, event.cluster
        if state.sessions.of(cluster) is not None or cluster in self._acts:
            return
        machines, dollars = self.bound(cluster)
        act = self._acts[cluster] = Act(event.who, event.reason, state.now, machines, dollars)
        state.turn.write(Table.FORGET, cluster, msgspec.json.encode(act).decode())
        state.turn.log(
            Level.WARNING,
            "cluster forgotten on request: its machines are let go of",
            cluster=cluster,
            who=event.who,
            reason=event.reason,
            machines=machines,
            dollars_per_hour=dollars,
        )
        detail = f"{act.told}; {machines} machines, ${dollars:.3f}/h"
        state.turn.emit(Audit(cycle, KIND, "", cluster, FORGOTTEN, 0, Outcome.SUCCESS, detail))
        self._demand.forget(cluster)
        for operation in state.operations.of_cluster(cluster):
            if operation.untouched and not operation.is_drain:
                self._executor.call_off(operation, Outcome.STALE, "its cluster was forgotten")
        for key in state.fleet.of_cluster(cluster):
            self._moves.abort(key, "its cluster was forgotten")
        self._go_on(cluster, act, cycle)

    def go_on(self, cycle: int) -> None:
        """After a step: drain what can be drained by now, and end what is over."""
        for cluster, act in list(self._acts.items()):
            self._go_on(cluster, act, cycle)

    def returned(self, cluster: str) -> None:
        """A stream of the cluster is about to be opened: it lives, and what can be kept for it is kept."""
        if self._acts.pop(cluster, None) is None:
            return
        state = self._state
        state.turn.erase(Table.FORGET, cluster)
        self._executor.drains.disregard(cluster, FORGOTTEN)
        for operation in state.operations.of_cluster(cluster):
            if operation.reason == FORGOTTEN:
                self._executor.call_off_if_unsent(operation, Outcome.CANCELLED, "its cluster came back")
        state.turn.log(
            Level.WARNING,
            "a cluster that was forgotten came back: it keeps what no provider was asked to drain",
            cluster=cluster,
            machines=self.bound(cluster)[0],
        )

    def _go_on(self, cluster: str, act: Act, cycle: int) -> None:
        state = self._state
        if not self._may_act():
            return
        if not state.fleet.serves(cluster) and not state.operations.of_cluster(cluster):
            del self._acts[cluster]
            state.turn.erase(Table.FORGET, cluster)
            state.turn.log(Level.INFO, "forgotten cluster has no machines left", cluster=cluster, machines=act.machines)
            return
        for key in () if state.halted else state.fleet.of_cluster(cluster):
            record = state.fleet.machines[key]
            if self._may_go(record):
                self._drain(record, act, cycle)

    def _may_go(self, record: Record) -> bool:
        state = self._state
        return (
            record.owned
            and record.state == CONFIGURED
            and state.operations.on(record.key) is None
            and not state.resting(record.key)
            and not self._executor.refusals.standoffs.stopped(record.provider)
        )

    def _drain(self, record: Record, act: Act, cycle: int) -> None:
        self._state.stories.tell(record.key, self._state.now, f"its cluster {record.cluster} was {act.told}")
        self._executor.begin(
            Operation(
                machine=record,
                kind=ActionKind.RECLAIM,
                call=FIRST_CALL[ActionKind.RECLAIM],
                cluster=record.cluster,
                fingerprint=record.stamp.fingerprint,
                group=record.stamp.group,
                grace_seconds=self._state.config.reclaim_grace // SECOND,
                reason=FORGOTTEN,
                cycle=cycle,
                note=act.told,
            )
        )


def _read(text: str) -> Act | None:
    """A row that cannot be read is as good as none: the machines stay, and a person has to say it again."""
    try:
        return msgspec.json.decode(text, type=Act)
    except msgspec.MsgspecError:
        return None
