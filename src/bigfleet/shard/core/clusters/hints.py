"""Capacity hints: what a cluster could get for each of its profiles, told when it changed and not too often.

The content comes from the engine. A hint counts as told only when it was sent; a profile nobody asks for any more
gets one last hint that says nothing is available.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.engine import results
from bigfleet.engine.results import Confidence
from bigfleet.shard.contract.frames import AvailableCapacity
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.state.sessions import Session
from bigfleet.shard.core.state.state import ShardState

NOTHING = (0, Confidence.NONE, 0.0)
# Profiles looked at in one step, of clusters that have waited longest first: all of a large fleet would hold it up.
PROFILES_PER_STEP = 1000
# A cluster with more profiles than this hears no hints: nobody reads so many, and each costs every other cluster time.
MOST_PROFILES = 10_000
Content = tuple[int, Confidence, float]


class Hints:
    """The last content per cluster and fingerprint, and who has still to hear of it."""

    def __init__(self, state: ShardState, demand: Demand) -> None:
        self._state = state
        self._demand = demand
        self._current: dict[str, dict[str, Content]] = {}
        self._asked: tuple[str, ...] = ()
        # No session's turn comes before this instant; a new session is always due.
        self._quiet_until = 0

    def connected(self) -> None:
        self._quiet_until = 0

    def ask(self) -> tuple[str, ...]:
        """Clusters whose hints the next step should work out."""
        now, interval = self._state.now, self._state.config.available_capacity_interval
        self._asked = ()
        if now >= self._quiet_until:
            at = {
                session.cluster: session.hints_at + interval if session.hints_at else 0
                for session in self._state.sessions
                if self._profiles(session.cluster) <= MOST_PROFILES
            }
            due = sorted((cluster for cluster, since in at.items() if now >= since), key=at.__getitem__)
            self._asked = self._first(due)
            if len(due) == len(self._asked):
                self._quiet_until = min((since for since in at.values() if since > now), default=now + interval)
        return self._asked

    def _first(self, due: list[str]) -> tuple[str, ...]:
        """As many of them as one step may look at."""
        taken, profiles = 0, 0
        while taken < len(due) and profiles < PROFILES_PER_STEP:
            profiles += self._profiles(due[taken])
            taken += 1
        return tuple(due[:taken])

    def _profiles(self, cluster: str) -> int:
        known = self._demand.clusters.get(cluster)
        return 0 if known is None else len(known.profiles)

    def update(self, rows: Iterable[results.AvailableCapacity]) -> None:
        """After a step: owe a hint to every session whose turn it is, where the content changed."""
        due = {cluster: session for cluster in self._asked if (session := self._state.sessions.of(cluster)) is not None}
        if not due:
            return
        fresh: dict[str, dict[str, Content]] = {cluster: {} for cluster in due}
        for row in rows:
            mine = fresh.get(row.cluster)
            if mine is not None:
                mine[row.fingerprint] = (row.count, row.confidence, row.cost_per_hour)
        for cluster, session in due.items():
            session.hints_at = self._state.now
            self._current[cluster] = fresh[cluster]
            changed = [name for name, content in fresh[cluster].items() if session.hints.get(name) != content]
            ended = [name for name, told in session.hints.items() if name not in fresh[cluster] and told != NOTHING]
            for name in (*changed, *ended):
                session.outbox.hint(name)
            self._state.sessions.wake(session)

    def render(self, cluster: str, fingerprint: str) -> AvailableCapacity | None:
        """The hint as it is now; None when there is nothing to say."""
        session = self._state.sessions.of(cluster)
        content = self._current.get(cluster, {}).get(fingerprint, NOTHING)
        if session is None or session.hints.get(fingerprint) == content:
            return None
        profile = self._demand.profile(cluster, fingerprint)
        requirements = () if profile is None else profile.requirements
        return AvailableCapacity(fingerprint, requirements, *content)

    def sent(self, session: Session, hint: AvailableCapacity) -> None:
        content = (hint.count, hint.confidence, hint.cost_per_hour)
        if content == NOTHING and hint.fingerprint not in self._current.get(session.cluster, {}):
            session.hints.pop(hint.fingerprint, None)
        else:
            session.hints[hint.fingerprint] = content

    def forget(self, cluster: str) -> None:
        self._current.pop(cluster, None)
