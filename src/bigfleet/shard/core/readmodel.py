"""The core's second door, for questions: counts, clusters, machines, demand, as they are now. Changes nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bigfleet.engine.batches import Shape
from bigfleet.engine.placement import RestKind
from bigfleet.engine.results import Action, NeedKey, Verdict
from bigfleet.model.machine import MachineState
from bigfleet.model.penalty import MICRO
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.model.session import AckOutcome
from bigfleet.shard.contract.coordination import Ack
from bigfleet.shard.contract.events import RunStep
from bigfleet.shard.contract.frames import Acknowledgement
from bigfleet.shard.contract.shortfalls import Short
from bigfleet.shard.contract.step_result import StepResult
from bigfleet.shard.core.actions.consolidation import Consolidation
from bigfleet.shard.core.actions.emission import Emission
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.actions.forgetting import Forgetting
from bigfleet.shard.core.actions.moves import MoveRow
from bigfleet.shard.core.clusters.backoffs import Resting
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.clusters.nodes import Nodes
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.clusters.refused_rows import RefusedNeed
from bigfleet.shard.core.coordination.coordination import Coordination
from bigfleet.shard.core.coordination.ownership import Ownership
from bigfleet.shard.core.cycle import Cycle
from bigfleet.shard.core.inputs import snapshot_step
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.published import ClusterView, MachineView, ProviderHealth, Published
from bigfleet.shard.core.rails import Rails
from bigfleet.shard.core.reconcile import Reconcile
from bigfleet.shard.core.shortage_probe import Line, probe_lines
from bigfleet.shard.core.state.backoff import breakers, kind_of
from bigfleet.shard.core.state.counts import FreeKind, free_kind
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import Operation
from bigfleet.shard.core.state.state import ShardState
from bigfleet.shard.core.state.story import StoryLine


@dataclass(slots=True)
class LastStep:
    """The last decision and when it was taken."""

    cycle: int = 0
    at: int = 0
    result: StepResult | None = None
    shortfalls: tuple[Short, ...] = ()
    doubted: frozenset[str] = frozenset()
    # How many there are; not all of very many are told.
    short_total: int = 0


@dataclass(slots=True)
class ReadModel:
    """The parts whose facts are shown."""

    state: ShardState
    nodes: Nodes
    rails: Rails
    ownership: Ownership
    demand: Demand
    rereads: Rereads
    emission: Emission
    executor: Executor
    reconcile: Reconcile
    cycle: Cycle
    last: LastStep
    coordination: Coordination
    placement: Placement
    consolidation: Consolidation
    forgetting: Forgetting

    def publish(self) -> Published:
        """This moment as one value."""
        state, counts, last = self.state, self.state.fleet.counts, self.last
        ready = self.reconcile.all_listed
        waiting = sorted(view.name for view in self.reconcile.providers.values() if not view.listed)
        return Published(
            cycle=last.cycle,
            computed_at=last.at,
            started=self.cycle.started,
            now=state.now,
            ready=ready,
            waiting_for="" if ready else f"first List of {', '.join(waiting)} is not complete",
            paused=self.rails.paused,
            dry_run=self.rails.dry_run,
            epoch=state.fencing.epoch,
            term=state.fencing.term,
            ownership_version=self.ownership.version,
            machines=sum(counts.states.values()),
            states=dict(+counts.states),
            cells=dict(+counts.cells),
            dollars_per_hour=sum(counts.dollars.values()) / MICRO,
            demand_rows=dict(+self.demand.buckets),
            shortfalls=last.shortfalls,
            short_total=last.short_total,
            quarantined=self.demand.quarantine.held,
            doubted=last.doubted,
            sessions=len(state.sessions),
            queue_depth=self.executor.calls.depth,
            inflight=self.executor.calls.inflight,
            operations=len(state.operations),
            rereads=len(self.rereads),
            failed_here=len(self.executor.failures),
            providers=self._providers(),
            breakers=breakers(state.breakers, state.now),
            stood_off=dict(self.executor.refusals.standoffs.reasons),
            away=self.executor.away.told(),
            limiting=self.executor.calls.told(),
            barred=dict(self.emission.barred),
            sold_out=tuple(
                (shape, state.breakers.until(kind))
                for kind, shape in sorted(self.executor.refusals.stockouts.kinds(), key=lambda each: each[0])
                if state.breakers.resting(kind, state.now)
            ),
            blocked={need: rest.why for need, rest in state.need_rests.items() if rest.until > state.now},
            actions=tuple(self.emission.last),
            open_moves=sum(1 for _ in self.consolidation.moves),
            closing=self.placement.reports.closing,
            evictions=dict(self.placement.evictions.allowed()),
            fragmented=self.placement.reports.unused_dollars,
            result=last.result,
        )

    def machine(self, key: str) -> MachineView | None:
        """One machine with its story."""
        record = self.state.fleet.named(key)
        return None if record is None else self._view(record, self.state.stories.of(record.key))

    def machines(self, after: str = "") -> Iterator[MachineView]:
        """Machines by key, beginning after one; take what a page holds before the next event."""
        keys = self.state.fleet.ordered()
        for index in range(bisect_right(keys, after) if after else 0, len(keys)):
            yield self._view(self.state.fleet.machines[keys[index]])

    def story(self, key: str) -> tuple[StoryLine, ...]:
        """What happened to a machine lately."""
        return self.state.stories.of(key)

    def machine_count(self) -> int:
        return len(self.state.fleet.machines)

    def load(self) -> tuple[int, int]:
        """Calls that wait for their turn, and operations under way."""
        return self.executor.calls.depth, len(self.state.operations)

    def record(self, key: str) -> Record | None:
        return self.state.fleet.machines.get(key)

    def records(self, after: str = "") -> Iterator[Record]:
        """Records by key, beginning after one, as they are when their turn comes; some may be gone by then."""
        fleet = self.state.fleet
        keys = fleet.ordered()
        for index in range(bisect_right(keys, after) if after else 0, len(keys)):
            record = fleet.machines.get(keys[index])
            if record is not None:
                yield record

    def operations(self) -> tuple[Operation, ...]:
        """What is being done right now."""
        return tuple(self.state.operations)

    def asked_of(self, key: NeedKey) -> frozenset[str]:
        """Providers of which something is being asked for a need."""
        mine = (op for op in self.state.operations.of_cluster(key.cluster) if op.fingerprint == key.fingerprint)
        return frozenset(op.machine.provider for op in mine)

    def profile(self, fingerprint: str, cluster: str = "") -> Profile | None:
        """The profile of this fingerprint in demand in force; without a cluster, whoever asks for it."""
        return self.demand.any_profile(fingerprint, cluster)

    def free_shapes(self) -> list[Shape]:
        """Kinds of which some machine is free, the cheapest first."""
        found = {id(shape): shape for each in self.state.fleet.counts.free_shapes().values() for shape in each}
        return sorted(found.values(), key=lambda shape: (shape.price, shape.provider, shape.instance_type, shape.zone))

    def overhead(self, cluster: str) -> Resources:
        """What the cluster runs on every node."""
        return self.demand.overhead(cluster)

    def aggregate(self, key: NeedKey) -> Resources:
        """What a need asks for in total."""
        known = self.demand.clusters.get(key.cluster)
        return (known.aggregate(key) if known is not None else None) or Resources.ZERO

    def left_out(self, cluster: str = "") -> Iterable[RefusedNeed]:
        """Rows of a cluster, or of all, that are refused: no step knows of them."""
        return self.demand.refused.needs(cluster)

    def exclusive(self, key: NeedKey) -> list[str]:
        """Tokens of a need, of which a node carries each at most once."""
        return self.demand.exclusive(key)

    def away_since(self, cluster: str) -> int:
        """Since when the cluster's operator is not connected; 0 while it is."""
        return self.demand.away_since(cluster)

    def connected(self, cluster: str) -> bool:
        return self.state.sessions.of(cluster) is not None

    def resting_kinds(self, key: NeedKey) -> list[tuple[Shape, Resting]]:
        """What is free of kinds that came for a need and did not help: until when each is left alone, and why."""
        resting = self.placement.backoffs.resting(key)
        free = self.free_shapes() if resting else []
        return [(shape, rest) for shape in free if (rest := resting.get(kind_of(shape))) is not None]

    def counted_on_until(self, machine: str) -> int:
        """Until when a machine under way, or draining, is counted on; 0 where nobody keeps that."""
        return self.state.deadlines.until(machine)

    def refused(self) -> list[Record]:
        """Nodes that stand empty and that their clusters refused to let go of a moment ago."""
        rests = (rest.machine for rest in self.placement.spared.rests() if rest.kind == RestKind.DRAIN)
        records = [record for machine in rests if (record := self.state.fleet.machines.get(machine)) is not None]
        reports = self.placement.reports
        return [each for each in records if (told := reports.on(each.key)) is not None and told.empty]

    def known_clusters(self) -> frozenset[str]:
        """Clusters that ever spoke here, or have machines."""
        return frozenset((*self.demand.clusters, *self.state.sessions.seen, *self.state.fleet.bound))

    def free_kinds(self) -> dict[FreeKind, int]:
        """Free machines by kind, without those that are kept for a transfer or that a consolidation move needs: what
        other shards may ask for."""
        free = Counter(+self.state.fleet.counts.free)
        kept = {record.key: record for record in self.coordination.kept()}
        for move in self.consolidation.moves:
            records = (self.state.fleet.machines.get(key) for key in move.machines)
            kept |= {record.key: record for record in records if record is not None}
        for record in kept.values():
            if record.owned and record.state in (MachineState.IDLE, MachineState.SPECULATIVE):
                free[free_kind(record.shape, record.state)] -= 1
        return dict(+free)

    def arriving(self) -> tuple[str, ...]:
        """Transfers to this shard that the shortfalls do not count yet."""
        return self.coordination.arriving

    def relabelled(self) -> list[tuple[str, str, str]]:
        """(provider, id, owner) of machines that stand elsewhere than at first and that no table names yet."""
        return self.ownership.relabelled()

    def looked(self) -> tuple[int, int]:
        """The last look that was finished, and the number this shard asks others with to look for it."""
        return self.ownership.sightings.looked, self.ownership.sightings.asking

    def moves(self) -> tuple[MoveRow, ...]:
        """Moves of consolidation that are not over."""
        return tuple(self.consolidation.moves)

    def acks(self) -> tuple[Ack, ...]:
        """What the coordinator has still to be told about its instructions."""
        return self.coordination.acks

    def claimed_shard(self, cluster: str) -> str:
        """The shard a connected operator believes to belong to."""
        session = self.state.sessions.of(cluster)
        return "" if session is None else session.bound_shard

    def repeated(self, timestamp: int) -> Acknowledgement:
        """The answer to a roll-up equal to the one that was applied last."""
        fencing = self.state.fencing
        return Acknowledgement("rollup", fencing.term, fencing.epoch, timestamp, AckOutcome.APPLIED)

    def inputs(self, now: int) -> RunStep:
        """All the engine knows, as one step's worth of inputs."""
        return snapshot_step(self.state, self.demand, self.placement, self.cycle.conditions, now)

    def shortage_lines(self, verdicts: Sequence[Verdict], actions: Iterable[Action]) -> Iterator[Line]:
        """What the attribution probe has to say of a cycle."""
        return probe_lines(self.demand, self.state.fleet, verdicts, actions)

    def clusters(self) -> tuple[ClusterView, ...]:
        """Every cluster that has demand, machines or a stream, or went to the shard it belongs to, by name."""
        counts = self.state.fleet.counts
        states: dict[str, dict[int, int]] = {}
        for (cluster, machine_state), count in counts.clusters.items():
            if count:
                states.setdefault(cluster, {})[machine_state] = count
        live = {session.cluster: session for session in self.state.sessions}
        held = self.demand.quarantine.held
        views = []
        for name in sorted(states.keys() | self.demand.clusters.keys() | live.keys() | self.demand.served_elsewhere):
            session, wanted = live.get(name), self.demand.clusters.get(name)
            views.append(
                ClusterView(
                    name=name,
                    connected=session is not None,
                    may_acquire=self.demand.may_acquire(name),
                    capabilities=frozenset() if session is None else session.capabilities,
                    rows=0 if wanted is None or wanted.rollup is None else len(wanted.rollup),
                    machines=states.get(name, {}),
                    dollars_per_hour=counts.dollars[name] / MICRO,
                    waiting_frames=0 if session is None else len(session.outbox),
                    held_rollups=held.get(name, 0),
                )
            )
        return tuple(views)

    def _providers(self) -> tuple[ProviderHealth, ...]:
        counts = self.state.fleet.by_provider
        return tuple(
            ProviderHealth(
                view.name,
                counts[view.name],
                view.listed,
                view.failures,
                view.error,
                view.last_complete,
                len(view.doubted or ()),
            )
            for view in self.reconcile.providers.values()
        )

    def _view(self, record: Record, story: tuple[StoryLine, ...] = ()) -> MachineView:
        operation = self.state.operations.on(record.key)
        return MachineView(
            key=record.key,
            provider=record.provider,
            id=record.id,
            record=record,
            owned=record.owned,
            not_before=self.state.not_before.get(record.key, 0),
            operation="" if operation is None else f"{operation.kind.name.capitalize()}: {operation.stage.value}",
            node=self.nodes.report_on(record.key),
            story=story,
        )
