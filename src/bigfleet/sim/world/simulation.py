"""One run: builds sites from a scenario, plays it on the kernel, and answers for what happened.

Same scenario and seed, same bytes, on any machine. `shuffle` permutes everything whose order must not matter; `check`
validates every part after every event.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigfleet.duration import spelled
from bigfleet.engine.results import Disposition, Shortfall, Verdict
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import Resources
from bigfleet.shard.contract import events as ev
from bigfleet.shard.read.unmet_words import UnmetWords
from bigfleet.shard.read.views import REASONS
from bigfleet.shard.recording.format import Recorder
from bigfleet.sim.scenario.expectations import DemandMet, Limit, limits_of, moments_of
from bigfleet.sim.scenario.fit import places_of
from bigfleet.sim.scenario.scenario import CoordinatorSpec, Scenario
from bigfleet.sim.scenario.shard_settings import shard_config
from bigfleet.sim.scenario.supply import OFFER_LABEL, Fleet, catalogue, price_of, risk_of, size_of, split
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.generators import Generators, Stage, Unfinished
from bigfleet.sim.world.host import EPOCH
from bigfleet.sim.world.injections import Injections
from bigfleet.sim.world.leaks import failed_machines, leaks
from bigfleet.sim.world.meter import Meter
from bigfleet.sim.world.pods import ForSale, Kinds, PodSet
from bigfleet.sim.world.reasons import Waiting, waiting
from bigfleet.sim.world.site import Site
from bigfleet.sim.world.trace import Trace
from bigfleet.sim.world.waits import Waits
from bigfleet.virtual.kernel import SECOND, Kernel

if TYPE_CHECKING:
    from bigfleet.sim.world.coordinating import Coordinating

SETTLE = 15 * 60 * SECOND
"""A transition under way for longer than this at the end of a run is stuck."""


class Simulation:
    """A scenario being played. `run` plays it; everything else is asked afterwards."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        shuffle: int | None = None,
        check: bool = False,
        engine: Callable[[], Any] | None = None,
        record: Path | None = None,
        sampled: bool = True,
    ) -> None:
        """`sampled` keeps a point per cycle for plots and metrics; runs of very many cycles do without."""
        self.scenario = scenario
        self.kernel = Kernel(seed=scenario.seed)
        self.end: int = scenario.duration
        self.trace = Trace(scenario.trace)
        self.sites: list[Site] = []
        self._shuffle = None if shuffle is None else random.Random(shuffle)
        self._check = check
        self._sampled = sampled
        self.decision_seconds: Counter[float] = Counter()
        self._engine = engine or _production_engine(self.decision_seconds if sampled else None)
        self._kinds = _kinds(scenario)
        self.meter = Meter(
            self._kinds.resources, moments_of(scenario.expect, self.end), Waits(limits_of(scenario.expect, self.end))
        )
        self._stages: dict[str, tuple[Site, Stage]] = {}
        self.clusters: dict[str, Cluster] = {}
        self._shortfalls: dict[str, list[Shortfall]] = {}
        self._latest: dict[str, Any] = {}
        self._cycles: Counter[str] = Counter()
        self._met: dict[DemandMet, int | None] = {
            clause: None for clause in scenario.expect if isinstance(clause, DemandMet)
        }
        self._baseline: float | None = None
        self._open_since: dict[tuple[str, str], int] = {}
        self._recorder = None if record is None else Recorder(record, shard_id="shard-0", epoch=1, started=EPOCH)
        self.coordinating: Coordinating | None = None
        self._build()

    def run(self, progress: Callable[[float], None] | None = None) -> Simulation:
        """Play to the end."""
        cycle = self.scenario.shard.cycle
        if self._sampled:
            self._sample()
        if progress is not None:
            self.kernel.every(max(cycle, self.end // 200), lambda: progress(self.kernel.now / self.end))
        self.kernel.run_until(self.end)
        self.meter.advance(self.end)
        self._note_met()
        for cluster in self.clusters.values():
            for podset in cluster.waiting():
                for since, count in podset.waiting:
                    self.meter.pods_waiting(podset.kind.priority_class, self.end - since, count)
                    self.meter.pods_waited(cluster.name, podset.kind.priority, since, self.end, count)
        self.trace.finish(
            self.end,
            {
                **self._picture(),
                "dollars": round(self.meter.dollars, 4),
                "interrupted": dict(sorted(self.meter.interrupted.items())),
            },
        )
        if self._check:
            for site in self.sites:
                site.validate()
        if self._recorder is not None:
            self._recorder.close()
        return self

    @property
    def cycles(self) -> int:
        """Decisions taken, over all shards."""
        return sum(self._cycles.values())

    def compare_with(self, baseline: Simulation) -> None:
        self._baseline = baseline.dollars()

    def failures(self) -> list[str]:
        """One sentence for every expectation that does not hold."""
        return [f"{clause.TAG[1]}: {problem}" for clause in self.scenario.expect if (problem := clause.judge(self))]

    # -------------------------------------------------------------------------------------------------------- building

    def _build(self) -> None:
        scenario = self.scenario
        names = scenario.cluster_names()
        self._generators = generators = Generators(self.kernel, self._kinds, scenario.shapes, self.end)
        shards = scenario.shard_names()
        for place, (shard, members) in enumerate(shards.items()):
            parts = [part for fleet in scenario.fleets if (part := split(fleet, place, len(shards))) is not None]
            if scenario.coordinator is not None:
                # One fleet: the first site has it, the others dial it.
                parts = [] if place else list(scenario.fleets)
            self._add_site(shard, parts, members)
        if scenario.coordinator is not None:
            self._join_sites(scenario.coordinator)
        for name in names:
            generators.attach(self.clusters[name])
        for workload in scenario.workloads:
            generators.play(workload, [self._stages[name][1] for name in names])
        injections = Injections(self.kernel, self.sites, generators, self._stages, self._note)
        injections.plan(scenario.steps)
        for site in self.sites:
            site.start()

    def _join_sites(self, wanted: CoordinatorSpec) -> None:
        # Imported here: most scenarios have no coordinator, and its codecs bring the wire along.
        from bigfleet.sim.world.coordinating import Coordinating

        first, *others = self.sites
        first.sites_of.update({name: site for site in self.sites for name in site.members})
        for site in others:
            for name in first.ports:
                site.dial(name, first)
        zones = sorted({zone for fleet in self.scenario.fleets for offer in fleet.offers for zone in offer.zones})
        self.coordinating = Coordinating(self.kernel, self.sites, wanted, zones)

    def _add_site(self, shard: str, fleets: list[Fleet], names: list[str]) -> None:
        scenario = self.scenario
        dialled = scenario.fleets if scenario.coordinator is not None else fleets
        site = Site(
            self.kernel,
            shard_config(scenario, shard, [fleet.provider for fleet in dialled]),
            self.meter,
            self,
            self._engine,
            mode=scenario.mode,
            rpc=scenario.network.rpc,
            session=scenario.network.session,
            check=self._check,
            shuffle=self._shuffle,
        )
        for name in names:
            spec = scenario.spec_of(name)
            cluster = self.clusters[name] = Cluster(
                name,
                self._kinds,
                self.meter,
                managed=spec.controller_managed,
                request_per_pod=spec.request_per_pod,
                overhead=Resources.parse(spec.overhead, round_up=True),
                scoring=spec.scheduler,
                risk_rule=spec.risk_rule,
            )
            site.add_cluster(spec, cluster, self._kinds, spec.operator or scenario.operator)
            self._stages[name] = (site, Stage(cluster, site.demand_changed))
        for fleet in fleets:
            bound = scenario.cluster_names() if scenario.coordinator is not None else names
            made, bindings = catalogue(fleet, scenario.shapes, bound, scenario.seed)
            site.add_provider(made)
            for binding in bindings:
                site.bind(fleet.provider, binding)
        site.on_change = self._changed
        self.sites.append(site)

    # ------------------------------------------------------------------------------------------------------- listening

    def stepped(self, shard: str, wanted: ev.RunStep, result: Any) -> None:
        self.meter.advance(self.kernel.now)
        if self._recorder is not None:
            self._recorder.write(wanted)
        self._cycles[shard] += 1
        emitted = [
            (action.kind.name.capitalize(), action.cluster, action.machine)
            for action in result.actions.rows()
            if action.disposition == Disposition.EMIT
        ]
        for (kind, cluster), count in sorted(Counter((kind, cluster) for kind, cluster, _ in emitted).items()):
            self.meter.actions(kind, cluster, count)
        self._shortfalls[shard] = list(result.shortfalls.rows())
        self._latest[shard] = result
        short = Counter(row.priority for rows in self._shortfalls.values() for row in rows)
        self.meter.shortfalls(tuple(sorted(short.items())))
        self.trace.decided(self.kernel.now, shard, self._cycles[shard], emitted, self._picture())

    def audited(self, shard: str, record: ev.Audit) -> None:
        pass

    def logged(self, shard: str, record: ev.Log) -> None:
        pass

    def _note(self, event: str, facts: dict[str, object]) -> None:
        self.trace.note(self.kernel.now, event, facts)

    def _changed(self, name: str) -> None:
        cluster = self.clusters[name]
        self.meter.load(name, cluster.used, cluster.capacity)
        self._note_met()

    def _note_met(self) -> None:
        for clause, since in self._met.items():
            waiting = any(
                podset.kind.priority >= clause.priority_at_least
                for name, cluster in self.clusters.items()
                if clause.cluster in ("", name)
                for podset in cluster.waiting()
            )
            if waiting:
                self._met[clause] = None
            elif since is None:
                self._met[clause] = self.kernel.now

    def _sample(self) -> None:
        self.meter.advance(self.kernel.now)
        live: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for cluster in self.clusters.values():
            live.update(cluster.live)
            running.update(cluster.running)
        oldest = min((row.since for rows in self._shortfalls.values() for row in rows), default=None)
        age = 0.0 if oldest is None else (EPOCH + self.kernel.now - oldest) / SECOND
        loads = [site.host.core.read.load() for site in self.sites if site.host.core is not None]
        queued, under_way = (sum(column) for column in zip(*loads, strict=True)) if loads else (0, 0)
        self.meter.sample(live, running, age, queued, under_way)
        pause = self.scenario.shard.cycle * self.meter.stride
        if self.kernel.now + pause <= self.end:
            self.kernel.after(pause, self._sample)

    def _picture(self) -> dict[str, Any]:
        live = sum(sum(cluster.live.values()) for cluster in self.clusters.values())
        running = sum(sum(cluster.running.values()) for cluster in self.clusters.values())
        states = {state.label: self.meter.states[state.label] for state in MachineState}
        return {
            "machines": {name: count for name, count in states.items() if count},
            "pods": {"live": live, "running": running},
            "short": self.shortfalls(),
        }

    # ----------------------------------------------------------------------------------------- answers to expectations

    def states(self) -> Mapping[str, int]:
        return self.meter.states

    def configured(self, cluster: str) -> int:
        return self.configured_in("", cluster)

    def configured_in(self, offer: str, cluster: str) -> int:
        return sum(
            record.state == MachineState.CONFIGURED
            and cluster in ("", record.cluster)
            and (not offer or record.labels.get(OFFER_LABEL) == offer)
            for site in self.sites
            for record in site.machines.values()
        )

    def actions(self, kind: str, since: int, cluster: str) -> int:
        return self.meter.acted_since(kind, since, cluster)

    def pods(self, cluster: str, workload: str) -> tuple[int, int]:
        chosen = [
            podset
            for name, each in self.clusters.items()
            if cluster in ("", name)
            for podset in each.podsets.values()
            if workload in ("", podset.workload)
        ]
        return sum(podset.live for podset in chosen), sum(podset.bound_count for podset in chosen)

    def met_since(self, priority: int, cluster: str) -> int | None:
        for clause, since in self._met.items():
            if clause.priority_at_least == priority and clause.cluster == cluster:
                return since
        return None

    def late(self, limit: Limit) -> tuple[int, int, int]:
        found = self.meter.waits.late(limit)
        return found.pods, found.longest, found.since

    def shortfalls(self) -> int:
        return sum(len(rows) for rows in self._shortfalls.values())

    def unmet(self) -> list[tuple[Verdict, str]]:
        """The rows that are short at the end and why they are, most important first."""
        short = [shard for shard, rows in sorted(self._shortfalls.items()) if rows]
        found = [told for shard in short for told in self._told(shard)]
        return sorted(found, key=lambda told: (-told[0].priority, told[0].key.cluster, told[0].key.fingerprint))

    def _told(self, shard: str) -> Iterator[tuple[Verdict, str]]:
        """What a shard could not answer in its last decision, each with the words its readers get."""
        core = next(site.host.core for site in self.sites if site.name == shard)
        words = UnmetWords(core) if core is not None else None
        for verdict in self._latest[shard].verdicts.unmet():
            yield verdict, REASONS[verdict.reason] if words is None else words.sentence(verdict)

    def waiting(self) -> list[Waiting]:
        """Everybody who waits at the end, and why."""
        verdicts = {
            (verdict.key.cluster, verdict.key.fingerprint, verdict.key.group): why
            for shard in self._latest
            for verdict, why in self._told(shard)
        }

        def said(cluster: str, podset: PodSet) -> str:
            asked = (podset.kind.kept_off, podset.kind.profile)
            names = [(cluster, profile.fingerprint, podset.group) for profile in asked if profile is not None]
            found = next((verdicts[name] for name in names if name in verdicts), "The shard takes this demand for met.")
            return self._away(cluster) or found

        return waiting(self.clusters.values(), self._kinds.resources, said, self.end)

    def _away(self, cluster: str) -> str:
        """Whether nobody tells the shard of a cluster; empty while somebody does."""
        site = next(site for site in self.sites if cluster in site.members)
        core = site.host.core
        if core is None:
            return "Its shard is not running."
        if core.read.connected(cluster):
            return ""
        since = core.read.away_since(cluster)
        when = f" since {spelled(since - EPOCH)}" if since else ""
        return f"Its operator is not connected{when}: the shard has not heard of what is new."

    def evictions(self) -> tuple[int, dict[str, int]]:
        """Pods that were moved to save money, and how many more may be in each cluster that is consolidated."""
        left = {}
        for site in self.sites:
            if site.host.config.consolidate and (core := site.host.core) is not None:
                told = core.published.evictions
                places = [name for name in site.members if core.read.placement.reports_placement(name)]
                left.update({name: told.get(name, 0) for name in places})
        return sum(site.host.evicted for site in self.sites), dict(sorted(left.items()))

    def begun_anew(self) -> tuple[int, int]:
        return self._generators.begun_anew

    def unfinished(self) -> Unfinished:
        return self._generators.unfinished()

    def priorities(self) -> dict[str, tuple[int, int]]:
        """The lowest and highest priority that pods of each class ever had."""
        found: dict[str, tuple[int, int]] = {}
        for cluster in self.clusters.values():
            for name, (low, high) in cluster.priorities.items():
                known = found.get(name, (low, high))
                found[name] = (min(low, known[0]), max(high, known[1]))
        return found

    def shortfall_range(self, since: int, priority: int) -> tuple[int, int]:
        return self.meter.shortfall_range(since, priority)

    def deficit(self, resource: str) -> int:
        return sum(row.deficit.get(resource) for rows in self._shortfalls.values() for row in rows)

    def dollars(self) -> float:
        return self.meter.dollars

    def interruptions(self, cause: str) -> int:
        return sum(self.meter.interrupted.values()) if cause == "any" else self.meter.interrupted[cause]

    def utilisation(self, resource: str) -> float:
        return self.meter.utilisation(resource)

    def waited(self, priority_class: str, percentile: float) -> float | None:
        return self.meter.waited(priority_class, percentile)

    def lost_machines(self) -> int:
        return self.meter.lost_machines

    def baseline_dollars(self) -> float | None:
        return self._baseline

    def leaks(self, failed_allowed: int, patience: int = SETTLE) -> list[str]:
        """Machines that are stuck, Failed beyond what is allowed, or seen differently by shard and provider."""
        found = []
        failed = sorted(id for site in self.sites for id in failed_machines(site))
        if len(failed) > failed_allowed:
            found.append(f"{len(failed)} machines are Failed, {failed[0]} among them")
        for site in self.sites:
            found += leaks(site, patience)
        return found


def _production_engine(seconds: Counter[float] | None) -> Callable[[], Any]:
    """The engine, with a watch on each of its decisions where somebody keeps the times."""
    from bigfleet.engine.engine import Engine

    if seconds is None:
        return Engine
    kept = seconds

    class Watched(Engine):
        def step(self, *inputs: Any, **options: Any) -> Any:
            began = time.perf_counter()
            result = super().step(*inputs, **options)
            # Three digits: months of decisions take as many different times as decisions.
            kept[float(f"{time.perf_counter() - began:.2e}")] += 1
            return result

    return Watched


def _kinds(scenario: Scenario) -> Kinds:
    names = tuple(sorted(_resource_names(scenario)))
    offers = [offer for fleet in scenario.fleets for offer in fleet.offers]
    sizes = [Resources.parse(size_of(offer, scenario.shapes), round_up=False) for offer in offers]
    for_sale = [
        ForSale(
            tuple(size.get(name) for name in names),
            price_of(offer),
            risk_of(offer),
            tuple(places_of(offer, scenario.shapes)),
        )
        for offer, size in zip(offers, sizes, strict=True)
    ]
    return Kinds(scenario.shapes, names, for_sale)


def _resource_names(scenario: Scenario) -> set[str]:
    names = {"cpu", "memory"}
    for shape in scenario.shapes.values():
        names |= set(shape.resources)
    for fleet in scenario.fleets:
        for offer in fleet.offers:
            names |= set(size_of(offer, scenario.shapes))
    if any(workload.TAG[1] == "archetypes" for workload in scenario.workloads):
        names.add("nvidia.com/gpu")
    return names
