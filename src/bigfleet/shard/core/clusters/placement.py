"""Clusters that report placement: what they said besides demand, and what the shard keeps for the engine because of it.

One door for the parts that hear of it: new streams, roll-ups in force, roll-ups repeated, node reports. Everything the
engine is given on top of machines and rows comes from here, but for moves (`actions/moves.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.engine.placement import RestKind
from bigfleet.engine.policy import SECOND
from bigfleet.model.names import PLACEMENT
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.clusters.backoffs import Backoffs
from bigfleet.shard.core.clusters.evictions import Evictions
from bigfleet.shard.core.clusters.node_reports import NodeReports
from bigfleet.shard.core.clusters.spared import Spared
from bigfleet.shard.core.clusters.steady import Steady

if TYPE_CHECKING:
    from bigfleet.engine.batches import Rollup
    from bigfleet.shard.contract.events import JournalState, NodeReported
    from bigfleet.shard.core.state.sessions import Session
    from bigfleet.shard.core.state.state import ShardState


class Placement:
    """Everything about reporting clusters that is no row of demand."""

    def __init__(self, state: ShardState, boot: JournalState) -> None:
        self._state = state
        self.evictions = Evictions(state, boot.rows)
        self.steady = Steady(state, boot.rows)
        self.spared = Spared(state, self.steady, boot.rows)
        self.backoffs = Backoffs(state)
        self.reports = NodeReports(state, self.reopened)
        # Counted roll-ups in force.
        self._in_force: dict[str, Rollup] = {}
        # Clusters whose demand in force is told as sums.
        self._in_sums: set[str] = set()
        self._streams: dict[str, None] = {}
        self._confirmed: dict[str, int] = {}

    def speaks_of_it(self, session: Session) -> bool:
        """Whether what this stream says of its nodes, and in units, counts."""
        return self._state.config.placement and session.can(PLACEMENT)

    def reports_placement(self, cluster: str) -> bool:
        """Whether the demand in force is in units."""
        return cluster in self._in_force

    def stream_changed(self, cluster: str, session: Session | None = None) -> None:
        """A stream began (`session`) or ended."""
        self.reports.stream_changed(cluster)
        self._confirmed.pop(cluster, None)
        if session is not None and (self.speaks_of_it(session) or cluster in self._in_force):
            self._streams[cluster] = None

    def applied(self, rollup: Rollup) -> None:
        """The roll-up is in force."""
        cluster = rollup.cluster
        before = self._in_force.get(cluster)
        if rollup.counted is None:
            if before is not None:
                self._note_mode(cluster, "demand is told as sums from now on")
                self.forget(cluster)
            self._in_sums.add(cluster)
            return
        if cluster in self._in_sums:
            self._in_sums.discard(cluster)
            self._note_mode(cluster, "the cluster says what has no room from now on")
        self._in_force[cluster] = rollup
        self._confirmed.pop(cluster, None)
        self.backoffs.applied(rollup, rollup.counted.mirror_version)
        self.steady.applied(rollup)

    def repeated(self, cluster: str, version: int) -> None:
        """The roll-up in force was sent again, as of this version."""
        rollup = self._in_force.get(cluster)
        if rollup is None:
            return
        self._confirmed[cluster] = max(version, self._confirmed.get(cluster, 0))
        self.reports.rows_as_of(cluster, version)
        self.backoffs.applied(rollup, version)

    def reported(self, session: Session, event: NodeReported) -> None:
        """A node of the session's own cluster."""
        if self.speaks_of_it(session):
            self.backoffs.reported(session.cluster, event, self._in_force.get(session.cluster))
            before = self.reports.on(event.machine)
            if before is not None and event.matured > before.matured:
                running = self._running(session.cluster)
                self.evictions.earn(session.cluster, event.matured - before.matured, running)
            self.reports.reported(session.cluster, event)

    def _running(self, cluster: str) -> int:
        rollup = self._in_force.get(cluster)
        return 0 if rollup is None or rollup.counted is None else int(rollup.counted.running.sum())

    def reopened(self, machine: str) -> None:
        """A closing node takes pods again, whoever decided so."""
        self.spared.spare(machine, RestKind.CLOSE, self._state.config.reopened_rest)
        self._state.stories.tell(machine, self._state.now, "open to new pods again: it is not closed for a while")

    @property
    def has_changes(self) -> bool:
        return bool(self._streams or self._confirmed or self.reports.waiting)

    def take_streams(self) -> tuple[str, ...]:
        streams, self._streams = tuple(sorted(self._streams)), {}
        return streams

    def take_confirmed(self) -> tuple[tuple[str, int], ...]:
        confirmed, self._confirmed = tuple(sorted(self._confirmed.items())), {}
        return confirmed

    def forget(self, cluster: str) -> None:
        """The cluster left for good, or does not report any more."""
        self._in_force.pop(cluster, None)
        self._in_sums.discard(cluster)
        self._confirmed.pop(cluster, None)
        self.evictions.forget(cluster)
        self.steady.forget(cluster)
        self.backoffs.forget(cluster)

    def prune(self) -> None:
        self.spared.prune()
        self.backoffs.prune()

    def _note_mode(self, cluster: str, what: str) -> None:
        hold = self._state.config.mode_hold // SECOND
        self._state.turn.log(Level.INFO, f"{what}; nothing is reclaimed or closed for {hold} s", cluster=cluster)
