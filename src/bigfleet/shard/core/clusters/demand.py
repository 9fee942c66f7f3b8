"""Demand: which roll-ups reach the engine, what became of them, and what the accepted ones say.

A roll-up belongs to the cluster of its session; anything else is refused. Between two steps only the latest of a
cluster counts. An operator hears of its roll-up once the engine has decided about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from bigfleet.engine.batches import NONE, DemandBatch, Rollup
from bigfleet.engine.results import NeedKey, RefusedRows, RollupOutcome
from bigfleet.model.resources import Resources
from bigfleet.model.session import AckOutcome
from bigfleet.shard.contract.events import JournalState, RollupReceived
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.clusters.parts import Part, Parts
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.clusters.quarantine import Quarantine
from bigfleet.shard.core.clusters.refused_rows import RefusedDemand
from bigfleet.shard.core.state.sessions import Session
from bigfleet.shard.core.state.state import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigfleet.model.profile import Profile

REJECTED = "bigfleet_shard_rollups_rejected_total"
PROVISIONING_LATENCY = "bigfleet_shard_provisioning_latency_seconds"
# What one step takes over at most; the next one follows at once. Of a fleet that changes as a whole, or of one cluster
# that sends very much, nobody waits for more than a short step.
ROLLUPS_PER_STEP = 250
LARGE_ROWS = 20_000
HELD_REASON = "it would withdraw nearly all demand; applied once confirmed"


class Submitted(Struct, frozen=True):
    """A roll-up on its way to the engine, and the session that waits to hear of it."""

    rollup: Rollup
    timestamp: int
    session: int


class ClusterDemand:
    """The accepted demand of one cluster."""

    __slots__ = ("_aggregates", "_parts", "first_seen", "profiles", "rollup")

    def __init__(self) -> None:
        self.rollup: Rollup | None = None
        self.profiles: dict[str, Profile] = {}
        # Fingerprint → instant it was first asked for; 0 once a machine came up for it.
        self.first_seen: dict[str, int] = {}
        self._aggregates: dict[tuple[str, str, str], Resources] | None = None
        self._parts: Parts | None = None

    def accept(self, rollup: Rollup, now: int, *, same_profiles: bool) -> None:
        self.rollup = rollup
        self._aggregates = self._parts = None
        if same_profiles:
            return
        # A gang one machine can hold is served under its folded profile.
        folded = [profile.folded() for profile in rollup.profiles if profile.same is not None]
        self.profiles = {profile.fingerprint: profile for profile in (*folded, *rollup.profiles)}
        self.first_seen = {name: self.first_seen.get(name, now) for name in self.profiles}

    def aggregate(self, key: NeedKey) -> Resources | None:
        """What a row asks for in total; for a gang, all of its rows."""
        if self._aggregates is None:
            self._aggregates = _aggregates(self.rollup) if self.rollup is not None else {}
        return self._aggregates.get((key.fingerprint, key.group, key.min_unit))

    def parts(self) -> Parts | None:
        if self._parts is None and self.rollup is not None:
            self._parts = Parts(self.rollup)
        return self._parts


class Demand:
    """Roll-ups and links waiting for the next step, and the demand in force."""

    def __init__(self, state: ShardState, boot: JournalState, placement: Placement) -> None:
        self._state = state
        self._placement = placement
        self.quarantine = Quarantine(state, state.config.policy().guard, boot.rows)
        self.refused = RefusedDemand(state)
        self.clusters: dict[str, ClusterDemand] = {}
        self.buckets: Counter[int] = Counter()
        self._waiting: dict[str, Submitted] = {}
        self._running: dict[str, Submitted] = {}
        # Large ones that small ones were taken before: once.
        self._passed: set[str] = set()
        self._held: dict[str, Rollup] = {}
        self._links: dict[str, bool] = {}
        self._bound_here: frozenset[str] = frozenset()
        self._bound_elsewhere: frozenset[str] = frozenset()
        # Clusters without a stream → since when; and those the engine has still to forget.
        self._away: dict[str, int] = {}
        self._forgotten: tuple[str, ...] = ()
        self._left_over = False

    def receive(self, event: RollupReceived) -> None:
        session = self._state.sessions.get(event.session)
        if session is None:
            return
        if event.cluster != session.cluster:
            accepted = f"the session's {session.cluster!r} is accepted"
            self._refuse(session, event.timestamp, f"cluster_id is {event.cluster!r}; {accepted}")
        elif event.error:
            self._refuse(session, event.timestamp, event.error)
        elif event.unchanged:
            self._repeat(session, event.timestamp, event.mirror_version)
        elif event.rollup is not None:
            self._submit(session, Submitted(event.rollup, event.timestamp, session.id))

    def connect(self, session: Session) -> None:
        if self._placement.speaks_of_it(session):
            # Rows of the stream before would pass for rows of this one.
            self._waiting.pop(session.cluster, None)
        self._away.pop(session.cluster, None)
        self._link(session.cluster)

    def disconnect(self, cluster: str) -> None:
        self._away[cluster] = self._state.now
        self._link(cluster)

    def away_since(self, cluster: str) -> int:
        """When the last stream of the cluster ended; 0 while it has one, or never had one here."""
        return self._away.get(cluster, 0) if self._state.sessions.of(cluster) is None else 0

    def bind(self, here: frozenset[str], elsewhere: frozenset[str]) -> None:
        """The coordinator says which clusters are this shard's, and which are not."""
        self._bound_here, self._bound_elsewhere = here, elsewhere
        for session in self._state.sessions:
            self._link(session.cluster)

    @property
    def served_elsewhere(self) -> set[str]:
        """Clusters of other shards that spoke here. The coordinator is told of them for as long as they are
        remembered: it answers where they belong, which whoever comes back to us has to hear."""
        return {name for name in self._state.sessions.seen if name in self._bound_elsewhere}

    def may_acquire(self, cluster: str) -> bool:
        """Connected, and this shard's; where nobody said whose it is, not claimed by another."""
        session = self._state.sessions.of(cluster)
        if session is None or cluster in self._bound_elsewhere:
            return False
        mine = session.bound_shard in ("", self._state.config.id) or not self._state.config.with_coordinator
        return cluster in self._bound_here or mine

    @property
    def has_changes(self) -> bool:
        return bool(self._waiting or self._links or self._forgotten or self._placement.has_changes)

    def batch(self) -> DemandBatch | None:
        """Everything that waits, for one step; `settle` must follow."""
        if not self.has_changes:
            return None
        self._let_go()
        self._running = self._next()
        links = {cluster: self.may_acquire(cluster) for cluster in (*self._running, *self._links)}
        forgotten, self._forgotten, self._links = self._forgotten, (), {}
        for cluster, item in self._running.items():
            if item.rollup.counted is not None:
                self._placement.reports.rows_as_of(cluster, item.rollup.counted.mirror_version)
        return DemandBatch(
            [item.rollup for item in self._running.values()],
            tuple(sorted(links.items())),
            forgotten,
            self._placement.take_streams(),
            self._placement.take_confirmed(),
            self._placement.reports.take(),
        )

    def _let_go(self) -> None:
        """The demand of a cluster that went to its own shard is not wanted here any more, and not missing either."""
        state = self._state
        departed = (name for name in self._bound_elsewhere & self.clusters.keys() if state.sessions.of(name) is None)
        gone = sorted(name for name in departed if not state.fleet.serves(name))
        for name in gone:
            self._links.pop(name, None)
            self._drop(name)
        self._forgotten = (*self._forgotten, *gone)

    def knows_nodes(self, cluster: str) -> bool:
        """Whether the step of the last batch knows what the cluster says of its nodes."""
        running = self._running.get(cluster)
        return self._placement.reports_placement(cluster) or (
            running is not None and running.rollup.counted is not None
        )

    @property
    def backlog(self) -> bool:
        """Whether roll-ups were left over by the last step: the next one does not have to wait for its time."""
        return self._left_over and bool(self._waiting)

    def _next(self) -> dict[str, Submitted]:
        """Those of the next step, the longest waiting first; a large one lets the others go first, once."""
        waiting = self._waiting
        large = {name for name, item in waiting.items() if len(item.rollup) >= LARGE_ROWS}
        if len(waiting) <= ROLLUPS_PER_STEP and (not large or len(waiting) == len(large) == 1):
            self._waiting, self._left_over = {}, False
            self._passed -= large
            return waiting
        first = [name for name in waiting if name in large and name in self._passed][:1]
        if not first:
            first = [name for name in waiting if name not in large][:ROLLUPS_PER_STEP] or list(waiting)[:1]
        self._passed = (self._passed | large) - set(first)
        self._waiting = {name: item for name, item in waiting.items() if name not in set(first)}
        self._left_over = bool(self._waiting)
        if self._left_over:
            self._state.ask_for_cycle()
        return {name: waiting[name] for name in first}

    def settle(self, outcomes: Mapping[str, RollupOutcome], refused: Mapping[str, RefusedRows]) -> None:
        """The step is done: demand in force changes and the operators are told."""
        for cluster, item in self._running.items():
            self.refused.settle(item.rollup, refused.get(cluster))
            if outcomes.get(cluster, RollupOutcome.APPLIED) == RollupOutcome.HELD:
                self._held[cluster] = item.rollup
                self.quarantine.note_held(item.rollup)
                self._answer(item, AckOutcome.HELD)
                continue
            self._held.pop(cluster, None)
            self.quarantine.note_applied(item.rollup)
            self._accept(item.rollup)
            self._answer(item, AckOutcome.APPLIED)
        self._running = {}
        self.quarantine.keep_baselines()

    def forget_departed(self) -> None:
        """Forget clusters that have been away for long and have no machine left, or they would pile up over the years.

        Called now and then, just before a batch is made.
        """
        state = self._state
        names = {*self.clusters, *self.quarantine.known, *state.sessions.seen}
        away = {name: self._away.get(name, state.now) for name in sorted(names) if state.sessions.of(name) is None}
        gone = [
            name
            for name, since in away.items()
            if state.now - since >= state.config.forget_cluster_after
            and not state.fleet.bound.get(name)
            and not state.operations.of_cluster(name)
            and name not in self._links
        ]
        for name in gone:
            del away[name]
            self._leave(name)
            state.turn.log(Level.INFO, "cluster forgotten: it has been away for long and has no machines", cluster=name)
        self._away = away

    def forget(self, cluster: str) -> None:
        """A cluster without a stream was deleted for good: what it wants is not wanted any more, and not missing."""
        # A step that knows its roll-up may be running: what it says of it counts for nothing.
        for kept in (self._links, self._running, self._away):
            kept.pop(cluster, None)
        self._leave(cluster)
        self._state.ask_for_cycle()

    def _leave(self, name: str) -> None:
        self._drop(name)
        self.quarantine.forget(name)
        self._state.sessions.forget(name)
        self._forgotten = (*self._forgotten, name)

    def _drop(self, name: str) -> None:
        known = self.clusters.pop(name, None)
        if known is not None and known.rollup is not None:
            self._count_rows(known.rollup, -1)
        self._held.pop(name, None)
        self._waiting.pop(name, None)
        self.refused.forget(name)
        self._placement.forget(name)

    def profile(self, cluster: str, fingerprint: str) -> Profile | None:
        known = self.clusters.get(cluster)
        return None if known is None else known.profiles.get(fingerprint)

    def overhead(self, cluster: str) -> Resources:
        """What every node of the cluster loses to its own daemons."""
        known = self.clusters.get(cluster)
        return Resources.ZERO if known is None or known.rollup is None else known.rollup.overhead

    def parts(self, key: NeedKey) -> Sequence[Part]:
        """The rows of a need as its cluster told them: one, or those of a gang."""
        parts = self._parts(key.cluster)
        return () if parts is None else parts.of(key)

    def stranded(self, cluster: str) -> Iterable[tuple[NeedKey, Profile, Resources]]:
        """Rows of single units of a cluster some of which have no room: key, profile and what one unit takes."""
        parts = self._parts(cluster)
        return () if parts is None else parts.stranded()

    def _parts(self, cluster: str) -> Parts | None:
        known = self.clusters.get(cluster)
        return None if known is None else known.parts()

    def exclusive(self, key: NeedKey) -> list[str]:
        """Tokens of a need: no two units with the same one share a node."""
        known = self.clusters.get(key.cluster)
        counted = None if known is None or known.rollup is None else known.rollup.counted
        if counted is None or not counted.exclusive:
            return []
        return sorted({token for part in self.parts(key) for token in part.exclusive})

    def any_profile(self, fingerprint: str, cluster: str = "") -> Profile | None:
        """The profile of this fingerprint, whoever asks for it."""
        found = self.profile(cluster, fingerprint)
        if found is not None or cluster:
            return found
        return next((p for each in self.clusters.values() if (p := each.profiles.get(fingerprint)) is not None), None)

    def came_up(self, cluster: str, fingerprint: str) -> None:
        """A machine is Configured for this need: the first time, tell how long that took."""
        known = self.clusters.get(cluster)
        since = 0 if known is None else known.first_seen.get(fingerprint, 0)
        if known is not None and since:
            known.first_seen[fingerprint] = 0
            self._state.turn.observe(PROVISIONING_LATENCY, self._state.now - since)

    def _submit(self, session: Session, item: Submitted) -> None:
        if not self.quarantine.admits(item.rollup):
            self._held[session.cluster] = item.rollup
            self._answer(item, AckOutcome.HELD)
            return
        self._waiting[session.cluster] = item
        self._state.ask_for_cycle()

    def _repeat(self, session: Session, timestamp: int, version: int) -> None:
        cluster = session.cluster
        held, waiting, running = self._held.get(cluster), self._waiting.get(cluster), self._running.get(cluster)
        if waiting is not None:
            rollup = _as_of(waiting.rollup, version)
            self._waiting[cluster] = replace(waiting, rollup=rollup, timestamp=timestamp, session=session.id)
        elif running is not None:
            self._running[cluster] = replace(running, timestamp=timestamp, session=session.id)
        elif held is not None:
            # Being confirmed is counted in reports, so the same one has to be judged again.
            self._submit(session, Submitted(_as_of(held, version), timestamp, session.id))
        else:
            self._placement.repeated(cluster, version)
            self._state.sessions.answer_rollup(session, timestamp, AckOutcome.APPLIED, self.refused.reason(cluster))

    def _refuse(self, session: Session, timestamp: int, why: str) -> None:
        self._state.turn.count(REJECTED, session.cluster)
        self._state.turn.log(
            Level.ERROR,
            "rollup rejected at ingest validation; the last good demand stays",
            cluster=session.cluster,
            err=why,
        )
        self._state.sessions.answer_rollup(session, timestamp, AckOutcome.REJECTED, why)

    def _accept(self, rollup: Rollup) -> None:
        known = self.clusters.setdefault(rollup.cluster, ClusterDemand())
        before = known.rollup
        # Most changes are of amounts; then nothing is counted anew.
        same = before is not None and _same_profiles(before, rollup)
        if not same:
            if before is not None:
                self._count_rows(before, -1)
            self._count_rows(rollup, 1)
        known.accept(rollup, self._state.now, same_profiles=same)
        self._placement.applied(rollup)

    def _count_rows(self, rollup: Rollup, sign: int) -> None:
        for index, count in Counter(rollup.profile.tolist()).items():
            self.buckets[rollup.profiles[index].interruption_bucket] += sign * count

    def _answer(self, item: Submitted, outcome: AckOutcome) -> None:
        session = self._state.sessions.get(item.session)
        if session is not None:
            reasons = [HELD_REASON] if outcome == AckOutcome.HELD else []
            reasons += [left_out] if (left_out := self.refused.reason(item.rollup.cluster)) else []
            self._state.sessions.answer_rollup(session, item.timestamp, outcome, "; ".join(reasons))

    def _link(self, cluster: str) -> None:
        self._links[cluster] = True
        self._state.ask_for_cycle()


def _as_of(rollup: Rollup, version: int) -> Rollup:
    """The same rows, as of a later state of the cluster's mirror."""
    counted = rollup.counted
    if counted is None or version <= counted.mirror_version:
        return rollup
    return replace(rollup, counted=replace(counted, mirror_version=version))


def _same_profiles(one: Rollup, other: Rollup) -> bool:
    """Whether both have the same profiles in the same rows."""
    return one.profiles == other.profiles and one.profile.tobytes() == other.profile.tobytes()


def _aggregates(rollup: Rollup) -> dict[tuple[str, str, str], Resources]:
    found: dict[tuple[str, str, str], Resources] = {}
    for row in range(len(rollup)):
        profile = rollup.profiles[rollup.profile[row]]
        group = "" if rollup.group[row] == NONE else rollup.groups[rollup.group[row]]
        amounts = dict(zip(rollup.resources, rollup.aggregate[row].tolist(), strict=True))
        unit = dict(zip(rollup.resources, rollup.min_unit[row].tolist(), strict=True))
        total = Resources({name: amount for name, amount in amounts.items() if amount > 0})
        keys = [Resources({name: amount for name, amount in unit.items() if amount > 0}).canonical]
        if profile.same is not None:
            keys.append("")
        for key in keys:
            name = (profile.fingerprint, group, key)
            found[name] = found[name] + total if name in found else total
    return found
